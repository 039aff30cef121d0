package run_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// gatewayAt is gateway with a wall clock that is this much ahead.
func (w *town) gatewayAt(t *testing.T, ahead time.Duration) *run.Runner {
	t.Helper()
	c := catalog.New(catalog.Options{})
	r := run.New(run.Options{
		Catalog: c, Journal: &w.journal, Conversations: &w.conversations, Leases: &w.journal, Archive: &w.journal, Resources: w,
		Now: func() time.Time { return time.Now().Add(ahead) },
	})
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		r.Close(now, 0)
		c.Close()
	})
	return r
}

// The wall clock was set back by an hour while no gateway ran. The journal goes
// on from its last fact, and its dates are as far apart as the time that passed. // R17
func TestARunGoesOnWithItsDatesAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const thinking = 40 * time.Second
		var asked atomic.Bool
		w := &town{think: func(ctx context.Context, _ []item.Item) (*model.Turn, error) {
			if !asked.Swap(true) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			time.Sleep(thinking)
			return says("done"), nil
		}}
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_ = w.gateway(t).Run(leaving, w.wants("p", "k", "h"), &diary{}) // it is never started: it renews nothing
		time.Sleep(journal.LeaseTTL)
		if err := w.gatewayAt(t, -time.Hour).Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(thinking + time.Second)
		list, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 1})
		if err != nil || len(list) != 1 || list[0].Reason != event.Complete {
			t.Fatalf("%+v %v", list, err)
		}
		story, err := w.journal.Load(t.Context(), "o", list[0].RunID)
		if err != nil {
			t.Fatal(err)
		}
		var resumed, turn int64
		for i, f := range story.Facts {
			switch f.Body.(type) {
			case loop.Resumed:
				resumed = f.At
			case loop.Turn:
				turn = f.At
			}
			if i > 0 && f.At < story.Facts[i-1].At {
				t.Errorf("%s is dated %d ms before %s", f.Body.Kind(), story.Facts[i-1].At-f.At, story.Facts[i-1].Body.Kind())
			}
		}
		if took := time.Duration(turn-resumed) * time.Millisecond; took != thinking {
			t.Errorf("by its journal the run was at work for %v, want %v", took, thinking)
		}
	})
}

// A run whose step takes longer than each of its owners is there is handed over
// again and again, for longer than a run may get no further. That is no death. // R14
func TestARunThatIsHandedOverManyTimesIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("read_slowly"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"read_slowly": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				select {
				case <-time.After(30 * time.Second):
					return tool.Text("read"), nil
				case <-ctx.Done():
					return tool.Result{}, context.Cause(ctx)
				}
			},
		}}
		r := w.gateway(t)
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_ = r.Run(leaving, w.wants("p", "k", "h"), &diary{})
		for range 20 {
			synctest.Wait() // the call is under way
			hard, cancel := context.WithTimeout(t.Context(), 19*time.Second)
			r.Close(hard, 0)
			cancel()
			r = w.gateway(t)
			if err := r.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		w.wantEnds(t, 1, event.Complete)
		if n := len(w.made()); n != 21 {
			t.Errorf("the call was made %d times, want 21", n)
		}
	})
}
