package apptest

import (
	"bytes"
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

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type Method = func(http.ResponseWriter, *http.Request, RPC)

type Methods = map[string]Method

// Hang answers nothing until the gateway has gone.
func Hang(_ http.ResponseWriter, r *http.Request, _ RPC) { <-r.Context().Done() }

// Die breaks off in the middle of an answer.
func Die(w http.ResponseWriter, _ *http.Request, m RPC) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"te`, m.ID)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// HangTimeout is the timeout of a server that hangs in a call. Its tools must be listed within
// it, on a machine that has much to do, too.
const HangTimeout = "3s"

// Timeout is short only where it is waited for.
func Timeout(name string) string {
	if strings.HasSuffix(name, "hangs") {
		return "timeout: " + HangTimeout
	}
	return "timeout: 60s" // a bomb takes long to be made on a machine that has much to do
}

// recorder notes the JSON-RPC requests that an MCP server gets.
type recorder struct {
	mu   sync.Mutex
	seen []RPC
}

// RPC is one request to an MCP server.
type RPC struct {
	Method string
	Params json.RawMessage
	ID     json.RawMessage
	Header http.Header `json:"-"`
}

func (r *recorder) note(req *http.Request) RPC {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	var m RPC
	_ = json.Unmarshal(body, &m) // a farewell has no body
	m.Header = req.Header.Clone()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, m)
	return m
}

// Of returns the requests with the method; "" means all.
func (r *recorder) Of(method string) []RPC {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []RPC
	for _, m := range r.seen {
		if method == "" || m.Method == method {
			out = append(out, m)
		}
	}
	return out
}

// MCPServer is a server of the official SDK.
type MCPServer struct {
	recorder
	*httptest.Server
	Sdk  *mcp.Server
	life context.Context // of the calls; ends with the test

	Announces atomic.Bool // the next piece of a call's answer follows an announcement that the tools have changed
	Silent    atomic.Bool // lists of tools are refused
}

// announcing is the answer to a call, before which the server may announce that its tools have changed.
type announcing struct {
	http.ResponseWriter
	due *atomic.Bool
}

func (a announcing) Write(data []byte) (int, error) {
	if a.due.CompareAndSwap(true, false) {
		Frame(a.ResponseWriter, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
	return a.ResponseWriter.Write(data)
}

func (a announcing) Flush() { a.ResponseWriter.(http.Flusher).Flush() }

// Handler is a tool's function: arguments in, text out. An error is one that
// the model is told about.
type Handler func(ctx context.Context, arguments string) (string, error)

// NewMCP starts a server with sessions, as most are.
func NewMCP(t *testing.T, tools map[string]Handler, readOnly ...string) *MCPServer {
	life, end := context.WithCancel(context.Background())
	m := &MCPServer{Sdk: mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil), life: life}
	for name, h := range tools {
		m.Add(name, h, false)
	}
	for _, name := range readOnly {
		m.Add(name, tools[name], true)
	}
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m.Sdk }, nil)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch method := m.note(r).Method; {
		case method == "tools/call":
			w = announcing{w, &m.Announces}
		case method == "tools/list" && m.Silent.Load():
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		end()
		m.Close()
		for s := range m.Sdk.Sessions() {
			_ = s.Close()
		}
	})
	return m
}

func (m *MCPServer) Add(name string, h Handler, readOnly bool) {
	def := &mcp.Tool{
		Name: name, Description: "Tool " + name, InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: readOnly},
	}
	m.Sdk.AddTool(def, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
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

// Echo answers with its arguments.
func Echo(_ context.Context, arguments string) (string, error) { return arguments, nil }

// RawMCP is a server that knows only the methods it was given; it refuses
// initialize like one that has never heard of it. Values are full HTTP answers.
type RawMCP struct {
	recorder
	*httptest.Server
}

func NewRawMCP(t *testing.T, methods map[string]func(w http.ResponseWriter, r *http.Request, m RPC)) *RawMCP {
	s := &RawMCP{}
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

// Gives returns a method that answers with a result.
func Gives(result string) func(http.ResponseWriter, *http.Request, RPC) {
	return func(w http.ResponseWriter, _ *http.Request, m RPC) { Reply(w, m, result) }
}

func Reply(w http.ResponseWriter, m RPC, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, orNull(m.ID), result)
}

// OneTool is a list with one tool of that name.
func OneTool(name string) string {
	return `{"tools":[{"name":` + Quote(name) + `,"inputSchema":{"type":"object"}}]}`
}

// bearing adds a key to requests.
type bearing struct {
	key  string
	next http.RoundTripper
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return b.next.RoundTrip(r)
}

// Outside is an MCP client of the official SDK.
type Outside struct {
	*mcp.ClientSession
	t       *testing.T
	Changed atomic.Int32 // how often it heard that the list of tools has changed
	Heard   chan struct{}
}

// Connect connects a client to /mcp with a key. version "" is the newest that the SDK knows.
func (g *Gateway) Connect(key, version string) *Outside {
	g.T.Helper()
	c, err := g.TryConnect(key, version)
	if err != nil {
		g.T.Fatal(err)
	}
	return c
}

func (g *Gateway) TryConnect(key, version string) (*Outside, error) {
	o := &Outside{t: g.T, Heard: make(chan struct{}, 100)}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			o.Changed.Add(1)
			o.Heard <- struct{}{}
		},
	})
	transport := &mcp.StreamableClientTransport{
		Endpoint: g.URL + "/mcp", HTTPClient: &http.Client{Transport: bearing{key, g.Client.Transport}}, MaxRetries: -1,
	}
	var options *mcp.ClientSessionOptions
	if version != "" {
		options = &mcp.ClientSessionOptions{ProtocolVersion: version}
	}
	session, err := client.Connect(g.T.Context(), transport, options)
	if err != nil {
		return nil, err
	}
	o.ClientSession = session
	g.T.Cleanup(func() { _ = session.Close() })
	return o, nil
}

// Names lists the tools.
func (o *Outside) Names() (out []string) {
	o.t.Helper()
	list, err := o.ListTools(o.t.Context(), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, one := range list.Tools {
		out = append(out, one.Name)
	}
	return out
}

// Do calls a tool and returns the text of its result.
func (o *Outside) Do(name, arguments string) (text string, isError bool) {
	o.t.Helper()
	result, err := o.CallTool(o.t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, c := range result.Content {
		text += c.(*mcp.TextContent).Text
	}
	return text, result.IsError
}

// Code calls a tool and returns the code of the JSON-RPC error.
func (o *Outside) Code(name string) int64 {
	o.t.Helper()
	_, err := o.CallTool(o.t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(`{}`)})
	return codeOf(o.t, err)
}

func codeOf(t *testing.T, err error) int64 {
	t.Helper()
	rpc, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		t.Fatalf("the error is %v, not one of JSON-RPC", err)
	}
	return rpc.Code
}

// MakeKey creates a key over the management API and returns it with its secret.
func (d Documented) MakeKey(settings string) (id, secret string) {
	d.T.Helper()
	made := d.Do("POST", "/api/keys", "owner-key", settings, http.StatusCreated)
	return made["id"].(string), made["key"].(string)
}

// rpcAnswer is an answer to a JSON-RPC message.
type rpcAnswer struct {
	ID    json.RawMessage
	Error struct {
		Code    int64
		Message string
		Data    struct {
			Reason string
			Wait   int `json:"retry_after_secs"`
		}
	}
}

// RPC sends a message to /mcp. Header fields come in pairs.
func (g *Gateway) RPC(message string, fields ...string) (Answer, rpcAnswer) {
	g.T.Helper()
	a := g.Send("POST", "/mcp", strings.NewReader(message), append([]string{"Accept", "application/json, text/event-stream"}, fields...)...)
	var r rpcAnswer
	_ = json.Unmarshal(a.Body, &r)
	return a, r
}

const initializeMessage = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// Initialize begins a session without the SDK and returns its id.
func (g *Gateway) Initialize(key string) string {
	g.T.Helper()
	a, _ := g.RPC(initializeMessage, "Authorization", "Bearer "+key)
	if a.Status != http.StatusOK {
		g.T.Fatalf("initialize is answered with %d %s", a.Status, a.Body)
	}
	return a.Header.Get("Mcp-Session-Id")
}

// Eventually waits until the condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !holds(); PollPause() {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
