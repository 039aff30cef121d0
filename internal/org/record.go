package org

import (
	"crypto/sha256"
	"errors"
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

// Key is a stored API key. It contains the hash of the key, never the key.
type Key struct {
	Org       string
	ID        string // unique in its org; the Principal.ID
	Name      string // for display
	Role      Role
	Hash      [sha256.Size]byte // of the key; unique over all orgs
	Hint      string            // the first characters of the key, for display
	Rate      Rate              // limit on all requests with the key
	CreatedAt time.Time
	RevokedAt time.Time // zero while the key is active
}

// MCPServer is a tool server of an org.
type MCPServer struct {
	Org        string
	Name       string // unique in its org
	URL        string
	Command    []string // instead of URL; allowed in the configuration file only
	Env        map[string]string
	Enabled    bool
	Tools      []string // allowlist of tool names; nil = all
	Headers    map[string]string
	Timeout    time.Duration
	MaxRetries int
	Required   bool
	Trust      bool
	Naming     string
	Prefix     string
	Polling    []string
	Reads      []string // tools that only read; overrides what the server declares
	Keyed      []string // tools for which the server honours idempotency keys
	Cache      Cache

	// Declared is true for a server of the configuration file. Only then may
	// Headers and Env refer to environment variables and files of the gateway. It is
	// not stored.
	Declared bool

	Concurrency int // concurrent calls; 0 = the default
	Position    int // order of the org's servers; of two tools with one name, the first is offered
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// Cache selects the tools of a server whose results may be cached. The stores keep its
// JSON.
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

// Storable returns an error if a [Store] must not store s. A command may come from the
// configuration file only.
func (s MCPServer) Storable() error {
	if s.Declared {
		return errors.New("a server declared in the configuration file cannot be stored")
	}
	if len(s.Command) > 0 || len(s.Env) > 0 {
		return errors.New("a command and its environment can only be set in the configuration file")
	}
	return nil
}
