package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// hasTools reports whether a request offers the model tools.
func (r received) hasTools() bool { return strings.Contains(string(r.body), `"tools":[`) }

// An agent has 25 steps, or what it or the request says, and at most as many as its org sets. The last one has no tools. // B12
func TestTheLastStepOfAnAgentHasNoTools(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
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
		up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, r received) {
			if r.hasTools() {
				asks(call{"mcp__tools__echo", fmt.Sprintf(`{"n":%d}`, r.number)}).write(w)
				return
			}
			says("Enough.").write(w)
		})
		d := manage(MustRun(t, site{upstream: up.URL, runtime: c.runtime}.yaml()))
		all := agentFrames(t, d.streamAgent(d.newAgent(c.settings+withTools(tools)), `{"message":"go"`+c.body+`}`).body)
		asked := up.requests()
		for i, r := range asked {
			if last := i == c.steps-1; r.hasTools() == last {
				t.Errorf("%+v: request %d offers tools: %v", c, i, r.hasTools())
			}
		}
		if end := all[len(all)-1]; len(asked) != c.steps || end["status"] != "completed" || end["content"] != "Enough." || end["steps"] != float64(c.steps) {
			t.Errorf("%+v: %d model calls, and the end is %v", c, len(asked), end)
		}
	}
}

// A call of the last step, which was offered no tools, is answered and not executed: nobody would read its result.
func TestACallThatWasNotOfferedIsNotExecuted(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, r received) {
		asks(call{"mcp__tools__echo", fmt.Sprintf(`{"n":%d}`, r.number)}).write(w)
	})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	all := agentFrames(t, d.streamAgent(d.newAgent(withTools(tools)), `{"message":"go","max_steps":2}`).body)
	if end := all[len(all)-1]; len(tools.of("tools/call")) != 1 || end["status"] != "completed" || !strings.Contains(fmt.Sprint(end["tool_calls"]), "was offered no tools") {
		t.Errorf("%d calls, and the end is %v", len(tools.of("tools/call")), end)
	}
}

// The org's doom_threshold holds for its agents, and the error says what was repeated. // B13
func TestTheDoomLoopOfAnAgent(t *testing.T) {
	noLeaks(t)
	for runtime, c := range map[string]struct {
		argument, want string
		fails          bool
		calls          int
	}{
		"":                  {`{"n":1}`, "3 identical tool calls in a row", false, 2},
		"doom_threshold: 5": {`{"n":1}`, "5 identical tool calls in a row", false, 4},
		"doom_failures: 4":  {`{"n":%d}`, "5 calls of one tool since it last succeeded", true, 4},
	} {
		tools := newMCP(t, map[string]handler{"echo": func(ctx context.Context, text string) (string, error) {
			if c.fails {
				return "", fmt.Errorf("out of paper after %s", text)
			}
			return echo(ctx, text)
		}})
		up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, r received) {
			asks(call{"mcp__tools__echo", strings.ReplaceAll(c.argument, "%d", fmt.Sprint(r.number))}).write(w)
		})
		d := manage(MustRun(t, site{upstream: up.URL, runtime: runtime}.yaml()))
		all := agentFrames(t, d.streamAgent(d.newAgent(withTools(tools)), `{"message":"go"}`).body)
		if end := all[len(all)-1]; end["status"] != "failed" || end["error"] != "Doom loop detected: "+c.want || len(tools.of("tools/call")) != c.calls {
			t.Errorf("%s: %d calls, and the end is %v", runtime, len(tools.of("tools/call")), end)
		}
	}
}

// The run of an agent has the end user that its body names, and spends from his budgets.
func TestTheEndUserOfAnAgentsRun(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("Hello.")))
	d := manage(MustRun(t, site{upstream: up.URL, runtime: "budgets: [{scope: end_user, period: day, tokens: 10}]"}.yaml()))
	id := d.newAgent("")
	for member, status := range map[string]string{
		`,"user":"ann","metadata":{"ticket":"7"}`: "failed", `,"metadata":{"user_id":"ann"}`: "failed", `,"safety_identifier":"ann"`: "failed", `,"user":null,"metadata":{"ticket":"7"}`: "completed",
	} {
		all := agentFrames(t, d.streamAgent(id, `{"message":"go"`+member+`}`).body)
		if end := all[len(all)-1]; end["status"] != status || status == "failed" && !strings.Contains(fmt.Sprint(end["error"]), "end_user/ann/day") {
			t.Errorf("%s: %v", member, end)
		}
	}
	for _, member := range []string{`"user":5`, `"metadata":"x"`} {
		if a := d.send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(`{"message":"go",`+member+`}`), "Authorization", "Bearer owner-key"); a.status != 400 {
			t.Errorf("%s: %d %s", member, a.status, a.body)
		}
	}
}

// When less than 15 % of its budget is left, the model is warned once; the step after it has no tools. // B20
func TestAnAgentIsWarnedOfItsBudget(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	step := func(n, tokens int) turn {
		return asks(call{"mcp__tools__echo", fmt.Sprintf(`{"n":%d}`, n)}).reading(tokens)
	}
	up := newUpstream(t, script(step(1, 3000), step(2, 3000), step(3, 500), says("Done.")))
	d := manage(MustRun(t, site{upstream: up.URL, runtime: "max_run_tokens: 10000"}.yaml()))
	all := agentFrames(t, d.streamAgent(d.newAgent(withTools(tools)), `{"message":"go"}`).body)
	asked := up.requests()
	if len(asked) != 4 {
		t.Fatalf("%d model calls: %v", len(asked), all[len(all)-1])
	}
	for i, want := range []struct{ warned, tools bool }{{false, true}, {false, true}, {true, true}, {false, false}} {
		if warned := strings.Contains(asked[i].prompt(t), loop.BudgetWarning); warned != want.warned || asked[i].hasTools() != want.tools {
			t.Errorf("request %d: warned %v, tools %v", i, warned, asked[i].hasTools())
		}
	}
	if end := all[len(all)-1]; end["status"] != "completed" || end["content"] != "Done." {
		t.Errorf("the end is %v", end)
	}
}

// The model gets the first 50,000 characters of a result, and is told how long it was. // C12
func TestAResultOfAnAgentIsTruncated(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"long": func(context.Context, string) (string, error) { return strings.Repeat("é", 60_000), nil }})
	up := newUpstream(t, script(asks(call{"mcp__tools__long", `{"n":1}`}), says("Done.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	d.streamAgent(d.newAgent(withTools(tools)), `{"message":"go"}`)
	if got := up.requests()[1].results(t); len(got) != 1 || !strings.HasPrefix(got[0], strings.Repeat("é", 50_000)+"\n\n[Truncated: 60000 chars total]") {
		t.Errorf("the model gets %d results", len(got))
	}
}

// The same story has the same prompts, calls and text over chat, over Responses and through an agent. // A04 A12
func TestAStoryIsTheSameThroughAnAgent(t *testing.T) {
	noLeaks(t)
	for name, turns := range map[string][]turn{
		"an answer without calls":   {says("Hello.")},
		"two rounds":                {asks(call{"echo", `{"n":1}`}).saying("Looking."), says("Done.")},
		"three rounds":              {asks(call{"echo", `{"n":1}`}), asks(call{"echo", `{"n":2}`}), says("Done.")},
		"parallel calls":            {asks(call{"echo", `{"n":1}`}, call{"other", `{"n":2}`}), says("Done.")},
		"a tool that fails":         {asks(call{"fails", `{"n":1}`}), says("It failed.")},
		"a tool that nobody has":    {asks(call{"nosuch", `{"n":1}`}), says("It is not there.")},
		"arguments of another type": {asks(call{"echo", `{"n":"one"}`}), asks(call{"echo", `{"n":1}`}), says("Done.")},
		"arguments that are broken": {asks(call{"echo", `{"n":`}), says("Done.")},
		"a failure beside a result": {asks(call{"fails", `{"n":1}`}, call{"echo", `{"n":2}`}), says("Done.")},
		"a long result":             {asks(call{"long", `{"n":1}`}), says("Done.")},
		"two identical calls":       {asks(call{"echo", `{"n":1}`}), asks(call{"echo", `{"n":1}`}), says("Done.")},
	} {
		t.Run(name, func(t *testing.T) {
			tools := newMCP(t, map[string]handler{
				"echo": echo, "other": echo,
				"fails": func(context.Context, string) (string, error) { return "", fmt.Errorf("out of paper") },
				"long":  func(context.Context, string) (string, error) { return strings.Repeat("long ", 2000), nil },
			})
			up := newUpstream(t, nil)
			from := 0
			up.answer = func(w http.ResponseWriter, _ *http.Request, r received) {
				turns[min(r.number-from, len(turns)-1)].write(w)
			}
			d := manage(MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml()))
			id := d.newAgent("")
			played := func(play func() string) string {
				from = len(up.requests())
				calls := len(tools.of("tools/call"))
				text := play()
				var b strings.Builder
				for _, r := range up.requests()[from:] {
					m := r.decode(t)
					fmt.Fprintln(&b, r.prompt(t), string(m.Tools))
				}
				var called []string // at the same time, in any order
				for _, c := range tools.of("tools/call")[calls:] {
					name, arguments := calledWith(t, c)
					called = append(called, name+" "+arguments)
				}
				slices.Sort(called)
				return fmt.Sprint(b.String(), called, " answer ", text)
			}
			chat := played(func() string { text, _ := d.post(question).completion(t); return text })
			responses := played(func() string {
				a := d.send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"go"}`))
				return outputText(t, a)
			})
			agent := played(func() string {
				all := agentFrames(t, d.streamAgent(id, `{"message":"go"}`).body)
				return fmt.Sprint(all[len(all)-1]["content"])
			})
			if agent != chat || agent != responses {
				t.Errorf("through an agent:\n%s\nover chat:\n%s\nover Responses:\n%s", agent, chat, responses)
			}
		})
	}
}

// calledWith returns the tool and the arguments of a request to an MCP server.
func calledWith(t *testing.T, c rpc) (name, arguments string) {
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
func outputText(t *testing.T, a answer) string {
	t.Helper()
	var r struct {
		Output []struct {
			Content []struct{ Text string }
		}
	}
	if err := json.Unmarshal(a.body, &r); err != nil || a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	text := ""
	for _, o := range r.Output {
		for _, c := range o.Content {
			text = c.Text // the last message is the answer
		}
	}
	return text
}
