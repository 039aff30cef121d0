package mcptool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// asEvents starts an event stream.
func asEvents(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

// flood writes chunks of a megabyte until the client has had enough.
func flood(w io.Writer, prefix string) {
	_, _ = io.WriteString(w, prefix)
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for range 1 << 10 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// die closes the TCP connection under the answer.
func die(w http.ResponseWriter) { panic(http.ErrAbortHandler) }

// hostile are answers to tools/call and what the model is told of them.
func hostile() map[string]struct {
	answer http.HandlerFunc
	want   string // part of the text
	fine   bool   // the result is no error
} {
	type row = struct {
		answer http.HandlerFunc
		want   string
		fine   bool
	}
	good := `{"content":[{"type":"text","text":"good"}]}`
	return map[string]row{
		"a gigabyte of JSON": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			flood(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"`, asked(r).id))
		}, "larger than 16 MiB", false},
		"an event line of a gigabyte": {func(w http.ResponseWriter, _ *http.Request) {
			asEvents(w)
			flood(w, "data: ")
		}, "larger than 16 MiB", false},
		"events without end": {func(w http.ResponseWriter, r *http.Request) {
			asEvents(w)
			note := []byte("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"" + strings.Repeat("n", 1<<16) + "\"}}\n\n")
			for r.Context().Err() == nil {
				if _, err := w.Write(note); err != nil {
					return
				}
			}
		}, "larger than 16 MiB", false},
		"a slow drip": {func(w http.ResponseWriter, r *http.Request) {
			asEvents(w)
			_, _ = io.WriteString(w, "data: ")
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_, _ = io.WriteString(w, " ")
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				}
			}
		}, "did not answer within", false},
		"silence": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "did not answer within", false},
		"a compressed answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0})
		}, "content encoding", false},
		"invalid UTF-8": {func(w http.ResponseWriter, r *http.Request) {
			result(w, asked(r).id, "{\"content\":[{\"type\":\"text\",\"text\":\"a\xff\xfeb\"}]}")
		}, "a\ufffdb", true},
		"another request's id": {func(w http.ResponseWriter, _ *http.Request) {
			result(w, []byte("99999"), good)
		}, "answers another request", false},
		"an id of another type": {func(w http.ResponseWriter, r *http.Request) {
			result(w, []byte(fmt.Sprintf("%q", asked(r).id)), good)
		}, "good", true},
		"events for other requests only": {func(w http.ResponseWriter, _ *http.Request) {
			asEvents(w)
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":%s}\n\n", good)
		}, "closed the connection", false},
		"death before the answer": {func(w http.ResponseWriter, _ *http.Request) { die(w) }, "closed the connection", false},
		"death within JSON": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`)
			_ = http.NewResponseController(w).Flush()
			die(w)
		}, "closed the connection", false},
		"death within an event": {func(w http.ResponseWriter, _ *http.Request) {
			asEvents(w)
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":")
			_ = http.NewResponseController(w).Flush()
			die(w)
		}, "closed the connection", false},
		"JSON called a web page": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, "\n {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", asked(r).id, good)
		}, "good", true},
		"events called JSON": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", asked(r).id, good)
		}, "good", true},
		"JSON called events": {func(w http.ResponseWriter, r *http.Request) {
			asEvents(w)
			fmt.Fprintf(w, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", asked(r).id, good)
		}, "good", true},
		"a web page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>Sign in</html>")
		}, "JSON-RPC", false},
		"nothing": {func(http.ResponseWriter, *http.Request) {}, "it is empty", false},
		"a batch": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `[{"jsonrpc":"2.0","id":%s,"result":%s}]`, asked(r).id, good)
		}, "JSON-RPC", false},
		"a result that is no object": {func(w http.ResponseWriter, r *http.Request) { result(w, asked(r).id, `[1]`) }, "not an object", false},
		"an error that is a string": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":"no luck"}`, asked(r).id)
		}, "no luck", false},
		"an error without an id": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot parse"}}`)
		}, "cannot parse (-32700)", false},
		"a result too deep for the SDK": {func(w http.ResponseWriter, r *http.Request) {
			result(w, asked(r).id, `{"structuredContent":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+`}`)
		}, "[[[[", true},
		"another session's id": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Mcp-Session-Id", "stolen")
			result(w, asked(r).id, good)
		}, "good", true},
		"a server error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "status 500", false},
		"a refusal":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "status 403", false},
		"an odd status":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }, "status 409", false},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "redirected", false},
		"a redirect nowhere": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) }, "status 302", false},
		"two answers": {func(w http.ResponseWriter, r *http.Request) {
			asEvents(w)
			for range 2 {
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", asked(r).id, good)
			}
		}, "good", true},
		"an answer and then silence": {func(w http.ResponseWriter, r *http.Request) {
			asEvents(w)
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", asked(r).id, good)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "good", true},
		"noise, comments and empty events first": {func(w http.ResponseWriter, r *http.Request) {
			asEvents(w)
			fmt.Fprintf(w, ": hello\n\nid: 1\ndata:\n\ndata: not json\n\ndata: [1]\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", asked(r).id, good)
		}, "good", true},
		"a request for input": {func(w http.ResponseWriter, r *http.Request) {
			result(w, asked(r).id, `{"resultType":"input_required","inputRequests":{"a":{}}}`)
		}, "asks for input", false},
	}
}

// The bad-input list: a server that hangs, floods, lies, sends invalid UTF-8 or
// dies in mid-call.
func TestAHostileAnswerEndsWellAndLeavesTheSiblingsAlone(t *testing.T) {
	for name, row := range hostile() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			started, release := make(chan struct{}), make(chan struct{})
			f.override["hostile"] = row.answer
			f.override["sibling"] = func(w http.ResponseWriter, r *http.Request) {
				close(started)
				<-release
				say("unharmed")(w, r)
			}
			c := f.client(func(s *Server) {
				if strings.Contains(row.want, "did not answer") {
					s.Timeout = time.Second
				}
			})
			sibling := make(chan string, 1)
			go func() {
				r, err := named(c, "sibling").Call(t.Context(), tool.Call{})
				sibling <- fmt.Sprint(textOf(r), err)
			}()
			select {
			case <-started:
			case early := <-sibling:
				t.Fatalf("sibling ended early: %s", early)
			}
			r, err := unanswered(named(c, "hostile").Call(t.Context(), tool.Call{}))
			if err != nil {
				t.Fatalf("hostile call: %v", err)
			}
			if r.IsError == row.fine || !strings.Contains(textOf(r)+string(r.Structured), row.want) {
				t.Errorf("hostile call: error %v, %.200q, want %q", r.IsError, textOf(r), row.want)
			}
			close(release)
			if got := <-sibling; got != "unharmed<nil>" && !strings.Contains(row.want, "did not answer") {
				t.Errorf("sibling: %s", got)
			}
			if r, err := named(c, "echo").Call(t.Context(), tool.Call{}); err != nil || textOf(r) != "ok" {
				t.Errorf("next call: %v %v", r, err)
			}
			if n := f.count(methodInitialize); n != 1 {
				t.Errorf("%d sessions, want 1", n)
			}
		})
	}
}

func TestAHostileNotificationAnswerLeavesTheSessionAlone(t *testing.T) {
	f := newFake(t)
	hung := make(chan struct{})
	told := make(chan struct{})
	f.override["hang"] = func(_ http.ResponseWriter, r *http.Request) {
		close(hung)
		<-r.Context().Done()
	}
	f.override["notifications/cancelled"] = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		close(told)
	}
	f.override["notifications/initialized"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	c := f.client()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hung
		cancel()
	}()
	if _, err := named(c, "hang").Call(ctx, tool.Call{}); err == nil {
		t.Fatal("a cancelled call succeeded")
	}
	<-told
	if r, err := named(c, "echo").Call(t.Context(), tool.Call{}); err != nil || textOf(r) != "ok" || f.count(methodInitialize) != 1 {
		t.Errorf("next call: %v %v, %d sessions", r, err, f.count(methodInitialize))
	}
}

// A server learns that a call was cancelled also when the client is closed at once, as that of a run is.
func TestAClientThatIsClosedFinishesItsCancelNotifications(t *testing.T) {
	f := newFake(t)
	hung, arrived, release, delivered := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	f.override["hang"] = func(_ http.ResponseWriter, r *http.Request) {
		close(hung)
		<-r.Context().Done()
	}
	f.override["notifications/cancelled"] = func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		select {
		case <-release:
			delivered <- true
		case <-r.Context().Done():
			delivered <- false
		}
	}
	c := f.client()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hung
		cancel()
	}()
	if _, err := named(c, "hang").Call(ctx, tool.Call{}); err == nil {
		t.Fatal("a cancelled call succeeded")
	}
	<-arrived
	closed := make(chan struct{})
	go func() {
		_ = c.Close()
		close(closed)
	}()
	until(t, "the end of the session", func() bool { return f.count(http.MethodDelete) == 1 })
	close(release)
	if !<-delivered {
		t.Error("the notification was cut off")
	}
	<-closed
}

func TestListsThatLieAreReadAsFarAsTheyCan(t *testing.T) {
	f := newFake(t)
	f.tools = `[
		{"name":"exact","title":"T","inputSchema":{"type":"object","b":1,"a":12345678901234567890,"x": 1.0e2},"annotations":{"readOnlyHint":true,"destructiveHint":"yes"}},
		{"name":"none"},{"name":"null","inputSchema":null},{"name":"list","inputSchema":[1]},{"name":"bool","inputSchema":true},
		null, 7, {"name":5,"inputSchema":{}}, {"description":"nameless"},
		{"name":"odd","description":{"a":1},"inputSchema":{"type":"object"},"annotations":[]},
		{"name":"deep","inputSchema":` + strings.Repeat(`{"a":`, 3000) + `1` + strings.Repeat("}", 3000) + `},
		{"name":"bytes","description":"a` + "\xff" + `b","inputSchema":{"type":"object","d":"` + "\xff" + `"}}
	]`
	tools, err := f.client(func(s *Server) { s.Trust = true }).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]tool.Definition{}
	for _, x := range tools {
		got[x.Definition().Name] = x.Definition()
	}
	for name, schema := range map[string]string{
		"exact": `{"type":"object","b":1,"a":12345678901234567890,"x": 1.0e2}`, // byte for byte
		"none":  "", "null": "null", "list": "[1]", "bool": "true", "odd": `{"type":"object"}`,
		"bytes": "{\"type\":\"object\",\"d\":\"\ufffd\"}",
	} {
		if d, ok := got[name]; !ok || string(d.InputSchema) != schema {
			t.Errorf("%s: %v schema %s, want %s", name, ok, d.InputSchema, schema)
		}
	}
	if len(tools) != 8 || got["deep"].InputSchema == nil {
		t.Errorf("%d tools, want 8 with deep among them", len(tools))
	}
	exact := got["exact"].Annotations
	if exact.ReadOnly == nil || !*exact.ReadOnly || exact.Destructive != nil || got["bytes"].Description != "a\ufffdb" {
		t.Errorf("annotations %+v, description %q", exact, got["bytes"].Description)
	}
	for _, x := range tools {
		want := tool.Once
		if x.Definition().Name == "exact" {
			want = tool.Read
		}
		if class := tool.ClassOf(x); class != want {
			t.Errorf("%s: class %s, want %s", x.Definition().Name, class, want)
		}
	}
}

func TestListsWithoutEndAreCut(t *testing.T) {
	pages := func(next func(n int) string, tools int) http.HandlerFunc {
		n := 0
		return func(w http.ResponseWriter, r *http.Request) {
			n++
			var list []string
			for i := range tools {
				list = append(list, fmt.Sprintf(`{"name":"t%d_%d","inputSchema":{}}`, n, i))
			}
			result(w, asked(r).id, fmt.Sprintf(`{"tools":[%s],"nextCursor":%q}`, strings.Join(list, ","), next(n)))
		}
	}
	for name, row := range map[string]struct {
		answer       http.HandlerFunc
		tools, calls int
	}{
		"three pages":        {pages(func(n int) string { return []string{"", "b", "c", ""}[n] }, 2), 6, 3},
		"a cursor loop":      {pages(func(n int) string { return []string{"b", "c"}[n%2] }, 1), 3, 3},
		"endless cursors":    {pages(func(n int) string { return fmt.Sprint("c", n) }, 1), maxPages, maxPages},
		"too many in a page": {pages(func(int) string { return "" }, maxTools+7), maxTools, 1},
		"too many in all":    {pages(func(n int) string { return fmt.Sprint("c", n) }, 100), maxTools, 5},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.override[methodList] = row.answer
			tools, err := f.client().List(t.Context())
			if err != nil || len(tools) != row.tools || f.count(methodList) != row.calls {
				t.Errorf("%d tools in %d requests (%v), want %d in %d", len(tools), f.count(methodList), err, row.tools, row.calls)
			}
		})
	}
}
