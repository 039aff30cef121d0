package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/tool"
)

// legacy is a server of the SDK that speaks revision 2024-11-05 only.
type legacy struct {
	*httptest.Server
	mcp *mcp.Server

	mu       sync.Mutex // guards what follows
	requests []string   // "GET /sse", "POST /sse", "POST /sse?"
	header   http.Header
	refuse   int // the status of the next call; 0 = none
}

func newLegacy(t *testing.T) *legacy {
	l := &legacy{mcp: officialChild()}
	handler := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return l.mcp }, nil)
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + r.URL.Path
		if r.URL.RawQuery != "" {
			what += "?"
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		l.mu.Lock()
		l.requests = append(l.requests, what)
		l.header = r.Header.Clone()
		status := l.refuse
		if !strings.Contains(string(body), methodCall) {
			status = 0
		}
		if status != 0 {
			l.refuse = 0
		}
		l.mu.Unlock()
		if status != 0 {
			w.WriteHeader(status)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for s := range l.mcp.Sessions() {
			_ = s.Close()
		}
		l.Server.Close()
	})
	return l
}

func (l *legacy) count(what string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		if r == what {
			n++
		}
	}
	return n
}

// clientOf returns a Client of a URL, closed with the test.
func clientOf(t *testing.T, url string, change ...func(*Server)) *Client {
	s := Server{Name: "legacy", URL: url, Timeout: time.Minute}
	for _, f := range change {
		f(&s)
	}
	base := &http.Transport{DisableCompression: true}
	c := New(s, &http.Client{Transport: base}, nil)
	t.Cleanup(func() {
		_ = c.Close()
		base.CloseIdleConnections()
	})
	return c
}

func TestALegacyServerIsFoundAndCalled(t *testing.T) { // D16
	l := newLegacy(t)
	c := clientOf(t, l.URL+"/sse", func(s *Server) {
		s.Headers = func(context.Context) (http.Header, error) { return http.Header{"X-Team": {"a"}}, nil }
	})
	tools, err := c.List(t.Context())
	if err != nil || len(tools) != 6 {
		t.Fatal(tools, err)
	}
	const arguments = `{"z":12345678901234567890,"a":"<é>"}`
	r, err := named(c, "echo").Call(t.Context(), tool.Call{Arguments: json.RawMessage(arguments), IdempotencyKey: "k1", Class: tool.Keyed})
	if err != nil || textOf(r) != arguments {
		t.Error(r, err)
	}
	if l.header.Get("X-Team") != "a" || l.header.Get("Idempotency-Key") != "k1" {
		t.Errorf("headers %v", l.header)
	}
	r, err = named(c, "key").Call(t.Context(), tool.Call{IdempotencyKey: "k2"})
	if err != nil || textOf(r) != "k2" || l.header.Get("Idempotency-Key") != "k2" {
		t.Error(r, err, l.header)
	}
	if s := c.Status(); s.State != Connected || s.Transport != LegacySSE || s.Protocol != sessionVersion || s.Tools != 6 {
		t.Errorf("status %+v", s)
	}
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || textOf(r) != "{}" {
				t.Error(r, err)
			}
		})
	}
	callers.Wait()
	if n := l.count("GET /sse"); n != 1 {
		t.Errorf("%d streams, want 1", n)
	}
}

func TestALegacyStreamThatEndsIsReplacedWithoutProbing(t *testing.T) {
	l := newLegacy(t)
	c := clientOf(t, l.URL+"/sse")
	if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || r.IsError {
		t.Fatal(r, err)
	}
	probes := l.count("POST /sse")
	for s := range l.mcp.Sessions() {
		_ = s.Close()
	}
	until(t, "the client has noticed", func() bool { return c.Status().State == Failed })
	if s := c.Status(); s.Error != "the server closed the connection before it answered" {
		t.Errorf("status %+v", s)
	}
	if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || r.IsError {
		t.Fatal(r, err)
	}
	if l.count("POST /sse") != probes || l.count("GET /sse") != 2 {
		t.Errorf("requests %q", l.requests)
	}
}

func TestARefusedPostFailsItsCallAndNotTheLegacySession(t *testing.T) {
	for status, want := range map[int]string{http.StatusInternalServerError: "HTTP status 500", http.StatusForbidden: "HTTP status 403"} {
		l := newLegacy(t)
		c := clientOf(t, l.URL+"/sse")
		if _, err := c.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		l.refuse = status
		l.mu.Unlock()
		if r, err := unanswered(named(c, "echo").Call(t.Context(), toolCall())); err != nil || !r.IsError || !strings.Contains(textOf(r), want) {
			t.Errorf("status %d: %v %v", status, r, err)
		}
		if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || r.IsError || l.count("GET /sse") != 1 {
			t.Errorf("next call: %v %v, %d streams", r, err, l.count("GET /sse"))
		}
	}
}

func TestALegacySessionThatTheServerForgotIsReplaced(t *testing.T) {
	l := newLegacy(t)
	c := clientOf(t, l.URL+"/sse")
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.refuse = http.StatusNotFound
	l.mu.Unlock()
	if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || r.IsError || l.count("GET /sse") != 2 {
		t.Errorf("%v %v, %d streams", r, err, l.count("GET /sse"))
	}
}

// oldServer answers POSTs of its endpoint with 405 and its stream by hand.
func oldServer(t *testing.T, stream func(w http.ResponseWriter, r *http.Request)) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		stream(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv
}

func TestAnEndpointOfAnotherOriginIsNotUsed(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s reached the stranger with %v", r.Method, r.URL, r.Header)
	}))
	defer stranger.Close()
	for _, endpoint := range []string{stranger.URL + "/messages", "//" + stranger.Listener.Addr().String() + "/m", "http://user:word@" + stranger.Listener.Addr().String(), "http://169.254.169.254/latest/", "https://127.0.0.1/x", ":"} {
		srv := oldServer(t, func(w http.ResponseWriter, r *http.Request) {
			asEvents(w)
			fmt.Fprintf(w, "event: endpoint\ndata: %s\n\n", endpoint)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		c := clientOf(t, srv.URL, func(s *Server) { s.MaxRetries = -1 })
		if _, err := c.List(t.Context()); err == nil {
			t.Errorf("endpoint %s was used", endpoint)
		}
		_ = c.Close()
	}
}

func TestResolveEndpoint(t *testing.T) {
	for endpoint, want := range map[string]string{
		"/messages?id=1": "http://a.example:8080/messages?id=1", "?id=1": "http://a.example:8080/v1/sse?id=1",
		"http://A.EXAMPLE:8080/m#x": "http://A.EXAMPLE:8080/m", "http://a.example/m": "", "https://a.example:8080/m": "", "http://b.example:8080/m": "", "file:///etc/passwd": "",
	} {
		got, err := resolveEndpoint("http://a.example:8080/v1/sse", endpoint)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q %v, want %q", endpoint, got, err, want)
		}
	}
}

func TestALegacyStreamIsLimitedByEvent(t *testing.T) {
	const events, size = 20, 1 << 20 // 20 MiB in all, none of them too large
	var streams sync.Map             // its number → what was posted to it: one that has ended must not take another's
	var last atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path != "/post" {
			http.NotFound(w, r)
			return
		}
		if r.Method == http.MethodPost {
			var m struct {
				ID     json.RawMessage
				Method string
				Params struct{ Name string }
			}
			_ = json.NewDecoder(r.Body).Decode(&m)
			if posted, ok := streams.Load(r.URL.RawQuery); ok && m.ID != nil {
				posted.(chan json.RawMessage) <- fmt.Appendf(nil, `[%s,%q,%q]`, m.ID, m.Method, m.Params.Name)
			}
			w.WriteHeader(http.StatusAccepted)
			return
		}
		asEvents(w)
		posted, number := make(chan json.RawMessage, 10), fmt.Sprint(last.Add(1))
		streams.Store(number, posted)
		fmt.Fprintf(w, ": hello\n\nevent: endpoint\ndata: /post?%s\n\n", number)
		for {
			_ = http.NewResponseController(w).Flush()
			var p [3]json.RawMessage
			select {
			case m := <-posted:
				_ = json.Unmarshal(m, &p)
			case <-r.Context().Done():
				return
			}
			switch {
			case string(p[1]) == `"initialize"`:
				fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}}`+"\n\n", p[0])
			case string(p[2]) == `"large"`:
				fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":"%s"}`+"\n\n", p[0], strings.Repeat("x", maxAnswer))
			default:
				fmt.Fprintf(w, "event: ping\ndata: %s\n\nid: 7\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%s\"}]}}\n\n", p[0], p[0], strings.Repeat("y", size))
			}
		}
	}))
	defer srv.Close()
	c := clientOf(t, srv.URL+"/sse")
	for range events {
		if r, err := named(c, "x").Call(t.Context(), toolCall()); err != nil || len(textOf(r)) != size {
			t.Fatal(err)
		}
	}
	if s := c.Status(); s.Protocol != "2024-11-05" {
		t.Errorf("status %+v", s)
	}
	if r, err := unanswered(named(c, "large").Call(t.Context(), toolCall())); err != nil || !strings.Contains(textOf(r), "larger than 16 MiB") {
		t.Errorf("%.200v %v", r, err)
	}
	if r, err := named(c, "x").Call(t.Context(), toolCall()); err != nil || len(textOf(r)) != size {
		t.Errorf("next call: %v", err)
	}
	_ = c.Close()
}

func TestAServerThatNeverNamesItsEndpoint(t *testing.T) {
	srv := oldServer(t, func(w http.ResponseWriter, r *http.Request) {
		asEvents(w)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c := clientOf(t, srv.URL, func(s *Server) { s.Timeout, s.MaxRetries = 200*time.Millisecond, -1 })
	if _, err := c.List(t.Context()); err == nil {
		t.Error("connected")
	}
	_ = c.Close()
}

func TestALegacyServerAtAForbiddenAddressIsFatal(t *testing.T) { // K01
	srv := oldServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusTemporaryRedirect)
	})
	p := egress.DefaultPolicy()
	p.BlockLoopback = false
	out := egress.New(p, egress.Options{})
	defer out.CloseIdleConnections()
	c := New(Server{Name: "inside", URL: srv.URL}, out.Guarded(egress.GuardedOptions{}), nil)
	defer c.Close()
	_, err := c.List(t.Context())
	var fatal tool.Blocked
	if !errors.As(err, &fatal) {
		t.Errorf("%v is not fatal", err)
	}
	if s := c.Status(); s.Error != "refused by the outbound policy: redirect" {
		t.Errorf("status %+v", s)
	}
}
