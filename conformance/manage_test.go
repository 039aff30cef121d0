package conformance

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// testManagement creates a server over the management API, switches it off and
// on, and deletes it, while one gateway runs.
func testManagement(t *testing.T, s *site) { // A01, D29
	r := s.newRig(t, sumScript)
	for _, c := range r.clients {
		t.Run(c.name(), func(t *testing.T) {
			r.wantOff(t, c)
			created := r.manage(t, http.MethodPost, "/api/mcp-servers", object{"name": "tools", "url": r.proxy.URL + "/mcp"}, http.StatusCreated)
			wantEqual(t, "created server is enabled", any(true), created["enabled"])
			r.wantOn(t, c)
			r.manage(t, http.MethodPatch, "/api/mcp-servers/tools", object{"enabled": false}, http.StatusOK)
			r.wantOff(t, c)
			r.manage(t, http.MethodPatch, "/api/mcp-servers/tools", object{"enabled": true}, http.StatusOK)
			r.wantOn(t, c)
			r.manage(t, http.MethodDelete, "/api/mcp-servers/tools", nil, http.StatusOK)
			r.wantOff(t, c)
		})
	}
	r.program.wantRunning(t)
}

// wantOn asks once: the answer needs both tools of the server.
func (r *rig) wantOn(t *testing.T, c client) {
	t.Helper()
	wantEqual(t, "answer", sumAnswer, answer(t, c, r.askFresh()).Text)
	r.wantToolCalls(t, "echo", `{"message":"20 22"}`, "get-sum", `{"a":20,"b":22}`)
	r.upstream.take()
}

// wantOff asks once: the request reaches the upstream as it left the client.
func (r *rig) wantOff(t *testing.T, c client) {
	t.Helper()
	got := answer(t, c, r.askFresh())
	seen := r.upstream.take()
	if len(seen) != 1 {
		t.Fatalf("the upstream saw %d requests, want 1", len(seen))
	}
	wantEqual(t, "SHA-256 of the body: client's, upstream's", got.BodySHA256, seen[0].sum())
	r.wantToolCalls(t)
}

// askFresh is a question of the org that has no server in the file.
func (r *rig) askFresh() ask {
	question := r.ask("gpt-test", sumQuestion, false)
	question.Key, question.Hash = freshKey, true
	return question
}

// manage sends a management request of the org fresh and returns its answer.
func (r *rig) manage(t *testing.T, method, path string, body object, want int) object {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, r.gateway+path, strings.NewReader(string(marshal(body))))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+freshKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := newHTTPClient(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != want {
		t.Fatalf("%s %s answered %s (%v), want %d: %s", method, path, response.Status, err, want, got)
	}
	return decodedAs[object](t, got)
}
