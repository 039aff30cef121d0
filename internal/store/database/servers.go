package database

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

const serverColumns = `org, name, settings, position, created_at, updated_at`

// MCPServers implements org.Store.
func (r *Reader) MCPServers(ctx context.Context, orgID string) ([]org.MCPServer, error) {
	servers, err := list(ctx, r.db, scanServer, `SELECT `+serverColumns+` FROM mcp_outbound_servers WHERE org = ? ORDER BY position, name`, orgID)
	return servers, r.wrap("list MCP servers", err)
}

// CreateMCPServer implements org.Store.
func (s *Store) CreateMCPServer(ctx context.Context, m org.MCPServer, by org.Author) error {
	settings, err := encodeServer(m)
	if err != nil {
		return fmt.Errorf("MCP server %s: %w", m.Name, err)
	}
	return s.write(ctx, m.Org, "create an MCP server", "MCP server "+m.Name, func(t *tx) error {
		if err := t.mustExist(m.Org); err != nil {
			return err
		}
		if err := t.checkCap(t.caps.MCPServers, t.caps.MCPServersError, `SELECT count(*) FROM mcp_outbound_servers WHERE org = ?`, m.Org); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO mcp_outbound_servers (org, name, settings, created_at, updated_at, position)
			SELECT ?1, ?2, ?3, ?4, ?5, coalesce(max(position) + 1, 0) FROM mcp_outbound_servers WHERE org = ?1`,
			m.Org, m.Name, settings, millis(m.CreatedAt), millis(m.UpdatedAt))
		if err != nil {
			return err
		}
		return t.record(m.Org, by, by.MCPServerChanged(nil, &m))
	})
}

// UpdateMCPServer implements org.Store.
func (s *Store) UpdateMCPServer(ctx context.Context, was, m org.MCPServer, by org.Author) error {
	settings, err := encodeServer(m)
	if err != nil {
		return fmt.Errorf("MCP server %s: %w", m.Name, err)
	}
	return s.write(ctx, m.Org, "update an MCP server", "MCP server "+m.Name, func(t *tx) error {
		before, err := t.server(m.Org, m.Name)
		switch {
		case err != nil:
			return err
		case !before.Same(was):
			return org.ErrChanged
		}
		if err := requireFound(t.exec(`UPDATE mcp_outbound_servers SET settings = ?, updated_at = ? WHERE org = ? AND name = ?`,
			settings, millis(m.UpdatedAt), m.Org, m.Name)); err != nil {
			return err
		}
		return t.record(m.Org, by, by.MCPServerChanged(&before, &m))
	})
}

// DeleteMCPServer implements org.Store.
func (s *Store) DeleteMCPServer(ctx context.Context, orgID, name string, by org.Author) error {
	return s.write(ctx, orgID, "delete an MCP server", "MCP server "+name, func(t *tx) error {
		before, err := t.server(orgID, name)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`DELETE FROM mcp_outbound_servers WHERE org = ? AND name = ?`, orgID, name)); err != nil {
			return err
		}
		return t.record(orgID, by, by.MCPServerChanged(&before, nil))
	})
}

// server returns the server in the transaction.
func (t *tx) server(orgID, name string) (org.MCPServer, error) {
	return queryOne(t, scanServer, `SELECT `+serverColumns+` FROM mcp_outbound_servers WHERE org = ? AND name = ?`, orgID, name)
}

func encodeServer(m org.MCPServer) (settings string, err error) {
	if err := m.Storable(); err != nil {
		return "", err
	}
	return encode(m)
}

func scanServer(row scanner) (org.MCPServer, error) {
	var m org.MCPServer
	err := row.Scan(&m.Org, &m.Name, asSettings{&m, &m.UnknownSettings}, &m.Position, asTime{&m.CreatedAt}, asTime{&m.UpdatedAt})
	return m, err
}

// switchedOff is a shared server that an org has switched off.
type switchedOff struct{ org, name string }

func scanSwitch(row scanner) (s switchedOff, err error) {
	err = row.Scan(&s.org, &s.name)
	return s, err
}

// ServersOff implements org.Store.
func (r *Reader) ServersOff(ctx context.Context, orgID string) ([]string, error) {
	off, err := list(ctx, r.db, scanText, `SELECT name FROM mcp_servers_off WHERE org = ? ORDER BY name`, orgID)
	return off, r.wrap("list the MCP servers that are switched off", err)
}

// SwitchServer implements org.Store.
func (s *Store) SwitchServer(ctx context.Context, orgID, name string, on bool, by org.Author) error {
	return s.write(ctx, orgID, "switch an MCP server", "MCP server "+name, func(t *tx) error {
		if err := t.mustExist(orgID); err != nil {
			return err
		}
		var isOff bool
		if err := t.queryRow(`SELECT count(*) FROM mcp_servers_off WHERE org = ? AND name = ?`, []any{orgID, name}, &isOff); err != nil || isOff == !on {
			return err
		}
		change := `INSERT INTO mcp_servers_off (org, name) VALUES (?, ?)`
		if on {
			change = `DELETE FROM mcp_servers_off WHERE org = ? AND name = ?`
		}
		if _, err := t.exec(change, orgID, name); err != nil {
			return err
		}
		return t.record(orgID, by, by.ServerSwitched(orgID, name, on))
	})
}
