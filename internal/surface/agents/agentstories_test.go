package agents_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// An answer that the output limit cuts off is continued: the model is asked for the rest, the stream and the stored
// conversation have one answer, and it is one step. // A12 H15
func TestACutAnswerOfAnAgentIsContinued(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	for name, c := range map[string]struct {
		turns     []Turn
		steps     int
		said      string
		last      string
		asksAgain int
	}{
		"cut_continued":  {[]Turn{CutAfter("The answer is"), CutAfter(" forty-"), Says("two.")}, 2, "user go|assistant The answer is forty-two.", "assistant The answer is forty-", 2},
		"cut_four_times": {[]Turn{CutAfter("one "), CutAfter("two "), CutAfter("three "), CutAfter("four"), Says("never")}, 1, "user go|assistant one two three four", "assistant one two three ", 3},
	} {
		t.Run(name, func(t *testing.T) {
			up := NewUpstream(t, Script(c.turns...))
			d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
			id := d.NewAgent(WithTools(tools))
			a := d.StreamAgent(id, fmt.Sprintf(`{"message":"go","max_steps":%d}`, c.steps))
			if got, want := Told(t, a.Body), Golden(t, name); got != want {
				t.Errorf("the stream is\n%swant\n%s", got, want)
			}
			asked := up.Requests()
			if len(asked) != c.asksAgain+1 {
				t.Fatalf("%d model calls", len(asked))
			}
			if got := asked[c.asksAgain].Prompt(t); !strings.HasPrefix(got, "user go|"+c.last+"|user Your answer was cut off") {
				t.Errorf("the last model call has %s", got)
			}
			start := AgentFrames(t, a.Body)[0]
			if got := d.Said(start["session_id"].(string)); got != c.said {
				t.Errorf("the session has %s", got)
			}
			shown := d.AsOwner("GET", "/api/agents/runs/"+start["run_id"].(string), "", 200)
			if shown["status"] != "completed" || shown["steps"] != 1.0 {
				t.Errorf("the run is %v", shown)
			}
		})
	}
}

// A call that was cut off is made whole after the continuation, and what follows sees the answer as one message. The
// other surfaces end at a cut answer. // A12 H15
func TestACallThatWasCutOffIsMadeAgain(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	half := CutAfter("I will ")
	half.Calls = []Call{Use("mcp__tools__echo", `{"n":`)}
	up := NewUpstream(t, Script(half, Asks(Use("mcp__tools__echo", `{"n":1}`)).Saying("look."), Says("Done."), CutAfter("Half")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(WithTools(tools))
	a := d.StreamAgent(id, `{"message":"go","max_steps":2}`)
	if got, want := Told(t, a.Body), Golden(t, "cut_in_a_call"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	if got := up.Requests()[2].Prompt(t); got != `user go|assistant I will look.|tool {"n":1}` {
		t.Errorf("the second step sees %s", got)
	}
	if s := d.Post(StreamedQuestion).Stream(t); s.Text != "Half" || strings.Join(s.Reasons, " ") != "length" {
		t.Errorf("chat answers %+v", s)
	}
	if got := len(up.Requests()); got != 4 {
		t.Errorf("%d model calls", got)
	}
}

func isWaiting(run map[string]any) bool { return run["status"] == "waiting" }

// The calls of one turn that only read run at the same time; the model gets their results in the order of its calls. // H15 C03
func TestAnAgentCallsToolsInParallel(t *testing.T) {
	NoLeaks(t)
	release := make(chan struct{})
	tools := NewMCP(t, map[string]Handler{"fast": Echo, "slow": func(ctx context.Context, arguments string) (string, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return arguments, nil
	}})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__slow", `{"n":1}`), Use("mcp__tools__fast", `{"n":2}`)), Says("Done.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	session, streamed := d.Begun(d.NewAgent(WithTools(tools, `"reads":["slow","fast"]`)), "")
	d.RunThat(session, func(run map[string]any) bool {
		calls := Elements(run["tool_calls"])
		return len(calls) == 2 && calls[1].(map[string]any)["result_preview"] != ""
	})
	close(release)
	d.Same("parallel_tools", (<-streamed).Body)
	if got := up.Requests()[1].Results(t); fmt.Sprint(got) != `[{"n":1} {"n":2}]` {
		t.Errorf("the model gets %v", got)
	}
}

// Calls that may write run one after the other: the second begins when the first has its result.
func TestAnAgentWritesInOrder(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`), Use("mcp__tools__echo", `{"n":2}`)), Says("Done.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	var order []string
	for _, f := range AgentFrames(t, d.StreamAgent(d.NewAgent(WithTools(tools)), `{"message":"go"}`).Body) {
		if id, is := f["call_id"].(string); is {
			order = append(order, fmt.Sprint(f["event"], " ", id))
		}
	}
	if want := []string{"tool_call 0.0", "tool_result 0.0", "tool_call 0.1", "tool_result 0.1"}; !slices.Equal(order, want) {
		t.Errorf("the calls began and ended as %q", order)
	}
}

// A call that waits is approved; nobody decides in time; the calls beside one that waits have run. // N04 D11 H15
func TestCallsOfAnAgentThatWait(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo, "gated": Echo, "free": Echo})
	for name, c := range map[string]struct {
		config string
		calls  []Call
		decide bool
	}{
		"approval_approved":  {`"require_approval":"always"`, []Call{Use("mcp__tools__echo", `{"n":1}`)}, true},
		"approval_timed_out": {`"require_approval":"always","approval_timeout":"1s"`, []Call{Use("mcp__tools__echo", `{"n":1}`)}, false},
		"gated_beside_free":  {`"require_approval":{"always":{"tool_names":["gated"]}}`, []Call{Use("mcp__tools__gated", `{"n":1}`), Use("mcp__tools__free", `{"n":2}`)}, true},
	} {
		up := NewUpstream(t, Script(Asks(c.calls...), Says("Done.")))
		d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
		session, streamed := d.Begun(d.NewAgent(WithTools(tools, c.config)), "")
		if c.decide {
			run := d.RunThat(session, isWaiting)
			d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 200)
		}
		d.Same(name, (<-streamed).Body)
	}
}

// A conversation that is too long is summarised before a step, or after the provider has refused it. Without a summary
// the run goes on until the provider refuses. // H15 I05
func TestTheSessionOfAnAgentIsCompacted(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	tooLong := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		fmt.Fprint(w, `{"error":{"message":"This model's maximum context length is 1000 tokens","type":"invalid_request_error","code":"context_length_exceeded"}}`)
	}
	for name, c := range map[string]struct {
		limit  string // of the second turn
		answer func(w http.ResponseWriter, n int, summary bool)
	}{
		"compaction": {`,"max_context_tokens":1000`, func(w http.ResponseWriter, _ int, summary bool) {
			if summary {
				Says("They talked.").Write(w)
				return
			}
			Says("Short now.").Write(w)
		}},
		"compaction_fails": {`,"max_context_tokens":1000`, func(w http.ResponseWriter, n int, summary bool) {
			switch {
			case summary:
				http.Error(w, `{"error":{"message":"no"}}`, 400)
			case n > 3:
				tooLong(w)
			default:
				Asks(Use("mcp__tools__echo", fmt.Sprintf(`{"n":%d}`, n))).Reading(5000).Write(w)
			}
		}},
		"reactive_compact": {"", func(w http.ResponseWriter, n int, summary bool) {
			switch {
			case summary:
				Says("They talked.").Write(w)
			case n == 1:
				tooLong(w)
			default:
				Says("Short now.").Write(w)
			}
		}},
	} {
		turns := 0
		up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, r Received) {
			if r.Number == 0 {
				Says(strings.Repeat("Once upon a time. ", 500)).Reading(5000).Write(w)
				return
			}
			summary := strings.Contains(string(r.Body), "Write a summary")
			if !summary {
				turns++
			}
			c.answer(w, turns, summary)
		})
		d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
		id := d.NewAgent(WithTools(tools))
		first := AgentFrames(t, d.StreamAgent(id, fmt.Sprintf(`{"message":%q}`, strings.Repeat("Tell me more. ", 500))).Body)[0]
		d.Same(name, d.StreamAgent(id, fmt.Sprintf(`{"message":"again","session_id":%q%s}`, first["session_id"], c.limit)).Body)
	}
}

// A model that fails ends the run with an error. // H15
func TestTheModelOfAnAgentFails(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		http.Error(w, `{"error":{"message":"broken"}}`, 400)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	d.Same("error_run", d.StreamAgent(d.NewAgent(WithTools(tools)), `{"message":"go"}`).Body)
}

// A model that is limited is called four times, and then the fallback model of the agent. // I08 H15
func TestTheFallbackModelOfAnAgent(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, r Received) {
		if r.Decode(t).Model == "m" {
			Refuses(429)(w, nil, r)
			return
		}
		Says("From the other.").Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	d.Same("model_fallback", d.StreamAgent(d.NewAgent(`,"settings":{"fallback_model":"g-2"}`+WithTools(tools)), `{"message":"go"}`).Body)
	if got := len(up.Requests()); got != 5 {
		t.Errorf("%d model calls", got)
	}
}

// A run that is cancelled, or whose time is up, ends in its tool, which is told. // B22 H15 N04
func TestARunOfAnAgentEndsInATool(t *testing.T) {
	NoLeaks(t)
	for name, members := range map[string]string{"cancelled": "", "timeout": `,"timeout_seconds":5`} {
		called, told := make(chan struct{}), make(chan struct{})
		tools := NewMCP(t, map[string]Handler{"slow": func(ctx context.Context, _ string) (string, error) {
			close(called)
			<-ctx.Done()
			close(told)
			return "", ctx.Err()
		}})
		turn := Asks(Use("mcp__tools__slow", `{"n":1}`))
		if name == "cancelled" {
			turn.Text = "Looking."
		}
		up := NewUpstream(t, Script(turn))
		d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
		session, streamed := d.Begun(d.NewAgent(WithTools(tools)), members)
		Wait(t, called, "the call")
		if name == "cancelled" {
			run := d.RunThat(session, func(map[string]any) bool { return true })
			d.AsOwner("POST", "/api/agents/runs/"+run+"/cancel", "", 202)
		}
		d.Same(name, (<-streamed).Body)
		Wait(t, told, "the end of the tool's context")
		if s := d.AsOwner("GET", "/api/sessions/"+session, "", 200); s["status"] != "idle" {
			t.Errorf("%s: the session is %v", name, s)
		}
	}
}

// A client that leaves in the middle of a text leaves a run with what was said; one that leaves in a tool ends the
// context of the tool. // G18 N04 H15
func TestWhatAClientThatLeavesLeavesBehind(t *testing.T) {
	NoLeaks(t)
	called, told := make(chan struct{}), make(chan struct{})
	tools := NewMCP(t, map[string]Handler{"slow": func(ctx context.Context, _ string) (string, error) {
		close(called)
		<-ctx.Done()
		close(told)
		return "", ctx.Err()
	}})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if got.Number > 0 {
			Asks(Use("mcp__tools__slow", `{"n":1}`)).Write(w)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		Frame(w, `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"Once upon"}}]}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(WithTools(tools))
	leaves := func(when func(*bufio.Reader)) string {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		resp, err := d.Client.Do(d.Request(ctx, "POST", "/api/agents/"+id+"/run/stream", strings.NewReader(`{"message":"go"}`)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		when(bufio.NewReader(resp.Body))
		return resp.Header.Get("Turnpike-Run-Id")
	}
	ended := func(run string) map[string]any {
		for {
			if shown := d.AsOwner("GET", "/api/agents/runs/"+run, "", 200); shown["status"] != "running" {
				return shown
			}
		}
	}
	first := leaves(func(r *bufio.Reader) {
		for line := ""; !strings.Contains(line, "Once upon"); line, _ = r.ReadString('\n') {
		}
	})
	shown := ended(first)
	if shown["status"] != "cancelled" || shown["content"] != "Once upon" {
		t.Errorf("the run of a client that has left is %v", shown)
	}
	d.Same("disconnect", d.Send("GET", "/api/agents/runs/"+first+"/events", nil).Body)
	if got := d.Said(shown["session_id"].(string)); !strings.HasPrefix(got, "user go") {
		t.Errorf("the session has %s", got)
	}
	second := leaves(func(*bufio.Reader) { Wait(t, called, "the call") })
	Wait(t, told, "the end of the tool's context")
	if shown := ended(second); shown["status"] != "cancelled" {
		t.Errorf("the run of a client that has left a tool is %v", shown)
	}
}

// Without tools the tokens are chunks, which together are the content. Numbers rise strictly, and deltas have none, the
// second time too. // G11 G12 G13
func TestTheTokensOfAnAgentWithoutTools(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, word := range []string{"one", " two", " three"} {
			Frame(w, `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":`+Quote(word)+`}}]}`)
		}
		Frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
		Frame(w, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`)
		Frame(w, "[DONE]")
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	a := d.StreamAgent(d.NewAgent(""), `{"message":"go"}`)
	all := AgentFrames(t, a.Body)
	run := all[0]["run_id"].(string)
	var text strings.Builder
	last := 0.0
	for _, f := range all {
		seq, numbered := f["seq"].(float64)
		_, dated := f["ts"]
		switch chunk := f["event"] == "chunk"; {
		case chunk:
			text.WriteString(f["content"].(string))
			fallthrough
		case f["event"] == "reasoning_delta":
			if numbered || dated {
				t.Errorf("a delta has a number or a date: %v", f)
			}
		case !dated || seq <= last:
			t.Errorf("after %v comes %v", last, f)
		default:
			last = seq
		}
	}
	if end := all[len(all)-1]; text.String() != "one two three" || end["content"] != text.String() {
		t.Errorf("the chunks are %q, and the end is %v", text.String(), end)
	}
	d.Same("no_tools", a.Body)
	d.Same("no_tools", d.Send("GET", "/api/agents/runs/"+run+"/events", nil).Body)
}

// The messages of a session name run, time and calls as the events do, and the calls of one answer are one message. // H15
func TestTheMessagesOfASessionNameTheirCalls(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	twice := Asks(Use("mcp__tools__echo", `{"n":1}`), Use("mcp__tools__echo", `{"n":2}`)).Saying("Looking.")
	up := NewUpstream(t, Script(twice, Asks(Use("mcp__tools__echo", `{"n":3}`)), Says("Done.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(WithTools(tools))
	initial := `{"initial_messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Hello."}]}`
	session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", initial, 201)["id"].(string)
	frames := AgentFrames(t, d.StreamAgent(id, fmt.Sprintf(`{"message":"go","session_id":%q}`, session)).Body)
	run := frames[0]["run_id"].(string)
	var calls []string // as the events name them
	for _, f := range frames {
		if f["type"] == "tool_result" || f["type"] == "tool_completed" {
			calls = append(calls, fmt.Sprint(f["call_id"]))
		}
	}
	var got []string
	for i, m := range Elements(d.AsOwner("GET", "/api/sessions/"+session+"/messages", "", 200)["messages"]) {
		m := m.(map[string]any)
		line := fmt.Sprint(m["role"], " ", m["content"])
		for _, c := range Elements(m["tool_calls"]) {
			line += fmt.Sprint(" +", c.(map[string]any)["id"])
		}
		if of, is := m["tool_call_id"]; is {
			line = fmt.Sprint("tool of ", of)
		}
		at, err := time.Parse(time.RFC3339, fmt.Sprint(m["created_at"]))
		if err != nil || time.Since(at) > time.Minute || (m["run_id"] == run) != (i > 1) {
			t.Errorf("message %d is %v", i, m)
		}
		got = append(got, line)
	}
	want := "user hi|assistant Hello.|user go|assistant Looking.|assistant  +0.0 +0.1|tool of 0.0|tool of 0.1|" +
		"assistant  +1.0|tool of 1.0|assistant Done."
	if strings.Join(got, "|") != want {
		t.Errorf("the messages are %s", strings.Join(got, "|"))
	}
	if strings.Join(calls, " ") != "0.0 0.1 1.0" {
		t.Errorf("the events name the calls %v", calls)
	}
}
