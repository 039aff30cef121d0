package chat_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/httpd"
)

// impatient boots a gateway whose clients get less time.
func impatient(t *testing.T, yaml string, limits httpd.Limits) *Gateway {
	t.Helper()
	return MustRunWith(t, NewData(t), yaml, Environment(), app.Options{Limits: limits})
}

// A client that takes nothing of a relayed stream is disconnected, and the
// provider is not read for it any longer.
func TestAClientThatTakesNothingEndsItsRelay(t *testing.T) {
	NoLeaks(t)
	gone := make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
		defer close(gone)
		w.Header().Set("Content-Type", "text/event-stream")
		chunk := []byte("data: " + strings.Repeat("x", 32<<10) + "\n\n")
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	g := impatient(t, Site{Upstream: up.URL}.Yaml(), httpd.Limits{StallTimeout: 300 * time.Millisecond})
	c := dial(g)
	defer c.Close()
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer owner-key\r\nContent-Length: %d\r\n\r\n%s", len(StreamedQuestion), StreamedQuestion)
	Wait(t, gone, "the end of the provider's answer")
}

// A body that does not come is answered, in the form of the API, also one of a
// known caller.
func TestABodyThatDoesNotComeIsAnswered(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	g := impatient(t, Site{Upstream: up.URL}.Yaml(), httpd.Limits{BodyTimeout: 50 * time.Millisecond})
	for request, form := range map[string]string{"POST /v1/chat/completions": `"type":"invalid_request_error"`, "POST /api/keys": `{"error":{"code"`} {
		for _, length := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
			c := dial(g)
			fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer owner-key\r\n%s\r\n\r\n", request, length)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != 408 || !resp.Close || !bytes.Contains(body, []byte("body_timeout")) || !bytes.Contains(body, []byte(form)) {
				t.Errorf("%s, %s: status %d: %s", request, length, resp.StatusCode, body)
			}
			_ = c.Close()
		}
	}
	if n := len(up.Requests()); n != 0 {
		t.Errorf("the provider got %d requests", n)
	}
}

// What a decoder would choke on is refused where something is decoded. A relay
// decodes nothing and passes it on.
func TestJSONThatIsAllStructureIsRefused(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	on := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	off := MustRun(t, Site{Upstream: up.URL}.Yaml())
	for name, value := range map[string]string{
		"deep":   strings.Repeat("[", 64) + strings.Repeat("]", 64), // in an object: one more
		"wide":   "[{" + strings.TrimSuffix(strings.Repeat(`"a":0,`, 100_000), ",") + "}]",
		"digits": strings.Repeat("9", 65),
	} {
		body := strings.Replace(Question, "{", `{"x":`+value+",", 1)
		if got := on.Post(body); got.Status != 400 || *got.Fault(t).Error.Code != "json_too_complex" {
			t.Errorf("%s, with the loop: status %d: %.300s", name, got.Status, got.Body)
		}
		if got := on.Send("POST", "/api/mcp-servers", strings.NewReader(body)); got.Status != 400 || !bytes.Contains(got.Body, []byte("json_too_complex")) {
			t.Errorf("%s, of the management API: status %d: %.300s", name, got.Status, got.Body)
		}
		if got := off.Post(body); got.Status != 200 {
			t.Errorf("%s, relayed: status %d: %.300s", name, got.Status, got.Body)
		}
	}
}

// A relayed answer has the header that the provider gave it, without what
// concerns one connection or the provider's own site, and nothing of ours.
func TestARelayedAnswerHasTheProvidersHeader(t *testing.T) { // A09
	NoLeaks(t)
	theirs := http.Header{
		"Content-Type": {"application/x-odd"}, "Cache-Control": {"max-age=7"}, "Server": {"theirs"}, "X-Request-Id": {"1"},
		"Openai-Processing-Ms": {"12"}, "X-Many": {"a", "b"},
	}
	kept := theirs.Clone()
	for _, name := range []string{
		"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials",
		"Access-Control-Expose-Headers", "Clear-Site-Data", "Nel", "Report-To", "Reporting-Endpoints", "Keep-Alive",
	} {
		theirs.Set(name, "*")
	}
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		for name, values := range theirs {
			w.Header()[name] = values
		}
		fmt.Fprint(w, "{}")
	})
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	got := g.Post(Question).Header
	got.Del("Date")
	got.Del("Content-Length")
	got.Del("Turnpike-Served-By")
	got.Del("Turnpike-Request-Id")
	for name := range got {
		if !slices.Equal(got[name], kept[name]) {
			t.Errorf("%s: %q, the provider said %q", name, got[name], kept[name])
		}
	}
	if len(got) != len(kept) {
		t.Errorf("the client got %v", got)
	}
}

// The gateway on a real loopback address, asked by a page whose name leads there,
// and with a name of its own from the configuration.
func TestANameThatLeadsHereIsNotEnough(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	g := MustRun(t, "public_hosts: [gw.example.com]\nallowed_origins: [\"https://app.example.com\"]\n"+Site{Upstream: up.URL}.Yaml())
	ask := func(host, origin string) int {
		r := g.Request(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(Question))
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		resp, err := g.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, tt := range []struct {
		host, origin string
		status       int
	}{
		{"", "", 200}, {"gw.example.com", "", 200}, {"evil.example", "", 421}, {"evil.example", "http://evil.example", 421},
		{"localhost", "https://evil.example", 403}, {"gw.example.com", "https://gw.example.com", 200}, {"localhost", "https://app.example.com", 200},
	} {
		if got := ask(tt.host, tt.origin); got != tt.status {
			t.Errorf("host %q, origin %q: status %d, want %d", tt.host, tt.origin, got, tt.status)
		}
	}
	if n := len(up.Requests()); n != 4 {
		t.Errorf("the provider got %d requests, want 4", n)
	}
}

// No log line has a key, wherever a client puts it.
func TestAKeyInTheWrongPlaceIsNotLogged(t *testing.T) { // D18
	NoLeaks(t)
	g := MustRun(t, Site{Upstream: "http://127.0.0.1:9"}.Yaml())
	for _, path := range []string{"/v1/models?key=owner-key", "/api/keys?api_key=owner-key", "/api/keys/owner-key", "/owner-key"} {
		a := g.Send("GET", path, nil, "X-Api-Key", "owner-key", "Cookie", "key=owner-key")
		if a.Status < 400 {
			t.Errorf("%s: status %d", path, a.Status)
		}
	}
	c := dial(g)
	fmt.Fprint(c, "GET /owner-key HTTP/9.9\r\nAuthorization: Bearer owner-key\r\nowner-key\r\n\r\n")
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
	if strings.Contains(g.Log.String(), "owner-key") {
		t.Errorf("the log has a key: %s", g.Log)
	}
}

func dial(g *Gateway) net.Conn {
	g.T.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		g.T.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(Patience))
	return c
}
