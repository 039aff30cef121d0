package httptool

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// got is a request that an endpoint got.
type got struct {
	method, uri, body string
	header            http.Header
}

// bench is an endpoint and a tool that calls it.
type bench struct {
	*testing.T
	url string
	log strings.Builder

	mu  sync.Mutex
	got []got
}

func newBench(t *testing.T, answer http.HandlerFunc) *bench {
	t.Helper()
	b := &bench{T: t}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.got = append(b.got, got{r.Method, r.RequestURI, string(body), r.Header.Clone()})
		b.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	b.url = srv.URL
	return b
}

func (b *bench) all() []got {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// client returns a guarded client that may connect to these addresses only.
func client(t *testing.T, allowed ...string) *http.Client {
	t.Helper()
	p := egress.DefaultPolicy()
	for _, a := range allowed {
		p.Allowlist = append(p.Allowlist, netip.MustParsePrefix(a))
	}
	out := egress.New(p, egress.Options{})
	t.Cleanup(out.CloseIdleConnections)
	return out.Guarded(egress.GuardedOptions{})
}

// tool returns a tool of the endpoint: the defaults, as change makes them.
func (b *bench) tool(change func(*org.HTTPTool)) *Tool {
	b.Helper()
	s := org.HTTPTool{
		Name: "order", Description: "d", InputSchema: json.RawMessage(`{"type":"object"}`), URL: b.url + "/hook", Method: "POST", Class: tool.Once,
		Timeout: 10 * time.Second, MaxRetries: 2, MaxCharacters: 10_000, MaxConcurrentCalls: 4, Enabled: true,
	}
	if change != nil {
		change(&s)
	}
	t, err := New(s, Options{Client: client(b.T, "127.0.0.1/32"), Log: slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func says(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func textIn(r tool.Result) string {
	if len(r.Parts) == 0 {
		return ""
	}
	return r.Parts[0].Text
}

// E11. The endpoint gets exactly the arguments of the model, or those that are left after the URL.
func TestAnEndpointGetsTheArguments(t *testing.T) {
	const arguments = `{"z": 1.50, "id":"A/7 ü", "list":[1,"b"], "map":{"k":null}, "none":null}`
	for name, c := range map[string]struct {
		change    func(*org.HTTPTool)
		uri, body string
	}{
		"a body":             {nil, "/hook", arguments},
		"the path":           {func(s *org.HTTPTool) { s.URL += "/{id}/x?a=b&v={z}"; s.Method = "PUT" }, "/hook/A%2F7%20%C3%BC/x?a=b&v=1.50", `{"list":[1,"b"],"map":{"k":null},"none":null}`},
		"the query":          {func(s *org.HTTPTool) { s.Method = "GET" }, "/hook?id=A%2F7+%C3%BC&list=1&list=b&map=%7B%22k%22%3Anull%7D&z=1.50", ""},
		"a query of the URL": {func(s *org.HTTPTool) { s.Method, s.URL = "DELETE", s.URL+"?a=b&id={id}" }, "/hook?a=b&id=A%2F7+%C3%BC&list=1&list=b&map=%7B%22k%22%3Anull%7D&z=1.50", ""},
		"a query by choice":  {func(s *org.HTTPTool) { s.Arguments = org.ArgumentsInQuery }, "/hook?id=A%2F7+%C3%BC&list=1&list=b&map=%7B%22k%22%3Anull%7D&z=1.50", ""},
		"a body by choice":   {func(s *org.HTTPTool) { s.Method, s.Arguments = "DELETE", org.ArgumentsInBody }, "/hook", arguments},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, says(200, "done"))
			r, err := b.tool(c.change).Call(t.Context(), tool.Call{Arguments: json.RawMessage(arguments), IdempotencyKey: "k1"})
			if err != nil || r.IsError || textIn(r) != "done" {
				t.Fatalf("%+v, %v", r, err)
			}
			one := b.all()[0]
			if one.uri != c.uri || one.body != c.body || one.header.Get("Idempotency-Key") != "k1" {
				t.Errorf("the endpoint got %s %s with %q, key %q", one.method, one.uri, one.body, one.header.Get("Idempotency-Key"))
			}
			if want := map[bool]string{true: "application/json"}[c.body != ""]; one.header.Get("Content-Type") != want {
				t.Errorf("content type %q, want %q", one.header.Get("Content-Type"), want)
			}
		})
	}
}

func TestACallWithoutArgumentsSendsAnEmptyObject(t *testing.T) {
	b := newBench(t, says(200, "done"))
	if _, err := b.tool(nil).Call(t.Context(), tool.Call{}); err != nil || b.all()[0].body != "{}" {
		t.Errorf("the endpoint got %+v, %v", b.all(), err)
	}
}

// K01. No argument chooses another host or path, and nothing is sent for one that tries.
func TestAnArgumentLeadsNowhereElse(t *testing.T) {
	b := newBench(t, says(200, "done"))
	order := b.tool(func(s *org.HTTPTool) { s.URL += "/{a}{b}/x" })
	for arguments, want := range map[string]string{
		`{"a":"..","b":"y"}`:          "the argument a leads to another path",
		`{"a":"y/../../admin","b":1}`: "the argument a leads to another path",
		`{"a":"y\\..\\z","b":1}`:      "the argument a leads to another path",
		`{"a":"","b":"y"}`:            "the argument a is empty",
		`{"a":"y"}`:                   "the argument b is missing",
		`{"a":"y","b":["z"]}`:         "the argument b must be text",
		`{"a":"y","b":null}`:          "the argument b must be text",
		`{"a":".","b":"."}`:           "the argument a leads to another path",
		`["a"]`:                       "not a JSON object",
		fmt.Sprintf(`{"a":"y","b":%q}`, strings.Repeat("z", maxURL)): "longer than 4000 bytes",
	} {
		_, err := order.Call(t.Context(), tool.Call{Arguments: json.RawMessage(arguments)})
		if !errors.Is(err, tool.ErrNotSent) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", arguments, err, want)
		}
	}
	for _, sent := range []string{`{"a":"@evil.example","b":"#x?y=z"}`, `{"a":"%2e%2e","b":"a.b.."}`} {
		if _, err := order.Call(t.Context(), tool.Call{Arguments: json.RawMessage(sent)}); err != nil {
			t.Errorf("%s: %v", sent, err)
		}
	}
	if len(b.all()) != 2 || b.all()[0].uri != "/hook/@evil.example%23x%3Fy=z/x" || b.all()[1].uri != "/hook/%252e%252ea.b../x" {
		t.Errorf("the endpoint got %+v", b.all())
	}
}

func TestWhatIsNotAURLOfATool(t *testing.T) {
	for _, bad := range []string{"/x", "https://{host}/x", "https://h.{d}.com", "https://h:{port}/", "https://h/{a b}", "https://h/{", "https://h/}", "https://h/{}", "https://h/{1a}", "https://h/../x", "https://h/%2e%2e/x"} {
		if _, err := ParseURL(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func coded(coding, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", coding)
		_, _ = io.WriteString(w, body)
	}
}

func typed(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

// E11, C22. What the model gets of a response.
func TestAResponseIsTheResult(t *testing.T) {
	long := strings.Repeat("ü", 25)
	const unreadable = "the endpoint answered with 200 OK, but its content cannot be read: "
	const binary = "[content that is not text in UTF-8 or in a known charset: "
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
		fails  bool
	}{
		"text":               {says(200, "hello"), "hello", false},
		"created":            {says(201, `{"id":1}`), `{"id":1}`, false},
		"nothing":            {says(204, ""), "[no content: the endpoint answered with 204 No Content]", false},
		"an error":           {says(404, `{"error":"no order"}`), `the endpoint answered with 404 Not Found: {"error":"no order"}`, true},
		"an error alone":     {says(401, ""), "the endpoint answered with 401 Unauthorized", true},
		"exactly the length": {says(200, long[:40]), long[:40], false},
		"longer":             {says(200, long), long[:40] + "\n\n[Truncated: the response is longer than 20 characters]", false},
		"binary": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write([]byte("\x89PNG\x00"))
		}, "the endpoint answered with 200 OK and " + binary + "image/png]", true},
		"compressed": {coded("gzip", gzipped("hello")), "hello", false},
		"compressed, longer": {coded("gzip", gzipped(strings.Repeat("a", 1<<20))),
			strings.Repeat("a", 20) + "\n\n[Truncated: the response is longer than 20 characters]", false},
		"compressed, as it says":    {coded("gzip", "hello"), unreadable + "the answer is not gzip, as its header says", true},
		"compressed in another way": {coded("br", ""), unreadable + `the answer has the content encoding "br", which was not asked for`, true},
		"in latin-1":                {typed("application/json; charset=iso-8859-1", "{\"n\":\"caf\xe9\"}"), `{"n":"café"}`, false},
		"in UTF-16":                 {typed("text/plain; charset=utf-16le", "h\x00i\x00"), "hi", false},
		"UTF-8 that says latin-1":   {typed("text/plain; charset=iso-8859-1", "café"), "café", false},
		"an unknown charset": {typed("text/plain; charset=x-none", "caf\xe9"),
			"the endpoint answered with 200 OK and " + binary + "text/plain]", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.answer)
			r, err := b.tool(func(s *org.HTTPTool) { s.MaxCharacters = 20 }).Call(t.Context(), tool.Call{})
			if err != nil || textIn(r) != c.want || r.IsError != c.fails || len(b.all()) != 1 {
				t.Errorf("%q, error %v, %v after %d requests", textIn(r), r.IsError, err, len(b.all()))
			}
		})
	}
}

// endless is a response whose body never ends.
type endless struct{ read atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func (e *endless) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(e)}, nil
}

func TestAResponseWithoutEndIsNotReadToItsEnd(t *testing.T) {
	e := &endless{}
	one, err := New(org.HTTPTool{Name: "t", URL: "http://h/", Method: "POST", Class: tool.Once, Timeout: time.Minute, MaxCharacters: 100, MaxConcurrentCalls: 1}, Options{Client: &http.Client{Transport: e}})
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{limit: 1000}
	r, err := one.Call(t.Context(), tool.Call{Memory: m})
	if err != nil || !strings.HasSuffix(textIn(r), "[Truncated: the response is longer than 100 characters]") || e.read.Load() > 4096 {
		t.Errorf("%d bytes of text after %d bytes, %v", len(textIn(r)), e.read.Load(), err)
	}
	if m.used != len(textIn(r)) {
		t.Errorf("%d bytes are charged for a text of %d", m.used, len(textIn(r)))
	}
	_, err = one.Call(t.Context(), tool.Call{Memory: &memory{limit: 100}})
	if !errors.Is(err, tool.ErrNotSent) || !strings.Contains(err.Error(), "memory") {
		t.Errorf("without memory: %v", err)
	}
}

type memory struct{ limit, used int }

func (m *memory) Acquire(n int) error {
	if m.used+n > m.limit {
		return errors.New("full")
	}
	m.used += n
	return nil
}

func (m *memory) Release(n int) { m.used -= n }

// hangUp closes the connection without a response.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// E05. A call whose response is lost is sent again if its class allows that, with the same key, and
// otherwise not. net/http repeats nothing by itself.
func TestTheClassDecidesAboutRepetition(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		class  tool.Class
		key    string
		lost   http.HandlerFunc
		sent   int
		result string // "" = an error
	}{
		"once":                         {"POST", tool.Once, "k", hangUp, 1, ""},
		"once, a GET":                  {"GET", tool.Once, "k", hangUp, 1, ""},
		"once, a DELETE":               {"DELETE", tool.Once, "k", hangUp, 1, ""},
		"keyed":                        {"POST", tool.Keyed, "k", hangUp, 3, "done"},
		"keyed without a key":          {"POST", tool.Keyed, "", hangUp, 1, ""},
		"read":                         {"GET", tool.Read, "", hangUp, 3, "done"},
		"read, in a body":              {"POST", tool.Read, "", hangUp, 3, "done"},
		"once, unavailable":            {"POST", tool.Once, "k", says(503, ""), 1, "the endpoint answered with 503 Service Unavailable"},
		"read, unavailable":            {"GET", tool.Read, "", says(503, ""), 3, "done"},
		"read, too many":               {"GET", tool.Read, "", says(429, ""), 3, "done"},
		"read, an error of the caller": {"GET", tool.Read, "", says(400, ""), 1, "the endpoint answered with 400 Bad Request"},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) <= 2 {
					c.lost(w, r)
					return
				}
				says(200, "done")(w, r)
			})
			one := b.tool(func(s *org.HTTPTool) { s.Method, s.Class = c.method, c.class })
			warm := b.tool(func(s *org.HTTPTool) { s.Method = "GET" }) // a connection that is used again is one that net/http retries on
			n.Store(5)
			if _, err := warm.Call(t.Context(), tool.Call{}); err != nil {
				t.Fatal(err)
			}
			n.Store(0)
			one.o.Client = warm.o.Client
			r, err := one.Call(t.Context(), tool.Call{IdempotencyKey: c.key, Arguments: json.RawMessage(`{"a":1}`)})
			all := b.all()[1:]
			if (err == nil) != (c.result != "") || textIn(r) != c.result {
				t.Errorf("%q, %v", textIn(r), err)
			}
			if len(all) != c.sent {
				t.Errorf("the endpoint got %d requests, want %d", len(all), c.sent)
			}
			if c.result == "" && (errors.Is(err, tool.ErrNotSent) || err.Error() != "the connection was closed before it answered") {
				t.Errorf("error %q", err)
			}
			for _, g := range all {
				if g.header.Get("Idempotency-Key") != c.key {
					t.Errorf("idempotency key %q, want %q", g.header.Get("Idempotency-Key"), c.key)
				}
			}
		})
	}
}

// What was provably not sent is sent again, whatever its class, and is told as not sent.
func TestAnEndpointThatIsNotThereGotNothing(t *testing.T) {
	b := newBench(t, says(200, ""))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	one := b.tool(func(s *org.HTTPTool) { s.URL = gone.URL + "/CANARY?token=CANARY" })
	_, err := one.Call(t.Context(), tool.Call{})
	if !errors.Is(err, tool.ErrNotSent) || strings.Contains(err.Error(), "CANARY") || !strings.HasSuffix(err.Error(), "could not be reached") {
		t.Errorf("error %v", err)
	}
	if log := b.log.String(); strings.Count(log, "is called again") != 2 || strings.Contains(log, "CANARY") {
		t.Errorf("log:\n%s", log)
	}
}

func TestACallHasATimeout(t *testing.T) {
	release := make(chan struct{})
	b := newBench(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	defer close(release)
	_, err := b.tool(func(s *org.HTTPTool) { s.Timeout = 20 * time.Millisecond }).Call(t.Context(), tool.Call{})
	if err == nil || errors.Is(err, tool.ErrNotSent) || err.Error() != "did not answer within 20ms" {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller has gone"))
	if _, err := b.tool(nil).Call(ctx, tool.Call{}); err == nil || !strings.Contains(fmt.Sprint(errors.Unwrap(err), err), "gone") && !errors.Is(err, context.Cause(ctx)) {
		t.Errorf("error %v", err)
	}
}

// K01, P06. The outbound policy holds for URLs of tools and for redirects, and ends the run.
func TestTheOutboundPolicyHolds(t *testing.T) {
	inside := newBench(t, says(200, "inside"))
	one := inside.tool(nil)
	one.o.Client = client(t)
	_, err := one.Call(t.Context(), tool.Call{})
	var fatal tool.Blocked
	if !errors.As(err, &fatal) || !errors.Is(err, tool.ErrNotSent) || len(inside.all()) != 0 {
		t.Errorf("a blocked address: %v", err)
	}
	for name, c := range map[string]struct {
		to    string
		fatal bool
	}{
		"to a blocked address":  {"http://10.0.0.1/", true},
		"to a file":             {"file:///etc/passwd", true},
		"to an allowed address": {inside.url, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, c.to, http.StatusFound) })
			r, err := b.tool(func(s *org.HTTPTool) { s.Method, s.Class = "GET", tool.Read }).Call(t.Context(), tool.Call{})
			var fatal tool.Blocked
			if errors.As(err, &fatal) != c.fatal || !c.fatal && (!r.IsError || textIn(r) != "the endpoint answered with 302 Found to another URL; redirects are not followed") || errors.Is(err, tool.ErrNotSent) {
				t.Errorf("%+v, %v", r, err)
			}
			if len(b.all()) != 1 || len(inside.all()) != 0 {
				t.Errorf("%d requests, %d at the target of the redirect", len(b.all()), len(inside.all()))
			}
		})
	}
}

// K06. Headers are looked up for each attempt. One that cannot be is told without its name and value.
func TestHeadersThatCannotBeResolvedSendNothing(t *testing.T) {
	b := newBench(t, says(200, "done"))
	one := b.tool(nil)
	one.o.Headers = func(context.Context) (http.Header, error) { return nil, errors.New("CANARY") }
	_, err := one.Call(t.Context(), tool.Call{})
	if !errors.Is(err, tool.ErrNotSent) || strings.Contains(err.Error(), "CANARY") || len(b.all()) != 0 {
		t.Errorf("%v, %d requests", err, len(b.all()))
	}
	one.o.Headers = func(context.Context) (http.Header, error) { return http.Header{"X-Key": {"v"}}, nil }
	if _, err := one.Call(t.Context(), tool.Call{}); err != nil || b.all()[0].header.Get("X-Key") != "v" {
		t.Errorf("%v, %+v", err, b.all())
	}
}

func TestCallsOfAToolAreBounded(t *testing.T) {
	var busy, most atomic.Int32
	entered, release := make(chan struct{}, 100), make(chan struct{})
	b := newBench(t, func(http.ResponseWriter, *http.Request) {
		most.Store(max(most.Load(), busy.Add(1)))
		defer busy.Add(-1)
		entered <- struct{}{}
		<-release
	})
	one := b.tool(func(s *org.HTTPTool) { s.MaxConcurrentCalls = 2 })
	var calls sync.WaitGroup
	for range 6 {
		calls.Go(func() {
			if _, err := one.Call(t.Context(), tool.Call{}); err != nil {
				t.Error(err)
			}
		})
	}
	<-entered
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := one.Call(ctx, tool.Call{}); !errors.Is(err, tool.ErrNotSent) {
		t.Errorf("a call that waits and is cancelled: %v", err)
	}
	close(release)
	calls.Wait()
	if most.Load() > 2 || len(b.all()) != 6 {
		t.Errorf("%d calls at a time, %d requests", most.Load(), len(b.all()))
	}
}

func TestAToolSaysItsClass(t *testing.T) {
	b := newBench(t, says(200, ""))
	for class, want := range map[tool.Class]tool.Annotations{tool.Once: {}, tool.Keyed: {Idempotent: new(true)}, tool.Read: {ReadOnly: new(true)}} {
		one := b.tool(func(s *org.HTTPTool) { s.Class = class })
		got, _ := json.Marshal(one.Definition().Annotations)
		if text, _ := json.Marshal(want); tool.ClassOf(one) != class || string(got) != string(text) {
			t.Errorf("class %s has the annotations %s", tool.ClassOf(one), got)
		}
	}
}
