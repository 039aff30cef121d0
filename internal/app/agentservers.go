package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	builtins "github.com/turnpike-gateway/turnpike/internal/builtin/make"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	policies "github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/surface/agents"
	"github.com/turnpike-gateway/turnpike/tool"
)

// ownServers connects runs of agents with the tools and MCP servers of their agents. It is a run.OwnServers.
type ownServers struct {
	sessions agent.Sessions
	pool     *mcppool.Pool
	builtins *builtins.Builtins
}

// OwnServers implements run.OwnServers.
func (o ownServers) OwnServers(ctx context.Context, orgID, runID string, snapshot json.RawMessage) (servers []catalog.Server, release func(), err error) {
	var s agent.Snapshot
	if snapshot != nil {
		if err := json.Unmarshal(snapshot, &s); err != nil {
			return nil, nil, fmt.Errorf("run %s: snapshot of its agent: %w", runID, err)
		}
	} else {
		session, turn, err := o.sessions.TurnOf(ctx, orgID, runID)
		if err != nil {
			return nil, nil, err
		}
		if s = session.Snapshot; turn.Snapshot != nil {
			s = *turn.Snapshot
		}
	}
	var all []func()
	if len(s.Tools)+len(s.Builtins) > 0 { // the first: no MCP server can take the name of such a tool
		tools, prices := o.builtins.Own(orgID, s.Builtins)
		one := o.pool.OwnTools(orgID, agent.ToolServer, tools, s.HTTPTools(orgID))
		one.Prices = prices
		servers = append(servers, one)
	}
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

// agentServers implements agents.Servers.
type agentServers struct{ *App }

// Approvals returns what the MCP servers of an agent, and its tools, say of approvals.
func (a agentServers) Approvals(orgID string, s agent.Snapshot) (out []policies.Server) {
	if len(s.Tools)+len(s.Builtins) > 0 {
		said := a.builtins.Said(orgID, s.Builtins)
		out = append(out, policies.Server{
			Name: agent.ToolServer, Trust: true, Approval: policy.Approval{Always: mcppool.AskingTools(said, org.BuiltinTool.Settings)}, MaxUses: builtins.MaxUses(said),
		})
	}
	for _, m := range s.MCPServers(orgID) {
		out = append(out, policies.Server{Name: m.Name, Approval: mcppool.ApprovalRule(m.RequireApproval), ApprovalTimeout: m.ApprovalTimeout, Trust: m.Trust})
	}
	return out
}

// Tools returns the tools of MCP servers that runs of an agent with these servers of its own get.
func (a agentServers) Tools(ctx context.Context, caller caller.Caller, own []org.MCPServer) (agents.Tools, error) {
	var servers []catalog.Server
	var releases []func()
	defer func() {
		for _, release := range releases {
			release()
		}
	}()
	if caller.Org.MCPOutbound {
		for _, m := range own {
			server, release := a.pool.Own(m)
			servers, releases = append(servers, server), append(releases, release)
		}
		servers = append(servers, slices.DeleteFunc(slices.Clone(caller.Servers), func(s catalog.Server) bool {
			return slices.ContainsFunc(own, func(m org.MCPServer) bool { return m.Name == s.Name })
		})...)
	}
	set, err := a.catalog.For(ctx, caller.Org.ID, servers, caller.Org.Runtime.CatalogTTL)
	if failed := new(catalog.ServerError); errors.As(err, &failed) {
		none := func(func(name, own string) bool) bool { return false }
		return agents.Tools{Selects: none, Unavailable: []string{failed.Server}}, nil
	} else if err != nil {
		return agents.Tools{}, err
	}
	return agents.Tools{Selects: set.Selects, Unavailable: set.Unavailable()}, nil
}

// List asks an MCP server for its tools, with a connection of its own.
func (a agentServers) List(ctx context.Context, s org.MCPServer) ([]tool.Tool, string, error) {
	client := a.pool.Connect(s)
	defer func() { _ = client.Close() }() // a session that was not ended ends by itself
	found, err := client.List(ctx)
	return found, client.Status().Error, err
}

// agentOrgs implements agents.Orgs.
type agentOrgs struct {
	*directory.Directory
	app *App
}

// Declared implements agents.Orgs.
func (a agentOrgs) Declared(orgID string) []agent.Agent { return a.app.live.agentsOf(orgID) }

// MissingFor implements agents.Orgs.
func (a agentOrgs) MissingFor(ctx context.Context, orgID, tool string) string {
	return a.app.builtins.MissingFor(ctx, orgID, tool)
}

// SessionDeleted implements agents.Orgs.
func (a agentOrgs) SessionDeleted(orgID, session string) { a.app.sessionDeleted(orgID, session) }
