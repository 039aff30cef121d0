package app_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Whatever the model does, the run ends and says why; nothing half is executed.
func TestAModelThatMisbehaves(t *testing.T) {
	noLeaks(t)
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	events := func(frames ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, f := range frames {
				frame(w, f)
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
		{"sends broken arguments for ever", func(w http.ResponseWriter) { asks(call{"echo", `{bad`}).write(w) }, 200, "length", "", 0, false},                        // C16
		{"asks for unknown tools for ever", func(w http.ResponseWriter) { asks(call{"nosuch", `{}`}).write(w) }, 200, "length", "", 0, false},                        // C14
		{"says the end twice", events(hello, goodbye, goodbye, "[DONE]", "[DONE]"), 200, "stop", "Hel", 0, true},
		{"goes on after the end", events(hello, goodbye, "[DONE]", half), 200, "stop", "Hel", 0, true},
		{"is cut in the second of two calls", cut(half, second), 200, "length", "", 2, false}, // the first is complete, again and again
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // what fails is tried four times, with waits between
			tools := newMCP(t, map[string]handler{"echo": echo})
			up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) { tt.answer(w) })
			g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
			got := g.post(question)
			if got.status != tt.status {
				t.Fatalf("status %d: %s", got.status, got.body)
			}
			if tt.status == 200 {
				if text, reason := got.completion(t); text != tt.text || reason != tt.reason {
					t.Errorf("%q, %s", text, reason)
				}
			} else if e := got.fault(t); e.Error.Code == nil || *e.Error.Code != "model_error" {
				t.Errorf("%s", got.body)
			}
			if n := len(tools.of("tools/call")); n != tt.executed {
				t.Errorf("%d tool calls were executed", n)
			}
			streamed := g.post(streamedQuestion)
			switch {
			case tt.status == 200:
				if s := streamed.stream(t); s.done != 1 || len(s.reasons) != 1 || s.reasons[0] != tt.reason || s.errors != nil || s.text != tt.text {
					t.Errorf("%+v", s)
				}
			case tt.spoken: // G17
				if s := streamed.stream(t); s.done != 1 || len(s.reasons) != 0 || len(s.errors) != 1 || s.text != "Hel" {
					t.Errorf("%+v", s)
				}
			case streamed.status != tt.status:
				t.Errorf("streamed: status %d: %s", streamed.status, streamed.body)
			}
		})
	}
}

// What is wrong with a call is told to the model, which then does better.
func TestTheModelIsToldWhatIsWrongWithItsCall(t *testing.T) {
	noLeaks(t)
	for _, tt := range []struct {
		name  string
		call  call
		told  []string
		calls int
	}{
		{"an unknown tool", call{"nosuch", `{}`}, []string{`unknown tool`, "nosuch", "echo"}, 0},
		{"a tool that is not on the list", call{"hidden", `{}`}, []string{"hidden", "not allowed"}, 0}, // C06
		{"broken JSON", call{"echo", `{"n":1`}, []string{"invalid arguments", "JSON"}, 0},              // C16
		{"no object", call{"echo", `[1]`}, []string{"not a JSON object"}, 0},
		{"a repeated member", call{"echo", `{"n":1,"n":2}`}, []string{"duplicate"}, 0},
		{"a wrong type", call{"echo", `{"n":"one"}`}, []string{"/n", "integer"}, 0}, // C07
		{"no arguments", call{"echo", ``}, []string{`{}`}, 1},
		{"an integer beyond 2^53", call{"echo", `{"n":9007199254740993}`}, []string{`{"n":9007199254740993}`}, 1},
		{"a tool that fails", call{"fail", `{}`}, []string{"Error: no such luck"}, 1}, // C09 D17
	} {
		t.Run(tt.name, func(t *testing.T) {
			tools := newMCP(t, map[string]handler{
				"echo": echo, "hidden": echo,
				"fail": func(_ context.Context, _ string) (string, error) { return "", fmt.Errorf("no such luck") },
			})
			up := newUpstream(t, script(asks(tt.call), says("Done.")))
			g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL, "tools: [echo, fail]")}}.yaml())
			if text, reason := g.post(question).completion(t); text != "Done." || reason != "stop" {
				t.Fatalf("%q, %s", text, reason)
			}
			told := up.requests()[1].results(t)
			if len(told) != 1 {
				t.Fatalf("the model was told %q", told)
			}
			for _, word := range tt.told {
				if !strings.Contains(told[0], word) {
					t.Errorf("%q does not say %q", told[0], word)
				}
			}
			if n := len(tools.of("tools/call")); n != tt.calls {
				t.Errorf("%d calls were executed", n)
			}
		})
	}
}

// With tool_error_mode abort a failed tool ends the run, and the client is
// told not to repeat the request. // C10
func TestAFailedToolEndsTheRunWhereTheOrgWantsIt(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"fail": func(context.Context, string) (string, error) { return "", fmt.Errorf("no such luck") }})
	up := newUpstream(t, script(asks(call{"fail", `{}`})))
	g := MustRun(t, site{upstream: up.URL, runtime: "tool_error_mode: abort", servers: []string{server("s", tools.URL)}}.yaml())
	got := g.post(question)
	if e := got.fault(t); got.status != 502 || *e.Error.Code != "tool_failed" || !strings.Contains(e.Error.Message, "no such luck") {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if got.header.Get("X-Should-Retry") != "false" {
		t.Error("the client is not told to leave it at that")
	}
	if len(up.requests()) != 1 {
		t.Errorf("the model was asked %d times", len(up.requests()))
	}
}

// C18
func TestToolChoiceIsTheClientsOnlyInTheFirstRound(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"echo", `{}`}), says("Done.")))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
	g.post(`{"model":"m","tool_choice":"required","messages":[{"role":"user","content":"go"}]}`).completion(t)
	for i, want := range []string{`"tool_choice":"required"`, `"tool_choice":"auto"`} {
		if body := string(up.requests()[i].body); !strings.Contains(body, want) {
			t.Errorf("round %d lacks %s: %s", i, want, body)
		}
	}
}
