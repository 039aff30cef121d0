package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Every answer names its request, and the line of the log has the same id.
func TestEveryAnswerHasARequestId(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, got received) {
		if strings.Contains(string(got.body), `"named"`) {
			w.Header().Set("X-Request-Id", "theirs")
		}
		says("hello").write(w)
	})
	looped := MustRun(t, site{upstream: up.URL, servers: []string{server("s", newMCP(t, nil).URL)}}.yaml())
	relayed := MustRun(t, site{upstream: up.URL}.yaml())
	for _, c := range []struct {
		name         string
		g            *gateway
		method, path string
		body         string
		key          string
		status       int
		theirs       bool
		code         string
	}{
		{"a loop run", looped, "POST", "/v1/chat/completions", question, "owner-key", 200, false, ""},
		{"a stream", looped, "POST", "/v1/chat/completions", streamedQuestion, "owner-key", 200, false, ""},
		{"a relay", relayed, "POST", "/v1/chat/completions", question, "owner-key", 200, false, ""},
		{"a relay whose provider names the request", relayed, "POST", "/v1/chat/completions", strings.Replace(question, "{", `{"named":1,`, 1), "owner-key", 200, true, ""},
		{"an unknown key", looped, "POST", "/v1/chat/completions", question, "nobody", 401, false, "invalid_api_key"},
		{"an unknown model", looped, "POST", "/v1/chat/completions", `{"model":"x"}`, "owner-key", 404, false, "model_not_found"},
		{"a path that is not there", looped, "GET", "/nowhere", "", "owner-key", 404, false, "not_found"},
		{"the models", looped, "GET", "/v1/models", "", "owner-key", 200, false, ""},
		{"the management API", looped, "GET", "/api/org", "", "owner-key", 200, false, ""},
		{"an error of the management API", looped, "DELETE", "/api/mcp-servers/none", "", "owner-key", 404, false, "not_found"},
		{"a key in the URL", looped, "GET", "/v1/models?api_key=x", "", "owner-key", 400, false, "key_in_url"},
		{"the document", looped, "GET", "/openapi.json", "", "owner-key", 200, false, ""},
		{"a health check", looped, "GET", "/healthz", "", "", 200, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			got := c.g.send(c.method, c.path, body, "Authorization", "Bearer "+c.key)
			if got.status != c.status {
				t.Fatalf("status %d: %s", got.status, got.body)
			}
			id := got.header.Get("Turnpike-Request-Id")
			if !strings.HasPrefix(id, "req_") || len(got.header["Turnpike-Request-Id"]) != 1 {
				t.Fatalf("Turnpike-Request-Id is %q", got.header["Turnpike-Request-Id"])
			}
			want := id
			if c.theirs {
				want = "theirs"
			}
			if x := got.header["X-Request-Id"]; len(x) != 1 || x[0] != want {
				t.Errorf("X-Request-Id is %q, want %q", x, want)
			}
			line := lineWith(t, c.g, "request="+id)
			if code := " code=" + c.code + " "; c.code != "" && !strings.Contains(line, code) || c.code == "" && strings.Contains(line, " code=") {
				t.Errorf("the line of the log has another code than %q: %s", c.code, line)
			}
		})
	}
}

// lineWith returns the line of the log about a request, once it is written.
func lineWith(t *testing.T, g *gateway, text string) string {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); pollPause() {
		for line := range strings.Lines(g.log.String()) {
			if strings.Contains(line, text) && strings.Contains(line, "msg=request ") {
				return line
			}
		}
	}
	t.Fatalf("the log has no line with %q:\n%s", text, g.log)
	return ""
}
