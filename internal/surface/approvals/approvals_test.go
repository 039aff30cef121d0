package approvals_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A request stays open until a person decides, as JSON and as a stream. // H02 H03 P02
func TestAToolCallRunsWhenAPersonApprovesIt(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	for _, c := range []struct {
		body string
		text func(Answer) string
	}{
		{GatedQuestion, func(a Answer) string { text, reason := a.Completion(t); return text + " " + reason }},
		{StreamedGatedQuestion, func(a Answer) string {
			s := a.Stream(t)
			return s.Text + " " + strings.Join(append(s.Reasons, s.Errors...), ",")
		}},
	} {
		before := g.Executed()
		open := g.Ask(c.body, "Authorization", "Bearer member-key")
		found := g.Waiting()
		if len(found) != 1 {
			t.Fatalf("waiting: %v", found)
		}
		a := found[0]
		id := a["id"].(string)
		if a["object"] != "approval" || a["server"] != "tools" || a["tool"] != "delete" || a["principal"] != "c" || a["surface"] != "chat" || a["asker"] != "server" ||
			fmt.Sprint(a["arguments"]) != "map[n:7]" || a["arguments_omitted"] != false || a["decided_at"] != nil || a["tool_digest"] == "" || a["arguments_digest"] == "" {
			t.Errorf("the approval: %v", a)
		}
		if g.Executed() != before {
			t.Fatal("the tool was called before anybody has approved it")
		}
		if run := g.Do("GET", "/v1/runs/"+a["run_id"].(string), "owner-key", "", 200); run["state"] != "waiting" {
			t.Errorf("the run is %v", run["state"])
		}
		decided := g.Decide(id, "approve", "go ahead", 200)
		if decided["status"] != "approved" || decided["decided_by"] != "d" || decided["reason"] != "go ahead" || decided["decided_at"] == nil {
			t.Errorf("decided: %v", decided)
		}
		if got := c.text(Wait(t, open, "the answer")); got != "done stop" {
			t.Errorf("the answer is %q", got)
		}
		if n := g.Executed() - before; n != 1 || g.Told() != `{"n":7}` {
			t.Errorf("the tool was called %d times; the model was told %q", n, g.Told())
		}
		g.Decide(id, "approve", "", 200) // the same again
		if refused := g.Decide(id, "deny", "", 409); fmt.Sprint(refused["error"].(map[string]any)["code"]) != "already_decided" {
			t.Errorf("%v", refused)
		}
		if got := g.Audited(id); got != "asked by c, approved by d, executed by c" {
			t.Errorf("audited: %s", got)
		}
	}
}

func TestTheModelIsToldWhyACallWasDenied(t *testing.T) { // H02
	NoLeaks(t)
	g := RunGated(t, "")
	open := g.Ask(GatedQuestion)
	id := g.Only()
	g.Decide(id, "deny", "not in production", 200)
	if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" || g.Executed() != 0 || !strings.Contains(g.Told(), "not in production") {
		t.Errorf("%q after %d calls; the model was told %q", text, g.Executed(), g.Told())
	}
	if got := g.Audited(id); got != "asked by a, denied by d" {
		t.Errorf("audited: %s", got)
	}
}

// Nobody decides while the request is open. // H06
func TestACallThatNobodyDecidesIsDenied(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "approval_hold: 1s")
	open := g.Ask(GatedQuestion)
	id := g.Only()
	text, _ := Wait(t, open, "the answer").Completion(t)
	if text != "done" || g.Executed() != 0 || !strings.Contains(g.Told(), "Approval timed out") {
		t.Errorf("%q after %d calls; the model was told %q", text, g.Executed(), g.Told())
	}
	if refused := g.Decide(id, "approve", "", 409); fmt.Sprint(refused["error"].(map[string]any)["code"]) != "approval_expired" || g.StatusOf(id) != "expired" {
		t.Errorf("%v", refused)
	}
	if got := g.Audited(id); !strings.HasPrefix(got, "asked by a, expired by ") {
		t.Errorf("audited: %s", got)
	}
}

// The client leaves, somebody decides, and the client comes back with its key. // H12 P02
func TestAClientComesBackForTheAnswerOfARunThatWaited(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	for i, body := range []string{GatedQuestion, StreamedGatedQuestion} {
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		key := fmt.Sprint("k", i)
		r := g.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(body), "Idempotency-Key", key)
		go func() {
			resp, err := g.Client.Do(r)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			gone <- err
		}()
		id := g.Only()
		leave()
		if Wait(t, gone, "the client") == nil {
			t.Fatal("the request has ended")
		}
		attached := g.Ask(body, "Idempotency-Key", key) // it attaches to the run that waits
		if g.StatusOf(id) != "waiting" {
			t.Error("the approval does not wait any more")
		}
		g.Decide(id, "approve", "", 200)
		back := Wait(t, attached, "the attached answer")
		if i == 0 {
			if text, _ := back.Completion(t); text != "done" {
				t.Errorf("the attached answer is %q", text)
			}
		} else if text := back.Stream(t).Text; text != "done" {
			t.Errorf("the attached answer is %q", text)
		}
		for _, a := range []Answer{g.Again(body, key), g.Again(body, key)} {
			var text string
			if i == 0 {
				text, _ = a.Completion(t)
			} else {
				text = a.Stream(t).Text
			}
			if text != "done" {
				t.Errorf("the answer is %q", text)
			}
		}
		if g.Executed() != i+1 {
			t.Errorf("the tool was called %d times", g.Executed())
		}
	}
}

// A restart while a call waits, and the tool runs once. // H12 P02
func TestACallThatWaitsSurvivesARestart(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	r := g.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(GatedQuestion), "Idempotency-Key", "k")
	go func() {
		defer close(gone)
		if resp, err := g.Client.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	id := g.Only()
	leave()
	Wait(t, gone, "the client")
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
	if got := g.Only(); got != id || g.Executed() != 0 {
		t.Errorf("%s waits, not %s; %d calls", got, id, g.Executed())
	}
	g.Decide(id, "approve", "", 200)
	if text, _ := g.Again(GatedQuestion, "k").Completion(t); text != "done" || g.Executed() != 1 {
		t.Errorf("%q after %d calls", text, g.Executed())
	}
}

// Two people decide at the same time, and one of them is too late. // P02
func TestOneDecisionWins(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	for range 5 {
		open := g.Ask(GatedQuestion)
		id := g.Only()
		var all sync.WaitGroup
		answers := make([]Answer, 8)
		for i := range answers {
			decision := []string{"approve", "deny"}[i%2]
			r := g.Request(t.Context(), "POST", "/v1/approvals/"+id, strings.NewReader(`{"decision":"`+decision+`"}`), "Authorization", "Bearer "+[]string{"approver-key", "admin-key"}[i%2])
			all.Go(func() {
				resp, err := g.Client.Do(r)
				if err != nil {
					return
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				answers[i] = Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
			})
		}
		all.Wait()
		won := map[string]int{}
		for i, a := range answers {
			won[fmt.Sprint([]string{"approve", "deny"}[i%2], " ", a.Status)]++
		}
		if !(won["approve 200"] == 4 && won["deny 409"] == 4 || won["deny 200"] == 4 && won["approve 409"] == 4) {
			t.Errorf("%v", won)
		}
		if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" {
			t.Errorf("the answer is %q", text)
		}
		if got := g.Audited(id); strings.Count(got, "approved")+strings.Count(got, "denied") != 1 {
			t.Errorf("audited: %s", got)
		}
	}
}

// Who may decide. // P02
func TestTheKeyThatAsksMayNotDecideIfTheOrgSaysSo(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "approvers: others")
	open := g.Ask(GatedQuestion, "Authorization", "Bearer admin-key")
	id := g.Only()
	refused := g.Do("POST", "/v1/approvals/"+id, "admin-key", `{"decision":"approve"}`, 403)
	if fmt.Sprint(refused["error"].(map[string]any)["code"]) != "own_approval" || g.StatusOf(id) != "waiting" {
		t.Errorf("%v", refused)
	}
	for key, reads := range map[string]int{"member-key": 403, "reader-key": 200} {
		g.Do("POST", "/v1/approvals/"+id, key, `{"decision":"approve"}`, 403)
		g.Do("GET", "/v1/approvals/"+id, key, "", reads)
		g.Do("GET", "/v1/approvals", key, "", reads)
	}
	g.Do("POST", "/v1/approvals/"+id, "owner-key", `{"decision":"approve"}`, 200)
	if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" {
		t.Errorf("the answer is %q", text)
	}
}

// Nobody learns whether another org has an approval. // P02 K07
func TestAnApprovalOfAnotherOrgDoesNotExist(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, AskGated(Use("delete", `{}`)))
	tools := NewMCP(t, map[string]Handler{"delete": Echo})
	yaml := strings.Replace(Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL, "require_approval: always")}}.WithVault(), "    runtime: {}\n", "", 1)
	g := &Gated{Documented: Manage(MustRun(t, yaml)), Upstream: up, Tools: tools}
	g.Do("POST", "/api/orgs", "operator-key", `{"id":"other"}`, 201)
	stranger := g.Do("POST", "/api/orgs/other/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	open := g.Ask(GatedQuestion)
	id := g.Only()
	for _, method := range []string{"GET", "POST"} {
		ask := func(id string) Answer {
			return g.Send(method, "/v1/approvals/"+id, strings.NewReader(`{"decision":"approve"}`), "Authorization", "Bearer "+stranger)
		}
		there, missing := ask(id), ask("appr_00000000000000000000")
		if there.Status != 404 || missing.Status != 404 || !bytes.Equal(there.Body, missing.Body) {
			t.Errorf("%s: %d %s\n%d %s", method, there.Status, there.Body, missing.Status, missing.Body)
		}
	}
	there := g.Send("GET", "/v1/approvals?before="+id, nil, "Authorization", "Bearer "+stranger)
	missing := g.Send("GET", "/v1/approvals?before=appr_0", nil, "Authorization", "Bearer "+stranger)
	if there.Status != 404 || !bytes.Equal(there.Body, missing.Body) {
		t.Errorf("%s\n%s", there.Body, missing.Body)
	}
	if list := g.Do("GET", "/v1/approvals", stranger, "", 200); len(Objects(list)) != 0 {
		t.Errorf("%v", list)
	}
	g.Decide(id, "deny", "", 200)
	Wait(t, open, "the answer")
}

// What was approved is this definition of the tool. // P02 P14
func TestAChangedToolIsAskedForAgain(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "catalog_ttl: 0s")
	open := g.Ask(GatedQuestion)
	first := g.Only()
	g.Tools.Sdk.RemoveTools("delete")
	g.Tools.Add("delete", Echo, true) // other annotations
	g.Decide(first, "approve", "", 200)
	second := g.Only()
	if second == first || g.StatusOf(first) != "void" || g.Executed() != 0 {
		t.Fatalf("%s is %s, %s waits, %d calls", first, g.StatusOf(first), second, g.Executed())
	}
	if refused := g.Decide(first, "deny", "", 409); fmt.Sprint(refused["error"].(map[string]any)["code"]) != "approval_void" {
		t.Errorf("%v", refused)
	}
	a, b := g.Do("GET", "/v1/approvals/"+first, "owner-key", "", 200), g.Do("GET", "/v1/approvals/"+second, "owner-key", "", 200)
	if a["tool_digest"] == b["tool_digest"] || a["arguments_digest"] != b["arguments_digest"] {
		t.Errorf("%v\n%v", a, b)
	}
	g.Decide(second, "approve", "", 200)
	if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" || g.Executed() != 1 {
		t.Errorf("%q after %d calls", text, g.Executed())
	}
	if got := g.Audited(first); got != "asked by a, approved by d, void by " {
		t.Errorf("audited: %s", got)
	}
}

// Each call of an approved batch is compared with the tools that its server has immediately before
// it runs. Lists are requested again only if the server has announced a change. // P02 P14
func TestAToolThatChangesDuringAnApprovedBatchIsAskedForAgain(t *testing.T) {
	NoLeaks(t)
	for _, change := range []struct {
		name   string
		do     func(*MCPServer)
		lists  int    // requests of lists after the decision
		second string // status of the second approval
		told   string // what the model is told of the second call, unless it is asked for again
	}{
		{"nothing", func(*MCPServer) {}, 0, "approved", `{"n":2}`},
		{"another tool", func(m *MCPServer) { m.Add("look", Echo, false); m.Announces.Store(true) }, 1, "approved", `{"n":2}`},
		{"the tool", func(m *MCPServer) { m.Add("pay", Echo, true); m.Announces.Store(true) }, 1, "void", ""},
		{"it is removed", func(m *MCPServer) { m.Sdk.RemoveTools("pay"); m.Announces.Store(true) }, 1, "approved", "was removed or changed"},
		{"no list any more", func(m *MCPServer) { m.Silent.Store(true); m.Announces.Store(true) }, 1, "approved", "could not list its tools"},
	} {
		t.Run(change.name, func(t *testing.T) {
			up := NewUpstream(t, AskGated(Use("delete", `{"n":1}`), Use("pay", `{"n":2}`)))
			tools := NewMCP(t, nil)
			// Only the announcement of a case is sent: the SDK would send its own one 10 ms after a change.
			tools.Sdk = mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
			tools.Add("look", Echo, false)
			tools.Add("pay", Echo, false)
			changed, decided := 0, make(chan struct{})
			tools.Add("delete", func(_ context.Context, arguments string) (string, error) {
				<-decided
				changed = len(tools.Of("tools/list"))
				change.do(tools)
				return arguments, nil
			}, false)
			g := &Gated{Upstream: up, Tools: tools}
			g.Documented = Manage(MustRun(t, Site{Upstream: up.URL, Runtime: "tool_parallelism: serial", Servers: []string{Server("tools", tools.URL, "require_approval: always")}}.Yaml()))
			open := g.Ask(GatedQuestion)
			first := g.Waiting()
			slices.SortFunc(first, func(a, b map[string]any) int { return strings.Compare(a["tool"].(string), b["tool"].(string)) })
			pay := first[1]["id"].(string)
			for _, a := range first {
				g.Decide(a["id"].(string), "approve", "", 200)
			}
			close(decided)
			if change.second == "void" {
				again := g.Only()
				if got := g.StatusOf(pay); got != "void" || g.Executed() != 1 {
					t.Errorf("the approval is %s after %d calls", got, g.Executed())
				}
				if got := g.Audited(pay); got != "asked by a, approved by d, void by " {
					t.Errorf("audited: %s", got)
				}
				g.Decide(again, "deny", "", 200)
			}
			if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" {
				t.Errorf("%q", text)
			}
			if !strings.Contains(g.Told(), change.told) {
				t.Errorf("the model is told %s", g.Told())
			}
			executed := 1
			if change.told == `{"n":2}` {
				executed = 2
			}
			if got := g.Executed(); got != executed {
				t.Errorf("%d calls, want %d", got, executed)
			}
			if got := g.StatusOf(pay); got != change.second {
				t.Errorf("the approval is %s, want %s", got, change.second)
			}
			if change.second != "void" && len(tools.Of("tools/list"))-changed != change.lists {
				t.Errorf("%d lists were requested, want %d", len(tools.Of("tools/list"))-changed, change.lists)
			}
		})
	}
}

// Free calls do not wait for gated ones, and all gated ones are asked for at once. // H02
func TestFreeCallsRunBeforeTheQuestion(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "", "require_approval: {always: {tool_names: [delete]}}")
	g.Upstream.Answer = AskGated(Use("delete", `{"n":1}`), Use("look", `{"n":2}`), Use("delete", `{"n":3}`))
	open := g.Ask(GatedQuestion)
	found := g.Waiting()
	if len(found) != 2 || g.Executed() != 1 {
		t.Fatalf("%d calls, and these wait: %v", g.Executed(), found)
	}
	slices.SortFunc(found, func(a, b map[string]any) int { // both have the same time
		return strings.Compare(fmt.Sprint(a["call_key"]), fmt.Sprint(b["call_key"]))
	})
	g.Decide(found[1]["id"].(string), "approve", "", 200)
	if g.Executed() != 1 {
		t.Error("a call was executed before all are decided")
	}
	g.Decide(found[0]["id"].(string), "deny", "", 200)
	if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" || g.Executed() != 2 {
		t.Errorf("%q after %d calls", text, g.Executed())
	}
	if told := g.Told(); told != `Tool call denied by user.|{"n":2}|{"n":3}` { // in the order of the calls
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
			NoLeaks(t)
			g := RunGated(t, "", rule)
			g.Upstream.Answer = AskGated(Use("delete", `{}`), Use("look", `{}`))
			open := g.Ask(GatedQuestion)
			if waits != "" {
				for _, a := range g.Waiting() {
					g.Decide(a["id"].(string), "deny", "", 200)
				}
			}
			Wait(t, open, "the answer")
			got := map[any]bool{}
			for _, a := range Objects(g.Do("GET", "/v1/approvals", "owner-key", "", 200)) {
				got[a["tool"]] = true
			}
			for _, tool := range []string{"delete", "look"} {
				if want := strings.Contains(waits, tool); got[tool] != want {
					t.Errorf("%s waited: %v, want %v", tool, got[tool], want)
				}
			}
			if n := g.Executed(); n != 2-len(got) {
				t.Errorf("%d calls were executed", n)
			}
		})
	}
}

// A server that the management API changes has its rule for the next request. // H03
func TestStoredServersHaveTheirRule(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "approval_hold: 1s", "enabled: false")
	made := g.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"more","url":%q,"require_approval":"always","approval_timeout":"90s"}`, g.Tools.URL), 201)
	if made["require_approval"] != "always" || made["approval_timeout"] != "1m30s" {
		t.Errorf("created: %v", made)
	}
	g.Post(GatedQuestion)
	if g.Executed() != 0 {
		t.Error("the call was executed")
	}
	g.Do("PATCH", "/api/mcp-servers/more", "owner-key", `{"require_approval":{"always":{"tool_names":["look"]}}}`, 200)
	g.Post(GatedQuestion)
	if g.Executed() != 1 {
		t.Error("the call was not executed")
	}
	g.Do("PATCH", "/api/mcp-servers/more", "owner-key", `{"require_approval":{"always":{"tool_names":["delete"]}}}`, 200)
	g.Post(GatedQuestion)
	if g.Executed() != 1 {
		t.Error("the call was executed")
	}
	refused := g.Do("PATCH", "/api/mcp-servers/more", "owner-key", `{"require_approval":"sometimes"}`, 422)
	if !strings.Contains(fmt.Sprint(refused), "require_approval") {
		t.Errorf("%v", refused)
	}
	if n := len(Objects(g.Do("GET", "/v1/approvals?server=more", "owner-key", "", 200))); n != 2 {
		t.Errorf("%d approvals", n)
	}
	if n := len(Objects(g.Do("GET", "/v1/approvals?server=tools", "owner-key", "", 200))); n != 0 {
		t.Errorf("%d approvals of a server that nobody uses", n)
	}
}

// A long poll ends with its client and at a shutdown, and an org has a number of them.
func TestAListWaitsForItsFirstApproval(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	if list := g.Do("GET", "/v1/approvals?wait=1", "owner-key", "", 200); len(Objects(list)) != 0 || list["first_id"] != nil || list["has_more"] != false {
		t.Errorf("%v", list)
	}
	// fill opens as many as the org may have, and returns when the next one is refused.
	fill := func(ctx context.Context) (end func() []Answer) {
		var polls sync.WaitGroup
		answers := make([]Answer, 32)
		for i := range answers {
			polls.Go(func() {
				for ; answers[i].Status == 0 || answers[i].Status == 429; PollPause() { // the one that looks may have a place
					resp, err := g.Client.Do(g.Request(ctx, "GET", "/v1/approvals?wait=60", nil))
					if err != nil {
						answers[i] = Answer{Status: -1, Body: []byte(err.Error())}
						return
					}
					body, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					answers[i] = Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
				}
			})
		}
		for g.Send("GET", "/v1/approvals?wait=1", nil).Status != 429 {
			continue // it had a place itself
		}
		return func() []Answer { polls.Wait(); return answers }
	}
	ctx, leave := context.WithCancel(t.Context())
	end := fill(ctx)
	leave()
	for _, a := range end() {
		if a.Status != -1 {
			t.Errorf("status %d for a client that has left", a.Status)
		}
	}
	g = RunGated(t, "") // where all places are free
	end = fill(t.Context())
	begin := time.Now()
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, a := range end() {
		if a.Status != 200 || !bytes.Contains(a.Body, []byte(`"data":[]`)) {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if took := time.Since(begin); took > Patience {
		t.Errorf("the gateway stopped after %s", took)
	}
}

// A long poll waits for an approval that it selects, whatever else waits or is decided. // H02
func TestAListWaitsForAnApprovalThatItSelects(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	poll := make(chan Answer, 1)
	r := g.Request(t.Context(), "GET", "/v1/approvals?status=denied&wait=60", nil, "Authorization", "Bearer approver-key")
	go func() {
		resp, err := g.Client.Do(r)
		if err != nil {
			poll <- Answer{Status: -1, Body: []byte(err.Error())}
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		poll <- Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
	}()
	for _, decision := range []string{"approve", "deny"} {
		open := g.Ask(GatedQuestion)
		id := g.Only()
		if len(poll) > 0 {
			t.Fatalf("the list has %s", (<-poll).Body)
		}
		g.Decide(id, decision, "", 200)
		Wait(t, open, "the answer")
		if decision == "deny" {
			if a := Wait(t, poll, "the list"); a.Status != 200 || !bytes.Contains(a.Body, []byte(id)) || bytes.Count(a.Body, []byte(`"id":`)) != 1 {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		}
	}
}

// Half of the org's cap is for one key: what it asks for beyond is answered with an error, and
// other keys can still ask. // H02
func TestOneKeyCannotUseUpTheApprovalsOfItsOrg(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, AskGated(Use("delete", `{"n":7}`)))
	tools := NewMCP(t, map[string]Handler{"delete": Echo})
	yaml := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL, "require_approval: always")}}.Yaml() + "\norg_caps: {approvals: 3}\n"
	g := &Gated{Data: NewData(t), Upstream: up, Tools: tools}
	g.Documented = Manage(MustRunIn(t, g.Data, yaml, Environment()))
	var open []<-chan Answer
	for n := range 2 {
		open = append(open, g.Ask(GatedQuestion, "Idempotency-Key", fmt.Sprint(n)))
		g.WaitingAre(n + 1)
	}
	if text, _ := g.Post(GatedQuestion).Completion(t); text != "done" || !strings.Contains(g.Told(), "too many calls wait") {
		t.Errorf("%q; the model was told %q", text, g.Told())
	}
	for _, want := range []string{"no more approvals can wait", "principal=a", "the key has reached its limit of 2 waiting approvals", "org_caps.approvals"} {
		if !strings.Contains(g.Log.String(), want) {
			t.Errorf("the log does not have %q", want)
		}
	}
	open = append(open, g.Ask(GatedQuestion, "Authorization", "Bearer member-key"))
	for _, a := range g.WaitingAre(3) {
		g.Decide(a["id"].(string), "deny", "", 200)
	}
	for _, c := range open {
		Wait(t, c, "the answer")
	}
}

// Bodies and parameters are checked.
func TestADecisionIsChecked(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	open := g.Ask(GatedQuestion)
	id := g.Only()
	for body, want := range map[string]string{
		`{}`: "missing_required_parameter decision", `{"decision":"maybe"}`: "invalid_value decision", `{"decision":true}`: "invalid_type decision",
		`{"decision":null}`: "invalid_type decision", `{"decision":"approve","reason":7}`: "invalid_type reason", `{"decision":"approve","approved":true}`: "unknown_parameter approved",
		`{"decision":"approve","reason":"` + strings.Repeat("x", 5000) + `"}`: "invalid_value reason", `[]`: "invalid_json <nil>", `{"decision":`: "invalid_json <nil>",
	} {
		refused := g.Do("POST", "/v1/approvals/"+id, "owner-key", body, 400)["error"].(map[string]any)
		if got := fmt.Sprint(refused["code"], " ", refused["param"]); got != want {
			t.Errorf("%.60s: %s, want %s: %v", body, got, want, refused["message"])
		}
	}
	for query, want := range map[string]string{
		"status=open": "invalid_value status", "limit=0": "invalid_value limit", "limit=101": "invalid_value limit", "wait=61": "invalid_value wait", "wait=1s": "invalid_value wait",
		"state=waiting": "unknown_parameter state", "limit=1&limit=2": "invalid_value limit",
	} {
		refused := g.Do("GET", "/v1/approvals?"+query, "owner-key", "", 400)["error"].(map[string]any)
		if got := fmt.Sprint(refused["code"], " ", refused["param"]); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if g.StatusOf(id) != "waiting" {
		t.Error("a refused body has decided")
	}
	g.Decide(id, "deny", "", 200)
	Wait(t, open, "the answer")
}

// Large arguments are shown whole to who decides, and left out of lists. Pages are complete.
func TestListsHavePagesAndLeaveOutLargeArguments(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "approval_hold: 2s, tool_arg_validation: none")
	large := fmt.Sprintf(`{"n":1,"text":%q}`, strings.Repeat("x", 200_000))
	g.Upstream.Answer = AskGated(Use("delete", large), Use("delete", `{"n":2}`), Use("delete", `{"n":3}`))
	open := g.Ask(GatedQuestion)
	found := g.Waiting()
	omitted := 0
	for _, a := range found {
		if a["arguments_omitted"] == true {
			omitted++
			one := g.Do("GET", "/v1/approvals/"+a["id"].(string), "owner-key", "", 200)
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
		page := g.Do("GET", "/v1/approvals?limit=1"+before, "owner-key", "", 200)
		paged = append(paged, Objects(page)[0]["id"].(string))
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
	if n := len(Objects(g.Do("GET", "/v1/approvals?run_id="+run+"&status=waiting,approved", "owner-key", "", 200))); n != 3 {
		t.Errorf("%d approvals of the run", n)
	}
	if n := len(Objects(g.Do("GET", "/v1/approvals?run_id=run_0", "owner-key", "", 200))); n != 0 {
		t.Errorf("%d approvals of no run", n)
	}
	g.Do("POST", "/v1/runs/"+run+"/cancel", "owner-key", "", 202)
	Wait(t, open, "the answer")
	if n := len(Objects(g.Do("GET", "/v1/approvals?status=void", "owner-key", "", 200))); n != 3 {
		t.Errorf("%d approvals of a cancelled run are void", n)
	}
}

// A scrape shows what waits and what was decided, also after a restart. // M02
// P02 L03: the span of an approved call says what was approved, in the trace of its request,
// also after a restart.
func TestTheSpanOfAnApprovedCall(t *testing.T) {
	NoLeaks(t)
	sink := NewSpanSink(t)
	up := NewUpstream(t, AskGated(Use("delete", `{"n":7}`)))
	tools := NewMCP(t, map[string]Handler{"delete": Echo})
	yaml := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL, "require_approval: always")}}.Yaml()
	g := &Gated{Data: NewData(t), Upstream: up, Tools: tools}
	g.Documented = Manage(MustRunIn(t, g.Data, yaml, WithCollector(sink)))
	open := g.Ask(GatedQuestion, "Idempotency-Key", "k", "Traceparent", Traceparent)
	id := g.Only()
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	Wait(t, open, "the end")
	g.Documented = Manage(MustRunIn(t, g.Data, yaml, WithCollector(sink)))
	g.Decide(id, "approve", "", 200)
	if text, _ := g.Again(GatedQuestion, "k").Completion(t); text != "done" {
		t.Errorf("the answer is %q", text)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	span := sink.Named("execute_tool delete", 0)
	if a := Attributes(span.Attributes); a["approval_id"] != id || a["approval_waited_ms"] == "" || a["outcome"] != "ok" {
		t.Errorf("the call has the attributes %v", a)
	}
	if fmt.Sprintf("%x", span.TraceId) != ClientTrace {
		t.Errorf("the call belongs to the trace %x", span.TraceId)
	}
}

func TestMetricsOfApprovals(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, AskGated(Use("delete", `{"n":7}`)))
	tools := NewMCP(t, map[string]Handler{"delete": Echo})
	yaml := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL, "require_approval: always")}}.Yaml() + "\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"
	g := &Gated{Data: NewData(t), Upstream: up, Tools: tools}
	g.Documented = Manage(MustRunIn(t, g.Data, yaml, Environment()))
	open := g.Ask(GatedQuestion, "Idempotency-Key", "k")
	id := g.Only()
	check := func(want map[string]float64) {
		t.Helper()
		got := Scrape(t, g.Gateway)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s is %v, want %v", name, got[name], value)
			}
		}
	}
	check(map[string]float64{"turnpike_approvals_waiting{}": 1, "turnpike_approvals_total{action=asked,org=o}": 1})
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	Wait(t, open, "the end")
	g.Documented = Manage(MustRunIn(t, g.Data, yaml, Environment()))
	check(map[string]float64{"turnpike_approvals_waiting{}": 1})
	g.Decide(id, "deny", "", 200)
	g.Again(GatedQuestion, "k")
	check(map[string]float64{
		"turnpike_approvals_waiting{}": 0, "turnpike_approvals_oldest_waiting_seconds{}": 0,
		"turnpike_approvals_total{action=denied,org=o}": 1, "turnpike_approval_wait_seconds{decision=denied}": 1,
	})
}
