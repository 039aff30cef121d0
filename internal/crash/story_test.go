//go:build unix

package crash_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// errand is the conversation of the matrix: a turn that makes a call of each
// class, one that makes another call which must not be repeated, and an answer
// that says what the model was told of each.
func errand(transcript []message) turn {
	rounds, told, err := follow(transcript)
	switch {
	case err != nil:
		return turn{text: []string{"The transcript is wrong: " + err.Error()}}
	case rounds == 0:
		return turn{text: []string{"Let me ", "look."}, calls: []call{
			{"c1", "look", `{"n":7}`}, {"c2", "order", `{"n":7}`}, {"c3", "send", `{"n":7}`},
		}}
	case rounds == 1:
		return turn{text: []string{"One ", "more."}, calls: []call{{"c4", "send", `{"n":8}`}}}
	}
	return turn{text: []string{"Done: ", strings.Join(told, ", "), "."}}
}

// newErrand makes a world for the errand in which something waits until release
// is called: the tool send, or the model in its second turn, after its first
// word. Nothing does where held is empty.
func newErrand(t *testing.T, held, runtime string) (w *world, release func()) {
	t.Helper()
	return newErrandIn(t, newWorld, held, runtime)
}

// newErrandIn is newErrand in a world that in makes.
func newErrandIn(t *testing.T, in func(*testing.T, options) *world, held, runtime string) (w *world, release func()) {
	t.Helper()
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	if held == "" {
		release()
	}
	play := errand
	tools := []turnpiketest.Tool{{Name: "look", Result: "seen"}, {Name: "order", Result: "ordered"}, {Name: "send", Result: "sent"}}
	switch held {
	case "tool":
		tools[2].Gate = gate
	case "model":
		play = func(transcript []message) turn {
			said := errand(transcript)
			if len(said.calls) == 1 {
				said.hold = gate
			}
			return said
		}
	}
	w = in(t, options{script: play, tools: tools, runtime: runtime})
	w.held = held
	return w, release
}

// awaitHeld waits until the errand waits for what is held.
func (w *world) awaitHeld() {
	w.Helper()
	const calls, turns = 3, 1 // before the tool send has answered
	eventually(w.T, "the errand waits", func() bool {
		c, t := len(w.tools.Calls()), len(w.provider.transcripts())
		return t > turns || t == turns && c == calls && w.held == "tool"
	})
}

// follow reads a transcript: how many turns made calls, and what came of each
// call. Every call must have one result, in the order of the calls.
func follow(transcript []message) (rounds int, told []string, err error) {
	var open []call
	for _, m := range transcript {
		switch {
		case m.Role == "tool":
			if len(open) == 0 || open[0].id != m.ToolCallID {
				return 0, nil, fmt.Errorf("a result of %s, where those of %v are missing", m.ToolCallID, open)
			}
			told = append(told, open[0].name+" "+word(m.Content))
			open = open[1:]
		case len(open) > 0:
			return 0, nil, fmt.Errorf("no result of %v", open)
		}
		for _, c := range m.ToolCalls {
			open = append(open, call{c.ID, c.Function.Name, c.Function.Arguments})
		}
		if len(m.ToolCalls) > 0 {
			rounds++
		}
	}
	if len(open) > 0 {
		return 0, nil, fmt.Errorf("no result of %v", open)
	}
	return rounds, told, nil
}

// word says in a word what the model was told.
func word(result string) string {
	if strings.HasPrefix(result, "outcome_unknown: ") {
		return "unknown"
	}
	return result
}
