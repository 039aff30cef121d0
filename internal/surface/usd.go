package surface

import "github.com/turnpike-gateway/turnpike/internal/money"

// USD is an amount in 10⁻⁹ US dollars. Its JSON is a number of US dollars.
type USD money.Nano

// MarshalJSON implements json.Marshaler.
func (u USD) MarshalJSON() ([]byte, error) { return []byte(money.Nano(u).String()), nil }
