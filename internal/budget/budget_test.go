package budget

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/money"
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
	if got := (Limits{Rounds: 500}).Clamp(DefaultRoundsCap).Rounds; got != 50 {
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

func TestReached(t *testing.T) {
	w := Window{Limit: Amount{Tokens: 100, NanoUSD: 1 << 62}}
	for spent, want := range map[int64]int{0: 0, 79: 0, 80: 80, 99: 80, 100: 100, 200: 100} {
		if got := w.Reached(Amount{Tokens: spent}); got != want {
			t.Errorf("%d of 100 are %d percent, want %d", spent, got, want)
		}
	}
	if got := w.Reached(Amount{NanoUSD: 1 << 62}); got != 100 {
		t.Errorf("all money is %d percent", got)
	}
	if got := (Window{}).Reached(Amount{Tokens: 1 << 62}); got != 0 {
		t.Errorf("without a limit: %d percent", got)
	}
}

// A limit on money lowers the output limit of a call, and a call for which not even that is enough
// is not made. Failure 7 of other gateways: the reservation is at the tier that the prompt reaches. // P03 P41
func TestPlanWithMoney(t *testing.T) {
	price := money.Price{From: "2026-01-01", Rates: money.Rates{Input: 2 * money.PerMillion, Output: 10 * money.PerMillion}}
	usd := func(text string) *int64 {
		n, err := money.ParseUSD(text)
		if err != nil {
			t.Fatal(err)
		}
		return (*int64)(&n)
	}
	tiered := price
	tiered.Above = money.LongPrompt{Tokens: 1000, Rates: money.Rates{Input: 4 * money.PerMillion, Output: 20 * money.PerMillion}}
	for _, tt := range []struct {
		name   string
		limits Limits
		spent  Spent
		call   Call
		shared bool
		most   Amount
		output int64
		over   event.Reason
	}{
		{"a shared budget", Limits{}, Spent{}, Call{UncountedBytes: 3000, AskedOutput: 100, Price: price}, true, Amount{1100, 3_000_000}, 100, ""},
		{"the limit lowers the output", Limits{NanoUSD: usd("0.0025")}, Spent{}, Call{CountedTokens: 1000, AskedOutput: 100, Price: price}, false, Amount{1050, 2_500_000}, 50, ""},
		{"what is spent counts", Limits{NanoUSD: usd("0.0045")}, Spent{NanoUSD: 2_000_000}, Call{CountedTokens: 1000, Price: price}, false, Amount{1050, 2_500_000}, 50, ""},
		{"nothing is left for the output", Limits{NanoUSD: usd("0.002")}, Spent{}, Call{CountedTokens: 1000, Price: price}, false, Amount{}, 0, event.Money},
		{"not even for the prompt", Limits{NanoUSD: usd("0.001")}, Spent{}, Call{CountedTokens: 1000, Price: price}, false, Amount{}, 0, event.Money},
		{"a long prompt", Limits{}, Spent{}, Call{CountedTokens: 1001, AskedOutput: 100, Price: tiered}, true, Amount{1101, 6_004_000}, 100, ""},
		{"free", Limits{NanoUSD: usd("0.001")}, Spent{}, Call{CountedTokens: 1000, AskedOutput: 100, Price: money.Price{From: "2026-01-01"}}, false, Amount{1100, 0}, 100, ""},
	} {
		most, output, over := tt.limits.Plan(tt.spent, tt.call, tt.shared)
		if most != tt.most || output != tt.output || over != tt.over {
			t.Errorf("%s: %+v, %d, %q, want %+v, %d, %q", tt.name, most, output, over, tt.most, tt.output, tt.over)
		}
	}
}

func TestWhatIsKeptBack(t *testing.T) { // B20
	usd := int64(1000)
	l := Limits{Tokens: 1001, NanoUSD: &usd, OnLimit: Answer, KeepBack: 15}
	for share, want := range map[int64][2]int64{1: {851, 850}, 2: {931, 925}} {
		if got := l.Keeping(share); got.Tokens < want[0]-5 || got.Tokens > want[0]+5 || *got.NanoUSD != want[1] {
			t.Errorf("share %d: %d tokens and %d, want %v", share, got.Tokens, *got.NanoUSD, want)
		}
	}
	if usd != 1000 || l.Tokens != 1001 {
		t.Error("the limits have changed")
	}
	l.OnLimit = Pause
	if got := l.Keeping(1); !got.Equal(l) {
		t.Errorf("%+v: nothing is kept back where no answer is asked for", got)
	}
	if got := (Limits{KeepBack: 99, OnLimit: Answer}).Clamp(MaxRounds).KeepBack; got != maxKeepBack {
		t.Errorf("%d %% are kept back", got)
	}
	if got := (Limits{Tokens: 1 << 62, OnLimit: Answer, KeepBack: 50}).Keeping(1).Tokens; got != 1<<61 {
		t.Errorf("half of 2⁶² tokens are %d", got)
	}
}
