package turnpike_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// turnsOf is a conversation that keeps what it gets.
type turnsOf struct{ turns []turnpike.Turn }

func (c *turnsOf) Append(_ context.Context, t turnpike.Turn) error {
	c.turns = append(c.turns, t)
	return nil
}

// The model of a long run sees a summary and the latest part; the conversation gets every turn as it was.
func TestALongRunIsCompacted(t *testing.T) {
	script := turnpiketest.NewScript(t, `
call c1 read {"page":1}

call c2 read {"page":2}

call c3 read {"page":3}

text The word is heron; pages 1 and 2 were read.

text heron`)
	read := tool.Func("read", "Read a page.", func(_ context.Context, in struct {
		Page int `json:"page"`
	}) (string, error) {
		return fmt.Sprintf("page %d: %s", in.Page, strings.Repeat("words ", 330)), nil
	}).ReadOnly()
	kept := &turnsOf{}
	a := &turnpike.Agent{Model: script, Tools: []tool.Tool{read}, Conversation: kept, Compaction: turnpike.Compaction{Mode: turnpike.Summarize, Window: 2048}}
	result, err := a.Run(t.Context(), turnpike.Text("The word is heron. Read three pages, then say it."))
	if err != nil || result.Text != "heron" || result.Rounds != 4 {
		t.Fatalf("%+v %v", result, err)
	}
	asked := script.Requests()
	if len(asked) != 5 {
		t.Fatalf("%d model calls, want four and one for the summary", len(asked))
	}
	last := fmt.Sprint(asked[4].Items)
	if strings.Contains(last, "page 1: words") || !strings.Contains(last, "page 3: words") || !strings.Contains(last, "The word is heron; pages 1 and 2 were read.") {
		t.Errorf("the last prompt:\n%.3000s", last)
	}
	if len(kept.turns) != 8 {
		t.Fatalf("the conversation has %d turns", len(kept.turns))
	}
	for i, role := range []turnpike.TurnRole{turnpike.InputTurn, turnpike.AssistantTurn, turnpike.ToolTurn, turnpike.AssistantTurn, turnpike.ToolTurn, turnpike.AssistantTurn, turnpike.ToolTurn, turnpike.AssistantTurn} {
		turn := kept.turns[i]
		if turn.Number != i || turn.Role != role || role == turnpike.ToolTurn && !strings.Contains(turn.Items[0].Text(), fmt.Sprintf("page %d: words", i/2)) {
			t.Errorf("turn %d: %d %s %.100v", i, turn.Number, turn.Role, turn.Items)
		}
	}
}

// A compaction that is not possible is refused before any model call, of the agent and of one call.
func TestCompactionsThatAreNotPossible(t *testing.T) {
	for name, c := range map[string]turnpike.Compaction{
		"a mode that is none":        {Mode: "auto"},
		"a window below zero":        {Window: -1},
		"a window that is too small": {Mode: turnpike.Prune, Window: 511},
		"a small threshold":          {Mode: turnpike.Prune, Threshold: 999},
		"a threshold below zero":     {Threshold: -5},
	} {
		var invalid *turnpike.ValidationError
		for _, a := range []struct {
			agent *turnpike.Agent
			opts  []turnpike.Option
		}{
			{&turnpike.Agent{Model: turnpiketest.Model(t), Compaction: c}, nil},
			{&turnpike.Agent{Model: turnpiketest.Model(t)}, []turnpike.Option{turnpike.Compact(c)}},
		} {
			if _, err := a.agent.Run(t.Context(), turnpike.Text("go"), a.opts...); !errors.As(err, &invalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	a := &turnpike.Agent{Model: turnpiketest.Model(t)}
	if _, err := a.Run(t.Context(), turnpike.Text("go"), turnpike.Mode(turnpike.Return), turnpike.Compact(turnpike.Compaction{})); err == nil {
		t.Error("one model call compacts nothing, and says so")
	}
}
