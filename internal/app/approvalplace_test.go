package app_test

import (
	"fmt"
	"net/url"
	"testing"
)

// An approval, waiting or remembered, holds for the server that the person has seen: not after its URL has changed, and
// not for another server that was created under its name. // P04 H11
func TestAnApprovalIsBoundToItsServer(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(
		asks(call{"delete", `{"n":1}`}), says("one"), asks(call{"delete", `{"n":2}`}), says("two"), asks(call{"delete", `{"n":3}`}), says("three")))
	first, second := newMCP(t, map[string]handler{"delete": echo}), newMCP(t, map[string]handler{"delete": echo})
	g := &gated{data: newData(t), upstream: up, tools: first}
	g.yaml = site{upstream: up.URL, runtime: "", servers: nil}.yaml()
	g.documented = manage(mustRunIn(t, g.data, g.yaml, environment()))
	create := func(at *mcpServer) {
		g.do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"pay","url":%q,"require_approval":"always"}`, at.URL), 201)
	}
	host := func(of *mcpServer) string {
		u, _ := url.Parse(of.URL)
		return u.Host
	}
	// waits returns the approval that waits, which must be about the server.
	waits := func(at *mcpServer) string {
		t.Helper()
		id := g.only()
		if got := g.do("GET", "/v1/approvals/"+id, "approver-key", "", 200)["host"]; got != host(at) {
			t.Errorf("the host is %v, want %s", got, host(at))
		}
		return id
	}
	const remember = `{"decision":"approve","remember_for_session":true}`
	answered := func(answers <-chan answer, want string, ofFirst, ofSecond int) {
		t.Helper()
		a := wait(t, answers, "the answer")
		if n, m := len(first.of("tools/call")), len(second.of("tools/call")); a.stream(t).text != want || n != ofFirst || m != ofSecond {
			t.Errorf("%d %s; the servers executed %d and %d calls, want %d and %d", a.status, a.body, n, m, ofFirst, ofSecond)
		}
	}
	create(first)
	answers := g.ask(sessionQuestion("s", ""))
	waiting := waits(first)
	g.do("PATCH", "/api/mcp-servers/pay", "owner-key", fmt.Sprintf(`{"url":%q}`, second.URL), 200)
	g.agentDecide(waiting, "approver-key", remember, 200)
	again := waits(second)
	if got := g.do("GET", "/v1/approvals/"+waiting, "approver-key", "", 200)["status"]; got != "void" || again == waiting {
		t.Errorf("the approval for the former URL is %v", got)
	}
	g.agentDecide(again, "approver-key", remember, 200)
	answered(answers, "one", 0, 1)

	g.do("PATCH", "/api/mcp-servers/pay", "owner-key", fmt.Sprintf(`{"url":%q}`, first.URL), 200)
	answers = g.ask(sessionQuestion("s", ""))
	g.agentDecide(waits(first), "approver-key", remember, 200)
	answered(answers, "two", 1, 1)

	g.do("DELETE", "/api/mcp-servers/pay", "owner-key", "", 200)
	create(first)
	answers = g.ask(sessionQuestion("s", ""))
	g.agentDecide(waits(first), "approver-key", `{"decision":"deny"}`, 200)
	answered(answers, "three", 1, 1)
}
