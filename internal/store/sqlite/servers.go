package sqlite

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

const serverColumns = `org, name, url, enabled, tools, headers, timeout_ms, max_retries,
	required, trust, naming, prefix, polling, reads, keyed, cache, concurrency, position, created_at, updated_at`

// MCPServers implements org.Store.
func (r *Reader) MCPServers(ctx context.Context, orgID string) ([]org.MCPServer, error) {
	servers, err := list(ctx, r.db, scanServer, `SELECT `+serverColumns+` FROM mcp_outbound_servers WHERE org = ? ORDER BY position, name`, orgID)
	return servers, r.wrap("list MCP servers", err)
}

// CreateMCPServer implements org.Store.
func (s *Store) CreateMCPServer(ctx context.Context, m org.MCPServer, by org.Author) error {
	e, err := encodeServer(m)
	if err != nil {
		return fmt.Errorf("MCP server %s: %w", m.Name, err)
	}
	return s.write(ctx, "create an MCP server", "MCP server "+m.Name, func(t *tx) error {
		if err := t.mustExist(m.Org); err != nil {
			return err
		}
		if err := t.checkCap(t.caps.MCPServers, t.caps.MCPServersError, `SELECT count(*) FROM mcp_outbound_servers WHERE org = ?`, m.Org); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO mcp_outbound_servers (org, name, url, enabled, tools, headers, timeout_ms, max_retries,
				required, trust, naming, prefix, polling, reads, keyed, cache, concurrency, created_at, updated_at, position)
			SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, coalesce(max(position) + 1, 0)
			FROM mcp_outbound_servers WHERE org = ?1`,
			m.Org, m.Name, m.URL, m.Enabled, e.tools, e.headers, m.Timeout.Milliseconds(), m.MaxRetries,
			m.Required, m.Trust, m.Naming, m.Prefix, e.polling, e.reads, e.keyed, e.cache, m.Concurrency, millis(m.CreatedAt), millis(m.UpdatedAt))
		if err != nil {
			return err
		}
		return t.record(m.Org, by, by.MCPServerChanged(nil, &m))
	})
}

// UpdateMCPServer implements org.Store.
func (s *Store) UpdateMCPServer(ctx context.Context, m org.MCPServer, by org.Author) error {
	e, err := encodeServer(m)
	if err != nil {
		return fmt.Errorf("MCP server %s: %w", m.Name, err)
	}
	return s.write(ctx, "update an MCP server", "MCP server "+m.Name, func(t *tx) error {
		before, err := t.server(m.Org, m.Name)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`UPDATE mcp_outbound_servers SET url = ?, enabled = ?, tools = ?, headers = ?, timeout_ms = ?, max_retries = ?,
				required = ?, trust = ?, naming = ?, prefix = ?, polling = ?, reads = ?, keyed = ?, cache = ?, concurrency = ?, updated_at = ?
			WHERE org = ? AND name = ?`,
			m.URL, m.Enabled, e.tools, e.headers, m.Timeout.Milliseconds(), m.MaxRetries,
			m.Required, m.Trust, m.Naming, m.Prefix, e.polling, e.reads, e.keyed, e.cache, m.Concurrency, millis(m.UpdatedAt), m.Org, m.Name)); err != nil {
			return err
		}
		return t.record(m.Org, by, by.MCPServerChanged(&before, &m))
	})
}

// DeleteMCPServer implements org.Store.
func (s *Store) DeleteMCPServer(ctx context.Context, orgID, name string, by org.Author) error {
	return s.write(ctx, "delete an MCP server", "MCP server "+name, func(t *tx) error {
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

// encodedServer holds the fields of a server that are stored as JSON.
type encodedServer struct{ tools, headers, polling, reads, keyed, cache string }

func encodeServer(m org.MCPServer) (e encodedServer, err error) {
	if err := m.Storable(); err != nil {
		return e, err
	}
	for _, field := range []struct {
		to   *string
		from any
	}{{&e.tools, m.Tools}, {&e.headers, m.Headers}, {&e.polling, m.Polling}, {&e.reads, m.Reads}, {&e.keyed, m.Keyed}, {&e.cache, m.Cache}} {
		if *field.to, err = encode(field.from); err != nil {
			return e, err
		}
	}
	return e, nil
}

func scanServer(row scanner) (org.MCPServer, error) {
	var m org.MCPServer
	err := row.Scan(&m.Org, &m.Name, &m.URL, &m.Enabled, asJSON{&m.Tools}, asJSON{&m.Headers}, asDuration{&m.Timeout}, &m.MaxRetries,
		&m.Required, &m.Trust, &m.Naming, &m.Prefix, asJSON{&m.Polling}, asJSON{&m.Reads}, asJSON{&m.Keyed}, asJSON{&m.Cache}, &m.Concurrency,
		&m.Position, asTime{&m.CreatedAt}, asTime{&m.UpdatedAt})
	return m, err
}
