package run

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/model"
)

// groupEvery is the minimum time between two groups of a model call, and therefore how long a
// delta waits at most before it is stored and delivered. A group is also stored when its text
// has groupBytes.
const (
	groupEvery = 20 * time.Millisecond
	groupBytes = 64 << 10
)

// deltaGroups stores the deltas of one model call of a durable run, and then emits their
// events. A client that follows the run later gets the same events from the store. If a
// provider sends faster than the store writes, reading its answer waits for the store.
type deltaGroups struct {
	run   *runState
	seq   int64 // of the call's TurnStarted
	round int

	mu      sync.Mutex // also held while a group is stored
	after   int64      // the last fact of the journal that is known here
	stored  int        // groups
	pending []model.Delta
	bytes   int
	last    time.Time // when the last group was stored; monotonic
	timer   *time.Timer
	closed  bool
	err     error
}

// newDeltaGroups returns the groups of the model call whose TurnStarted is the last fact.
// It must be closed before the next fact is appended.
func newDeltaGroups(run *runState, round int) *deltaGroups {
	return &deltaGroups{run: run, seq: run.state().Seq, after: run.state().Seq, round: round}
}

// add takes a delta. The error is that of the store.
func (g *deltaGroups) add(delta model.Delta) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	g.pending = append(g.pending, delta)
	g.bytes += len(delta.Text)
	wait := groupEvery - time.Since(g.last)
	switch {
	case g.last.IsZero(), wait <= 0, g.bytes >= groupBytes:
		g.store()
	case g.timer == nil:
		g.timer = time.AfterFunc(wait, g.expire)
	}
	return g.err
}

// expire stores the deltas that have waited.
func (g *deltaGroups) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = nil
	if !g.closed && g.err == nil {
		g.store()
	}
}

// store stores the pending deltas and emits their events. g.mu is held.
func (g *deltaGroups) store() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	rows := g.rows()
	if rows == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.run.ctx), appendTimeout)
	defer cancel()
	for {
		err := g.run.journal.Append(ctx, g.run.lease, g.after, journal.Batch{Rows: rows, Sync: true})
		var b *journal.Behind
		if errors.As(err, &b) && len(b.Facts) > 0 { // the run's own next append folds these facts
			g.after = b.Facts[len(b.Facts)-1].Seq
			continue
		}
		if err != nil {
			g.err = g.run.appendError(err)
			return
		}
		crash.At(crash.AfterDeltaStored)
		text := slices.ContainsFunc(g.pending, func(p model.Delta) bool { return p.Kind == model.TextDelta })
		g.emit()
		g.last = time.Now()
		if text {
			crash.At(crash.AfterDelta)
		}
		return
	}
}

// rows returns the row of the pending deltas; nil = none is pending.
func (g *deltaGroups) rows() []journal.Row {
	if len(g.pending) == 0 {
		return nil
	}
	return []journal.Row{eventlog.DeltasRow(g.seq, g.stored+1, g.pending)}
}

// emit emits the events of the pending deltas, which are stored.
func (g *deltaGroups) emit() {
	for _, p := range g.pending {
		g.run.events.Delta(g.round, p)
	}
	if len(g.pending) > 0 {
		g.stored++
	}
	g.pending, g.bytes = nil, 0
}

// close ends the storing of groups. What is pending remains: it is stored with the fact
// that ends the model call, or dropped with it. The error is that of the store.
func (g *deltaGroups) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	return g.err
}
