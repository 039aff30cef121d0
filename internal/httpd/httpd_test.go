package httpd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
)

var inChat = surface.Group{Errors: chat.Errors()}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBearer(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer k": "k", "bearer k": "k", "BEARER  k ": "k", "Bearer a b": "a b",
		"": "", "k": "", "Bearer": "", "Bearer ": "", "Basic k": "", "Bearerk": "",
	} {
		got, err := bearer(header)
		if got != want && err == nil || (err != nil) != (want == "") {
			t.Errorf("%q is the key %q (%v), want %q", header, got, err, want)
		}
	}
}

// newTestAPI returns an API whose only endpoint is h, beside the health checks.
func newTestAPI(h http.HandlerFunc, limits Limits) *API {
	a := &API{o: Options{Health: func() error { return nil }, Limits: limits.withDefaults()}}
	a.routes = newRoutes([]surface.Route{inChat.Route("/", nil)}, func(surface.Route) http.HandlerFunc { return h })
	a.mux.HandleFunc("GET /readyz", a.readyz)
	a.mux.HandleFunc("GET /healthz", a.healthz)
	return a
}

// serveTest serves h with default limits. It returns the URL and a stop function.
func serveTest(t *testing.T, h http.HandlerFunc) (url string, stop func() error) {
	t.Helper()
	return serveTestWithLimits(t, Limits{}, h)
}

func serveTestWithLimits(t *testing.T, limits Limits, h http.HandlerFunc) (url string, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newTestAPI(h, limits)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx, l, slog.New(slog.DiscardHandler), func(context.Context) {}) }()
	stop = sync.OnceValue(func() error { cancel(); return <-served })
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String(), stop
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func TestTheAPIIsReadyOnlyWhileItServes(t *testing.T) {
	a := &API{o: Options{Health: func() error { return nil }}}
	for _, ready := range []bool{false, true, false} {
		a.SetReady(ready)
		w := &recorder{header: http.Header{}}
		a.readyz(w, nil)
		if (w.status == 200) != ready || (w.status == 503) == ready {
			t.Errorf("ready %t: status %d", ready, w.status)
		}
	}
	url, stop := serveTest(t, func(http.ResponseWriter, *http.Request) {})
	if status, _ := get(t, url+"/readyz"); status != 200 {
		t.Errorf("status %d while serving", status)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if status, _ := get(t, url+"/readyz"); status != 0 {
		t.Errorf("status %d after the end", status)
	}
}

type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }

func TestARequestInProgressIsFinishedBeforeTheStop(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	url, stop := serveTest(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		fmt.Fprint(w, "whole", r.Context().Err())
	})
	got := make(chan string, 1)
	go func() {
		_, body := get(t, url+"/x")
		got <- body
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for { // until the gateway is stopping
		status, body := get(t, url+"/readyz")
		if status == 200 {
			continue
		}
		if status != 503 || body != "stopping\n" {
			t.Errorf("while the gateway stops, /readyz answers %d %q", status, body)
		}
		break
	}
	if status, _ := get(t, url+"/healthz"); status != 200 {
		t.Errorf("while the gateway stops, /healthz answers %d", status)
	}
	if status, body := get(t, url+"/v1/models"); status != 503 || !strings.Contains(body, `"stopping"`) {
		t.Errorf("while the gateway stops, a new request got %d %s", status, body)
	}
	close(release)
	if body := <-got; body != "whole<nil>" {
		t.Errorf("the client got %q", body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// pipes is a listener for connections within the process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func() error
}

func newPipes() pipes {
	closed := make(chan struct{})
	return pipes{make(chan net.Conn), closed, sync.OnceValue(func() error { close(closed); return nil })}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { return p.close() }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// With the default limits, work that never ends holds a stop up for 25 seconds, then 2 more.
func TestAStopCutsOffWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan struct{}), make(chan struct{})
		a := newTestAPI(func(http.ResponseWriter, *http.Request) {
			close(entered)
			<-release
		}, Limits{})
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		var drained time.Time
		go func() {
			served <- a.Serve(ctx, l, slog.New(slog.DiscardHandler), func(hard context.Context) {
				<-hard.Done()
				drained = time.Now()
			})
		}()
		client, server := net.Pipe()
		l.conns <- server
		fmt.Fprint(client, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
		<-entered
		stopped := time.Now()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if took := drained.Sub(stopped); took != 25*time.Second {
			t.Errorf("the other work was cut off after %v", took)
		}
		if took := time.Since(stopped); took != StopsWithin {
			t.Errorf("Serve returned after %v, want %v", took, StopsWithin)
		}
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the client's connection ended with %v", err)
		}
		close(release)
	})
}

func TestServeReturnsTheListenersError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	a := &API{o: Options{Health: func() error { return nil }}}
	if err := a.Serve(t.Context(), l, slog.New(slog.DiscardHandler), func(context.Context) {}); err == nil {
		t.Error("no error on a listener that is closed")
	}
}

func TestAHeaderOverTheLimitIsRefused(t *testing.T) {
	url, stop := serveTest(t, func(http.ResponseWriter, *http.Request) {})
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Long", strings.Repeat("x", 80<<10))
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A client without a valid key that declares a body and never sends it is
// answered at once, and its connection is closed.
func TestAClientThatNeverSendsItsBodyIsAnswered(t *testing.T) {
	never := func(http.ResponseWriter, *http.Request, caller.Caller) error { panic("the endpoint was called") }
	url, stop := serveTest(t, (&API{}).authorize(inChat.Route("", never)))
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	fmt.Fprint(conn, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
	buf := make([]byte, 12)
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "HTTP/1.1 401" {
		t.Errorf("within two seconds came %q (%v)", buf, err)
	}
	_ = conn.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A process that may not have the settings that hold answers health checks alone. // A01
func TestAProcessThatIsOutAnswersHealthChecksAlone(t *testing.T) {
	out := fault.New(fault.Unavailable, "replica_out", "not now")
	out.RetryAfter = time.Second
	a := newTestAPI(func(http.ResponseWriter, *http.Request) {}, Limits{})
	a.o.Out = func() error { return out }
	for path, status := range map[string]int{"/healthz": 200, "/v1/models": 503, "/unknown": 503} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		if w.Code != status || status == 503 && (!strings.Contains(w.Body.String(), `"replica_out"`) || w.Header().Get("Retry-After") != "1") {
			t.Errorf("%s is answered %d %s", path, w.Code, w.Body)
		}
	}
}

// A balancer that has not asked /readyz yet sends requests on connections that it keeps.
func TestRequestsOnIdleConnectionsAreTakenUntilTheBalancerHasNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestAPI(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, Limits{Linger: 3 * time.Second})
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		drained := time.Duration(0)
		var stopped time.Time
		go func() {
			served <- a.Serve(ctx, l, slog.New(slog.DiscardHandler), func(context.Context) { drained = time.Since(stopped) })
		}()
		connect := func() (net.Conn, *bufio.Reader) {
			client, server := net.Pipe()
			l.conns <- server
			return client, bufio.NewReader(client)
		}
		get := func(c net.Conn, r *bufio.Reader, path string, status int, closes bool) {
			t.Helper()
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
			got, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, got.Body)
			if got.StatusCode != status || got.Close != closes {
				t.Errorf("%s: status %d, closed %t; want %d, %t", path, got.StatusCode, got.Close, status, closes)
			}
		}
		kept, reader := connect()
		get(kept, reader, "/x", http.StatusNoContent, false)
		idle, idleReader := connect()
		get(idle, idleReader, "/readyz", http.StatusOK, false)
		stopped = time.Now()
		cancel()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		get(kept, reader, "/x", http.StatusNoContent, true)
		probe, probeReader := connect()
		get(probe, probeReader, "/readyz", http.StatusServiceUnavailable, true)
		if err := <-served; err != nil || drained != 3*time.Second {
			t.Errorf("it was drained after %v: %v", drained, err)
		}
		if _, err := idleReader.ReadByte(); err != io.EOF {
			t.Errorf("an idle connection ended with %v", err)
		}
	})
}
