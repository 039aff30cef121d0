package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestARunWithToolsIsToldAsEventsAndFacts(t *testing.T) {
	s := newStage(t, box{"echo": echoes}, asks("echo", "echo"), says("Done."))
	end := s.run(t)
	if end.Reason != event.Complete || end.Rounds != 2 || end.Usage.Input != 20 || !end.SideEffects { // B23
		t.Errorf("%+v", end)
	}
	if got := s.model.results(1); !slices.Equal(got, []string{`{"n":0}`, `{"n":1}`}) {
		t.Errorf("the model was told %q", got)
	}
	want := []loop.Kind{"accepted", "input_added", "catalogued", "turn_started", "turn", "call_prepared", "call_prepared",
		"call_started", "call_started", "call_done", "call_done", "turn_started", "turn", "finished"}
	if got := s.journal.kinds(); !slices.Equal(got, want) {
		t.Errorf("facts %v", got)
	}
	var kinds []string
	for _, e := range s.sink.events {
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", e), "event."))
	}
	if got := strings.Join(kinds, " "); got != "Started RoundStarted RoundDone ToolStarted ToolStarted ToolDone ToolDone RoundStarted TextDelta RoundDone Finished" {
		t.Errorf("events %s", got)
	}
}

// The first call is the slowest and stays the first. // C05
func TestResultsStandInTheOrderOfTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, box{"read": func(_ context.Context, c tool.Call) (tool.Result, error) {
			if c.Key == "0.0" {
				time.Sleep(time.Minute) // of the bubble's clock
			}
			return tool.Text(c.Key), nil
		}}, asks("read", "read", "read"), says("Done."))
		begin := time.Now()
		s.run(t)
		if got := s.model.results(1); !slices.Equal(got, []string{"0.0", "0.1", "0.2"}) || time.Since(begin) != time.Minute {
			t.Errorf("the model was told %q after %v", got, time.Since(begin))
		}
		if done := s.journal.done(); done[2].Key != "0.0" || done[2].Micros != 60_000_000 { // C23
			t.Errorf("%+v", done)
		}
	})
}

// Somebody else cancels the run through the journal while a tool runs: the owner
// learns of it when it next writes, starts nothing new, and accounts for all.
func TestAForeignCancelEndsTheRunAtTheNextFact(t *testing.T) {
	s := newStage(t, nil, asks("slow", "quick"), says("never"))
	entered := make(chan struct{}, 1)
	s.req.Servers = newStage(t, box{
		"slow": waits(entered),
		"quick": func(context.Context, tool.Call) (tool.Result, error) {
			<-entered
			s.journal.write(loop.CancelRequested{By: "admin", Cause: event.Cancelled})
			return tool.Text("quick"), nil
		},
	}).req.Servers
	end := s.run(t)
	if end.Reason != event.Cancelled || s.model.calls() != 1 {
		t.Errorf("%+v after %d model calls", end, s.model.calls())
	}
	outcomes := map[loop.CallKey]loop.Outcome{}
	for _, d := range s.journal.done() {
		outcomes[d.Key] = d.Outcome
	}
	if outcomes["0.0"] != loop.Unknown || outcomes["0.1"] != loop.OK {
		t.Errorf("outcomes %v", outcomes)
	}
}

// A foreign fact that changes nothing of what is due is folded, and the run goes
// on.
func TestAForeignFactInBetweenIsFolded(t *testing.T) {
	s := newStage(t, nil, asks("add"), says("Done."))
	s.req.Servers = newStage(t, box{"add": func(context.Context, tool.Call) (tool.Result, error) {
		s.journal.write(loop.InputAdded{ItemsRef: "more", By: loop.ByClient})
		return tool.Text("ok"), nil
	}}).req.Servers
	if end := s.run(t); end.Reason != event.Complete {
		t.Errorf("%+v", end)
	}
	if state := s.journal.replays(t); !slices.Contains(state.Seen(), "more") {
		t.Errorf("transcript %v", state.Seen())
	}
}

// A foreign cancel while the model speaks: its turn is stored, and its calls are
// not run.
func TestAForeignCancelDuringTheModelCallRunsNoTool(t *testing.T) {
	var ran atomic.Int32
	s := newStage(t, nil)
	s.model.turns = []answer{func(context.Context, func(model.Delta) error) (*model.Turn, error) {
		s.journal.write(loop.CancelRequested{By: "admin", Cause: event.Cancelled})
		return turnOf("echo"), nil
	}}
	s.req.Servers = newStage(t, box{"echo": func(ctx context.Context, c tool.Call) (tool.Result, error) {
		ran.Add(1)
		return echoes(ctx, c)
	}}).req.Servers
	if end := s.run(t); end.Reason != event.Cancelled || ran.Load() != 0 {
		t.Errorf("%+v, %d calls ran", end, ran.Load())
	}
}

// Wherever the journal fails, Run returns an error, says no Finished, and leaves
// nothing running.
func TestAJournalThatFailsEndsTheRunWithAnError(t *testing.T) {
	broken := errors.New("disk full")
	for _, kind := range []loop.Kind{"accepted", "catalogued", "turn_started", "turn", "call_prepared", "call_started", "call_done", "finished"} {
		t.Run(string(kind), func(t *testing.T) {
			var ran atomic.Int32
			entered := make(chan struct{}, 1)
			s := newStage(t, box{
				"quick": func(context.Context, tool.Call) (tool.Result, error) {
					<-entered
					ran.Add(1)
					return tool.Text("ok"), nil
				},
				"slow": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
					entered <- struct{}{}
					if kind == "call_done" {
						<-ctx.Done() // cancelled by the failure of the other's fact
						return tool.Result{}, ctx.Err()
					}
					return tool.Text("ok"), nil
				},
			}, asks("quick", "slow"), says("Done."))
			s.journal.fail = func(b loop.Body) error {
				if b.Kind() == kind {
					return broken
				}
				return nil
			}
			err := s.runner.Run(t.Context(), s.req, s.sink)
			if !errors.Is(err, broken) || s.sink.finished() {
				t.Errorf("%v, events %v", err, s.sink.events)
			}
			if kind == "call_started" && ran.Load() != 0 { // the intent comes before the effect
				t.Error("a tool ran whose intent was not stored")
			}
		})
	}
}

// A handover that cannot be stored is not handed over.
func TestAHandoverThatCannotBeStoredEndsTheRunWithAnError(t *testing.T) {
	s := newStage(t, box{"echo": echoes}, asks("echo", "mine"))
	s.req.ClientTools = []model.Tool{{Definition: tool.Definition{Name: "mine"}}}
	s.conversations.fail = errors.New("disk full")
	if err := s.runner.Run(t.Context(), s.req, s.sink); !errors.Is(err, s.conversations.fail) || s.sink.finished() {
		t.Errorf("%v, events %v", err, s.sink.events)
	}
}

// A sink that fails is a caller that has gone: the model call and the tools end,
// and the run is recorded as such.
func TestASinkThatFailsCancelsTheRun(t *testing.T) {
	gone := errors.New("broken pipe")
	for _, tt := range []struct {
		name string
		at   func(event.Event) bool
	}{
		{"at its beginning", func(e event.Event) bool { _, ok := e.(event.Started); return ok }},
		{"in the model's text", func(e event.Event) bool { _, ok := e.(event.TextDelta); return ok }},
		{"when a tool starts", func(e event.Event) bool { _, ok := e.(event.ToolStarted); return ok }},
		{"when a tool is done", func(e event.Event) bool { d, ok := e.(event.ToolDone); return ok && d.Name == "quick" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, box{
				"quick": echoes,
				"slow": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
					<-ctx.Done()
					return tool.Result{}, ctx.Err()
				},
			}, func(ctx context.Context, emit func(model.Delta) error) (*model.Turn, error) {
				if err := emit(model.Delta{Text: "Hel"}); err != nil {
					return nil, err
				}
				return turnOf("quick", "slow"), nil
			})
			s.sink.fail = func(e event.Event) error {
				if tt.at(e) {
					return gone
				}
				return nil
			}
			if end := s.run(t); end.Reason != event.CallerGone {
				t.Errorf("%+v", end)
			}
			if s.model.calls() > 1 {
				t.Errorf("%d model calls", s.model.calls())
			}
		})
	}
}

// The caller leaves while the model speaks, while tools run, and while the
// run waits to try again. // O01
func TestACallerThatLeavesEndsTheRun(t *testing.T) {
	for _, tt := range []struct {
		name string
		turn func(reached chan<- struct{}) answer
	}{
		{"in the model call", func(reached chan<- struct{}) answer {
			return func(ctx context.Context, _ func(model.Delta) error) (*model.Turn, error) {
				reached <- struct{}{}
				<-ctx.Done()
				return nil, &model.Error{Class: model.Gone, Err: ctx.Err()}
			}
		}},
		{"in the tools", func(chan<- struct{}) answer { return asks("wait", "wait", "wait") }},
		{"between two attempts", func(reached chan<- struct{}) answer {
			return func(context.Context, func(model.Delta) error) (*model.Turn, error) {
				reached <- struct{}{}
				return nil, &model.Error{Class: model.Transient, RetryAfter: 4 * time.Second}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reached := make(chan struct{}, 3)
				s := newStage(t, box{"wait": waits(reached)}, tt.turn(reached))
				ctx, leave := context.WithCancel(t.Context())
				over := make(chan error, 1)
				go func() { over <- s.runner.Run(ctx, s.req, s.sink) }()
				<-reached
				synctest.Wait()
				begin := time.Now()
				leave()
				if err := <-over; err != nil {
					t.Fatal(err)
				}
				if end := s.sink.end(t); end.Reason != event.CallerGone || time.Since(begin) != 0 {
					t.Errorf("%+v after %v", end, time.Since(begin))
				}
				s.journal.replays(t)
			})
		})
	}
}

// blocked is a refusal of the outbound policy.
type blocked struct{}

func (blocked) Error() string             { return "blocked" }
func (blocked) Blocked() (string, string) { return "private", "10.0.0.1" }

// A tool that is refused ends the run and its siblings, and the model hears
// nothing. // K04
func TestABlockedToolEndsTheRunAndItsSiblings(t *testing.T) {
	entered := make(chan struct{}, 2)
	var ended sync.WaitGroup
	ended.Add(2)
	s := newStage(t, box{
		"bad": func(context.Context, tool.Call) (tool.Result, error) {
			<-entered
			<-entered
			return tool.Result{}, fmt.Errorf("%w: %w", tool.ErrNotSent, blocked{})
		},
		"wait": func(ctx context.Context, c tool.Call) (tool.Result, error) {
			defer ended.Done()
			return waits(entered)(ctx, c)
		},
	}, asks("wait", "bad", "wait"), says("never"))
	end := s.run(t)
	ended.Wait()
	if end.Reason != event.Blocked || end.Failure == nil || end.Failure.Code != "outbound_ssrf_blocked" || end.Failure.Address != "10.0.0.1" ||
		strings.Contains(end.Failure.Message, "10.0.0.1") {
		t.Errorf("%+v, %+v", end, end.Failure)
	}
	if s.model.calls() != 1 {
		t.Errorf("%d model calls", s.model.calls())
	}
	for _, d := range s.journal.done() {
		want := loop.Unknown
		if d.Key == "0.1" { // refused before it left
			want = loop.NotRun
		}
		if d.Outcome != want {
			t.Errorf("call %s ended as %s, want %s", d.Key, d.Outcome, want)
		}
	}
}

// The deadline counts from acceptance and ends what is under way.
func TestTheDeadlineEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, box{"wait": waits(make(chan struct{}, 1))}, asks("wait"))
		s.req.Policy.Limits.ActiveMS = 5_000
		begin := time.Now()
		if end := s.run(t); end.Reason != event.Deadline || time.Since(begin) != 5*time.Second {
			t.Errorf("%+v after %v", end, time.Since(begin))
		}
	})
}

// A time limit that somebody raises while the run goes on counts. // P23
func TestARaisedTimeLimitMovesTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil, asks("work"), says("never"))
		s.req.Servers = newStage(t, box{"work": func(context.Context, tool.Call) (tool.Result, error) {
			time.Sleep(3 * time.Second)
			s.journal.write(loop.LimitsRaised{By: "admin", Raise: budget.Raise{ActiveMS: 4_000}})
			return tool.Text("ok"), nil
		}}).req.Servers
		s.model.turns[1] = func(ctx context.Context, _ func(model.Delta) error) (*model.Turn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		s.req.Policy.Limits.ActiveMS = 5_000
		begin := time.Now()
		if end := s.run(t); end.Reason != event.Deadline || time.Since(begin) != 9*time.Second {
			t.Errorf("%+v after %v", end, time.Since(begin))
		}
	})
}

// A wait that would outlive the deadline is not begun.
func TestARetryThatWouldComeTooLateIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil, func(context.Context, func(model.Delta) error) (*model.Turn, error) {
			return nil, &model.Error{Class: model.Transient, Status: 503, RetryAfter: 3 * time.Second}
		})
		s.req.Policy.Limits.ActiveMS = 2_000
		begin := time.Now()
		if end := s.run(t); end.Reason != event.ModelError || time.Since(begin) != 0 || end.Failure.Upstream.Status != 503 {
			t.Errorf("%+v after %v", end, time.Since(begin))
		}
	})
}

func TestWhichModelIsAskedAgain(t *testing.T) {
	texts := []model.DeltaKind{model.TextDelta, model.ReasoningDelta, model.RefusalDelta}
	breaksInACall := func(_ context.Context, emit func(model.Delta) error) (*model.Turn, error) {
		_ = emit(model.Delta{Kind: model.CallDelta, CallID: "c", Name: "read"})
		_ = emit(model.Delta{Kind: model.CallDelta, Text: `{"a`})
		return nil, &model.Error{Class: model.Transient}
	}
	for _, tt := range []struct {
		name    string
		first   []answer
		second  []answer // of the next target; nil = there is none
		live    []model.DeltaKind
		reason  event.Reason
		asked   [2]int
		waiting time.Duration
	}{
		{"a transient failure, until it works", []answer{breaks(model.Transient), breaks(model.Transient), says("ok")}, nil, nil, event.Complete, [2]int{3, 0}, 750 * time.Millisecond},
		{"a transient failure, until the third retry works", []answer{breaks(model.Transient), breaks(model.Transient), breaks(model.Transient), says("ok")}, nil, nil, event.Complete, [2]int{4, 0}, 1750 * time.Millisecond}, // I07
		{"three retries at most", []answer{breaks(model.Transient)}, nil, nil, event.ModelError, [2]int{4, 0}, 1750 * time.Millisecond},
		{"then the next target", []answer{breaks(model.Transient)}, []answer{says("ok")}, nil, event.Complete, [2]int{4, 1}, 1750 * time.Millisecond},
		{"the next target at once", []answer{breaks(model.Target)}, []answer{says("ok")}, nil, event.Complete, [2]int{1, 1}, 0},
		{"nobody, where the request is wrong", []answer{breaks(model.Invalid)}, []answer{says("ok")}, nil, event.ModelError, [2]int{1, 0}, 0},
		{"nobody, where it is too long", []answer{breaks(model.TooLong)}, []answer{says("ok")}, nil, event.TooLong, [2]int{1, 0}, 0},
		{"nobody, where text was seen", []answer{func(_ context.Context, emit func(model.Delta) error) (*model.Turn, error) {
			_ = emit(model.Delta{Text: "Hel"})
			return nil, &model.Error{Class: model.Transient}
		}}, []answer{says("ok")}, texts, event.ModelError, [2]int{1, 0}, 0},
		{"again, where text was not shown yet", []answer{func(_ context.Context, emit func(model.Delta) error) (*model.Turn, error) {
			_ = emit(model.Delta{Text: "Hel"})
			return nil, &model.Error{Class: model.Transient}
		}, says("ok")}, nil, nil, event.Complete, [2]int{2, 0}, 250 * time.Millisecond},
		{"again, where the surface does not send calls as they come", []answer{breaksInACall, says("ok")}, nil, texts, event.Complete, [2]int{2, 0}, 250 * time.Millisecond},
		{"nobody, where it sends them", []answer{breaksInACall, says("ok")}, nil, append(texts, model.CallDelta), event.ModelError, [2]int{1, 0}, 0},
		{"again, where the caller does not get whole items", []answer{func(_ context.Context, emit func(model.Delta) error) (*model.Turn, error) {
			_ = emit(model.Delta{Kind: model.NativeDelta, Text: "{}"})
			return nil, &model.Error{Class: model.Transient}
		}, says("ok")}, nil, texts, event.Complete, [2]int{2, 0}, 250 * time.Millisecond},
		{"again after an error of no known type", []answer{func(context.Context, func(model.Delta) error) (*model.Turn, error) {
			return nil, io.ErrUnexpectedEOF
		}, says("ok")}, nil, nil, event.Complete, [2]int{2, 0}, 250 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, nil, tt.first...)
				other := &speaker{turns: tt.second}
				if tt.second != nil {
					s.req.Targets = append(s.req.Targets, route.Target{Target: loop.Target{Provider: "other", Model: "m2"}, Client: other})
				}
				s.req.Policy.Live = tt.live
				begin := time.Now()
				end := s.run(t)
				if got := [2]int{s.model.calls(), other.calls()}; end.Reason != tt.reason || got != tt.asked || time.Since(begin) != tt.waiting {
					t.Errorf("%+v after %v: asked %v", end, time.Since(begin), got)
				}
			})
		})
	}
}

// A turn that breaks after a complete call runs that call and no other.
func TestOnlyCompleteCallsOfABrokenTurnRun(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	s := newStage(t, box{"read": func(_ context.Context, c tool.Call) (tool.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, string(c.Arguments))
		return tool.Text("ok"), nil
	}}, func(context.Context, func(model.Delta) error) (*model.Turn, error) {
		turn := turnOf("read", "read")
		turn.Calls[1].Complete = false
		turn.Items = turn.Items[:1]
		turn.Stop = model.StopUnknown
		return turn, &model.Error{Class: model.Transient, Err: io.ErrUnexpectedEOF}
	}, says("Done."))
	if end := s.run(t); end.Reason != event.Complete || !slices.Equal(ran, []string{`{"n":0}`}) {
		t.Errorf("%+v, ran %q", end, ran)
	}
	if end := s.sink.end(t); end.SideEffects { // the tool only reads
		t.Error("side effects")
	}
}

// A call that may write is executed once, whatever it carries.
func TestACallHasOneIdempotencyKeyOfItsOwn(t *testing.T) {
	var mu sync.Mutex
	keys := map[string]int{}
	note := func(_ context.Context, c tool.Call) (tool.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		keys[c.IdempotencyKey]++
		if c.Attempt != 1 || c.RunID == "" {
			t.Errorf("%+v", c)
		}
		return tool.Text("ok"), nil
	}
	s := newStage(t, box{"write": note, "read": note}, asks("write", "read", "write"), says("Done."))
	s.run(t)
	for key, n := range keys {
		if key != "" && n > 1 {
			t.Errorf("two calls have the key %s", key)
		}
	}
	if keys[""] == 0 {
		t.Error("a call that only reads has a key")
	}
}

// The hidden transcript comes back for the principal that it was given to.
func TestWhatWasHandedOverComesBack(t *testing.T) {
	s := newStage(t, box{"echo": echoes}, asks("echo", "mine"), says("Done."))
	mine := []model.Tool{{Definition: tool.Definition{Name: "mine"}}}
	s.req.ClientTools = mine
	end := s.run(t)
	if end.Reason != event.ClientCalls || len(end.Calls) != 1 || !strings.HasPrefix(end.Calls[0].ID, "call_tp_") { // A08
		t.Fatalf("%+v", end)
	}
	id := end.Calls[0].ID
	for principal, want := range map[string][]string{"p": {`{"n":0}`, "mine!"}, "q": {"mine!"}} {
		back := newStage(t, box{"echo": echoes}, says("Done."))
		back.conversations = s.conversations
		back.runner = New(Options{Catalog: back.runner.o.Catalog, Journal: back.journal, Conversations: s.conversations})
		back.req.Principal, back.req.ClientTools = principal, mine
		back.req.Items = []item.Item{
			item.NewText(item.User, "go"),
			{Kind: item.ToolCall, Turn: 1, CallID: id, Name: "mine", Arguments: "{}"},
			item.NewResult(id, "mine!", false),
		}
		back.run(t)
		if got := back.model.results(0); !slices.Equal(got, want) {
			t.Errorf("%s: the model was told %q", principal, got)
		}
		last := back.model.asked[0].Items[len(back.model.asked[0].Items)-1]
		if wantID := map[string]string{"p": "p1", "q": id}[principal]; last.CallID != wantID {
			t.Errorf("%s: the result answers %q, want %q", principal, last.CallID, wantID)
		}
	}
}

// A tool that panics is a tool that failed.
func TestAToolThatPanicsIsAnErrorForTheModel(t *testing.T) {
	s := newStage(t, box{"bad": func(context.Context, tool.Call) (tool.Result, error) { panic("oops") }}, asks("bad"), says("Done."))
	if end := s.run(t); end.Reason != event.Complete || !strings.Contains(s.model.results(1)[0], "oops") {
		t.Errorf("%+v, %q", end, s.model.results(1))
	}
}

// The model reads the rest of a cut result with a tool of ours; where
// somebody else has one of that name, it is not told to use it. // P16
func TestTheRestOfACutResultCanBeRead(t *testing.T) {
	big := strings.Repeat("é", 4000)
	var s *stage
	reads := func(context.Context, func(model.Delta) error) (*model.Turn, error) {
		_, told, _ := strings.Cut(s.model.results(1)[0], `Read the rest with read_result, id "`)
		id, _, _ := strings.Cut(told, `"`)
		turn := turnOf("read_result")
		turn.Calls[0].Arguments = `{"id":"` + id + `","offset":7001,"length":5}`
		return turn, nil
	}
	bigTool := func(context.Context, tool.Call) (tool.Result, error) { return tool.Text(big), nil }
	s = newStage(t, box{"big": bigTool, "other": echoes}, asks("big", "other"), reads, says("Done."))
	s.req.Policy.ResultMaxBytes, s.req.ToolChoice = 1024, model.ToolChoice{Mode: "required", Only: []string{"big"}}
	s.run(t)
	if got := s.model.results(2); !strings.Contains(got[1], "not among the allowed tools") || !strings.HasSuffix(got[2], "ééé") { // C25
		t.Errorf("with tools that are not allowed the model was told %q", got)
	}
	if got := s.model.asked[1].ToolChoice; got.Mode != "auto" || !slices.Equal(got.Only, []string{"big", "read_result"}) {
		t.Errorf("the second round has the tool choice %+v", got)
	}
	s = newStage(t, box{"big": bigTool}, asks("big"), reads, says("Done."))
	s.req.Policy.ResultMaxBytes = 1024
	s.run(t)
	if got := s.model.results(1)[0]; len(got) > 1024 || !strings.Contains(got, `full result is 8000 bytes] Read the rest with read_result, id "`) {
		t.Errorf("the model was told %q", got)
	}
	if got := s.model.results(2)[1]; !strings.Contains(got, "bytes 7000 to 7006 of 8000") || !strings.HasSuffix(got, "ééé") {
		t.Errorf("the model was told %q", got)
	}
	s = newStage(t, box{"big": bigTool, "read_result": echoes}, asks("big"), says("Done."))
	s.req.Policy.ResultMaxBytes = 1024
	s.run(t)
	if got := s.model.results(1)[0]; strings.Contains(got, "Read the rest with read_result") {
		t.Errorf("the model is sent to the server's own read_result: %q", got)
	}
}

// A light run that waits is durable from then on: what it needs to be gone on
// with is stored with the fact that parks it. // P01
func TestARunThatWaitsKeepsWhatItsNextOwnerNeeds(t *testing.T) {
	s := newStage(t, box{"echo": echoes}, asks("echo"))
	d := newDriver(t.Context(), s.runner, s.req, s.runner.o.newLease(s.req), s.req.Account, s.sink)
	defer d.run.cancel(nil)
	facts := []loop.Body{
		loop.TurnStarted{Attempt: 1, Purpose: loop.PurposeTurn},
		loop.Turn{Purpose: loop.PurposeTurn, Calls: []loop.TurnCall{{ProviderID: "p0", Name: "echo", Complete: true}}},
		loop.CallPrepared{Key: "0.0", Owner: tool.Gateway, Class: tool.Once, Verdict: loop.Ask},
	}
	d.observer.trace = map[string]string{"traceparent": "t"}
	if err := errors.Join(d.accept(), d.discover(), d.run.append(nil, facts...)); err != nil {
		t.Fatal(err)
	}
	if s.journal.rows[requestRef] != nil || s.journal.rows[catalogRef] != nil || s.journal.rows[traceRef] != nil {
		t.Error("a light run stores more than it needs")
	}
	if err := d.play(); err != nil {
		t.Fatal(err)
	}
	if s.journal.rows[requestRef] == nil || s.journal.rows[catalogRef] == nil || s.journal.rows[traceRef] == nil || d.run.state().Grade != loop.Durable {
		t.Errorf("grade %s, rows %v", d.run.state().Grade, s.journal.rows)
	}
	if last, ok := s.sink.events[len(s.sink.events)-1].(event.Waiting); !ok || last.Rounds != 1 || s.sink.finished() {
		t.Errorf("%+v", s.sink.events)
	}
}
