package turnpike

import (
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
)

// knownPrice returns what the model of a target costs on a date, of the prices that ship with this package.
func knownPrice(t loop.Target, on money.Date) money.Price { return money.Price{} }
