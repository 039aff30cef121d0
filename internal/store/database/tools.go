package database

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const toolColumns = `org, id, definition, created_at, updated_at FROM tools`

func scanTool(row scanner) (t agent.Tool, err error) {
	var text string
	if err := row.Scan(&t.Org, &t.ID, &text, asTime{&t.CreatedAt}, asTime{&t.UpdatedAt}); err != nil {
		return t, err
	}
	t.ToolDefinition, t.Unsupported, err = agent.DecodeTool([]byte(text))
	return t, err
}

// Tools implements agent.Tools.
func (r *Reader) Tools(ctx context.Context, orgID string, limit, offset int) ([]agent.Tool, int, error) {
	var total int
	if err := r.db.QueryRowContext(ctx, `SELECT count(*) FROM tools WHERE org = ?`, orgID).Scan(&total); err != nil {
		return nil, 0, r.wrap("count tools", err)
	}
	found, err := list(ctx, r.db, scanTool, `SELECT `+toolColumns+` WHERE org = ? ORDER BY name LIMIT ? OFFSET ?`, orgID, limit, offset)
	return found, total, r.wrap("list tools", err)
}

// Tool implements agent.Tools.
func (r *Reader) Tool(ctx context.Context, orgID, id string) (agent.Tool, error) {
	t, err := scanTool(r.db.QueryRowContext(ctx, `SELECT `+toolColumns+` WHERE org = ? AND id = ?`, orgID, id))
	if err != nil {
		return agent.Tool{}, fmt.Errorf("tool %s: %w", id, r.wrap("read a tool", orNotFound(err)))
	}
	return t, nil
}

// ToolNamed implements agent.Tools.
func (r *Reader) ToolNamed(ctx context.Context, orgID, name string) (agent.Tool, error) {
	t, err := scanTool(r.db.QueryRowContext(ctx, `SELECT `+toolColumns+` WHERE org = ? AND name = ?`, orgID, name))
	if err != nil {
		return agent.Tool{}, fmt.Errorf("tool %s: %w", name, r.wrap("read a tool", orNotFound(err)))
	}
	return t, nil
}

// checkTools returns agent.ErrToolMissing if a custom tool of the definition does not exist.
func (t *tx) checkTools(orgID string, d agent.Definition) error {
	for _, id := range d.ToolIDs() {
		switch _, err := t.tool(orgID, id); {
		case errors.Is(err, org.ErrNotFound):
			return fmt.Errorf("tool %s: %w", id, agent.ErrToolMissing)
		case err != nil:
			return err
		}
	}
	return nil
}

// checkUnused returns an *agent.ToolInUseError if an agent has the tool.
func (t *tx) checkUnused(m agent.Tool) error {
	scanName := func(row scanner) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	}
	names, err := queryAll(t, scanName, `SELECT a.name FROM agents a JOIN agent_versions v ON v.org = a.org AND v.agent = a.id AND v.version = a.version,
		json_each(v.definition, '$.tools') e WHERE a.org = ? AND json_extract(e.value, '$.tool_id') = ? ORDER BY a.name LIMIT 1`, m.Org, m.ID)
	if err != nil || len(names) == 0 {
		return err
	}
	return &agent.ToolInUseError{Tool: m.Name, Agent: names[0]}
}

// tool returns the tool in the transaction.
func (t *tx) tool(orgID, id string) (agent.Tool, error) {
	return queryOne(t, scanTool, `SELECT `+toolColumns+` WHERE org = ? AND id = ?`, orgID, id)
}

// CreateTool implements agent.Tools.
func (s *Store) CreateTool(ctx context.Context, m agent.Tool, by org.Author) error {
	return s.write(ctx, m.Org, "create a tool", "tool "+m.Name, func(t *tx) error {
		if err := t.mustExist(m.Org); err != nil {
			return err
		}
		if err := t.checkCap(t.caps.Tools, t.caps.ToolsError, `SELECT count(*) FROM tools WHERE org = ?`, m.Org); err != nil {
			return err
		}
		text, err := m.Encode()
		if err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO tools (org, id, name, definition, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)`,
			m.Org, m.ID, m.Name, string(text), millis(m.CreatedAt), millis(m.UpdatedAt)); err != nil {
			return err
		}
		return t.record(m.Org, by, agent.ToolChanged(by, nil, &m))
	})
}

// UpdateTool implements agent.Tools.
func (s *Store) UpdateTool(ctx context.Context, was, m agent.Tool, by org.Author) error {
	return s.write(ctx, m.Org, "update a tool", "tool "+m.ID, func(t *tx) error {
		before, err := t.tool(m.Org, m.ID)
		switch {
		case err != nil:
			return err
		case !before.Equal(was.ToolDefinition):
			return org.ErrChanged
		}
		if before.Name != m.Name {
			if err := t.checkUnused(before); err != nil {
				return err
			}
		}
		next := before
		next.ToolDefinition, next.UpdatedAt = m.ToolDefinition, m.UpdatedAt
		text, err := next.Encode()
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`UPDATE tools SET name = ?, definition = ?, updated_at = ? WHERE org = ? AND id = ?`,
			next.Name, string(text), millis(next.UpdatedAt), m.Org, m.ID)); err != nil {
			return err
		}
		return t.record(m.Org, by, agent.ToolChanged(by, &before, &next))
	})
}

// RemoveTool implements agent.Tools.
func (s *Store) RemoveTool(ctx context.Context, orgID, id string, by org.Author) error {
	return s.write(ctx, orgID, "delete a tool", "tool "+id, func(t *tx) error {
		before, err := t.tool(orgID, id)
		if err != nil {
			return err
		}
		if err := t.checkUnused(before); err != nil {
			return err
		}
		if err := requireFound(t.exec(`DELETE FROM tools WHERE org = ? AND id = ?`, orgID, id)); err != nil {
			return err
		}
		return t.record(orgID, by, agent.ToolChanged(by, &before, nil))
	})
}
