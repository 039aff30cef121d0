package run

import (
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Caller is who sends a request, with what their org has at that moment.
type Caller struct {
	Org       *org.Org
	Principal org.Principal
	Servers   []catalog.Server // the enabled ones, in configuration order
}

// LoopActive reports whether chat requests run the loop: the plan flag, and a
// server to get tools from. // A01
func (c Caller) LoopActive() bool { return c.Org.MCPOutbound && len(c.Servers) > 0 }
