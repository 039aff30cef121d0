package app

import (
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
)

// prices finds what models cost. It remembers what it has found, since a card has many
// rows and every request asks.
type prices struct {
	mu    sync.Mutex
	card  *money.Card // of found
	on    money.Date  // of found
	found map[priced]money.Price
}

// priced is a model of a provider.
type priced struct{ provider, kind, model string }

// maxPrices is how many prices are remembered. Clients can name any number of models.
const maxPrices = 1_000

// find returns the price of a model on a date.
func (p *prices) find(card *money.Card, on money.Date, m priced) money.Price {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.card != card || p.on != on || len(p.found) >= maxPrices {
		p.card, p.on, p.found = card, on, map[priced]money.Price{}
	}
	price, ok := p.found[m]
	if !ok {
		price = card.Price(money.Serves{Provider: m.provider, Kind: m.kind, Model: m.model}, on)
		p.found[m] = price
	}
	return price
}

// price returns what a target's model costs today, in UTC.
func (a *App) price(t loop.Target) money.Price {
	on := money.Date(clock.Wall().UTC().Format(time.DateOnly))
	return a.prices.find(a.card.Load(), on, priced{t.Provider, a.providerKind(t.Provider), t.Model})
}
