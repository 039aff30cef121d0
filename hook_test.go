package turnpike_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// wire pays, and says what it was called with.
func wire() *tool.Function[wireOf] {
	return tool.Func("wire", "", func(_ context.Context, in wireOf) (string, error) {
		if in.Cents == 13 {
			return "", errors.New("no luck")
		}
		return "sent " + in.To, nil
	})
}

type wireOf struct {
	To    string `json:"to"`
	Cents int    `json:"cents"`
}

// hooked runs an agent with these hooks whose model wires once, and returns the call.
func hooked(t *testing.T, h turnpike.Hooks, cents int) turnpike.StepCall {
	t.Helper()
	m := turnpiketest.Model(t, turnpiketest.Call("wire", wireOf{"ada", cents}), turnpiketest.Say("Done."))
	r := mustRun(t, &turnpike.Agent{Model: m, Tools: []tool.Tool{wire()}, Hooks: h})
	if r.Text != "Done." {
		t.Errorf("the run has the text %q", r.Text)
	}
	return calls(r)[0]
}

// A function before a tool allows, denies and replaces arguments, and fails closed. // H15 H19 H21
func TestHooksBeforeTools(t *testing.T) {
	arguments := func(text string) func(context.Context, turnpike.HookCall) (json.RawMessage, error) {
		return func(context.Context, turnpike.HookCall) (json.RawMessage, error) { return json.RawMessage(text), nil }
	}
	for name, c := range map[string]struct {
		hook func(context.Context, turnpike.HookCall) (json.RawMessage, error)
		want string
	}{
		"allows": {func(_ context.Context, c turnpike.HookCall) (json.RawMessage, error) {
			if c.Tool != "wire" || string(c.Arguments) != `{"to":"ada","cents":5}` || c.RunID == "" || c.Caller.ID != "program" || !c.Caller.May("wire") {
				t.Errorf("the hook gets %+v", c)
			}
			copy(c.Arguments, `{"to":"eve"`) // is its own copy
			return nil, nil
		}, "sent ada"},
		"denies": {func(context.Context, turnpike.HookCall) (json.RawMessage, error) {
			return nil, &turnpike.DenyError{Message: "not to ada"}
		}, "Error: Blocked by hook — not to ada"},
		"replaces":              {arguments(`{"to":"bob","cents":1}`), "sent bob"},
		"replaces with invalid": {arguments(`{"to":7}`), "a hook has changed the arguments, and the changed ones are not valid"},
		"replaces with {}":      {arguments(`{}`), "a hook has changed the arguments, and the changed ones are not valid"},
		"replaces with no JSON": {arguments(`{`), "a hook has changed the arguments, and the changed ones are not valid"},
		"fails": {func(context.Context, turnpike.HookCall) (json.RawMessage, error) {
			return nil, errors.New("password")
		}, "Error: Blocked by hook — a check that is required has failed"},
		"panics": {func(context.Context, turnpike.HookCall) (json.RawMessage, error) { panic("password") },
			"Error: Blocked by hook — a check that is required has failed"},
		"is late": {func(ctx context.Context, _ turnpike.HookCall) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, nil
		}, "Error: Blocked by hook — a check that is required has failed"},
	} {
		t.Run(name, func(t *testing.T) {
			h := turnpike.Hooks{PreTool: c.hook}
			if name == "is late" {
				h.Timeout = time.Nanosecond
			}
			if got := hooked(t, h, 5); !strings.Contains(got.Result, c.want) || strings.Contains(got.Result, "password") {
				t.Errorf("the model gets %q, want %q", got.Result, c.want)
			}
		})
	}
}

// A call that a hook denies is told to the model, also under Abort: no tool has failed.
func TestADeniedCallDoesNotAbort(t *testing.T) {
	m := turnpiketest.Model(t, turnpiketest.Call("wire", wireOf{"ada", 5}), turnpiketest.Say("Done."))
	a := &turnpike.Agent{Model: m, Tools: []tool.Tool{wire()}, ToolErrors: turnpike.Abort, Hooks: turnpike.Hooks{
		PreTool: func(context.Context, turnpike.HookCall) (json.RawMessage, error) {
			return nil, &turnpike.DenyError{Message: "no"}
		},
	}}
	if r := mustRun(t, a); r.Text != "Done." || !calls(r)[0].Error || calls(r)[0].Outcome != event.CallDenied || r.SideEffects {
		t.Errorf("%+v", r)
	}
}

// A function after a tool replaces the result, also with "", and withholds it if it fails. // H15 H21
func TestHooksAfterTools(t *testing.T) {
	says := func(text string, err error) func(context.Context, turnpike.HookCall, string) (string, error) {
		return func(context.Context, turnpike.HookCall, string) (string, error) { return text, err }
	}
	const withheld = "Error: the result is withheld: "
	for name, c := range map[string]struct {
		hook  func(context.Context, turnpike.HookCall, string) (string, error)
		cents int
		want  string
	}{
		"leaves it": {func(_ context.Context, c turnpike.HookCall, result string) (string, error) {
			if c.Tool != "wire" || string(c.Arguments) != `{"to":"ada","cents":5}` || c.RunID == "" {
				t.Errorf("the hook gets %+v", c)
			}
			return result, nil
		}, 5, "sent ada"},
		"replaces it": {says("[redacted]", nil), 5, "[redacted]"},
		"empties it":  {says("", nil), 5, ""},
		"denies":      {says("x", &turnpike.DenyError{Message: "secret"}), 5, withheld + "secret"},
		"fails":       {says("x", errors.New("password")), 5, withheld + "a check that is required has failed"},
		"panics":      {func(context.Context, turnpike.HookCall, string) (string, error) { panic("password") }, 5, withheld + "a check that is required has failed"},
		"sees an error": {func(_ context.Context, _ turnpike.HookCall, result string) (string, error) {
			return strings.ToUpper(result), nil
		}, 13, "ERROR: NO LUCK"},
		"leaves the error": {func(_ context.Context, _ turnpike.HookCall, result string) (string, error) { return result, nil }, 13, "Error: no luck"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hooked(t, turnpike.Hooks{PostTool: c.hook}, c.cents); got.Result != c.want || got.Error != (c.cents == 13) {
				t.Errorf("the model gets %q (error %v), want %q", got.Result, got.Error, c.want)
			}
		})
	}
}

// A function before the answer leaves it, replaces it, also with "", and denies it. A stream has what
// is left, and the next run of the session reads it. // H15 H19 H21
func TestHooksBeforeTheAnswer(t *testing.T) {
	says := func(text string, err error) func(context.Context, turnpike.HookRun, string) (string, error) {
		return func(context.Context, turnpike.HookRun, string) (string, error) { return text, err }
	}
	for name, c := range map[string]struct {
		hook   func(context.Context, turnpike.HookRun, string) (string, error)
		want   string
		denied string
	}{
		"leaves it": {func(_ context.Context, r turnpike.HookRun, answer string) (string, error) {
			if r.RunID == "" || r.Session != "s" || r.Caller.ID != "program" {
				t.Errorf("the hook gets %+v", r)
			}
			return answer, nil
		}, "The code is 7.", ""},
		"replaces it": {says("No codes.", nil), "No codes.", ""},
		"empties it":  {says("", nil), "", ""},
		"denies it":   {says("x", &turnpike.DenyError{Message: "no codes"}), "[Response blocked: no codes]", "no codes"},
		"fails":       {says("x", errors.New("password")), "[Response blocked: a check that is required has failed]", "a check that is required has failed"},
		"panics": {func(context.Context, turnpike.HookRun, string) (string, error) { panic("password") },
			"[Response blocked: a check that is required has failed]", "a check that is required has failed"},
	} {
		t.Run(name, func(t *testing.T) {
			m := turnpiketest.Model(t, turnpiketest.Turn(turnpiketest.Say("Let me see."), turnpiketest.Call("weather", city{"Bern"})), turnpiketest.Say("The code is 7."), turnpiketest.Say("Bye."))
			a := &turnpike.Agent{Model: m, Tools: []tool.Tool{weather()}, Hooks: turnpike.Hooks{PreAnswer: c.hook}}
			chat := a.Session("s")
			s := chat.Stream(t.Context(), turnpike.Text("go"))
			var told strings.Builder
			for text, err := range s.Text() {
				if err == nil {
					told.WriteString(text)
				}
			}
			r, err := s.Result()
			var denied *turnpike.HookError
			if errors.As(err, &denied) != (c.denied != "") || denied != nil && (denied.Message != c.denied || denied.Status() != 403) || denied == nil && err != nil {
				t.Fatalf("%v", err)
			}
			if denied != nil {
				r = denied.Result()
			}
			if r.Text != c.want || told.String() != c.want || r.Items[len(r.Items)-1].Text() != c.want {
				t.Errorf("the answer is %q, and %q was told; want %q", r.Text, told.String(), c.want)
			}
			_, _ = chat.Run(t.Context(), turnpike.Text("bye"))
			if got, want := prompt(m.Requests()[2].Items), "; assistant "+c.want+"; user bye"; !strings.HasSuffix(got, want) {
				t.Errorf("the next run reads %q, want %q", got, want)
			}
		})
	}
}

// An answer that a hook has not decided on is neither told nor in the result, nor in the session.
func TestAnAnswerWithoutADecision(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := turnpiketest.Model(t, turnpiketest.Say("The code is 7."), turnpiketest.Say("Bye."))
	first := true
	a := &turnpike.Agent{Model: m, Hooks: turnpike.Hooks{PreAnswer: func(ctx context.Context, _ turnpike.HookRun, answer string) (string, error) {
		if first {
			first = false
			cancel()
			<-ctx.Done()
		}
		return answer, ctx.Err()
	}}}
	chat := a.Session("s")
	s := chat.Stream(ctx, turnpike.Text("go"))
	for text, err := range s.Text() {
		if err == nil {
			t.Errorf("it told %q", text)
		}
	}
	var abort *turnpike.AbortError
	if _, err := s.Result(); !errors.As(err, &abort) || abort.Result().Text != "" || len(abort.Result().Items) != 0 {
		t.Errorf("%v", err)
	}
	if r, err := chat.Run(t.Context(), turnpike.Text("bye")); err != nil || r.Text != "Bye." || prompt(m.Requests()[1].Items) != "user bye" {
		t.Errorf("%+v, %v; the next run reads %q", r, err, prompt(m.Requests()[1].Items))
	}
}

// The context of a hook ends with that of the run.
func TestAHookOfACancelledRun(t *testing.T) {
	var cancel context.CancelFunc // of the run in progress
	for name, h := range map[string]turnpike.Hooks{
		"before": {PreTool: func(ctx context.Context, _ turnpike.HookCall) (json.RawMessage, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"after": {PostTool: func(ctx context.Context, _ turnpike.HookCall, _ string) (string, error) {
			cancel()
			<-ctx.Done()
			return "", ctx.Err()
		}},
	} {
		var ctx context.Context
		ctx, cancel = context.WithCancel(t.Context())
		m := turnpiketest.Model(t, turnpiketest.Call("wire", wireOf{"ada", 5}), turnpiketest.Say("Done."))
		h.Timeout = time.Hour
		_, err := (&turnpike.Agent{Model: m, Tools: []tool.Tool{wire()}, Hooks: h}).Run(ctx, turnpike.Text("go"))
		var abort *turnpike.AbortError
		if !errors.As(err, &abort) || len(m.Requests()) != 1 {
			t.Errorf("%s: %v after %d model calls", name, err, len(m.Requests()))
		}
		cancel()
	}
}

func TestHooksThatAreRefused(t *testing.T) {
	a := &turnpike.Agent{Model: turnpiketest.Model(t), Hooks: turnpike.Hooks{Timeout: -1}}
	var invalid *turnpike.ValidationError
	if _, err := a.Run(t.Context(), turnpike.Text("go")); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "Hooks.Timeout") {
		t.Errorf("%v", err)
	}
	guarded := &turnpike.Agent{Model: turnpiketest.Model(t), Hooks: turnpike.Hooks{PreAnswer: func(_ context.Context, _ turnpike.HookRun, answer string) (string, error) { return answer, nil }}}
	if _, err := guarded.Run(t.Context(), turnpike.Text("go"), turnpike.Mode(turnpike.Return)); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "PreAnswer") {
		t.Errorf("%v", err)
	}
}

// What a hook has decided about an answer holds after a restart, and for another agent. // H12
func TestAnAnswerAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	m := turnpiketest.Model(t, turnpiketest.Say("The code is 7."), turnpiketest.Say("The code is 8."))
	asked := 0
	hooks := turnpike.Hooks{PreAnswer: func(_ context.Context, _ turnpike.HookRun, answer string) (string, error) {
		if asked++; asked == 2 {
			return "", &turnpike.DenyError{Message: "no codes"}
		}
		return strings.ReplaceAll(answer, "7", "*"), nil
	}}
	a := &turnpike.Agent{Model: m, Store: store, Hooks: hooks}
	r, err := a.Run(t.Context(), turnpike.Text("go"))
	if err != nil || r.Text != "The code is *." {
		t.Fatalf("%+v, %v", r, err)
	}
	var denied *turnpike.HookError
	if _, err := a.Run(t.Context(), turnpike.Text("go")); !errors.As(err, &denied) {
		t.Fatal(err)
	}
	store = reopen(t, store, path)
	a = &turnpike.Agent{Model: m, Store: store}
	if again, err := a.Resume(t.Context(), r.RunID).Result(); err != nil || again.Text != "The code is *." {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := a.Resume(t.Context(), denied.Result().RunID).Result(); !errors.As(err, &denied) || denied.Message != "no codes" || asked != 2 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

// A hook that has decided is not asked again after a restart, and what it changed is what was approved. An
// agent without the hooks of the run executes nothing. // H12
func TestHooksAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	var before, after int
	hooks := turnpike.Hooks{
		PreTool: func(_ context.Context, c turnpike.HookCall) (json.RawMessage, error) {
			before++
			if c.Session != "s" || c.Caller.ID != "ada" {
				t.Errorf("the hook gets %+v", c)
			}
			return json.RawMessage(`{"to":"bob","cents":1}`), nil
		},
		PostTool: func(_ context.Context, c turnpike.HookCall, result string) (string, error) {
			after++
			if c.Session != "s" || c.Caller.ID != "ada" || string(c.Arguments) != `{"to":"bob","cents":1}` {
				t.Errorf("the hook gets %+v", c)
			}
			return result + "!", nil
		},
	}
	m := turnpiketest.Model(t, turnpiketest.Call("wire", wireOf{"eve", 5}), turnpiketest.Say("Done."), turnpiketest.Call("wire", wireOf{"eve", 5}), turnpiketest.Say("Sorry."))
	agent := func(h turnpike.Hooks) *turnpike.Agent {
		return &turnpike.Agent{Model: m, Store: store, Hooks: h, Tools: []tool.Tool{wire().ApproveIf(func(wireOf) bool { return true })}}
	}
	ada := turnpike.As(turnpike.Caller{ID: "ada", Permissions: []string{"wire"}})
	wait := func() *turnpike.Waiting {
		t.Helper()
		_, err := agent(hooks).Session("s").Run(t.Context(), turnpike.Text("pay"), ada)
		var waiting *turnpike.Waiting
		if !errors.As(err, &waiting) || len(waiting.Approvals) != 1 || string(waiting.Approvals[0].Arguments) != `{"to":"bob","cents":1}` {
			t.Fatalf("%v", err)
		}
		store = reopen(t, store, path)
		return waiting
	}
	w := wait()
	r, err := agent(hooks).Resume(t.Context(), w.RunID, turnpike.Approve(w.Approvals[0].ID)).Result()
	if err != nil || calls(r)[0].Result != "sent bob!" || before != 1 || after != 1 {
		t.Errorf("%+v, %v; asked %d and %d times", r, err, before, after)
	}
	w = wait()
	r, err = agent(turnpike.Hooks{}).Resume(t.Context(), w.RunID, turnpike.Approve(w.Approvals[0].ID)).Result()
	if err != nil || !strings.Contains(calls(r)[0].Result, "the result is withheld") || before != 2 || after != 1 {
		t.Errorf("%+v, %v; asked %d and %d times", r, err, before, after)
	}
}

// A Resume of a run that is in progress is refused and takes nothing from it: its hooks know its caller.
func TestTheHooksOfARunThatSomebodyResumes(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	entered, leave := make(chan struct{}), make(chan struct{})
	var caller turnpike.Caller
	m := turnpiketest.Model(t, turnpiketest.Call("gate", nil), turnpiketest.Say("Done."))
	a := &turnpike.Agent{Model: m, Store: store, Tools: []tool.Tool{
		tool.Func("gate", "", func(context.Context, struct{}) (string, error) { close(entered); <-leave; return "open", nil }),
	}, Hooks: turnpike.Hooks{PostTool: func(_ context.Context, c turnpike.HookCall, result string) (string, error) {
		caller = c.Caller
		return result, nil
	}}}
	id, err := a.Start(t.Context(), turnpike.Text("go"), turnpike.As(turnpike.Caller{ID: "ada", Permissions: []string{"gate"}}))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	var busy *turnpike.ResumeError
	if _, err := a.Resume(t.Context(), id).Result(); !errors.As(err, &busy) {
		t.Errorf("in progress: %v", err)
	}
	close(leave)
	if r, err := a.Follow(t.Context(), id, event.Position{}).Result(); err != nil || r.Text != "Done." {
		t.Fatalf("%+v, %v", r, err)
	}
	if caller.ID != "ada" || !caller.May("gate") {
		t.Errorf("the hook gets the caller %+v", caller)
	}
}
