package money

import (
	"math/rand/v2"
	"path"
	"strings"
	"testing"
)

func per(usd string) *Rate {
	r, err := ParseRate(usd)
	if err != nil {
		panic(err)
	}
	return &r
}

func row(model, provider string, from Date, input string) Row {
	return Row{Model: model, Provider: provider, From: from, Listed: Listed{Input: per(input), Output: per("0")}}
}

func TestFind(t *testing.T) {
	under := &Card{Rows: []Row{row("gpt-5", "openai", "2026-01-01", "1"), row("gpt-*", "openai", "2026-01-01", "2"), row("only-here", "", "2026-01-01", "3")}}
	card := &Card{Under: under, Rows: []Row{
		row("claude-*", "anthropic", "2026-01-01", "10"),
		row("claude-opus-*", "anthropic", "2026-01-01", "11"),
		row("claude-opus-5", "anthropic", "2026-01-01", "12"),
		row("claude-opus-5", "anthropic", "2026-06-01", "13"),
		row("claude-opus-5", "anthropic", "2027-01-01", "14"),
		row("claude-opus-5", "vertex", "2026-01-01", "15"),
		row("any", "", "2026-01-01", "16"),
		row("any", "anthropic", "2026-01-01", "17"),
		row("twice", "", "2026-01-01", "18"),
		row("twice", "", "2026-01-01", "19"),
		row("later", "", "2026-06-01", "20"),
		row("later", "", "2026-01-01", "21"),
		row("gpt-5*", "openai", "2026-01-01", "22"),
	}}
	for _, c := range []struct {
		name                  string
		provider, kind, model string
		on                    Date
		want                  string // the rate of input; "" = no price
	}{
		{"a pattern", "a", "anthropic", "claude-haiku-5", "2026-03-01", "10"},
		{"a longer pattern", "a", "anthropic", "claude-opus-4", "2026-03-01", "11"},
		{"the name", "a", "anthropic", "claude-opus-5", "2026-03-01", "12"},
		{"a later row, on its first day", "a", "anthropic", "claude-opus-5", "2026-06-01", "13"},
		{"not before it holds", "a", "anthropic", "claude-opus-5", "2026-12-31", "13"},
		{"a dated version", "a", "anthropic", "claude-opus-5-20260724", "2026-03-01", "12"},
		{"a dated version of another provider", "a", "anthropic", "claude-opus-5@20260724", "2026-03-01", "12"},
		{"a dated version with dashes", "a", "anthropic", "claude-opus-5-2026-07-24", "2026-03-01", "12"},
		{"no date", "a", "anthropic", "claude-opus-5-20261332", "2026-03-01", "11"},
		{"nothing but a date", "a", "anthropic", "-20260724", "2026-03-01", ""},
		{"before every row", "a", "anthropic", "claude-opus-5", "2025-12-31", ""},
		{"the provider's name before its kind", "vertex", "anthropic", "claude-opus-5", "2026-12-01", "15"},
		{"another provider", "a", "gemini", "claude-opus-5", "2026-12-01", ""},
		{"a row for any provider", "a", "gemini", "any", "2026-12-01", "16"},
		{"the kind before no provider", "a", "anthropic", "any", "2026-12-01", "17"},
		{"the last of two equal rows", "a", "gemini", "twice", "2026-12-01", "19"},
		{"the latest date, wherever the row is", "a", "gemini", "later", "2026-12-01", "20"},
		{"the card before the one under it, also with a pattern", "a", "openai", "gpt-5", "2026-12-01", "22"},
		{"the card under it", "a", "openai", "gpt-4", "2026-12-01", "2"},
		{"the Responses API of OpenAI", "a", "openai-responses", "gpt-4", "2026-12-01", "2"},
		{"no model of that name", "a", "openai", "o3", "2026-12-01", ""},
	} {
		got := card.Price(Serves{c.provider, c.kind, c.model}, c.on)
		if got.Known() != (c.want != "") || got.Known() && got.Input.String() != c.want {
			t.Errorf("%s: %+v, want input %q", c.name, got, c.want)
		}
	}
	if (*Card)(nil).Price(Serves{Model: "x"}, "2026-01-01").Known() {
		t.Error("no card has a price")
	}
}

func TestInEffect(t *testing.T) {
	under := &Card{Rows: []Row{row("a", "", "2026-01-01", "1"), row("b", "", "2026-01-01", "2"), row("b", "", "2026-02-01", "3"), row("c", "", "2027-01-01", "4")}}
	card := &Card{Under: under, Rows: []Row{row("d", "", "2026-01-01", "5"), row("a", "", "2026-02-01", "6"), row("a", "", "2026-01-01", "7"), row("b", "openai", "2026-01-01", "8")}}
	var got []string
	for _, r := range card.InEffect("2026-03-01") {
		got = append(got, r.Model+r.Provider+"="+r.Input.String())
	}
	if want := "d=5 a=6 bopenai=8 b=3"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}

func TestRatesThatARowLeavesOut(t *testing.T) {
	r := Row{
		Model: "m", From: "2026-01-01", Listed: Listed{Input: per("3"), CachedInput: per("0.30"), CacheWrite: per("3.75"), CacheWrite1h: per("6"), Output: per("15")},
		AboveTokens: 200_000, Above: Listed{Input: per("6"), Output: per("22.5")}, Flex: Listed{Input: per("1.5"), Output: per("7.5")},
		Priority: Listed{Output: per("30")},
	}
	want := sonnet()
	want.Flex = Rates{PerMillion * 3 / 2, PerMillion * 15 / 100, PerMillion * 15 / 8, 3 * PerMillion, PerMillion * 15 / 2}
	want.Priority = want.Rates
	want.Priority.Output = 30 * PerMillion
	if got := r.Price(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	plain := Row{Model: "m", From: "2026-01-01", Listed: Listed{Input: per("2"), Output: per("8")}}.Price()
	if plain.Rates != (Rates{2 * PerMillion, 2 * PerMillion, 2 * PerMillion, 2 * PerMillion, 8 * PerMillion}) || plain.Above != (LongPrompt{}) || plain.Flex != (Rates{}) {
		t.Errorf("cached input without a rate does not cost what input costs: %+v", plain)
	}
	free := Row{Model: "m", From: "2026-01-01", Listed: Listed{Input: per("0"), Output: per("0")}, AboveTokens: 1, Above: Listed{Input: per("1"), Output: per("1")}}.Price()
	if free.Above.CachedInput != PerMillion || !free.Known() {
		t.Errorf("%+v", free)
	}
	if got := inProportion(1, MaxRate, 1); got != MaxRate {
		t.Error(got)
	}
	if got := inProportion(MaxRate, MaxRate, 1); got != MaxRate {
		t.Error(got)
	}
	if got := inProportion(10, 1, 3); got != 4 {
		t.Errorf("10 × 1 ÷ 3 is %d, want 4: rounded up", got)
	}
}

// Names without a slash match as they do with path.Match.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*anthropic.claude-*", "us.anthropic.claude-opus-4-6-v1", true}, {"*", "a/b", true}, {"a*b", "a/b", true}, {"a/?", "a/b", true},
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"**", "", true}, {"a[b]", "a[b]", true}, {"a[b]", "ab", false},
	} {
		if got := Match(c.pattern, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %t", c.pattern, c.name, got)
		}
	}
	r := rand.New(rand.NewPCG(7, 8))
	text := func(alphabet string) string {
		b := make([]byte, r.IntN(8))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	for range 20_000 {
		pattern, name := text("ab*?"), text("ab")
		if want, _ := path.Match(pattern, name); Match(pattern, name) != want {
			t.Fatalf("Match(%q, %q) = %t", pattern, name, !want)
		}
	}
}
