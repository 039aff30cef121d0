package approvals_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// hookCell is a cell of the table of what hooks may do, and what comes of it.
type hookCell struct {
	event, kind, config string // config is JSON without its braces
	reply               string // of an http hook; "" = it is not asked

	refused  bool   // the run does not begin
	executed string // the arguments of the call; "" = it is not executed
	told     string // what the model is told of the result
	text     string // what the client gets
}

// The run of each cell: the model calls run with these arguments, gets them back, and answers.
const (
	cellArguments = `{"q":"DROP"}`
	cellAnswer    = "the password is tiger"
)

func hookCells() map[string]hookCell {
	const url = `"url":"URL"`
	deny, modify, allow := `{"action":"deny","message":"why"}`, `{"action":"modify","modified_input":{"q":"safe"},"modified_output":"redacted"}`, `{"action":"allow"}`
	empty := `{"action":"modify","modified_input":{},"modified_output":""}`
	as := func(c hookCell, change func(*hookCell)) hookCell { // unless something takes effect, all is as without hooks
		c.executed, c.told, c.text = cellArguments, cellArguments, cellAnswer
		change(&c)
		return c
	}
	unchanged := func(*hookCell) {}
	refused := func(c *hookCell) { c.refused, c.executed, c.told, c.text = true, "", "", "" }
	blocked := func(c *hookCell) { c.executed, c.told = "", "Error: Blocked by hook — why" }
	return map[string]hookCell{
		"OnRunStart rule denies":    as(hookCell{event: "OnRunStart", kind: "rule", config: `"condition":"input CONTAINS hello"`}, refused),
		"OnRunStart rule allows":    as(hookCell{event: "OnRunStart", kind: "rule", config: `"condition":"input CONTAINS bye"`}, unchanged),
		"OnRunStart http denies":    as(hookCell{event: "OnRunStart", kind: "http", config: url, reply: deny}, refused),
		"OnRunStart http allows":    as(hookCell{event: "OnRunStart", kind: "http", config: url, reply: allow}, unchanged),
		"OnRunStart http modifies":  as(hookCell{event: "OnRunStart", kind: "http", config: url, reply: modify}, unchanged),
		"OnRunStart http fails":     as(hookCell{event: "OnRunStart", kind: "http", config: url, reply: "500"}, unchanged),
		"OnRunStart on_error deny":  as(hookCell{event: "OnRunStart", kind: "http", config: url + `,"on_error":"deny"`, reply: "500"}, refused),
		"PreToolUse rule denies":    as(hookCell{event: "PreToolUse", kind: "rule", config: `"condition":"q CONTAINS DROP","message":"why"`}, blocked),
		"PreToolUse rule allows":    as(hookCell{event: "PreToolUse", kind: "rule", config: `"condition":"q CONTAINS drop"`}, unchanged),
		"PreToolUse http denies":    as(hookCell{event: "PreToolUse", kind: "http", config: url, reply: deny}, blocked),
		"PreToolUse http allows":    as(hookCell{event: "PreToolUse", kind: "http", config: url, reply: allow}, unchanged),
		"PreToolUse http modifies":  as(hookCell{event: "PreToolUse", kind: "http", config: url, reply: modify}, func(c *hookCell) { c.executed, c.told = `{"q":"safe"}`, `{"q":"safe"}` }),
		"PreToolUse http empties":   as(hookCell{event: "PreToolUse", kind: "http", config: url, reply: empty}, func(c *hookCell) { c.executed, c.told = `{}`, `{}` }),
		"PreToolUse http fails":     as(hookCell{event: "PreToolUse", kind: "http", config: url, reply: "no JSON"}, unchanged),
		"PreToolUse on_error deny":  as(hookCell{event: "PreToolUse", kind: "http", config: url + `,"on_error":"deny"`, reply: "500"}, func(c *hookCell) { c.executed, c.told = "", "a check that is required has failed" }),
		"PostToolUse http denies":   as(hookCell{event: "PostToolUse", kind: "http", config: url, reply: deny}, unchanged),
		"PostToolUse http allows":   as(hookCell{event: "PostToolUse", kind: "http", config: url, reply: allow}, unchanged),
		"PostToolUse http modifies": as(hookCell{event: "PostToolUse", kind: "http", config: url, reply: modify}, func(c *hookCell) { c.told = "redacted" }), // K12: a scan of tool output can redact it
		"PostToolUse http empties":  as(hookCell{event: "PostToolUse", kind: "http", config: url, reply: empty}, func(c *hookCell) { c.told = "" }),
		"PostToolUse http fails":    as(hookCell{event: "PostToolUse", kind: "http", config: url, reply: "500"}, unchanged),
		"PostToolUse on_error deny": as(hookCell{event: "PostToolUse", kind: "http", config: url + `,"on_error":"deny"`, reply: "500"}, func(c *hookCell) { c.told = "the result is withheld" }),
		"PreResponse rule denies":   as(hookCell{event: "PreResponse", kind: "rule", config: `"condition":"output CONTAINS password","message":"why"`}, func(c *hookCell) { c.text = "[Response blocked: why]" }),
		"PreResponse rule allows":   as(hookCell{event: "PreResponse", kind: "rule", config: `"condition":"output CONTAINS Password"`}, unchanged),
		"PreResponse http denies":   as(hookCell{event: "PreResponse", kind: "http", config: url, reply: deny}, func(c *hookCell) { c.text = "[Response blocked: why]" }),
		"PreResponse http allows":   as(hookCell{event: "PreResponse", kind: "http", config: url, reply: allow}, unchanged),
		"PreResponse http modifies": as(hookCell{event: "PreResponse", kind: "http", config: url, reply: modify}, func(c *hookCell) { c.text = "redacted" }),
		"PreResponse http empties":  as(hookCell{event: "PreResponse", kind: "http", config: url, reply: empty}, func(c *hookCell) { c.text = "" }),
		"PreResponse http fails":    as(hookCell{event: "PreResponse", kind: "http", config: url, reply: "500"}, unchanged),
		"PreResponse on_error deny": as(hookCell{event: "PreResponse", kind: "http", config: url + `,"on_error":"deny"`, reply: "500"}, func(c *hookCell) { c.text = "[Response blocked: a check that is required has failed]" }),
	}
}

// hookBench runs cells: a model and a tool, and a receiver of hooks for each cell.
type hookBench struct {
	mu             sync.Mutex
	executed, told []string
	receiver       *HookServer
	mcp            *MCPServer
	up             *Upstream
}

func newHookBench(t *testing.T) *hookBench {
	b := &hookBench{}
	b.mcp = NewMCP(t, map[string]Handler{"run": func(_ context.Context, arguments string) (string, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.executed = append(b.executed, arguments)
		return arguments, nil
	}})
	b.up = NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if results := got.Results(t); len(results) > 0 {
			b.mu.Lock()
			b.told = append(b.told, results...)
			b.mu.Unlock()
			Says(cellAnswer).Write(w)
			return
		}
		Asks(Use("run", cellArguments)).Write(w)
	})
	return b
}

// check compares what has come of a run, and forgets it.
func (b *hookBench) check(t *testing.T, where string, c hookCell, text, body string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := strings.Join(b.executed, " "); got != c.executed {
		t.Errorf("%s: executed with %q, want %q", where, got, c.executed)
	}
	got := strings.Join(b.told, " ")
	if failed := strings.HasPrefix(c.told, "a check ") || strings.HasPrefix(c.told, "the result "); !failed && got != c.told || !strings.Contains(got, c.told) {
		t.Errorf("%s: the model was told %q, want %q", where, got, c.told)
	}
	if text != c.text {
		t.Errorf("%s: the client got %q, want %q:\n%s", where, text, c.text, body)
	}
	if c.text != cellAnswer && strings.Contains(body, "tiger") {
		t.Errorf("%s: the client got the answer of the model:\n%s", where, body)
	}
	if asked := len(b.receiver.Outputs()); (asked > 0) != (c.kind == "http") {
		t.Errorf("%s: the hook was asked %d times", where, asked)
	}
	b.executed, b.told = nil, nil
	b.receiver.Forget()
}

// Each cell of the table of events, types and actions, the same over chat, Responses and
// an agent, streamed or not. // H14 H15 H16 H17 H19 H21
func TestWhatHooksMayDo(t *testing.T) {
	NoLeaks(t)
	b := newHookBench(t)
	site := Site{Upstream: b.up.URL, Servers: []string{Server("run", b.mcp.URL, "trust: true")}}
	g := MustRun(t, strings.Replace(site.Yaml(), "    runtime: {}\n", "", 1))
	for name, c := range hookCells() {
		t.Run(name, func(t *testing.T) {
			b.receiver = NewHookServer(t, Replies(map[string]string{c.event: c.reply}))
			own := *g
			own.T = t
			d := Manage(&own)
			config := strings.ReplaceAll(c.config, "URL", b.receiver.URL)
			hook := fmt.Sprintf(`{"event":%q,"type":%q,"config":{%s}}`, c.event, c.kind, config)
			ofOrg := func(hooks string) {
				d.AsOwner("PATCH", "/api/org/runtime", `{"tool_arg_validation":"none","hooks":[`+hooks+`]}`, 200)
			}
			ofOrg(`{"id":"h",` + hook[1:])
			for _, r := range []struct{ path, body string }{
				{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`},
				{"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`},
				{"/v1/responses", `{"model":"m","input":"hello"}`},
				{"/v1/responses", `{"model":"m","stream":true,"input":"hello"}`},
			} {
				a := d.Send("POST", r.path, strings.NewReader(r.body))
				body, text := string(a.Body), ""
				if c.refused != strings.Contains(body, "hook_denied") || (a.Status == 403) != c.refused && !strings.Contains(r.body, "stream") {
					t.Errorf("%s: %d %s", r.path, a.Status, body)
				}
				if !c.refused {
					text = textOf(t, r.path, body)
				}
				b.check(t, r.path+" "+r.body, c, text, body)
			}
			ofOrg("")
			agent := fmt.Sprintf(`{"name":%q,"model":"m","hooks":[%s]}`, name, hook)
			id := d.AsOwner("POST", "/api/agents", agent, 201)["id"].(string)
			a := d.StreamAgent(id, `{"message":"hello"}`)
			all := AgentFrames(t, a.Body)
			last := all[len(all)-1]
			if want := map[bool]string{true: "failed", false: "completed"}[c.refused]; last["status"] != want {
				t.Errorf("the run of the agent: %v", last)
			}
			b.check(t, "agent", c, last["content"].(string), string(a.Body))
			checkHookResult(t, d, c, all)
			run := d.AsOwner("GET", "/api/agents/runs/"+fmt.Sprint(last["run_id"]), "", 200)
			if run["content"] != c.text {
				t.Errorf("the run afterwards: %v", run)
			}
		})
	}
	for _, event := range []string{"OnRunStart", "PreToolUse", "PostToolUse", "PreResponse"} {
		for _, kind := range []string{"rule", "http"} {
			has := slices.ContainsFunc(slicesOf(hookCells()), func(c hookCell) bool { return c.event == event && c.kind == kind })
			if has == (event == "PostToolUse" && kind == "rule") {
				t.Errorf("%s %s is tried: %v", event, kind, has)
			}
		}
	}
}

// checkHookResult checks what the stream, the replay and the audit log say of the hook of a cell. // H20
func checkHookResult(t *testing.T, d Documented, c hookCell, all []map[string]any) {
	t.Helper()
	only := func(all []map[string]any) (out []map[string]any) {
		for _, f := range all {
			if f["event"] == "hook_result" {
				out = append(out, f)
			}
		}
		return out
	}
	results := only(all)
	if len(results) != 1 {
		t.Fatalf("%d hook_result: %v", len(results), all)
	}
	failed := c.reply == "500" || c.reply == "no JSON" || c.event == "OnRunStart" && strings.Contains(c.reply, "modify")
	changed := c.text != cellAnswer || c.told != cellArguments || c.refused
	blocked := changed && c.event != "PostToolUse" && (c.kind == "rule" || failed || strings.Contains(c.reply, "deny"))
	want := map[string]any{
		"hook_event": c.event, "status": map[bool]string{true: "failed", false: "succeeded"}[failed], "modified": changed && !blocked, "blocked": blocked, "position": 0.0,
	}
	for member, value := range want {
		if results[0][member] != value {
			t.Errorf("hook_result.%s is %v, want %v: %v", member, results[0][member], value, results[0])
		}
	}
	if all[0]["event"] != "start" || results[0]["message"] == "" && (failed || blocked) {
		t.Errorf("%v", all[:2])
	}
	run := fmt.Sprint(all[len(all)-1]["run_id"])
	again := d.Send("GET", "/api/agents/runs/"+run+"/events", nil)
	if diff := cmp.Diff(results, only(AgentFrames(t, again.Body)), cmpopts.IgnoreMapEntries(func(k string, _ any) bool { return k == "ts" })); diff != "" {
		t.Errorf("the replay differs: %s", diff)
	}
	rows := d.AsOwner("GET", "/api/audit?kind=audit_log.agent.hook&run_id="+run, "", 200)["data"].([]any)
	if (len(rows) == 1) != (failed || changed) {
		t.Errorf("the audit log has %v", rows)
	}
	if len(rows) == 1 && rows[0].(map[string]any)["body"].(map[string]any)["event"] != c.event {
		t.Errorf("the audit log has %v", rows)
	}
}

func slicesOf(cells map[string]hookCell) (out []hookCell) {
	for _, c := range cells {
		out = append(out, c)
	}
	return out
}

// An agent that is run without tools has its hooks too. // H15 H21
func TestHooksOfAnAgentWithoutTools(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says(cellAnswer)))
	receiver := NewHookServer(t, Replies(map[string]string{"OnRunStart": `{"action":"allow"}`, "PreResponse": `{"action":"modify","modified_output":"redacted"}`}))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	hook := func(event string) string {
		return fmt.Sprintf(`{"event":%q,"type":"http","config":{"url":%q,"headers":{"X-Team":"ops"},"include_run_context":true}}`, event, receiver.URL)
	}
	id := d.NewAgent(`,"hooks":[` + hook("PreResponse") + "," + hook("OnRunStart") + `]`)
	got := d.AsOwner("POST", "/api/agents/"+id+"/run", `{"message":"x"}`, 200)
	if got["content"] != "redacted" {
		t.Errorf("%v", got)
	}
	again := d.AsOwner("POST", "/api/agents/"+id+"/run", `{"message":"y","session_id":`+Quoted(got["session_id"])+`}`, 200)
	if again["content"] != "redacted" || strings.Contains(string(up.Requests()[1].Body), "tiger") {
		t.Errorf("%v\n%s", again, up.Requests()[1].Body)
	}
	receiver.Mu.Lock()
	defer receiver.Mu.Unlock()
	if len(receiver.Got) != 4 || receiver.Got[0]["event"] != "OnRunStart" || receiver.Got[0]["run"].(map[string]any)["execution_id"] != got["run_id"] {
		t.Errorf("the hooks got %v", receiver.Got)
	}
}
