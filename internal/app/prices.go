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
	day   int64       // of found, in days of UTC since 1970
	on    money.Date  // that day
	found map[priced]money.Price
}

// priced is a model of a provider.
type priced struct{ provider, kind, model string }

// maxPrices is how many prices are remembered. Clients can name any number of models.
const maxPrices = 1_000

// find returns the price of a model at a time, by the date in UTC.
func (p *prices) find(card *money.Card, at time.Time, m priced) money.Price {
	p.mu.Lock()
	defer p.mu.Unlock()
	const secondsOfDay = 24 * 60 * 60
	if day := at.Unix() / secondsOfDay; p.card != card || p.day != day || len(p.found) >= maxPrices {
		p.card, p.day, p.on, p.found = card, day, money.Date(at.UTC().Format(time.DateOnly)), map[priced]money.Price{}
	}
	price, ok := p.found[m]
	if !ok {
		price = card.Price(money.Serves{Provider: m.provider, Kind: m.kind, Model: m.model}, p.on)
		p.found[m] = price
	}
	return price
}

// price returns what a target's model costs today, in UTC.
func (l *live) price(t loop.Target) money.Price {
	return l.prices.find(l.card.Load(), clock.Wall(), priced{t.Provider, l.providerKind(t.Provider), t.Model})
}
