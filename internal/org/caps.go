package org

import "fmt"

// Caps bound what one org may keep in the store. They are the operator's; what
// the configuration file declares does not count. A field that is 0 is no cap.
type Caps struct {
	Keys       int // keys that work; as many revoked ones are remembered
	MCPServers int
	Secrets    int
	Handovers  int   // beyond, the oldest is forgotten
	Stored     int64 // bytes of runs and handovers; beyond, no run is opened
}

// CapError says that an org has reached one of its [Caps]; nothing was stored.
type CapError struct {
	What    string // such as "active keys"
	Max     int64  // in the unit of Setting
	Setting string // the key of the configuration that raises the cap
	Advice  string // what the org itself can do; may be empty
}

// Error says what was reached and what to do.
func (e *CapError) Error() string {
	return fmt.Sprintf("the org has reached its limit of %d %s; %sask the operator to raise %s", e.Max, e.What, e.Advice, e.Setting)
}

// The refusals of a [Store] and of a journal that keep to the caps.

// KeysRefused returns the error for one more key.
func (c Caps) KeysRefused() error {
	return &CapError{"active keys", int64(c.Keys), "org_caps.keys", "revoke a key, or "}
}

// MCPServersRefused returns the error for one more MCP server.
func (c Caps) MCPServersRefused() error {
	return &CapError{"MCP servers", int64(c.MCPServers), "org_caps.mcp_servers", "delete a server, or "}
}

// SecretsRefused returns the error for one more secret.
func (c Caps) SecretsRefused() error {
	return &CapError{"secrets", int64(c.Secrets), "org_caps.secrets", "delete a secret, or "}
}

// StoredRefused returns the error for one more run.
func (c Caps) StoredRefused() error {
	return &CapError{"MiB of stored runs", c.Stored >> 20, "org_caps.stored_mib", ""}
}
