package app

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	policies "github.com/turnpike-gateway/turnpike/internal/settings"
)

// ownServers connects runs of agents with the MCP servers of their agents. It is a run.OwnServers.
type ownServers struct {
	sessions agent.Sessions
	pool     *mcppool.Pool
}

// OwnServers implements run.OwnServers.
func (o ownServers) OwnServers(ctx context.Context, orgID, session string, snapshot json.RawMessage) (servers []catalog.Server, release func(), err error) {
	var s agent.Snapshot
	if snapshot != nil {
		if err := json.Unmarshal(snapshot, &s); err != nil {
			return nil, nil, fmt.Errorf("session %s: snapshot: %w", session, err)
		}
	} else {
		stored, err := o.sessions.Session(ctx, orgID, session)
		if err != nil {
			return nil, nil, err
		}
		s = stored.Snapshot
	}
	var all []func()
	for _, m := range s.MCPServers(orgID) {
		server, release := o.pool.Own(m)
		servers, all = append(servers, server), append(all, release)
	}
	return servers, func() {
		for _, release := range all {
			release()
		}
	}, nil
}

// agentServers returns what the MCP servers of an agent say of approvals.
func agentServers(orgID string, s agent.Snapshot) (out []policies.Server) {
	for _, m := range s.MCPServers(orgID) {
		out = append(out, policies.Server{Name: m.Name, Approval: mcppool.ApprovalRule(m.RequireApproval), ApprovalTimeout: m.ApprovalTimeout, Trust: m.Trust})
	}
	return out
}
