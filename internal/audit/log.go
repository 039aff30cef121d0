package audit

import "context"

// Log stores the chains of all orgs. store/database implements it;
// storetest checks them. Rows are appended in the transaction of the facts that
// they record, not through this interface. It is safe for concurrent use.
type Log interface {
	// Sums has the rows of an org, ordered by number, up to q.Limit, and what a store adds up of them in the
	// transaction that stores them. The sums outlive the rows.
	Sums

	// AuditHeads returns the last row of every chain that has one.
	AuditHeads(ctx context.Context) ([]Head, error)

	// SyncAudit returns nil after all rows that AuditHeads has returned are on disk.
	SyncAudit(ctx context.Context) error

	// AddCheckpoint stores a checkpoint. It does not replace an existing one.
	AddCheckpoint(ctx context.Context, c Checkpoint) error

	// Checkpoints returns up to limit of the org's checkpoints with a number above
	// after, in order.
	Checkpoints(ctx context.Context, org string, after int64, limit int) ([]Checkpoint, error)

	// PruneAudit stores c, whose Pruned must be set, and then removes the org's rows
	// and earlier checkpoints up to c.Number. It may be repeated after a failure.
	PruneAudit(ctx context.Context, c Checkpoint) (removed int64, err error)

	// PruneUsage removes the org's sums of the days before the given one.
	PruneUsage(ctx context.Context, org string, day int64) (removed int64, err error)
}

// Head is the last row of a chain.
type Head struct {
	Org      string
	Number   int64
	At       int64 // Unix milliseconds
	Hash     Hash
	Signed   int64 // number of the latest checkpoint; 0 = none
	SignedAt int64 // its time; Unix milliseconds
}
