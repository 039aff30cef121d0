package run_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// queues is a request in the background.
func (w *town) queues(orgID string, slots int) *run.Request {
	req := w.wants("p of "+orgID, "", "")
	req.Org, req.Key, req.Background, req.MaxQueued = orgID, nil, true, 10_000
	req.Policy.Slots = slots
	return req
}

// statusOf returns the status of a run.
func (w *town) statusOf(t *testing.T, orgID, runID string) journal.Summary {
	t.Helper()
	head, err := w.journal.Head(t.Context(), orgID, runID)
	if err != nil {
		t.Fatal(err)
	}
	return head.Summary
}

// slowly is a model that answers after a time.
func slowly(after time.Duration) func(context.Context, []item.Item) (*model.Turn, error) {
	return func(ctx context.Context, _ []item.Item) (*model.Turn, error) {
		select {
		case <-time.After(after):
			return says("done"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// opened is a gateway that keeps leases and claims runs until the test ends.
func (w *town) opened(t *testing.T, change func(*run.Options)) *run.Runner {
	t.Helper()
	r := w.gatewayWith(t, change)
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAQueuedRunBeginsWhenASlotIsFree(t *testing.T) { // P20
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: slowly(100 * time.Second)}
		r := w.opened(t, func(*run.Options) {})
		var ids []string
		for range 3 {
			id, err := r.Start(t.Context(), w.queues("o", 1))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			time.Sleep(time.Millisecond) // the oldest is the first
		}
		states := func() (out []string) {
			for _, id := range ids {
				out = append(out, w.statusOf(t, "o", id).State())
			}
			return out
		}
		for _, want := range [][]string{{"running", "queued", "queued"}, {"complete", "running", "queued"}, {"complete", "complete", "running"}} {
			if got := states(); !slices.Equal(got, want) {
				t.Errorf("after %s the runs are %q, want %q", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), got, want)
			}
			time.Sleep(100*time.Second + 50*time.Millisecond)
		}
		// The deadline of 120 s counts from the begin: the last one waited 200 s.
		if got := states(); !slices.Equal(got, []string{"complete", "complete", "complete"}) {
			t.Errorf("at the end the runs are %q", got)
		}
		var d diary
		if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: ids[2]}, &d); err != nil {
			t.Fatal(err)
		}
		if started, is := d.events[0].(event.Started); !is || !started.Queued {
			t.Errorf("the first event is %+v, want that the run is queued", d.events[0])
		}
	})
}

func TestTheCallerOfAQueuedRunMayLeave(t *testing.T) { // P20
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: slowly(10 * time.Second)}
		r := w.opened(t, func(*run.Options) {})
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		var d diary
		if err := r.Run(ctx, w.queues("o", 1), &d); err == nil || ctx.Err() == nil {
			t.Fatalf("the caller left, and was told %v", err)
		}
		runID := d.events[0].(event.Started).RunID
		time.Sleep(10 * time.Second)
		if s := w.statusOf(t, "o", runID); s.Reason != event.Complete {
			t.Errorf("the run is %s", s.State())
		}
	})
}

// P20, J22. A cancellation at every length of the journal gives one terminal state, and accounts for the
// calls in flight.
func TestARunIsCancelledAtEveryLengthOfItsJournal(t *testing.T) {
	for n := int64(1); ; n++ {
		over := false
		synctest.Test(t, func(t *testing.T) {
			w := &town{tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
				"once_pay": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
					select {
					case <-time.After(time.Second):
						return tool.Text("paid"), nil
					case <-ctx.Done():
						return tool.Result{}, ctx.Err()
					}
				},
			}}
			pay := script("once_pay")
			w.think = func(ctx context.Context, items []item.Item) (*model.Turn, error) {
				select {
				case <-time.After(time.Second):
					return pay(ctx, items)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			r := w.gateway(t) // nothing claims yet: the run is queued
			runID, err := r.Start(t.Context(), w.queues("o", 1))
			if err != nil {
				t.Fatal(err)
			}
			if n > 2 {
				if err := r.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			length := func() int64 {
				head, err := w.journal.Head(t.Context(), "o", runID)
				if err != nil {
					t.Fatal(err)
				}
				return head.Seq
			}
			for length() < n && w.statusOf(t, "o", runID).Status != journal.Done {
				time.Sleep(time.Millisecond)
			}
			over = w.statusOf(t, "o", runID).Status == journal.Done
			by := org.Author{Principal: "p of o"}
			for range 2 { // the second one changes nothing
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				if err := r.Segments().Cancel(ctx, "o", &journal.Conversation{RunID: runID}, true, by); err != nil {
					t.Fatal(err)
				}
				stop()
			}
			if n <= 2 {
				if err := r.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Second)
			s := w.statusOf(t, "o", runID)
			if want := event.Cancelled; !over && s.Reason != want || over && s.Reason != event.Complete {
				t.Errorf("cancelled at length %d: the run ended with %s", n, s.State())
			}
			facts, err := w.journal.Facts(t.Context(), "o", runID, 0, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			started, done, ended := 0, 0, 0
			for _, f := range facts {
				switch f.Body.(type) {
				case loop.CallStarted:
					started++
				case loop.CallDone:
					done++
				case loop.Finished:
					ended++
				}
			}
			if ended != 1 || started > done {
				t.Errorf("cancelled at length %d: %d ends, %d calls started and %d accounted for", n, ended, started, done)
			}
		})
		if over {
			return
		}
	}
}

// P20. A thousand queued runs of an org do not hold up ten of another, and are neither goroutines nor memory of
// the driver.
func TestALongQueueHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long, short = 1_000, 10 // the store in memory keeps so many
		w := &town{think: slowly(10 * time.Second)}
		limiter := memlimit.New(memlimit.Options{})
		var order []string
		var mu sync.Mutex
		c := catalog.New(catalog.Options{})
		r := run.New(run.Options{Catalog: c, Journal: &w.journal, Conversations: &w.conversations, Leases: &w.journal, Archive: &w.journal, Resources: w, Memory: limiter})
		before := runtime.NumGoroutine()
		for range long {
			if _, err := r.Start(t.Context(), w.queues("long", 2)); err != nil {
				t.Fatal(err)
			}
		}
		full := w.queues("long", 2)
		full.MaxQueued = long
		_, err := r.Start(t.Context(), full)
		if f := refusal(t, err, "queue_full"); f.Code != fault.Limited || f.RetryAfter == 0 {
			t.Errorf("%+v", f)
		}
		var ids []string
		for range short {
			id, err := r.Start(t.Context(), w.queues("short", 2))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if n, held := runtime.NumGoroutine()-before, limiter.Held(); n > 0 || held > 0 {
			t.Errorf("%d queued runs have %d goroutines and hold %d bytes", long+short, n, held)
		}
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(short/2*10*time.Second + 2*time.Second) // two at a time
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			order = append(order, w.statusOf(t, "short", id).State())
		}
		if want := slices.Repeat([]string{"complete"}, short); !slices.Equal(order, want) {
			t.Errorf("the runs of the short queue are %q", order)
		}
		queued, err := w.journal.QueuedRuns(t.Context())
		if err != nil || len(queued) != 1 || queued[0].Runs > long-short || queued[0].Runs < long-2*short {
			t.Errorf("still queued: %+v, %v", queued, err)
		}
		now, cancel := context.WithCancel(context.Background())
		cancel()
		r.Close(now, 0)
		c.Close()
	})
}

// P20. Queued runs do not outlive their owner.
func TestTheQueueOfARevokedKeyEnds(t *testing.T) {
	for _, code := range []string{loop.KeyRevoked, loop.KeyExpired, loop.Deleted} {
		synctest.Test(t, func(t *testing.T) {
			gone := false
			w := &town{think: slowly(10 * time.Second)}
			r := w.opened(t, func(o *run.Options) {
				o.Gone = func(orgID, _ string) string {
					if gone && orgID == "o" {
						return code
					}
					return ""
				}
			})
			const many = 150
			var ids []string
			for range many {
				id, err := r.Start(t.Context(), w.queues("o", 1))
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			other, err := r.Start(t.Context(), w.queues("other", 1))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			gone = true
			r.Changed()
			time.Sleep(25 * time.Second)
			states := map[string]int{}
			for _, id := range ids {
				states[w.statusOf(t, "o", id).State()]++
			}
			if states["cancelled"] < many-1 || states["cancelled"]+states["complete"] != many { // one was under way
				t.Errorf("%s: the runs are %v", code, states)
			}
			if s := w.statusOf(t, "other", other); s.Reason != event.Complete {
				t.Errorf("the run of another org is %s", s.State())
			}
		})
	}
}

// P05, P20. A follower of a queued run that no bell wakes finds its events in the store, within
// seconds.
func TestAMissedWakeUpIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: slowly(time.Second)}
		here := w.gateway(t) // does not claim: another process does
		runID, err := here.Start(t.Context(), w.queues("o", 1))
		if err != nil {
			t.Fatal(err)
		}
		var d diary
		var heard time.Time
		d.heard = func(_ event.Position, e event.Event) {
			if _, ended := e.(event.Finished); ended {
				heard = time.Now()
			}
		}
		told := make(chan error, 1)
		go func() { told <- here.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: runID}, &d) }()
		time.Sleep(time.Minute)
		began := time.Now()
		w.opened(t, func(*run.Options) {})
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		if late := heard.Sub(began); late > 7*time.Second {
			t.Errorf("the end was told after %s", late)
		}
	})
}

// A run that is queued, or under way, can be told as far as it is.
func TestARunIsToldAsFarAsItIs(t *testing.T) { // P20
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return says("slowly"), nil }, pace: time.Second}
		r := w.gateway(t)
		runID, err := r.Start(t.Context(), w.queues("o", 1))
		if err != nil {
			t.Fatal(err)
		}
		tell := func() string {
			var d diary
			if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: runID, Now: true, Part: 1, Final: true}, &d); err != nil {
				t.Fatal(err)
			}
			text, end := d.said()
			return fmt.Sprint(len(d.events) > 1, text, end.Reason)
		}
		if got := tell(); got != "false" {
			t.Errorf("queued: %q", got)
		}
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
		if got := tell(); got != "trueslo" {
			t.Errorf("under way: %q", got)
		}
		time.Sleep(10 * time.Second)
		if got := tell(); got != "trueslowlycomplete" {
			t.Errorf("at the end: %q", got)
		}
	})
}

// deaf is a journal that stores the input of a run and does not say so.
type deaf struct {
	journal.Journal
	said bool
}

func (d *deaf) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	err := d.Journal.Append(ctx, lease, after, b)
	if !d.said && len(b.Facts) > 0 && b.Facts[0].Body.Kind() == loop.KindInputAdded {
		d.said, err = true, errors.New("connection reset")
	}
	return err
}

// A run of which nobody has said that its input is stored adds it once.
func TestAnInputThatIsStoredAlreadyIsNotAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		req, _ := w.inSession(t)
		w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }
		req.Deferred = true
		j := &deaf{Journal: &w.journal}
		r := w.opened(t, func(o *run.Options) { o.Journal = j })
		if err := r.Run(t.Context(), req, &diary{}); err != nil {
			t.Error(err)
		}
		inputs, resumed := 0, 0
		for _, f := range w.theRun(t).Facts {
			switch f.Body.(type) {
			case loop.InputAdded:
				inputs++
			case loop.Resumed:
				resumed++
			}
		}
		if s := w.theRun(t).Summary; s.Reason != event.Complete || inputs != 1 || resumed != 0 || !j.said {
			t.Errorf("the run has %d inputs and was taken over %d times, and ended as %s", inputs, resumed, s.Reason)
		}
	})
}
