package mcptool

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/turnpike-gateway/turnpike/tool"
)

// keyOf returns the idempotency key in the _meta of a call, "" for none.
func keyOf(t *testing.T, s seen) string {
	t.Helper()
	var p struct {
		Meta map[string]any `json:"_meta"`
	}
	if err := json.Unmarshal(s.params, &p); err != nil {
		t.Fatal(err)
	}
	key, _ := p.Meta["turnpike/idempotencyKey"].(string)
	return key
}

func TestACallThatMayWriteCarriesItsKey(t *testing.T) { // R4
	for name, refuse := range map[string]bool{"in a session": false, "without one": true} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			if refuse {
				f.noInit = func(w http.ResponseWriter, r *http.Request) {
					rpcFail(w, asked(r).id, codeMethodNotFound, "method not found")
				}
			}
			c := f.client()
			for class, want := range map[tool.Class]string{tool.Once: "k-once", tool.Keyed: "k-keyed", tool.Read: ""} {
				x := named(c, "echo")
				x.class = class
				if r, err := x.Call(t.Context(), tool.Call{Class: class, IdempotencyKey: "k-" + string(class)}); err != nil || textOf(r) != "ok" {
					t.Fatal(r, err)
				}
				all := f.of(methodCall)
				last := all[len(all)-1]
				if got := keyOf(t, last); got != want || last.header.Get("Idempotency-Key") != want {
					t.Errorf("%s: key %q, header %q, want %q", class, got, last.header.Get("Idempotency-Key"), want)
				}
			}
			for _, s := range f.requests { // a key stands for a call and for nothing around it
				if s.method != methodCall && s.header.Get("Idempotency-Key") != "" {
					t.Errorf("%s %s carries a key", s.verb, s.method)
				}
			}
		})
	}
}

// A connection that was used before dies when the server has read the request:
// the case in which net/http sends a POST with an Idempotency-Key again by itself.
func TestABrokenConnectionRepeatsNothingByItself(t *testing.T) { // D19 R4
	for name, c := range map[string]struct {
		class   tool.Class
		retries int // of the server's configuration
		want    int // executions
	}{
		"a once call":                   {tool.Once, 0, 1},
		"a keyed call without retries":  {tool.Keyed, -1, 1},
		"a keyed call with two retries": {tool.Keyed, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.override["dies"] = func(w http.ResponseWriter, _ *http.Request) { die(w) }
			client := f.client(func(s *Server) { s.MaxRetries = c.retries })
			ask := func(name string) tool.Result {
				x := named(client, name)
				x.class = c.class
				r, err := unanswered(x.Call(t.Context(), tool.Call{Class: c.class, IdempotencyKey: "k1"}))
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			ask("warm")
			if r := ask("dies"); !r.IsError {
				t.Error(r)
			}
			warm, dead := f.of(methodCall)[0], f.of(methodCall)[1:]
			if warm.from != dead[0].from {
				t.Fatalf("the connection was not used again, but %s after %s", dead[0].from, warm.from)
			}
			if len(dead) != c.want {
				t.Errorf("executed %d times, want %d", len(dead), c.want)
			}
			for i, s := range dead {
				if keyOf(t, s) != "k1" || s.header.Get("Idempotency-Key") != "k1" {
					t.Errorf("execution %d has the keys %q, %q", i, keyOf(t, s), s.header.Get("Idempotency-Key"))
				}
			}
		})
	}
}

// Over HTTP/2, net/http repeats whatever the server resets with PROTOCOL_ERROR,
// though the server may have carried it out.
func TestAResetStreamRepeatsNothingByItself(t *testing.T) { // D19
	for name, c := range map[string]struct {
		writes bool
		want   int32
	}{"a call that may write": {true, 1}, "a call that only reads": {false, 2}} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var executed atomic.Int32
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					resetStreams(conn, &executed)
				}
			}()
			defer func() { <-served }()
			defer l.Close()
			base := &http.Transport{Protocols: new(http.Protocols)}
			base.Protocols.SetUnencryptedHTTP2(true)
			defer base.CloseIdleConnections()
			client := New(Server{Name: "reset", URL: "http://" + l.Addr().String()}, &http.Client{Transport: base}, nil)
			defer client.Close()
			o := client.bareSession().call(t.Context(), callParams{Name: "x", Arguments: json.RawMessage("{}"), key: "k1"}, c.writes)
			if o.err == nil || !o.sent || executed.Load() != c.want {
				t.Errorf("executed %d times, want %d; %+v", executed.Load(), c.want, o)
			}
		})
	}
}

// resetStreams is a server of HTTP/2 that reads two requests to their ends and
// answers the first with RST_STREAM; the second it answers by hanging up.
func resetStreams(conn net.Conn, executed *atomic.Int32) {
	const data, reset, settings = 0, 3, 4
	defer conn.Close()
	_, _ = io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	_, _ = conn.Write([]byte{0, 0, 0, settings, 0, 0, 0, 0, 0})
	for {
		var head [9]byte // 3 bytes of length, type, flags, 4 of the stream's number
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		length := int64(head[0])<<16 | int64(binary.BigEndian.Uint16(head[1:]))
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return
		}
		switch last := head[4]&1 != 0; {
		case head[3] == settings && !last: // else it is the answer to ours
			_, _ = conn.Write([]byte{0, 0, 0, settings, 1, 0, 0, 0, 0})
		case head[3] == data && last:
			if executed.Add(1) > 1 {
				return
			}
			answer := append([]byte{0, 0, 4, reset, 0}, head[5:]...)
			_, _ = conn.Write(append(answer, 0, 0, 0, 1)) // PROTOCOL_ERROR
		}
	}
}

func TestTheOperatorSaysWhatOnlyReadsAndWhatIsKeyed(t *testing.T) { // D19
	f := newFake(t)
	f.tools = `[
		{"name":"plain","inputSchema":{}},
		{"name":"says_reads","inputSchema":{},"annotations":{"readOnlyHint":true}},
		{"name":"reads","inputSchema":{}},
		{"name":"keyed","inputSchema":{},"annotations":{"readOnlyHint":true}}
	]`
	lists := func(s *Server) { s.Reads, s.Keyed = []string{"reads", "later"}, []string{"keyed", "never"} }
	for name, row := range map[string]struct {
		trust bool
		want  []tool.Class
	}{
		"not trusted": {false, []tool.Class{tool.Once, tool.Once, tool.Read, tool.Keyed}},
		"trusted":     {true, []tool.Class{tool.Once, tool.Read, tool.Read, tool.Read}}, // read stays read
	} {
		tools, err := f.client(lists, func(s *Server) { s.Trust = row.trust }).List(t.Context())
		if err != nil || len(tools) != len(row.want) {
			t.Fatal(tools, err)
		}
		for i, x := range tools {
			if class := x.(*remote).Class(); class != row.want[i] {
				t.Errorf("%s: %s is %s, want %s", name, x.Definition().Name, class, row.want[i])
			}
		}
	}
}

func TestAKeyedToolWithoutAKeyIsNotRepeated(t *testing.T) { // D19 R4
	f := newFake(t)
	f.override["shaky"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	for key, want := range map[string]int{"": 1, "k": 3} {
		before := f.count(methodCall)
		x := named(f.client(), "shaky")
		x.class = tool.Keyed
		if r, err := unanswered(x.Call(t.Context(), tool.Call{Class: tool.Keyed, IdempotencyKey: key})); err != nil || !r.IsError {
			t.Error(r, err)
		}
		if n := f.count(methodCall) - before; n != want {
			t.Errorf("key %q: %d requests, want %d", key, n, want)
		}
	}
}
