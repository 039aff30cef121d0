package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// An agent has 25 steps, or what it or the request says, and at most as many as its org sets. The last one has no tools. // B12
func TestTheLastStepOfAnAgentHasNoTools(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	for _, c := range []struct {
		settings, body, runtime string
		steps                   int
	}{
		{"", "", "", 25},
		{`,"settings":{"max_steps":3}`, "", "", 3},
		{`,"settings":{"max_steps":3}`, `,"max_steps":2`, "", 2},
		{"", `,"max_steps":50`, "", 50},
		{"", `,"max_steps":1`, "", 1},
		{"", `,"max_steps":50`, "max_rounds: 3", 3},
		{"", `,"max_steps":2`, "max_rounds: 3", 2},
	} {
		up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, r Received) {
			if hasTools(r) {
				Asks(Use("mcp__tools__echo", fmt.Sprintf(`{"n":%d}`, r.Number))).Write(w)
				return
			}
			Says("Enough.").Write(w)
		})
		d := Manage(MustRun(t, Site{Upstream: up.URL, Runtime: c.runtime}.Yaml()))
		all := AgentFrames(t, d.StreamAgent(d.NewAgent(c.settings+WithTools(tools)), `{"message":"go"`+c.body+`}`).Body)
		asked := up.Requests()
		for i, r := range asked {
			if last := i == c.steps-1; hasTools(r) == last {
				t.Errorf("%+v: request %d offers tools: %v", c, i, hasTools(r))
			}
		}
		if end := all[len(all)-1]; len(asked) != c.steps || end["status"] != "completed" || end["content"] != "Enough." || end["steps"] != float64(c.steps) {
			t.Errorf("%+v: %d model calls, and the end is %v", c, len(asked), end)
		}
	}
}

// A call of the last step, which was offered no tools, is answered and not executed: nobody would read its result.
func TestACallThatWasNotOfferedIsNotExecuted(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, r Received) {
		Asks(Use("mcp__tools__echo", fmt.Sprintf(`{"n":%d}`, r.Number))).Write(w)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	all := AgentFrames(t, d.StreamAgent(d.NewAgent(WithTools(tools)), `{"message":"go","max_steps":2}`).Body)
	if end := all[len(all)-1]; len(tools.Of("tools/call")) != 1 || end["status"] != "completed" || !strings.Contains(fmt.Sprint(end["tool_calls"]), "was offered no tools") {
		t.Errorf("%d calls, and the end is %v", len(tools.Of("tools/call")), end)
	}
}

// The org's doom_threshold holds for its agents, and the error says what was repeated. // B13
func TestTheDoomLoopOfAnAgent(t *testing.T) {
	NoLeaks(t)
	for runtime, c := range map[string]struct {
		argument, want string
		fails          bool
		calls          int
	}{
		"":                  {`{"n":1}`, "3 identical tool calls in a row", false, 2},
		"doom_threshold: 5": {`{"n":1}`, "5 identical tool calls in a row", false, 4},
		"doom_failures: 4":  {`{"n":%d}`, "5 calls of one tool since it last succeeded", true, 4},
	} {
		tools := NewMCP(t, map[string]Handler{"echo": func(ctx context.Context, text string) (string, error) {
			if c.fails {
				return "", fmt.Errorf("out of paper after %s", text)
			}
			return Echo(ctx, text)
		}})
		up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, r Received) {
			Asks(Use("mcp__tools__echo", strings.ReplaceAll(c.argument, "%d", fmt.Sprint(r.Number)))).Write(w)
		})
		d := Manage(MustRun(t, Site{Upstream: up.URL, Runtime: runtime}.Yaml()))
		all := AgentFrames(t, d.StreamAgent(d.NewAgent(WithTools(tools)), `{"message":"go"}`).Body)
		if end := all[len(all)-1]; end["status"] != "failed" || end["error"] != "Doom loop detected: "+c.want || len(tools.Of("tools/call")) != c.calls {
			t.Errorf("%s: %d calls, and the end is %v", runtime, len(tools.Of("tools/call")), end)
		}
	}
}

// The run of an agent has the end user that its body names, and spends from his budgets.
func TestTheEndUserOfAnAgentsRun(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("Hello.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL, Runtime: "budgets: [{scope: end_user, period: day, tokens: 10}]"}.Yaml()))
	id := d.NewAgent("")
	for member, status := range map[string]string{
		`,"user":"ann","metadata":{"ticket":"7"}`: "failed", `,"metadata":{"user_id":"ann"}`: "failed", `,"safety_identifier":"ann"`: "failed", `,"user":null,"metadata":{"ticket":"7"}`: "completed",
	} {
		all := AgentFrames(t, d.StreamAgent(id, `{"message":"go"`+member+`}`).Body)
		if end := all[len(all)-1]; end["status"] != status || status == "failed" && !strings.Contains(fmt.Sprint(end["error"]), "end_user/ann/day") {
			t.Errorf("%s: %v", member, end)
		}
	}
	for _, member := range []string{`"user":5`, `"metadata":"x"`} {
		if a := d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(`{"message":"go",`+member+`}`), "Authorization", "Bearer owner-key"); a.Status != 400 {
			t.Errorf("%s: %d %s", member, a.Status, a.Body)
		}
	}
}

// When less than 15 % of its budget is left, the model is warned once; the step after it has no tools. // B20
func TestAnAgentIsWarnedOfItsBudget(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	step := func(n, tokens int) Turn {
		return Asks(Use("mcp__tools__echo", fmt.Sprintf(`{"n":%d}`, n))).Reading(tokens)
	}
	up := NewUpstream(t, Script(step(1, 3000), step(2, 3000), step(3, 500), Says("Done.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL, Runtime: "max_run_tokens: 10000"}.Yaml()))
	all := AgentFrames(t, d.StreamAgent(d.NewAgent(WithTools(tools)), `{"message":"go"}`).Body)
	asked := up.Requests()
	if len(asked) != 4 {
		t.Fatalf("%d model calls: %v", len(asked), all[len(all)-1])
	}
	for i, want := range []struct{ warned, tools bool }{{false, true}, {false, true}, {true, true}, {false, false}} {
		if warned := strings.Contains(asked[i].Prompt(t), loop.BudgetWarning); warned != want.warned || hasTools(asked[i]) != want.tools {
			t.Errorf("request %d: warned %v, tools %v", i, warned, hasTools(asked[i]))
		}
	}
	if end := all[len(all)-1]; end["status"] != "completed" || end["content"] != "Done." {
		t.Errorf("the end is %v", end)
	}
}

// The model gets the first 50,000 characters of a result, and is told how long it was. // C12
func TestAResultOfAnAgentIsTruncated(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"long": func(context.Context, string) (string, error) { return strings.Repeat("é", 60_000), nil }})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__long", `{"n":1}`)), Says("Done.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	d.StreamAgent(d.NewAgent(WithTools(tools)), `{"message":"go"}`)
	if got := up.Requests()[1].Results(t); len(got) != 1 || !strings.HasPrefix(got[0], strings.Repeat("é", 50_000)+"\n\n[Truncated: 60000 chars total]") {
		t.Errorf("the model gets %d results", len(got))
	}
}

// The same story has the same prompts, calls and text over chat, over Responses and through an agent. // A04 A12
func TestAStoryIsTheSameThroughAnAgent(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{
		"echo": Echo, "other": Echo,
		"fails": func(context.Context, string) (string, error) { return "", fmt.Errorf("out of paper") },
		"long":  func(context.Context, string) (string, error) { return strings.Repeat("long ", 2000), nil },
	})
	up := NewUpstream(t, nil)
	gateway := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	id := Manage(gateway).NewAgent("")
	for name, turns := range map[string][]Turn{
		"an answer without calls":   {Says("Hello.")},
		"two rounds":                {Asks(Use("echo", `{"n":1}`)).Saying("Looking."), Says("Done.")},
		"three rounds":              {Asks(Use("echo", `{"n":1}`)), Asks(Use("echo", `{"n":2}`)), Says("Done.")},
		"parallel calls":            {Asks(Use("echo", `{"n":1}`), Use("other", `{"n":2}`)), Says("Done.")},
		"a tool that fails":         {Asks(Use("fails", `{"n":1}`)), Says("It failed.")},
		"a tool that nobody has":    {Asks(Use("nosuch", `{"n":1}`)), Says("It is not there.")},
		"arguments of another type": {Asks(Use("echo", `{"n":"one"}`)), Asks(Use("echo", `{"n":1}`)), Says("Done.")},
		"arguments that are broken": {Asks(Use("echo", `{"n":`)), Says("Done.")},
		"a failure beside a result": {Asks(Use("fails", `{"n":1}`), Use("echo", `{"n":2}`)), Says("Done.")},
		"a long result":             {Asks(Use("long", `{"n":1}`)), Says("Done.")},
		"two identical calls":       {Asks(Use("echo", `{"n":1}`)), Asks(Use("echo", `{"n":1}`)), Says("Done.")},
	} {
		t.Run(name, func(t *testing.T) {
			from := 0
			up.Answer = func(w http.ResponseWriter, _ *http.Request, r Received) {
				turns[min(r.Number-from, len(turns)-1)].Write(w)
			}
			g := *gateway
			g.T = t
			d := Manage(&g)
			played := func(play func() string) string {
				from = len(up.Requests())
				calls := len(tools.Of("tools/call"))
				text := play()
				var b strings.Builder
				for _, r := range up.Requests()[from:] {
					m := r.Decode(t)
					fmt.Fprintln(&b, r.Prompt(t), string(m.Tools))
				}
				var called []string // at the same time, in any order
				for _, c := range tools.Of("tools/call")[calls:] {
					name, arguments := calledWith(t, c)
					called = append(called, name+" "+arguments)
				}
				slices.Sort(called)
				return fmt.Sprint(b.String(), called, " answer ", text)
			}
			chat := played(func() string { text, _ := d.Post(Question).Completion(t); return text })
			responses := played(func() string {
				a := d.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"go"}`))
				return outputText(t, a)
			})
			agent := played(func() string {
				all := AgentFrames(t, d.StreamAgent(id, `{"message":"go"}`).Body)
				return fmt.Sprint(all[len(all)-1]["content"])
			})
			if agent != chat || agent != responses {
				t.Errorf("through an agent:\n%s\nover chat:\n%s\nover Responses:\n%s", agent, chat, responses)
			}
		})
	}
}

// calledWith returns the tool and the arguments of a request to an MCP server.
func calledWith(t *testing.T, c RPC) (name, arguments string) {
	t.Helper()
	var p struct {
		Name      string
		Arguments json.RawMessage
	}
	if err := json.Unmarshal(c.Params, &p); err != nil {
		t.Fatal(err)
	}
	return p.Name, string(p.Arguments)
}

// outputText returns the text of a response.
func outputText(t *testing.T, a Answer) string {
	t.Helper()
	var r struct {
		Output []struct {
			Content []struct{ Text string }
		}
	}
	if err := json.Unmarshal(a.Body, &r); err != nil || a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	text := ""
	for _, o := range r.Output {
		for _, c := range o.Content {
			text = c.Text // the last message is the answer
		}
	}
	return text
}

// hasTools reports whether a request offers the model tools.
func hasTools(r Received) bool { return strings.Contains(string(r.Body), `"tools":[`) }
