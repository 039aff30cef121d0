package mcptool

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/tool"
)

// A call is posted without the SDK, and the SDK lists the tools: both have the same headers and
// the same members of _meta.
func TestACallHasTheHeadersAndTheMetaOfTheSDK(t *testing.T) { // D15
	for _, version := range []string{sessionVersion, statelessVersion} {
		t.Run(version, func(t *testing.T) {
			f := newFake(t)
			if version == statelessVersion {
				f.override[methodDiscover] = func(w http.ResponseWriter, r *http.Request) {
					result(w, asked(r).id, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
				}
			}
			c := f.client()
			if _, err := c.List(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || textOf(r) != "ok" {
				t.Fatal(r, err)
			}
			list, call := f.of(methodList)[0], f.of(methodCall)[0]
			if version == statelessVersion {
				if call.header.Get("Mcp-Method") != methodCall || call.header.Get("Mcp-Name") != "echo" {
					t.Errorf("%v", call.header)
				}
				list.header.Del("Mcp-Method")
				call.header.Del("Mcp-Method")
				call.header.Del("Mcp-Name")
			}
			list.header.Del("Content-Length")
			call.header.Del("Content-Length")
			if diff := cmp.Diff(list.header, call.header); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(metaOf(t, list), metaOf(t, call)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func metaOf(t *testing.T, s seen) (meta any) {
	var params map[string]any
	if err := json.Unmarshal(s.params, &params); err != nil {
		t.Fatal(err)
	}
	return params["_meta"]
}

// What a server asks in the stream of an answer is answered while the stream goes on, in the
// session of the answer, also during the handshake that makes it.
func TestRequestsOfTheServerInAnAnswerAreAnswered(t *testing.T) {
	const unsupported = `{"error":{"code":-32601,"message":"method not found"},"id":"q","jsonrpc":"2.0"}`
	for _, during := range []string{methodInitialize, methodList, methodCall} {
		for method, want := range map[string]string{
			"ping":                   `{"id":"q","jsonrpc":"2.0","result":{}}`,
			"roots/list":             `{"id":"q","jsonrpc":"2.0","result":{"roots":[]}}`,
			"elicitation/create":     unsupported,
			"sampling/createMessage": unsupported,
		} {
			t.Run(during+" "+method, func(t *testing.T) {
				f := newFake(t)
				replies := make(chan seen, 1)
				f.override[http.MethodPost] = func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusAccepted)
					if s := asked(r); s.method == "" {
						replies <- s
					}
				}
				for _, m := range []string{methodInitialize, methodList, methodCall, methodDiscover} {
					f.override[m] = func(w http.ResponseWriter, r *http.Request) {
						if m == during {
							if m == methodInitialize {
								f.mu.Lock()
								f.live = "session-1"
								f.mu.Unlock()
								w.Header().Set("Mcp-Session-Id", "session-1")
							}
							asEvents(w)
							fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":%q,\"params\":{}}\n\n", method)
							_ = http.NewResponseController(w).Flush()
							reply := <-replies
							if string(reply.body) != want || reply.header.Get("Mcp-Session-Id") != "session-1" {
								t.Errorf("%s with the headers %v", reply.body, reply.header)
							}
							fmt.Fprint(w, "data: ")
						}
						f.direct(w, r)
						fmt.Fprint(w, "\n\n")
					}
				}
				c := f.client()
				if _, err := c.List(t.Context()); err != nil {
					t.Fatal(err)
				}
				if r, err := named(c, "echo").Call(t.Context(), tool.Call{}); err != nil || textOf(r) != "ok" {
					t.Error(r, err)
				}
			})
		}
	}
}

// A session that is replaced is ended at the server after its calls in progress.
func TestAReplacedSessionEndsAfterItsCalls(t *testing.T) {
	f := newFake(t)
	arrived, finish := make(chan struct{}), make(chan struct{})
	var finished, early atomic.Bool
	f.override["slow"] = func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-finish
		finished.Store(true)
		say("done")(w, r)
	}
	f.override[http.MethodDelete] = func(http.ResponseWriter, *http.Request) { early.Store(!finished.Load()) }
	c := f.client()
	slow := make(chan string, 1)
	go func() {
		r, _ := named(c, "slow").Call(t.Context(), toolCall())
		slow <- textOf(r)
	}()
	<-arrived
	s := c.current
	c.replace(s)
	until(t, "the session is being closed", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.closing
	})
	if o := s.call(t.Context(), callParams{Name: "late", Arguments: json.RawMessage("{}")}, true); !o.gone() || o.sent {
		t.Errorf("a call in a session that ends: %+v", o)
	}
	close(finish)
	if text := <-slow; text != "done" {
		t.Errorf("the call in progress: %q", text)
	}
	until(t, "the end of the session", func() bool { return f.count(http.MethodDelete) == 1 })
	if early.Load() {
		t.Error("the session ended before its call")
	}
}

// A call costs little beyond its request and its answer. The SDK decoded each request with a
// buffer of 32 KiB.
func TestACallAllocatesLittle(t *testing.T) {
	c := New(Server{Name: "fake", URL: "http://192.0.2.1/mcp"}, &http.Client{Transport: roundTripper(answerFromMemory)}, nil)
	defer c.Close()
	const calls, most = 200, 20 << 10
	least := uint64(math.MaxUint64)
	for range 5 { // what else allocates meanwhile only adds
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			if r, err := named(c, "echo").Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"a":1}`)}); err != nil || textOf(r) != "ok" {
				t.Fatal(r, err)
			}
		}
		runtime.ReadMemStats(&after)
		least = min(least, (after.TotalAlloc-before.TotalAlloc)/calls)
	}
	if least > most {
		t.Errorf("%d bytes per call, want at most %d", least, most)
	}
}

// answerFromMemory answers as a server with sessions, without a connection.
func answerFromMemory(r *http.Request) (*http.Response, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	switch method, id := requested(body); method {
	case methodInitialize:
		w.Header().Set("Mcp-Session-Id", "s")
		result(w, id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
	case methodCall:
		result(w, id, `{"content":[{"type":"text","text":"ok"}]}`)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
	return w.Result(), nil
}
