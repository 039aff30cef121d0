package loop

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/model"
)

// searches is a call of the tool web_search of the server builtin.
func searches(b *CallPrepared) { b.Server, b.Tool = "builtin", "web_search" }

func uses(most int) func(*Accepted) {
	return func(b *Accepted) {
		b.MaxUses = append(b.MaxUses, ToolUses{"builtin", "web_search", most}, ToolUses{"other", "web_search", 1})
	}
}

// Calls of a tool beyond max_uses are answered without being executed, in the turn and in later ones. // P38
func TestCallsBeyondMaxUsesAreAnswered(t *testing.T) {
	begin := func(change ...func(*Accepted)) []Body {
		return []Body{accepted(append(change, uses(2))...), catalogued(), asked(0, 1), turn(0, model.StopCalls, "web_search", "web_search", "web_search", "f")}
	}
	three := with(begin(), prepared("0.0", searches), prepared("0.1", searches), prepared("0.2", searches), prepared("0.3"))
	answer := AnswerCalls{[]CallKey{"0.2"}, NotRun, "Not run: max_uses of the tool web_search is 2 in this run, and is used up. Continue without further calls of it."}
	if a, ok := Decide(play(t, three...)).(ExecuteTools); !ok || len(a.Calls) != 2 || a.Calls[1] != "0.1" {
		t.Errorf("of three calls in one turn: %+v", Decide(play(t, three...)))
	}
	first := with(three, started("0.0"), started("0.1"), done("0.0"), done("0.1"))
	if diff := cmp.Diff(Action(answer), Decide(play(t, first...))); diff != "" {
		t.Error(diff)
	}
	executed := with(first, answered("0.2", NotRun), started("0.3"), done("0.3"))
	later := with(executed, asked(1, 1), turn(1, model.StopCalls, "web_search", "f"), prepared("1.0", searches), prepared("1.1"))
	a, ok := Decide(play(t, later...)).(AnswerCalls)
	if !ok || len(a.Calls) != 1 || a.Calls[0] != "1.0" || !strings.Contains(a.Text, "max_uses") {
		t.Errorf("in a later turn: %+v", Decide(play(t, later...)))
	}
	if a, ok := Decide(play(t, with(later, answered("1.0", NotRun))...)).(ExecuteTools); !ok || len(a.Calls) != 1 || a.Calls[0] != "1.1" {
		t.Errorf("another tool: %+v", a)
	}
	if s := play(t, later...); s.Spent.CallsSkipped {
		t.Error("the run ends for the limit of a tool")
	}
	again := with(begin(), prepared("0.0", searches, reads), prepared("0.1", searches), prepared("0.2", searches), prepared("0.3"), started("0.0"),
		CallStarted{Key: "0.0", Attempt: 2})
	if s := play(t, again...); s.Uses[0] != 1 {
		t.Errorf("a second attempt counts: %v", s.Uses)
	}
}

// Nobody is asked to approve a call that is not executed, and a run that pauses at its limits does not wait for one. // P38
func TestMaxUsesAsksNobody(t *testing.T) {
	facts := []Body{accepted(uses(1)), catalogued(), asked(0, 1), turn(0, model.StopCalls, "web_search", "web_search"), prepared("0.0", searches, gated), prepared("0.1", searches, gated)}
	if a, ok := Decide(play(t, facts...)).(AnswerCalls); !ok || len(a.Calls) != 1 || a.Calls[0] != "0.1" {
		t.Errorf("%+v", Decide(play(t, facts...)))
	}
	facts[0] = accepted(uses(1), durable, func(b *Accepted) { b.Limits.OnLimit = budget.Pause })
	if a, ok := Decide(play(t, with(facts, answered("0.1", NotRun))...)).(Interrupt); !ok || len(a.Calls) != 1 || a.Calls[0] != "0.0" {
		t.Errorf("%+v", Decide(play(t, with(facts, answered("0.1", NotRun))...)))
	}
}
