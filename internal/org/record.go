package org

import (
	"crypto/sha256"
	"errors"
	"time"
)

// Record is an org as it is stored. What the configuration file declares is not
// stored: it is applied at every start.
type Record struct {
	ID        string
	Features  []string // plan flags
	Runtime   Runtime
	Unread    []string // settings of the stored runtime that this version does not know and that are not empty
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Key is a caller's key as it is stored: its hash, never the key.
type Key struct {
	Org       string
	ID        string // unique in its org; it is the principal
	Name      string // for people
	Role      Role
	Hash      [sha256.Size]byte // of the key; unique over all orgs
	Hint      string            // the first characters of the key, to recognise it by
	Rate      Rate              // of all that is asked with it
	CreatedAt time.Time
	RevokedAt time.Time // zero while the key works
}

// MCPServer is a tool server that an org has set up.
type MCPServer struct {
	Org        string
	Name       string // unique in its org
	URL        string
	Command    []string // only from the configuration file: instead of URL
	Env        map[string]string
	Enabled    bool
	Tools      []string // the names that may be offered; nil = all
	Headers    map[string]string
	Timeout    time.Duration
	MaxRetries int
	Required   bool
	Trust      bool
	Naming     string
	Prefix     string
	Polling    []string
	Reads      []string // tools that only read, whatever the server says
	Keyed      []string // tools whose server honours idempotency keys
	Cache      Cache

	// Declared says that the server stands in the configuration file: only then
	// may Headers and Env refer to the gateway's variables and files. It is not
	// stored.
	Declared bool

	Concurrency int // calls at a time; 0 = the default
	Position    int // the order of an org's servers, in which the first of two equal names wins
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// Cache says which of a server's results may be used again. The JSON is what the
// stores keep.
type Cache struct {
	Mode  CacheMode `json:"mode,omitempty"`
	Names []string  `json:"names,omitempty"` // for CacheNames, the server's own
}

// CacheMode says how the tools are chosen whose results may be used again.
type CacheMode string

// The cache modes. None but CacheNames chooses a tool that is polled.
const (
	CacheReadOnly CacheMode = ""      // tools that only read, as the server or the org says
	CacheAll      CacheMode = "all"   // also those of which nobody says anything
	CacheNames    CacheMode = "names" // those that are named, and no others
)

// Secret is an entry of an org's vault as it is stored: sealed, so that what
// reads the store cannot read it.
type Secret struct {
	Org       string
	Name      string // unique in its org
	Sealed    []byte // opens for this org and name only; see package secret
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Storable returns an error if a [Store] must not keep s: what starts a process
// comes from the configuration file and from nowhere else.
func (s MCPServer) Storable() error {
	if s.Declared {
		return errors.New("a server of the configuration file is not stored")
	}
	if len(s.Command) > 0 || len(s.Env) > 0 {
		return errors.New("a command and its environment can only be set in the configuration file")
	}
	return nil
}
