package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestABareServerIsSpokenToWithoutASession(t *testing.T) { // D15
	refusals := map[string]http.HandlerFunc{
		"a JSON-RPC error": func(w http.ResponseWriter, r *http.Request) {
			rpcFail(w, asked(r).id, codeMethodNotFound, "no such method")
		},
		"status 400": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) },
		"status 404": func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) },
		"status 405": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
	}
	for name, refuse := range refusals {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.noInit = refuse
			f.override["echo"] = func(w http.ResponseWriter, r *http.Request) {
				asEvents(w)
				note := `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`
				fmt.Fprintf(w, "%s\r\n\r\n%s\n\n", note, note)
				fmt.Fprintf(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a<b\"}]}}\n\n", asked(r).id)
			}
			c := f.client()
			for range 2 {
				tools, err := c.List(t.Context())
				if err != nil || len(tools) != 1 {
					t.Fatal(tools, err)
				}
				got, err := tools[0].Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"n":12345678901234567890,"s":"<&>"}`)})
				if err != nil || got.IsError || textOf(got) != "a<b" {
					t.Fatal(got, err)
				}
			}
			if n := f.count(methodInitialize); n != 1 {
				t.Errorf("initialize was tried %d times, want once", n)
			}
			if want := `"arguments":{"n":12345678901234567890,"s":"<&>"}`; !bytes.Contains(f.of(methodCall)[0].params, []byte(want)) {
				t.Errorf("params %s, want %s", f.of(methodCall)[0].params, want)
			}
		})
	}
}

func TestARefusalThatIsAboutSomethingElseMakesNoBareServer(t *testing.T) {
	for _, status := range []int{401, 403, 429, 500, 503} {
		f := newFake(t)
		f.noInit = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		_, err := f.client(func(s *Server) { s.MaxRetries = -1 }).List(t.Context())
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) || f.count(methodList) != 0 {
			t.Errorf("status %d: %v, %d lists", status, err, f.count(methodList))
		}
	}
}

func TestAnswersInEventsWithNotificationsFirst(t *testing.T) { // D15
	f := newFake(t)
	f.override[methodList] = func(w http.ResponseWriter, r *http.Request) {
		asEvents(w)
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"tools\":[{\"name\":\"a\",\"inputSchema\":{\"z\":1,\"a\":2}}]}}\n\n", asked(r).id)
	}
	tools, err := f.client().List(t.Context())
	if err != nil || len(tools) != 1 || string(tools[0].Definition().InputSchema) != `{"z":1,"a":2}` {
		t.Error(tools, err)
	}
}

func TestConfiguredHeadersGoWithListAndCall(t *testing.T) { // D12
	f := newFake(t)
	n := 0
	c := f.client(func(s *Server) {
		s.Headers = func(context.Context) (http.Header, error) {
			n++
			return http.Header{
				"authorization": {fmt.Sprintf("Bearer %d", n)}, "X-Team": {"a", "b"},
				"Host": {"evil"}, "Mcp-Session-Id": {"evil"}, "Mcp-Method": {"evil"}, "Content-Type": {"evil"},
				"Transfer-Encoding": {"evil"}, "Idempotency-Key": {"evil"}, "Proxy-Authorization": {"evil"},
			}, nil
		}
	})
	tools, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tools[0].Call(t.Context(), tool.Call{IdempotencyKey: "k1", Class: tool.Keyed}); err != nil {
		t.Fatal(err)
	}
	list, call := f.of(methodList)[0].header, f.of(methodCall)[0].header
	for _, h := range []http.Header{list, call} {
		if !strings.HasPrefix(h.Get("Authorization"), "Bearer ") || len(h["X-Team"]) != 2 {
			t.Errorf("headers missing: %v", h)
		}
		for name, values := range h {
			if strings.Contains(strings.Join(values, ","), "evil") {
				t.Errorf("%s: %v was sent", name, values)
			}
		}
	}
	if list.Get("Authorization") == call.Get("Authorization") {
		t.Error("headers were not resolved anew")
	}
	if call.Get("Idempotency-Key") != "k1" || list.Get("Idempotency-Key") != "" {
		t.Errorf("idempotency keys %q, %q", list.Get("Idempotency-Key"), call.Get("Idempotency-Key"))
	}
}

func TestHeadersThatCannotBeResolvedSendNothing(t *testing.T) {
	f := newFake(t)
	missing := errors.New("no such secret")
	c := f.client(func(s *Server) {
		s.Headers = func(context.Context) (http.Header, error) { return nil, missing }
	})
	_, listErr := c.List(t.Context())
	_, callErr := named(c, "echo").Call(t.Context(), tool.Call{})
	if !errors.Is(listErr, missing) || !errors.Is(callErr, missing) || len(f.requests) != 0 {
		t.Errorf("%v; %v; %d requests", listErr, callErr, len(f.requests))
	}
}

func TestErrorResultsStayErrors(t *testing.T) { // D17
	f := newFake(t)
	for name, content := range map[string]string{
		"full": `{"content":[{"type":"text","text":"no such city"}],"isError":true}`,
		"void": `{"content":[],"isError":true}`, "bare": `{"isError":true}`,
	} {
		f.override[name] = func(w http.ResponseWriter, r *http.Request) { result(w, asked(r).id, content) }
	}
	c := f.client()
	for name, want := range map[string]string{"full": "no such city", "void": "without an error message", "bare": "without an error message"} {
		r, err := named(c, name).Call(t.Context(), tool.Call{})
		if err != nil || !r.IsError || !strings.Contains(textOf(r), want) {
			t.Errorf("%s: %v %v, want %q", name, r, err, want)
		}
	}
}

func TestRetries(t *testing.T) { // D19
	cases := []struct {
		name     string
		class    tool.Class
		key      string
		failures int
		status   int // 0 = the connection dies
		retries  int // of the server's configuration
		want     int // requests
		ok       bool
	}{
		{"a read call, two failures", tool.Read, "", 2, 503, 0, 3, true},
		{"a read call, two deaths", tool.Read, "", 2, 0, 0, 3, true},
		{"a read call, three failures", tool.Read, "", 3, 503, 0, 3, false},
		{"a keyed call", tool.Once, "k", 2, 502, 0, 3, true},
		{"a once call fails", tool.Once, "", 1, 503, 0, 1, false},
		{"a once call dies", tool.Once, "", 1, 0, 0, 1, false},
		{"no retries", tool.Read, "", 1, 503, -1, 1, false},
		{"a refusal is no failure", tool.Read, "", 1, 403, 0, 1, false},
		{"an answer too many", tool.Read, "", 1, 429, 0, 2, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			var mu sync.Mutex
			left := c.failures
			f.override["shaky"] = func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if left--; left < 0 {
					say("done")(w, r)
				} else if c.status == 0 {
					die(w)
				} else {
					w.WriteHeader(c.status)
				}
			}
			x := named(f.client(func(s *Server) { s.MaxRetries = c.retries }), "shaky")
			x.class = c.class
			call := tool.Call{IdempotencyKey: c.key}
			if c.key != "" {
				call.Class = tool.Keyed
			}
			r, err := unanswered(x.Call(t.Context(), call))
			if err != nil || r.IsError == c.ok {
				t.Errorf("%v %v, want success %v", r, err, c.ok)
			}
			if n := f.count(methodCall); n != c.want {
				t.Errorf("%d requests, want %d", n, c.want)
			}
		})
	}
}

func TestDiscoveryIsRetried(t *testing.T) { // D19
	f := newFake(t)
	n := 0
	f.override[methodList] = func(w http.ResponseWriter, r *http.Request) {
		if n++; n <= 2 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		result(w, asked(r).id, `{"tools":[]}`)
	}
	if tools, err := f.client().List(t.Context()); err != nil || n != 3 {
		t.Error(tools, err, n)
	}
}

func TestAServerThatCannotBeReachedGetsNothingSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String() + "/mcp?key=SECRET"
	_ = l.Close()
	c := New(Server{Name: "gone", URL: url}, &http.Client{Transport: &http.Transport{}}, nil)
	defer c.Close()
	_, err = named(c, "x").Call(t.Context(), tool.Call{})
	if !errors.Is(err, tool.ErrNotSent) || !strings.Contains(err.Error(), `server "gone"`) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("call: %v", err)
	}
	if _, err := c.List(t.Context()); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("list: %v", err)
	}
}

func TestAServerThatComesBackGetsTheOnceCall(t *testing.T) { // D19: provably not sent
	f := newFake(t)
	var mu sync.Mutex
	refused := 2
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if refused > 0 {
			refused--
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	defer base.CloseIdleConnections()
	c := New(Server{Name: "back", URL: f.URL}, &http.Client{Transport: base}, nil)
	defer c.Close()
	if r, err := named(c, "echo").Call(t.Context(), tool.Call{}); err != nil || textOf(r) != "ok" || f.count(methodCall) != 1 {
		t.Error(r, err, f.count(methodCall))
	}
}

func TestATimeoutIsToldToTheModel(t *testing.T) { // D10
	f := newFake(t)
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	f.override["x"], f.override[methodList] = hang, hang
	c := f.client(func(s *Server) { s.Timeout = 150 * time.Millisecond })
	r, err := named(c, "x").Call(t.Context(), tool.Call{})
	if want := `server "fake": did not answer within 150ms`; err == nil || err.Error() != want || errors.Is(err, tool.ErrNotSent) {
		t.Errorf("%v %v, want %s", r, err, want)
	}
	_, err = c.List(t.Context())
	if want := `server "fake" did not answer within 150ms`; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestTheDefaultTimeoutIsThirtySeconds(t *testing.T) { // D10
	c := New(Server{}, &http.Client{Transport: &http.Transport{}}, nil)
	defer c.Close()
	if c.server.Timeout != 30*time.Second || c.server.MaxRetries != 2 {
		t.Error(c.server)
	}
}

func TestAServerThatHangsInTheHandshakeTimesOut(t *testing.T) { // D10
	f := newFake(t)
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	f.override[methodDiscover], f.noInit = hang, hang
	c := f.client(func(s *Server) { s.Timeout = 150 * time.Millisecond })
	r, err := named(c, "x").Call(t.Context(), tool.Call{})
	if !errors.Is(err, tool.ErrNotSent) || !strings.Contains(err.Error(), "did not answer within 150ms") {
		t.Error(r, err)
	}
}

func TestCancellingReturnsAtOnceAndTellsTheServer(t *testing.T) {
	f := newFake(t)
	hung, told := make(chan json.RawMessage, 1), make(chan json.RawMessage, 1)
	f.override["hang"] = func(_ http.ResponseWriter, r *http.Request) {
		hung <- asked(r).id
		<-r.Context().Done()
	}
	f.override["notifications/cancelled"] = func(_ http.ResponseWriter, r *http.Request) {
		told <- asked(r).params
		<-r.Context().Done() // hangs as well
	}
	c := f.client()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	bye := errors.New("caller gone")
	ids, when := make(chan json.RawMessage, 1), make(chan time.Time, 1)
	go func() {
		ids <- <-hung
		when <- time.Now()
		cancel(bye)
	}()
	_, err := named(c, "hang").Call(ctx, tool.Call{})
	if took := time.Since(<-when); !errors.Is(err, bye) || took > time.Second {
		t.Errorf("%v after %s", err, took)
	}
	id := <-ids
	if params := <-told; !bytes.Contains(params, append([]byte(`"requestId":`), id...)) {
		t.Errorf("told %s, want request %s", params, id)
	}
	h := f.of("notifications/cancelled")[0].header
	if h.Get("Mcp-Session-Id") != "session-1" || h.Get("Mcp-Protocol-Version") != sessionVersion {
		t.Errorf("told with the headers %v", h)
	}
	start := time.Now()
	if err := c.Close(); err != nil || time.Since(start) > 4*time.Second {
		t.Errorf("close: %v after %s", err, time.Since(start))
	}
}

func TestALostSessionIsReplacedOnce(t *testing.T) {
	losses := map[string]func(*fake){
		"status 404": func(f *fake) { f.forget() },
		"status 400 that names the session": func(f *fake) {
			n := 0
			f.override["echo"] = func(w http.ResponseWriter, r *http.Request) {
				if n++; n == 2 {
					w.WriteHeader(http.StatusBadRequest)
					rpcFail(w, json.RawMessage("null"), -32000, "Bad Request: No valid session ID provided")
					return
				}
				say("ok")(w, r)
			}
		},
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c := f.client()
			if strings.Contains(name, "400") {
				lose(f)
			}
			if r, err := named(c, "echo").Call(t.Context(), tool.Call{}); err != nil || textOf(r) != "ok" {
				t.Fatal(r, err)
			}
			if strings.Contains(name, "404") {
				lose(f)
			}
			for range 2 {
				if r, err := named(c, "echo").Call(t.Context(), tool.Call{}); err != nil || textOf(r) != "ok" {
					t.Fatal(r, err)
				}
			}
			if n, d := f.count(methodInitialize), f.count(methodDiscover); n != 2 || d != 1 {
				t.Errorf("%d sessions after %d probes, want 2 after 1", n, d)
			}
		})
	}
}

func TestAServerWithoutAnySessionMemoryFailsTheCallOnly(t *testing.T) {
	f := newFake(t)
	f.override["echo"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	r, err := named(f.client(), "echo").Call(t.Context(), tool.Call{})
	if err != nil || !r.IsError || !strings.Contains(textOf(r), "404") || f.count(methodCall) != 2 {
		t.Error(r, err, f.count(methodCall))
	}
}

func TestConcurrentCallsShareOneSession(t *testing.T) {
	f := newFake(t)
	const n = 20
	var all sync.WaitGroup
	all.Add(n)
	f.override["meet"] = func(w http.ResponseWriter, r *http.Request) {
		all.Done()
		all.Wait() // answers only when all calls are here
		say("met")(w, r)
	}
	c := f.client(func(s *Server) { s.MaxConcurrent = n })
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			if r, err := named(c, "meet").Call(t.Context(), tool.Call{}); err != nil || textOf(r) != "met" {
				t.Error(r, err)
			}
		})
	}
	callers.Wait()
	if s := f.count(methodInitialize); s != 1 {
		t.Errorf("%d sessions, want 1", s)
	}
}

func TestACallerThatLeavesTheHandshakeSpoilsItForNobody(t *testing.T) {
	f := newFake(t)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	f.noInit = func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-goOn
		f.noInit = nil
		f.initialize(w, r)
	}
	c := f.client()
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := named(c, "echo").Call(ctx, tool.Call{})
		first <- err
	}()
	<-arrived
	second := make(chan error, 1)
	go func() {
		_, err := named(c, "echo").Call(t.Context(), tool.Call{})
		second <- err
	}()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("first: %v", err)
	}
	close(goOn)
	if err := <-second; err != nil {
		t.Errorf("second: %v", err)
	}
}

// watch notes which requests saw the value of a caller's context.
type watch struct {
	http.RoundTripper
	mu  sync.Mutex
	saw map[string]bool
}

type callerKey struct{}

func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	what := r.Method
	if r.Body != http.NoBody {
		body, _ := io.ReadAll(r.Body)
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		var m struct{ Method string }
		_ = json.Unmarshal(body, &m)
		what = m.Method
	}
	w.saw[what] = r.Context().Value(callerKey{}) != nil
	w.mu.Unlock()
	return w.RoundTripper.RoundTrip(r)
}

func TestTheCallersContextReachesTheCallAndNotTheSession(t *testing.T) {
	f := newFake(t)
	w := &watch{RoundTripper: &http.Transport{}, saw: map[string]bool{}}
	defer w.RoundTripper.(*http.Transport).CloseIdleConnections()
	c := New(Server{Name: "fake", URL: f.URL}, &http.Client{Transport: w}, nil)
	ctx := context.WithValue(t.Context(), callerKey{}, "org-1")
	tools, err := c.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tools[0].Call(ctx, tool.Call{}); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	for what, want := range map[string]bool{
		methodDiscover: false, methodInitialize: false, "notifications/initialized": false,
		methodList: true, methodCall: true, http.MethodDelete: false,
	} {
		if got, ok := w.saw[what]; !ok || got != want {
			t.Errorf("%s: seen %v, caller's value %v, want %v", what, ok, got, want)
		}
	}
}

func TestAForbiddenAddressComesOutOfListAndCall(t *testing.T) { // K01, K04
	f := newFake(t)
	out := egress.New(egress.DefaultPolicy(), egress.Options{})
	defer out.CloseIdleConnections()
	c := New(Server{Name: "inside", URL: f.URL}, out.Guarded(egress.GuardedOptions{}), nil)
	defer c.Close()
	_, listErr := c.List(t.Context())
	_, callErr := named(c, "x").Call(t.Context(), tool.Call{})
	if !errors.Is(callErr, tool.ErrNotSent) { // the address was refused before the connection
		t.Errorf("the call may have left: %v", callErr)
	}
	for _, err := range []error{listErr, callErr} {
		var fatal tool.Blocked
		if !errors.As(err, &fatal) {
			t.Fatalf("%v is not fatal", err)
		}
		if reason, address := fatal.Blocked(); reason != "loopback" || address != "127.0.0.1" {
			t.Errorf("%s %s: %v", reason, address, err)
		}
	}
	if len(f.requests) != 0 {
		t.Errorf("%d requests arrived", len(f.requests))
	}
}

func TestARedirectToTheInsideIsFatal(t *testing.T) { // K05
	for name, at := range map[string]string{"in the call": "x", "in discovery": methodList, "in the handshake": methodInitialize} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			redirect := func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusTemporaryRedirect)
			}
			f.override[at] = redirect
			p := egress.DefaultPolicy()
			p.Allowlist = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			out := egress.New(p, egress.Options{})
			defer out.CloseIdleConnections()
			c := New(Server{Name: "inside", URL: f.URL}, out.Guarded(egress.GuardedOptions{}), nil)
			defer c.Close()
			_, err := c.List(t.Context())
			if at == "x" {
				_, err = named(c, "x").Call(t.Context(), tool.Call{})
			}
			var blocked *egress.BlockedError
			if !errors.As(err, &blocked) || blocked.Reason != "redirect" {
				t.Errorf("%v, want a refused redirect", err)
			}
		})
	}
}

// direct answers as if nothing were overridden.
func (f *fake) direct(w http.ResponseWriter, r *http.Request) {
	plain := &fake{t: f.t, sessions: f.sessions}
	plain.answer(w, r, asked(r))
	f.mu.Lock()
	defer f.mu.Unlock()
	if plain.live != "" {
		f.live, f.sessions = plain.live, plain.sessions
	}
}

func TestAStreamThatTheServerClosesOnPurposeIsTakenUpAgain(t *testing.T) {
	f := newFake(t)
	var id json.RawMessage
	f.override["long"] = func(w http.ResponseWriter, r *http.Request) {
		id = asked(r).id
		asEvents(w)
		fmt.Fprint(w, "id: e1\nretry: 1\ndata:\n\n")
	}
	f.override[http.MethodGet] = func(w http.ResponseWriter, r *http.Request) {
		asEvents(w)
		switch r.Header.Get("Last-Event-ID") {
		case "e1":
			fmt.Fprint(w, "id: e2\nretry: 1\ndata:\n\n")
		case "e2":
			fmt.Fprintf(w, "id: e3\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"late\"}]}}\n\n", id)
		}
	}
	r, err := named(f.client(), "long").Call(t.Context(), tool.Call{})
	if err != nil || textOf(r) != "late" || f.count(methodCall) != 1 {
		t.Error(r, err, f.count(methodCall))
	}
	for _, s := range f.of(http.MethodGet) {
		if s.header.Get("Mcp-Session-Id") != "session-1" {
			t.Errorf("resumed without the session: %v", s.header)
		}
	}
}

func TestAClosedClientRefusesCalls(t *testing.T) {
	f := newFake(t)
	hung := make(chan struct{})
	f.override["hang"] = func(_ http.ResponseWriter, r *http.Request) {
		close(hung)
		<-r.Context().Done()
	}
	c := f.client()
	under := make(chan error, 1)
	go func() {
		_, err := named(c, "hang").Call(t.Context(), tool.Call{})
		under <- err
	}()
	<-hung
	_ = c.Close()
	if err := <-under; !errors.Is(err, errClosed) {
		t.Errorf("call under way: %v", err)
	}
	if _, err := named(c, "echo").Call(t.Context(), tool.Call{}); !errors.Is(err, errClosed) {
		t.Errorf("later call: %v", err)
	}
	if _, err := c.List(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("later list: %v", err)
	}
	if f.count(http.MethodDelete) != 1 {
		t.Errorf("%d farewells, want 1", f.count(http.MethodDelete))
	}
}

func TestCookiesAndForeignURLsAreNotUsed(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	c := New(Server{Name: "a", URL: "http://example.com/"}, &http.Client{Transport: http.DefaultTransport}, nil)
	defer c.Close()
	if _, err := c.http.Get(srv.URL); !errors.Is(err, errRedirect) {
		t.Errorf("another URL was fetched with the server's headers: %v", err)
	}
}

func TestCallsKeepTheirConnection(t *testing.T) {
	f := newFake(t)
	f.override["events"] = func(w http.ResponseWriter, r *http.Request) {
		asEvents(w)
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", asked(r).id)
		_ = http.NewResponseController(w).Flush()
	}
	var mu sync.Mutex
	dials := 0
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		dials++
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	defer base.CloseIdleConnections()
	c := New(Server{Name: "kept", URL: f.URL}, &http.Client{Transport: base}, nil)
	defer c.Close()
	for range 20 {
		for _, name := range []string{"events", "echo"} {
			if _, err := named(c, name).Call(t.Context(), tool.Call{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if dials > 8 { // a stream may still be ending when the next call begins
		t.Errorf("%d connections for 40 calls", dials)
	}
}

func TestAClientWithoutATransportConnectsNowhere(t *testing.T) {
	f := newFake(t)
	c := New(Server{Name: "x", URL: f.URL, MaxRetries: -1}, &http.Client{}, nil)
	defer c.Close()
	if _, err := c.List(t.Context()); err == nil || len(f.requests) != 0 {
		t.Error(err, len(f.requests))
	}
}
