package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// recorder notes the JSON-RPC requests that an MCP server gets.
type recorder struct {
	mu   sync.Mutex
	seen []rpc
}

// rpc is one request to an MCP server.
type rpc struct {
	Method string
	Params json.RawMessage
	ID     json.RawMessage
	header http.Header
}

func (r *recorder) note(req *http.Request) rpc {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	var m rpc
	_ = json.Unmarshal(body, &m) // a farewell has no body
	m.header = req.Header.Clone()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, m)
	return m
}

// of returns the requests with the method; "" means all.
func (r *recorder) of(method string) []rpc {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []rpc
	for _, m := range r.seen {
		if method == "" || m.Method == method {
			out = append(out, m)
		}
	}
	return out
}

// mcpServer is a server of the official SDK.
type mcpServer struct {
	recorder
	*httptest.Server
	sdk  *mcp.Server
	life context.Context // of the calls; ends with the test

	announces atomic.Bool // the next piece of a call's answer follows an announcement that the tools have changed
	silent    atomic.Bool // lists of tools are refused
}

// announcing is the answer to a call, before which the server may announce that its tools have changed.
type announcing struct {
	http.ResponseWriter
	due *atomic.Bool
}

func (a announcing) Write(data []byte) (int, error) {
	if a.due.CompareAndSwap(true, false) {
		frame(a.ResponseWriter, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
	return a.ResponseWriter.Write(data)
}

func (a announcing) Flush() { a.ResponseWriter.(http.Flusher).Flush() }

// handler is a tool's function: arguments in, text out. An error is one that
// the model is told about.
type handler func(ctx context.Context, arguments string) (string, error)

// newMCP starts a server with sessions, as most are.
func newMCP(t *testing.T, tools map[string]handler, readOnly ...string) *mcpServer {
	life, end := context.WithCancel(context.Background())
	m := &mcpServer{sdk: mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil), life: life}
	for name, h := range tools {
		m.add(name, h, false)
	}
	for _, name := range readOnly {
		m.add(name, tools[name], true)
	}
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m.sdk }, nil)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch method := m.note(r).Method; {
		case method == "tools/call":
			w = announcing{w, &m.announces}
		case method == "tools/list" && m.silent.Load():
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		end()
		m.Close()
		for s := range m.sdk.Sessions() {
			_ = s.Close()
		}
	})
	return m
}

func (m *mcpServer) add(name string, h handler, readOnly bool) {
	def := &mcp.Tool{
		Name: name, Description: "Tool " + name, InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: readOnly},
	}
	m.sdk.AddTool(def, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(m.life, cancel)() // a handler that nobody cancels would hold up the end of its test
		text, err := h(ctx, string(r.Params.Arguments))
		if err != nil {
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	})
}

// echo answers with its arguments.
func echo(_ context.Context, arguments string) (string, error) { return arguments, nil }

// rawMCP is a server that knows only the methods it was given; it refuses
// initialize like one that has never heard of it. Values are full HTTP answers.
type rawMCP struct {
	recorder
	*httptest.Server
}

func newRawMCP(t *testing.T, methods map[string]func(w http.ResponseWriter, r *http.Request, m rpc)) *rawMCP {
	s := &rawMCP{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := s.note(r)
		if h := methods[m.Method]; h != nil {
			h(w, r, m)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, orNull(m.ID))
	}))
	t.Cleanup(s.Close)
	return s
}

func orNull(id json.RawMessage) string {
	if len(id) == 0 {
		return "null"
	}
	return string(id)
}

// gives returns a method that answers with a result.
func gives(result string) func(http.ResponseWriter, *http.Request, rpc) {
	return func(w http.ResponseWriter, _ *http.Request, m rpc) { reply(w, m, result) }
}

func reply(w http.ResponseWriter, m rpc, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, orNull(m.ID), result)
}

// oneTool is a list with one tool of that name.
func oneTool(name string) string {
	return `{"tools":[{"name":` + quote(name) + `,"inputSchema":{"type":"object"}}]}`
}
