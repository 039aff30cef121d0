package sqlite

import (
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// headChange is the effect of a batch on the head of its run.
type headChange struct {
	lease    run.Lease
	from, to run.Summary
	seq      int64 // of the last fact before the batch
	next     int64 // of the last fact after it
	at       int64
	now      time.Time // wall clock
	leaseNow time.Time // clock of leases
	mayHold  bool      // the run may have holds
}

// headChange returns the effect of the batch. It is called with h locked.
func (h *head) headChange(lease run.Lease, b run.Batch, now, leaseNow time.Time) headChange {
	c := headChange{
		lease: lease, from: h.summary, to: h.summary, seq: h.seq, next: h.seq + int64(len(b.Facts)),
		now: now, leaseNow: leaseNow, mayHold: h.mayHold || len(b.Holds) > 0,
	}
	for _, f := range b.Facts {
		c.to, c.at = c.to.After(f), f.At
	}
	return c
}

// apply applies the change to the head. It is called with h locked.
func (h *head) apply(c headChange) {
	h.summary, h.seq, h.mayHold = c.to, c.next, c.mayHold
	h.epoch = max(h.epoch, c.lease.Epoch)
}

// nextLease returns the run's lease after the batch; keep leaves it unchanged. A writer
// without a lease does not change it, except that waking a parked run frees it to be
// claimed.
func (c headChange) nextLease() (owner string, until int64, keep bool) {
	switch {
	case c.to.Status != run.Running:
		return "", 0, false
	case c.lease.Epoch > 0:
		return c.lease.Owner, leaseEnd(c.leaseNow), false
	}
	return "", 0, c.from.Status == run.Running
}

// leaseEnd returns when a lease expires that is granted or renewed at now, by the clock
// of leases.
func leaseEnd(now time.Time) int64 { return now.Add(run.LeaseTTL).UnixMilli() }

// changesStatus reports whether the change affects more columns than the counters.
func (c headChange) changesStatus() bool {
	return c.from.Status != c.to.Status || c.from.Grade != c.to.Grade || c.from.Reason != c.to.Reason || c.from.FinishedAt != c.to.FinishedAt
}

// The two updates of a head. Most appends use the first one, which does not touch
// the index of running runs.
const (
	updateCounters = `UPDATE runs SET rounds = ?5, calls = ?6, tokens = ?7, epoch = max(epoch, ?4), next_seq = ?8, updated_at = max(updated_at, ?9),
			owner = iif(?10, owner, ?11), lease_until = iif(?10, lease_until, ?12)`
	updateStatus  = updateCounters + `, status = ?13, grade = ?14, finish_reason = ?15, finished_at = ?16, aside = '{}'`
	headCondition = ` WHERE org = ?1 AND run_id = ?2 AND next_seq = ?3 AND (epoch <= ?4 OR ?4 = 0)`
)

func (b batch) writeHead(t *tx, c headChange) error {
	if c.seq == 0 {
		return b.insertHead(t, c)
	}
	s := c.to
	owner, until, keep := c.nextLease()
	text := updateCounters + headCondition
	args := []any{b.key.org, b.key.run, c.seq + 1, c.lease.Epoch, s.Rounds, s.Calls, s.Tokens, c.next + 1, c.at, keep, owner, until}
	if c.changesStatus() {
		text = updateStatus + headCondition
		args = append(args, string(s.Status), string(s.Grade), string(s.Reason), s.FinishedAt)
	}
	n, err := t.exec(text, args...)
	if err == nil && n != 1 {
		err = b.mismatch(t, c)
	}
	return err
}

func (b batch) insertHead(t *tx, c headChange) error {
	s := c.to
	owner, until, _ := c.nextLease()
	_, err := t.exec(`INSERT INTO runs (org, run_id, principal, surface, grade, model, status, finish_reason,
			rounds, calls, tokens, epoch, next_seq, created_at, updated_at, finished_at, owner, lease_until)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		b.key.org, b.key.run, s.Principal, s.Surface, string(s.Grade), s.Model, string(s.Status), string(s.Reason),
		s.Rounds, s.Calls, s.Tokens, c.lease.Epoch, c.next+1, s.CreatedAt, c.at, s.FinishedAt, owner, until)
	return err
}

// mismatch returns why the batch does not continue the stored journal: the run was
// claimed while the batch was in the queue (ErrFenced), or there is a bug.
func (b batch) mismatch(t *tx, c headChange) error {
	var epoch, next int64
	err := t.queryRow(`SELECT epoch, next_seq FROM runs WHERE org = ? AND run_id = ?`, []any{b.key.org, b.key.run}, &epoch, &next)
	switch {
	case err != nil:
		return err
	case c.lease.Epoch != 0 && c.lease.Epoch < epoch:
		return run.ErrFenced
	}
	return fmt.Errorf("%w: it ends at %d, not at %d", errJournalTooShort, next-1, c.seq)
}
