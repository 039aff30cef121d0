package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// proxy stands before an MCP server, passes everything on as it is, and keeps
// the tools/call requests that went through. A gate holds the calls of one tool.
type proxy struct {
	*httptest.Server
	onward *httputil.ReverseProxy

	mu    sync.Mutex
	calls []toolCall       // guarded by mu
	gates map[string]*gate // by tool; guarded by mu
}

// toolCall is a tools/call request as it came by.
type toolCall struct {
	Tool      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func startProxy(t testing.TB, server string) *proxy {
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	p := &proxy{gates: map[string]*gate{}}
	p.onward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// ServeHTTP records and holds tool calls, then passes the request on.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the gateway left
	}
	for _, call := range toolCalls(body) {
		if g := p.record(call); g != nil && !g.pass(r.Context()) {
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.onward.ServeHTTP(w, r)
}

// toolCalls finds the tools/call requests in a JSON-RPC message or batch.
func toolCalls(body []byte) []toolCall {
	type request struct {
		Method string
		Params json.RawMessage
	}
	var batch []request
	if json.Unmarshal(body, &batch) != nil {
		var one request
		if json.Unmarshal(body, &one) != nil {
			return nil
		}
		batch = []request{one}
	}
	var calls []toolCall
	for _, r := range batch {
		var call toolCall
		if r.Method == "tools/call" && json.Unmarshal(r.Params, &call) == nil {
			calls = append(calls, call)
		}
	}
	return calls
}

func (p *proxy) record(call toolCall) *gate {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
	return p.gates[call.Tool]
}

// hold makes calls of tool wait for the returned gate.
func (p *proxy) hold(t testing.TB, tool string) *gate {
	g := newGate(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gates[tool] = g
	return g
}

// take returns the tool calls recorded since the last take.
func (p *proxy) take() []toolCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := slices.Clone(p.calls)
	p.calls = nil
	return calls
}
