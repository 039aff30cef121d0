package org

import "fmt"

// Caps are the operator's limits on what one org may store. Objects declared in the
// configuration file do not count. A field of 0 is no limit.
type Caps struct {
	Keys       int // active keys; the store remembers as many revoked ones
	MCPServers int
	Secrets    int
	Approvals  int   // that wait
	Handovers  int   // beyond it the oldest is deleted
	Responses  int   // stored responses, conversations and additions to them; beyond it the oldest is deleted
	Stored     int64 // bytes of runs and conversations; beyond it new runs are refused
}

// CapError reports that an org has reached one of its [Caps]. Nothing was stored.
type CapError struct {
	What    string // such as "active keys"
	Max     int64  // in the unit of Setting
	Setting string // configuration key of the limit
	Advice  string // what the org can do, such as "revoke a key, or "; may be ""
}

// Error names the limit and the remedy.
func (e *CapError) Error() string {
	return fmt.Sprintf("the org has reached its limit of %d %s; %sask the operator to raise %s", e.Max, e.What, e.Advice, e.Setting)
}

// KeysError returns the error for one more key.
func (c Caps) KeysError() error {
	return &CapError{"active keys", int64(c.Keys), "org_caps.keys", "revoke a key, or "}
}

// MCPServersError returns the error for one more MCP server.
func (c Caps) MCPServersError() error {
	return &CapError{"MCP servers", int64(c.MCPServers), "org_caps.mcp_servers", "delete a server, or "}
}

// SecretsError returns the error for one more secret.
func (c Caps) SecretsError() error {
	return &CapError{"secrets", int64(c.Secrets), "org_caps.secrets", "delete a secret, or "}
}

// ApprovalsError returns the error for one more approval that waits.
func (c Caps) ApprovalsError() error {
	return &CapError{"waiting approvals", int64(c.Approvals), "org_caps.approvals", "decide those that wait, or "}
}

// StoredError returns the error for one more run.
func (c Caps) StoredError() error {
	return &CapError{"MiB of stored runs", c.Stored >> 20, "org_caps.stored_mib", ""}
}
