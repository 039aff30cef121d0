package org

import "fmt"

// Caps are the operator's limits on what one org may store. Objects declared in the
// configuration file do not count. A field of 0 is no limit.
type Caps struct {
	Keys       int // active keys; the store remembers as many revoked ones
	MCPServers int
	Secrets    int
	Webhooks   int
	Agents     int   // archived ones included
	Tools      int   // custom tools of agents
	Sessions   int   // of agents
	Deliveries int   // messages for webhooks that wait; beyond it the oldest is given up
	Approvals  int   // that wait; see also KeyApprovals
	Handovers  int   // beyond it the oldest is deleted
	Responses  int   // stored responses, conversations and additions to them; beyond it the oldest is deleted
	Files      int   // in buckets on the gateway's disk
	FileBytes  int64 // of these files together
	Stored     int64 // bytes of runs and conversations; beyond it new runs are refused
}

// CapError reports that an org has reached one of its [Caps]. Nothing was stored.
type CapError struct {
	Whose   string // such as "the org"
	What    string // such as "active keys"
	Max     int64  // in the unit of Setting
	Setting string // configuration key of the limit
	Advice  string // what the org can do, such as "revoke a key, or "; may be ""

	// Quota says that the caller is told of a quota that is used up (429 insufficient_quota), as by the stores of models;
	// false = of a conflict with what is there (409 cap_reached).
	Quota bool
}

// Error names the limit and the remedy.
func (e *CapError) Error() string {
	return fmt.Sprintf("%s has reached its limit of %d %s; %sask the operator to raise %s", e.Whose, e.Max, e.What, e.Advice, e.Setting)
}

// KeysError returns the error for one more key.
func (c Caps) KeysError() error {
	return &CapError{"the org", "active keys", int64(c.Keys), "org_caps.keys", "revoke a key, or ", false}
}

// MCPServersError returns the error for one more MCP server.
func (c Caps) MCPServersError() error {
	return &CapError{"the org", "MCP servers", int64(c.MCPServers), "org_caps.mcp_servers", "delete a server, or ", false}
}

// SecretsError returns the error for one more secret.
func (c Caps) SecretsError() error {
	return &CapError{"the org", "secrets", int64(c.Secrets), "org_caps.secrets", "delete a secret, or ", false}
}

// WebhooksError returns the error for one more webhook.
func (c Caps) WebhooksError() error {
	return &CapError{"the org", "webhooks", int64(c.Webhooks), "org_caps.webhooks", "remove a webhook, or ", false}
}

// AgentsError returns the error for one more agent.
func (c Caps) AgentsError() error {
	return &CapError{"the org", "agents", int64(c.Agents), "org_caps.agents", "delete an agent, or ", false}
}

// ToolsError returns the error for one more custom tool.
func (c Caps) ToolsError() error {
	return &CapError{"the org", "custom tools", int64(c.Tools), "org_caps.tools", "delete a tool, or ", true}
}

// SessionsError returns the error for one more session.
func (c Caps) SessionsError() error {
	return &CapError{"the org", "sessions", int64(c.Sessions), "org_caps.sessions", "delete a session, or ", true}
}

// KeySessions is how many of the org's sessions may be of one key: half of them, rounded up. 0 = no limit.
func (c Caps) KeySessions() int { return (c.Sessions + 1) / 2 }

// KeySessionsError returns the error for one more session of the key.
func (c Caps) KeySessionsError() error {
	return &CapError{"the key", "sessions, half of what its org may have", int64(c.KeySessions()), "org_caps.sessions", "delete a session, or ", true}
}

// CheckKeyFiles returns the error for a file of this size in addition to the files that a key has, or nil.
// A key may have half of what the caps allow, rounded up.
func (c Caps) CheckKeyFiles(files, bytes, size int64) error {
	switch most, mostBytes := (int64(c.Files)+1)/2, (c.FileBytes+1)/2; {
	case most > 0 && files >= most:
		return &CapError{"the key", "files, half of what its org may have", most, "org_caps.files", "delete a file, or ", false}
	case mostBytes > 0 && bytes+size > mostBytes:
		return &CapError{"the key", "bytes of files, half of what its org may have", mostBytes, "org_caps.files_mib", "delete a file, or ", false}
	}
	return nil
}

// DeliveriesError returns the error for one more message that waits, when a person asks for it.
func (c Caps) DeliveriesError() error {
	const advice = "wait until some are delivered, or "
	return &CapError{"the org", "waiting messages", int64(c.Deliveries), "org_caps.webhook_deliveries", advice, false}
}

// ApprovalsError returns the error for one more approval that waits.
func (c Caps) ApprovalsError() error {
	return &CapError{"the org", "waiting approvals", int64(c.Approvals), "org_caps.approvals", "decide those that wait, or ", false}
}

// KeyApprovals is how many of the org's approvals may be of runs of one key: half of them, so that one
// key cannot use up the room of the others. 0 = no limit.
func (c Caps) KeyApprovals() int { return (c.Approvals + 1) / 2 }

// KeyApprovalsError returns the error for one more approval of a run of the key that waits.
func (c Caps) KeyApprovalsError() error {
	return &CapError{"the key", "waiting approvals, half of what its org may have", int64(c.KeyApprovals()), "org_caps.approvals", "decide those that wait, or ", false}
}

// StoredError returns the error for one more run.
func (c Caps) StoredError() error {
	return &CapError{"the org", "MiB of stored runs", c.Stored >> 20, "org_caps.stored_mib", "", true}
}
