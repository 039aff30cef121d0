package org

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// Record is a stored org. Orgs of the configuration file are not stored: they are read
// at every start.
type Record struct {
	ID              string
	Features        []string // feature flags
	Runtime         Runtime
	UnknownSettings []string // names of stored settings that this version does not know and that are not empty
	CreatedAt       time.Time
	UpdatedAt       time.Time
}

// KeyPrefix begins the ids of keys that are made over the management API. The id of a key that the
// configuration file declares is its name.
const KeyPrefix = "key_"

// Key is a stored API key. It contains the hash of the key, never the key.
type Key struct {
	Org       string
	ID        string // unique in its org; the Principal.ID
	Name      string // for display
	Role      Role
	Hash      [sha256.Size]byte // of the key; unique over all orgs
	Hint      string            // the first characters of the key, for display
	Rate      Rate              // limit on all requests with the key
	Access    Access            // what the key may use
	Previous  PreviousSecret    // before the latest rotation
	CreatedAt time.Time
	ExpiresAt time.Time // zero = never
	RevokedAt time.Time // zero while the key is active
}

// KeyPlace is the place of a key among the keys of its org.
type KeyPlace struct {
	CreatedAt int64 // Unix milliseconds
	ID        string
}

// Place returns the place of the key.
func (k Key) Place() KeyPlace { return KeyPlace{k.CreatedAt.UnixMilli(), k.ID} }

// Compare orders places.
func (p KeyPlace) Compare(q KeyPlace) int {
	return cmp.Or(cmp.Compare(p.CreatedAt, q.CreatedAt), strings.Compare(p.ID, q.ID))
}

// PreviousSecret is the secret of a key that its latest rotation replaced. The zero value is
// none.
type PreviousSecret struct {
	Hash  [sha256.Size]byte
	Hint  string
	Until time.Time // the secret works before this time
}

// Expired reports whether the key has stopped working by itself.
func (k Key) Expired(now time.Time) bool { return !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) }

// Same reports whether two states of an org have the same features and settings:
// [Store.UpdateOrg] requires it.
func (r Record) Same(other Record) bool {
	return sameJSON(r.Features, other.Features) && sameJSON(r.Runtime, other.Runtime)
}

// sameJSON reports whether two values are stored as the same text.
func sameJSON(a, b any) bool {
	one, err := json.Marshal(a)
	if err != nil {
		return false
	}
	other, err := json.Marshal(b)
	return err == nil && bytes.Equal(one, other)
}

// Grant returns what the key may use, how often and how long.
func (k Key) Grant() Grant { return Grant{k.Access, k.Rate, k.ExpiresAt} }

// SameSettings reports whether two states of a key differ in nothing that can be changed:
// [Store.UpdateKey] requires it.
func (k Key) SameSettings(other Key) bool {
	return k.Name == other.Name && k.Role == other.Role && k.Rate == other.Rate && k.Access.Equal(other.Access) &&
		k.ExpiresAt.Equal(other.ExpiresAt) && k.RevokedAt.Equal(other.RevokedAt)
}

// MCPServer is a tool server of an org. Exactly one of URL and Command is set. The JSON
// of an MCPServer has its settings only. The stores keep it, and audit entries show it
// without credentials.
type MCPServer struct {
	Org  string `json:"-"`
	Name string `json:"-"` // unique in its org

	URL                string            `json:"url"`
	Command            []string          `json:"-"` // instead of URL; allowed in the configuration file only
	Env                map[string]string `json:"-"` // of Command; a value may end in a reference
	Enabled            bool              `json:"enabled"`
	Tools              []string          `json:"tools"`               // allowlist of tool names; nil = all
	Headers            map[string]string `json:"headers"`             // by canonical name; a value may end in a reference, see secret.Parse
	RequireApproval    Approval          `json:"require_approval"`    // which calls wait for approval
	ApprovalTimeout    time.Duration     `json:"approval_timeout_ns"` // how long they wait; 0 = DefaultApprovalTimeout
	Timeout            time.Duration     `json:"timeout_ns"`          // of a discovery and of a call
	MaxRetries         int               `json:"max_retries"`         // of a discovery, and of a call that may be repeated
	Required           bool              `json:"required"`            // a run fails if the server is unavailable
	Trust              bool              `json:"trust"`               // believe the server's tool annotations
	Naming             string            `json:"naming"`              // bare, namespaced or prefixed
	Prefix             string            `json:"prefix"`              // for naming prefixed; "" = the server's name
	Polling            []string          `json:"polling"`             // tools that are called repeatedly on purpose
	Reads              []string          `json:"reads"`               // tools that only read; overrides what the server declares
	Keyed              []string          `json:"keyed"`               // tools for which the server honours idempotency keys
	Hosted             []string          `json:"hosted"`              // TYPE=TOOL: this tool answers the hosted tools of the type; see HostedTools
	Cache              Cache             `json:"cache"`
	MaxConcurrentCalls int               `json:"max_concurrent_calls"` // over all runs of the org; 0 = the default

	// Price is what an execution of a tool costs, in 10⁻⁹ US dollars, and ToolPrices what one of
	// these tools costs instead, by the server's own names. nil = nobody has said.
	Price      *int64           `json:"price_nano_usd,omitempty"`
	ToolPrices map[string]int64 `json:"tool_prices_nano_usd,omitempty"`

	// FromFile is true for a server of the configuration file. Only then may
	// Headers and Env refer to environment variables and files of the gateway. It is
	// not stored.
	FromFile bool `json:"-"`

	// Shared is true for a declared server that the file shares among orgs.
	Shared bool `json:"-"`

	// UnknownSettings names the stored settings that this version does not know and
	// that are not empty. A server with any is not used.
	UnknownSettings []string `json:"-"`

	Position  int       `json:"-"` // order of the org's servers; of two tools with one name, the first is offered
	CreatedAt time.Time `json:"-"`
	UpdatedAt time.Time `json:"-"`
}

// HostedTools returns the server's own names of the tools that answer hosted tools, by the
// type of the hosted tool; nil = none.
func (s MCPServer) HostedTools() map[string]string {
	var tools map[string]string
	for _, entry := range s.Hosted {
		kind, name, ok := strings.Cut(entry, "=")
		if !ok {
			continue
		}
		if tools == nil {
			tools = map[string]string{}
		}
		tools[kind] = name
	}
	return tools
}

// Approval selects the calls of a server that wait for a human. The zero Approval
// selects none.
type Approval struct {
	Mode   ApprovalMode `json:"mode,omitempty"`
	Always *ToolFilter  `json:"always,omitempty"` // for ApproveRules: these wait
	Never  *ToolFilter  `json:"never,omitempty"`  // for ApproveRules: these do not, and without Always all others do
}

// ApprovalMode is how the calls are selected.
type ApprovalMode string

// The approval modes.
const (
	ApproveNone   ApprovalMode = ""
	ApproveAll    ApprovalMode = "always"
	ApproveWrites ApprovalMode = "writes" // all tools that are not known to only read
	ApproveRules  ApprovalMode = "rules"
)

// ToolFilter selects tools: those with the names, and those that are read-only, or not.
type ToolFilter struct {
	ToolNames []string `json:"tool_names,omitzero"` // nil = any
	ReadOnly  *bool    `json:"read_only,omitempty"` // nil = either
}

// Cache selects the tools of a server whose results may be cached.
type Cache struct {
	Mode  CacheMode `json:"mode,omitempty"`
	Names []string  `json:"names,omitempty"` // for CacheNames: tool names at the server
}

// CacheMode is how the tools are selected.
type CacheMode string

// The cache modes. Only CacheNames selects polling tools.
const (
	CacheReadOnly CacheMode = ""      // tools that the server or the org declares as read-only
	CacheAll      CacheMode = "all"   // these, and tools without a declaration
	CacheNames    CacheMode = "names" // the tools in Names
)

// Secret is a stored entry of an org's vault. Its value is encrypted.
type Secret struct {
	Org       string
	Name      string // unique in its org
	Sealed    []byte // the encrypted value, bound to Org and Name; see secret.Keyring
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Same reports whether two states of a server have the same settings:
// [Store.UpdateMCPServer] requires it.
func (s MCPServer) Same(other MCPServer) bool { return sameJSON(s, other) }

// Storable returns an error if a [Store] must not store s. A command may come from the
// configuration file only.
func (s MCPServer) Storable() error {
	if s.FromFile {
		return errors.New("a server declared in the configuration file cannot be stored")
	}
	if len(s.Command) > 0 || len(s.Env) > 0 {
		return errors.New("a command and its environment can only be set in the configuration file")
	}
	return nil
}
