package turnpike

import (
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/rates/known"
)

// knownPrice returns what a model costs on a date, of the prices that ship with this package.
func (e *engine) knownPrice(t loop.Target, on money.Date) money.Price {
	e.card.Do(func() {
		var err error
		if e.prices, err = known.Card(); err != nil {
			e.log.Error("the prices of this package cannot be read", "error", err)
			e.prices = new(money.Card)
		}
	})
	return e.prices.Price(money.Serves{Provider: t.Provider, Kind: t.Provider, Model: t.Model}, on)
}
