package turnpike_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// both runs an agent without and with a stream, each with an agent of its own.
func both(t *testing.T, newAgent func() *turnpike.Agent, check func(t *testing.T, err error)) {
	t.Helper()
	t.Run("run", func(t *testing.T) {
		_, err := newAgent().Run(t.Context(), turnpike.Text("go"))
		check(t, err)
	})
	t.Run("stream", func(t *testing.T) {
		s := newAgent().Stream(t.Context(), turnpike.Text("go"))
		var last error
		ends := 0
		for e, err := range s.Events() {
			if last = err; err == nil && e.Type() == (event.Finished{}).Type() {
				ends++
			}
		}
		if _, err := s.Result(); err != last || ends != 1 {
			t.Errorf("the last pair has %v, Result %v; %d final events", last, err, ends)
		}
		check(t, last)
	})
}

const endless = `
call c1 weather {"city":"Bern"}
usage 100 20

call c2 weather {"city":"Basel"}
usage 200 20

call c3 weather {"city":"Bern"}
usage 300 20

text Done.
usage 400 10
`

// Each limit trips alone, and the error has the trace. // B15 B16 B17 B19
func TestEachLimitTripsAlone(t *testing.T) {
	rates := map[string]turnpike.Rate{"model": {Input: turnpike.USD("1000"), Output: turnpike.USD("5000")}} // 0.20 USD for the first call
	for _, c := range []struct {
		name   string
		limits turnpike.Limits
		rates  map[string]turnpike.Rate
		kind   turnpike.LimitKind
		calls  int // in the trace
		rounds int
	}{
		{"rounds", turnpike.Limits{Rounds: 2}, nil, turnpike.IterationLimit, 2, 2},
		{"calls", turnpike.Limits{Calls: 1}, nil, turnpike.CallLimit, 2, 2},
		{"tokens", turnpike.Limits{Tokens: 120}, nil, turnpike.TokenLimit, 1, 1},
		{"tokens that allow nothing", turnpike.Limits{Tokens: 1}, nil, turnpike.TokenLimit, 0, 0},
		{"money", turnpike.Limits{USD: turnpike.USD("0.3")}, rates, turnpike.CostLimit, 1, 1},
		{"no money", turnpike.Limits{USD: turnpike.USD("0")}, rates, turnpike.CostLimit, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func() *turnpike.Agent {
				return &turnpike.Agent{
					Model:  turnpiketest.NewScript(t, endless),
					Tools:  []tool.Tool{weather()},
					Limits: c.limits,
					Rates:  c.rates,
				}
			}, func(t *testing.T, err error) {
				var limit *turnpike.LimitError
				if !errors.As(err, &limit) || limit.Kind != c.kind || limit.Status() != 429 {
					t.Fatalf("%v", err)
				}
				r := limit.Result()
				if got := len(calls(r)); got != c.calls || r.Rounds != c.rounds {
					t.Errorf("%d calls, %d rounds in %+v", got, r.Rounds, r)
				}
			})
		})
	}
}

func calls(r *turnpike.Result) (out []turnpike.StepCall) {
	for _, s := range r.Steps {
		out = append(out, s.Calls...)
	}
	return out
}

// modes runs a test of a run that is streamed and of one that is not, each with a clock of its own. err
// returns the error of the run.
func modes(t *testing.T, f func(t *testing.T, err func(*turnpike.Stream) error)) {
	for _, mode := range []string{"run", "stream"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, func(s *turnpike.Stream) error {
					if mode == "stream" {
						for range events(s) {
						}
					}
					_, err := s.Result()
					return err
				})
			})
		})
	}
}

// The limit of time ends a tool, streamed and not. // B18
func TestALimitOfTime(t *testing.T) {
	modes(t, func(t *testing.T, errOf func(*turnpike.Stream) error) {
		slow := tool.Func("slow", "", func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		a := &turnpike.Agent{
			Model:  turnpiketest.NewScript(t, "call c1 slow {}\n"),
			Tools:  []tool.Tool{slow},
			Limits: turnpike.Limits{Time: time.Minute},
		}
		begin := time.Now()
		err := errOf(a.Stream(t.Context(), turnpike.Text("go")))
		var limit *turnpike.LimitError
		if !errors.As(err, &limit) || limit.Kind != turnpike.TimeLimit || time.Since(begin) != time.Minute ||
			calls(limit.Result())[0].Outcome != event.CallUnknown {
			t.Errorf("%v after %v: %+v", err, time.Since(begin), limit.Result())
		}
	})
}

// greedy is a model whose answer is too large.
type greedy struct{}

func (greedy) Stream(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Turn, error) {
	return nil, req.Memory.Acquire(70 << 20)
}

// What a run holds in memory is bounded. The error names no setting of a gateway.
func TestALimitOfMemory(t *testing.T) {
	_, ofInput := (&turnpike.Agent{Model: greedy{}}).Run(t.Context(), turnpike.Text(strings.Repeat("x", 70<<20)))
	_, ofAnswer := (&turnpike.Agent{Model: greedy{}}).Run(t.Context(), turnpike.Text("go"))
	for name, err := range map[string]error{"input": ofInput, "answer": ofAnswer} {
		var limit *turnpike.LimitError
		if !errors.As(err, &limit) || limit.Kind != turnpike.MemoryLimit || !strings.Contains(err.Error(), "64 MiB of memory") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

func TestWithinOnlyTightens(t *testing.T) {
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, endless), Tools: []tool.Tool{weather()}, Limits: turnpike.Limits{Rounds: 2}}
	var limit *turnpike.LimitError
	if _, err := a.Run(
		t.Context(),
		turnpike.Text("go"),
		turnpike.Within(turnpike.Limits{Rounds: 5}),
	); !errors.As(err, &limit) ||
		limit.Result().Rounds != 2 {
		t.Errorf("%v", err)
	}
	a = &turnpike.Agent{Model: turnpiketest.NewScript(t, endless), Tools: []tool.Tool{weather()}}
	if _, err := a.Run(
		t.Context(),
		turnpike.Text("go"),
		turnpike.Within(turnpike.Limits{Rounds: 1}),
	); !errors.As(err, &limit) ||
		limit.Result().Rounds != 1 {
		t.Errorf("%v", err)
	}
}

// A model without a price under a limit on money is refused before any call. // B18
func TestAModelWithoutAPriceUnderALimit(t *testing.T) {
	script := turnpiketest.NewScript(t, endless)
	a := &turnpike.Agent{Model: script, Limits: turnpike.Limits{USD: turnpike.USD("1")}}
	var wrong *turnpike.ValidationError
	if _, err := a.Run(t.Context(), turnpike.Text("go")); !errors.As(err, &wrong) || wrong.Status() != 400 || script.Played() != 0 {
		t.Errorf("%v", err)
	}
}

// named is a model with a name that has a price.
type named struct{ *turnpiketest.Script }

func (named) ModelName() (provider, name string) { return "openai", "gpt-5.4" }

func TestABuiltInPrice(t *testing.T) {
	r, err := (&turnpike.Agent{Model: named{turnpiketest.NewScript(t, story)}, Tools: []tool.Tool{weather()}, Limits: turnpike.Limits{USD: turnpike.USD("1")}}).Run(
		t.Context(),
		turnpike.Text("go"),
	)
	if err != nil || r.Cost.Nano() <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// The calls of a tool cost money, too.
func TestAToolWithAPrice(t *testing.T) {
	agent := func(limit string) *turnpike.Agent {
		return &turnpike.Agent{
			Model: turnpiketest.NewScript(t, endless), Tools: []tool.Tool{weather().Price(turnpike.USD("0.10"))},
			Rates: map[string]turnpike.Rate{"model": {Input: turnpike.USD("0")}}, Limits: turnpike.Limits{USD: turnpike.USD(limit)},
		}
	}
	if r, err := agent("0.31").Run(t.Context(), turnpike.Text("go")); err != nil || r.Cost.String() != "0.3" {
		t.Errorf("%+v, %v", r, err)
	}
	var limit *turnpike.LimitError
	if _, err := agent(
		"0.2",
	).Run(t.Context(), turnpike.Text("go")); !errors.As(err, &limit) || limit.Kind != turnpike.CostLimit ||
		limit.Result().Cost.String() != "0.2" {
		t.Errorf("%v", err)
	}
}

func TestWhatARunHasCost(t *testing.T) {
	a := &turnpike.Agent{
		Model: turnpiketest.NewScript(t, story), Tools: []tool.Tool{weather()},
		Rates: map[string]turnpike.Rate{"custom/model": {Input: turnpike.USD("2"), Output: turnpike.USD("10")}},
	}
	r, err := a.Run(t.Context(), turnpike.Text("go"))
	if err != nil || r.Cost.String() != "0.00016" { // 30 × 2 + 10 × 10 of 10⁻⁶
		t.Errorf("%v, %v", r, err)
	}
	if out, err := json.Marshal(r); err != nil || !strings.Contains(string(out), `"Cost":"0.00016"`) {
		t.Errorf("%s, %v", out, err)
	}
}

// The end of the context cancels the model and the tools, and wins over a limit. // O01 O02 O03
func TestAnAbort(t *testing.T) {
	for _, c := range []struct{ name, story string }{
		{"in a tool", "call c1 effect {}\ncall c2 hang {}\n"},
		{"in the model", "call c1 effect {}\n\ntext So\nhang\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			both := func(t *testing.T, streamed bool) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					cause := errors.New("the user has left")
					effects, ended := 0, false
					a := &turnpike.Agent{Model: turnpiketest.NewScript(t, c.story), Limits: turnpike.Limits{Rounds: 2}, Tools: []tool.Tool{
						tool.Func("effect", "", func(context.Context, struct{}) (string, error) { effects++; return "done", nil }),
						tool.Func("hang", "", func(ctx context.Context, _ struct{}) (string, error) {
							<-ctx.Done()
							ended = true
							return "", context.Cause(ctx)
						}),
					}}
					time.AfterFunc(time.Second, func() { cancel(cause) })
					s := a.Stream(ctx, turnpike.Text("go"))
					if streamed {
						for range events(s) {
						}
					}
					_, err := s.Result()
					var abort *turnpike.AbortError
					if !errors.As(err, &abort) || !errors.Is(err, cause) || !errors.Is(err, context.Canceled) || effects != 1 {
						t.Fatalf("%v, %d effects", err, effects)
					}
					if got := calls(abort.Result()); got[0].Result != "done" || c.name == "in a tool" && (!ended || len(got) != 2) {
						t.Errorf("%+v", got)
					}
				})
			}
			t.Run("run", func(t *testing.T) { both(t, false) })
			t.Run("stream", func(t *testing.T) { both(t, true) })
		})
	}
}

// The context ends in the round in which a limit trips. // O03
func TestAnAbortWinsOverALimit(t *testing.T) {
	for name, limits := range map[string]turnpike.Limits{
		"rounds": {Rounds: 1}, "calls": {Calls: 1}, "tokens": {Tokens: 120}, "money": {USD: turnpike.USD("0.3")}, "time": {Time: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, errOf func(*turnpike.Stream) error) {
				trips := func(abort bool) error {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					effects := 0
					a := &turnpike.Agent{
						Model: turnpiketest.NewScript(
							t,
							"call c1 last {}\ncall c2 last {}\nusage 100 20\n\ntext Done.\n",
						),
						Limits:      limits,
						Parallelism: turnpike.Serial,
						Rates:       map[string]turnpike.Rate{"model": {Input: turnpike.USD("1000"), Output: turnpike.USD("5000")}},
						Tools: []tool.Tool{tool.Func("last", "", func(context.Context, struct{}) (string, error) {
							if effects++; abort {
								cancel()
							}
							time.Sleep(time.Second)
							return "done", nil
						})},
					}
					err := errOf(a.Stream(ctx, turnpike.Text("go")))
					if got := err.(turnpike.Failure).Result(); effects == 0 || got == nil || calls(got)[0].Tool != "last" {
						t.Errorf("%d effects, %+v", effects, got)
					}
					return err
				}
				var limit *turnpike.LimitError
				if err := trips(
					false,
				); !errors.As(err, &limit) ||
					string(limit.Kind) != map[string]string{"rounds": "iterations", "money": "cost"}[name] && string(limit.Kind) != name {
					t.Errorf("without an abort: %v", err)
				}
				var abort *turnpike.AbortError
				if err := trips(true); !errors.As(err, &abort) || abort.Status() != 499 || !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// Leaving the loop is an abort.
func TestAStreamThatIsLeft(t *testing.T) {
	for _, at := range []string{"round_started", "text_delta", "tool_started", "tool_done"} {
		ended, effects := false, 0
		a := &turnpike.Agent{
			Model:  turnpiketest.NewScript(t, "text Let\ncall c0 effect {}\ncall c1 hang {}\n"),
			Limits: turnpike.Limits{Rounds: 1},
			Tools: []tool.Tool{
				tool.Func("effect", "", func(context.Context, struct{}) (string, error) { effects++; return "done", nil }),
				tool.Func("hang", "", func(ctx context.Context, _ struct{}) (string, error) {
					<-ctx.Done()
					ended = true
					return "", ctx.Err()
				}),
			},
		}
		s := a.Stream(t.Context(), turnpike.Text("go"))
		for e := range events(s) {
			if e.Type() == at {
				break
			}
		}
		var abort *turnpike.AbortError
		if _, err := s.Result(); !errors.As(err, &abort) || !errors.Is(err, context.Canceled) || abort.Result() == nil ||
			ended && !strings.HasPrefix(at, "tool") {
			t.Fatalf("left at %s: %v", at, err)
		}
		if at != "tool_done" {
			continue
		}
		if got := calls(
			abort.Result(),
		); !ended || effects != 1 || len(got) != 2 || got[0].Result != "done" ||
			got[1].Outcome != event.CallUnknown {
			t.Errorf("left at %s: %d effects, %+v", at, effects, got)
		}
	}
}

func TestAStreamIsReadOnce(t *testing.T) {
	script := turnpiketest.NewScript(t, story)
	a := &turnpike.Agent{Model: script, Tools: []tool.Tool{weather()}}
	s := a.Stream(t.Context(), turnpike.Text("go"))
	if script.Played() != 0 || s.ID() == "" {
		t.Error("a stream that nobody reads has begun")
	}
	text := ""
	for piece, err := range s.Text() {
		if err != nil {
			t.Fatal(err)
		}
		text += piece
	}
	if text != "Let me see.It is sunny." {
		t.Error(text)
	}
	for _, err := range s.Events() {
		if !errors.Is(err, turnpike.ErrConsumed) {
			t.Error(err)
		}
	}
	r, err := s.Result()
	again, err2 := s.Result()
	if err != nil || err2 != nil || r != again || r.Text != "It is sunny." {
		t.Errorf("%+v, %v, %v", r, err, err2)
	}
}

// A panic in the body of a loop ends the run, too.
func TestAPanicInTheLoop(t *testing.T) {
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, "text a\nhang\n")}
	s := a.Stream(t.Context(), turnpike.Text("go"))
	func() {
		defer func() { _ = recover() }()
		for range events(s) {
			panic("in the body")
		}
	}()
	if _, err := s.Result(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Each step has what its round has used and cost: its model calls, also those that failed, and its tools. // L04
func TestStepsHaveTheirUsageAndCost(t *testing.T) {
	a := &turnpike.Agent{
		Model: turnpiketest.NewScript(
			t,
			"text Let me see.\ncall c1 weather {\"city\":\"Bern\"}\nusage 100 20\n\ntext Cut\nusage 50 5\nfail 503\n\ntext Sunny.\nusage 200 10\n",
		),
		Tools: []tool.Tool{weather().Price(turnpike.USD("0.10"))},
		Rates: map[string]turnpike.Rate{"model": {Input: turnpike.USD("1000"), Output: turnpike.USD("10000")}},
	}
	r, err := a.Run(t.Context(), turnpike.Text("go"), turnpike.ShowTrace())
	if err != nil || len(r.Steps) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	var usage model.Usage
	cost := int64(0)
	for _, s := range r.Steps {
		usage, cost = usage.Add(s.Usage), cost+s.Cost.Nano()
	}
	if first := r.Steps[0]; first.Text != "Let me see." || len(first.Calls) != 1 || first.Usage.Input != 100 ||
		first.Cost != turnpike.USD("0.4") {
		t.Errorf("%+v", first)
	}
	if usage != r.Usage || cost != r.Cost.Nano() || r.Steps[1].Usage.Input < 200 {
		t.Errorf("the steps have %+v and %d of %+v", usage, cost, r)
	}
}

// Each model call gets the limit on its output, whether the loop makes it or Generate; Within only lowers it. An answer that it cuts
// is a result.
func TestTheOutputOfATurnIsLimited(t *testing.T) {
	within := func(n int64) []turnpike.Option {
		return []turnpike.Option{turnpike.Within(turnpike.Limits{OutputPerTurn: n})}
	}
	for name, c := range map[string]struct {
		agent turnpike.Limits
		opts  []turnpike.Option
		want  int
	}{
		"no limit":                  {},
		"of the agent":              {agent: turnpike.Limits{OutputPerTurn: 300}, want: 300},
		"of the call":               {opts: within(40), want: 40},
		"the lower one":             {turnpike.Limits{OutputPerTurn: 300}, within(40), 40},
		"a call that asks for more": {turnpike.Limits{OutputPerTurn: 300}, within(400), 300},
		"one model call":            {turnpike.Limits{OutputPerTurn: 300}, []turnpike.Option{turnpike.Mode(turnpike.Return)}, 300},
	} {
		m := turnpiketest.NewScript(t, "call c1 weather {\"city\":\"Bern\"}\n\ntext Rain in\nstop length\n")
		a := &turnpike.Agent{Model: m, Tools: []tool.Tool{weather()}, Limits: c.agent}
		r, err := a.Run(t.Context(), turnpike.Text("go"), c.opts...)
		if err != nil || r.Reason != turnpike.ReasonLength && r.Reason != turnpike.ReasonToolCalls {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		for i, asked := range m.Requests() {
			if asked.MaxTokens != c.want {
				t.Errorf("%s: call %d may write %d tokens, want %d", name, i, asked.MaxTokens, c.want)
			}
		}
	}
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, "text Hi.\n"), Limits: turnpike.Limits{OutputPerTurn: -1}}
	_, err := a.Run(t.Context(), turnpike.Text("go"))
	if wrong := new(turnpike.ValidationError); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "Limits.OutputPerTurn is -1") {
		t.Error(err)
	}
}

// What is reserved for a call is at most its limit on the output, or what the limits of the run have left.
func TestTheOutputOfATurnIsWhatIsReserved(t *testing.T) {
	for name, c := range map[string]struct {
		limits turnpike.Limits
		want   int // that the provider is asked for
	}{
		"tokens":                     {turnpike.Limits{Tokens: 1000, OutputPerTurn: 50}, 50},
		"money":                      {turnpike.Limits{USD: turnpike.USD("100"), OutputPerTurn: 50}, 50},
		"less money than the output": {turnpike.Limits{USD: turnpike.USD("0.25"), OutputPerTurn: 50}, 24},
	} {
		m := turnpiketest.NewScript(t, "text Hi.\nusage 1 1\n")
		a := &turnpike.Agent{
			Model: m, Limits: c.limits,
			Rates: map[string]turnpike.Rate{"model": {Input: turnpike.USD("1000"), Output: turnpike.USD("10000")}},
		}
		if _, err := a.Run(t.Context(), turnpike.Text("go")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := m.Requests()[0].MaxTokens; got != c.want {
			t.Errorf("%s: the provider may write %d tokens, want %d", name, got, c.want)
		}
	}
}
