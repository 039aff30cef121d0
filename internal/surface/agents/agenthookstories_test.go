package agents_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

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
			NoLeaks(t)
			arguments := `{"n":1}`
			if c.answer == "" { // more than a rule reads
				arguments = fmt.Sprintf(`{"text":%q}`, strings.Repeat("a", 10_001))
			}
			ended := make(chan struct{})
			receiver := NewHookServer(t, func(w http.ResponseWriter, _ map[string]any) {
				switch c.answer {
				case "break":
					panic(http.ErrAbortHandler)
				case "hang":
					<-ended
				default:
					fmt.Fprint(w, c.answer)
				}
			})
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			scripted := []Turn{Asks(Use("mcp__tools__echo", arguments)), Says("Done.")}
			if c.event == "PreResponse" {
				scripted = []Turn{Says("The password is tiger.")}
			}
			up := NewUpstream(t, Script(scripted...))
			d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
			kind, config := "http", fmt.Sprintf(`"url":%q%s`, receiver.URL, c.config)
			if c.answer == "" {
				kind, config = "rule", c.config
			}
			id := d.NewAgent(WithTools(tools) + fmt.Sprintf(`,"hooks":[{"event":%q,"type":%q,"config":{%s}}]`, c.event, kind, config))
			a := d.StreamAgent(id, `{"message":"go"}`)
			close(ended)
			d.WantEvents(name, c.events, a.Body)
			run := AgentFrames(t, a.Body)[0]["run_id"].(string)
			d.WantEvents(name, c.events, d.Send("GET", "/api/agents/runs/"+run+"/events", nil).Body)
		})
	}
}

// A call that is decided before it is asked for does not wait: its stream has no approval_requested. // H04 H10 N04
func TestTheStreamOfACallThatIsDecidedEarly(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	scripted := Script(Asks(Use("mcp__tools__echo", `{"n":1}`)), Says("Done."))
	asked, decided := make(chan struct{}), make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if got.Number == 0 {
			close(asked)
			Wait(t, decided, "the decision")
		}
		scripted(w, r, got)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	session, streamed := d.Begun(d.NewAgent(WithTools(tools, `"require_approval":"always"`)), "")
	Wait(t, asked, "the model call")
	run := d.AsOwner("GET", "/api/sessions/"+session, "", 200)["last_run_id"].(string)
	d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true,"early":true}`, 200)
	close(decided)
	d.WantEvents("approval_decided_early", "start step_started tool_call tool_result step_completed step_started content_delta step_completed chunk complete", (<-streamed).Body)
}
