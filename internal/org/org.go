// Package org says who acts: an org is one isolated customer, a principal is
// the key that acts in it.
package org

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
)

// Role says what a principal may do in its org.
type Role string

// The roles.
const (
	Owner    Role = "owner"
	Admin    Role = "admin"
	Member   Role = "member"
	Approver Role = "approver" // decides, does not run
	Reader   Role = "reader"
)

// MayRun reports whether the role may start runs.
func (r Role) MayRun() bool { return r == Owner || r == Admin || r == Member }

// MaySeeAddresses reports whether the role is told which address the outbound
// policy refused.
func (r Role) MaySeeAddresses() bool { return r == Owner || r == Admin }

// Org is one isolated customer as it is now. It never changes: a change makes a
// new one.
type Org struct {
	ID      string
	Runtime Runtime

	// MCPOutbound is the plan flag of the agent loop.
	MCPOutbound bool

	// Servers are the enabled ones, in configuration order.
	Servers []catalog.Server
}

// LoopActive reports whether chat requests run the loop: one flag and one
// length, decided when the org was made. // A01
func (o *Org) LoopActive() bool { return o.MCPOutbound && len(o.Servers) > 0 }

// StreamMode says what of a loop's rounds a streaming client sees.
type StreamMode string

// The stream modes.
const (
	Live      StreamMode = "live"       // every round's text as it arrives
	FinalOnly StreamMode = "final_only" // the last round's text, in small frames
	Disabled  StreamMode = "disabled"   // JSON, whatever was asked for
)

// Runtime is how an org's runs behave. Empty values leave it to the surface.
type Runtime struct {
	Limits         budget.Limits
	StreamMode     StreamMode
	Parallelism    loop.Parallelism
	AbortOnTool    bool
	Guard          policy.Guard
	ArgValidation  toolexec.Validation
	ResultMaxBytes int
	CatalogTTL     time.Duration
}

// Principal is the key that acts.
type Principal struct {
	ID   string // unique in its org
	Role Role
}

// Caller is who sends a request.
type Caller struct {
	Org       *Org
	Principal Principal
}

// Directory knows the keys. Implemented by app.Directory.
type Directory interface {
	// Authenticate returns who presents the key, or false. It takes the same
	// time for every wrong key.
	Authenticate(key string) (Caller, bool)
}
