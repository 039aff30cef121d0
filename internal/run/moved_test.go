package run

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// holdingJournal holds back what its run appends without Sync, until the run's next append that has it.
type holdingJournal struct {
	*memoryJournal
	mu    sync.Mutex
	held  []journal.Batch
	after func(loop.Body) // called with each fact that is held back
}

// Append implements Journal. If another writer has written in front of what is held back, that follows, and the run is told.
func (h *holdingJournal) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !b.Sync {
		h.held = append(h.held, b)
		for _, f := range b.Facts {
			h.after(f.Body)
		}
		return nil
	}
	first, stored := int64(0), int64(len(h.facts))
	for _, one := range h.held {
		for i := range one.Facts {
			if first == 0 {
				first = one.Facts[i].Seq
			}
			stored++
			one.Facts[i].Seq = stored
		}
		if err := h.memoryJournal.Append(ctx, lease, int64(len(h.facts)), one); err != nil {
			return err
		}
	}
	h.held = nil
	if first > 0 && stored > after {
		return &journal.Behind{Facts: slices.Clone(h.facts[first-1:])}
	}
	return h.memoryJournal.Append(ctx, lease, after, b)
}

// Another process cancels the run while the store still holds back facts of it, so that the cancel is in front of them: the run
// ends as cancelled, what it has done stays in its journal, and its owner has the state that the journal has.
func TestACancelInFrontOfUnsyncedFactsEndsTheRun(t *testing.T) {
	for _, at := range []loop.Kind{loop.KindTurnStarted, loop.KindTurn, loop.KindCallStarted, loop.KindCallDone} {
		t.Run(string(at), func(t *testing.T) {
			s := newStage(t, box{"read": echoes}, asks("read"), says("Done."))
			held := &holdingJournal{memoryJournal: s.journal}
			cancelled := false
			held.after = func(b loop.Body) {
				if b.Kind() == at && !cancelled {
					cancelled = true
					s.journal.write(loop.CancelRequested{By: "admin", Cause: event.Cancelled})
				}
			}
			s.runner.o.Journal = held
			if err := s.runner.Run(t.Context(), s.req, s.sink); err != nil {
				t.Fatal(err)
			}
			end := s.sink.end(t)
			if end.Reason != event.Cancelled {
				t.Errorf("the run ended as %s, %v", end.Reason, s.journal.kinds())
			}
			kinds := s.journal.kinds()
			if !cancelled || slices.Index(kinds, loop.KindCancelRequested) > slices.Index(kinds, at) || !slices.Contains(kinds, at) {
				t.Errorf("the journal has %v", kinds)
			}
			var state loop.State
			for _, f := range s.journal.facts {
				if err := loop.CheckSafety(state, f); err != nil {
					t.Error(err)
				}
				state = loop.Apply(state, f)
			}
			if state.Finished == nil || state.Counts.Calls != end.ToolCalls || state.Counts.Rounds != end.Rounds {
				t.Errorf("the journal has %+v, and the caller was told %+v", state.Counts, end)
			}
		})
	}
}
