package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// One script, streamed and not, in every stream mode: the same text,
// the same usage, the same results told to the model. // A06 B23
func TestAStreamAndAJSONAnswerSayTheSame(t *testing.T) {
	noLeaks(t)
	for _, mode := range []string{"live", "final_only", "disabled"} {
		t.Run(mode, func(t *testing.T) {
			tools := newMCP(t, map[string]handler{"echo": echo})
			var told [][]string
			var final []string
			for _, request := range []string{question, streamedQuestion} {
				up := newUpstream(t, script(
					asks(call{"echo", `{"n":1}`}, call{"echo", `{"n":2}`}).saying("Looking."),
					says("Done: "+strings.Repeat("é😀", 40)),
				))
				g := MustRun(t, site{upstream: up.URL, runtime: "stream_mode: " + mode, servers: []string{server("s", tools.URL)}}.yaml())
				got := g.post(request)
				var text string
				if request == question || mode == "disabled" { // G02 G03
					if ct := got.header.Get("Content-Type"); ct != "application/json" {
						t.Errorf("content type %s", ct)
					}
					text, _ = got.completion(t)
					if !strings.Contains(string(got.body), `"prompt_tokens":20,"completion_tokens":10,"total_tokens":30`) {
						t.Errorf("usage is not the sum: %s", got.body)
					}
				} else {
					s := got.stream(t)
					if s.done != 1 || !slices.Equal(s.reasons, []string{"stop"}) || s.errors != nil { // G05 G16
						t.Errorf("%+v", s)
					}
					text = s.text[strings.LastIndex(s.text, "\n\n")+1:]
					text = strings.TrimPrefix(text, "\n")
					if live := strings.HasPrefix(s.text, "Looking.\n\n"); live != (mode == "live") { // G21
						t.Errorf("the stream said %q", s.text)
					}
					if got.header.Get("Cache-Control") != "no-cache" || got.header.Get("X-Accel-Buffering") != "no" { // G19
						t.Errorf("header %v", got.header)
					}
				}
				final = append(final, text)
				told = append(told, up.requests()[1].results(t))
			}
			if final[0] != final[1] || !strings.HasPrefix(final[0], "Done: ") {
				t.Errorf("JSON says %q, the stream %q", final[0], final[1])
			}
			if want := []string{`{"n":1}`, `{"n":2}`}; !slices.Equal(told[0], want) || !slices.Equal(told[1], want) { // C05
				t.Errorf("the model was told %q", told)
			}
		})
	}
}

// What the model says in round 0 is at the client before the tool of round 0
// has answered. // G04
func TestTextArrivesBeforeItsToolHasAnswered(t *testing.T) {
	noLeaks(t)
	seen := make(chan struct{})
	tools := newMCP(t, map[string]handler{"wait": func(ctx context.Context, _ string) (string, error) {
		select {
		case <-seen:
			return "ok", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}})
	up := newUpstream(t, script(asks(call{"wait", `{}`}).saying("Looking."), says("Done.")))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
	resp, err := g.client.Do(g.request(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(streamedQuestion)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got strings.Builder
	buf := make([]byte, 1024)
	for open := true; ; {
		n, err := resp.Body.Read(buf)
		got.Write(buf[:n])
		if open && strings.Contains(got.String(), "Looking.") {
			close(seen)
			open = false
		}
		if err != nil {
			break
		}
	}
	if !strings.HasSuffix(got.String(), "data: [DONE]\n\n") || !strings.Contains(got.String(), "Done.") {
		t.Errorf("%s", got.String())
	}
}

// Eight tools of a turn run at the same time; each waits for the others.
// Their results stand in the order of the calls. // C01 C05
func TestTheToolsOfATurnRunAtTheSameTime(t *testing.T) {
	noLeaks(t)
	const n = 8
	var inside atomic.Int32
	all := make(chan struct{})
	tools := newMCP(t, map[string]handler{"meet": func(ctx context.Context, arguments string) (string, error) {
		if inside.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
			return arguments, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}})
	up := newUpstream(t, script(asks(many("meet", n)...), says("Done.")))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
	if text, _ := g.post(question).completion(t); text != "Done." {
		t.Errorf("%q", text)
	}
	var want []string
	for _, c := range many("meet", n) {
		want = append(want, c.arguments)
	}
	if got := up.requests()[1].results(t); !slices.Equal(got, want) {
		t.Errorf("the model was told %q", got)
	}
}

func many(name string, n int) []call {
	calls := make([]call, n)
	for i := range calls {
		calls[i] = call{name, fmt.Sprintf(`{"n":%d}`, i)}
	}
	return calls
}

// What else an org may want. // C02 C03 C04
func TestHowTheCallsOfATurnAreExecuted(t *testing.T) {
	noLeaks(t)
	for _, tt := range []struct {
		mode        string
		mostReads   int32 // at the same time, of the four calls
		mostWrites  int32
		callsThatGo int
	}{
		{"serial", 1, 1, 8},
		{"safe", 4, 1, 8},
		{"first", 1, 1, 1},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			var reads, writes, mostReads, mostWrites, calls atomic.Int32
			gather := make(chan struct{})
			read := func(ctx context.Context, arguments string) (string, error) {
				calls.Add(1)
				now := reads.Add(1)
				defer reads.Add(-1)
				raise(&mostReads, now)
				if now == tt.mostReads && tt.mostReads > 1 {
					close(gather)
				}
				if tt.mostReads > 1 {
					select {
					case <-gather:
					case <-ctx.Done():
					}
				}
				return arguments, nil
			}
			write := func(_ context.Context, arguments string) (string, error) {
				calls.Add(1)
				raise(&mostWrites, writes.Add(1))
				defer writes.Add(-1)
				if reads.Load() > 0 {
					return "", errors.New("a read is under way")
				}
				return arguments, nil
			}
			tools := newMCP(t, map[string]handler{"read": read, "write": write}, "read")
			var asked []call
			for i := range 4 {
				asked = append(asked, call{"write", fmt.Sprintf(`{"n":%d}`, 10+i)}, call{"read", fmt.Sprintf(`{"n":%d}`, 20+i)})
			}
			up := newUpstream(t, script(asks(asked...), says("Done.")))
			g := MustRun(t, site{upstream: up.URL, runtime: "tool_parallelism: " + tt.mode, servers: []string{server("s", tools.URL, "trust: true")}}.yaml())
			g.post(question).completion(t)
			if mostReads.Load() > tt.mostReads || mostWrites.Load() != tt.mostWrites || int(calls.Load()) != tt.callsThatGo {
				t.Errorf("%d reads and %d writes at a time, %d calls", mostReads.Load(), mostWrites.Load(), calls.Load())
			}
			for i, told := range up.requests()[1].results(t) {
				if i < tt.callsThatGo && told != asked[i].arguments {
					t.Errorf("result %d is %q, want %q", i, told, asked[i].arguments)
				}
			}
		})
	}
}

func raise(most *atomic.Int32, now int32) {
	for {
		old := most.Load()
		if now <= old || most.CompareAndSwap(old, now) {
			return
		}
	}
}

// pause is how a slow neighbour is slow.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A client that leaves cancels the model and the tools. The time is
// measured where they are, from the moment of leaving. // O01 G18
func TestAClientThatLeavesCancelsWhatItHasBegun(t *testing.T) {
	const soon = 100 * time.Millisecond
	for _, loopOn := range []bool{true, false} {
		for _, request := range []string{question, streamedQuestion} {
			t.Run(fmt.Sprintf("the model, loop %t, stream %t", loopOn, request == streamedQuestion), func(t *testing.T) {
				noLeaks(t)
				reached, ended := make(chan struct{}), make(chan time.Time, 1)
				up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, _ received) {
					w.Header().Set("Content-Type", "text/event-stream")
					frame(w, `{"choices":[{"index":0,"delta":{"content":"x"}}]}`)
					_ = http.NewResponseController(w).Flush()
					close(reached)
					<-r.Context().Done()
					ended <- time.Now()
				})
				tools := newMCP(t, map[string]handler{"echo": echo})
				s := site{upstream: up.URL, servers: []string{server("s", tools.URL)}}
				if !loopOn {
					s.servers = nil
				}
				left := MustRun(t, s.yaml()).leave(request, reached)
				if took := wait(t, ended, "the model's end").Sub(left); took > soon {
					t.Errorf("the model was cancelled after %v", took)
				}
			})
		}
	}
	for _, request := range []string{question, streamedQuestion} {
		t.Run(fmt.Sprintf("the tools, stream %t", request == streamedQuestion), func(t *testing.T) {
			noLeaks(t)
			const n = 3
			var inside sync.WaitGroup
			inside.Add(n)
			reached, ended := make(chan struct{}), make(chan time.Time, n)
			tools := newMCP(t, map[string]handler{"wait": func(ctx context.Context, _ string) (string, error) {
				inside.Done()
				<-ctx.Done()
				ended <- time.Now()
				return "", ctx.Err()
			}})
			up := newUpstream(t, script(asks(many("wait", n)...)))
			g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
			go func() { inside.Wait(); close(reached) }()
			left := g.leave(request, reached)
			for range n {
				if took := wait(t, ended, "the tools' end").Sub(left); took > soon {
					t.Errorf("a tool was cancelled after %v", took)
				}
			}
			if len(up.requests()) != 1 {
				t.Errorf("the model was asked %d times", len(up.requests()))
			}
		})
	}
	t.Run("discovery", func(t *testing.T) {
		noLeaks(t)
		reached, release := make(chan struct{}), make(chan struct{})
		tools := newRawMCP(t, map[string]func(http.ResponseWriter, *http.Request, rpc){"tools/list": func(_ http.ResponseWriter, r *http.Request, _ rpc) {
			close(reached)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}})
		defer close(release)
		up := newUpstream(t, script(says("hi")))
		g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
		g.leave(question, reached)
		if err := g.stop(); err != nil { // waits for the request: it has ended although discovery has not
			t.Error(err)
		}
		if len(up.requests()) != 0 {
			t.Error("the model was asked")
		}
	})
}

// leave sends a request, goes away once reached is closed, and returns when it
// left.
func (g *gateway) leave(body string, reached <-chan struct{}) time.Time {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		resp, err := g.client.Do(g.request(ctx, "POST", "/v1/chat/completions", strings.NewReader(body)))
		if err == nil {
			buf := make([]byte, 512)
			for err == nil {
				_, err = resp.Body.Read(buf)
			}
			resp.Body.Close()
		}
	}()
	wait(g.t, reached, "the neighbour to be reached")
	left := time.Now()
	cancel()
	wait(g.t, over, "the client's end")
	return left
}

// B03 B05
func TestOneRoundIsOneModelCall(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"echo", `{"n":1}`}).saying("So far.")))
	g := MustRun(t, site{upstream: up.URL, runtime: "max_rounds: 1", servers: []string{server("s", tools.URL)}}.yaml())
	if text, reason := g.post(question).completion(t); text != "So far." || reason != "length" {
		t.Errorf("%q, %s", text, reason)
	}
	if len(up.requests()) != 1 || len(tools.of("tools/call")) != 1 {
		t.Errorf("%d model calls, %d tool calls", len(up.requests()), len(tools.of("tools/call")))
	}
}

// The deadline of a run ends the tool and the model, and what was said is kept.
func TestTheDeadlineEndsARun(t *testing.T) {
	noLeaks(t)
	for _, where := range []string{"in a tool", "in the model"} {
		t.Run(where, func(t *testing.T) {
			ended := make(chan struct{})
			tools := newMCP(t, map[string]handler{"wait": func(ctx context.Context, _ string) (string, error) {
				<-ctx.Done()
				close(ended)
				return "", ctx.Err()
			}})
			up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, _ received) {
				if where == "in a tool" {
					asks(call{"wait", `{}`}).saying("So far.").write(w)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				frame(w, `{"choices":[{"index":0,"delta":{"content":"So far."}}]}`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(ended)
			})
			g := MustRun(t, site{upstream: up.URL, runtime: "deadline: 3s", servers: []string{server("s", tools.URL)}}.yaml())
			if text, reason := g.post(question).completion(t); text != "So far." || reason != "length" {
				t.Errorf("%q, %s", text, reason)
			}
			wait(t, ended, "the end of what was under way")
		})
	}
}

// Calls that are the client's go out, those of the gateway are run before,
// and when the client comes back the model sees the whole transcript. // A08
func TestAMixedTurnComesBackWhole(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo_1": echo})
	up := newUpstream(t, script(asks(call{"echo_1", `{"n":1}`}, call{"mine", `{"x":2}`}), says("Done.")))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
	const client = `"tools":[{"type":"function","function":{"name":"mine","parameters":{"type":"object","properties":{}}}}]`
	first := g.post(`{"model":"m",` + client + `,"messages":[{"role":"user","content":"go"}]}`)
	_, reason := first.completion(t)
	id := between(string(first.body), `"tool_calls":[{"id":"`, `"`)
	if reason != "tool_calls" || !strings.HasPrefix(id, "call_tp_") || strings.Contains(string(first.body), "echo_1") {
		t.Fatalf("%s", first.body)
	}
	back := func(key string) []string {
		g.post(`{"model":"m",`+client+`,"messages":[{"role":"user","content":"go"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"`+id+`","type":"function","function":{"name":"mine","arguments":"{\"x\":2}"}}]},
			{"role":"tool","tool_call_id":"`+id+`","content":"two"}]}`, "Authorization", "Bearer "+key)
		all := up.requests()
		return all[len(all)-1].results(t)
	}
	if got := back("owner-key"); !slices.Equal(got, []string{`{"n":1}`, "two"}) {
		t.Errorf("the model was told %q", got)
	}
	if got := back("member-key"); !slices.Equal(got, []string{"two"}) { // another principal: an unknown id
		t.Errorf("somebody else's transcript: the model was told %q", got)
	}
}

func between(s, before, after string) string {
	_, s, _ = strings.Cut(s, before)
	s, _, _ = strings.Cut(s, after)
	return s
}
