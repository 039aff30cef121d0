package turnpike_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/mcp"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func mustRun(t *testing.T, a *turnpike.Agent, opts ...turnpike.Option) *turnpike.Result {
	t.Helper()
	r, err := a.Run(t.Context(), turnpike.Text("go"), append(opts, turnpike.ShowTrace())...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A failed call is told to the model, and the effect of another one stays. // C09 C19
func TestAFailedToolIsToldToTheModel(t *testing.T) {
	effects := 0
	a := &turnpike.Agent{
		Model: turnpiketest.NewScript(t, "call c1 effect {}\ncall c2 weather {\"city\":\"Basel\"}\n\ntext Sorry.\n"),
		Tools: []tool.Tool{
			weather(), tool.Func("effect", "", func(context.Context, struct{}) (int, error) { effects++; return effects, nil }),
		},
	}
	r := mustRun(t, a)
	if got := calls(
		r,
	); r.Text != "Sorry." || effects != 1 || got[0].Result != "1" || !got[1].Error || got[1].Outcome != event.CallError ||
		!strings.Contains(got[1].Result, "there is no such city: Basel") {
		t.Errorf("%+v", r)
	}
}

type teapot struct{}

func (teapot) Error() string { return "short and stout" }
func (teapot) Status() int   { return 418 }

// The error has the cause, and the trace. // C10
func TestAFailedToolEndsTheRun(t *testing.T) {
	brew := tool.Func("brew", "", func(context.Context, struct{}) (string, error) { return "", fmt.Errorf("brew: %w", teapot{}) })
	both(t, func() *turnpike.Agent {
		return &turnpike.Agent{Model: turnpiketest.NewScript(t, "call c1 brew {}\n"), Tools: []tool.Tool{brew}, ToolErrors: turnpike.Abort}
	}, func(t *testing.T, err error) {
		var failed *turnpike.ToolError
		var cause teapot
		if !errors.As(err, &failed) || !errors.As(err, &cause) || failed.Status() != 418 || failed.Tool != "brew" ||
			failed.CallID != "c1" ||
			failed.Message != "brew: short and stout" {
			t.Fatalf("%#v", err)
		}
		if got := calls(failed.Result()); len(got) != 1 || !got[0].Error {
			t.Errorf("%+v", got)
		}
	})
}

func TestAnUnknownOutcomeUnderAbort(t *testing.T) {
	panics := tool.Func("panics", "", func(context.Context, struct{}) (string, error) { panic("midway") })
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, "call c1 panics {}\n"), Tools: []tool.Tool{panics}, ToolErrors: turnpike.Abort}
	_, err := a.Run(t.Context(), turnpike.Text("go"))
	var unknown *turnpike.UnknownOutcome
	if !errors.As(err, &unknown) || unknown.Error() != "tool panics: panic: midway; it may have been carried out" {
		t.Errorf("%#v", err)
	}
}

// A panic of a tool is logged with its stack. The model gets an error.
func TestAPanicOfAToolIsLogged(t *testing.T) {
	var log bytes.Buffer
	panics := tool.Func("panics", "", func(context.Context, struct{}) (string, error) { panic("midway") })
	a := &turnpike.Agent{
		Model: turnpiketest.NewScript(t, "call c1 panics {}\n\ntext x\n"), Tools: []tool.Tool{panics},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	mustRun(t, a)
	for _, want := range []string{"a tool has panicked", "tool=panics", "panic=midway", "TestAPanicOfAToolIsLogged"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not contain %q: %s", want, log.String())
		}
	}
}

// A model call that fails for good says how often it was made.
func TestAModelErrorSaysHowOftenTheModelWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := turnpiketest.Fail(503)
		a := &turnpike.Agent{Model: turnpiketest.Model(t, fail, fail, fail, fail)}
		_, err := a.Run(t.Context(), turnpike.Text("go"))
		if err == nil || !strings.HasPrefix(err.Error(), "the provider custom") || !strings.HasSuffix(err.Error(), "(tried 4 times)") {
			t.Error(err)
		}
	})
}

// What is wrong with an agent is said before its first run, with the remedy.
func TestMistakesInAnAgentNameTheRemedy(t *testing.T) {
	var log bytes.Buffer
	with := func(change func(*turnpike.Agent)) error {
		a := &turnpike.Agent{Model: turnpiketest.Model(t, turnpiketest.Say("x")), Log: slog.New(slog.NewTextHandler(&log, nil))}
		change(a)
		_, err := a.Run(t.Context(), turnpike.Text("go"))
		return err
	}
	down := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{})
	down.Close()
	server := func(url string) *mcp.Source {
		s := mcp.Server(url)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	for want, change := range map[string]func(*turnpike.Agent){
		"Agent.Output is no JSON object": func(a *turnpike.Agent) { a.Output = json.RawMessage("{") },
		"a source has the name program, which the agent's own tools": func(a *turnpike.Agent) {
			a.Sources = []tool.Source{labelled{turnpiketest.NewSource(), "program"}}
		},
		"(port); the port belongs to another protocol, such as 22": func(a *turnpike.Agent) {
			a.Sources = []tool.Source{server("http://127.0.0.1:22/mcp")}
		},
		"gone is required and not available: list tools: server": func(a *turnpike.Agent) {
			a.Sources = []tool.Source{server(down.URL).Named("gone").Required()}
			a.Outbound.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		},
	} {
		if err := with(change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	log.Reset()
	source := turnpiketest.NewSource(turnpiketest.Tool{Name: "now"})
	if err := with(func(a *turnpike.Agent) { a.Sources = []tool.Source{source} }); err != nil || log.Len() > 0 {
		t.Errorf("an agent without own tools: %v, %s", err, log.String())
	}
}

// Strict, lenient and no validation. // C07
func TestValidation(t *testing.T) {
	double := tool.Func("double", "", func(_ context.Context, in struct {
		N int `json:"n"`
	}) (int, error) {
		return 2 * in.N, nil
	})
	for validation, want := range map[turnpike.Validation]string{"": "Error", turnpike.Strict: "Error", turnpike.Lenient: "42", turnpike.NoValidation: "Error: invalid arguments"} {
		a := &turnpike.Agent{
			Model:      turnpiketest.NewScript(t, "call c1 double {\"n\":\"21\"}\n\ntext x\n"),
			Tools:      []tool.Tool{double},
			Validation: validation,
		}
		got := calls(mustRun(t, a))[0].Result
		if want == "Error" && !strings.Contains(got, "violations") || want != "Error" && !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s", validation, got)
		}
	}
}

// A result that has no JSON is a tool error. // C17
func TestAResultThatCannotBeEncoded(t *testing.T) {
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, "call c1 chan {}\n\ntext x\n"), Tools: []tool.Tool{
		tool.Func("chan", "", func(context.Context, struct{}) (any, error) { return make(chan int), nil }),
	}}
	if got := calls(mustRun(t, a))[0]; !got.Error || !strings.Contains(got.Result, "cannot be encoded as JSON") {
		t.Errorf("%+v", got)
	}
}

// A long result is cut at a whole character, and the marker has its size.
func TestALongResultIsCut(t *testing.T) {
	long := strings.Repeat("龍", 10<<20/3)
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, "call c1 book {}\n\ntext x\n"), Tools: []tool.Tool{
		tool.Func("book", "", func(context.Context, struct{}) (string, error) { return long, nil }),
	}}
	got := calls(mustRun(t, a))[0].Result
	marker := fmt.Sprintf("\n…[truncated; full result is %d bytes]", len(long))
	if !utf8.ValidString(got) || len(got) > 65_536 || len(got) < 65_536-2 || !strings.HasSuffix(got, marker) ||
		strings.Trim(strings.TrimSuffix(got, marker), "龍") != "" {
		t.Errorf("%d bytes: … %q", len(got), got[len(got)-100:])
	}
}

// Ten calls of one turn at the same time, or one after the other; the trace has their order. // C01 C02
func TestCallsOfOneTurn(t *testing.T) {
	var story strings.Builder
	for i := range 10 {
		fmt.Fprintf(&story, "call c%d wait {\"n\":%d}\n", i, i)
	}
	story.WriteString("\ntext x\n")
	for _, c := range []struct {
		name   string
		of     turnpike.Parallelism
		serial bool
		want   time.Duration
	}{{"parallel", "", false, 100 * time.Millisecond}, {"serial", turnpike.Serial, false, time.Second}, {"a serial tool", "", true, time.Second}, {"safe", turnpike.Safe, false, time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now, peak atomic.Int32
				wait := tool.Func("wait", "", func(_ context.Context, in struct {
					N int `json:"n"`
				}) (int, error) {
					peak.Store(max(peak.Load(), now.Add(1)))
					time.Sleep(100 * time.Millisecond)
					now.Add(-1)
					return in.N, nil
				})
				if c.serial {
					wait.Serial()
				}
				a := &turnpike.Agent{Model: turnpiketest.NewScript(t, story.String()), Tools: []tool.Tool{wait}, Parallelism: c.of}
				begin := time.Now()
				r := mustRun(t, a)
				if took := time.Since(begin); took != c.want || (peak.Load() == 1) != (c.want == time.Second) {
					t.Errorf("took %v, %d at a time", took, peak.Load())
				}
				for i, step := range calls(r) {
					if step.Result != fmt.Sprint(i) {
						t.Errorf("step %d: %+v", i, step)
					}
				}
			})
		})
	}
}

// The model sees what the caller may use and wants, and each call is checked. // C20 C21 K10
func TestWhoMayUseWhat(t *testing.T) {
	var caller tool.Call
	tools := []tool.Tool{weather(), tool.Func("delete", "", func(ctx context.Context, _ struct{}) (string, error) {
		caller = tool.From(ctx)
		return "gone", nil
	})}
	offered := func(s *turnpiketest.Script) (names []string) {
		for _, t := range s.Requests()[0].Tools {
			names = append(names, t.Name)
		}
		return names
	}
	ada := turnpike.Caller{ID: "ada", Permissions: []string{"weather"}}
	for _, c := range []struct {
		name string
		opts []turnpike.Option
		want []string
	}{
		{"the program", nil, []string{"delete", "weather"}},
		{"a caller", []turnpike.Option{turnpike.As(ada)}, []string{"weather"}},
		{"a caller of all", []turnpike.Option{turnpike.As(turnpike.Caller{ID: "root", Permissions: []string{"*"}})}, []string{"delete", "weather"}},
		{"a caller of nothing", []turnpike.Option{turnpike.As(turnpike.Caller{ID: "eve"})}, nil},
		{"one tool", []turnpike.Option{turnpike.Only("delete")}, []string{"delete"}},
		{"a caller and one tool", []turnpike.Option{turnpike.As(ada), turnpike.Only("delete")}, nil},
		{"no tool", []turnpike.Option{turnpike.Only()}, nil},
	} {
		script := turnpiketest.NewScript(t, "call c1 delete {}\n\ntext x\n")
		r := mustRun(t, &turnpike.Agent{Model: script, Tools: tools}, c.opts...)
		if got := offered(script); !slices.Equal(got, c.want) {
			t.Errorf("%s: offered %q, want %q", c.name, got, c.want)
		}
		if got := calls(r)[0]; (got.Result == "gone") != slices.Contains(c.want, "delete") {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if caller.Caller.ID != "program" || caller.RunID == "" || caller.Key != "0.0" || caller.Attempt != 1 || caller.IdempotencyKey == "" {
		t.Errorf("%+v", caller)
	}
	_, err := (&turnpike.Agent{Model: turnpiketest.NewScript(t, "text x\n"), Tools: tools}).Run(
		t.Context(),
		turnpike.Text("go"),
		turnpike.Only("wether"),
	) // C15
	var wrong *turnpike.ValidationError
	if !errors.As(err, &wrong) || wrong.Status() != 400 || !strings.Contains(err.Error(), "wether") {
		t.Error(err)
	}
}

func TestWrongAgents(t *testing.T) {
	ok := func() *turnpiketest.Script { return turnpiketest.NewScript(t, "text x\n") }
	for name, a := range map[string]*turnpike.Agent{
		"no model":                      {},
		"two tools":                     {Model: ok(), Tools: []tool.Tool{weather(), weather()}},
		"a nil tool":                    {Model: ok(), Tools: []tool.Tool{nil}},
		"no handler":                    {Model: ok(), Tools: []tool.Tool{tool.Raw("x", "", json.RawMessage(`{"type":"object"}`), nil)}},
		"a wrong schema":                {Model: ok(), Tools: []tool.Tool{weather().Schema("{")}},
		"a wrong mode":                  {Model: ok(), Parallelism: "sequential"},
		"too many rounds":               {Model: ok(), Limits: turnpike.Limits{Rounds: 1001}},
		"a negative size":               {Model: ok(), ResultMaxBytes: -1},
		"a wrong rate":                  {Model: ok(), Rates: map[string]turnpike.Rate{"m": {Input: turnpike.USD("2000000")}}},
		"two sources alike":             {Model: ok(), Sources: []tool.Source{mcp.Command("true"), mcp.Command("true")}},
		"a program that does not exist": {Model: ok(), Sources: []tool.Source{mcp.Command("does-not-exist")}},
	} {
		var wrong *turnpike.ValidationError
		if _, err := a.Run(t.Context(), turnpike.Text("go")); !errors.As(err, &wrong) || wrong.Result() != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, source := range a.Sources {
			_ = source.(*mcp.Source).Close()
		}
	}
	a := &turnpike.Agent{Model: ok()}
	if _, err := a.Run(t.Context(), turnpike.Input{}); err == nil {
		t.Error("an empty input")
	}
	if _, err := a.Start(t.Context(), turnpike.Text("go")); err == nil {
		t.Error("a start without a store")
	}
	if _, err := a.Resume(t.Context(), "run_x").Result(); !errors.As(err, new(*turnpike.ResumeError)) {
		t.Error(err)
	}
}

// An MCP server on this machine is refused, unless the agent allows it. D26 is about the other side.
func TestAnMCPServer(t *testing.T) {
	server := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "now", Result: "noon"})
	defer server.Close()
	source := mcp.Server(server.URL).Named("clock").Header("X-Token", "secret")
	defer func() { _ = source.Close() }()
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, "call c1 now {}\n\ntext x\n"), Sources: []tool.Source{source}}
	_, err := a.Run(t.Context(), turnpike.Text("go"))
	var blocked *turnpike.BlockedError
	if !errors.As(err, &blocked) || blocked.Reason != "loopback" || blocked.Server != "clock" || server.Requests() != 0 {
		t.Errorf("%#v", err)
	}
	a = &turnpike.Agent{
		Model: turnpiketest.NewScript(t, "call c1 now {}\n\ntext x\n"), Sources: []tool.Source{source},
		Outbound:      turnpike.Outbound{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		NeedsApproval: func(name string, _ json.RawMessage) bool { return name == "now" },
	}
	_, err = a.Run(t.Context(), turnpike.Text("go"), turnpike.Only("now"))
	var waiting *turnpike.Waiting
	if !errors.As(err, &waiting) {
		t.Fatal(err)
	}
	r, err := a.Resume(t.Context(), waiting.RunID, turnpike.Approve(waiting.Approvals[0].ID)).Result()
	if err != nil || calls(r)[0].Result != "noon" || server.Headers("tools/call")[0].Get("X-Token") != "secret" {
		t.Errorf("%+v, %v", r, err)
	}
	gone := mcp.Command("false").Named("gone").Required()
	defer func() { _ = gone.Close() }()
	a = &turnpike.Agent{Model: turnpiketest.NewScript(t, "text x\n"), Sources: []tool.Source{gone}}
	var down *turnpike.ServerError
	if _, err := a.Run(t.Context(), turnpike.Text("go")); !errors.As(err, &down) || down.Server != "gone" || down.Status() != 503 {
		t.Errorf("%#v", err)
	}
}

// The calls come back, and the caller goes on with their results. // A10
func TestGenerate(t *testing.T) {
	script := turnpiketest.NewScript(t, "text Let me see.\ncall c1 weather {\"city\":\"Bern\"}\nusage 10 5\n\ntext Sunny.\n")
	in := turnpike.Text("Is it warm in Bern?")
	r, err := turnpike.Generate(t.Context(), script, in, turnpike.Tools(weather()))
	if err != nil || len(r.Calls) != 1 || r.Calls[0].Name != "weather" || r.Calls[0].Arguments != `{"city":"Bern"}` ||
		r.Reason != "tool_calls" ||
		r.Usage.Input != 10 {
		t.Fatalf("%+v, %v", r, err)
	}
	r, err = turnpike.Generate(
		t.Context(),
		script,
		in.And(turnpike.Items(r.Items...)).And(turnpike.Items(item.NewResult("c1", "sunny", false))),
	)
	if err != nil || r.Text != "Sunny." || r.Calls != nil {
		t.Errorf("%+v, %v", r, err)
	}
	script = turnpiketest.NewScript(t, story)
	if r, err := turnpike.Generate(
		t.Context(),
		script,
		in,
		turnpike.Tools(weather()),
		turnpike.Mode(turnpike.Auto),
	); err != nil ||
		r.Text != "It is sunny." {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := turnpike.Generate(
		t.Context(),
		turnpiketest.NewScript(t, "fail 503 overloaded\n"),
		in,
	); !errors.As(
		err,
		new(*turnpike.ModelError),
	) {
		t.Error(err)
	}
}

func TestInto(t *testing.T) {
	type report struct {
		City    string `json:"city"`
		Celsius int    `json:"celsius"`
	}
	script := turnpiketest.NewScript(t, "text {\"city\":\"Bern\",\"celsius\":21}\n\ntext No idea.\n")
	a := &turnpike.Agent{Model: script}
	got, r, err := turnpike.Into[report](t.Context(), a, turnpike.Text("go"))
	if err != nil || got != (report{"Bern", 21}) || r.RunID == "" || script.Requests()[0].Options.Format.Type != "json_schema" {
		t.Errorf("%+v, %v", got, err)
	}
	_, r, err = turnpike.Into[report](t.Context(), a, turnpike.Text("go"))
	var wrong *turnpike.ValidationError
	if !errors.As(err, &wrong) || wrong.Status() != http.StatusBadGateway || r.Text != "No idea." {
		t.Errorf("%v", err)
	}
}

// A stream that breaks off after a complete call: the call is executed. // G07
func TestABrokenStreamWithACompleteCall(t *testing.T) {
	a := &turnpike.Agent{
		Model: turnpiketest.NewScript(t, "call c1 weather {\"city\":\"Bern\"}\ncall c2 weather {\ncut\n\ntext Sunny.\n"),
		Tools: []tool.Tool{weather()},
	}
	if r := mustRun(t, a); r.Text != "Sunny." || calls(r)[0].Result == "" {
		t.Errorf("%+v", r)
	}
}

func TestOtherEnds(t *testing.T) {
	for story, want := range map[string]turnpike.Reason{"text Half\nstop length\n": turnpike.ReasonLength, "refusal No.\nstop content_filter\n": turnpike.ReasonContentFilter} {
		if r := mustRun(t, &turnpike.Agent{Model: turnpiketest.NewScript(t, story)}); r.Reason != want {
			t.Errorf("%+v", r)
		}
	}
	var failed *turnpike.ModelError
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, "fail 401 no such key\n")}
	if _, err := a.Run(t.Context(), turnpike.Text("go")); !errors.As(err, &failed) || failed.Result() == nil {
		t.Errorf("%#v", err)
	}
	var long *turnpike.ContextError
	a = &turnpike.Agent{Model: turnpiketest.NewScript(t, "fail 400 maximum context length is 10\n")}
	if _, err := a.Run(t.Context(), turnpike.Text("go")); !errors.As(err, &long) {
		t.Errorf("%#v", err)
	}
	repeat := turnpiketest.NewScript(t, "call c weather {\"city\":\"Bern\"}\nagain\n")
	var loops *turnpike.ProgressError
	if _, err := (&turnpike.Agent{Model: repeat, Tools: []tool.Tool{weather()}}).Run(
		t.Context(),
		turnpike.Text("go"),
	); !errors.As(err, &loops) ||
		len(calls(loops.Result())) == 0 {
		t.Errorf("%#v", err)
	}
}

// log is a Conversation.
type log struct {
	mu    sync.Mutex
	turns []turnpike.Turn
	fail  int // from this turn on; 0 = never
}

func (l *log) Append(_ context.Context, turn turnpike.Turn) error {
	if l.fail > 0 && turn.Number >= l.fail {
		return errors.New("the disk is full")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turns = append(l.turns, turn)
	return nil
}

func (l *log) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.turns)
}

func (l *log) String() string {
	var b strings.Builder
	for _, turn := range l.turns {
		fmt.Fprintf(&b, "%d %s:", turn.Number, turn.Role)
		for _, it := range turn.Items {
			fmt.Fprintf(&b, " %s%s", it.Name, it.Text())
		}
		b.WriteString("; ")
	}
	return b.String()
}

// The turns in their order. // J14
func TestAConversation(t *testing.T) {
	newAgent := func(l *log) *turnpike.Agent {
		return &turnpike.Agent{
			Model:        turnpiketest.NewScript(t, story),
			Tools:        []tool.Tool{weather()},
			Instructions: "Be short.",
			Conversation: l,
		}
	}
	l := &log{}
	history := turnpike.Items(
		item.NewText(item.User, "Hi"),
		item.Item{Kind: item.Message, Role: item.Assistant, Turn: 1, Parts: []item.Part{{Kind: item.Text, Text: "Hello"}}},
	)
	if _, err := newAgent(l).Run(t.Context(), history.And(turnpike.Text("Warm?"))); err != nil {
		t.Fatal(err)
	}
	if got := l.String(); got != "0 user: Hi Hello Warm?; 1 assistant: Let me see. weather; 2 tool: weathersunny, 21 °C; 3 assistant: It is sunny.; " {
		t.Error(got)
	}
	l = &log{}
	if _, err := newAgent(
		l,
	).Run(t.Context(), turnpike.Text("Warm?"), turnpike.SkipInput()); err != nil || len(l.turns) != 3 ||
		l.turns[0].Number != 1 {
		t.Errorf("%s, %v", l, err)
	}
	for at := 1; at <= 3; at++ {
		var lost *turnpike.LostError
		a := newAgent(&log{fail: at})
		a.Limits.USD = turnpike.USD("1")
		a.Rates = map[string]turnpike.Rate{"model": {Input: turnpike.USD("2"), Output: turnpike.USD("10")}}
		_, err := a.Run(t.Context(), turnpike.Text("Warm?"))
		if !errors.As(err, &lost) || lost.Result() == nil || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("turn %d fails: %v", at, err)
		}
		if cost := lost.Result().Cost; cost.Nano() > turnpike.USD("0.001").Nano() {
			t.Errorf("turn %d fails before the model is asked, and the run has cost %s", at, cost)
		}
	}
}

type silent struct{}

func (silent) List(context.Context) ([]tool.Tool, error) { return nil, errors.New("no answer") }

func TestAServerThatIsLeftOutIsNamed(t *testing.T) {
	if r := mustRun(
		t,
		&turnpike.Agent{Model: turnpiketest.NewScript(t, "text x\n"), Sources: []tool.Source{silent{}}},
	); !slices.Equal(
		r.Missing,
		[]string{"source1"},
	) {
		t.Errorf("%+v", r)
	}
}

func TestAnInputOfParts(t *testing.T) {
	m := turnpiketest.NewScript(t, "text A cat.\n")
	a := &turnpike.Agent{Model: m}
	r, err := a.Run(t.Context(), turnpike.Parts(item.TextPart("What is it?"), item.ImageData("image/png", []byte("PNG"))))
	if got := m.Requests()[0].Items[0].Parts; err != nil || r.Text != "A cat." || len(got) != 2 || got[1].Data != "UE5H" ||
		got[1].MIMEType != "image/png" {
		t.Errorf("%+v, %v", got, err)
	}
	var invalid *turnpike.ValidationError
	in := turnpike.Text("x").And(turnpike.Items(item.NewText(item.User, "y"), item.Item{Kind: "mesage"}))
	if _, err := a.Run(t.Context(), in); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "item 1 of the input") {
		t.Error(err)
	}
}
