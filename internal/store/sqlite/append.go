package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// Append implements run.Journal.
func (s *Store) Append(ctx context.Context, lease run.Lease, after int64, b run.Batch) error {
	if err := b.Check(lease, after); err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	stored, err := encodeBatch(lease, b)
	if err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	h := s.heads.lock(stored.key)
	one, err := s.enqueue(ctx, h, lease, after, b, stored)
	h.mu.Unlock()
	if err == nil && b.Sync {
		err = s.awaitDisk(ctx, stored.key, h, one)
	}
	var behind *run.Behind
	switch {
	case err == nil, errors.As(err, &behind):
		return err
	case isRefusal(err):
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	return fmt.Errorf("run %s: %w", lease.RunID, s.wrap("append", err))
}

// isRefusal reports whether err is a refusal of the batch, not a failure of the file.
func isRefusal(err error) bool {
	return errors.Is(err, run.ErrFenced) || errors.Is(err, errJournalTooShort) || errors.Is(err, run.ErrNoSlot) ||
		errors.As(err, new(*org.CapError)) || errors.As(err, new(*run.Submitted)) || errors.As(err, new(*run.OverBudget))
}

// errJournalTooShort reports a batch that starts after the end of the journal.
var errJournalTooShort = errors.New("the journal is shorter than the writer expects")

// enqueue submits the batch if it continues the journal. It returns run.ErrFenced if
// the run has a higher epoch, and *run.Behind if the journal has further facts. It
// is called with h locked.
func (s *Store) enqueue(ctx context.Context, h *head, lease run.Lease, after int64, b run.Batch, stored batch) (*write, error) {
	if err := s.catchUp(ctx, h, lease, after); err != nil {
		return nil, err
	}
	switch {
	case lease.Epoch != 0 && lease.Epoch < h.epoch:
		return nil, run.ErrFenced
	case h.seq > after:
		facts, err := readFacts(ctx, s.db, stored.key, after)
		if err != nil {
			return nil, err
		}
		return nil, &run.Behind{Facts: facts}
	case h.seq < after:
		return nil, fmt.Errorf("%w: it ends at %d, not at %d", errJournalTooShort, h.seq, after)
	}
	c := h.headChange(lease, b, s.now(), s.leaseNow())
	one := &write{awaited: b.Sync, epoch: lease.Epoch, do: func(t *tx) error { return stored.write(t, c) }}
	if n := len(h.pending); n > 0 {
		one.dependsOn = h.pending[n-1]
	}
	if err := s.writer.submit(ctx, one); err != nil {
		return nil, err
	}
	h.pending = append(h.pending, one)
	h.apply(c)
	return one, nil
}

// catchUp loads the head if needed. If the writer is behind, or has another epoch
// than the last queued write, it waits until the queue holds no write of the run: an
// error of the previous owner's writes must not reach the new owner.
func (s *Store) catchUp(ctx context.Context, h *head, lease run.Lease, after int64) error {
	key := runKey{lease.Org, lease.RunID}
	if err := h.load(ctx, s.db, key); err != nil {
		return err
	}
	n := len(h.pending)
	if h.seq <= after && (n == 0 || h.pending[n-1].epoch == lease.Epoch) {
		return nil
	}
	if err := h.drain(ctx); err != nil {
		return err
	}
	return h.load(ctx, s.db, key)
}

// awaitDisk waits until the write is on disk. It removes the head of a run that has
// ended, or whose write failed.
func (s *Store) awaitDisk(ctx context.Context, key runKey, h *head, one *write) error {
	err := one.wait(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil && one.ended():
		_ = h.reset(ctx) // queryOne's own error is returned; it includes that of an earlier write
		s.heads.remove(key, h)
	case err == nil && h.summary.Status != run.Running:
		s.heads.remove(key, h)
	}
	return err
}
