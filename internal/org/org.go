// Package org says who acts and what they have set up: an org is one isolated
// customer, a principal is the key that acts in it. It is data only; the ports
// over it are implemented by the stores.
package org

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

// MayManage reports whether the role may see and change the org's settings.
func (r Role) MayManage() bool { return r == Owner || r == Admin }

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

	// Refused says what the stored settings ask for that this version cannot
	// do: no request may go to a model. Empty = nothing.
	Refused string
}

// Principal is the key that acts.
type Principal struct {
	ID   string // unique in its org
	Role Role
	Rate Rate // of all that is asked with it
}
