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
		err = s.await(ctx, stored.key, h, one)
	}
	var behind *run.Behind
	switch {
	case err == nil, errors.As(err, &behind):
		return err
	case refusal(err):
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	return fmt.Errorf("run %s: %w", lease.RunID, s.wrap("append", err))
}

// refusal reports whether err is a refusal of the batch, not a failure of the file.
func refusal(err error) bool {
	return errors.Is(err, run.ErrFenced) || errors.Is(err, errGap) || errors.Is(err, run.ErrNoSlot) ||
		errors.As(err, new(*org.CapError)) || errors.As(err, new(*run.Submitted)) || errors.As(err, new(*run.OverBudget))
}

// errGap reports a batch that starts after the end of the journal.
var errGap = errors.New("the journal is shorter than the writer expects")

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
		return nil, fmt.Errorf("%w: it ends at %d, not at %d", errGap, h.seq, after)
	}
	c := h.change(lease, b, s.now(), s.leaseNow())
	one := &write{waits: b.Sync, epoch: lease.Epoch, do: func(t *tx) error { return stored.write(t, c) }}
	if n := len(h.pending); n > 0 {
		one.after = h.pending[n-1]
	}
	if err := s.writer.submit(ctx, one); err != nil {
		return nil, err
	}
	h.pending = append(h.pending, one)
	h.follow(c)
	return one, nil
}

// catchUp loads the head if needed. If the writer is behind, or has another epoch
// than the last queued write, it waits until the queue holds no write of the run: an
// error of the previous owner's writes must not reach the new owner.
func (s *Store) catchUp(ctx context.Context, h *head, lease run.Lease, after int64) error {
	key := runKey{lease.Org, lease.RunID}
	if err := h.ready(ctx, s.db, key); err != nil {
		return err
	}
	n := len(h.pending)
	if h.seq <= after && (n == 0 || h.pending[n-1].epoch == lease.Epoch) {
		return nil
	}
	if err := h.drain(ctx); err != nil {
		return err
	}
	return h.ready(ctx, s.db, key)
}

// await waits until the write is on disk. It removes the head of a run that has
// ended, or whose write failed.
func (s *Store) await(ctx context.Context, key runKey, h *head, one *write) error {
	err := one.wait(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil && one.ended():
		_ = h.reset(ctx) // one's own error is returned; it includes that of an earlier write
		s.heads.forget(key, h)
	case err == nil && h.summary.Status != run.Running:
		s.heads.forget(key, h)
	}
	return err
}
