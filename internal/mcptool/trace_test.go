package mcptool

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/tool"
)

// tracer is a Tracer for which the trace of every call is t1.
type tracer struct {
	mu   sync.Mutex
	sent []string // id, protocol and stdio of each try
}

func (*tracer) Trace(context.Context) map[string]string {
	return map[string]string{"traceparent": "t1", "tracestate": "s1"}
}

func (r *tracer) CallSent(_ context.Context, sessionID, protocol string, stdio bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, fmt.Sprintf("%q %q %v", sessionID, protocol, stdio))
}

// traceOf returns the trace context and the key in the _meta of a request.
func traceOf(t *testing.T, params json.RawMessage) string {
	t.Helper()
	var p struct {
		Meta struct {
			Parent string `json:"traceparent"`
			State  string `json:"tracestate"`
			Key    string `json:"turnpike/idempotencyKey"`
		} `json:"_meta"`
	}
	if len(params) > 0 {
		if err := json.Unmarshal(params, &p); err != nil {
			t.Fatal(err)
		}
	}
	return p.Meta.Parent + " " + p.Meta.State + " " + p.Meta.Key
}

// The trace context is in every call, beside the key, and in nothing else. // P17
func TestACallCarriesItsTrace(t *testing.T) {
	for name, c := range map[string]struct {
		bare bool
		sent string
	}{
		"in a session": {false, `"session-1" "2025-11-25" false`},
		"without one":  {true, `"" "" false`},
	} {
		t.Run(name, func(t *testing.T) {
			f, r := newFake(t), &tracer{}
			if c.bare {
				f.noInit = func(w http.ResponseWriter, r *http.Request) {
					rpcFail(w, asked(r).id, codeMethodNotFound, "method not found")
				}
			}
			x := named(f.client(func(s *Server) { s.Tracer = r }), "echo")
			for class, want := range map[tool.Class]string{tool.Read: "t1 s1 ", tool.Keyed: "t1 s1 k"} {
				x.class = class
				if _, err := x.Call(t.Context(), tool.Call{Class: class, IdempotencyKey: "k"}); err != nil {
					t.Fatal(err)
				}
				calls := f.of(methodCall)
				if got := traceOf(t, calls[len(calls)-1].params); got != want {
					t.Errorf("a call of class %s carries %q, want %q", class, got, want)
				}
			}
			for _, s := range f.requests {
				if s.method != methodCall && traceOf(t, s.params) != "  " {
					t.Errorf("%s carries %s", s.method, s.params)
				}
			}
			if want := []string{c.sent, c.sent}; !slices.Equal(r.sent, want) {
				t.Errorf("reported %q, want %q", r.sent, want)
			}
		})
	}
}

func TestWithoutATracerACallCarriesNoTrace(t *testing.T) {
	f := newFake(t)
	if _, err := named(f.client(), "echo").Call(t.Context(), tool.Call{}); err != nil {
		t.Fatal(err)
	}
	if got := traceOf(t, f.of(methodCall)[0].params); got != "  " {
		t.Errorf("the call carries %q", got)
	}
}

// A call that meets a lost session is sent again in a new one, which is reported.
func TestEachTryReportsItsSession(t *testing.T) {
	f, r := newFake(t), &tracer{}
	x := named(f.client(func(s *Server) { s.Tracer = r }), "echo")
	for range 2 {
		if _, err := x.Call(t.Context(), tool.Call{}); err != nil {
			t.Fatal(err)
		}
		f.forget()
	}
	want := []string{`"session-1" "2025-11-25" false`, `"session-1" "2025-11-25" false`, `"session-2" "2025-11-25" false`}
	if !slices.Equal(r.sent, want) {
		t.Errorf("reported %q, want %q", r.sent, want)
	}
}

// A program reads no headers: the trace is in _meta only.
func TestAProgramGetsTheTrace(t *testing.T) {
	r := &tracer{}
	c, _ := childClient(t, "official", func(s *Server) { s.Tracer = r })
	got, err := named(c, "key").Call(t.Context(), tool.Call{IdempotencyKey: "k"})
	if err != nil || textOf(got) != "k t1 s1" {
		t.Errorf("the program got %q, %v", textOf(got), err)
	}
	if want := []string{`"" "2025-11-25" true`}; !slices.Equal(r.sent, want) {
		t.Errorf("reported %q, want %q", r.sent, want)
	}
}
