package app_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// gatedQuestion is a chat request with which askGated calls the tool delete.
const (
	gatedQuestion         = `{"model":"m","messages":[{"role":"user","content":"delete it"}]}`
	streamedGatedQuestion = `{"model":"m","stream":true,"messages":[{"role":"user","content":"delete it"}]}`
)

// askGated calls the calls in its first turn, and then repeats what the tools said.
func askGated(calls ...call) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, _ *http.Request, got received) {
		if !bytes.Contains(got.body, []byte(`"role":"tool"`)) {
			asks(calls...).write(w)
			return
		}
		says("done").write(w)
	}
}

// gated is a gateway with a server whose tool delete needs approval.
type gated struct {
	documented
	data     string
	yaml     string
	upstream *upstream
	tools    *mcpServer
}

// runGated starts it. runtime and more are settings of the org and of the server.
func runGated(t *testing.T, runtime string, more ...string) *gated {
	t.Helper()
	up := newUpstream(t, askGated(call{"delete", `{"n":7}`}))
	tools := newMCP(t, map[string]handler{"delete": echo, "look": echo}, "look")
	g := &gated{data: newData(t), upstream: up, tools: tools}
	if len(more) == 0 {
		more = []string{"require_approval: always"}
	}
	g.yaml = site{upstream: up.URL, runtime: runtime, servers: []string{server("tools", tools.URL, more...)}}.yaml()
	g.documented = manage(mustRunIn(t, g.data, g.yaml, environment()))
	return g
}

// ask sends a chat request in the background.
func (g *gated) ask(body string, fields ...string) <-chan answer {
	g.t.Helper()
	answers := make(chan answer, 1)
	r := g.request(g.t.Context(), "POST", "/v1/chat/completions", strings.NewReader(body), fields...)
	go func() {
		resp, err := g.client.Do(r)
		if err != nil {
			answers <- answer{status: -1, body: []byte(err.Error())}
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		answers <- answer{resp.StatusCode, resp.Header, data}
	}()
	return answers
}

// waiting returns the approvals that wait, when there is one.
func (g *gated) waiting() []map[string]any {
	g.t.Helper()
	return objects(g.do("GET", "/v1/approvals?status=waiting&wait=20", "approver-key", "", 200))
}

// waitingAre returns the approvals that wait, when there are n.
func (g *gated) waitingAre(n int) (found []map[string]any) {
	g.t.Helper()
	g.waitUntil(func() (bool, any) {
		found = g.waiting()
		return len(found) == n, found
	})
	return found
}

// waitUntil asks until the answer is yes. It fails the test with the last answer if that takes too
// long.
func (g *gated) waitUntil(yes func() (bool, any)) {
	g.t.Helper()
	for begin := time.Now(); ; {
		ok, seen := yes()
		if ok {
			return
		}
		if time.Since(begin) > patience {
			g.t.Fatalf("after %s: %v", patience, seen)
		}
	}
}

// only returns the id of the one approval that waits.
func (g *gated) only() string {
	g.t.Helper()
	found := g.waiting()
	if len(found) != 1 {
		g.t.Fatalf("waiting: %v", found)
	}
	return found[0]["id"].(string)
}

func objects(list map[string]any) (out []map[string]any) {
	for _, o := range list["data"].([]any) {
		out = append(out, o.(map[string]any))
	}
	return out
}

func (g *gated) decide(id, decision, reason string, status int) map[string]any {
	g.t.Helper()
	return g.do("POST", "/v1/approvals/"+id, "approver-key", fmt.Sprintf(`{"decision":%q,"reason":%q}`, decision, reason), status)
}

// again sends a request with its key again. It stays open until the run is over.
func (g *gated) again(body, key string) answer {
	g.t.Helper()
	return g.post(body, "Idempotency-Key", key)
}

// statusOf returns the status of an approval.
func (g *gated) statusOf(id string) string {
	g.t.Helper()
	return g.do("GET", "/v1/approvals/"+id, "approver-key", "", 200)["status"].(string)
}

// told returns what the tools told the model in its last request.
func (g *gated) told() string {
	g.t.Helper()
	all := g.upstream.requests()
	return strings.Join(all[len(all)-1].results(g.t), "|")
}

// executed returns how often a tool was called.
func (g *gated) executed() int { return len(g.tools.of("tools/call")) }

// audited returns what the audit log has of an approval, in order.
func (g *gated) audited(id string) string {
	g.t.Helper()
	var out []string
	for _, row := range objects(g.do("GET", "/api/audit?kind=audit_log.agent.approval", "owner-key", "", 200)) {
		if body := row["body"].(map[string]any); body["approval_id"] == id {
			out = append(out, fmt.Sprintf("%v by %v", body["action"], row["key_id"]))
		}
	}
	return strings.Join(out, ", ")
}

// A request stays open until a person decides, as JSON and as a stream. // H02 H03 P02
func TestAToolCallRunsWhenAPersonApprovesIt(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	for _, c := range []struct {
		body string
		text func(answer) string
	}{
		{gatedQuestion, func(a answer) string { text, reason := a.completion(t); return text + " " + reason }},
		{streamedGatedQuestion, func(a answer) string {
			s := a.stream(t)
			return s.text + " " + strings.Join(append(s.reasons, s.errors...), ",")
		}},
	} {
		before := g.executed()
		open := g.ask(c.body, "Authorization", "Bearer member-key")
		found := g.waiting()
		if len(found) != 1 {
			t.Fatalf("waiting: %v", found)
		}
		a := found[0]
		id := a["id"].(string)
		if a["object"] != "approval" || a["server"] != "tools" || a["tool"] != "delete" || a["principal"] != "c" || a["surface"] != "chat" || a["asker"] != "server" ||
			fmt.Sprint(a["arguments"]) != "map[n:7]" || a["arguments_omitted"] != false || a["decided_at"] != nil || a["tool_digest"] == "" || a["arguments_digest"] == "" {
			t.Errorf("the approval: %v", a)
		}
		if g.executed() != before {
			t.Fatal("the tool was called before anybody has approved it")
		}
		if run := g.do("GET", "/v1/runs/"+a["run_id"].(string), "owner-key", "", 200); run["state"] != "waiting" {
			t.Errorf("the run is %v", run["state"])
		}
		decided := g.decide(id, "approve", "go ahead", 200)
		if decided["status"] != "approved" || decided["decided_by"] != "d" || decided["reason"] != "go ahead" || decided["decided_at"] == nil {
			t.Errorf("decided: %v", decided)
		}
		if got := c.text(wait(t, open, "the answer")); got != "done stop" {
			t.Errorf("the answer is %q", got)
		}
		if n := g.executed() - before; n != 1 || g.told() != `{"n":7}` {
			t.Errorf("the tool was called %d times; the model was told %q", n, g.told())
		}
		g.decide(id, "approve", "", 200) // the same again
		if refused := g.decide(id, "deny", "", 409); fmt.Sprint(refused["error"].(map[string]any)["code"]) != "already_decided" {
			t.Errorf("%v", refused)
		}
		if got := g.audited(id); got != "asked by c, approved by d, executed by c" {
			t.Errorf("audited: %s", got)
		}
	}
}

func TestTheModelIsToldWhyACallWasDenied(t *testing.T) { // H02
	noLeaks(t)
	g := runGated(t, "")
	open := g.ask(gatedQuestion)
	id := g.only()
	g.decide(id, "deny", "not in production", 200)
	if text, _ := wait(t, open, "the answer").completion(t); text != "done" || g.executed() != 0 || !strings.Contains(g.told(), "not in production") {
		t.Errorf("%q after %d calls; the model was told %q", text, g.executed(), g.told())
	}
	if got := g.audited(id); got != "asked by a, denied by d" {
		t.Errorf("audited: %s", got)
	}
}

// Nobody decides while the request is open. // H06
func TestACallThatNobodyDecidesIsDenied(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "approval_hold: 1s")
	open := g.ask(gatedQuestion)
	id := g.only()
	text, _ := wait(t, open, "the answer").completion(t)
	if text != "done" || g.executed() != 0 || !strings.Contains(g.told(), "Approval timed out") {
		t.Errorf("%q after %d calls; the model was told %q", text, g.executed(), g.told())
	}
	if refused := g.decide(id, "approve", "", 409); fmt.Sprint(refused["error"].(map[string]any)["code"]) != "approval_expired" || g.statusOf(id) != "expired" {
		t.Errorf("%v", refused)
	}
	if got := g.audited(id); !strings.HasPrefix(got, "asked by a, expired by ") {
		t.Errorf("audited: %s", got)
	}
}

// The client leaves, somebody decides, and the client comes back with its key. // H12 P02
func TestAClientComesBackForTheAnswerOfARunThatWaited(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	for i, body := range []string{gatedQuestion, streamedGatedQuestion} {
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		key := fmt.Sprint("k", i)
		r := g.request(ctx, "POST", "/v1/chat/completions", strings.NewReader(body), "Idempotency-Key", key)
		go func() {
			resp, err := g.client.Do(r)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			gone <- err
		}()
		id := g.only()
		leave()
		if wait(t, gone, "the client") == nil {
			t.Fatal("the request has ended")
		}
		attached := g.ask(body, "Idempotency-Key", key) // it attaches to the run that waits
		if g.statusOf(id) != "waiting" {
			t.Error("the approval does not wait any more")
		}
		g.decide(id, "approve", "", 200)
		back := wait(t, attached, "the attached answer")
		if i == 0 {
			if text, _ := back.completion(t); text != "done" {
				t.Errorf("the attached answer is %q", text)
			}
		} else if text := back.stream(t).text; text != "done" {
			t.Errorf("the attached answer is %q", text)
		}
		for _, a := range []answer{g.again(body, key), g.again(body, key)} {
			var text string
			if i == 0 {
				text, _ = a.completion(t)
			} else {
				text = a.stream(t).text
			}
			if text != "done" {
				t.Errorf("the answer is %q", text)
			}
		}
		if g.executed() != i+1 {
			t.Errorf("the tool was called %d times", g.executed())
		}
	}
}

// A restart while a call waits, and the tool runs once. // H12 P02
func TestACallThatWaitsSurvivesARestart(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	r := g.request(ctx, "POST", "/v1/chat/completions", strings.NewReader(gatedQuestion), "Idempotency-Key", "k")
	go func() {
		defer close(gone)
		if resp, err := g.client.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	id := g.only()
	leave()
	wait(t, gone, "the client")
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	g.documented = manage(mustRunIn(t, g.data, g.yaml, environment()))
	if got := g.only(); got != id || g.executed() != 0 {
		t.Errorf("%s waits, not %s; %d calls", got, id, g.executed())
	}
	g.decide(id, "approve", "", 200)
	if text, _ := g.again(gatedQuestion, "k").completion(t); text != "done" || g.executed() != 1 {
		t.Errorf("%q after %d calls", text, g.executed())
	}
}

// Two people decide at the same time, and one of them is too late. // P02
func TestOneDecisionWins(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	for range 5 {
		open := g.ask(gatedQuestion)
		id := g.only()
		var all sync.WaitGroup
		answers := make([]answer, 8)
		for i := range answers {
			decision := []string{"approve", "deny"}[i%2]
			r := g.request(t.Context(), "POST", "/v1/approvals/"+id, strings.NewReader(`{"decision":"`+decision+`"}`), "Authorization", "Bearer "+[]string{"approver-key", "admin-key"}[i%2])
			all.Go(func() {
				resp, err := g.client.Do(r)
				if err != nil {
					return
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				answers[i] = answer{resp.StatusCode, resp.Header, body}
			})
		}
		all.Wait()
		won := map[string]int{}
		for i, a := range answers {
			won[fmt.Sprint([]string{"approve", "deny"}[i%2], " ", a.status)]++
		}
		if !(won["approve 200"] == 4 && won["deny 409"] == 4 || won["deny 200"] == 4 && won["approve 409"] == 4) {
			t.Errorf("%v", won)
		}
		if text, _ := wait(t, open, "the answer").completion(t); text != "done" {
			t.Errorf("the answer is %q", text)
		}
		if got := g.audited(id); strings.Count(got, "approved")+strings.Count(got, "denied") != 1 {
			t.Errorf("audited: %s", got)
		}
	}
}

// Who may decide. // P02
func TestTheKeyThatAsksMayNotDecideIfTheOrgSaysSo(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "approvers: others")
	open := g.ask(gatedQuestion, "Authorization", "Bearer admin-key")
	id := g.only()
	refused := g.do("POST", "/v1/approvals/"+id, "admin-key", `{"decision":"approve"}`, 403)
	if fmt.Sprint(refused["error"].(map[string]any)["code"]) != "own_approval" || g.statusOf(id) != "waiting" {
		t.Errorf("%v", refused)
	}
	for key, reads := range map[string]int{"member-key": 403, "reader-key": 200} {
		g.do("POST", "/v1/approvals/"+id, key, `{"decision":"approve"}`, 403)
		g.do("GET", "/v1/approvals/"+id, key, "", reads)
		g.do("GET", "/v1/approvals", key, "", reads)
	}
	g.do("POST", "/v1/approvals/"+id, "owner-key", `{"decision":"approve"}`, 200)
	if text, _ := wait(t, open, "the answer").completion(t); text != "done" {
		t.Errorf("the answer is %q", text)
	}
}

// Nobody learns whether another org has an approval. // P02 K07
func TestAnApprovalOfAnotherOrgDoesNotExist(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, askGated(call{"delete", `{}`}))
	tools := newMCP(t, map[string]handler{"delete": echo})
	yaml := strings.Replace(site{upstream: up.URL, servers: []string{server("tools", tools.URL, "require_approval: always")}}.withVault(), "    runtime: {}\n", "", 1)
	g := &gated{documented: manage(MustRun(t, yaml)), upstream: up, tools: tools}
	g.do("POST", "/api/orgs", "operator-key", `{"id":"other"}`, 201)
	stranger := g.do("POST", "/api/orgs/other/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	open := g.ask(gatedQuestion)
	id := g.only()
	for _, method := range []string{"GET", "POST"} {
		ask := func(id string) answer {
			return g.send(method, "/v1/approvals/"+id, strings.NewReader(`{"decision":"approve"}`), "Authorization", "Bearer "+stranger)
		}
		there, missing := ask(id), ask("appr_00000000000000000000")
		if there.status != 404 || missing.status != 404 || !bytes.Equal(there.body, missing.body) {
			t.Errorf("%s: %d %s\n%d %s", method, there.status, there.body, missing.status, missing.body)
		}
	}
	there := g.send("GET", "/v1/approvals?before="+id, nil, "Authorization", "Bearer "+stranger)
	missing := g.send("GET", "/v1/approvals?before=appr_0", nil, "Authorization", "Bearer "+stranger)
	if there.status != 404 || !bytes.Equal(there.body, missing.body) {
		t.Errorf("%s\n%s", there.body, missing.body)
	}
	if list := g.do("GET", "/v1/approvals", stranger, "", 200); len(objects(list)) != 0 {
		t.Errorf("%v", list)
	}
	g.decide(id, "deny", "", 200)
	wait(t, open, "the answer")
}

// What was approved is this definition of the tool. // P02 P14
func TestAChangedToolIsAskedForAgain(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "catalog_ttl: 0s")
	open := g.ask(gatedQuestion)
	first := g.only()
	g.tools.sdk.RemoveTools("delete")
	g.tools.add("delete", echo, true) // other annotations
	g.decide(first, "approve", "", 200)
	second := g.only()
	if second == first || g.statusOf(first) != "void" || g.executed() != 0 {
		t.Fatalf("%s is %s, %s waits, %d calls", first, g.statusOf(first), second, g.executed())
	}
	if refused := g.decide(first, "deny", "", 409); fmt.Sprint(refused["error"].(map[string]any)["code"]) != "approval_void" {
		t.Errorf("%v", refused)
	}
	a, b := g.do("GET", "/v1/approvals/"+first, "owner-key", "", 200), g.do("GET", "/v1/approvals/"+second, "owner-key", "", 200)
	if a["tool_digest"] == b["tool_digest"] || a["arguments_digest"] != b["arguments_digest"] {
		t.Errorf("%v\n%v", a, b)
	}
	g.decide(second, "approve", "", 200)
	if text, _ := wait(t, open, "the answer").completion(t); text != "done" || g.executed() != 1 {
		t.Errorf("%q after %d calls", text, g.executed())
	}
	if got := g.audited(first); got != "asked by a, approved by d, void by " {
		t.Errorf("audited: %s", got)
	}
}

// Each call of an approved batch is compared with the tools that its server has immediately before
// it runs. Lists are requested again only if the server has announced a change. // P02 P14
func TestAToolThatChangesDuringAnApprovedBatchIsAskedForAgain(t *testing.T) {
	noLeaks(t)
	for _, change := range []struct {
		name   string
		do     func(*mcpServer)
		lists  int    // requests of lists after the decision
		second string // status of the second approval
		told   string // what the model is told of the second call, unless it is asked for again
	}{
		{"nothing", func(*mcpServer) {}, 0, "approved", `{"n":2}`},
		{"another tool", func(m *mcpServer) { m.add("look", echo, false); m.announces.Store(true) }, 1, "approved", `{"n":2}`},
		{"the tool", func(m *mcpServer) { m.add("pay", echo, true); m.announces.Store(true) }, 1, "void", ""},
		{"it is removed", func(m *mcpServer) { m.sdk.RemoveTools("pay"); m.announces.Store(true) }, 1, "approved", "was removed or changed"},
		{"no list any more", func(m *mcpServer) { m.silent.Store(true); m.announces.Store(true) }, 1, "approved", "could not list its tools"},
	} {
		t.Run(change.name, func(t *testing.T) {
			up := newUpstream(t, askGated(call{"delete", `{"n":1}`}, call{"pay", `{"n":2}`}))
			tools := newMCP(t, nil)
			// Only the announcement of a case is sent: the SDK would send its own one 10 ms after a change.
			tools.sdk = mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
			tools.add("look", echo, false)
			tools.add("pay", echo, false)
			changed, decided := 0, make(chan struct{})
			tools.add("delete", func(_ context.Context, arguments string) (string, error) {
				<-decided
				changed = len(tools.of("tools/list"))
				change.do(tools)
				return arguments, nil
			}, false)
			g := &gated{upstream: up, tools: tools}
			g.documented = manage(mustRunIn(t, t.TempDir(), site{upstream: up.URL, runtime: "tool_parallelism: serial", servers: []string{server("tools", tools.URL, "require_approval: always")}}.yaml(), environment()))
			open := g.ask(gatedQuestion)
			first := g.waiting()
			slices.SortFunc(first, func(a, b map[string]any) int { return strings.Compare(a["tool"].(string), b["tool"].(string)) })
			pay := first[1]["id"].(string)
			for _, a := range first {
				g.decide(a["id"].(string), "approve", "", 200)
			}
			close(decided)
			if change.second == "void" {
				again := g.only()
				if got := g.statusOf(pay); got != "void" || g.executed() != 1 {
					t.Errorf("the approval is %s after %d calls", got, g.executed())
				}
				if got := g.audited(pay); got != "asked by a, approved by d, void by " {
					t.Errorf("audited: %s", got)
				}
				g.decide(again, "deny", "", 200)
			}
			if text, _ := wait(t, open, "the answer").completion(t); text != "done" {
				t.Errorf("%q", text)
			}
			if !strings.Contains(g.told(), change.told) {
				t.Errorf("the model is told %s", g.told())
			}
			executed := 1
			if change.told == `{"n":2}` {
				executed = 2
			}
			if got := g.executed(); got != executed {
				t.Errorf("%d calls, want %d", got, executed)
			}
			if got := g.statusOf(pay); got != change.second {
				t.Errorf("the approval is %s, want %s", got, change.second)
			}
			if change.second != "void" && len(tools.of("tools/list"))-changed != change.lists {
				t.Errorf("%d lists were requested, want %d", len(tools.of("tools/list"))-changed, change.lists)
			}
		})
	}
}

// Free calls do not wait for gated ones, and all gated ones are asked for at once. // H02
func TestFreeCallsRunBeforeTheQuestion(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "", "require_approval: {always: {tool_names: [delete]}}")
	g.upstream.answer = askGated(call{"delete", `{"n":1}`}, call{"look", `{"n":2}`}, call{"delete", `{"n":3}`})
	open := g.ask(gatedQuestion)
	found := g.waiting()
	if len(found) != 2 || g.executed() != 1 {
		t.Fatalf("%d calls, and these wait: %v", g.executed(), found)
	}
	slices.SortFunc(found, func(a, b map[string]any) int { // both have the same time
		return strings.Compare(fmt.Sprint(a["call_key"]), fmt.Sprint(b["call_key"]))
	})
	g.decide(found[1]["id"].(string), "approve", "", 200)
	if g.executed() != 1 {
		t.Error("a call was executed before all are decided")
	}
	g.decide(found[0]["id"].(string), "deny", "", 200)
	if text, _ := wait(t, open, "the answer").completion(t); text != "done" || g.executed() != 2 {
		t.Errorf("%q after %d calls", text, g.executed())
	}
	if told := g.told(); told != `Tool call denied by user.|{"n":2}|{"n":3}` { // in the order of the calls
		t.Errorf("the model was told %s", told)
	}
}

// The forms of require_approval, with annotations that are believed and that are not. // D14 P60
func TestRulesSelectTheCallsThatWait(t *testing.T) {
	for rule, waits := range map[string]string{
		"require_approval: never":                                                                 "",
		"require_approval: always":                                                                "delete look",
		"require_approval: {always: {tool_names: [look]}}":                                        "look",
		"require_approval: {never: {tool_names: [look]}}":                                         "delete",
		"require_approval: {never: {read_only: true}}, trust: true":                               "delete",
		"require_approval: writes, trust: true":                                                   "delete",
		"require_approval: writes":                                                                "delete look",
		"require_approval: {always: {tool_names: [lok]}}":                                         "delete look",
		"require_approval: {always: {tool_names: [lok, look]}}, trust: true":                      "delete look",
		"require_approval: {always: {tool_names: [lok]}}, trust: true":                            "delete",
		"require_approval: {always: {read_only: false}}, trust: true":                             "delete",
		"require_approval: {always: {tool_names: [look]}, never: {read_only: true}}, trust: true": "delete look",
	} {
		t.Run(rule, func(t *testing.T) {
			noLeaks(t)
			g := runGated(t, "", rule)
			g.upstream.answer = askGated(call{"delete", `{}`}, call{"look", `{}`})
			open := g.ask(gatedQuestion)
			if waits != "" {
				for _, a := range g.waiting() {
					g.decide(a["id"].(string), "deny", "", 200)
				}
			}
			wait(t, open, "the answer")
			got := map[any]bool{}
			for _, a := range objects(g.do("GET", "/v1/approvals", "owner-key", "", 200)) {
				got[a["tool"]] = true
			}
			for _, tool := range []string{"delete", "look"} {
				if want := strings.Contains(waits, tool); got[tool] != want {
					t.Errorf("%s waited: %v, want %v", tool, got[tool], want)
				}
			}
			if n := g.executed(); n != 2-len(got) {
				t.Errorf("%d calls were executed", n)
			}
		})
	}
}

// A server that the management API changes has its rule for the next request. // H03
func TestStoredServersHaveTheirRule(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "approval_hold: 1s", "enabled: false")
	made := g.do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"more","url":%q,"require_approval":"always","approval_timeout":"90s"}`, g.tools.URL), 201)
	if made["require_approval"] != "always" || made["approval_timeout"] != "1m30s" {
		t.Errorf("created: %v", made)
	}
	g.post(gatedQuestion)
	if g.executed() != 0 {
		t.Error("the call was executed")
	}
	g.do("PATCH", "/api/mcp-servers/more", "owner-key", `{"require_approval":{"always":{"tool_names":["look"]}}}`, 200)
	g.post(gatedQuestion)
	if g.executed() != 1 {
		t.Error("the call was not executed")
	}
	g.do("PATCH", "/api/mcp-servers/more", "owner-key", `{"require_approval":{"always":{"tool_names":["delete"]}}}`, 200)
	g.post(gatedQuestion)
	if g.executed() != 1 {
		t.Error("the call was executed")
	}
	refused := g.do("PATCH", "/api/mcp-servers/more", "owner-key", `{"require_approval":"sometimes"}`, 422)
	if !strings.Contains(fmt.Sprint(refused), "require_approval") {
		t.Errorf("%v", refused)
	}
	if n := len(objects(g.do("GET", "/v1/approvals?server=more", "owner-key", "", 200))); n != 2 {
		t.Errorf("%d approvals", n)
	}
	if n := len(objects(g.do("GET", "/v1/approvals?server=tools", "owner-key", "", 200))); n != 0 {
		t.Errorf("%d approvals of a server that nobody uses", n)
	}
}

// A long poll ends with its client and at a shutdown, and an org has a number of them.
func TestAListWaitsForItsFirstApproval(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	if list := g.do("GET", "/v1/approvals?wait=1", "owner-key", "", 200); len(objects(list)) != 0 || list["first_id"] != nil || list["has_more"] != false {
		t.Errorf("%v", list)
	}
	// fill opens as many as the org may have, and returns when the next one is refused.
	fill := func(ctx context.Context) (end func() []answer) {
		var polls sync.WaitGroup
		answers := make([]answer, 32)
		for i := range answers {
			polls.Go(func() {
				for ; answers[i].status == 0 || answers[i].status == 429; pollPause() { // the one that looks may have a place
					resp, err := g.client.Do(g.request(ctx, "GET", "/v1/approvals?wait=60", nil))
					if err != nil {
						answers[i] = answer{status: -1, body: []byte(err.Error())}
						return
					}
					body, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					answers[i] = answer{resp.StatusCode, resp.Header, body}
				}
			})
		}
		for g.send("GET", "/v1/approvals?wait=1", nil).status != 429 {
			continue // it had a place itself
		}
		return func() []answer { polls.Wait(); return answers }
	}
	ctx, leave := context.WithCancel(t.Context())
	end := fill(ctx)
	leave()
	for _, a := range end() {
		if a.status != -1 {
			t.Errorf("status %d for a client that has left", a.status)
		}
	}
	g = runGated(t, "") // where all places are free
	end = fill(t.Context())
	begin := time.Now()
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	for _, a := range end() {
		if a.status != 200 || !bytes.Contains(a.body, []byte(`"data":[]`)) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("the gateway stopped after %s", took)
	}
}

// A long poll waits for an approval that it selects, whatever else waits or is decided. // H02
func TestAListWaitsForAnApprovalThatItSelects(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	poll := make(chan answer, 1)
	r := g.request(t.Context(), "GET", "/v1/approvals?status=denied&wait=60", nil, "Authorization", "Bearer approver-key")
	go func() {
		resp, err := g.client.Do(r)
		if err != nil {
			poll <- answer{status: -1, body: []byte(err.Error())}
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		poll <- answer{resp.StatusCode, resp.Header, body}
	}()
	for _, decision := range []string{"approve", "deny"} {
		open := g.ask(gatedQuestion)
		id := g.only()
		if len(poll) > 0 {
			t.Fatalf("the list has %s", (<-poll).body)
		}
		g.decide(id, decision, "", 200)
		wait(t, open, "the answer")
		if decision == "deny" {
			if a := wait(t, poll, "the list"); a.status != 200 || !bytes.Contains(a.body, []byte(id)) || bytes.Count(a.body, []byte(`"id":`)) != 1 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	}
}

// Half of the org's cap is for one key: what it asks for beyond is answered with an error, and
// other keys can still ask. // H02
func TestOneKeyCannotUseUpTheApprovalsOfItsOrg(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, askGated(call{"delete", `{"n":7}`}))
	tools := newMCP(t, map[string]handler{"delete": echo})
	yaml := site{upstream: up.URL, servers: []string{server("tools", tools.URL, "require_approval: always")}}.yaml() + "\norg_caps: {approvals: 3}\n"
	g := &gated{data: t.TempDir(), upstream: up, tools: tools}
	g.documented = manage(mustRunIn(t, g.data, yaml, environment()))
	var open []<-chan answer
	for n := range 2 {
		open = append(open, g.ask(gatedQuestion, "Idempotency-Key", fmt.Sprint(n)))
		g.waitingAre(n + 1)
	}
	if text, _ := g.post(gatedQuestion).completion(t); text != "done" || !strings.Contains(g.told(), "too many calls wait") {
		t.Errorf("%q; the model was told %q", text, g.told())
	}
	for _, want := range []string{"no more approvals can wait", "principal=a", "the key has reached its limit of 2 waiting approvals", "org_caps.approvals"} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("the log does not have %q", want)
		}
	}
	open = append(open, g.ask(gatedQuestion, "Authorization", "Bearer member-key"))
	for _, a := range g.waitingAre(3) {
		g.decide(a["id"].(string), "deny", "", 200)
	}
	for _, c := range open {
		wait(t, c, "the answer")
	}
}

// Bodies and parameters are checked.
func TestADecisionIsChecked(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	open := g.ask(gatedQuestion)
	id := g.only()
	for body, want := range map[string]string{
		`{}`: "missing_required_parameter decision", `{"decision":"maybe"}`: "invalid_value decision", `{"decision":true}`: "invalid_type decision",
		`{"decision":null}`: "invalid_type decision", `{"decision":"approve","reason":7}`: "invalid_type reason", `{"decision":"approve","approved":true}`: "unknown_parameter approved",
		`{"decision":"approve","reason":"` + strings.Repeat("x", 5000) + `"}`: "invalid_value reason", `[]`: "invalid_json <nil>", `{"decision":`: "invalid_json <nil>",
	} {
		refused := g.do("POST", "/v1/approvals/"+id, "owner-key", body, 400)["error"].(map[string]any)
		if got := fmt.Sprint(refused["code"], " ", refused["param"]); got != want {
			t.Errorf("%.60s: %s, want %s: %v", body, got, want, refused["message"])
		}
	}
	for query, want := range map[string]string{
		"status=open": "invalid_value status", "limit=0": "invalid_value limit", "limit=101": "invalid_value limit", "wait=61": "invalid_value wait", "wait=1s": "invalid_value wait",
		"state=waiting": "unknown_parameter state", "limit=1&limit=2": "invalid_value limit",
	} {
		refused := g.do("GET", "/v1/approvals?"+query, "owner-key", "", 400)["error"].(map[string]any)
		if got := fmt.Sprint(refused["code"], " ", refused["param"]); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if g.statusOf(id) != "waiting" {
		t.Error("a refused body has decided")
	}
	g.decide(id, "deny", "", 200)
	wait(t, open, "the answer")
}

// Large arguments are shown whole to who decides, and left out of lists. Pages are complete.
func TestListsHavePagesAndLeaveOutLargeArguments(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "approval_hold: 2s, tool_arg_validation: none")
	large := fmt.Sprintf(`{"n":1,"text":%q}`, strings.Repeat("x", 200_000))
	g.upstream.answer = askGated(call{"delete", large}, call{"delete", `{"n":2}`}, call{"delete", `{"n":3}`})
	open := g.ask(gatedQuestion)
	found := g.waiting()
	omitted := 0
	for _, a := range found {
		if a["arguments_omitted"] == true {
			omitted++
			one := g.do("GET", "/v1/approvals/"+a["id"].(string), "owner-key", "", 200)
			if text := one["arguments"].(map[string]any)["text"].(string); len(text) != 200_000 || one["arguments_omitted"] != false {
				t.Errorf("%d bytes", len(text))
			}
		}
	}
	if len(found) != 3 || omitted != 1 {
		t.Fatalf("%d approvals, %d without arguments", len(found), omitted)
	}
	var paged []string
	for before := ""; ; {
		page := g.do("GET", "/v1/approvals?limit=1"+before, "owner-key", "", 200)
		paged = append(paged, objects(page)[0]["id"].(string))
		if page["has_more"] == false {
			break
		}
		before = "&before=" + page["last_id"].(string)
	}
	for i, a := range found {
		if len(paged) != 3 || paged[i] != a["id"] {
			t.Fatalf("pages %v", paged)
		}
	}
	run := found[0]["run_id"].(string)
	if n := len(objects(g.do("GET", "/v1/approvals?run_id="+run+"&status=waiting,approved", "owner-key", "", 200))); n != 3 {
		t.Errorf("%d approvals of the run", n)
	}
	if n := len(objects(g.do("GET", "/v1/approvals?run_id=run_0", "owner-key", "", 200))); n != 0 {
		t.Errorf("%d approvals of no run", n)
	}
	g.do("POST", "/v1/runs/"+run+"/cancel", "owner-key", "", 202)
	wait(t, open, "the answer")
	if n := len(objects(g.do("GET", "/v1/approvals?status=void", "owner-key", "", 200))); n != 3 {
		t.Errorf("%d approvals of a cancelled run are void", n)
	}
}

// A reload that changes the rule affects later runs. // H03
func TestAReloadChangesTheRuleOfLaterRuns(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, askGated(call{"delete", `{"n":7}`}))
	tools := newMCP(t, map[string]handler{"delete": echo})
	yaml := func(rule string) string {
		return site{upstream: up.URL, servers: []string{server("tools", tools.URL, "require_approval: "+rule)}}.yaml()
	}
	r := serve(t, yaml("always"))
	g := &gated{documented: manage(r.gateway), upstream: up, tools: tools}
	open := g.ask(gatedQuestion)
	id := g.only()
	r.reload(t, yaml("never"), "require_approval")
	if text, _ := g.post(gatedQuestion).completion(t); text != "done" || g.executed() != 1 {
		t.Errorf("after the reload: %q, %d calls", text, g.executed())
	}
	if g.statusOf(id) != "waiting" {
		t.Error("the earlier call does not wait any more")
	}
	g.decide(id, "approve", "", 200)
	if text, _ := wait(t, open, "the answer").completion(t); text != "done" || g.executed() != 2 {
		t.Errorf("%q after %d calls", text, g.executed())
	}
	if got := g.audited(id); got != "asked by a, approved by d, executed by a" {
		t.Errorf("audited: %s", got)
	}
}

// A scrape shows what waits and what was decided, also after a restart. // M02
// P02 L03: the span of an approved call says what was approved, in the trace of its request,
// also after a restart.
func TestTheSpanOfAnApprovedCall(t *testing.T) {
	noLeaks(t)
	sink := newSpanSink(t)
	up := newUpstream(t, askGated(call{"delete", `{"n":7}`}))
	tools := newMCP(t, map[string]handler{"delete": echo})
	yaml := site{upstream: up.URL, servers: []string{server("tools", tools.URL, "require_approval: always")}}.yaml()
	g := &gated{data: t.TempDir(), upstream: up, tools: tools}
	g.documented = manage(mustRunIn(t, g.data, yaml, withCollector(sink)))
	open := g.ask(gatedQuestion, "Idempotency-Key", "k", "Traceparent", traceparent)
	id := g.only()
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	wait(t, open, "the end")
	g.documented = manage(mustRunIn(t, g.data, yaml, withCollector(sink)))
	g.decide(id, "approve", "", 200)
	if text, _ := g.again(gatedQuestion, "k").completion(t); text != "done" {
		t.Errorf("the answer is %q", text)
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	span := sink.named("execute_tool delete", 0)
	if a := attributes(span.Attributes); a["approval_id"] != id || a["approval_waited_ms"] == "" || a["outcome"] != "ok" {
		t.Errorf("the call has the attributes %v", a)
	}
	if fmt.Sprintf("%x", span.TraceId) != clientTrace {
		t.Errorf("the call belongs to the trace %x", span.TraceId)
	}
}

func TestMetricsOfApprovals(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, askGated(call{"delete", `{"n":7}`}))
	tools := newMCP(t, map[string]handler{"delete": echo})
	yaml := site{upstream: up.URL, servers: []string{server("tools", tools.URL, "require_approval: always")}}.yaml() + "\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"
	g := &gated{data: t.TempDir(), upstream: up, tools: tools}
	g.documented = manage(mustRunIn(t, g.data, yaml, environment()))
	open := g.ask(gatedQuestion, "Idempotency-Key", "k")
	id := g.only()
	check := func(want map[string]float64) {
		t.Helper()
		got := scrape(t, g.gateway)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s is %v, want %v", name, got[name], value)
			}
		}
	}
	check(map[string]float64{"turnpike_approvals_waiting{}": 1, "turnpike_approvals_total{action=asked,org=o}": 1})
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	wait(t, open, "the end")
	g.documented = manage(mustRunIn(t, g.data, yaml, environment()))
	check(map[string]float64{"turnpike_approvals_waiting{}": 1})
	g.decide(id, "deny", "", 200)
	g.again(gatedQuestion, "k")
	check(map[string]float64{
		"turnpike_approvals_waiting{}": 0, "turnpike_approvals_oldest_waiting_seconds{}": 0,
		"turnpike_approvals_total{action=denied,org=o}": 1, "turnpike_approval_wait_seconds{decision=denied}": 1,
	})
}
