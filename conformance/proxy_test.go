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

// proxy stands before an MCP server, passes everything on as it is, keeps the
// tools/call requests that went through, and counts the tools/list requests. A gate
// holds the calls of one tool.
type proxy struct {
	*httptest.Server
	onward *httputil.ReverseProxy

	mu    sync.Mutex
	calls []toolCall       // guarded by mu
	lists int              // how often tools/list was asked; guarded by mu
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
	for _, asked := range rpcRequests(body) {
		if g := p.record(asked); g != nil && !g.pass(r.Context()) {
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.onward.ServeHTTP(w, r)
}

// rpcRequest is what the proxy reads of a JSON-RPC request.
type rpcRequest struct {
	Method string
	Params json.RawMessage
}

// rpcRequests finds the requests in a JSON-RPC message or batch.
func rpcRequests(body []byte) []rpcRequest {
	var batch []rpcRequest
	if json.Unmarshal(body, &batch) == nil {
		return batch
	}
	var one rpcRequest
	if json.Unmarshal(body, &one) != nil {
		return nil
	}
	return []rpcRequest{one}
}

// record keeps a request, and returns the gate that it has to pass; nil = none.
func (p *proxy) record(asked rpcRequest) *gate {
	p.mu.Lock()
	defer p.mu.Unlock()
	var call toolCall
	switch {
	case asked.Method == "tools/list":
		p.lists++
	case asked.Method == "tools/call" && json.Unmarshal(asked.Params, &call) == nil:
		p.calls = append(p.calls, call)
		return p.gates[call.Tool]
	}
	return nil
}

// listed returns how often the tools were listed.
func (p *proxy) listed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists
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
