package config

import (
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// MCPOutbound is the feature that enables the agent loop of an org. The file may
// also call it has_mcp_outbound; in a [Config] it always has this name.
const MCPOutbound = "mcp_outbound"

// Org is one isolated customer.
type Org struct {
	ID         string
	Features   []string
	Keys       []Key
	Runtime    org.Runtime
	MCPServers []org.MCPServer // in configuration order, which decides collisions of tool names
	HTTPTools  []org.HTTPTool
	Webhooks   []Webhook
	Agents     []Agent
}

// loop reports whether the org has the agent loop.
func (o Org) loop() bool {
	return slices.Contains(o.Features, MCPOutbound) || slices.Contains(o.Features, "has_"+MCPOutbound)
}

// Webhook is a webhook of an org.
type Webhook struct {
	Name           string
	URL            string
	Events         []string
	Secret         secret.Text
	SecretPrevious secret.Text // empty: there is none
	Enabled        bool
}

// Key is an API key of callers of an org.
type Key struct {
	Name string
	Key  secret.Text
	Role org.Role
	Rate org.Rate

	Access    org.Access
	ExpiresAt time.Time // zero = never
}
