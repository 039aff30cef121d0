// Package rates is the rate card of the gateway: the prices that ship with the program,
// the operator's rows before them, and the import of public price lists.
//
//	builtin.yaml ─────────────────┐
//	rates: FILE ─► config.Rows ───┴─► Card ─► money.Card, in which runs find their prices
//	LiteLLM's or models.dev's JSON ─► Import ─► rows ─► Changes ─► rates: FILE
package rates

import (
	_ "embed" // the built-in card
	"fmt"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/money"
)

// BuiltinDate is the day on which the built-in card was last compared with what the
// providers publish.
const BuiltinDate money.Date = "2026-11-25"

//go:embed builtin.yaml
var builtin []byte

// builtinRows returns the rows of the built-in card, which nobody changes.
var builtinRows = sync.OnceValues(func() ([]money.Row, error) { return config.ReadRates("builtin.yaml", builtin) })

// Card returns the operator's rows before the built-in card.
func Card(own []money.Row) (*money.Card, error) {
	rows, err := builtinRows()
	if err != nil {
		return nil, fmt.Errorf("built-in rate card: %w", err)
	}
	return &money.Card{Rows: own, Under: &money.Card{Rows: rows}}, nil
}
