package conformance

import (
	"slices"
	"testing"
)

// testAbort lets the client leave while a tool or the model is at work. The
// next request shows that nobody else was hurt.
func testAbort(t *testing.T, s *site) { // O01
	model := newGate(t)
	r := s.newRig(t, func(ask chatRequest) turn {
		if ask.Model == "gpt-slow" {
			return turn{Text: "Once upon a time", Hold: model}
		}
		return sumScript(ask)
	})
	for _, c := range r.clients {
		t.Run("a stream in mid-tool in "+c.name(), func(t *testing.T) {
			tool := r.proxy.hold(t, "echo")
			r.leave(t, c, r.ask("gpt-test", sumQuestion, true), tool)
			tool.Open()
			got := answer(t, c, r.ask("gpt-test", sumQuestion, false))
			wantEqual(t, "text of the next request", sumAnswer, got.Text)
		})
		t.Run("a JSON request in mid-tool in "+c.name(), func(t *testing.T) {
			tool := r.proxy.hold(t, "echo")
			r.leave(t, c, r.ask("gpt-test", sumQuestion, false), tool)
		})
	}
	t.Run("a stream in mid-text", func(t *testing.T) {
		r.leave(t, r.clients[0], r.ask("gpt-slow", "Tell me a story.", true), model)
	})
}

// leave sends question, aborts it when the work that held holds has begun, and
// waits for the gateway to hang up on that work.
func (r *rig) leave(t *testing.T, c client, question ask, held *gate) {
	t.Helper()
	e := c.start(t, question)
	await(t, "the held request", held.arrived)
	if question.Stream {
		await(t, "text before the abort", e.firstText)
	}
	e.abort()
	await(t, "the gateway to leave the held request", held.gone)
	got := e.wait(t)
	if got.Error == nil || !slices.Contains([]string{"aborted", "APIUserAbortError"}, got.Error.Class) {
		t.Errorf("the client saw %+v, want its own abort", got.Error)
	}
}
