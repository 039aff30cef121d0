package mcptool

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/tool"
)

// restarting is a server that can be restarted: it then refuses its old session with answer.
type restarting struct {
	*fake
	answer http.HandlerFunc

	mu      sync.Mutex
	refused map[string]bool // by session
	ran     int
}

func newRestarting(t *testing.T, answer http.HandlerFunc) *restarting {
	s := &restarting{fake: newFake(t), answer: answer, refused: map[string]bool{}}
	s.override[methodList] = s.unless(func(w http.ResponseWriter, r *http.Request) {
		result(w, asked(r).id, `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
	})
	s.override["echo"] = s.unless(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.ran++
		s.mu.Unlock()
		say("ok")(w, r)
	})
	return s
}

func (s *restarting) unless(works http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		refused := s.refused[r.Header.Get("Mcp-Session-Id")]
		s.mu.Unlock()
		if refused {
			s.answer(w, r)
			return
		}
		works(w, r)
	}
}

// restart makes the server refuse the sessions that it has made so far.
func (s *restarting) restart() {
	s.fake.mu.Lock()
	live := s.live
	s.fake.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[live] = true
}

// told answers with a JSON-RPC error. An id of null is what servers send which have not read
// the request.
func told(status, code int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := asked(r).id
		if status != http.StatusOK {
			id = json.RawMessage("null")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		rpcFail(w, id, code, message)
	}
}

func plainText(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, status) }
}

// The answers of SDKs and servers to a request in a session that they do not know. Each means
// that the request was not executed.
var lostSessions = map[string]http.HandlerFunc{
	"TypeScript, one transport":     told(400, -32000, "Bad Request: Server not initialized"),
	"TypeScript, unknown id":        told(404, -32001, "Session not found"),
	"TypeScript, example":           told(400, -32000, "Bad Request: No valid session ID provided"),
	"TypeScript, no header":         told(400, -32000, "Bad Request: Mcp-Session-Id header is required"),
	"Python":                        told(200, -32602, "Received request before initialization was complete"),
	"Python, on the wire":           told(200, -32602, "Invalid request parameters"),
	"Python, invalid request":       told(200, -32600, "Received request before initialization was complete"),
	"Python, 400":                   told(400, -32600, "Bad Request: Missing session ID"),
	"Python, 404":                   told(404, -32600, "Not Found: Session has been terminated"),
	"Go":                            plainText(404, "session not found"),
	"Rust, 422":                     plainText(422, "Unexpected message, expect initialize request"),
	"Rust, 401":                     plainText(401, "Unauthorized: Session not found"),
	"Java":                          plainText(400, "Session ID missing"),
	"Quarkus":                       told(200, -32603, "Client not initialized yet [session]"),
	"plain 404":                     plainText(404, "404 page not found"),
	"plain 400":                     plainText(400, `{"error": "Server not initialized"}`),
	"410":                           plainText(410, "session expired"),
	"200 with the code of the SDK":  told(200, -32001, "Session not found"),
	"200 with the name of the head": told(200, -32000, "Bad Request: no Mcp-Session-Id header"),
	"advice":                        told(200, -32002, "Session not initialized — send InitializeRequest first"),
}

func TestALostSessionIsReplacedWhateverItsText(t *testing.T) { // D19
	for name, answer := range lostSessions {
		t.Run(name, func(t *testing.T) {
			s := newRestarting(t, answer)
			c := s.client()
			if _, err := c.List(t.Context()); err != nil {
				t.Fatal(err)
			}
			for restarts := 1; restarts <= 2; restarts++ {
				s.restart()
				for range 2 {
					if r, err := named(c, "echo").Call(t.Context(), tool.Call{Class: tool.Once}); err != nil || r.IsError || textOf(r) != "ok" {
						t.Fatalf("after restart %d: %q %v", restarts, textOf(r), err)
					}
				}
				if n := s.count(methodInitialize); n != restarts+1 {
					t.Errorf("%d sessions after %d restarts", n, restarts)
				}
				if n := s.count(methodCall); n != 3*restarts || s.ran != 2*restarts {
					t.Errorf("%d calls sent, %d executed after %d restarts", n, s.ran, restarts)
				}
			}
		})
	}
}

func TestALostSessionOfADiscoveryIsReplaced(t *testing.T) { // D19
	lost := map[string]http.HandlerFunc{"another text": told(200, -32099, "who are you?"), "no text": told(200, -32603, "")}
	for name, answer := range lostSessions {
		lost[name] = answer
	}
	for name, answer := range lost {
		t.Run(name, func(t *testing.T) {
			s := newRestarting(t, answer)
			c := s.client()
			for range 3 {
				if l, err := c.List(t.Context()); err != nil || len(l) != 1 {
					t.Fatal(l, err)
				}
				s.restart()
			}
			if n := s.count(methodInitialize); n != 3 {
				t.Errorf("%d sessions for two restarts", n)
			}
		})
	}
}

// A call that may have run is not sent again. The next call has a new session.
func TestAnErrorThatSaysNothingOfTheCallReplacesTheSessionForTheNextCall(t *testing.T) { // D19
	for name, answer := range map[string]http.HandlerFunc{
		"internal error":         told(200, -32603, "Internal error"),
		"no text":                told(200, -32000, ""),
		"a session of something": told(200, -32603, "browser session not found"),
		"session, other code":    told(200, -32603, "Session expired"),
		"invalid request":        told(200, -32600, "I do not know you"),
		"another text":           told(200, -32099, "who are you?"),
		"mentions a library":     told(200, -32000, "charged; mail client not initialized"),
		"400 without a reason":   plainText(400, "Bad Request"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newRestarting(t, answer)
			c := s.client()
			if _, err := c.List(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.restart()
			r, err := named(c, "echo").Call(t.Context(), tool.Call{Class: tool.Once})
			if err != nil || !r.IsError || s.count(methodCall) != 1 || s.count(methodInitialize) != 1 {
				t.Fatalf("%q %v, %d calls in %d sessions", textOf(r), err, s.count(methodCall), s.count(methodInitialize))
			}
			r, err = named(c, "echo").Call(t.Context(), tool.Call{Class: tool.Once})
			if err != nil || r.IsError || s.count(methodCall) != 2 || s.count(methodInitialize) != 2 {
				t.Errorf("%q %v, %d calls in %d sessions", textOf(r), err, s.count(methodCall), s.count(methodInitialize))
			}
		})
	}
}

// The state of a session, such as an open browser, does not end because a tool fails.
func TestAnErrorOfAToolLeavesTheSession(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"unknown tool":      told(200, -32602, "Tool echo not found"),
		"invalid arguments": told(200, -32602, "Invalid arguments for tool echo: session_id is required"),
		"no method":         told(200, -32601, "Method not found"),
		"a tool's own":      told(200, -32000, "row 7 does not exist"),
		"error result": func(w http.ResponseWriter, r *http.Request) {
			result(w, asked(r).id, `{"isError":true,"content":[{"type":"text","text":"Server not initialized"}]}`)
		},
		"forbidden": plainText(403, "this session is not allowed to call echo"),
		"too many":  plainText(429, "too many calls in this session"),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.override["echo"] = answer
			c := f.client(func(s *Server) { s.MaxRetries = -1 })
			if _, err := c.List(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if r, err := unanswered(named(c, "echo").Call(t.Context(), tool.Call{Class: tool.Once})); err != nil || !r.IsError {
					t.Fatal(r, err)
				}
			}
			if n, calls := f.count(methodInitialize), f.count(methodCall); n != 1 || calls != 3 {
				t.Errorf("%d calls in %d sessions, want 3 in 1", calls, n)
			}
		})
	}
}

// A server that refuses its own new sessions is not asked again and again.
func TestAServerThatNeverKnowsItsSessionsFailsTheCallOnly(t *testing.T) {
	f := newFake(t)
	f.override["echo"] = lostSessions["Python"]
	c := f.client()
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := named(c, "echo").Call(t.Context(), tool.Call{})
	if err != nil || !r.IsError || !strings.Contains(textOf(r), "before initialization") {
		t.Error(textOf(r), err)
	}
	if calls, n := f.count(methodCall), f.count(methodInitialize); calls != 2 || n != 2 {
		t.Errorf("%d calls in %d sessions, want 2 in 2", calls, n)
	}
}

// Calls at the same time share the new session.
func TestConcurrentCallsReplaceALostSessionOnce(t *testing.T) {
	s := newRestarting(t, lostSessions["Python"])
	c := s.client()
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.restart()
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			if r, err := named(c, "echo").Call(t.Context(), tool.Call{}); err != nil || r.IsError {
				t.Error(textOf(r), err)
			}
		})
	}
	calls.Wait()
	if n := s.count(methodInitialize); n != 2 || s.ran != 16 {
		t.Errorf("%d sessions, %d calls executed", n, s.ran)
	}
}

// A proxy that speaks over standard output or legacy SSE may have lost its server.
func TestALostSessionBehindAStreamIsReplaced(t *testing.T) {
	l := newLegacy(t)
	var once sync.Once
	l.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			var err error
			if method == methodCall {
				once.Do(func() {
					err = &jsonrpc.Error{Code: codeInvalidParams, Message: "Received request before initialization was complete"}
				})
			}
			if err != nil {
				return nil, err
			}
			return next(ctx, method, r)
		}
	})
	c := clientOf(t, l.URL+"/sse")
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err := named(c, "echo").Call(t.Context(), tool.Call{}); err != nil || r.IsError || l.count("GET /sse") != 2 {
		t.Errorf("%q %v, %d streams", textOf(r), err, l.count("GET /sse"))
	}
}

func TestAServerWithoutSessionsThatWantsInitializeGetsIt(t *testing.T) {
	f := newFake(t)
	plain := true
	f.noInit = func(w http.ResponseWriter, r *http.Request) {
		if plain {
			told(200, codeMethodNotFound, "Method not found")(w, r)
			return
		}
		result(w, asked(r).id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
	}
	f.override["echo"] = func(w http.ResponseWriter, r *http.Request) {
		if plain {
			plain = false
			told(200, -32600, "Server not initialized")(w, r)
			return
		}
		say("ok")(w, r)
	}
	if r, err := named(f.client(), "echo").Call(t.Context(), tool.Call{}); err != nil || r.IsError || textOf(r) != "ok" {
		t.Errorf("%q %v", textOf(r), err)
	}
}
