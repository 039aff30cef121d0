package app_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// withTools returns the members of an agent that has the tools of an MCP server.
func withTools(s *mcpServer, config ...string) string {
	more := ""
	if len(config) > 0 {
		more = `,"config":{` + config[0] + `}`
	}
	return fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q%s}]`, s.URL+"/mcp", more)
}

// prompt returns the messages of a request to the model, as "role content|role content".
func (r received) prompt(t *testing.T) string {
	t.Helper()
	var said []string
	for _, m := range r.decode(t).Messages {
		said = append(said, m.Role+" "+m.Content)
	}
	return strings.Join(said, "|")
}

// said returns the messages of a session.
func (d documented) said(session string) string {
	d.t.Helper()
	var said []string
	for _, m := range elements(d.asOwner("GET", "/api/sessions/"+session+"/messages", "", 200)["messages"]) {
		m := m.(map[string]any)
		said = append(said, fmt.Sprint(m["role"], " ", m["content"]))
	}
	return strings.Join(said, "|")
}

// An answer that the output limit cuts off is continued: the model is asked for the rest, the stream and the stored
// conversation have one answer, and it is one step. // A12 H15
func TestACutAnswerOfAnAgentIsContinued(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	for name, c := range map[string]struct {
		turns     []turn
		steps     int
		said      string
		last      string
		asksAgain int
	}{
		"cut_continued":  {[]turn{cutAfter("The answer is"), cutAfter(" forty-"), says("two.")}, 2, "user go|assistant The answer is forty-two.", "assistant The answer is forty-", 2},
		"cut_four_times": {[]turn{cutAfter("one "), cutAfter("two "), cutAfter("three "), cutAfter("four"), says("never")}, 1, "user go|assistant one two three four", "assistant one two three ", 3},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, script(c.turns...))
			d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
			id := d.newAgent(withTools(tools))
			a := d.streamAgent(id, fmt.Sprintf(`{"message":"go","max_steps":%d}`, c.steps))
			if got, want := told(t, a.body), golden(t, name); got != want {
				t.Errorf("the stream is\n%swant\n%s", got, want)
			}
			asked := up.requests()
			if len(asked) != c.asksAgain+1 {
				t.Fatalf("%d model calls", len(asked))
			}
			if got := asked[c.asksAgain].prompt(t); !strings.HasPrefix(got, "user go|"+c.last+"|user Your answer was cut off") {
				t.Errorf("the last model call has %s", got)
			}
			start := agentFrames(t, a.body)[0]
			if got := d.said(start["session_id"].(string)); got != c.said {
				t.Errorf("the session has %s", got)
			}
			shown := d.asOwner("GET", "/api/agents/runs/"+start["run_id"].(string), "", 200)
			if shown["status"] != "completed" || shown["steps"] != 1.0 {
				t.Errorf("the run is %v", shown)
			}
		})
	}
}

// A call that was cut off is made whole after the continuation, and what follows sees the answer as one message. The
// other surfaces end at a cut answer. // A12 H15
func TestACallThatWasCutOffIsMadeAgain(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	half := cutAfter("I will ")
	half.calls = []call{{"mcp__tools__echo", `{"n":`}}
	up := newUpstream(t, script(half, asks(call{"mcp__tools__echo", `{"n":1}`}).saying("look."), says("Done."), cutAfter("Half")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(withTools(tools))
	a := d.streamAgent(id, `{"message":"go","max_steps":2}`)
	if got, want := told(t, a.body), golden(t, "cut_in_a_call"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	if got := up.requests()[2].prompt(t); got != `user go|assistant I will look.|tool {"n":1}` {
		t.Errorf("the second step sees %s", got)
	}
	if s := d.post(streamedQuestion).stream(t); s.text != "Half" || strings.Join(s.reasons, " ") != "length" {
		t.Errorf("chat answers %+v", s)
	}
	if got := len(up.requests()); got != 4 {
		t.Errorf("%d model calls", got)
	}
}

// same fails the test if a stream is not that of a golden file. Texts of errors that a provider has written are not
// compared.
func (d documented) same(name string, stream []byte) {
	d.t.Helper()
	got, want := told(d.t, stream), golden(d.t, name)
	if strings.Contains(want, `"error":"ERROR"`) {
		got = regexp.MustCompile(`"error":"[^"]+"`).ReplaceAllString(got, `"error":"ERROR"`)
		got = regexp.MustCompile(`"code":"[^"]+"`).ReplaceAllString(got, `"code":"CODE"`)
	}
	if got != want {
		d.t.Errorf("%s: the stream is\n%swant\n%s", name, got, want)
	}
}

// begun starts a run in a session of its own, and returns the session and the stream, when it has ended.
func (d documented) begun(agent, members string) (session string, streamed <-chan answer) {
	d.t.Helper()
	session = d.asOwner("POST", "/api/agents/"+agent+"/sessions", "", 201)["id"].(string)
	out, body := make(chan answer, 1), fmt.Sprintf(`{"message":"go","session_id":%q%s}`, session, members)
	go func() {
		out <- d.send("POST", "/api/agents/"+agent+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}()
	return session, out
}

// runThat waits for the run of a session in which something holds, and returns its id.
func (d documented) runThat(session string, holds func(run map[string]any) bool) string {
	d.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if id, is := d.asOwner("GET", "/api/sessions/"+session, "", 200)["last_run_id"].(string); is {
			if holds(d.asOwner("GET", "/api/agents/runs/"+id, "", 200)) {
				return id
			}
		}
	}
	d.t.Fatalf("the run of the session %s did not come so far", session)
	return ""
}

func isWaiting(run map[string]any) bool { return run["status"] == "waiting" }

// The calls of one turn that only read run at the same time; the model gets their results in the order of its calls. // H15 C03
func TestAnAgentCallsToolsInParallel(t *testing.T) {
	noLeaks(t)
	release := make(chan struct{})
	tools := newMCP(t, map[string]handler{"fast": echo, "slow": func(ctx context.Context, arguments string) (string, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return arguments, nil
	}})
	up := newUpstream(t, script(asks(call{"mcp__tools__slow", `{"n":1}`}, call{"mcp__tools__fast", `{"n":2}`}), says("Done.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	session, streamed := d.begun(d.newAgent(withTools(tools, `"reads":["slow","fast"]`)), "")
	d.runThat(session, func(run map[string]any) bool {
		calls := elements(run["tool_calls"])
		return len(calls) == 2 && calls[1].(map[string]any)["result_preview"] != ""
	})
	close(release)
	d.same("parallel_tools", (<-streamed).body)
	if got := up.requests()[1].results(t); fmt.Sprint(got) != `[{"n":1} {"n":2}]` {
		t.Errorf("the model gets %v", got)
	}
}

// Calls that may write run one after the other: the second begins when the first has its result.
func TestAnAgentWritesInOrder(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"mcp__tools__echo", `{"n":1}`}, call{"mcp__tools__echo", `{"n":2}`}), says("Done.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	var order []string
	for _, f := range agentFrames(t, d.streamAgent(d.newAgent(withTools(tools)), `{"message":"go"}`).body) {
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
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo, "gated": echo, "free": echo})
	for name, c := range map[string]struct {
		config string
		calls  []call
		decide bool
	}{
		"approval_approved":  {`"require_approval":"always"`, []call{{"mcp__tools__echo", `{"n":1}`}}, true},
		"approval_timed_out": {`"require_approval":"always","approval_timeout":"1s"`, []call{{"mcp__tools__echo", `{"n":1}`}}, false},
		"gated_beside_free":  {`"require_approval":{"always":{"tool_names":["gated"]}}`, []call{{"mcp__tools__gated", `{"n":1}`}, {"mcp__tools__free", `{"n":2}`}}, true},
	} {
		up := newUpstream(t, script(asks(c.calls...), says("Done.")))
		d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
		session, streamed := d.begun(d.newAgent(withTools(tools, c.config)), "")
		if c.decide {
			run := d.runThat(session, isWaiting)
			d.asOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 200)
		}
		d.same(name, (<-streamed).body)
	}
}

// A conversation that is too long is summarised before a step, or after the provider has refused it. Without a summary
// the run goes on until the provider refuses. // H15 I05
func TestTheSessionOfAnAgentIsCompacted(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
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
				says("They talked.").write(w)
				return
			}
			says("Short now.").write(w)
		}},
		"compaction_fails": {`,"max_context_tokens":1000`, func(w http.ResponseWriter, n int, summary bool) {
			switch {
			case summary:
				http.Error(w, `{"error":{"message":"no"}}`, 400)
			case n > 3:
				tooLong(w)
			default:
				asks(call{"mcp__tools__echo", fmt.Sprintf(`{"n":%d}`, n)}).reading(5000).write(w)
			}
		}},
		"reactive_compact": {"", func(w http.ResponseWriter, n int, summary bool) {
			switch {
			case summary:
				says("They talked.").write(w)
			case n == 1:
				tooLong(w)
			default:
				says("Short now.").write(w)
			}
		}},
	} {
		turns := 0
		up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, r received) {
			if r.number == 0 {
				says(strings.Repeat("Once upon a time. ", 500)).reading(5000).write(w)
				return
			}
			summary := strings.Contains(string(r.body), "Write a summary")
			if !summary {
				turns++
			}
			c.answer(w, turns, summary)
		})
		d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
		id := d.newAgent(withTools(tools))
		first := agentFrames(t, d.streamAgent(id, fmt.Sprintf(`{"message":%q}`, strings.Repeat("Tell me more. ", 500))).body)[0]
		d.same(name, d.streamAgent(id, fmt.Sprintf(`{"message":"again","session_id":%q%s}`, first["session_id"], c.limit)).body)
	}
}

// A model that fails ends the run with an error. // H15
func TestTheModelOfAnAgentFails(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
		http.Error(w, `{"error":{"message":"broken"}}`, 400)
	})
	tools := newMCP(t, map[string]handler{"echo": echo})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	d.same("error_run", d.streamAgent(d.newAgent(withTools(tools)), `{"message":"go"}`).body)
}

// A model that is limited is called four times, and then the fallback model of the agent. // I08 H15
func TestTheFallbackModelOfAnAgent(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, r received) {
		if r.decode(t).Model == "m" {
			refuses(429)(w, nil, r)
			return
		}
		says("From the other.").write(w)
	})
	tools := newMCP(t, map[string]handler{"echo": echo})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	d.same("model_fallback", d.streamAgent(d.newAgent(`,"settings":{"fallback_model":"g-2"}`+withTools(tools)), `{"message":"go"}`).body)
	if got := len(up.requests()); got != 5 {
		t.Errorf("%d model calls", got)
	}
}

// A run that is cancelled, or whose time is up, ends in its tool, which is told. // B22 H15 N04
func TestARunOfAnAgentEndsInATool(t *testing.T) {
	noLeaks(t)
	for name, members := range map[string]string{"cancelled": "", "timeout": `,"timeout_seconds":5`} {
		called, told := make(chan struct{}), make(chan struct{})
		tools := newMCP(t, map[string]handler{"slow": func(ctx context.Context, _ string) (string, error) {
			close(called)
			<-ctx.Done()
			close(told)
			return "", ctx.Err()
		}})
		turn := asks(call{"mcp__tools__slow", `{"n":1}`})
		if name == "cancelled" {
			turn.text = "Looking."
		}
		up := newUpstream(t, script(turn))
		d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
		session, streamed := d.begun(d.newAgent(withTools(tools)), members)
		wait(t, called, "the call")
		if name == "cancelled" {
			run := d.runThat(session, func(map[string]any) bool { return true })
			d.asOwner("POST", "/api/agents/runs/"+run+"/cancel", "", 202)
		}
		d.same(name, (<-streamed).body)
		wait(t, told, "the end of the tool's context")
		if s := d.asOwner("GET", "/api/sessions/"+session, "", 200); s["status"] != "idle" {
			t.Errorf("%s: the session is %v", name, s)
		}
	}
}

// A client that leaves in the middle of a text leaves a run with what was said; one that leaves in a tool ends the
// context of the tool. // G18 N04 H15
func TestWhatAClientThatLeavesLeavesBehind(t *testing.T) {
	noLeaks(t)
	called, told := make(chan struct{}), make(chan struct{})
	tools := newMCP(t, map[string]handler{"slow": func(ctx context.Context, _ string) (string, error) {
		close(called)
		<-ctx.Done()
		close(told)
		return "", ctx.Err()
	}})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, got received) {
		if got.number > 0 {
			asks(call{"mcp__tools__slow", `{"n":1}`}).write(w)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		frame(w, `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"Once upon"}}]}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(withTools(tools))
	leaves := func(when func(*bufio.Reader)) string {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		resp, err := d.client.Do(d.request(ctx, "POST", "/api/agents/"+id+"/run/stream", strings.NewReader(`{"message":"go"}`)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		when(bufio.NewReader(resp.Body))
		return resp.Header.Get("Turnpike-Run-Id")
	}
	ended := func(run string) map[string]any {
		for {
			if shown := d.asOwner("GET", "/api/agents/runs/"+run, "", 200); shown["status"] != "running" {
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
	d.same("disconnect", d.send("GET", "/api/agents/runs/"+first+"/events", nil).body)
	if got := d.said(shown["session_id"].(string)); !strings.HasPrefix(got, "user go") {
		t.Errorf("the session has %s", got)
	}
	second := leaves(func(*bufio.Reader) { wait(t, called, "the call") })
	wait(t, told, "the end of the tool's context")
	if shown := ended(second); shown["status"] != "cancelled" {
		t.Errorf("the run of a client that has left a tool is %v", shown)
	}
}

// Without tools the tokens are chunks, which together are the content. Numbers rise strictly, and deltas have none, the
// second time too. // G11 G12 G13
func TestTheTokensOfAnAgentWithoutTools(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, word := range []string{"one", " two", " three"} {
			frame(w, `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":`+quote(word)+`}}]}`)
		}
		frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
		frame(w, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`)
		frame(w, "[DONE]")
	})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	a := d.streamAgent(d.newAgent(""), `{"message":"go"}`)
	all := agentFrames(t, a.body)
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
	d.same("no_tools", a.body)
	d.same("no_tools", d.send("GET", "/api/agents/runs/"+run+"/events", nil).body)
}

// The messages of a session name run, time and calls as the events do, and the calls of one answer are one message. // H15
func TestTheMessagesOfASessionNameTheirCalls(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	twice := asks(call{"mcp__tools__echo", `{"n":1}`}, call{"mcp__tools__echo", `{"n":2}`}).saying("Looking.")
	up := newUpstream(t, script(twice, asks(call{"mcp__tools__echo", `{"n":3}`}), says("Done.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(withTools(tools))
	initial := `{"initial_messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Hello."}]}`
	session := d.asOwner("POST", "/api/agents/"+id+"/sessions", initial, 201)["id"].(string)
	frames := agentFrames(t, d.streamAgent(id, fmt.Sprintf(`{"message":"go","session_id":%q}`, session)).body)
	run := frames[0]["run_id"].(string)
	var calls []string // as the events name them
	for _, f := range frames {
		if f["type"] == "tool_result" || f["type"] == "tool_completed" {
			calls = append(calls, fmt.Sprint(f["call_id"]))
		}
	}
	var got []string
	for i, m := range elements(d.asOwner("GET", "/api/sessions/"+session+"/messages", "", 200)["messages"]) {
		m := m.(map[string]any)
		line := fmt.Sprint(m["role"], " ", m["content"])
		for _, c := range elements(m["tool_calls"]) {
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
