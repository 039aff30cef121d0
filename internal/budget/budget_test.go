package budget

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
)

func TestExhausted(t *testing.T) {
	two := int64(2)
	zero := int64(0)
	tests := []struct {
		name   string
		limits Limits
		spent  Spent
		want   event.Reason
	}{
		{"nothing spent leaves room", Limits{Rounds: 10}, Spent{}, ""},
		{"the last round is allowed", Limits{Rounds: 10}, Spent{Rounds: 9}, ""},
		{"the round after the last is not", Limits{Rounds: 10}, Spent{Rounds: 10}, event.MaxRounds}, // B01
		{"one round means one model call", Limits{Rounds: 1}, Spent{Rounds: 1}, event.MaxRounds},    // B03
		{"a skipped call is reported before the rounds", Limits{Rounds: 1}, Spent{Rounds: 1, CallsSkipped: true}, event.MaxCalls},
		{"tokens end at the limit", Limits{Rounds: 10, Tokens: 100}, Spent{Rounds: 1, Tokens: 100}, event.Tokens},
		{"a token limit of 0 is no limit", Limits{Rounds: 10}, Spent{Rounds: 1, Tokens: 1 << 40}, ""},
		{"money ends at the limit", Limits{Rounds: 10, NanoUSD: &two}, Spent{Rounds: 1, NanoUSD: 2}, event.Money},
		{"a money limit of 0 allows no call", Limits{Rounds: 10, NanoUSD: &zero}, Spent{}, event.Money},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.limits.Exhausted(tt.spent); got != tt.want {
				t.Errorf("Exhausted = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestClampKeepsStoredValuesInBounds(t *testing.T) { // B02
	if got := (Limits{Rounds: 500}).Clamp(MaxRounds).Rounds; got != 50 {
		t.Errorf("500 stored rounds became %d, want 50", got)
	}
	if got := (Limits{Rounds: -3}).Clamp(MaxRounds).Rounds; got != 1 {
		t.Errorf("-3 stored rounds became %d, want 1", got)
	}
	got := Limits{}.Clamp(MaxRounds)
	want := Limits{Rounds: 10, Calls: 128, CallsPerTurn: 32, ActiveMS: 120_000}
	if got != want {
		t.Errorf("defaults = %+v, want %+v", got, want)
	}
}
