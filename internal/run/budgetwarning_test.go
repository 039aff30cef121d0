package run

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The first call that needs what is kept of the budget has a warning for the model. The next call has no tools.
func TestTheModelIsWarnedOfTheEndOfItsBudget(t *testing.T) { // B20
	s := newStage(t, box{"echo": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text(strings.Repeat("x", 540)), nil }}, append(slices.Repeat([]answer{asks("echo")}, 2), says("Done."))...)
	s.req.Policy.Limits.Tokens, s.req.Policy.Limits.OnLimit, s.req.Policy.Limits.KeepBack = 400, budget.Answer, 50
	if end := s.run(t); end.Reason != event.Complete || end.Rounds != 3 {
		t.Errorf("%+v", end)
	}
	for n, want := range []struct{ warned, tools bool }{{false, true}, {true, true}, {false, false}} {
		asked := s.model.asked[n]
		last := asked.Items[len(asked.Items)-1]
		if warned := last.Kind == item.Message && last.Text() == loop.BudgetWarning; warned != want.warned || len(asked.Tools) > 0 != want.tools {
			t.Errorf("call %d: warned is %t, and it has %d tools: %+v", n, warned, len(asked.Tools), asked.Items)
		}
	}
}
