package app

import (
	"strconv"
	"testing"
	"time"

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
	january, february := time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC), time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		card *money.Card
		at   time.Time
		want money.Rates
	}{
		{one, january, money.Rates{Input: rate, CachedInput: rate, CacheWrite: rate, CacheWrite1h: rate}},
		{two, january, money.Rates{Input: dearer, CachedInput: dearer, CacheWrite: dearer, CacheWrite1h: dearer}},
		{two, february, money.Rates{Output: dearer}},
		{one, february, money.Rates{Output: rate}},
	} {
		for range 2 {
			if got := p.find(c.card, c.at, priced{"up", "openai", "m"}); got.Rates != c.want {
				t.Errorf("%s: %+v, want %+v", c.at, got.Rates, c.want)
			}
		}
	}
	for i := range 3 * maxPrices {
		if p.find(one, february, priced{"up", "openai", "m" + strconv.Itoa(i)}); len(p.found) > maxPrices {
			t.Fatalf("%d prices are remembered", len(p.found))
		}
	}
}
