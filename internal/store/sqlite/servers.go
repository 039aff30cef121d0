package sqlite

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// MCPServers implements org.Store.
func (r *Reader) MCPServers(ctx context.Context, orgID string) ([]org.MCPServer, error) {
	servers, err := list(ctx, r.db, scanServer, `SELECT org, name, url, enabled, tools, headers, timeout_ms, max_retries,
			required, trust, naming, prefix, polling, position, created_at, updated_at
		FROM mcp_outbound_servers WHERE org = ? ORDER BY position, name`, orgID)
	return servers, wrap("list MCP servers", err)
}

// CreateMCPServer implements org.Store.
func (s *Store) CreateMCPServer(ctx context.Context, m org.MCPServer) error {
	tools, headers, polling, err := encodeServer(m)
	if err != nil {
		return fmt.Errorf("MCP server %s: %w", m.Name, err)
	}
	return s.change(ctx, "create an MCP server", "MCP server "+m.Name, func(t *tx) error {
		if err := t.mustExist(m.Org); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO mcp_outbound_servers (org, name, url, enabled, tools, headers, timeout_ms, max_retries,
				required, trust, naming, prefix, polling, created_at, updated_at, position)
			SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, coalesce(max(position) + 1, 0)
			FROM mcp_outbound_servers WHERE org = ?1`,
			m.Org, m.Name, m.URL, m.Enabled, tools, headers, m.Timeout.Milliseconds(), m.MaxRetries,
			m.Required, m.Trust, m.Naming, m.Prefix, polling, millis(m.CreatedAt), millis(m.UpdatedAt))
		return err
	})
}

// UpdateMCPServer implements org.Store.
func (s *Store) UpdateMCPServer(ctx context.Context, m org.MCPServer) error {
	tools, headers, polling, err := encodeServer(m)
	if err != nil {
		return fmt.Errorf("MCP server %s: %w", m.Name, err)
	}
	return s.change(ctx, "update an MCP server", "MCP server "+m.Name, func(t *tx) error {
		return found(t.exec(`UPDATE mcp_outbound_servers SET url = ?, enabled = ?, tools = ?, headers = ?, timeout_ms = ?, max_retries = ?,
				required = ?, trust = ?, naming = ?, prefix = ?, polling = ?, updated_at = ?
			WHERE org = ? AND name = ?`,
			m.URL, m.Enabled, tools, headers, m.Timeout.Milliseconds(), m.MaxRetries,
			m.Required, m.Trust, m.Naming, m.Prefix, polling, millis(m.UpdatedAt), m.Org, m.Name))
	})
}

// DeleteMCPServer implements org.Store.
func (s *Store) DeleteMCPServer(ctx context.Context, orgID, name string) error {
	return s.change(ctx, "delete an MCP server", "MCP server "+name, func(t *tx) error {
		return found(t.exec(`DELETE FROM mcp_outbound_servers WHERE org = ? AND name = ?`, orgID, name))
	})
}

func encodeServer(m org.MCPServer) (tools, headers, polling string, err error) {
	if err := m.Storable(); err != nil {
		return "", "", "", err
	}
	if tools, err = encode(m.Tools); err != nil {
		return "", "", "", err
	}
	if headers, err = encode(m.Headers); err != nil {
		return "", "", "", err
	}
	polling, err = encode(m.Polling)
	return tools, headers, polling, err
}

func scanServer(row scanner) (org.MCPServer, error) {
	var m org.MCPServer
	err := row.Scan(&m.Org, &m.Name, &m.URL, &m.Enabled, asJSON{&m.Tools}, asJSON{&m.Headers}, asDuration{&m.Timeout}, &m.MaxRetries,
		&m.Required, &m.Trust, &m.Naming, &m.Prefix, asJSON{&m.Polling}, &m.Position, asTime{&m.CreatedAt}, asTime{&m.UpdatedAt})
	return m, err
}
