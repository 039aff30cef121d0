package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// slowTool is a tool that takes its time and counts the calls in progress.
type slowTool struct {
	each func(call string) time.Duration
	fail string // key of the call that fails; "" = none

	mu        sync.Mutex
	now, peak int
	began     []string // keys of the calls, in order
}

func (s *slowTool) call(ctx context.Context, c tool.Call) (tool.Result, error) {
	s.mu.Lock()
	s.now++
	s.peak = max(s.peak, s.now)
	s.began = append(s.began, c.Key)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return tool.Result{}, context.Cause(ctx)
	case <-time.After(s.each(c.Key)):
	}
	if c.Key == s.fail {
		return tool.Error("no"), nil
	}
	return tool.Text(c.Key), nil
}

func second(string) time.Duration { return time.Second }

func many(name string, n int) []string { return slices.Repeat([]string{name}, n) }

// Twelve parallel calls, ten of them at a time. // D11
func TestARunMakesTenCallsToOneServerAtATime(t *testing.T) {
	for _, name := range []string{"write", "read"} {
		synctest.Test(t, func(t *testing.T) {
			slow := &slowTool{each: second}
			s := newStage(t, box{name: slow.call}, asks(many(name, 12)...), says("Done."))
			begin := time.Now()
			if end := s.run(t); end.Reason != event.Complete || end.ToolCalls != 12 {
				t.Errorf("%+v", end)
			}
			if slow.peak != 10 || time.Since(begin) != 2*time.Second {
				t.Errorf("%s: peak %d, after %v", name, slow.peak, time.Since(begin))
			}
			if got := s.model.results(1); len(got) != 12 || got[0] != "0.0" || got[11] != "0.11" {
				t.Errorf("%s: results %q", name, got)
			}
		})
	}
}

// A waiting call starts when one call has ended, and no earlier: a call that is not
// recorded as started was not sent. // D11 C05
func TestAWaitingCallStartsWhenAnotherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowTool{each: func(key string) time.Duration {
			if key == "0.0" {
				return time.Minute
			}
			return time.Second
		}}
		s := newStage(t, box{"write": slow.call}, asks(many("write", 30)...), says("Done."))
		begin := time.Now()
		s.run(t)
		if slow.peak != 10 || time.Since(begin) != time.Minute {
			t.Errorf("peak %d, after %v", slow.peak, time.Since(begin))
		}
		inFlight := 0
		for _, f := range s.journal.facts {
			switch f.Body.(type) {
			case loop.CallStarted:
				inFlight++
			case loop.CallDone:
				inFlight--
			}
			if inFlight > 10 {
				t.Errorf("fact %d: %d calls are recorded as started", f.Seq, inFlight)
			}
		}
	})
}

// Each server has its own ten. // D11
func TestCallsToOneServerDoNotDelayThoseToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := &slowTool{each: second}, &slowTool{each: second}
		s := newStage(t, box{"write": one.call}, asks(append(many("write", 12), "other", "other")...), says("Done."))
		s.req.Servers = append(s.req.Servers, catalog.Server{Name: "o", Source: box{"other": other.call}})
		begin := time.Now()
		s.run(t)
		if one.peak != 10 || other.peak != 2 || time.Since(begin) != 2*time.Second {
			t.Errorf("peaks %d and %d, after %v", one.peak, other.peak, time.Since(begin))
		}
	})
}

// Waiting counts toward the deadline of the run, and what has not started is not run. // D11
func TestTheDeadlineEndsWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowTool{each: func(string) time.Duration { return time.Hour }}
		s := newStage(t, box{"write": slow.call}, asks(many("write", 12)...))
		s.req.Policy.Limits.ActiveMS = 5_000
		begin := time.Now()
		if end := s.run(t); end.Reason != event.Deadline || time.Since(begin) != 5*time.Second {
			t.Errorf("%+v after %v", end, time.Since(begin))
		}
		outcomes := map[loop.Outcome]int{}
		for _, d := range s.journal.done() {
			outcomes[d.Outcome]++
		}
		if len(slow.began) != 10 || outcomes[loop.Unknown] != 10 || outcomes[loop.NotRun] != 2 {
			t.Errorf("%d calls, outcomes %v", len(slow.began), outcomes)
		}
	})
}

// With tool_error_mode abort, a failed call keeps the waiting ones from starting. // D11
func TestAFailedCallKeepsWaitingCallsFromStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowTool{each: second, fail: "0.3"}
		s := newStage(t, box{"write": slow.call}, asks(many("write", 12)...))
		s.req.Policy.AbortOnTool = true
		if end := s.run(t); end.Reason != event.ToolAbort {
			t.Errorf("%+v", end)
		}
		if began := len(slow.began); began > 12 || slow.peak != 10 {
			t.Errorf("%d calls began, peak %d", began, slow.peak)
		}
		for i, d := range s.journal.done() {
			if started := slices.Contains(slow.began, string(d.Key)); (d.Outcome == loop.NotRun) == started {
				t.Errorf("call %d, %s: %s, began: %v", i, d.Key, d.Outcome, started)
			}
		}
	})
}

// A store that fails while calls are in flight ends the run, and the waiting calls are not
// sent. // D11
func TestAStoreThatFailsKeepsWaitingCallsFromStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowTool{each: second}
		s := newStage(t, box{"write": slow.call}, asks(many("write", 12)...))
		s.journal.fail = func(b loop.Body) error {
			if started, ok := b.(loop.CallStarted); ok && started.Key == "0.10" {
				return errors.New("disk full")
			}
			return nil
		}
		if err := s.runner.Run(t.Context(), s.req, s.sink); err == nil {
			t.Error("no error")
		}
		if len(slow.began) != 10 {
			t.Errorf("calls %q began", slow.began)
		}
	})
}

// A run whose rules were recorded with another number keeps it. // C07 D11
func TestARunKeepsItsCallsPerServer(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := &slowTool{each: second}
				s := newStage(t, box{"write": slow.call}, asks(many("write", 6)...), says("Done."))
				s.req.Policy.Rules.CallsPerServer = n
				s.run(t)
				if slow.peak != n {
					t.Errorf("peak %d", slow.peak)
				}
			})
		})
	}
}

// A run that leaves calls out because only the first of a turn is executed says so in the log, once. // C04
func TestFirstModeWarnsOnceInARun(t *testing.T) {
	const warning = `level=WARN msg="the model asked for more than one tool call, and only the first is executed (tool_parallelism: first)"`
	for mode, want := range map[loop.Parallelism]int{loop.First: 1, loop.Serial: 0} {
		var log bytes.Buffer
		s := newStage(t, box{"a": echoes, "b": echoes}, asks("a", "b"), asks("b", "a"), says("Done."))
		s.req.Policy.Parallelism = mode
		s.runner.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.run(t)
		if got := strings.Count(log.String(), warning); got != want || len(s.model.asked) != 3 {
			t.Errorf("%s: %d warnings, want %d:\n%s", mode, got, want, &log)
		}
	}
}
