package turnpike_test

import (
	"errors"
	"testing"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

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
