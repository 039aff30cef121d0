package app

import (
	"strconv"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/money"
)

// What is remembered belongs to one card and one day, and is bounded: clients name models.
func TestPricesAreRememberedForOneCardAndOneDay(t *testing.T) { // P41
	rate, dearer := money.PerMillion, 2*money.PerMillion
	card := func(input *money.Rate) *money.Card {
		return &money.Card{Rows: []money.Row{{Model: "m*", From: "2026-01-01", Listed: money.Listed{Input: input}}, {Model: "m*", From: "2026-02-01", Listed: money.Listed{Output: input}}}}
	}
	var p prices
	one, two := card(&rate), card(&dearer)
	for _, c := range []struct {
		card *money.Card
		on   money.Date
		want money.Rates
	}{
		{one, "2026-01-01", money.Rates{Input: rate, CachedInput: rate, CacheWrite: rate, CacheWrite1h: rate}},
		{two, "2026-01-01", money.Rates{Input: dearer, CachedInput: dearer, CacheWrite: dearer, CacheWrite1h: dearer}},
		{two, "2026-02-01", money.Rates{Output: dearer}},
		{one, "2026-02-01", money.Rates{Output: rate}},
	} {
		for range 2 {
			if got := p.find(c.card, c.on, priced{"up", "openai", "m"}); got.Rates != c.want {
				t.Errorf("%s: %+v, want %+v", c.on, got.Rates, c.want)
			}
		}
	}
	for i := range 3 * maxPrices {
		if p.find(one, "2026-02-01", priced{"up", "openai", "m" + strconv.Itoa(i)}); len(p.found) > maxPrices {
			t.Fatalf("%d prices are remembered", len(p.found))
		}
	}
}
