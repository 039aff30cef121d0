package chat_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// Whatever the model does, the run ends and says why; nothing half is executed.
func TestAModelThatMisbehaves(t *testing.T) {
	NoLeaks(t)
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	events := func(frames ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, f := range frames {
				Frame(w, f)
			}
		}
	}
	cut := func(frames ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			events(frames...)(w)
			flush(w)
			panic(http.ErrAbortHandler)
		}
	}
	const (
		hello   = `{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}`
		half    = `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"echo","arguments":"{\"n\":1}"}}]}}]}`
		second  = `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"d","type":"function","function":{"name":"echo","arguments":"{\"n\":"}}]}}]}`
		filter  = `{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}`
		length  = `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`
		goodbye = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	)
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter) // to every call

		status   int    // of the JSON answer
		reason   string // its finish reason, for 200
		text     string
		executed int  // tools/call requests
		spoken   bool // in a stream, something was said before the failure
	}{
		{"answers nothing", func(w http.ResponseWriter) {}, 502, "", "", 0, false},
		{"answers a web page", func(w http.ResponseWriter) { fmt.Fprint(w, "<html>hi</html>") }, 502, "", "", 0, false},
		{"answers another object", func(w http.ResponseWriter) { fmt.Fprint(w, `{"hello":1}`) }, 502, "", "", 0, false},
		{"streams garbage", events("\x00\xff garbage"), 502, "", "", 0, false},
		{"streams garbage after text", events(hello, "garbage"), 502, "", "", 0, true},
		{"streams numbers", events("1", "2"), 502, "", "", 0, false},
		{"ends the stream without a word", events("[DONE]"), 200, "stop", "", 0, false},
		{"stops in mid-word", cut(hello), 502, "", "", 0, true},
		{"stops in mid-word, politely", events(hello), 502, "", "", 0, true},
		{"stops in the middle of a call", cut(half), 502, "", "", 0, false},
		{"stops in the middle of a call, politely", events(half), 502, "", "", 0, false},
		{"streams an error", events(hello, `{"error":{"message":"overloaded","type":"server_error"}}`), 502, "", "", 0, true},
		{"streams an endless line", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: ")
			for range 6 << 10 {
				if _, err := fmt.Fprint(w, strings.Repeat("x", 1<<10)); err != nil {
					return
				}
			}
		}, 502, "", "", 0, false},
		{"is cut by the filter", events(hello, filter), 200, "content_filter", "Hel", 0, true},
		{"is cut by its length", events(hello, length), 200, "length", "Hel", 0, true},
		{"repeats the same call for ever", events(half, `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"), 200, "length", "", 2, false}, // B13 P04
		{"sends broken arguments for ever", func(w http.ResponseWriter) { Asks(Use("echo", `{bad`)).Write(w) }, 200, "length", "", 0, false},                         // C16
		{"asks for unknown tools for ever", func(w http.ResponseWriter) { Asks(Use("nosuch", `{}`)).Write(w) }, 200, "length", "", 0, false},                         // C14
		{"says the end twice", events(hello, goodbye, goodbye, "[DONE]", "[DONE]"), 200, "stop", "Hel", 0, true},
		{"goes on after the end", events(hello, goodbye, "[DONE]", half), 200, "stop", "Hel", 0, true},
		{"is cut in the second of two calls", cut(half, second), 200, "length", "", 2, false}, // the first is complete, again and again
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // what fails is tried four times, with a wait after the first
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			answer := func(w http.ResponseWriter, _ *http.Request, _ Received) { tt.answer(w) }
			if tt.status != 200 {
				answer = firstAndLast(answer)
			}
			up := NewUpstream(t, answer)
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
			got := g.Post(Question)
			if got.Status != tt.status {
				t.Fatalf("status %d: %s", got.Status, got.Body)
			}
			if tt.status == 200 {
				if text, reason := got.Completion(t); text != tt.text || reason != tt.reason {
					t.Errorf("%q, %s", text, reason)
				}
			} else if e := got.Fault(t); e.Error.Code == nil || *e.Error.Code != "model_error" {
				t.Errorf("%s", got.Body)
			}
			if n := len(tools.Of("tools/call")); n != tt.executed {
				t.Errorf("%d tool calls were executed", n)
			}
			up.Forget()
			streamed := g.Post(StreamedQuestion)
			switch {
			case tt.status == 200:
				if s := streamed.Stream(t); s.Done != 1 || len(s.Reasons) != 1 || s.Reasons[0] != tt.reason || s.Errors != nil || s.Text != tt.text {
					t.Errorf("%+v", s)
				}
			case tt.spoken: // G17
				if s := streamed.Stream(t); s.Done != 1 || len(s.Reasons) != 0 || len(s.Errors) != 1 || s.Text != "Hel" {
					t.Errorf("%+v", s)
				}
			case streamed.Status != tt.status:
				t.Errorf("streamed: status %d: %s", streamed.Status, streamed.Body)
			}
		})
	}
}
