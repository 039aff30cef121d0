package chat_test

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

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// One script, streamed and not, in every stream mode: the same text,
// the same usage, the same results told to the model. // A06 B23
func TestAStreamAndAJSONAnswerSayTheSame(t *testing.T) {
	NoLeaks(t)
	for _, mode := range []string{"live", "final_only", "disabled"} {
		t.Run(mode, func(t *testing.T) {
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			var told [][]string
			var final []string
			for _, request := range []string{Question, StreamedQuestion} {
				up := NewUpstream(t, Script(
					Asks(Use("echo", `{"n":1}`), Use("echo", `{"n":2}`)).Saying("Looking."),
					Says("Done: "+strings.Repeat("é😀", 40)),
				))
				g := MustRun(t, Site{Upstream: up.URL, Runtime: "stream_mode: " + mode, Servers: []string{Server("s", tools.URL)}}.Yaml())
				got := g.Post(request)
				var text string
				if request == Question || mode == "disabled" { // G02 G03
					if ct := got.Header.Get("Content-Type"); ct != "application/json" {
						t.Errorf("content type %s", ct)
					}
					text, _ = got.Completion(t)
					if !strings.Contains(string(got.Body), `"prompt_tokens":20,"completion_tokens":10,"total_tokens":30`) {
						t.Errorf("usage is not the sum: %s", got.Body)
					}
				} else {
					s := got.Stream(t)
					if s.Done != 1 || !slices.Equal(s.Reasons, []string{"stop"}) || s.Errors != nil { // G05 G16
						t.Errorf("%+v", s)
					}
					text = s.Text[strings.LastIndex(s.Text, "\n\n")+1:]
					text = strings.TrimPrefix(text, "\n")
					if live := strings.HasPrefix(s.Text, "Looking.\n\n"); live != (mode == "live") { // G21
						t.Errorf("the stream said %q", s.Text)
					}
					if got.Header.Get("Cache-Control") != "no-cache" || got.Header.Get("X-Accel-Buffering") != "no" { // G19
						t.Errorf("header %v", got.Header)
					}
				}
				final = append(final, text)
				told = append(told, up.Requests()[1].Results(t))
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
	NoLeaks(t)
	seen := make(chan struct{})
	tools := NewMCP(t, map[string]Handler{"wait": func(ctx context.Context, _ string) (string, error) {
		select {
		case <-seen:
			return "ok", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}})
	up := NewUpstream(t, Script(Asks(Use("wait", `{}`)).Saying("Looking."), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	resp, err := g.Client.Do(g.Request(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(StreamedQuestion)))
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
	NoLeaks(t)
	const n = 8
	var inside atomic.Int32
	all := make(chan struct{})
	tools := NewMCP(t, map[string]Handler{"meet": func(ctx context.Context, arguments string) (string, error) {
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
	up := NewUpstream(t, Script(Asks(many("meet", n)...), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	if text, _ := g.Post(Question).Completion(t); text != "Done." {
		t.Errorf("%q", text)
	}
	var want []string
	for _, c := range many("meet", n) {
		want = append(want, c.Arguments)
	}
	if got := up.Requests()[1].Results(t); !slices.Equal(got, want) {
		t.Errorf("the model was told %q", got)
	}
}

func many(name string, n int) []Call {
	calls := make([]Call, n)
	for i := range calls {
		calls[i] = Use(name, fmt.Sprintf(`{"n":%d}`, i))
	}
	return calls
}

// What else an org may want. // C02 C03 C04
func TestHowTheCallsOfATurnAreExecuted(t *testing.T) {
	NoLeaks(t)
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
				Raise(&mostReads, now)
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
				Raise(&mostWrites, writes.Add(1))
				defer writes.Add(-1)
				if reads.Load() > 0 {
					return "", errors.New("a read is under way")
				}
				return arguments, nil
			}
			tools := NewMCP(t, map[string]Handler{"read": read, "write": write}, "read")
			var asked []Call
			for i := range 4 {
				asked = append(asked, Use("write", fmt.Sprintf(`{"n":%d}`, 10+i)), Use("read", fmt.Sprintf(`{"n":%d}`, 20+i)))
			}
			up := NewUpstream(t, Script(Asks(asked...), Says("Done.")))
			g := MustRun(t, Site{Upstream: up.URL, Runtime: "tool_parallelism: " + tt.mode, Servers: []string{Server("s", tools.URL, "trust: true")}}.Yaml())
			g.Post(Question).Completion(t)
			if mostReads.Load() > tt.mostReads || mostWrites.Load() != tt.mostWrites || int(calls.Load()) != tt.callsThatGo {
				t.Errorf("%d reads and %d writes at a time, %d calls", mostReads.Load(), mostWrites.Load(), calls.Load())
			}
			for i, told := range up.Requests()[1].Results(t) {
				if i < tt.callsThatGo && told != asked[i].Arguments {
					t.Errorf("result %d is %q, want %q", i, told, asked[i].Arguments)
				}
			}
		})
	}
}

// A client that leaves cancels the model and the tools. The time is
// measured where they are, from the moment of leaving. // O01 G18
func TestAClientThatLeavesCancelsWhatItHasBegun(t *testing.T) {
	const soon = 100 * time.Millisecond
	for _, loopOn := range []bool{true, false} {
		for _, request := range []string{Question, StreamedQuestion} {
			t.Run(fmt.Sprintf("the model, loop %t, stream %t", loopOn, request == StreamedQuestion), func(t *testing.T) {
				NoLeaks(t)
				reached, ended := make(chan struct{}), make(chan time.Time, 1)
				up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
					w.Header().Set("Content-Type", "text/event-stream")
					Frame(w, `{"choices":[{"index":0,"delta":{"content":"x"}}]}`)
					_ = http.NewResponseController(w).Flush()
					close(reached)
					<-r.Context().Done()
					ended <- time.Now()
				})
				tools := NewMCP(t, map[string]Handler{"echo": Echo})
				s := Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}
				if !loopOn {
					s.Servers = nil
				}
				left := MustRun(t, s.Yaml()).Leave(request, reached)
				if took := Wait(t, ended, "the model's end").Sub(left); took > soon {
					t.Errorf("the model was cancelled after %v", took)
				}
			})
		}
	}
	for _, request := range []string{Question, StreamedQuestion} {
		t.Run(fmt.Sprintf("the tools, stream %t", request == StreamedQuestion), func(t *testing.T) {
			NoLeaks(t)
			const n = 3
			var inside sync.WaitGroup
			inside.Add(n)
			reached, ended := make(chan struct{}), make(chan time.Time, n)
			tools := NewMCP(t, map[string]Handler{"wait": func(ctx context.Context, _ string) (string, error) {
				inside.Done()
				<-ctx.Done()
				ended <- time.Now()
				return "", ctx.Err()
			}})
			up := NewUpstream(t, Script(Asks(many("wait", n)...)))
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
			go func() { inside.Wait(); close(reached) }()
			left := g.Leave(request, reached)
			for range n {
				if took := Wait(t, ended, "the tools' end").Sub(left); took > soon {
					t.Errorf("a tool was cancelled after %v", took)
				}
			}
			if len(up.Requests()) != 1 {
				t.Errorf("the model was asked %d times", len(up.Requests()))
			}
		})
	}
	t.Run("discovery", func(t *testing.T) {
		NoLeaks(t)
		reached, release := make(chan struct{}), make(chan struct{})
		tools := NewRawMCP(t, map[string]func(http.ResponseWriter, *http.Request, RPC){"tools/list": func(_ http.ResponseWriter, r *http.Request, _ RPC) {
			close(reached)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}})
		defer close(release)
		up := NewUpstream(t, Script(Says("hi")))
		g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
		g.Leave(Question, reached)
		if err := g.Stop(); err != nil { // waits for the request: it has ended although discovery has not
			t.Error(err)
		}
		if len(up.Requests()) != 0 {
			t.Error("the model was asked")
		}
	})
}

// B03 B05
func TestOneRoundIsOneModelCall(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("echo", `{"n":1}`)).Saying("So far.")))
	g := MustRun(t, Site{Upstream: up.URL, Runtime: "max_rounds: 1", Servers: []string{Server("s", tools.URL)}}.Yaml())
	if text, reason := g.Post(Question).Completion(t); text != "So far." || reason != "length" {
		t.Errorf("%q, %s", text, reason)
	}
	if len(up.Requests()) != 1 || len(tools.Of("tools/call")) != 1 {
		t.Errorf("%d model calls, %d tool calls", len(up.Requests()), len(tools.Of("tools/call")))
	}
}

// The deadline of a run ends the tool and the model, and what was said is kept.
func TestTheDeadlineEndsARun(t *testing.T) {
	NoLeaks(t)
	for _, where := range []string{"in a tool", "in the model"} {
		t.Run(where, func(t *testing.T) {
			ended := make(chan struct{})
			tools := NewMCP(t, map[string]Handler{"wait": func(ctx context.Context, _ string) (string, error) {
				<-ctx.Done()
				close(ended)
				return "", ctx.Err()
			}})
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
				if where == "in a tool" {
					Asks(Use("wait", `{}`)).Saying("So far.").Write(w)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				Frame(w, `{"choices":[{"index":0,"delta":{"content":"So far."}}]}`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(ended)
			})
			g := MustRun(t, Site{Upstream: up.URL, Runtime: "deadline: 3s", Servers: []string{Server("s", tools.URL)}}.Yaml())
			if text, reason := g.Post(Question).Completion(t); text != "So far." || reason != "length" {
				t.Errorf("%q, %s", text, reason)
			}
			Wait(t, ended, "the end of what was under way")
		})
	}
}

// Calls that are the client's go out, those of the gateway are run before,
// and when the client comes back the model sees the whole transcript. // A08
func TestAMixedTurnComesBackWhole(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo_1": Echo})
	up := NewUpstream(t, Script(Asks(Use("echo_1", `{"n":1}`), Use("mine", `{"x":2}`)), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	const client = `"tools":[{"type":"function","function":{"name":"mine","parameters":{"type":"object","properties":{}}}}]`
	first := g.Post(`{"model":"m",` + client + `,"messages":[{"role":"user","content":"go"}]}`)
	_, reason := first.Completion(t)
	id := between(string(first.Body), `"tool_calls":[{"id":"`, `"`)
	if reason != "tool_calls" || !strings.HasPrefix(id, "call_tp_") || strings.Contains(string(first.Body), "echo_1") {
		t.Fatalf("%s", first.Body)
	}
	back := func(key string) []string {
		g.Post(`{"model":"m",`+client+`,"messages":[{"role":"user","content":"go"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"`+id+`","type":"function","function":{"name":"mine","arguments":"{\"x\":2}"}}]},
			{"role":"tool","tool_call_id":"`+id+`","content":"two"}]}`, "Authorization", "Bearer "+key)
		all := up.Requests()
		return all[len(all)-1].Results(t)
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
