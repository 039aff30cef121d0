package loop

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/model"
)

// A model call that its provider has not counted costs what was reserved for it, or what was received if that is
// more. What is charged so is an estimate. // P03
func TestWhatACallIsChargedThatIsNotCounted(t *testing.T) {
	counted, partial := model.Usage{Input: 10, Output: 5}, model.Usage{Input: 10, Output: 1}
	for name, tt := range map[string]struct {
		end  Body
		want Charge
	}{
		"counted":                   {Turn{Usage: counted}, Charge{Input: 10, Output: 5}},
		"ends without usage":        {Turn{Uncounted: true}, Charge{Input: 20, Output: 80, EstimatedInput: 20, EstimatedOutput: 80}},
		"the usage of its begin":    {Turn{Usage: partial, Uncounted: true}, Charge{Input: 10, Output: 90, EstimatedOutput: 90}},
		"more was received":         {Turn{Uncounted: true, Bytes: 600}, Charge{Input: 20, Output: 200, EstimatedInput: 20, EstimatedOutput: 200}},
		"broke off":                 {TurnFailed{Usage: partial, Uncounted: true}, Charge{Input: 10, Output: 90, EstimatedOutput: 90}},
		"broke off after the count": {TurnFailed{Usage: counted}, Charge{Input: 10, Output: 5}},
		"an error of the provider":  {TurnFailed{Status: 503}, Charge{}},
		"an error in a stream":      {TurnFailed{Status: 200, Refused: true}, Charge{}},
		"not sent":                  {TurnFailed{Unsent: true}, Charge{}},
		"of an earlier version":     {TurnFailed{Usage: partial}, Charge{Input: 10, Output: 1}},
	} {
		facts := with(begin(shared, func(b *Accepted) { b.RawBytes = 60 }), reserved(0, 1, 100), asked(0, 1))
		s := play(t, facts...)
		got := s.Charge(tt.end)
		if cost := s.Cost(tt.end); got != tt.want || cost.Tokens != tt.want.Input+tt.want.Output {
			t.Errorf("%s: %+v, of %+v, want %+v", name, got, cost, tt.want)
		}
	}
	lost := play(t, with(begin(shared, durable, func(b *Accepted) { b.RawBytes = 60 }), reserved(0, 1, 100), asked(0, 1), Resumed{})...)
	if want := (Charge{Input: 20, Output: 80, EstimatedInput: 20, EstimatedOutput: 80}); lost.ChargedInRound != want || lost.Charged != want {
		t.Errorf("killed: %+v, %+v", lost.ChargedInRound, lost.Charged)
	}
}
