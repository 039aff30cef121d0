package conformance

import (
	"strings"
	"testing"
)

// testTwoToolRounds changes nothing in the client but base URL and key. // A14
func testTwoToolRounds(t *testing.T, s *site) {
	r := s.newRig(t, sumScript)
	eachWay(t, r.clients, func(t *testing.T, c client, stream bool) {
		got := answer(t, c, r.ask("gpt-test", sumQuestion, stream))

		// Stream and JSON agree on the final text, the tool list and usage. // A06
		wantEqual(t, "final text", sumAnswer, finalText(got.Text, stream))
		wantEqual(t, "tool calls shown to the client", 0, len(got.ToolCalls))
		wantEqual(t, "usage summed over three rounds", &usage{75, 25, 100}, got.Usage) // B23
		wantEqual(t, "finish reasons", []string{"stop"}, got.FinishReasons)            // G05
		if stream && !strings.HasPrefix(got.Text, sumOpening) {                        // G04
			t.Errorf("the stream lacks the text of round 0:\n%s", got.Text)
		}
		r.wantToolCalls(t, "echo", `{"message":"20 22"}`, "get-sum", `{"a":20,"b":22}`)
		wantEqual(t, "rounds at the upstream", 3, len(r.upstream.take()))
	})
}

// finalText is the last round's text: all of a JSON answer, and of a stream what
// follows the last blank line.
func finalText(text string, stream bool) string {
	if !stream {
		return text
	}
	if _, after, found := cutLast(text, "\n\n"); found {
		return after
	}
	return text
}

func cutLast(text, separator string) (before, after string, found bool) {
	if at := strings.LastIndex(text, separator); at >= 0 {
		return text[:at], text[at+len(separator):], true
	}
	return text, "", false
}

// testLiveText holds the tool of round 0 until the client has text of round 0.
func testLiveText(t *testing.T, s *site) { // G04
	r := s.newRig(t, sumScript)
	for _, c := range r.clients {
		t.Run(c.name(), func(t *testing.T) {
			held := r.proxy.hold(t, "echo")
			e := c.start(t, r.ask("gpt-test", sumQuestion, true))
			await(t, "the tool call of round 0", held.arrived)
			first := await(t, "text of round 0 while its tool is held", e.firstText)
			held.Open()
			if !strings.HasPrefix(sumOpening, first) {
				t.Errorf("first text = %q, want a beginning of %q", first, sumOpening)
			}
			got := e.wait(t)
			if got.Error != nil {
				t.Fatalf("%s raised %+v", c.name(), *got.Error)
			}
			wantEqual(t, "final text", sumAnswer, finalText(got.Text, true))
		})
	}
}
