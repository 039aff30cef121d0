// Package known has the built-in prices for programs that do not read configuration files: those of
// internal/rates, in a form that needs no YAML. A test of that package keeps both the same.
package known

import (
	_ "embed" // the prices
	"encoding/json"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/money"
)

//go:embed builtin.json
var builtin []byte

// Card returns the built-in prices.
func Card() (*money.Card, error) {
	var rows []money.Row
	if err := json.Unmarshal(builtin, &rows); err != nil {
		return nil, fmt.Errorf("built-in prices: %w", err)
	}
	return &money.Card{Rows: rows}, nil
}
