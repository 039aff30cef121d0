package loop

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestBackoff(t *testing.T) {
	for name, tt := range map[string]struct {
		attempt            int
		asked              int64
		want, wantAtRandom int64
	}{
		"first attempt":                     {1, 0, 250, 250},
		"second attempt":                    {2, 0, 500, 500},
		"fifth attempt":                     {5, 0, 4_000, 4_000},
		"the wait has a limit":              {math.MaxInt, 0, 4_000, 4_000},
		"the provider asks for a wait":      {3, 7_000, 7_000, 700},
		"a wait that is no wait":            {1, -5, 250, 250},
		"the provider asks for a short one": {1, 3, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			wait, jitter := (&State{Attempt: Attempt{AttemptsOnTarget: tt.attempt}}).Backoff(tt.asked)
			if wait != tt.want || jitter != tt.wantAtRandom {
				t.Errorf("wait %d, jitter %d; want %d, %d", wait, jitter, tt.want, tt.wantAtRandom)
			}
		})
	}
}

func TestBrokenTurnIsUsableIfTheGatewayCanExecuteACall(t *testing.T) {
	cut := model.Call{Name: "a"}
	whole := model.Call{Name: "b", Complete: true}
	for name, tt := range map[string]struct {
		grade func(*Accepted)
		turn  *model.Turn
		want  bool
	}{
		"no turn":             {durable, nil, false},
		"text only":           {durable, new(model.Turn), false},
		"a call that was cut": {durable, &model.Turn{Calls: []model.Call{cut}}, false},
		"a complete call":     {durable, &model.Turn{Calls: []model.Call{cut, whole}}, true},
		"a relay":             {translated, &model.Turn{Calls: []model.Call{whole}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Fold(facts(accepted(tt.grade)))
			if got := s.Usable(tt.turn); got != tt.want {
				t.Errorf("usable %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRefusedReservationEndsTheRunForItsUnit(t *testing.T) {
	s := play(t, begin(shared)...)
	a := Decide(s).(CallModel)
	w, used := budget.Window{Scope: "org/total", Limit: budget.Amount{Tokens: 5, NanoUSD: 5}, EndsAt: 7}, budget.Amount{Tokens: 5, NanoUSD: 4}
	s = play(t, with(begin(shared), a.Refused(w, used))...)
	if diff := cmp.Diff(Action(Finish{Reason: event.BudgetExceeded}), Decide(s)); diff != "" {
		t.Error(diff)
	}
	for round, usd := range []int64{1, 1, 2} {
		a.Round, a.MaxCost = round, budget.Amount{Tokens: 1, NanoUSD: usd}
		want := ReserveRefused{Round: round, Attempt: 1, Scope: w.Scope, Amount: a.MaxCost, Limit: w.Limit, Used: used, EndsAt: 7}
		want.Reason = []event.Reason{event.BudgetExceeded, event.Tokens, event.Money}[round]
		if diff := cmp.Diff(want, a.Refused(w, used)); diff != "" {
			t.Error(diff)
		}
	}
}
