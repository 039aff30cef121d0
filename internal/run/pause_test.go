package run_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
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

// toll is a town whose runs wait at their limits, and whose org allows what the test says.
type toll struct {
	*town
	allows run.Allowance
	turns  int   // of the model
	told   *told // nil = nobody asks
}

// newToll returns one in which the model asks for once_a and once_b, then for once_a, then answers.
func newToll() *toll {
	w := &toll{town: &town{tools: tools{"once_a": works, "once_b": works}}}
	w.allows.Ceilings = budget.Limits{Rounds: 20, Calls: 30, ActiveMS: time.Hour.Milliseconds()}
	w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
		w.turns++
		switch len(results(transcript)) {
		case 0:
			return asks("once_a", "once_b"), nil
		case 2:
			return asks("once_a"), nil
		}
		return says("over"), nil
	}
	return w
}

func works(context.Context, tool.Call) (tool.Result, error) { return tool.Text("worked"), nil }

// open starts a gateway.
func (w *toll) open(t *testing.T) *run.Runner {
	t.Helper()
	r := w.gatewayWith(t, func(o *run.Options) {
		if w.told != nil {
			w.told.Journal, o.Journal = o.Journal, w.told
		}
		o.Allowance = func(orgID, principal, endUser string) (run.Allowance, bool) {
			return w.allows, orgID == "o" && principal == "p" && endUser == ""
		}
	})
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// request is one whose run waits for an hour.
func (w *toll) request(change func(*loop.Policy)) *run.Request {
	req := w.wants("p", "k", "h")
	req.Policy.Limits.OnLimit, req.Policy.PauseMS = budget.Pause, time.Hour.Milliseconds()
	change(&req.Policy)
	return req
}

// pause runs a request until its run waits, and returns the run and its pause.
func (w *toll) pause(t *testing.T, r *run.Runner, change func(*loop.Policy)) (string, event.Paused) {
	t.Helper()
	var d diary
	if err := r.Run(t.Context(), w.request(change), &d); err != nil {
		t.Fatal(err)
	}
	e, ok := d.events[len(d.events)-1].(event.Paused)
	if !ok {
		t.Fatalf("the last event is %+v", d.events[len(d.events)-1])
	}
	w.wantState(t, d.events[0].(event.Started).RunID, "paused")
	return d.events[0].(event.Started).RunID, e
}

func (w *toll) wantState(t *testing.T, runID, want string) {
	t.Helper()
	synctest.Wait()
	head, err := w.journal.Head(t.Context(), "o", runID)
	if err != nil || head.Summary.State() != want {
		t.Errorf("the run is %s, %v, want %s", head.Summary.State(), err, want)
	}
}

// raise raises limits as the key p.
func raise(t *testing.T, r *run.Runner, runID string, n run.NewLimits) (budget.Limits, error) {
	t.Helper()
	account := memlimit.New(memlimit.Options{}).Open("o")
	defer account.Close()
	return r.Raise(t.Context(), "o", runID, n, org.Author{Principal: "p", At: time.Now().UnixMilli()}, account)
}

// A run that waits at a limit goes on after the raise, in this process or another. Each call is
// made once. // P23
func TestARaisedRunGoesOn(t *testing.T) { // P23
	for name, tt := range map[string]struct {
		limit  func(*loop.Policy)
		calls  int // before the pause
		turns  int // before the pause
		reason event.Reason
		raise  run.NewLimits
	}{
		"rounds": {func(p *loop.Policy) { p.Limits.Rounds = 1 }, 2, 1, event.MaxRounds, run.NewLimits{Rounds: new(int64(9))}},
		"calls":  {func(p *loop.Policy) { p.Limits.Calls = 1 }, 1, 1, event.MaxCalls, run.NewLimits{Calls: new(int64(9))}},
		"tokens": {func(p *loop.Policy) { p.Limits.Tokens = 60 }, 3, 2, event.Tokens, run.NewLimits{Tokens: new(int64(9000))}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newToll()
				think := w.think
				w.think = func(ctx context.Context, transcript []item.Item) (*model.Turn, error) {
					time.Sleep(time.Microsecond) // the run does not end between the two raises
					return think(ctx, transcript)
				}
				r := w.open(t)
				id, e := w.pause(t, r, tt.limit)
				if len(w.made()) != tt.calls || w.turns != tt.turns || e.Reason != tt.reason || e.ExpiresAt.Sub(e.At) != time.Hour || e.Message == "" {
					t.Fatalf("%d calls and %d turns before %+v", len(w.made()), w.turns, e)
				}
				other := w.open(t)
				time.Sleep(30 * time.Minute) // it takes no time of the run
				var whole diary
				var following sync.WaitGroup
				following.Go(func() {
					if err := other.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &whole); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				now, err := raise(t, other, id, tt.raise)
				if err != nil {
					t.Fatal(err)
				}
				again, err := raise(t, r, id, tt.raise) // the answer was lost
				if err != nil || !again.Equal(now) {
					t.Errorf("the same raise again: %+v, %v", again, err)
				}
				following.Wait()
				w.wantState(t, id, "complete")
				if len(w.made()) != 3 || w.turns != 3 {
					t.Errorf("%d calls and %d turns, want 3 and 3", len(w.made()), w.turns)
				}
				raised := 0
				for _, ev := range whole.events {
					if one, ok := ev.(event.LimitsRaised); ok && one.ID == e.ID && one.By == "p" {
						raised++
					}
				}
				if _, end := whole.said(); raised != 1 || end.Reason != event.Complete {
					t.Errorf("%d raises, and %+v", raised, end)
				}
				w.wantAudit(t, map[string]int{"raise_limits": 1, string(tt.reason): 1})
			})
		})
	}
}

// wantAudit counts rows of the audit log: raises, and limits that were reached.
func (w *toll) wantAudit(t *testing.T, want map[string]int) {
	t.Helper()
	rows, err := w.journal.AuditRows(t.Context(), "o", audit.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for text, n := range want {
		got := 0
		for _, row := range rows {
			if (row.Kind == audit.KindManagement || row.Kind == audit.KindBudgetExhausted) && strings.Contains(string(row.Body), `:"`+text+`"`) {
				got++
			}
		}
		if got != n {
			t.Errorf("%d rows with %s, want %d", got, text, n)
		}
	}
}

// A raise that is none is refused, says what is wrong, and changes nothing.
func TestRaisesThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newToll()
		r := w.open(t)
		id, _ := w.pause(t, r, func(p *loop.Policy) { p.Limits.Rounds = 1 })
		for name, tt := range map[string]struct {
			n      run.NewLimits
			reason string
			says   string
		}{
			"of nothing":           {run.NewLimits{}, "not_a_raise", "1 of 1 round"},
			"of another limit":     {run.NewLimits{Calls: new(int64(200))}, "above_org_limit", "calls"},
			"that does not help":   {run.NewLimits{ActiveMS: new(int64(1_000_000))}, "not_a_raise", "rounds"},
			"to the present limit": {run.NewLimits{Rounds: new(int64(1))}, "not_a_raise", "rounds"},
			"to nothing":           {run.NewLimits{Rounds: new(int64(0))}, "not_a_raise", "positive"},
			"to less than nothing": {run.NewLimits{Rounds: new(int64(-5))}, "not_a_raise", "positive"},
			"above the org":        {run.NewLimits{Rounds: new(int64(21))}, "above_org_limit", "at most 20"},
			"of a limit it lacks":  {run.NewLimits{Rounds: new(int64(5)), NanoUSD: new(int64(5))}, "not_a_raise", "usd"},
		} {
			_, err := raise(t, r, id, tt.n)
			if f := fault.From(err); err == nil || f.Reason != tt.reason || !strings.Contains(f.Message, tt.says) {
				t.Errorf("a raise %s: %v", name, err)
			}
		}
		w.wantState(t, id, "paused")
		if _, err := raise(t, r, "run_other", run.NewLimits{}); !errors.Is(err, org.ErrNotFound) {
			t.Errorf("an unknown run: %v", err)
		}
		if err := r.Cancel(t.Context(), "o", id, org.Author{Principal: "p"}); err != nil {
			t.Fatal(err)
		}
		w.wantState(t, id, "cancelled")
		if _, err := raise(t, r, id, run.NewLimits{Rounds: new(int64(5))}); fault.From(err).Reason != "run_finished" {
			t.Errorf("after the end: %v", err)
		}
		w.wantAudit(t, map[string]int{"raise_limits": 0})
	})
}

// Of raises at the same time one counts, and the others are told so.
func TestRaisesAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newToll()
		r := w.open(t)
		id, _ := w.pause(t, r, func(p *loop.Policy) { p.Limits.Rounds = 1 })
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, errs[i] = raise(t, r, id, run.NewLimits{Rounds: new(int64(5 + i))}) })
		}
		all.Wait()
		took := 0
		for _, err := range errs {
			if err == nil {
				took++
			} else if f := fault.From(err); f.Reason != "not_paused" && f.Reason != "run_finished" {
				t.Error(err)
			}
		}
		w.wantState(t, id, "complete")
		if took != 1 {
			t.Errorf("%d raises count", took)
		}
	})
}

// Nobody raises the limit: the run ends as without the setting, and at once if its key is revoked.
func TestAPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newToll()
		r := w.open(t)
		id, _ := w.pause(t, r, func(p *loop.Policy) { p.Limits.Calls = 1 })
		time.Sleep(time.Hour + time.Minute)
		w.wantState(t, id, "max_calls")
		story, err := w.journal.Load(t.Context(), "o", id)
		if err != nil {
			t.Fatal(err)
		}
		skipped := 0
		for _, f := range story.Facts {
			if done, ok := f.Body.(loop.CallDone); ok && done.Outcome == loop.SkippedLimit {
				skipped++
			}
		}
		if len(w.made()) != 1 || skipped != 1 {
			t.Errorf("%d calls were made and %d skipped, want 1 and 1", len(w.made()), skipped)
		}
		w.wantAudit(t, map[string]int{"max_calls": 1})
	})
	synctest.Test(t, func(t *testing.T) {
		w := newToll()
		gone := ""
		r := w.gatewayWith(t, func(o *run.Options) { o.Gone = func(string, string) string { return gone } })
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		id, _ := w.pause(t, r, func(p *loop.Policy) { p.Limits.Calls = 1 })
		gone = loop.KeyRevoked
		r.Changed()
		w.wantState(t, id, "cancelled")
	})
}

// A run that may not wait, because as many wait as may, ends at its limit.
func TestNoMoreRunsMayPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newToll()
		w.journal.Caps = org.Caps{Approvals: 2} // one of a key
		r := w.open(t)
		w.pause(t, r, func(p *loop.Policy) { p.Limits.Rounds = 1 })
		req := w.request(func(p *loop.Policy) { p.Limits.Rounds = 1 })
		req.Key = &journal.SubmitKey{Principal: "p", Key: "k2", Hash: "h"}
		var d diary
		if err := r.Run(t.Context(), req, &d); err != nil {
			t.Fatal(err)
		}
		if _, end := d.said(); end.Reason != event.MaxRounds {
			t.Errorf("%+v", end)
		}
	})
}

// told is a journal that notes what webhooks are told by the batches that are stored.
type told struct {
	journal.Journal

	mu      sync.Mutex
	notices []journal.Notice
}

// Append implements journal.Journal.
func (j *told) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	err := j.Journal.Append(ctx, lease, after, b)
	if err == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.notices = append(j.notices, b.Notices...)
	}
	return err
}

func (j *told) of(event string) []journal.Notice {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.notices), func(n journal.Notice) bool { return n.Event != event })
}

// L10. Webhooks are told of a run that pauses, and not of one that may not.
func TestAPauseTellsWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newToll()
		w.told, w.journal.Caps = &told{}, org.Caps{Approvals: 2} // one of a key
		r := w.open(t)
		id, _ := w.pause(t, r, func(p *loop.Policy) { p.Limits.Rounds = 1 })
		req := w.request(func(p *loop.Policy) { p.Limits.Rounds = 1 })
		req.Key = &journal.SubmitKey{Principal: "p", Key: "k2", Hash: "h"}
		if err := r.Run(t.Context(), req, &diary{}); err != nil {
			t.Fatal(err)
		}
		got := w.told.of(org.RunWaiting)
		if len(got) != 1 || got[0].Object != id || got[0].Subject != id {
			t.Errorf("webhooks are told %+v, want run.waiting of %s", got, id)
		}
	})
}

// At the deadline what is under way may end, for two minutes. The time after it counts as used.
func TestARunPausesAtItsDeadline(t *testing.T) { // P23
	synctest.Test(t, func(t *testing.T) {
		w := newToll()
		w.offer("once_b", func(context.Context, tool.Call) (tool.Result, error) {
			time.Sleep(90 * time.Second)
			return tool.Text("worked"), nil
		})
		r := w.open(t)
		id, e := w.pause(t, r, func(p *loop.Policy) { p.Limits.ActiveMS = 60_000 })
		if e.Reason != event.Deadline || e.Active != 90*time.Second || len(w.made()) != 2 {
			t.Errorf("%+v after %d calls", e, len(w.made()))
		}
		if _, err := raise(t, r, id, run.NewLimits{ActiveMS: new(int64(80_000))}); fault.From(err).Reason != "not_a_raise" {
			t.Errorf("a raise to less than what is used: %v", err)
		}
		if _, err := raise(t, r, id, run.NewLimits{ActiveMS: new(int64(300_000))}); err != nil {
			t.Fatal(err)
		}
		w.wantState(t, id, "complete")
		if len(w.made()) != 3 || w.turns != 3 {
			t.Errorf("%d calls and %d turns", len(w.made()), w.turns)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a tool that never ends
		w := newToll()
		w.offer("once_b", hangs)
		var d diary
		begin := time.Now()
		if err := w.open(t).Run(t.Context(), w.request(func(p *loop.Policy) { p.Limits.ActiveMS = 60_000 }), &d); err != nil {
			t.Fatal(err)
		}
		if _, end := d.said(); end.Reason != event.Deadline || time.Since(begin) != 3*time.Minute {
			t.Errorf("%+v after %v", end, time.Since(begin))
		}
	})
}

// A request stays open while its run is paused, and goes on with it.
func TestARequestStaysOpenWhileItsRunIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newToll()
		r := w.open(t)
		req := w.request(func(p *loop.Policy) { p.Limits.Rounds = 1 })
		req.PausedFor = 10 * time.Minute
		var d diary
		var asking sync.WaitGroup
		asking.Go(func() {
			if err := r.Run(t.Context(), req, &d); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		runs, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 9, States: []string{"paused"}})
		if err != nil || len(runs) != 1 {
			t.Fatalf("%+v, %v", runs, err)
		}
		if _, err := raise(t, r, runs[0].RunID, run.NewLimits{Rounds: new(int64(2))}); err != nil {
			t.Fatal(err)
		}
		asking.Wait() // at the second pause, ten minutes later
		if e, ok := d.events[len(d.events)-1].(event.Paused); !ok || e.Rounds != 2 {
			t.Errorf("%+v", d.events[len(d.events)-1])
		}
	})
}

// A shared budget without room: the run waits, and tries again with the budgets of the org as they
// are then.
func TestARunPausesForABudgetOfSeveralRuns(t *testing.T) { // P23
	synctest.Test(t, func(t *testing.T) {
		w := newToll()
		r := w.open(t)
		of := func(tokens int64) []budget.Shared {
			return []budget.Shared{{Scope: "org", Period: budget.Total, Limit: budget.Amount{Tokens: tokens}}}
		}
		id, e := w.pause(t, r, func(p *loop.Policy) { p.Budgets, p.MaxTokens = of(60), 20 })
		if e.Budget != "org/total" || e.Reason != event.Tokens || !strings.Contains(e.Message, "org/total") {
			t.Fatalf("%+v", e)
		}
		w.allows.Budgets = of(60)
		if _, err := raise(t, r, id, run.NewLimits{}); err != nil {
			t.Fatal(err)
		}
		w.wantState(t, id, "paused") // it has tried
		w.allows.Budgets = of(6000)
		if _, err := raise(t, r, id, run.NewLimits{}); err != nil {
			t.Fatal(err)
		}
		w.wantState(t, id, "complete")
		if len(w.made()) != 3 || w.turns != 3 {
			t.Errorf("%d calls and %d turns", len(w.made()), w.turns)
		}
	})
}
