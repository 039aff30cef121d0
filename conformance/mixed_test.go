package conformance

import "testing"

// testMixedTurn plays the client's part of a mixed turn by hand.
func testMixedTurn(t *testing.T, s *site) { // A08
	r := s.newRig(t, mixedScript)
	eachWay(t, r.clients, func(t *testing.T, c client, stream bool) {
		question := r.ask("gpt-test", "Greet me and tell me the time in Kyoto.", stream)
		question.Request["tools"] = []object{clientTool(localTimeTool)}
		first := answer(t, c, question)
		wantEqual(t, "finish reasons", []string{"tool_calls"}, first.FinishReasons)
		if len(first.ToolCalls) != 1 || first.ToolCalls[0].Name != localTimeTool || first.ToolCalls[0].ID == "" {
			t.Fatalf("the client got %+v, want its own call only", first.ToolCalls)
		}
		wantEqual(t, "arguments", `{"place":"Kyoto"}`, first.ToolCalls[0].Arguments)
		wantEqual(t, "requests at the upstream so far", 1, len(r.upstream.take()))
		r.wantToolCalls(t, "echo", `{"message":"good morning"}`)

		question.Request["messages"] = append(question.Request["messages"].([]object), returned(first, "12:34 in Kyoto")...)
		second := answer(t, c, question)
		wantEqual(t, "answer", mixedAnswer, second.Text)
		wantEqual(t, "finish reasons", []string{"stop"}, second.FinishReasons)
		seen := r.upstream.take()
		if len(seen) != 1 {
			t.Fatalf("the upstream saw %d requests, want 1", len(seen))
		}
		wantHiddenTranscript(t, seen[0].Chat.Messages)
		r.wantToolCalls(t) // echo is not repeated
	})
}

// returned is what a client appends to its messages: the answer that it got, and
// the results of the calls in it, in their order.
func returned(got outcome, results ...string) []object {
	var calls, answers []object
	for i, call := range got.ToolCalls {
		function := object{"name": call.Name, "arguments": call.Arguments}
		calls = append(calls, object{"id": call.ID, "type": "function", "function": function})
		answers = append(answers, object{"role": "tool", "tool_call_id": call.ID, "content": results[i]})
	}
	assistant := object{"role": "assistant", "content": got.Text, "tool_calls": calls}
	return append([]object{assistant}, answers...)
}

// wantHiddenTranscript checks that the provider saw the whole conversation, each
// call with one result under its id.
func wantHiddenTranscript(t *testing.T, messages []message) {
	t.Helper()
	if len(messages) != 4 || len(messages[1].ToolCalls) != 2 {
		t.Fatalf("messages at the upstream = %+v, want user, assistant with two calls, and two results", messages)
	}
	var roles []string
	for _, m := range messages {
		roles = append(roles, m.Role)
	}
	wantEqual(t, "roles", []string{"user", "assistant", "tool", "tool"}, roles)
	calls := messages[1].ToolCalls
	wantEqual(t, "assistant's text", content("Both at once."), messages[1].Content)
	wantEqual(t, "first call", "echo", calls[0].Function.Name)
	wantEqual(t, "second call", localTimeTool, calls[1].Function.Name)
	results := map[string]content{}
	for _, m := range messages[2:] {
		results[m.ToolCallID] = m.Content
	}
	wantEqual(t, "results by call", map[string]content{
		calls[0].ID: "Echo: good morning", calls[1].ID: "12:34 in Kyoto",
	}, results)
}

// testRunTools lets the SDK's runTools play the client's part.
func testRunTools(t *testing.T, s *site) { // A08, P12
	r := s.newRig(t, mixedScript)
	eachWay(t, []client{r.script("runtools.mjs")}, func(t *testing.T, c client, stream bool) {
		question := r.ask("gpt-test", "Greet me and tell me the time in Kyoto.", stream)
		got := answer(t, c, question)
		wantEqual(t, "answer", mixedAnswer, got.Text)
		wantEqual(t, "finish reasons", []string{"tool_calls", "stop"}, got.FinishReasons)
		wantEqual(t, "calls of the client's function", []seenCall{{Name: localTimeTool, Arguments: `{"place":"Kyoto"}`}}, got.ToolCalls)
		r.wantToolCalls(t, "echo", `{"message":"good morning"}`)
		seen := r.upstream.take()
		if len(seen) != 2 {
			t.Fatalf("the upstream saw %d requests, want 2", len(seen))
		}
		wantHiddenTranscript(t, seen[1].Chat.Messages)
	})
}
