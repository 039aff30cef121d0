package chat_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A loop run whose provider refuses the gateway's key is 502: a 401 would tell the
// client that its own key is wrong. The relay passes the answer on.
func TestARefusedUpstreamCredentialIsTheGatewaysFailure(t *testing.T) {
	NoLeaks(t)
	var status int
	var body string
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
	const wrong = `{"error":{"message":"Incorrect API key provided: CANARY","type":"x","code":"invalid_api_key"}}`
	const other = `{"error":{"message":"not for you","type":"x","code":"country"}}`
	for _, c := range []struct {
		name    string
		status  int
		body    string
		refused bool
	}{
		{"401", 401, wrong, true},
		{"a bare 401", 401, "", true},
		{"400 that says so", 400, wrong, true},
		{"403 that says so", 403, wrong, true},
		{"403 for another reason", 403, other, false},
		{"400 for another reason", 400, other, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body = c.status, c.body
			loop := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", NewMCP(t, nil).URL)}}.Yaml())
			got := loop.Post(Question)
			if !c.refused {
				if got.Status != c.status || string(got.Body) != c.body {
					t.Errorf("loop: %d %s", got.Status, got.Body)
				}
			} else if e := got.Fault(t); got.Status != 502 || *e.Error.Code != "upstream_credential_refused" ||
				!strings.HasPrefix(e.Error.Message, "The provider up refuses the gateway's credential") || strings.Contains(string(got.Body), "CANARY") {
				t.Errorf("loop: %d %s", got.Status, got.Body)
			}
			const warning = `level=WARN msg="a provider refuses the gateway's credential: check its api_key"`
			if said := strings.Contains(loop.Log.String(), warning); said != c.refused {
				t.Errorf("loop: the log says so: %t, want %t", said, c.refused)
			}
			relay := MustRun(t, Site{Upstream: up.URL}.Yaml())
			if got := relay.Post(Question); got.Status != c.status || string(got.Body) != c.body {
				t.Errorf("relay: %d %s", got.Status, got.Body)
			}
			if said := strings.Contains(relay.Log.String(), warning); said != (c.status != 400) {
				t.Errorf("relay: the log says so: %t, for status %d", said, c.status)
			}
		})
	}
}

func TestAnAnswerThatIsNoneIsCalledWhatItIs(t *testing.T) {
	NoLeaks(t)
	for _, c := range []struct {
		name    string
		answers func(w http.ResponseWriter)
		status  int
		want    string
	}{
		{"a login page", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<!doctype html><title>Log in</title>"))
		}, 502, "The provider up answered with text/html, not JSON. Is base_url right?"},
		{"a page that says 404", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(404)
			_, _ = w.Write([]byte("<html>no such page"))
		}, 404, "The provider up answered 404: a web page, not JSON. Is base_url right?"},
		{"a stream that breaks off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"choices\":[]}\n\n"))
		}, 502, "The provider up ended the stream before the answer was complete"},
		{"no JSON", func(w http.ResponseWriter) { _, _ = w.Write([]byte("data: {oops\n\n")) }, 502, `The provider up sent a chunk that is not valid: "{oops"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := NewUpstream(t, firstAndLast(func(w http.ResponseWriter, _ *http.Request, _ Received) { c.answers(w) }))
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", NewMCP(t, nil).URL)}}.Yaml())
			got := g.Post(Question)
			if e := got.Fault(t); got.Status != c.status || e.Error.Message != c.want || got.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d, %v: %s", got.Status, got.Header["Content-Type"], got.Body)
			}
		})
	}
}

// A relay passes a web page on unchanged. Only the log can say that base_url is wrong.
func TestARelayedWebPageIsLogged(t *testing.T) {
	NoLeaks(t)
	for _, c := range []struct {
		kind   string
		status int
		warned bool
	}{
		{"text/html; charset=utf-8", 200, true},
		{"text/html", 404, true},
		{"text/html", 502, false}, // a proxy in front of the provider
		{"application/json", 200, false},
		{"application/json", 404, false},
	} {
		up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte("<title>Log in</title>"))
		})
		g := MustRun(t, Site{Upstream: up.URL}.Yaml())
		if got := g.Post(Question); got.Status != c.status || string(got.Body) != "<title>Log in</title>" {
			t.Errorf("%s: %d %s", c.kind, got.Status, got.Body)
		}
		want := fmt.Sprintf(`level=WARN msg="a provider answered a relayed request with a web page: check its base_url" provider=up org=o status=%d`, c.status)
		if log := g.Log.String(); strings.Contains(log, "web page") != c.warned || strings.Contains(log, want) != c.warned {
			t.Errorf("%s with status %d: the log says\n%s", c.kind, c.status, log)
		}
	}
}

func TestWarningsNameTheOrgOnce(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { w.WriteHeader(http.StatusUnauthorized) })
	for name, servers := range map[string][]string{
		"a relay":           nil,
		"a run":             {Server("s", NewMCP(t, nil).URL)},
		"a refused address": {Server("s", "http://10.1.2.3/mcp")},
	} {
		g := MustRun(t, Site{Upstream: up.URL, Servers: servers}.Yaml())
		g.Post(Question)
		seen := 0
		for line := range strings.Lines(g.Log.String()) {
			if strings.Contains(line, "refuses") || strings.Contains(line, "model call failed") {
				seen++
				if n := strings.Count(line, " org="); n != 1 {
					t.Errorf("%s: org is named %d times: %s", name, n, line)
				}
			}
		}
		if seen == 0 {
			t.Errorf("%s: no warning in\n%s", name, g.Log.String())
		}
	}
}

// Clients repeat a 429, 409 or 5xx by themselves. They are told not to once the
// gateway has done so, and only then.
func TestRetriesOfClientsDoNotMultiplyWithTheGateways(t *testing.T) {
	NoLeaks(t)
	for _, c := range []struct {
		name     string
		status   int
		after    string
		attempts int
		want     string
	}{
		{"used up", 503, "0.01", 4, "false"},
		{"a rate limit that stays", 429, "0.01", 4, "false"},
		{"a long wait that nobody waited for", 429, "600", 1, ""},
		{"the gateway's own key", 401, "", 1, "false"},
		{"a request that is wrong", 400, "", 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				http.Error(w, `{"error":{"message":"no"}}`, c.status)
			})
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", NewMCP(t, nil).URL)}}.Yaml())
			got := g.Post(Question)
			if got.Header.Get("X-Should-Retry") != c.want || len(up.Requests()) != c.attempts {
				t.Errorf("status %d after %d attempts: X-Should-Retry %q, want %q after %d", got.Status, len(up.Requests()), got.Header.Get("X-Should-Retry"), c.want, c.attempts)
			}
			relay := MustRun(t, Site{Upstream: up.URL}.Yaml())
			if got := relay.Post(Question); got.Header.Get("X-Should-Retry") != "" {
				t.Errorf("the relay says %q", got.Header.Get("X-Should-Retry"))
			}
		})
	}
}
