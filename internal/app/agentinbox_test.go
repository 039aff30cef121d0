package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// prompt returns the messages of a request to the model, as "role text".
func prompt(t *testing.T, got received) (out []string) {
	t.Helper()
	for _, m := range got.decode(t).Messages {
		out = append(out, m.Role+" "+m.Content)
	}
	return out
}

// sendLater streams an agent in the background; the answer comes over the channel.
func (d documented) sendLater(id, session, message, members string, header ...string) chan answer {
	out := make(chan answer, 1)
	body := fmt.Sprintf(`{"message":%q,"session_id":%q%s}`, message, session, members)
	go func() {
		defer close(out) // after a failure the test goes on, and ends
		out <- d.send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), append([]string{"Authorization", "Bearer owner-key"}, header...)...)
	}()
	return out
}

// inputs waits until the session has n inputs and returns them as "kind processed|waits".
func (d documented) inputs(session string, n int) (out []string) {
	d.t.Helper()
	for ; len(out) < n; pollPause() {
		out = nil
		for _, v := range elements(d.asOwner("GET", "/api/sessions/"+session+"/inputs", "", 200)["inputs"]) {
			in := v.(map[string]any)
			state := "processed"
			if in["processed_at"] == nil {
				state = "waits"
			}
			out = append(out, in["kind"].(string)+" "+state)
		}
	}
	return out
}

func runOf(t *testing.T, a answer) string {
	t.Helper()
	all := agentFrames(t, a.body)
	if len(all) == 0 {
		t.Fatalf("no frames: %d %s", a.status, a.body)
	}
	return all[0]["run_id"].(string)
}

// busySession is a session whose run executes a tool until the test lets it go on.
type busySession struct {
	documented
	up      *upstream
	id      string
	session string
	working chan bool
	resume  chan bool
	first   chan answer
}

func newBusySession(t *testing.T, turns ...turn) *busySession {
	b := &busySession{working: make(chan bool, 1), resume: make(chan bool)}
	tools := newMCP(t, map[string]handler{"work": func(ctx context.Context, _ string) (string, error) {
		b.working <- true
		select {
		case <-b.resume:
			return "worked", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}})
	b.up = newUpstream(t, script(append([]turn{asks(call{"mcp__tools__work", `{}`})}, turns...)...))
	b.documented = manage(MustRun(t, site{upstream: b.up.URL}.yaml()))
	b.id = b.newAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q}]`, tools.URL+"/mcp"))
	b.session = b.asOwner("POST", "/api/agents/"+b.id+"/sessions", "", 201)["id"].(string)
	b.first = b.sendLater(b.id, b.session, "one", "")
	<-b.working
	return b
}

// A message that steers is in the next model call of the run, once, after the result of the tool call; a repeated
// request is the same message, and the answer to it is the stream of the run. // P25
func TestAMessageSteersARunOfASession(t *testing.T) {
	noLeaks(t)
	b := newBusySession(t, says("Done."))
	steered := b.sendLater(b.id, b.session, "be quick", `,"when_busy":"steer"`, "Idempotency-Key", "s")
	b.inputs(b.session, 2)
	again := b.sendLater(b.id, b.session, "be quick", `,"when_busy":"steer"`, "Idempotency-Key", "s")
	b.resume <- true
	first, second, third := <-b.first, <-steered, <-again
	if told(t, first.body) != told(t, second.body) || told(t, third.body) != told(t, first.body) || runOf(t, first) != runOf(t, second) {
		t.Errorf("the streams differ:\n%s\n%s\n%s", first.body, second.body, third.body)
	}
	if got, want := told(t, first.body), golden(t, "steer"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	if got := strings.Join(prompt(t, b.up.requests()[1]), "|"); got != "user one|assistant |tool worked|user be quick" || len(b.up.requests()) != 2 {
		t.Errorf("the second of %d model calls saw %s", len(b.up.requests()), got)
	}
	if got := b.inputs(b.session, 2); !slices.Equal(got, []string{"message processed", "steer processed"}) {
		t.Errorf("the inputs are %v", got)
	}
	b.streamAgent(b.id, fmt.Sprintf(`{"message":"more","session_id":%q,"when_busy":"steer"}`, b.session))
	if got := strings.Join(prompt(t, b.up.requests()[2]), "|"); got != "user one|assistant |tool worked|user be quick|assistant Done.|user more" {
		t.Errorf("the next turn saw %s", got)
	}
}

// Messages that are enqueued are the next turns, in their order; each sees the turns before it. An
// ordinary message is refused meanwhile, one that waits can be cancelled, and a client that leaves takes its message back.
// P25
func TestMessagesAreEnqueuedInASession(t *testing.T) {
	noLeaks(t)
	b := newBusySession(t, says("A1."), says("A2."), says("A4."))
	two := b.sendLater(b.id, b.session, "two", `,"when_busy":"enqueue"`)
	b.inputs(b.session, 2)
	three := b.sendLater(b.id, b.session, "three", `,"when_busy":"enqueue","detached":true`)
	b.inputs(b.session, 3)
	four := b.sendLater(b.id, b.session, "four", `,"when_busy":"enqueue"`, "Idempotency-Key", "k")
	if got := b.inputs(b.session, 4); !slices.Equal(got, []string{"message processed", "message waits", "message waits", "message waits"}) {
		t.Errorf("the inputs are %v", got)
	}
	b.asOwner("POST", "/api/agents/"+b.id+"/run", fmt.Sprintf(`{"message":"no","session_id":%q}`, b.session), 409)
	if s := b.asOwner("GET", "/api/sessions/"+b.session, "", 200); s["status"] != "running" || s["run_count"] != 4.0 {
		t.Errorf("the session is %v", s)
	}
	var waits []string
	for _, v := range elements(b.asOwner("GET", "/api/sessions/"+b.session+"/runs", "", 200)["runs"]) {
		waits = append(waits, v.(map[string]any)["run_id"].(string))
	}
	b.asOwner("POST", "/api/agents/runs/"+waits[1]+"/cancel", "", 202)
	if last := agentFrames(t, (<-three).body); last[len(last)-1]["status"] != "cancelled" {
		t.Errorf("the cancelled turn ended with %v", last)
	}
	b.resume <- true
	<-b.first
	if got, want := told(t, (<-two).body), golden(t, "enqueue"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	<-four
	if got := strings.Join(prompt(t, b.up.requests()[3]), "|"); got != "user one|assistant |tool worked|assistant A1.|user two|assistant A2.|user four" {
		t.Errorf("the last turn saw %s", got)
	}
	if got := b.inputs(b.session, 4); slices.ContainsFunc(got, func(s string) bool { return s != "message processed" }) {
		t.Errorf("the inputs are %v", got)
	}
}

// A message that interrupts ends the run and is the next turn. // P25
func TestAMessageInterruptsARunOfASession(t *testing.T) {
	noLeaks(t)
	b := newBusySession(t, says("New."))
	next := b.sendLater(b.id, b.session, "stop", `,"when_busy":"interrupt"`)
	if got, want := told(t, (<-b.first).body), golden(t, "interrupt"); got != want {
		t.Errorf("the stream of the interrupted run is\n%swant\n%s", got, want)
	}
	all := agentFrames(t, (<-next).body)
	if last := all[len(all)-1]; last["status"] != "completed" || last["content"] != "New." {
		t.Errorf("the next run ended with %v", last)
	}
	if got := b.inputs(b.session, 3); !slices.Equal(got, []string{"message processed", "interrupt processed", "message processed"}) {
		t.Errorf("the inputs are %v", got)
	}
}

// A run that waits for a person is steered, and its model sees the message after the decision; a session that waits
// keeps what is enqueued over a restart. // P25
func TestASessionThatWaitsTakesMessages(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"mcp__tools__echo", `{"n":1}`}), says("First."), says("Second.")))
	data, yaml := t.TempDir(), site{upstream: up.URL}.yaml()
	d := manage(mustRunIn(t, data, yaml, environment()))
	id := d.newAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp"))
	session := d.asOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
	first := d.sendLater(id, session, "one", `,"detached":true`)
	var run string
	for run == "" {
		if s := d.asOwner("GET", "/api/sessions/"+session, "", 200); s["status"] == "waiting" {
			run = s["last_run_id"].(string)
		}
	}
	steered := d.sendLater(id, session, "and fast", `,"when_busy":"steer"`)
	d.inputs(session, 2)
	queued := d.sendLater(id, session, "two", `,"when_busy":"enqueue","detached":true`)
	d.inputs(session, 3)
	if s := d.asOwner("GET", "/api/sessions/"+session, "", 200); s["status"] != "waiting" || s["last_run_id"] != run {
		t.Errorf("the session is %v", s)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []chan answer{first, steered, queued} {
		<-c
	}
	d = manage(mustRunIn(t, data, yaml, environment()))
	d.asOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 200)
	for {
		s := d.asOwner("GET", "/api/sessions/"+session, "", 200)
		if s["last_run_id"] != run && s["status"] == "idle" {
			break
		}
	}
	var saw [][]string
	for _, r := range up.requests() {
		saw = append(saw, prompt(t, r))
	}
	text, err := json.Marshal(saw)
	if err != nil {
		t.Fatal(err)
	}
	want := `[["user one"],["user one","assistant ","tool {\"n\":1}","user and fast"],["user one","assistant ","tool {\"n\":1}","user and fast","assistant First.","user two"]]`
	if string(text) != want {
		t.Errorf("the model saw %s, want %s", text, want)
	}
}

// A session that is deleted ends what waits in it. // P25
func TestADeletedSessionEndsWhatWaitsInIt(t *testing.T) {
	noLeaks(t)
	b := newBusySession(t, says("Never."))
	next := b.sendLater(b.id, b.session, "two", `,"when_busy":"enqueue"`)
	b.inputs(b.session, 2)
	b.asOwner("DELETE", "/api/sessions/"+b.session, "", 200)
	<-b.first
	<-next
	if n := len(b.up.requests()); n != 1 {
		t.Errorf("%d model calls were made", n)
	}
	if a := b.send("GET", "/v1/runs?state=queued", nil, "Authorization", "Bearer owner-key"); a.status == http.StatusOK && strings.Contains(string(a.body), "run_") {
		t.Errorf("runs are queued: %s", a.body)
	}
}
