package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// structuredScript is sumScript without words before the answer, which is JSON
// of the format that the request asks for.
func structuredScript(ask chatRequest) turn {
	next := sumScript(ask)
	switch {
	case len(next.Calls) > 0:
		next.Text = ""
	case !strings.Contains(string(ask.ResponseFormat), `"answer"`):
		return unexpected("a response_format called answer", string(ask.ResponseFormat))
	case next.Status == 0:
		next.Text = fmt.Sprintf(`{"sum":%d,"words":"zweiundvierzig ✓"}`, numbersIn(next.Text)[0])
	}
	return next
}

// testHelpers shows that the SDK's helpers accept what the gateway sends while
// its loop runs, and while it relays.
func testHelpers(t *testing.T, s *site) { // P12
	plain := s.newRig(t, sumScript)
	structured := s.newRig(t, structuredScript)
	t.Run("stream", func(t *testing.T) {
		got := plain.help(t, "stream", true)
		wantEqual(t, "final text", sumAnswer, finalText(got.Text, true))
		wantEqual(t, "finish reasons", []string{"stop"}, got.FinishReasons)
		wantEqual(t, "usage", &usage{75, 25, 100}, got.Usage)
		for _, event := range []string{"connect", "content.done", "finalContent", "end"} {
			wantEqual(t, "events "+event, 1, got.Events[event])
		}
	})
	t.Run("stream with progress and an approval", func(t *testing.T) { // G08 H03
		r := s.newRigWith(t, sumScript, func(r *rig) []object {
			return []object{{"name": "everything", "url": r.proxy.URL + "/mcp", "enabled": true, "require_approval": object{"always": object{"tool_names": []string{"get-sum"}}}}}
		})
		question := r.ask("gpt-test", sumQuestion, true)
		question.Helper = "stream with progress"
		for _, header := range []map[string]string{{"turnpike-extensions": "progress"}, nil} {
			if question.Header = header; header == nil { // a member of the agentic runtime asks for it
				question.Request["max_tool_rounds"] = 9
			}
			got := answer(t, r.script("helpers.mjs"), question)
			wantEqual(t, "final text", sumAnswer, finalText(got.Text, true))
			wantEqual(t, "events of both streams", map[string]int{
				"agentic_tool_call_progress calling": 4, "agentic_tool_call_progress complete": 4, "agentic_tool_approval_required": 2,
			}, got.Events)
		}
	})
	for _, helper := range []string{"parse", "stream of structured output"} {
		t.Run(helper, func(t *testing.T) {
			got := structured.help(t, helper, helper != "parse")
			wantEqual(t, "parsed answer", &parsedAnswer{42, "zweiundvierzig ✓"}, got.Parsed)
			wantEqual(t, "finish reasons", []string{"stop"}, got.FinishReasons)
			structured.wantToolCalls(t, "echo", `{"message":"20 22"}`, "get-sum", `{"a":20,"b":22}`)
		})
	}
	t.Run("stream, relayed", func(t *testing.T) {
		question := plain.ask("gpt-test", sumQuestion, true)
		question.Key, question.Helper = plainKey, "stream"
		wantEqual(t, "text", "Nobody offered me echo and get-sum.", answer(t, plain.script("helpers.mjs"), question).Text)
	})
}

func (r *rig) help(t *testing.T, helper string, stream bool) outcome {
	t.Helper()
	question := r.ask("gpt-test", sumQuestion, stream)
	question.Helper = helper
	return answer(t, r.script("helpers.mjs"), question)
}
