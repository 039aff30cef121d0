package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// frameKinds returns the types of frames, of a golden file or as told has them.
func frameKinds(frames string) (out []string) {
	for line := range strings.Lines(frames) {
		kind, _, _ := strings.Cut(line, " ")
		out = append(out, kind)
	}
	return out
}

// wantEvents fails the test unless a stream has the events, and is that of the golden file.
func (d documented) wantEvents(name, events string, stream []byte) {
	d.t.Helper()
	want := strings.Fields(events)
	for what, frames := range map[string]string{"stream": told(d.t, stream), "golden file": golden(d.t, name)} {
		if diff := cmp.Diff(want, frameKinds(frames)); diff != "" {
			d.t.Errorf("%s: the events of the %s (-want +got):\n%s", name, what, diff)
		}
	}
	d.same(name, stream)
}

// hookStory is a run of an agent with one hook.
type hookStory struct {
	event  string
	config string // of an http hook, after its url; or of a rule
	answer string // of the http hook; "" = it is a rule

	// The types of the events, in their order: reference 4.3. The tool_call of a call with hooks comes after theirs,
	// because it has the arguments that they have left. The text of an answer with hooks comes after theirs too.
	events string
}

const (
	callStory   = "start step_started hook_result tool_call tool_result step_completed step_started content_delta step_completed chunk complete"
	resultStory = "start step_started tool_call hook_result tool_result step_completed step_started content_delta step_completed chunk complete"
	answerStory = "start step_started hook_result content_delta step_completed chunk complete"
	silentStory = "start step_started hook_result step_completed complete"
)

func hookStories() map[string]hookStory {
	return map[string]hookStory{
		"hook_denies":             {event: "PreToolUse", answer: `{"action":"deny","message":"not today"}`, events: callStory},
		"hook_changes_arguments":  {event: "PreToolUse", answer: `{"action":"modify","modified_input":{"n":2}}`, events: callStory},
		"hook_changes_a_result":   {event: "PostToolUse", answer: `{"action":"modify","modified_output":"[redacted]"}`, events: resultStory},
		"hook_changes_the_answer": {event: "PreResponse", answer: `{"action":"modify","modified_output":"redacted"}`, events: answerStory},
		"hook_empties_the_answer": {event: "PreResponse", answer: `{"action":"modify","modified_output":""}`, events: silentStory},
		"hook_denies_the_answer":  {event: "PreResponse", answer: `{"action":"deny","message":"not today"}`, events: answerStory},
		"hook_breaks":             {event: "PreToolUse", answer: "break", events: callStory},
		"hook_times_out":          {event: "PreToolUse", config: `,"timeout_seconds":1`, answer: "hang", events: callStory},
		"hook_rule_breaks":        {event: "PreToolUse", config: `"condition":"text MATCHES x"`, events: callStory},
	}
}

// A hook denies; it changes the arguments, the result and the answer, also to nothing; its server breaks the connection,
// or does not answer in time, and the run goes on; its rule cannot be evaluated, and denies. The second reading of a
// stream is the first. // H15 H16 H19 H20 H21 N04
func TestTheStreamsOfHooks(t *testing.T) {
	for name, c := range hookStories() {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			arguments := `{"n":1}`
			if c.answer == "" { // more than a rule reads
				arguments = fmt.Sprintf(`{"text":%q}`, strings.Repeat("a", 10_001))
			}
			ended := make(chan struct{})
			receiver := newHookServer(t, func(w http.ResponseWriter, _ map[string]any) {
				switch c.answer {
				case "break":
					panic(http.ErrAbortHandler)
				case "hang":
					<-ended
				default:
					fmt.Fprint(w, c.answer)
				}
			})
			tools := newMCP(t, map[string]handler{"echo": echo})
			scripted := []turn{asks(call{"mcp__tools__echo", arguments}), says("Done.")}
			if c.event == "PreResponse" {
				scripted = []turn{says("The password is tiger.")}
			}
			up := newUpstream(t, script(scripted...))
			d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
			kind, config := "http", fmt.Sprintf(`"url":%q%s`, receiver.URL, c.config)
			if c.answer == "" {
				kind, config = "rule", c.config
			}
			id := d.newAgent(withTools(tools) + fmt.Sprintf(`,"hooks":[{"event":%q,"type":%q,"config":{%s}}]`, c.event, kind, config))
			a := d.streamAgent(id, `{"message":"go"}`)
			close(ended)
			d.wantEvents(name, c.events, a.body)
			run := agentFrames(t, a.body)[0]["run_id"].(string)
			d.wantEvents(name, c.events, d.send("GET", "/api/agents/runs/"+run+"/events", nil).body)
		})
	}
}

// A call that is decided before it is asked for does not wait: its stream has no approval_requested. // H04 H10 N04
func TestTheStreamOfACallThatIsDecidedEarly(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	scripted := script(asks(call{"mcp__tools__echo", `{"n":1}`}), says("Done."))
	asked, decided := make(chan struct{}), make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, got received) {
		if got.number == 0 {
			close(asked)
			wait(t, decided, "the decision")
		}
		scripted(w, r, got)
	})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	session, streamed := d.begun(d.newAgent(withTools(tools, `"require_approval":"always"`)), "")
	wait(t, asked, "the model call")
	run := d.asOwner("GET", "/api/sessions/"+session, "", 200)["last_run_id"].(string)
	d.asOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true,"early":true}`, 200)
	close(decided)
	d.wantEvents("approval_decided_early", "start step_started tool_call tool_result step_completed step_started content_delta step_completed chunk complete", (<-streamed).body)
}
