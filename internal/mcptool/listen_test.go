package mcptool

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// onChange counts the calls of OnListChanged.
func onChange() (told chan struct{}, set func(*Server)) {
	told = make(chan struct{}, 100)
	return told, func(s *Server) { s.OnListChanged = func() { told <- struct{}{} } }
}

func TestAServersNewToolIsAnnouncedOverEveryTransport(t *testing.T) {
	streamable := func(o *mcp.StreamableHTTPOptions) func(*testing.T, func(*Server)) *Client {
		return func(t *testing.T, set func(*Server)) *Client {
			server := officialChild()
			srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o))
			t.Cleanup(func() {
				for s := range server.Sessions() {
					_ = s.Close()
				}
				srv.Close()
			})
			return clientOf(t, srv.URL, set)
		}
	}
	for name, connect := range map[string]func(*testing.T, func(*Server)) *Client{
		"stateful":  streamable(nil),
		"JSON":      streamable(&mcp.StreamableHTTPOptions{JSONResponse: true}),
		"stateless": streamable(&mcp.StreamableHTTPOptions{Stateless: true}),
		"legacy":    func(t *testing.T, set func(*Server)) *Client { return clientOf(t, newLegacy(t).URL+"/sse", set) },
		"stdio": func(t *testing.T, set func(*Server)) *Client {
			c, _ := childClient(t, "official", set)
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			told, set := onChange()
			c := connect(t, set)
			if tools, err := c.List(t.Context()); err != nil || len(tools) != 6 {
				t.Fatal(tools, err)
			}
			// The stream of notifications opens beside the calls; a change before
			// that is lost, as it would be between two lists.
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for waiting := true; waiting; {
				if r, err := named(c, "grow").Call(t.Context(), toolCall()); err != nil || r.IsError {
					t.Fatal(r, err)
				}
				select {
				case <-told:
					waiting = false
				case <-tick.C:
				}
			}
			if tools, err := c.List(t.Context()); err != nil || len(tools) != 7 {
				t.Error(tools, err)
			}
			_ = c.Close()
		})
	}
}

func TestAChangeWithinAnAnswerIsAnnounced(t *testing.T) {
	f := newFake(t)
	f.override["x"] = func(w http.ResponseWriter, r *http.Request) {
		asEvents(w)
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", asked(r).id)
	}
	told, set := onChange()
	if _, err := named(f.client(set), "x").Call(t.Context(), toolCall()); err != nil {
		t.Fatal(err)
	}
	<-told
	if n := f.count(http.MethodGet); n != 0 {
		t.Errorf("%d streams to a server that announces nothing", n)
	}
}

// announcing makes a fake server say that it announces changes.
func announcing(f *fake) {
	f.noInit = func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.sessions++
		f.live = fmt.Sprintf("session-%d", f.sessions)
		w.Header().Set("Mcp-Session-Id", f.live)
		f.mu.Unlock()
		result(w, asked(r).id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`)
	}
}

func TestAStreamOfNotificationsThatFailsIsTakenUpAgainAndHarmsNoCall(t *testing.T) {
	f := newFake(t)
	announcing(f)
	opened := make(chan struct{}, 100)
	f.override[http.MethodGet] = func(w http.ResponseWriter, r *http.Request) {
		defer func() { opened <- struct{}{} }()
		switch f.count(http.MethodGet) {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		case 2:
			die(w)
		case 3:
			asEvents(w)
			fmt.Fprint(w, "id: e7\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}\n\n")
		default:
			if got := r.Header.Get("Last-Event-ID"); got != "e7" {
				t.Errorf("resumed after %q", got)
			}
			asEvents(w)
			fmt.Fprint(w, "data: noise\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}
	told, set := onChange()
	c := f.client(set)
	for range 3 {
		if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || textOf(r) != "ok" {
			t.Fatal(r, err)
		}
		<-opened
	}
	<-told
	for _, s := range f.of(http.MethodGet) {
		if s.header.Get("Mcp-Session-Id") != "session-1" || s.header.Get("Mcp-Protocol-Version") != "2025-06-18" {
			t.Errorf("header %v", s.header)
		}
	}
	if f.count(methodInitialize) != 1 {
		t.Errorf("%d sessions", f.count(methodInitialize))
	}
	_ = c.Close()
}

func TestAServerThatOffersNoStreamIsAskedForItOnce(t *testing.T) {
	f := newFake(t)
	announcing(f)
	f.override[http.MethodGet] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }
	_, set := onChange()
	c := f.client(set)
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the stream was asked for", func() bool { return f.count(http.MethodGet) == 1 })
	f.forget() // the new session asks again
	if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || textOf(r) != "ok" {
		t.Fatal(r, err)
	}
	until(t, "it was asked for again", func() bool { return f.count(http.MethodGet) == 2 })
}

func TestAReplacedSessionCountsAsAChange(t *testing.T) {
	f := newFake(t)
	announcing(f)
	told, set := onChange()
	c := f.client(set)
	for range 2 {
		if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || textOf(r) != "ok" {
			t.Fatal(r, err)
		}
		f.forget()
	}
	<-told
}

func TestAStormOfChangesIsOneCallASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Time
		c := New(Server{Command: []string{"true"}, OnListChanged: func() { calls = append(calls, time.Now()) }}, nil, nil)
		began := time.Now()
		for range 2500 {
			c.changed()
			time.Sleep(time.Millisecond) // of the bubble's clock
		}
		synctest.Wait()
		_ = c.Close()
		if len(calls) != 3 || calls[0].Sub(began) != 0 || calls[1].Sub(calls[0]) != notifyInterval {
			t.Errorf("called at %v", calls)
		}
	})
}

func TestCheckReportsWhatTheServerIs(t *testing.T) {
	f := newFake(t)
	f.tools = `[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":null},{"title":"nameless"},{"name":"c","inputSchema":{"type":"object","properties":{"x":{"type":"object","x-mcp-header":"X"}}}}]`
	r, err := f.client().Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Transport != StreamableHTTP || r.Protocol != "2025-11-25" || r.ServerName != "fake" || r.ServerVersion != "1" {
		t.Errorf("%+v", r)
	}
	if len(r.Tools) != 2 || r.Tools[0].Name != "a" || string(r.Tools[1].InputSchema) != "null" {
		t.Errorf("tools %+v", r.Tools)
	}
	if len(r.LeftOut) != 2 || r.LeftOut[0] != (LeftOut{"", "entry 2 of its page has no name"}) || r.LeftOut[1].Name != "c" {
		t.Errorf("left out %+v", r.LeftOut)
	}
	f.Server.Close()
	if _, err := f.client(func(s *Server) { s.MaxRetries = -1 }).Check(t.Context()); err == nil {
		t.Error("a server that is gone was checked")
	}
}

func TestStatusTellsNoSecrets(t *testing.T) {
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		url    string
		want   string
	}{
		"credentials": {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, want: "answered with HTTP status 401 (Unauthorized): set its credentials in the server's headers"},
		"its own words": {answer: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			rpcFail(w, asked(r).id, -32001, "SECRET is no valid token")
		}, want: "answered with HTTP status 403 (Forbidden): set its credentials in the server's headers"},
		"nobody there": {url: "http://127.0.0.1:1/?SECRET", want: "connection refused"},
		"no such name": {url: "http://nosuch.invalid/?SECRET", want: "its host name could not be resolved"},
		"a web page":   {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>SECRET") }, want: "the server answered with text/html, not JSON-RPC. Is the URL right?"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.noInit = row.answer
			c := f.client(func(s *Server) {
				s.MaxRetries = -1
				if row.url != "" {
					s.URL = row.url
				}
			})
			before := c.Status().Since
			_, _ = c.List(t.Context())
			if s := c.Status(); s.State != Failed || s.Error != row.want || !s.Since.After(before) {
				t.Errorf("%+v, want %s", s, row.want)
			}
			f.noInit = nil
			if row.url == "" {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, _ = c.List(ctx)
				if _, err := c.List(t.Context()); err != nil || c.Status().State != Connected || c.Status().Tools != 1 || c.Status().Error != "" {
					t.Errorf("%v, %+v", err, c.Status())
				}
			}
		})
	}
}

// A server that stops is known to be down before any call needs it, if it had a stream of
// notifications. // P61
func TestAStoppedServerIsNoticedByItsStreamOfNotifications(t *testing.T) {
	f := newFake(t)
	announcing(f)
	opened, stop := make(chan struct{}, 100), make(chan struct{})
	f.override[http.MethodGet] = func(w http.ResponseWriter, r *http.Request) {
		asEvents(w)
		_ = http.NewResponseController(w).Flush()
		opened <- struct{}{}
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}
	_, set := onChange()
	down := make(chan error, 100)
	c := f.client(set, func(s *Server) { s.OnUnreachable = func(err error) { down <- err } })
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	guard := time.After(time.Minute)
	select {
	case <-opened:
	case <-guard:
		t.Fatal("no stream was opened")
	}
	close(stop)
	f.Close()
	select {
	case err := <-down:
		if !strings.Contains(err.Error(), `server "fake"`) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("told %v", err)
		}
	case <-guard:
		t.Fatal("nobody was told that the server is down")
	}
	if s := c.Status(); s.State != Failed || !strings.Contains(s.Error, "refused") || strings.Contains(s.Error, "127.0.0.1") {
		t.Errorf("the status is %+v", s)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := len(down); n != 0 {
		t.Errorf("told %d times more", n)
	}
}
