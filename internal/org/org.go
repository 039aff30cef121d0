// Package org defines orgs, their keys, servers, secrets and settings, and the [Store]
// that keeps them. An org is an isolated customer (tenant). A principal is the API key
// that makes a request in it.
package org

import "time"

// Role is the set of permissions of a principal in its org.
type Role string

// The roles.
const (
	Owner    Role = "owner"
	Admin    Role = "admin"
	Member   Role = "member"
	Approver Role = "approver" // decides on approvals; may not start runs
	Reader   Role = "reader"   // only reads
	Tools    Role = "tools"    // only calls tools over /mcp
)

// MayRun reports whether the role may start runs.
func (r Role) MayRun() bool { return r == Owner || r == Admin || r == Member }

// MayCallTools reports whether the role may call tools over /mcp.
func (r Role) MayCallTools() bool { return r.MayRun() || r == Tools }

// MayManage reports whether the role may read and change the org's settings.
func (r Role) MayManage() bool { return r == Owner || r == Admin }

// MayRead reports whether the role may read the runs of all keys, the org's settings and its
// audit log.
func (r Role) MayRead() bool { return r.MayManage() || r == Reader }

// MayApprove reports whether the role may decide about tool calls that wait for approval.
func (r Role) MayApprove() bool { return r == Owner || r == Admin || r == Approver }

// MaySeeAddresses reports whether errors for the role may contain the address that the
// outbound policy refused.
func (r Role) MaySeeAddresses() bool { return r == Owner || r == Admin }

// Org is the current configuration of an org. It is immutable: a change creates a new
// Org.
type Org struct {
	ID        string
	CreatedAt time.Time // of its record: an org that is created again has another one
	Runtime   Runtime

	// MCPOutbound is the feature flag that enables the agent loop.
	MCPOutbound bool

	// Unsupported names the stored settings that this version does not support;
	// "" = none. Unless it is "", no request may reach a model.
	Unsupported string
}

// Principal is the API key that makes a request.
type Principal struct {
	ID        string // unique in its org
	Role      Role
	Rate      Rate      // limit on all requests with the key
	Access    Access    // what the key may use
	ExpiresAt time.Time // of the secret that was sent; zero = never
}

// Expired reports whether requests with the key are refused.
func (p Principal) Expired(now time.Time) bool {
	return !p.ExpiresAt.IsZero() && !now.Before(p.ExpiresAt)
}

// Grant returns what the key may use, how often and how long.
func (p Principal) Grant() Grant { return Grant{p.Access, p.Rate, p.ExpiresAt} }
