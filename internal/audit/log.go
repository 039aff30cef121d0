package audit

import "context"

// Log keeps the chains of all orgs. Implemented by store/memory and
// store/sqlite, where rows come with the facts that they tell of.
type Log interface {
	// AuditRows returns the rows of the org that the query chooses, in the order
	// of their numbers: at most its limit.
	AuditRows(ctx context.Context, org string, q Query) ([]Row, error)

	// AuditHeads returns the ends of all chains that have a row.
	AuditHeads(ctx context.Context) ([]Head, error)

	// SyncAudit returns when all rows that AuditHeads has returned are on disk.
	SyncAudit(ctx context.Context) error

	// AddCheckpoint keeps a checkpoint. One that is there stays as it is.
	AddCheckpoint(ctx context.Context, c Checkpoint) error

	// Checkpoints returns the org's checkpoints at rows above after, in order: at
	// most limit.
	Checkpoints(ctx context.Context, org string, after int64, limit int) ([]Checkpoint, error)

	// PruneAudit keeps the checkpoint, which must be a cut, and then removes the
	// org's rows up to it, and earlier checkpoints. It can be repeated after a
	// failure.
	PruneAudit(ctx context.Context, c Checkpoint) (removed int64, err error)
}

// Head is the end of a chain.
type Head struct {
	Org       string
	Number    int64
	At        int64 // Unix milliseconds
	Hash      Hash
	Checked   int64 // the number at the latest checkpoint; 0 = there is none
	CheckedAt int64
}
