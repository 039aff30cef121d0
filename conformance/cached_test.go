package conformance

import (
	"net/http"
	"testing"
)

// testCached asks twice: with tool_cache_ttl_seconds and cache, the second
// question costs the server nothing.
func testCached(t *testing.T, s *site) { // F01 F02 F04
	r := s.newRig(t, sumScript)
	r.manage(t, http.MethodPatch, "/api/org/runtime", object{"tool_cache_ttl_seconds": 60}, http.StatusOK)
	r.manage(t, http.MethodPost, "/api/mcp-servers", object{"name": "tools", "url": r.proxy.URL + "/mcp", "cache": "all"}, http.StatusCreated)
	question := r.askFresh()
	for _, c := range r.clients {
		wantEqual(t, "answer to "+c.name(), sumAnswer, answer(t, c, question).Text)
	}
	r.wantToolCalls(t, "echo", `{"message":"20 22"}`, "get-sum", `{"a":20,"b":22}`) // once, for both clients

	// Another org asks the same: its calls are made.
	other := r.ask("gpt-test", sumQuestion, false)
	wantEqual(t, "answer to another org", sumAnswer, answer(t, r.clients[1], other).Text)
	r.wantToolCalls(t, "echo", `{"message":"20 22"}`, "get-sum", `{"a":20,"b":22}`)

	// A restart makes another pepper: nothing that was kept before is used.
	r.program.restart()
	wantEqual(t, "answer after a restart", sumAnswer, answer(t, r.clients[1], question).Text)
	r.wantToolCalls(t, "echo", `{"message":"20 22"}`, "get-sum", `{"a":20,"b":22}`)
	wantEqual(t, "answer from what was kept again", sumAnswer, answer(t, r.clients[1], question).Text)
	r.wantToolCalls(t)
}
