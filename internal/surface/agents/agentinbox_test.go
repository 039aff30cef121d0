package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func runOf(t *testing.T, a Answer) string {
	t.Helper()
	all := AgentFrames(t, a.Body)
	if len(all) == 0 {
		t.Fatalf("no frames: %d %s", a.Status, a.Body)
	}
	return all[0]["run_id"].(string)
}

// busySession is a session whose run executes a tool until the test lets it go on.
type busySession struct {
	Documented
	up      *Upstream
	id      string
	session string
	working chan bool
	resume  chan bool
	first   chan Answer
}

func newBusySession(t *testing.T, turns ...Turn) *busySession {
	b := &busySession{working: make(chan bool, 1), resume: make(chan bool)}
	tools := NewMCP(t, map[string]Handler{"work": func(ctx context.Context, _ string) (string, error) {
		b.working <- true
		select {
		case <-b.resume:
			return "worked", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}})
	b.up = NewUpstream(t, Script(append([]Turn{Asks(Use("mcp__tools__work", `{}`))}, turns...)...))
	b.Documented = Manage(MustRun(t, Site{Upstream: b.up.URL}.Yaml()))
	b.id = b.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q}]`, tools.URL+"/mcp"))
	b.session = b.AsOwner("POST", "/api/agents/"+b.id+"/sessions", "", 201)["id"].(string)
	b.first = b.SendLater(b.id, b.session, "one", "")
	<-b.working
	return b
}

// A message that steers is in the next model call of the run, once, after the result of the tool call; a repeated
// request is the same message, and the answer to it is the stream of the run. // P25
func TestAMessageSteersARunOfASession(t *testing.T) {
	NoLeaks(t)
	b := newBusySession(t, Says("Done."))
	steered := b.SendLater(b.id, b.session, "be quick", `,"when_busy":"steer"`, "Idempotency-Key", "s")
	b.Inputs(b.session, 2)
	again := b.SendLater(b.id, b.session, "be quick", `,"when_busy":"steer"`, "Idempotency-Key", "s")
	b.resume <- true
	first, second, third := <-b.first, <-steered, <-again
	if Told(t, first.Body) != Told(t, second.Body) || Told(t, third.Body) != Told(t, first.Body) || runOf(t, first) != runOf(t, second) {
		t.Errorf("the streams differ:\n%s\n%s\n%s", first.Body, second.Body, third.Body)
	}
	if got, want := Told(t, first.Body), Golden(t, "steer"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	if got := strings.Join(Prompt(t, b.up.Requests()[1]), "|"); got != "user one|assistant |tool worked|user be quick" || len(b.up.Requests()) != 2 {
		t.Errorf("the second of %d model calls saw %s", len(b.up.Requests()), got)
	}
	if got := b.Inputs(b.session, 2); !slices.Equal(got, []string{"message processed", "steer processed"}) {
		t.Errorf("the inputs are %v", got)
	}
	b.StreamAgent(b.id, fmt.Sprintf(`{"message":"more","session_id":%q,"when_busy":"steer"}`, b.session))
	if got := strings.Join(Prompt(t, b.up.Requests()[2]), "|"); got != "user one|assistant |tool worked|user be quick|assistant Done.|user more" {
		t.Errorf("the next turn saw %s", got)
	}
}

// Messages that are enqueued are the next turns, in their order; each sees the turns before it. An
// ordinary message is refused meanwhile, one that waits can be cancelled, and a client that leaves takes its message back.
// P25
func TestMessagesAreEnqueuedInASession(t *testing.T) {
	NoLeaks(t)
	b := newBusySession(t, Says("A1."), Says("A2."), Says("A4."))
	two := b.SendLater(b.id, b.session, "two", `,"when_busy":"enqueue"`)
	b.Inputs(b.session, 2)
	three := b.SendLater(b.id, b.session, "three", `,"when_busy":"enqueue","detached":true`)
	b.Inputs(b.session, 3)
	four := b.SendLater(b.id, b.session, "four", `,"when_busy":"enqueue"`, "Idempotency-Key", "k")
	if got := b.Inputs(b.session, 4); !slices.Equal(got, []string{"message processed", "message waits", "message waits", "message waits"}) {
		t.Errorf("the inputs are %v", got)
	}
	b.AsOwner("POST", "/api/agents/"+b.id+"/run", fmt.Sprintf(`{"message":"no","session_id":%q}`, b.session), 409)
	if s := b.AsOwner("GET", "/api/sessions/"+b.session, "", 200); s["status"] != "running" || s["run_count"] != 4.0 {
		t.Errorf("the session is %v", s)
	}
	var waits []string
	for _, v := range Elements(b.AsOwner("GET", "/api/sessions/"+b.session+"/runs", "", 200)["runs"]) {
		waits = append(waits, v.(map[string]any)["run_id"].(string))
	}
	b.AsOwner("POST", "/api/agents/runs/"+waits[1]+"/cancel", "", 202)
	if last := AgentFrames(t, (<-three).Body); last[len(last)-1]["status"] != "cancelled" {
		t.Errorf("the cancelled turn ended with %v", last)
	}
	b.resume <- true
	<-b.first
	if got, want := Told(t, (<-two).Body), Golden(t, "enqueue"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	<-four
	if got := strings.Join(Prompt(t, b.up.Requests()[3]), "|"); got != "user one|assistant |tool worked|assistant A1.|user two|assistant A2.|user four" {
		t.Errorf("the last turn saw %s", got)
	}
	if got := b.Inputs(b.session, 4); slices.ContainsFunc(got, func(s string) bool { return s != "message processed" }) {
		t.Errorf("the inputs are %v", got)
	}
}

// A message that interrupts ends the run and is the next turn. // P25
func TestAMessageInterruptsARunOfASession(t *testing.T) {
	NoLeaks(t)
	b := newBusySession(t, Says("New."))
	next := b.SendLater(b.id, b.session, "stop", `,"when_busy":"interrupt"`)
	if got, want := Told(t, (<-b.first).Body), Golden(t, "interrupt"); got != want {
		t.Errorf("the stream of the interrupted run is\n%swant\n%s", got, want)
	}
	all := AgentFrames(t, (<-next).Body)
	if last := all[len(all)-1]; last["status"] != "completed" || last["content"] != "New." {
		t.Errorf("the next run ended with %v", last)
	}
	if got := b.Inputs(b.session, 3); !slices.Equal(got, []string{"message processed", "interrupt processed", "message processed"}) {
		t.Errorf("the inputs are %v", got)
	}
}

// A run that waits for a person is steered, and its model sees the message after the decision; a session that waits
// keeps what is enqueued over a restart. // P25
func TestASessionThatWaitsTakesMessages(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`)), Says("First."), Says("Second.")))
	data, yaml := NewData(t), Site{Upstream: up.URL}.Yaml()
	d := Manage(MustRunIn(t, data, yaml, Environment()))
	id := d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp"))
	session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
	first := d.SendLater(id, session, "one", `,"detached":true`)
	var run string
	for run == "" {
		if s := d.AsOwner("GET", "/api/sessions/"+session, "", 200); s["status"] == "waiting" {
			run = s["last_run_id"].(string)
		}
	}
	steered := d.SendLater(id, session, "and fast", `,"when_busy":"steer"`)
	d.Inputs(session, 2)
	queued := d.SendLater(id, session, "two", `,"when_busy":"enqueue","detached":true`)
	d.Inputs(session, 3)
	if s := d.AsOwner("GET", "/api/sessions/"+session, "", 200); s["status"] != "waiting" || s["last_run_id"] != run {
		t.Errorf("the session is %v", s)
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []chan Answer{first, steered, queued} {
		<-c
	}
	d = Manage(MustRunIn(t, data, yaml, Environment()))
	d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 200)
	for {
		s := d.AsOwner("GET", "/api/sessions/"+session, "", 200)
		if s["last_run_id"] != run && s["status"] == "idle" {
			break
		}
	}
	var saw [][]string
	for _, r := range up.Requests() {
		saw = append(saw, Prompt(t, r))
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
	NoLeaks(t)
	b := newBusySession(t, Says("Never."))
	next := b.SendLater(b.id, b.session, "two", `,"when_busy":"enqueue"`)
	b.Inputs(b.session, 2)
	b.AsOwner("DELETE", "/api/sessions/"+b.session, "", 200)
	<-b.first
	<-next
	if n := len(b.up.Requests()); n != 1 {
		t.Errorf("%d model calls were made", n)
	}
	if a := b.Send("GET", "/v1/runs?state=queued", nil, "Authorization", "Bearer owner-key"); a.Status == http.StatusOK && strings.Contains(string(a.Body), "run_") {
		t.Errorf("runs are queued: %s", a.Body)
	}
}
