package approvals_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// What hooks decide takes effect, the same on each surface, streamed
// or not: what TestWhatHooksMayDo does not show of a single hook, and several hooks. // H07 H14 H15 H16 H17 H19 H21 H22 H24
func TestHooksDecideOnEverySurface(t *testing.T) {
	const url = "URL"
	httpHook := func(id, event, more string) string {
		return fmt.Sprintf(`{id: %s, event: %s, type: http, config: {url: %q%s}}`, id, event, url, more)
	}
	for name, c := range map[string]struct {
		hooks    string
		replies  map[string]string
		executed string // the arguments; "" = not executed
		told     string // what the model is told; "" = the run is refused
		log      string
	}{
		"a rule of another tool":         {hooks: `{id: h, event: PreToolUse, type: rule, matcher: "pay_*", config: {condition: "q CONTAINS DROP"}}`, executed: `{"q":"DROP"}`, told: "DROP"},
		"a rule of another key":          {hooks: `{id: h, event: PreToolUse, type: rule, keys: [b], config: {condition: "q CONTAINS DROP"}}`, executed: `{"q":"DROP"}`, told: "DROP"},
		"a rule that is switched off":    {hooks: `{id: h, event: PreToolUse, type: rule, enabled: false, config: {condition: "q CONTAINS DROP"}}`, executed: `{"q":"DROP"}`, told: "DROP"},
		"http modifies them, and a rule": {hooks: httpHook("h", "PreToolUse", "") + `, {id: r, event: PreToolUse, type: rule, config: {condition: "q CONTAINS safe"}}`, replies: map[string]string{"PreToolUse": `{"action":"modify","modified_input":{"q":"safe"}}`}, told: "Blocked by hook — q CONTAINS safe"},
		"the rule comes first":           {hooks: httpHook("h", "PreToolUse", "") + `, {id: r, event: PreToolUse, type: rule, position: 0, config: {condition: "q CONTAINS safe"}}, {id: s, event: PreToolUse, type: rule, config: {condition: "q CONTAINS DROP"}}`, replies: map[string]string{"PreToolUse": `{"action":"allow"}`}, told: "Blocked by hook — q CONTAINS DROP"},
		"arguments that are not valid":   {hooks: httpHook("h", "PreToolUse", ""), replies: map[string]string{"PreToolUse": `{"action":"modify","modified_input":[1]}`}, told: "the changed ones are not valid"},
		"http fails":                     {hooks: httpHook("h", "PreToolUse", ""), replies: map[string]string{"PreToolUse": "500"}, executed: `{"q":"DROP"}`, told: "DROP", log: "hook_failed"},
		"http answers another action":    {hooks: httpHook("h", "PreToolUse", ""), replies: map[string]string{"PreToolUse": `{"action":"block"}`}, executed: `{"q":"DROP"}`, told: "DROP", log: "hook_failed"},
		"http modifies, and not to what": {hooks: httpHook("h", "PreToolUse", ""), replies: map[string]string{"PreToolUse": `{"action":"modify"}`}, executed: `{"q":"DROP"}`, told: "DROP", log: "hook_failed"},
		"an address that is refused":     {hooks: `{id: h, event: PreToolUse, type: http, config: {url: "http://169.254.169.254/"}}`, executed: `{"q":"DROP"}`, told: "DROP", log: "hook_failed"},
		"the start cannot be modified":   {hooks: httpHook("h", "OnRunStart", ", on_error: deny"), replies: map[string]string{"OnRunStart": `{"action":"modify","modified_input":{}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			NoLeaks(t)
			var mu sync.Mutex
			var executed, told []string
			mcp := NewMCP(t, map[string]Handler{"run": func(_ context.Context, arguments string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				executed = append(executed, arguments)
				return arguments, nil
			}})
			up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
				if results := got.Results(t); len(results) > 0 {
					mu.Lock()
					told = append(told, results...)
					mu.Unlock()
					Says("done").Write(w)
					return
				}
				Asks(Use("run", `{"q":"DROP"}`)).Write(w)
			})
			receiver := NewHookServer(t, Replies(c.replies))
			hooks := strings.ReplaceAll(c.hooks, url, receiver.URL)
			g := MustRun(t, Site{Upstream: up.URL, Runtime: "tool_arg_validation: none, hooks: [" + hooks + "]", Servers: []string{Server("tools", mcp.URL, "trust: true")}}.Yaml())
			for _, r := range []struct{ path, body string }{
				{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`},
				{"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`},
				{"/v1/responses", `{"model":"m","input":"hello"}`},
				{"/v1/responses", `{"model":"m","stream":true,"input":"hello"}`},
			} {
				executed, told = nil, nil
				a := g.Send("POST", r.path, strings.NewReader(r.body), "Authorization", "Bearer owner-key")
				if c.told == "" {
					streamed := strings.Contains(r.body, "stream")
					if a.Status != 403 && !streamed || !strings.Contains(string(a.Body), "hook_denied") || len(executed) > 0 {
						t.Errorf("%s %s: %d %s", r.path, r.body, a.Status, a.Body)
					}
					continue
				}
				if a.Status != 200 || !strings.Contains(string(a.Body), "done") {
					t.Fatalf("%s %s: %d %s\n%s", r.path, r.body, a.Status, a.Body, g.Log.String())
				}
				if got := strings.Join(executed, " "); got != c.executed {
					t.Errorf("%s: executed with %q, want %q", r.path, got, c.executed)
				}
				if got := strings.Join(told, " "); !strings.Contains(got, c.told) {
					t.Errorf("%s: the model was told %q, want %q", r.path, got, c.told)
				}
			}
			if c.log != "" && !strings.Contains(g.Log.String(), c.log) {
				t.Errorf("the log has no %s:\n%s", c.log, g.Log.String())
			}
		})
	}
}

// A key with hooks has the loop also where its requests would be relayed, and cannot switch it off. // H14
func TestHooksAreNeverSkipped(t *testing.T) {
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { Says("done").Write(w) })
	runtime := `hooks: [{id: h, event: OnRunStart, type: rule, config: {condition: "input CONTAINS secret"}}]`
	for name, s := range map[string]Site{"without the feature": {Feature: "none"}, "without servers": {}} {
		t.Run(name, func(t *testing.T) {
			s.Upstream, s.Runtime = up.URL, runtime
			g := MustRun(t, s.Yaml())
			for body, want := range map[string]int{
				`{"model":"m","messages":[{"role":"user","content":"a secret"}]}`: 403,
				`{"model":"m","messages":[{"role":"user","content":"hello"}]}`:    200,
			} {
				if a := g.Send("POST", "/v1/chat/completions", strings.NewReader(body), "Authorization", "Bearer owner-key"); a.Status != want {
					t.Errorf("%s: %d %s", body, a.Status, a.Body)
				}
				a := g.Send("POST", "/v1/chat/completions", strings.NewReader(body), "Authorization", "Bearer owner-key", "turnpike-mcp-disabled", "true")
				if a.Status != 403 || !strings.Contains(string(a.Body), "hooks_required") {
					t.Errorf("opted out: %d %s", a.Status, a.Body)
				}
			}
		})
	}
}

// A call for which a hook asks waits with its text, and goes on when a person approves it. What is
// approved are the arguments that the hooks have left. // H03
func TestAHookAsksAPerson(t *testing.T) {
	up := NewUpstream(t, AskGated(Use("delete", `{"n":7}`)))
	tools := NewMCP(t, map[string]Handler{"delete": Echo})
	receiver := NewHookServer(t, Replies(map[string]string{"PreToolUse": `{"action":"modify","modified_input":{"n":8}}`}))
	hooks := fmt.Sprintf(`hooks: [{id: first, event: PreToolUse, type: http, config: {url: %q}}, {id: ask, event: PreToolUse, type: approval, config: {message: "Delete it?"}}]`, receiver.URL)
	g := &Gated{Data: NewData(t), Upstream: up, Tools: tools}
	g.Yaml = Site{Upstream: up.URL, Runtime: hooks, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
	answers := g.Ask(`{"model":"m","messages":[{"role":"user","content":"x"}]}`, "Authorization", "Bearer owner-key")
	waiting := g.Waiting()
	if len(waiting) != 1 || waiting[0]["asker"] != "hook" || waiting[0]["message"] != "Delete it?" || fmt.Sprint(waiting[0]["arguments"]) != "map[n:8]" {
		t.Fatalf("what waits: %v", waiting)
	}
	g.Do("POST", "/v1/approvals/"+fmt.Sprint(waiting[0]["id"]), "approver-key", `{"decision":"approve"}`, 200)
	if a := <-answers; a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
