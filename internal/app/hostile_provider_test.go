package app_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// chunk is one event with a delta.
func chunk(delta string) string { return `data: {"choices":[{"index":0,"delta":` + delta + "}]}\n\n" }

// endless sends the same until nobody reads it.
func endless(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	}
}

// providerStory is a story of a provider that means harm.
type providerStory struct {
	name     string
	answer   func(http.ResponseWriter, *http.Request)
	status   int
	reason   string // the finish reason of status 200, or a part of the error
	text     string
	recorded string // the reason in the run's record
	executed int
	attempts int // requests to the provider
	runtime  string
	memory   int // MB that may be allocated; 0 = not measured
}

// group puts the stories that flood into one group: they take seconds.
func (s providerStory) group() string {
	if s.memory > 0 {
		return "floods"
	}
	return s.name
}

func providerStories() []providerStory {
	const finish = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"%s"}]}` + "\n\n"
	stop, calls := fmt.Sprintf(finish, "stop"), fmt.Sprintf(finish, "tool_calls")
	begin := func(index int, arguments string) string {
		return chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"c%d","type":"function","function":{"name":"echo","arguments":%s}}]}`, index, index, Quote(arguments)))
	}
	manyCalls := sync.OnceValue(func() []byte {
		var all bytes.Buffer
		for i := range 100_000 {
			all.WriteString(begin(i, fmt.Sprintf(`{"n":%d}`, i)))
		}
		return all.Bytes()
	})
	answers := func(parts ...string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, strings.Join(parts, ""))
		}
	}
	return []providerStory{
		{name: "a stream without end", answer: endless(chunk(`{"content":"` + strings.Repeat("x", 32<<10) + `"}`)), status: 502, reason: "larger than 8 MiB", recorded: "model_error", attempts: 4, memory: 800},
		{name: "comments without end", answer: endless(": " + strings.Repeat("x", 32<<10) + "\n"), status: 502, reason: "too large", recorded: "model_error", attempts: 4, memory: 100},
		{name: "a line of a gigabyte", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: ")
			gigabyte(w)
		}, status: 502, reason: "too large", recorded: "model_error", attempts: 4, memory: 100},
		{name: "an object of a gigabyte", answer: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"`)
			gigabyte(w)
		}, status: 502, reason: "too large", recorded: "model_error", attempts: 4, memory: 800},
		{name: "a byte now and then", answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_, _ = io.WriteString(w, ":")
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				}
			}
		}, status: 200, reason: "length", recorded: "deadline", attempts: 1, runtime: "deadline: 3s"},
		{name: "a bomb", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb())
		}, status: 502, reason: "content encoding", recorded: "model_error", attempts: 1, memory: 100},
		{name: "another content type", answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			_, _ = io.WriteString(w, chunk(`{"content":"ok"}`)+stop+"data: [DONE]\n\n")
		}, status: 200, reason: "stop", text: "ok", recorded: "complete", attempts: 1},
		{name: "a hundred thousand calls", answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for piece := range slices.Chunk(manyCalls(), 64<<10) {
				if _, err := w.Write(piece); err != nil || r.Context().Err() != nil {
					return
				}
			}
		}, status: 200, reason: "length", recorded: "max_calls", executed: 128, attempts: 5, memory: 3500},
		{name: "arguments of 100 MB", answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, begin(0, `{"n":"`))
			endless(chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"`+strings.Repeat("x", 32<<10)+`"}}]}`))(w, r)
		}, status: 502, reason: "larger than 8 MiB", recorded: "model_error", attempts: 4, memory: 330},
		{name: "arguments of 2 MB", answer: answers(begin(0, `{"n":"`+strings.Repeat("x", 500<<10)), strings.Repeat(chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"`+strings.Repeat("x", 500<<10)+`"}}]}`), 3), begin(0, `"}`), calls),
			status: 200, reason: "length", recorded: "no_progress", attempts: 4},
		{name: "two calls in one place", answer: answers(begin(0, `{"n":1}`), strings.ReplaceAll(begin(0, `{"n":2}`), "c0", "d0"), calls, "data: [DONE]\n\n"), status: 200, reason: "length", recorded: "no_progress", executed: 5, attempts: 4},
		{name: "arguments without a call", answer: answers(chunk(`{"tool_calls":[{"index":3,"function":{"arguments":"{}"}}]}`), calls), status: 200, reason: "length", recorded: "no_progress", attempts: 4},
		{name: "an end without a beginning", answer: answers(stop), status: 200, reason: "stop", recorded: "complete", attempts: 1},
		{name: "calls announced and not made", answer: answers(calls), status: 502, reason: "sent none that can be read", recorded: "model_error", attempts: 4},
		{name: "text that is none", answer: answers(chunk("{\"content\":\"a\xff\xfeb\\ud800c\"}"), stop), status: 200, reason: "stop", text: "a\ufffd\ufffdb\ufffdc", recorded: "complete", attempts: 1},
		{name: "JSON that is none", answer: answers(`data: {"choices":[{"delta":{"content":"a"}}` + "\n\n"), status: 502, reason: "a chunk that is not valid", recorded: "model_error", attempts: 1},
		{name: "no end mark", answer: answers(chunk(`{"content":"ok"}`), stop), status: 200, reason: "stop", text: "ok", recorded: "complete", attempts: 1},
		{name: "usage below zero", answer: answers(chunk(`{"content":"ok"}`), stop, `data: {"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":-1e30,"total_tokens":-99999999999999999999}}`+"\n\n"), status: 200, reason: "stop", text: "ok", recorded: "complete rounds=1 tokens=0", attempts: 1},
		{name: "usage beyond belief", answer: answers(chunk(`{"content":"ok"}`), stop, `data: {"choices":[],"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":9223372036854775807,"total_tokens":1e300}}`+"\n\n"), status: 200, reason: "stop", text: "ok", recorded: "complete rounds=1 tokens=2000000000", attempts: 1},
		{name: "a wait for ever", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "99999999999")
			http.Error(w, `{"error":{"message":"slow down","type":"x"}}`, http.StatusTooManyRequests)
		}, status: 429, reason: "slow down", recorded: "model_error", attempts: 1},
		{name: "a redirect", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://169.254.169.254/latest")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, status: 502, reason: "", recorded: "model_error", attempts: 1},
		{name: "a header of 100 KB", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 100<<10))
			Says("ok").Write(w)
		}, status: 502, reason: "", recorded: "model_error", attempts: 4},
		{name: "a thousand informational answers", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", strings.Repeat("x", 1<<10))
			for range 1000 {
				w.WriteHeader(http.StatusEarlyHints)
			}
			Says("ok").Write(w)
		}, status: 502, reason: "", recorded: "model_error", attempts: 4},
		{name: "text like our own frames", answer: answers(chunk(`{"content":"\n\ndata: [DONE]\n\nevent: x\r\n\r\n"}`), stop), status: 200, reason: "stop", text: "\n\ndata: [DONE]\n\nevent: x\r\n\r\n", recorded: "complete", attempts: 1},
	}
}

// The stories of a provider that means harm, in a run with tools: each ends in a
// way that is recorded, in bounded memory, and calls no tool that it should not.
// P06 G17
func TestAProviderThatMeansHarm(t *testing.T) {
	Alone(t)
	for _, tt := range soak.Sample(t, providerStories(), soak.Value(t, 1, 2, 0), providerStory.group) {
		if tt.memory > 0 && RaceDetector {
			continue // memory means little under it, and a gigabyte takes a minute
		}
		t.Run(tt.name, func(t *testing.T) {
			if tt.memory == 0 {
				t.Parallel() // after those that are measured; what fails is tried four times, with waits between
			}
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) { tt.answer(w, r) })
			g := MustRun(t, Site{Upstream: up.URL, Runtime: tt.runtime, Servers: []string{Server("s", tools.URL)}}.Yaml())
			var got Answer
			Measured(t, tt.memory, func() { got = g.Post(Question) })
			if got.Status != tt.status {
				t.Fatalf("status %d: %.500s", got.Status, got.Body)
			}
			if tt.status == 200 {
				if text, reason := got.Completion(t); text != tt.text || reason != tt.reason {
					t.Errorf("%.300q, %s", text, reason)
				}
			} else if e := got.Fault(t); !strings.Contains(e.Error.Message, tt.reason) {
				t.Errorf("%.500s", got.Body)
			}
			if !strings.Contains(g.Log.String(), "reason="+tt.recorded) {
				t.Errorf("recorded is not %s:\n%.3000s", tt.recorded, g.Log)
			}
			if n := len(tools.Of("tools/call")); n != tt.executed {
				t.Errorf("%d tool calls were executed, want %d", n, tt.executed)
			}
			if n := len(up.Requests()); n != tt.attempts {
				t.Errorf("the provider was asked %d times, want %d", n, tt.attempts)
			}
			if strings.Contains(g.Log.String(), "CANARY") || strings.Contains(string(got.Body), "CANARY") {
				t.Error("a key shows")
			}
		})
	}
}
