package run

import (
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Caller is who sends a request, with what their org has at that moment.
type Caller struct {
	Org       *org.Org
	Principal org.Principal
	Servers   []catalog.Server // the enabled ones, in configuration order

	// RequestID names the request, as its answer does; "" = it has no name yet.
	RequestID string

	// Account is charged with what this request makes the gateway retain; nil =
	// nothing is counted. It is closed when the request has been answered: a run
	// that outlives it holds it, too.
	Account *ledger.Account
}

// LoopActive reports whether chat requests run the loop: the plan flag, and a
// server to get tools from.
func (c Caller) LoopActive() bool { return c.Org.MCPOutbound && len(c.Servers) > 0 }
