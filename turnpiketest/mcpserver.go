package turnpiketest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MCPOptions say how an MCPServer behaves. The zero value is a well-behaved
// server with sessions that answers calls with event streams.
type MCPOptions struct {
	// Stateless serves without sessions.
	Stateless bool

	// JSON answers with application/json instead of text/event-stream.
	JSON bool

	// Notify is how many notifications go before every result of a tool; they
	// need a stream, so not with JSON or Bare.
	Notify int

	// Bare answers tools/list and tools/call by hand and refuses everything
	// else, initialize too: a server that is plain JSON-RPC over HTTP POST.
	Bare bool

	// Trouble is what happens instead of an answer to a JSON-RPC method, such
	// as initialize or tools/list.
	Trouble map[string]Trouble
}

// MCPServer is an MCP server on 127.0.0.1 with scripted tools: the official SDK
// over streamable HTTP, unless its options say otherwise. It is safe for
// concurrent use.
type MCPServer struct {
	URL string // the MCP endpoint

	o       MCPOptions
	sdk     *mcp.Server
	handler http.Handler // the SDK's
	server  *httptest.Server
	calls   ledger
	life    context.Context // ends with Close, and with it what hangs
	stop    context.CancelFunc

	mu      sync.Mutex // guards what follows
	tools   []Tool
	count   map[string]int
	headers map[string][]http.Header
}

// NewMCPServer starts a server with the tools. Close it.
func NewMCPServer(o MCPOptions, tools ...Tool) *MCPServer {
	m := &MCPServer{o: o, count: map[string]int{}, headers: map[string][]http.Header{}}
	m.life, m.stop = context.WithCancel(context.Background())
	m.sdk = mcp.NewServer(&mcp.Implementation{Name: "turnpiketest", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	m.sdk.AddReceivingMiddleware(m.listed)
	m.SetTools(tools...)
	m.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m.sdk },
		&mcp.StreamableHTTPOptions{Stateless: o.Stateless, JSONResponse: o.JSON})
	m.server = httptest.NewServer(http.HandlerFunc(m.serve))
	m.URL = m.server.URL + "/mcp"
	return m
}

// Close ends everything that is under way and waits until it has. It may be
// called more than once.
func (m *MCPServer) Close() {
	m.server.CloseClientConnections() // first, so that what hangs is no answer
	m.stop()
	m.server.Close()
	for s := range m.sdk.Sessions() {
		_ = s.Close() // its client has gone
	}
}

// SetTools replaces the tools; clients that listen are told.
func (m *MCPServer) SetTools(tools ...Tool) {
	m.mu.Lock()
	old := m.tools
	m.tools = slices.Clone(tools)
	m.mu.Unlock()
	for _, t := range old {
		m.sdk.RemoveTools(t.Name)
	}
	for _, t := range tools {
		if t.acceptable() {
			m.sdk.AddTool(t.onTheWire(), m.answer(t))
		}
	}
}

// Calls returns the calls of all tools, in the order in which they began.
func (m *MCPServer) Calls() []ToolCall { return m.calls.list() }

// Peak returns how many calls were under way at the same time, at most.
func (m *MCPServer) Peak() int { return m.calls.most() }

// Await waits until n calls have begun in all. The error is the cause of ctx's
// end.
func (m *MCPServer) Await(ctx context.Context, n int) error { return m.calls.await(ctx, n) }

// Count returns how many requests of a JSON-RPC method have come, such as
// initialize, tools/list or tools/call, notifications included.
func (m *MCPServer) Count(method string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count[method]
}

// Requests returns how many HTTP requests have come in all.
func (m *MCPServer) Requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.count {
		n += c
	}
	return n
}

// Headers returns the header of each request of a JSON-RPC method, in order.
func (m *MCPServer) Headers(method string) []http.Header {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.headers[method])
}

// frame is what the server reads of a request itself.
type frame struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			Key string `json:"turnpike/idempotencyKey"`
		} `json:"_meta"`
	} `json:"params"`
}

// serve records the request, makes trouble where that is wanted, and leaves the
// rest to the SDK.
func (m *MCPServer) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left
	}
	f := frame{}
	if json.Unmarshal(body, &f) != nil || f.Method == "" {
		f.Method = r.Method // a stream that is opened, a session that is ended
	}
	m.mu.Lock()
	m.count[f.Method]++
	m.headers[f.Method] = append(m.headers[f.Method], r.Header.Clone())
	m.mu.Unlock()
	switch m.trouble(f) {
	case Hang:
		m.hang(r)
		return
	case Die:
		m.die(f)
	}
	if m.o.Bare {
		m.bare(w, r, f)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.handler.ServeHTTP(w, r)
}

func (m *MCPServer) trouble(f frame) Trouble {
	if t, ok := m.o.Trouble[f.Method]; ok {
		return t
	}
	if t, ok := m.tool(f.Params.Name); ok && f.Method == "tools/call" && t.Trouble == Die {
		return Die
	}
	return ""
}

func (m *MCPServer) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-m.life.Done():
	}
}

// die breaks the connection off; a call that dies has happened all the same.
func (m *MCPServer) die(f frame) {
	if f.Method == "tools/call" {
		m.calls.begin(ToolCall{Tool: f.Params.Name, Arguments: f.Params.Arguments, Key: f.Params.Meta.Key})(io.ErrUnexpectedEOF)
	}
	panic(http.ErrAbortHandler) // closes the connection
}

func (m *MCPServer) tool(name string) (Tool, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tools {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

// answer performs calls of a tool for the SDK.
func (m *MCPServer) answer(t Tool) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range m.o.Notify {
			note := &mcp.ProgressNotificationParams{ProgressToken: t.Name, Progress: float64(i + 1), Message: "under way"}
			if err := r.Session.NotifyProgress(ctx, note); err != nil {
				return nil, fmt.Errorf("notify: %w", err)
			}
		}
		key, _ := r.Params.Meta["turnpike/idempotencyKey"].(string)
		return m.perform(ctx, t, r.Params.Arguments, key)
	}
}

// perform makes one call, which ends with the server at the latest.
func (m *MCPServer) perform(ctx context.Context, t Tool, arguments json.RawMessage, key string) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.life, cancel)()
	end := m.calls.begin(ToolCall{Tool: t.Name, Arguments: arguments, Key: key})
	r, err := t.serve(ctx, arguments)
	end(err)
	if err != nil {
		return nil, err
	}
	return newCallResult(r), nil
}
