package chat_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// Every answer names its request, and the line of the log has the same id.
func TestEveryAnswerHasARequestId(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"named"`) {
			w.Header().Set("X-Request-Id", "theirs")
		}
		Says("hello").Write(w)
	})
	looped := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", NewMCP(t, nil).URL)}}.Yaml())
	relayed := MustRun(t, Site{Upstream: up.URL}.Yaml())
	for _, c := range []struct {
		name         string
		g            *Gateway
		method, path string
		body         string
		key          string
		status       int
		theirs       bool
		code         string
	}{
		{"a loop run", looped, "POST", "/v1/chat/completions", Question, "owner-key", 200, false, ""},
		{"a stream", looped, "POST", "/v1/chat/completions", StreamedQuestion, "owner-key", 200, false, ""},
		{"a relay", relayed, "POST", "/v1/chat/completions", Question, "owner-key", 200, false, ""},
		{"a relay whose provider names the request", relayed, "POST", "/v1/chat/completions", strings.Replace(Question, "{", `{"named":1,`, 1), "owner-key", 200, true, ""},
		{"an unknown key", looped, "POST", "/v1/chat/completions", Question, "nobody", 401, false, "invalid_api_key"},
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
			got := c.g.Send(c.method, c.path, body, "Authorization", "Bearer "+c.key)
			if got.Status != c.status {
				t.Fatalf("status %d: %s", got.Status, got.Body)
			}
			id := got.Header.Get("Turnpike-Request-Id")
			if !strings.HasPrefix(id, "req_") || len(got.Header["Turnpike-Request-Id"]) != 1 {
				t.Fatalf("Turnpike-Request-Id is %q", got.Header["Turnpike-Request-Id"])
			}
			want := id
			if c.theirs {
				want = "theirs"
			}
			if x := got.Header["X-Request-Id"]; len(x) != 1 || x[0] != want {
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
func lineWith(t *testing.T, g *Gateway, text string) string {
	t.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); PollPause() {
		for line := range strings.Lines(g.Log.String()) {
			if strings.Contains(line, text) && strings.Contains(line, "msg=request ") {
				return line
			}
		}
	}
	t.Fatalf("the log has no line with %q:\n%s", text, g.Log)
	return ""
}
