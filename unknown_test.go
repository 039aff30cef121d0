package turnpike_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// An unknown outcome is listed, resolved once, and the second run sees it. // P39
func TestUnknownEffects(t *testing.T) {
	for _, place := range []string{"memory", "store", "after a restart"} {
		t.Run(place, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "runs.db")
			var store turnpike.Store
			if place != "memory" {
				store = open(t, path)
			}
			type order struct {
				ID string `json:"id"`
			}
			var paid []string
			broken := true
			pay := tool.Func("pay", "", func(_ context.Context, in order) (string, error) {
				paid = append(paid, in.ID)
				if broken {
					panic("the answer is lost")
				}
				return "receipt " + in.ID, nil
			}).Key(func(in order) string { return in.ID })
			both := turnpiketest.Turn(turnpiketest.Call("pay", order{"A"}), turnpiketest.Call("pay", order{"B"}))
			m := turnpiketest.Model(t, both, turnpiketest.Say("?"), both, turnpiketest.Say("Done."), both, turnpiketest.Say("Done."))
			a := &turnpike.Agent{Model: m, Tools: []tool.Tool{pay}, Store: store, Parallelism: turnpike.Serial}
			if list := collect(t, a.UnknownEffects(t.Context())); len(list) != 0 {
				t.Errorf("%+v", list)
			}
			first := mustRun(t, a)
			if got := calls(first); got[0].Outcome != event.CallUnknown || got[1].Outcome != event.CallUnknown {
				t.Fatalf("%+v", got)
			}
			if place == "after a restart" {
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				a = &turnpike.Agent{Model: m, Tools: a.Tools, Store: open(t, path), Parallelism: turnpike.Serial}
			}
			list := collect(t, a.UnknownEffects(t.Context()))
			if len(list) != 2 || list[0].Key != "pay:A" || list[1].Key != "pay:B" || list[0].RunID != first.RunID || list[0].Since.IsZero() {
				t.Fatalf("%+v", list)
			}
			if err := a.ResolveEffect(t.Context(), list[0], turnpike.Resolution{CarriedOut: true, Result: "receipt 7", By: "ada"}); err != nil {
				t.Fatal(err)
			}
			if err := a.ResolveEffect(t.Context(), list[1], turnpike.Resolution{}); err != nil {
				t.Fatal(err)
			}
			for _, u := range list { // once
				var resolved *turnpike.ResumeError
				if err := a.ResolveEffect(t.Context(), u, turnpike.Resolution{}); !errors.As(err, &resolved) || resolved.Status() != 409 {
					t.Errorf("%s again: %v", u.Key, err)
				}
			}
			if list := collect(t, a.UnknownEffects(t.Context())); len(list) != 0 {
				t.Errorf("resolved, and listed: %+v", list)
			}
			broken, paid = false, nil
			second := calls(mustRun(t, a))
			if second[0].Result != "receipt 7" || second[1].Result != "receipt B" || len(paid) != 1 || paid[0] != "B" {
				t.Errorf("%+v; paid %q", second, paid)
			}
			if third := calls(mustRun(t, a)); third[0].Result != "receipt 7" || third[1].Result != "receipt B" || len(paid) != 1 {
				t.Errorf("%+v; paid %q", third, paid)
			}
			if err := a.ResolveEffect(t.Context(), turnpike.UnknownEffect{Key: "pay:A"}, turnpike.Resolution{}); err == nil || err.(turnpike.Failure).Status() != 400 {
				t.Errorf("one that nobody has listed: %v", err)
			}
		})
	}
}

// A call that is under way is not listed.
func TestAnEffectUnderWayIsNotUnknown(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	var a *turnpike.Agent
	other := &turnpike.Agent{Model: turnpiketest.Model(t), Store: store}
	a = &turnpike.Agent{Store: store, Model: turnpiketest.Model(t, turnpiketest.Call("pay", nil), turnpiketest.Say("Done.")), Tools: []tool.Tool{
		tool.Func("pay", "", func(ctx context.Context, _ struct{}) (string, error) {
			for _, one := range []*turnpike.Agent{a, other} {
				if list := collect(t, one.UnknownEffects(ctx)); len(list) != 0 {
					t.Errorf("%+v", list)
				}
			}
			return "paid", nil
		}).Key(func(struct{}) string { return "A" }),
	}}
	mustRun(t, a)
}
