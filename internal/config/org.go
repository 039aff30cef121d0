package config

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// MCPOutbound is the feature that turns the agent loop on for an org. The file
// may also call it has_mcp_outbound; here it always has this name.
const MCPOutbound = "mcp_outbound"

// Org is one isolated customer.
type Org struct {
	ID         string
	Features   []string
	Keys       []Key
	Runtime    Runtime
	MCPServers []MCPServer // in configuration order, which decides name collisions
}

// Key is a credential that callers of an org present.
type Key struct {
	Name string
	Key  secret.Text
	Role string // owner, admin, member, approver or reader

	RequestsPerMinute int // 0 = no limit
	Burst             int // 0 = as many as RequestsPerMinute
}

// Runtime is how an org's runs behave. Where a pointer is nil or a word is
// empty, each surface has a default of its own.
type Runtime struct {
	MaxRounds           *int
	MaxCalls            *int
	Deadline            time.Duration // of active time
	Concurrency         int           // runs at a time
	StreamMode          string
	ToolParallelism     string
	ToolCacheTTLSeconds int           // 0 is off
	CatalogTTL          time.Duration // 0 asks the servers on every run
	ToolResultMaxBytes  *int
	ToolArgValidation   string
	ToolErrorMode       string
	OnLimit             string // may be empty
	DoomLoop            string // may be empty
	DoomThreshold       int
	DroppedParams       string
	MaxRunTokens        *int
	Durable             string
	RequestsPerMinute   int // 0 = no limit
	Burst               int // 0 = as many as RequestsPerMinute
	Extensions          []string
}

// MCPServer is a server whose tools an org's runs get. Exactly one of URL and
// Command is set.
type MCPServer struct {
	Name            string
	URL             string
	Command         []string
	Env             map[string]secret.Text
	Enabled         bool
	Tools           Tools
	Headers         map[string]secret.Text // by canonical header name
	RequireApproval Approval
	Timeout         time.Duration // of a discovery and of each call
	Required        bool
	Trust           bool
	Cache           Cache
	Naming          string
	Prefix          string // for naming prefixed; empty: from the server's name
	MaxRetries      int
	Polling         []string
	Reads           []string // tools that only read
	Keyed           []string // tools whose server honours idempotency keys
	Concurrency     int      // calls at a time
}

// Tools says which of a server's tools are offered.
type Tools struct {
	All   bool
	Names []string // used when All is false; empty offers none
}

// Cache says which results of a server's tools may be cached.
type Cache struct {
	Mode  string   // read_only, all or names
	Names []string // for names
}

// Approval says which calls of a server's tools wait for a human.
type Approval struct {
	Mode   string      // never, always or rules
	Always *ToolFilter // for rules: these wait
	Never  *ToolFilter // for rules: these do not
}

// ToolFilter selects tools: those named and those that are read-only, or not.
type ToolFilter struct {
	ToolNames []string
	ReadOnly  *bool
}
