package sqlite

import (
	"database/sql"
	"errors"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// sweepBatch is how many expired rows of a table one write deletes. Other writes of its
// group wait for it.
const sweepBatch = 100

// checkOpening checks the conditions of an opening. The key comes first: a repeated request
// gets its run even if the org has no slot or space left.
func (b batch) checkOpening(t *tx, c headChange) error {
	if b.opening.Key != nil {
		if err := b.claimKey(t, c, *b.opening.Key); err != nil {
			return err
		}
	}
	if err := b.checkSpace(t); err != nil {
		return err
	}
	if b.opening.Slots <= 0 {
		return nil
	}
	var live int
	err := t.queryRow(`SELECT count(*) FROM runs INDEXED BY runs_running WHERE status = 'running' AND org = ? AND lease_until > ?`,
		[]any{b.key.org, c.leaseNow.UnixMilli()}, &live)
	if err == nil && live >= b.opening.Slots {
		err = run.ErrNoSlot
	}
	return err
}

// checkSpace returns an error if the org has reached its cap on stored bytes. It is
// checked only when a run starts, so runs in progress can finish.
func (b batch) checkSpace(t *tx) error {
	if t.caps.Stored == 0 {
		return nil
	}
	bytes, _, err := t.usage(b.key.org)
	if err == nil && bytes >= t.caps.Stored {
		err = t.caps.StoredError()
	}
	return err
}

func (b batch) claimKey(t *tx, c headChange, k run.SubmitKey) error {
	now := c.now.UnixMilli()
	var s run.Submitted
	err := t.queryRow(`SELECT run_id, hash FROM submit_keys WHERE org = ? AND principal = ? AND key = ? AND expires_at > ?`,
		[]any{b.key.org, k.Principal, k.Key, now}, &s.RunID, &s.Hash)
	switch {
	case err == nil:
		return &s
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	_, err = t.exec(`DELETE FROM submit_keys WHERE rowid IN (SELECT rowid FROM submit_keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`, now, sweepBatch)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT OR REPLACE INTO submit_keys (org, principal, key, hash, run_id, expires_at) VALUES (?, ?, ?, ?, ?, ?)`,
		b.key.org, k.Principal, k.Key, k.Hash, b.key.run, c.now.Add(run.SubmitKeyTTL).UnixMilli())
	return err
}
