package database

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// Batches without Sync are held back, so that batches of one run become one write: it
// updates the head, the usage and the indexes once.
const (
	holdTime  = 50 * time.Millisecond // the longest time from the first batch to its write
	maxHeld   = 100                   // facts and rows
	heldBytes = 256 << 10             // of their bodies
	heldLease = time.Second           // by which they may extend the run's lease
)

// held is one or more consecutive batches of a run. It is immutable.
type held struct {
	parts []*part
	since time.Time // when the first of them was appended
	timer *time.Timer
	rows  int // facts and rows of all batches
	bytes int // of their bodies
}

// part is a batch with its effect on the head.
type part struct {
	batch    batch
	change   headChange
	told     bool                  // the appender has returned: it does not wait for the result
	moved    *atomic.Pointer[move] // of the head; set when the part is submitted
	retained int                   // bytes that batch.retain was called with; owned by the writer until the write is done
}

// write stores the part. If another process has appended meanwhile, a part whose appender has returned is stored after what that has
// appended, with other numbers: it tells what has happened.
func (p *part) write(t *tx) error {
	err := p.batch.write(t, p.change)
	if !p.told || t.remote == nil || !errors.As(err, new(*journal.Behind)) {
		return err
	}
	h, again := t.head(p.batch.key)
	if again != nil || len(p.batch.approvals) > 0 {
		return errors.Join(earlier(err), again)
	}
	first := p.change.from.Seq + 1
	if m := p.moved.Load(); m == nil || m.epoch != p.change.lease.Epoch || first < m.first {
		p.moved.Store(&move{p.change.lease.Epoch, first})
	}
	return p.batch.after(h.Seq).write(t, p.change.after(h, p.batch))
}

// move says that facts of a run got other numbers than their appender knows, because another process has appended.
type move struct {
	epoch int64 // of the appender
	first int64 // the lowest number that it does not know to be another fact's
}

func (p *part) size() int { return p.batch.size(p.change) }

// retain charges the run for the batch, which waits in memory for space on the disk.
func (p *part) retain() {
	if p.retained == 0 && p.batch.retain != nil {
		p.retained = p.size()
		p.batch.retain(p.retained)
	}
}

// release undoes retain. It may be called more than once.
func (p *part) release() {
	if p.retained > 0 {
		p.batch.retain(-p.retained)
		p.retained = 0
	}
}

// with returns h and a batch that follows it. A nil h is no batch. At most one result of
// with may be used: they share memory.
func (h *held) with(b batch, c headChange) *held {
	next := &held{since: time.Now()}
	if h != nil {
		*next = *h
	}
	next.parts = append(next.parts, &part{batch: b, change: c})
	next.rows += len(b.facts) + len(b.rows)
	next.bytes += b.size(c)
	return next
}

// last returns the effect of the last batch. It must not be changed.
func (h *held) last() *headChange { return &h.parts[len(h.parts)-1].change }

// told returns the highest epoch of those batches whose appender does not wait for the result. The last one's does if it is
// awaited.
func (h *held) told(awaited bool) (epoch int64) {
	for i, p := range h.parts {
		if !awaited || i < len(h.parts)-1 {
			epoch = max(epoch, p.change.lease.Epoch)
		}
	}
	return epoch
}

// join returns the batches as one.
func join(parts []*part) *part {
	if len(parts) == 1 {
		return parts[0]
	}
	first := parts[0]
	all := &part{batch: first.batch, change: parts[len(parts)-1].change}
	all.change.from, all.change.assumed = first.change.from, first.change.assumed
	all.told, all.moved = parts[len(parts)-1].told, first.moved
	facts, rows := 0, 0
	for _, p := range parts {
		facts, rows = facts+len(p.batch.facts), rows+len(p.batch.rows)
	}
	all.batch.facts, all.batch.rows = make([]fact, 0, facts), make([]row, 0, rows)
	all.batch.reservations, all.batch.settled, all.batch.audit, all.batch.approvals, all.batch.notices, all.batch.hooks = nil, nil, nil, nil, nil, nil
	for _, p := range parts {
		all.batch.facts = append(all.batch.facts, p.batch.facts...)
		all.batch.rows = append(all.batch.rows, p.batch.rows...)
		all.batch.reservations = append(all.batch.reservations, p.batch.reservations...)
		all.batch.settled = append(all.batch.settled, p.batch.settled...)
		all.batch.audit = append(all.batch.audit, p.batch.audit...)
		all.batch.approvals = append(all.batch.approvals, p.batch.approvals...)
		all.batch.notices = append(all.batch.notices, p.batch.notices...)
		all.batch.hooks = append(all.batch.hooks, p.batch.hooks...)
	}
	return all
}

// urgent reports whether the batches must be queued now: they are many, or the lease in
// the file is old.
func (h *held) urgent() bool {
	extended := h.last().to.LeaseUntil - h.parts[0].change.from.LeaseUntil
	return h.rows >= maxHeld || h.bytes >= heldBytes || extended > heldLease.Milliseconds()
}

// holdBack makes next what the run holds back, until the run's next write or for holdTime.
// It is called with h locked.
func (h *head) holdBack(w *writer, next *held) {
	if next.timer == nil {
		next.timer = time.AfterFunc(holdTime, func() { h.expire(w, next.since) })
	}
	h.follow(next.last())
	h.held, h.writer = next, w
}

// expire queues what was held back since then. If that fails, the run's next append
// returns the error.
func (h *head) expire(w *writer, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil || !h.held.since.Equal(since) {
		return
	}
	late := h.held
	if _, err := h.submit(context.Background(), w, late, false); err != nil {
		failed := &write{epoch: late.last().lease.Epoch, told: late.told(false), done: make(chan struct{}), err: err}
		close(failed.done)
		h.held, h.pending = nil, append(h.pending, failed)
	}
}

// flush queues what the run holds back, and what a full disk has left unstored. It is called
// with h locked.
func (h *head) flush(ctx context.Context) error {
	h.takeBack()
	if h.held == nil {
		return nil
	}
	_, err := h.submit(ctx, h.writer, h.held, false)
	return err
}

// submit queues next, which includes what the run holds back. After an error, the run
// still holds back what it did before. It is called with h locked.
func (h *head) submit(ctx context.Context, w *writer, next *held, awaited bool) (*write, error) {
	lease := next.last().lease
	for i, p := range next.parts {
		p.told, p.moved = !awaited || i < len(next.parts)-1, &h.moved
	}
	one := &write{
		awaited: awaited, collected: true, plain: true, parts: next.parts, do: join(next.parts).write,
		epoch: lease.Epoch, told: next.told(awaited), org: lease.Org, size: next.bytes,
	}
	if n := len(h.pending); n > 0 {
		one.dependsOn = h.pending[n-1]
	}
	if err := w.submit(ctx, one); err != nil {
		return nil, err
	}
	if next.timer != nil {
		next.timer.Stop()
	}
	h.held, h.pending = nil, append(h.pending, one)
	h.follow(next.last())
	return one, nil
}

// takeBack makes what a full disk has left unstored be held back again, before what the run
// holds back now. It is called with h locked.
func (h *head) takeBack() {
	unstored := h.unstored()
	if unstored == nil {
		return
	}
	next := &held{since: time.Now()}
	if h.held != nil {
		next.timer = h.held.timer
		next.since = h.held.since
		unstored = slices.Concat(unstored, h.held.parts)
	}
	next.parts = unstored
	for _, p := range unstored {
		next.rows += len(p.batch.facts) + len(p.batch.rows)
		next.bytes += p.size()
	}
	h.held, h.pending = next, nil
}

// unstored returns what the run's last write has left for the next one, or nil. It is called
// with h locked.
func (h *head) unstored() []*part {
	if n := len(h.pending); n > 0 && h.pending[n-1].ended() {
		return h.pending[n-1].unstored
	}
	return nil
}

// follow makes the head what it is after the change.
func (h *head) follow(c *headChange) { h.Head, h.mayReserve, h.assumed = *c.to, c.mayReserve, false }

// current returns the head in memory that the caller must not change: that of the last batch that
// is held back, if nothing else has changed the head since. It is called with h locked.
func (h *head) current() *journal.Head {
	if h.held != nil && *h.held.last().to == h.Head {
		return h.held.last().to
	}
	return new(h.Head)
}
