package conformance

import (
	"strings"
	"testing"
)

// parallelScript asks for the client's clock at two places in one turn, and for
// the gateway's echo between them if the model is gpt-mixed.
func parallelScript(ask chatRequest) turn {
	calls := []seenCall{
		{ID: "call_kyoto", Name: localTimeTool, Arguments: `{"place":"Kyoto"}`},
		{ID: "call_echo", Name: "echo", Arguments: `{"message":"between"}`},
		{ID: "call_lisbon", Name: localTimeTool, Arguments: `{"place":"Lisbon"}`},
	}
	if ask.Model != "gpt-mixed" {
		calls = []seenCall{calls[0], calls[2]}
	}
	results := ask.results()
	switch len(results) {
	case 0:
		return turn{Calls: calls}
	case len(calls):
		return turn{Text: strings.Join(results, " / ")}
	default:
		return unexpected("a result of each call", strings.Join(results, " / "))
	}
}

// parallelCase is a model and the ids of the calls that it asks for.
type parallelCase struct {
	name, model string
	ids         []string
	gateway     []string // calls at server-everything; names and arguments
}

// testParallelClientTools has two calls for the client in one turn.
func testParallelClientTools(t *testing.T, s *site) { // A08, P12
	r := s.newRig(t, parallelScript)
	for _, tt := range []parallelCase{
		{"the client's only", "gpt-test", []string{"call_kyoto", "call_lisbon"}, nil},
		{"a gateway's between", "gpt-mixed", []string{"call_kyoto", "call_echo", "call_lisbon"}, []string{"echo", `{"message":"between"}`}},
	} {
		t.Run(tt.name+", by hand", func(t *testing.T) {
			eachWay(t, r.clients, func(t *testing.T, c client, stream bool) { tt.byHand(t, r, c, stream) })
		})
		t.Run(tt.name+", runTools", func(t *testing.T) {
			eachWay(t, []client{r.script("runtools.mjs")}, func(t *testing.T, c client, stream bool) {
				got := answer(t, c, r.ask(tt.model, parallelQuestion, stream))
				wantEqual(t, "calls of the client's function", parallelCalls(), withoutIDs(got.ToolCalls))
				r.wantToolCalls(t, tt.gateway...)
				seen := r.upstream.take()
				if len(seen) != 2 {
					t.Fatalf("the upstream saw %d requests, want 2", len(seen))
				}
				tt.wantReturned(t, seen[1], got.Text)
			})
		})
	}
}

const parallelQuestion = "What time is it in Kyoto and in Lisbon?"

// parallelCalls are the calls that are the client's.
func parallelCalls() []seenCall {
	return []seenCall{{Name: localTimeTool, Arguments: `{"place":"Kyoto"}`}, {Name: localTimeTool, Arguments: `{"place":"Lisbon"}`}}
}

// byHand plays the client's part.
func (tt parallelCase) byHand(t *testing.T, r *rig, c client, stream bool) {
	question := r.ask(tt.model, parallelQuestion, stream)
	question.Request["tools"] = []object{clientTool(localTimeTool)}
	first := answer(t, c, question)
	wantEqual(t, "finish reasons", []string{"tool_calls"}, first.FinishReasons)
	wantEqual(t, "calls", parallelCalls(), withoutIDs(first.ToolCalls))
	if t.Failed() {
		return
	}
	r.wantToolCalls(t, tt.gateway...)
	r.upstream.take()
	results := returned(first, "12:34 in Kyoto", "04:34 in Lisbon")
	question.Request["messages"] = append(question.Request["messages"].([]object), results...)
	got := answer(t, c, question)
	seen := r.upstream.take()
	if len(seen) != 1 {
		t.Fatalf("the upstream saw %d requests, want 1", len(seen))
	}
	tt.wantReturned(t, seen[0], got.Text)
}

// wantReturned checks the request that brought the results: it has the calls in
// their order, and one result of each.
func (tt parallelCase) wantReturned(t *testing.T, seen recorded, text string) {
	t.Helper()
	var called, answered, said []string
	for _, m := range seen.Chat.Messages {
		for _, c := range m.ToolCalls {
			called = append(called, c.ID)
		}
		if m.Role == "tool" {
			answered, said = append(answered, m.ToolCallID), append(said, string(m.Content))
		}
	}
	wantEqual(t, "ids of the calls", tt.ids, called)
	wantEqual(t, "ids of the results", tt.ids, answered)
	wantEqual(t, "answer", strings.Join(said, " / "), text)
	for _, place := range []string{"Kyoto", "Lisbon"} {
		if !strings.Contains(text, " in "+place) {
			t.Errorf("answer %q lacks the time in %s", text, place)
		}
	}
}

func withoutIDs(calls []seenCall) []seenCall {
	var plain []seenCall
	for _, c := range calls {
		plain = append(plain, seenCall{Name: c.Name, Arguments: c.Arguments})
	}
	return plain
}
