package loop

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/model"
)

// priced gives the target a price: 1 USD per million input tokens, and 3 per million output tokens.
func priced(b *Accepted) {
	b.Targets[0].Price = money.Price{From: "2026-03-01", Rates: money.Rates{Input: money.PerMillion, Output: 3 * money.PerMillion}}
}

func paid(b *CallPrepared) { b.PriceNano = 7_000 }

func nanoUSD(n int64) func(*Accepted) { return func(b *Accepted) { b.Limits.NanoUSD = &n } }

// A run pays for its model calls by the price of its target, and for the calls of tools that
// left by theirs. // P41
func TestWhatARunSpends(t *testing.T) {
	const turnCost = 10*1_000 + 5*3_000 // 10 + 5 tokens
	one := with(begin(priced), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0", paid), prepared("0.1", paid, badArgs))
	for name, tt := range map[string]struct {
		facts []Body
		want  int64
	}{
		"a turn":                     {one, turnCost},
		"a call that is under way":   {with(one, started("0.0")), turnCost},
		"a call that was executed":   {with(one, started("0.0"), done("0.0")), turnCost + 7_000},
		"a call that has failed":     {with(one, started("0.0"), errored("0.0")), turnCost + 7_000},
		"a call that never left":     {with(one, started("0.0"), CallDone{Key: "0.0", Attempt: 1, Outcome: NotRun}), turnCost},
		"a call that is remembered":  {with(one, answered("0.0", Cached)), turnCost},
		"a model call that failed":   {with(begin(priced), asked(0, 1), failed(1, model.Transient, func(b *TurnFailed) { b.Usage = model.Usage{Input: 2} })), 2_000},
		"a target without its price": {with(begin(), asked(0, 1), turn(0, model.StopEnd)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := play(t, tt.facts...).Spent.NanoUSD; got != tt.want {
				t.Errorf("%d nano-USD, want %d", got, tt.want)
			}
		})
	}
}

// The run's own limit in money includes tools: without the price of this one, another model call would fit. // P41
func TestAPaidToolUsesUpTheLimit(t *testing.T) {
	for _, price := range []func(*CallPrepared){paid, func(*CallPrepared) {}} {
		before := begin(priced, nanoUSD(94_000))
		a := Decide(play(t, before...)).(CallModel)
		reserved := Reserved{Round: a.Round, Attempt: a.Attempt, Scopes: []string{"run"}, Amount: a.MaxCost}
		state := play(t, with(before, reserved, asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0", price), started("0.0"), done("0.0"))...)
		switch next := Decide(state).(type) {
		case Finish:
			if next.Reason != event.Money || state.Spent.NanoUSD != 32_000 {
				t.Errorf("%+v after %d", next, state.Spent.NanoUSD)
			}
		case CallModel:
			if left := 94_000 - state.Spent.NanoUSD; state.Spent.NanoUSD != 25_000 || next.MaxCost.NanoUSD > left {
				t.Errorf("a call for %d, and %d are left", next.MaxCost.NanoUSD, left)
			}
		default:
			t.Errorf("%+v", next)
		}
	}
}
