package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// recallScript asks for echo with the latest question, and then says all results that it was told.
func recallScript(ask chatRequest) turn {
	last := ask.Messages[len(ask.Messages)-1]
	if last.Role == "user" {
		return turn{
			Calls: []seenCall{{ID: fmt.Sprintf("call_%d", len(ask.Messages)), Name: "echo", Arguments: fmt.Sprintf(`{"message":%q}`, string(last.Content))}},
			Usage: tokens(1, 1),
		}
	}
	return turn{Text: strings.Join(ask.results(), ", "), Usage: tokens(1, 1)}
}

// testChatSession is a session of five turns whose client resends only visible messages: the model sees the results of the
// tools of all turns, each once.
func testChatSession(t *testing.T, s *site) { // J04
	r := s.newRig(t, recallScript)
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %t", stream), func(t *testing.T) {
			question := r.ask("gpt-test", "", stream)
			delete(question.Request, "messages")
			question.Request["session_id"] = fmt.Sprintf("trip-%t", stream)
			got := answer(t, r.script("chatsession.mjs"), question)
			wantEqual(t, "the last answer", "Echo: one, Echo: two, Echo: three, Echo: four, Echo: five", got.Text)
		})
	}
}
