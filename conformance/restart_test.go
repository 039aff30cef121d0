package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// forgivingScript is mixedScript, which also answers a conversation that lacks
// the hidden part.
func forgivingScript(ask chatRequest) turn {
	if results := ask.results(); len(results) == 1 {
		return turn{Text: "All that I see is " + results[0] + "."}
	}
	return mixedScript(ask)
}

// testRestart ends the gateway while the client executes its part of a mixed
// turn, and starts it again.
func testRestart(t *testing.T, s *site) { // A08
	r := s.newRig(t, forgivingScript)
	eachWay(t, []client{r.script("runtools.mjs")}, func(t *testing.T, c client, stream bool) {
		question := r.ask("gpt-test", "Greet me and tell me the time in Kyoto.", stream)
		question.Pause = true
		e := c.start(t, question)
		await(t, "the client's function", e.paused)
		r.wantToolCalls(t, "echo", `{"message":"good morning"}`)
		r.program.restart()
		e.goOn()
		got := e.wait(t)
		if got.Error != nil {
			t.Fatalf("runTools raised %+v", *got.Error)
		}
		wantEqual(t, "answer", mixedAnswer, got.Text)
		wantEqual(t, "finish reasons", []string{"tool_calls", "stop"}, got.FinishReasons)
		r.wantToolCalls(t) // echo is not repeated
		seen := r.upstream.take()
		if len(seen) != 2 {
			t.Fatalf("the upstream saw %d requests, want 2", len(seen))
		}
		wantHiddenTranscript(t, seen[1].Chat.Messages)
	})
	for _, c := range r.clients {
		t.Run("other keys in "+c.name(), func(t *testing.T) { r.testOtherKeys(t, c) })
	}
}

// testOtherKeys returns the ids of a mixed turn with keys that they were not
// given to, and then with the right one.
func (r *rig) testOtherKeys(t *testing.T, c client) {
	question := r.ask("gpt-test", "Greet me and tell me the time in Kyoto.", false)
	question.Request["tools"] = []object{clientTool(localTimeTool)}
	first := answer(t, c, question)
	own := append(question.Request["messages"].([]object), returned(first, "12:34 in Kyoto")...)
	question.Request["messages"] = own
	r.upstream.take()
	r.program.restart()
	for _, stranger := range []struct{ name, key string }{
		{"another key of the org", otherKey}, {"a key of another org", freshKey},
	} {
		t.Run(stranger.name+" gets nothing", func(t *testing.T) {
			question.Key = stranger.key
			wantEqual(t, "answer", "All that I see is 12:34 in Kyoto.", answer(t, c, question).Text)
			seen := r.upstream.take()
			if len(seen) != 1 {
				t.Fatalf("the upstream saw %d requests, want 1", len(seen))
			}
			wantEqual(t, "messages at the upstream", outlineOf(decodedAs[[]message](t, marshal(own))), outlineOf(seen[0].Chat.Messages))
			for _, hidden := range []string{"good morning", "call_echo", "call_time"} {
				if strings.Contains(string(seen[0].Body), hidden) {
					t.Errorf("the upstream saw %q in %s", hidden, seen[0].Body)
				}
			}
		})
	}
	t.Run("the key itself gets all", func(t *testing.T) {
		question.Key = devKey
		wantEqual(t, "answer", mixedAnswer, answer(t, c, question).Text)
		wantHiddenTranscript(t, r.upstream.take()[0].Chat.Messages)
	})
}

// outlineOf says of each message its role, ids and text.
func outlineOf(messages []message) []string {
	var lines []string
	for _, m := range messages {
		line := fmt.Sprintf("%s %s: %s", m.Role, m.ToolCallID, m.Content)
		for _, c := range m.ToolCalls {
			line += fmt.Sprintf(" [%s %s(%s)]", c.ID, c.Function.Name, c.Function.Arguments)
		}
		lines = append(lines, line)
	}
	return lines
}
