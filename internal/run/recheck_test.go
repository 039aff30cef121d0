package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// shop is a server whose tools need approval, and which announces changes of its tools.
type shop struct {
	*town
	source *turnpiketest.Source
}

// For implements run.Resources.
func (s *shop) For(context.Context, *loop.Accepted) ([]route.Target, []catalog.Server, error) {
	return []route.Target{{Target: loop.Target{Provider: "up", Model: "m"}, Client: s}}, []catalog.Server{{Name: "s", Source: s.source, Revision: 1}}, nil
}

// open starts a gateway.
func (s *shop) open(t *testing.T) *run.Runner {
	t.Helper()
	r := s.gatewayWith(t, func(o *run.Options) { o.Resources = s })
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// ask starts a run that calls a, then b, and waits until both wait for approval.
func (s *shop) ask(t *testing.T, r *run.Runner, change func(*loop.Policy)) (runID string) {
	t.Helper()
	req := s.wants("p", "k", "h")
	req.Targets, req.Servers, _ = s.For(t.Context(), nil)
	req.Policy.Approvals = []loop.ServerApproval{{Server: "s", WaitMS: time.Hour.Milliseconds(), ByServer: policy.Approval{Rest: true}}}
	change(&req.Policy)
	var d diary
	if err := r.Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	return d.events[0].(event.Started).RunID
}

// decide decides all approvals that wait, and returns how many.
func (s *shop) decide(t *testing.T, r *run.Runner, approved bool) int {
	t.Helper()
	found, err := s.journal.Approvals(t.Context(), "o", journal.ApprovalQuery{Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range found {
		if _, err := r.Decisions().Decide(t.Context(), "o", a.ID, journal.Decision{Approved: approved},
			run.TrustedDecider(org.Author{Principal: "boss"})); err != nil {
			t.Fatal(err)
		}
	}
	return len(found)
}

// statuses returns the statuses of the approvals, sorted.
func (s *shop) statuses(t *testing.T) string {
	t.Helper()
	found, err := s.journal.Approvals(t.Context(), "o", journal.ApprovalQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range found {
		out = append(out, fmt.Sprint(a.Tool, " ", a.Status))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// An approved call runs only as the tool that was approved, also if its server changes the tool while
// another call of the same batch runs. // P02 P14
func TestEachApprovedCallIsComparedBeforeItRuns(t *testing.T) {
	modes := map[string]func(*loop.Policy){
		"serial":   func(p *loop.Policy) { p.Parallelism = loop.Serial },
		"safe":     func(p *loop.Policy) { p.Parallelism = loop.Safe },
		"parallel": func(p *loop.Policy) { p.Parallelism, p.Rules.CallsPerServer = loop.Parallel, 1 },
		"cached":   func(p *loop.Policy) { p.Parallelism, p.CatalogTTLNS = loop.Serial, int64(time.Hour) },
	}
	changes := []struct {
		name      string
		do        func(s *shop, a, b turnpiketest.Tool)
		lists     int    // after the decision; the next owner asks once
		called    string // what is called, after the second question is denied as well
		approvals string
		told      string
	}{
		{"nothing changes", func(*shop, turnpiketest.Tool, turnpiketest.Tool) {}, 1, "a b", "a approved, b approved", "paid by b"},
		{"another tool appears", func(s *shop, a, b turnpiketest.Tool) { s.source.SetTools(a, b, turnpiketest.Tool{Name: "c"}) }, 2, "a b", "a approved, b approved", "paid by b"},
		{"the tool changes", func(s *shop, a, b turnpiketest.Tool) {
			b.Description = "other"
			s.source.SetTools(a, b)
		}, 2, "a", "a approved, b denied, b void", "denied"},
		{"the tool is removed", func(s *shop, a, _ turnpiketest.Tool) { s.source.SetTools(a) }, 2, "a", "a approved, b approved", "was removed or changed"},
		{"the server lists no tools", func(s *shop, a, b turnpiketest.Tool) {
			s.source.SetTools(a, b)
			s.source.Fail(errors.New("down"))
		}, 2, "a", "a approved, b approved", "could not list its tools"},
	}
	for mode, policy := range modes {
		for _, change := range changes {
			t.Run(mode+"/"+change.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &shop{town: &town{think: script("a", "b")}, source: turnpiketest.NewSource()}
					b := turnpiketest.Tool{Name: "b", Result: "paid by b"}
					a, decided := turnpiketest.Tool{Name: "a"}, make(chan struct{})
					a.Answer = func(context.Context, json.RawMessage) (tool.Result, error) {
						<-decided
						change.do(s, turnpiketest.Tool{Name: "a"}, b)
						return tool.Text("paid by a"), nil
					}
					s.source.SetTools(a, b)
					r := s.open(t)
					id := s.ask(t, r, policy)
					time.Sleep(time.Second) // the list of the beginning is older than the decision
					before := s.source.Lists()
					if n := s.decide(t, r, true); n != 2 {
						t.Fatalf("%d approvals", n)
					}
					close(decided)
					synctest.Wait()
					lists := s.source.Lists() - before
					s.decide(t, r, false)
					var d diary
					if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &d); err != nil {
						t.Fatal(err)
					}
					var called []string
					for _, c := range s.source.Calls() {
						called = append(called, c.Tool)
					}
					text, end := d.said()
					if end.Reason != event.Complete || !strings.Contains(text, change.told) {
						t.Errorf("%q ended with %s, want %q", text, end.Reason, change.told)
					}
					if got := strings.Join(called, " "); got != change.called {
						t.Errorf("called %s, want %s", got, change.called)
					}
					if got := s.statuses(t); got != change.approvals {
						t.Errorf("%s, want %s", got, change.approvals)
					}
					if lists != change.lists {
						t.Errorf("%d lists, want %d", lists, change.lists)
					}
					accounts(t, s.theRun(t))
				})
			})
		}
	}
}

// The next owner of a run in the middle of an approved batch compares as well: before it starts, and
// between the calls. // P02 P14
func TestAnApprovedBatchIsComparedAfterARestart(t *testing.T) {
	for _, c := range []struct {
		name  string
		early bool // the tool changes while no gateway runs
	}{{"it changes in between", true}, {"it changes during the repeated call", false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shop{town: &town{think: script("a", "b")}, source: turnpiketest.NewSource()}
				b := turnpiketest.Tool{Name: "b", Result: "paid by b"}
				a := turnpiketest.Tool{Name: "a", Class: tool.Read}
				other := b
				other.Description = "other"
				calls := 0
				a.Answer = func(ctx context.Context, _ json.RawMessage) (tool.Result, error) {
					if calls++; calls == 1 {
						return hangs(ctx, tool.Call{})
					}
					if !c.early {
						s.source.SetTools(a, other)
					}
					return tool.Text("seen by a"), nil
				}
				s.source.SetTools(a, b)
				first := s.open(t)
				id := s.ask(t, first, func(p *loop.Policy) { p.Parallelism = loop.Serial })
				s.decide(t, first, true)
				synctest.Wait()
				now, cancel := context.WithCancel(t.Context())
				cancel()
				first.Close(now, 0)
				if c.early {
					s.source.SetTools(a, other)
				}
				next := s.open(t)
				synctest.Wait()
				if n := s.decide(t, next, false); n != 1 {
					t.Errorf("%d approvals wait", n)
				}
				var d diary
				if err := next.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &d); err != nil {
					t.Fatal(err)
				}
				if text, end := d.said(); end.Reason != event.Complete || !strings.HasPrefix(text, "seen by a Tool call denied") {
					t.Errorf("%q, %s", text, end.Reason)
				}
				if got := s.statuses(t); got != "a approved, b denied, b void" || calls != 2 || len(s.source.Calls()) != 2 {
					t.Errorf("%s after %d calls", got, len(s.source.Calls()))
				}
				accounts(t, s.theRun(t))
			})
		})
	}
}

// A call that is compared again does not disturb those that are in progress. // P02
func TestCallsInProgressGoOnWhileAnotherIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{town: &town{think: script("a", "slow", "b")}, source: turnpiketest.NewSource()}
		decided, release := make(chan struct{}), make(chan struct{})
		a, slow, b := turnpiketest.Tool{Name: "a"}, turnpiketest.Tool{Name: "slow", Gate: release, Result: "done slowly"}, turnpiketest.Tool{Name: "b"}
		a.Answer = func(context.Context, json.RawMessage) (tool.Result, error) {
			<-decided
			b.Description = "other"
			s.source.SetTools(a, slow, b)
			return tool.Text("done"), nil
		}
		s.source.SetTools(a, slow, b)
		r := s.open(t)
		id := s.ask(t, r, func(p *loop.Policy) { p.Parallelism, p.Rules.CallsPerServer = loop.Parallel, 2 })
		s.decide(t, r, true)
		close(decided)
		synctest.Wait()
		if got := s.statuses(t); got != "a approved, b void, slow approved" {
			t.Errorf("while one is in progress: %s", got)
		}
		close(release)
		synctest.Wait()
		s.decide(t, r, false)
		var d diary
		if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &d); err != nil {
			t.Fatal(err)
		}
		if text, end := d.said(); end.Reason != event.Complete || text != "done done slowly Tool call denied by user." {
			t.Errorf("%q, %s", text, end.Reason)
		}
		accounts(t, s.theRun(t))
	})
}
