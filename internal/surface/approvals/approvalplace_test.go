package approvals_test

import (
	"fmt"
	"net/url"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// An approval, waiting or remembered, holds for the server that the person has seen: not after its URL has changed, and
// not for another server that was created under its name. // P04 H11
func TestAnApprovalIsBoundToItsServer(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(
		Asks(Use("delete", `{"n":1}`)), Says("one"), Asks(Use("delete", `{"n":2}`)), Says("two"), Asks(Use("delete", `{"n":3}`)), Says("three")))
	first, second := NewMCP(t, map[string]Handler{"delete": Echo}), NewMCP(t, map[string]Handler{"delete": Echo})
	g := &Gated{Data: NewData(t), Upstream: up, Tools: first}
	g.Yaml = Site{Upstream: up.URL, Runtime: "", Servers: nil}.Yaml()
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
	create := func(at *MCPServer) {
		g.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"pay","url":%q,"require_approval":"always"}`, at.URL), 201)
	}
	host := func(of *MCPServer) string {
		u, _ := url.Parse(of.URL)
		return u.Host
	}
	// waits returns the approval that waits, which must be about the server.
	waits := func(at *MCPServer) string {
		t.Helper()
		id := g.Only()
		if got := g.Do("GET", "/v1/approvals/"+id, "approver-key", "", 200)["host"]; got != host(at) {
			t.Errorf("the host is %v, want %s", got, host(at))
		}
		return id
	}
	const remember = `{"decision":"approve","remember_for_session":true}`
	answered := func(answers <-chan Answer, want string, ofFirst, ofSecond int) {
		t.Helper()
		a := Wait(t, answers, "the answer")
		if n, m := len(first.Of("tools/call")), len(second.Of("tools/call")); a.Stream(t).Text != want || n != ofFirst || m != ofSecond {
			t.Errorf("%d %s; the servers executed %d and %d calls, want %d and %d", a.Status, a.Body, n, m, ofFirst, ofSecond)
		}
	}
	create(first)
	answers := g.Ask(sessionQuestion("s", ""))
	waiting := waits(first)
	g.Do("PATCH", "/api/mcp-servers/pay", "owner-key", fmt.Sprintf(`{"url":%q}`, second.URL), 200)
	agentDecide(g, waiting, "approver-key", remember, 200)
	again := waits(second)
	if got := g.Do("GET", "/v1/approvals/"+waiting, "approver-key", "", 200)["status"]; got != "void" || again == waiting {
		t.Errorf("the approval for the former URL is %v", got)
	}
	agentDecide(g, again, "approver-key", remember, 200)
	answered(answers, "one", 0, 1)

	g.Do("PATCH", "/api/mcp-servers/pay", "owner-key", fmt.Sprintf(`{"url":%q}`, first.URL), 200)
	answers = g.Ask(sessionQuestion("s", ""))
	agentDecide(g, waits(first), "approver-key", remember, 200)
	answered(answers, "two", 1, 1)

	g.Do("DELETE", "/api/mcp-servers/pay", "owner-key", "", 200)
	create(first)
	answers = g.Ask(sessionQuestion("s", ""))
	agentDecide(g, waits(first), "approver-key", `{"decision":"deny"}`, 200)
	answered(answers, "three", 1, 1)
}
