package database

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Append implements journal.Journal.
func (s *Store) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	if err := b.Check(lease, after); err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	stored, err := encodeBatch(lease, b)
	if err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	if d := b.Delivered; d != nil {
		defer s.lockInbox(lease.Org, d.Session)()
		if err := s.checkDelivered(ctx, stored.key, *d); err != nil {
			return fmt.Errorf("run %s: %w", lease.RunID, err)
		}
	}
	err = s.appendBatch(ctx, lease, after, b, stored, b.Sync && after == 0)
	if errors.Is(err, errOpened) {
		err = s.appendBatch(ctx, lease, after, b, stored, false)
	}
	for try := 0; s.onServer() && isStale(err, lease) && try < maxRepeats; try++ {
		s.heads.reload(ctx, stored.key)
		err = s.appendBatch(ctx, lease, after, b, stored, false)
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*journal.Behind)):
		return err
	case isRefusal(err):
		if over, ok := errors.AsType[*journal.OverBudget](err); ok {
			err = errors.Join(err, s.wrap("record that a budget is exceeded", s.tellRefused(ctx, lease.Org, over)))
		}
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	return fmt.Errorf("run %s: %w", lease.RunID, s.wrap("append", err))
}

// isStale reports whether err says that the head in memory is not that of the database, and nothing is lost of what the lease's
// owner has appended before.
func isStale(err error, lease journal.Lease) bool {
	if lease.Epoch != 0 && errors.Is(err, errEarlier) {
		return false
	}
	var behind *journal.Behind
	return errors.As(err, &behind) && len(behind.Facts) == 0 || errors.Is(err, journal.ErrAhead)
}

// errOpened reports that the first batch of a run met a run that exists.
var errOpened = errors.New("the run exists")

// appendBatch queues the batch or, unless Sync is set, holds it back, and waits for
// the disk if Sync is set. With opens, a run whose head is not in memory is assumed to
// be new, which saves a query; the error wraps errOpened if it is not.
func (s *Store) appendBatch(ctx context.Context, lease journal.Lease, after int64, b journal.Batch, stored batch, opens bool) error {
	h := s.heads.lock(stored.key)
	if s.onServer() {
		h.distrust(lease)
	}
	if opens {
		h.assumeNew()
	}
	one, err := s.enqueue(ctx, h, lease, after, b, stored)
	h.mu.Unlock()
	if err == nil && b.Sync {
		err = s.awaitDisk(ctx, lease, h, one)
	}
	return err
}

// isRefusal reports whether err is a refusal of the batch, not a failure of the file.
func isRefusal(err error) bool {
	return errors.Is(err, journal.ErrFenced) || errors.Is(err, journal.ErrChanged) || errors.As(err, new(*journal.SessionBusy)) || errors.Is(err, org.ErrNotFound) || errors.Is(err, journal.ErrAhead) || errors.Is(err, journal.ErrNoSlot) ||
		errors.As(err, new(*journal.Unreadable)) || errors.As(err, new(*org.CapError)) || errors.As(err, new(*journal.Submitted)) || errors.As(err, new(*journal.OverBudget))
}

// enqueue submits the batch if the head of the run admits it. A batch without Sync is
// held back, to be written together with the next ones: enqueue returns nil. It is called
// with h locked.
func (s *Store) enqueue(ctx context.Context, h *head, lease journal.Lease, after int64, b journal.Batch, stored batch) (*write, error) {
	if err := s.tellMoved(ctx, h, lease, stored.key); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, h, lease, after); err != nil {
		return nil, err
	}
	if err := s.tellMoved(ctx, h, lease, stored.key); err != nil { // by a write that catchUp has waited for
		return nil, err
	}
	if err := h.Admit(lease, after); err != nil {
		var behind *journal.Behind
		if errors.As(err, &behind) {
			facts, err := readFacts(ctx, s.db, stored.key, after)
			if err != nil {
				return nil, err
			}
			behind.Facts = facts
		}
		return nil, err
	}
	now := s.leaseNow()
	stored.approvals = h.ApprovalChanges(b)
	to := h.After(lease, b, now)
	c := headChange{
		lease: lease, from: h.current(), to: &to,
		now: s.now(), leaseNow: now, mayReserve: h.mayReserve || len(b.Reservations) > 0, assumed: h.assumed,
	}
	names := stored.names()
	if err := h.checkNames(ctx, s.db, stored.key, names); err != nil {
		return nil, err
	}
	if !packs(c.to.Summary.Grade) {
		names = nil // the indexes of the file know them
	}
	asks := slices.ContainsFunc(stored.approvals, func(a journal.ApprovalChange) bool { return a.Asked != nil })
	if len(b.Reservations) > 0 || asks { // which may be refused, unlike what is held back
		if err := h.flush(ctx); err != nil {
			return nil, err
		}
	}
	next := h.held.with(stored, c)
	if b.Sync || next.urgent() || s.closing.Load() {
		one, err := h.submit(ctx, s.writer, next, b.Sync)
		if err == nil {
			h.addNames(names)
		}
		return one, err
	}
	if err := s.writer.refuses(); err != nil {
		return nil, err
	}
	h.holdBack(s.writer, next)
	h.addNames(names)
	return nil, nil
}

// tellMoved returns a *journal.Behind if facts of the lease's owner have other numbers than it knows. It is called with h locked.
func (s *Store) tellMoved(ctx context.Context, h *head, lease journal.Lease, key runKey) error {
	if m := h.moved.Load(); m == nil || lease.Epoch < m.epoch {
		return nil
	}
	if err := h.drain(ctx); err != nil {
		return err
	}
	if h.dropSucceeded() { // if it was the owner's, load tells so: another one's says nothing to it
		if err := s.load(ctx, key, h, lease); err != nil {
			return err
		}
	}
	m := h.moved.Load()
	h.names, h.loaded = nil, false
	if err := s.load(ctx, key, h, lease); err != nil {
		return err
	}
	if m.epoch != lease.Epoch || m.epoch != h.Epoch {
		h.moved.Store(nil)
		return nil
	}
	facts, err := readFacts(ctx, s.db, key, m.first-1)
	if err != nil {
		return err
	}
	h.moved.Store(nil)
	return &journal.Behind{Facts: facts}
}

// catchUp loads the head if needed. If the writer is behind, or has another epoch
// than the last batch, it waits until all earlier batches of the run are written: an
// error of the previous owner's writes must not reach the new owner.
func (s *Store) catchUp(ctx context.Context, h *head, lease journal.Lease, after int64) error {
	key := runKey{lease.Org, lease.RunID}
	if err := s.load(ctx, key, h, lease); err != nil {
		return err
	}
	if epoch, waits := h.lastEpoch(); h.Seq <= after && (!waits || epoch == lease.Epoch) {
		return nil
	}
	epoch, waits := h.lastEpoch()
	err := h.drain(ctx)
	if h.unstored() != nil && waits && lease.Epoch > epoch { // like a write that is refused because of the new epoch
		h.discard()
		err = nil
	}
	if err != nil {
		return err
	}
	if s.onServer() && !h.dropSucceeded() { // others may have appended before what was written now
		h.names, h.loaded = nil, false
	}
	return s.load(ctx, key, h, lease)
}

// load makes the head valid, and fences an owner of which an append was lost. It is called with h locked.
func (s *Store) load(ctx context.Context, key runKey, h *head, lease journal.Lease) error {
	err := h.load(ctx, s.db, key)
	toOwner := lease.Epoch == h.broken && err != nil && !errors.Is(err, journal.ErrAhead)
	if h.broken == 0 || toOwner || !s.onServer() {
		h.broken = 0
		return err
	}
	if err := s.fence(ctx, key, h, lease); err != nil {
		return err
	}
	return h.load(ctx, s.db, key)
}

// fence ends the lease of an owner that has appended what was not stored, because of another process for example: what others
// append would come in its place, and the owner would not know. The run can be claimed at once. It returns an error that wraps
// journal.ErrFenced if the lease is the owner's. It is called with h locked.
func (s *Store) fence(ctx context.Context, key runKey, h *head, lease journal.Lease) error {
	if h.broken == 0 || !s.onServer() {
		h.broken = 0
		return nil
	}
	if err := s.writer.perform(context.WithoutCancel(ctx), key.org, func(t *tx) error {
		_, err := t.exec(`UPDATE runs SET epoch = epoch + 1, owner = '', lease_until = 0 WHERE org = ? AND run_id = ? AND epoch = ?`,
			key.org, key.run, h.broken)
		return err
	}); err != nil {
		return err
	}
	broken := h.broken
	h.broken, h.names, h.loaded = 0, nil, false
	if lease.Epoch == 0 || lease.Epoch > broken {
		return nil
	}
	return fmt.Errorf("%w: what it had appended was not stored, because another process has appended", journal.ErrFenced)
}

// awaitDisk waits until the write is on disk. It removes the head of a run that has
// ended, or whose write failed.
func (s *Store) awaitDisk(ctx context.Context, lease journal.Lease, h *head, one *write) error {
	key := runKey{lease.Org, lease.RunID}
	err := one.wait(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil && one.ended():
		_ = h.reset(ctx) // err includes the error of an earlier write
		if lost := s.fence(ctx, key, h, lease); lost != nil {
			err = lost
		}
		s.heads.remove(key, h)
	case err == nil && h.Summary.Status != journal.Running:
		s.heads.remove(key, h)
	}
	return err
}
