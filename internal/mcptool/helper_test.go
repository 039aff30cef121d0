package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/tool"
)

// TestMain runs the tests, or this binary as the child process of one of them.
func TestMain(m *testing.M) {
	if serveAsChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// fake is a hand-written MCP server with sessions of revision 2025-11-25. Its
// fields are set before the first request.
type fake struct {
	t *testing.T
	*httptest.Server

	tools    string                      // the tools of tools/list; "" = one called echo
	override map[string]http.HandlerFunc // by method or by tool name; body is in the request
	noInit   http.HandlerFunc            // answers initialize instead of us

	mu       sync.Mutex // guards what follows
	requests []seen
	sessions int
	live     string // the session id that is valid; "" = none was given out
}

// seen is one request as the fake server saw it.
type seen struct {
	verb, method string
	header       http.Header
	id, params   json.RawMessage
	from         string // the caller's address, one for each connection
	body         []byte
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, override: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Server.Close)
	return f
}

// client returns a Client of the fake server, closed with the test.
func (f *fake) client(change ...func(*Server)) *Client {
	s := Server{Name: "fake", URL: f.URL, Timeout: time.Minute}
	for _, c := range change {
		c(&s)
	}
	base := &http.Transport{DisableCompression: true}
	c := New(s, &http.Client{Transport: base}, nil)
	f.t.Cleanup(func() {
		_ = c.Close()
		base.CloseIdleConnections()
	})
	return c
}

type seenKey struct{}

// asked returns the request that a handler is answering.
func asked(r *http.Request) seen { return r.Context().Value(seenKey{}).(seen) }

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	_ = json.Unmarshal(body, &m)
	s := seen{r.Method, m.Method, r.Header.Clone(), m.ID, m.Params, r.RemoteAddr, body}
	f.mu.Lock()
	f.requests = append(f.requests, s)
	stale := f.live != r.Header.Get("Mcp-Session-Id") && m.Method != methodInitialize && m.Method != methodDiscover
	f.mu.Unlock()
	r = r.WithContext(context.WithValue(r.Context(), seenKey{}, s))
	if stale {
		http.Error(w, "session not found", http.StatusNotFound)
		return
	}
	f.answer(w, r, s)
}

func (f *fake) answer(w http.ResponseWriter, r *http.Request, s seen) {
	var call struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(s.params, &call)
	for _, key := range []string{call.Name, s.method, s.verb} {
		if h := f.override[key]; h != nil && key != "" {
			h(w, r)
			return
		}
	}
	switch s.method {
	case methodInitialize:
		f.initialize(w, r)
	case methodList:
		tools := f.tools
		if tools == "" {
			tools = `[{"name":"echo","inputSchema":{"type":"object"}}]`
		}
		result(w, s.id, `{"tools":`+tools+`}`)
	case methodCall:
		result(w, s.id, `{"content":[{"type":"text","text":"ok"}]}`)
	case methodDiscover:
		rpcFail(w, s.id, codeMethodNotFound, "method not found")
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (f *fake) initialize(w http.ResponseWriter, r *http.Request) {
	if f.noInit != nil {
		f.noInit(w, r)
		return
	}
	f.mu.Lock()
	f.sessions++
	f.live = fmt.Sprintf("session-%d", f.sessions)
	w.Header().Set("Mcp-Session-Id", f.live)
	f.mu.Unlock()
	result(w, asked(r).id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
}

// forget makes the server forget its session.
func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = "none"
}

// count returns how many requests of a method came.
func (f *fake) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, s := range f.requests {
		if s.method == method || s.method == "" && s.verb == method {
			n++
		}
	}
	return n
}

// of returns the requests of a method.
func (f *fake) of(method string) []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []seen
	for _, s := range f.requests {
		if s.method == method || s.method == "" && s.verb == method {
			out = append(out, s)
		}
	}
	return out
}

func result(w http.ResponseWriter, id json.RawMessage, raw string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, raw)
}

func rpcFail(w http.ResponseWriter, id json.RawMessage, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message)
}

// say answers with text as the result of a call.
func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result(w, asked(r).id, fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text))
	}
}

// named returns a tool of c without a discovery.
func named(c *Client, name string) *remote {
	return &remote{client: c, definition: tool.Definition{Name: name}, class: tool.Once}
}

// toolCall returns a call without arguments.
func toolCall() tool.Call { return tool.Call{} }

// textOf returns the text of a result.
func textOf(r tool.Result) string {
	out := ""
	for _, p := range r.Parts {
		out += p.Text
	}
	return out
}

// unanswered turns the error of a call that got no answer into a result, so that
// tests can look at what the model reads of either.
func unanswered(r tool.Result, err error) (tool.Result, error) {
	var none *callError
	if errors.As(err, &none) {
		return tool.Error(err.Error()), nil
	}
	return r, err
}

// until waits for something that no channel tells about.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !f(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after a minute", what)
		}
	}
}

// exactly answers with a result of one text, n bytes of JSON in all.
func exactly(n int, how string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		before := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, asked(r).id)
		const after = `"}]}}`
		text := before + strings.Repeat("x", n-len(before)-len(after)) + after
		switch how {
		case "known":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		case "chunked":
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
		case "event":
			asEvents(w)
			text = "data: " + text[:len(text)-len("data: ")-2]
			text = text[:len(text)-len(after)] + after + "\n\n"
		}
		_, _ = w.Write([]byte(text))
	}
}
