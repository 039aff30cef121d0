package database

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const (
	definedColumns = `a.org, a.id, a.version, a.archived_at, a.created_at, a.updated_at, v.definition
		FROM agents a JOIN agent_versions v ON v.org = a.org AND v.agent = a.id AND v.version = a.version`
	versionColumns = `version, principal, created_at, definition FROM `
)

// versionsOf returns the table with the versions of an agent.
func versionsOf(id string) string {
	if strings.HasPrefix(id, agent.Prefix) {
		return "agent_versions"
	}
	return "declared_versions"
}

func scanDefined(row scanner) (a agent.Agent, err error) {
	err = row.Scan(&a.Org, &a.ID, &a.Version, asTime{&a.ArchivedAt}, asTime{&a.CreatedAt}, asTime{&a.UpdatedAt}, asDefinition{&a.Definition, &a.Unsupported})
	return a, err
}

func scanVersion(row scanner) (v agent.Version, err error) {
	err = row.Scan(&v.Number, &v.Principal, asTime{&v.CreatedAt}, asDefinition{&v.Definition, &v.Unsupported})
	return v, err
}

// asDefinition scans the JSON of a definition.
type asDefinition struct {
	to          *agent.Definition
	unsupported *string
}

// Scan implements sql.Scanner.
func (a asDefinition) Scan(value any) (err error) {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("definition column has type %T, want text", value)
	}
	*a.to, *a.unsupported, err = agent.Decode([]byte(text))
	return err
}

// Agents implements agent.Store.
func (r *Reader) Agents(ctx context.Context, orgID string, q agent.Query) ([]agent.Agent, int, error) {
	where, args := `WHERE a.org = ?`, []any{orgID}
	if q.Name != "" {
		where, args = where+` AND a.name = ?`, append(args, q.Name)
	}
	switch q.Archived {
	case agent.NotArchived:
		where += ` AND a.archived_at = 0`
	case agent.OnlyArchived:
		where += ` AND a.archived_at > 0`
	case agent.AllAgents:
	}
	var total int
	if err := r.db.QueryRowContext(ctx, `SELECT count(*) FROM agents a `+where, args...).Scan(&total); err != nil {
		return nil, 0, r.wrap("count agents", err)
	}
	found, err := list(ctx, r.db, scanDefined, `SELECT `+definedColumns+` `+where+` ORDER BY a.created_at DESC, a.id DESC LIMIT ? OFFSET ?`,
		append(args, q.Limit, q.Offset)...)
	return found, total, r.wrap("list agents", err)
}

// Agent implements agent.Store.
func (r *Reader) Agent(ctx context.Context, orgID, id string) (agent.Agent, error) {
	a, err := scanDefined(r.db.QueryRowContext(ctx, `SELECT `+definedColumns+` WHERE a.org = ? AND a.id = ?`, orgID, id))
	if err != nil {
		return agent.Agent{}, fmt.Errorf("agent %s: %w", id, r.wrap("read an agent", orNotFound(err)))
	}
	return a, nil
}

func orNotFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return org.ErrNotFound
	}
	return err
}

// AgentVersions implements agent.Store.
func (r *Reader) AgentVersions(ctx context.Context, orgID, id string, limit, offset int) ([]agent.Version, int, error) {
	var total int
	if err := r.db.QueryRowContext(ctx, `SELECT count(*) FROM `+versionsOf(id)+` WHERE org = ? AND agent = ?`, orgID, id).Scan(&total); err != nil {
		return nil, 0, r.wrap("count versions of an agent", err)
	}
	if total == 0 {
		return nil, 0, fmt.Errorf("agent %s: %w", id, org.ErrNotFound)
	}
	found, err := list(ctx, r.db, scanVersion, `SELECT `+versionColumns+versionsOf(id)+` WHERE org = ? AND agent = ? ORDER BY version DESC LIMIT ? OFFSET ?`, orgID, id, limit, offset)
	return found, total, r.wrap("list versions of an agent", err)
}

// AgentVersion implements agent.Store.
func (r *Reader) AgentVersion(ctx context.Context, orgID, id string, number int) (agent.Version, error) {
	v, err := scanVersion(r.db.QueryRowContext(ctx, `SELECT `+versionColumns+versionsOf(id)+` WHERE org = ? AND agent = ? AND version = ?`, orgID, id, number))
	if err != nil {
		return agent.Version{}, fmt.Errorf("version %d of agent %s: %w", number, id, r.wrap("read a version of an agent", orNotFound(err)))
	}
	return v, nil
}

// DeclareAgents implements agent.Store.
func (s *Store) DeclareAgents(ctx context.Context, orgID string, all []agent.Agent, at time.Time) (out []agent.Agent, err error) {
	err = s.write(ctx, orgID, "declare agents", "agents of "+orgID, func(t *tx) error {
		out = slices.Clone(all)
		if err := t.mustExist(orgID); err != nil {
			return err
		}
		for i := range out {
			if err := t.declareAgent(&out[i], orgID, at); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// declareAgent gives an agent its version.
func (t *tx) declareAgent(a *agent.Agent, orgID string, at time.Time) error {
	latest, err := queryOne(t, scanVersion, `SELECT `+versionColumns+versionsOf(a.ID)+` WHERE org = ? AND agent = ? ORDER BY version DESC LIMIT 1`, orgID, a.ID)
	if err != nil && !errors.Is(err, org.ErrNotFound) {
		return err
	}
	a.Org, a.Version, a.UpdatedAt = orgID, latest.Number, latest.CreatedAt
	if latest.Number > 0 && latest.Unsupported == "" && latest.Equal(a.Definition) {
		return nil
	}
	a.Version, a.UpdatedAt = latest.Number+1, at.UTC().Truncate(time.Millisecond)
	if err := t.addVersion(*a, org.Author{Principal: org.Operator}); err != nil {
		return err
	}
	return t.deleteOutdated(*a)
}

// CreateAgent implements agent.Store.
func (s *Store) CreateAgent(ctx context.Context, a agent.Agent, by org.Author) error {
	a.Version = 1
	return s.write(ctx, a.Org, "create an agent", "agent "+a.Name, func(t *tx) error {
		if err := t.mustExist(a.Org); err != nil {
			return err
		}
		if err := t.checkCap(t.caps.Agents, t.caps.AgentsError, `SELECT count(*) FROM agents WHERE org = ?`, a.Org); err != nil {
			return err
		}
		if err := t.checkTools(a.Org, a.Definition); err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO agents (org, id, name, version, archived_at, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			a.Org, a.ID, a.Name, a.Version, millis(a.ArchivedAt), millis(a.CreatedAt), millis(a.UpdatedAt)); err != nil {
			return err
		}
		if err := t.addVersion(a, by); err != nil {
			return err
		}
		return t.record(a.Org, by, agent.Changed(by, nil, &a))
	})
}

// addVersion stores the version of the agent.
func (t *tx) addVersion(a agent.Agent, by org.Author) error {
	text, err := a.Encode()
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO `+versionsOf(a.ID)+` (org, agent, version, definition, principal, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		a.Org, a.ID, a.Version, string(text), by.Principal, millis(a.UpdatedAt))
	return err
}

// UpdateAgent implements agent.Store.
func (s *Store) UpdateAgent(ctx context.Context, was int, a agent.Agent, by org.Author) error {
	return s.write(ctx, a.Org, "update an agent", "agent "+a.ID, func(t *tx) error {
		before, err := t.agent(a.Org, a.ID)
		switch {
		case err != nil:
			return err
		case before.Version != was:
			return org.ErrChanged
		}
		if err := t.checkTools(a.Org, a.Definition); err != nil {
			return err
		}
		next := before
		next.Version, next.Definition, next.UpdatedAt = was+1, a.Definition, a.UpdatedAt
		if err := requireFound(t.exec(`UPDATE agents SET name = ?, version = ?, updated_at = ? WHERE org = ? AND id = ?`,
			next.Name, next.Version, millis(next.UpdatedAt), a.Org, a.ID)); err != nil {
			return err
		}
		if err := t.addVersion(next, by); err != nil {
			return err
		}
		if err := t.deleteOutdated(next); err != nil {
			return err
		}
		return t.record(a.Org, by, agent.Changed(by, &before, &next))
	})
}

// deleteOutdated deletes the oldest versions of the agent beyond the limits.
func (t *tx) deleteOutdated(a agent.Agent) error {
	type stored struct{ version, size int }
	old, err := queryAll(t, func(row scanner) (v stored, err error) {
		err = row.Scan(&v.version, &v.size)
		return v, err
	}, `SELECT version, octet_length(definition) FROM `+versionsOf(a.ID)+` WHERE org = ? AND agent = ? AND version < ? ORDER BY version`, a.Org, a.ID, a.Version)
	if err != nil {
		return err
	}
	sizes := make([]int, len(old))
	for i, v := range old {
		sizes[i] = v.size
	}
	n := agent.Outdated(sizes)
	if n == 0 {
		return nil
	}
	_, err = t.exec(`DELETE FROM `+versionsOf(a.ID)+` WHERE org = ? AND agent = ? AND version <= ?`, a.Org, a.ID, old[n-1].version)
	return err
}

// agent returns the agent in the transaction.
func (t *tx) agent(orgID, id string) (agent.Agent, error) {
	return queryOne(t, scanDefined, `SELECT `+definedColumns+` WHERE a.org = ? AND a.id = ?`, orgID, id)
}

// ArchiveAgent implements agent.Store.
func (s *Store) ArchiveAgent(ctx context.Context, orgID, id string, at, updated time.Time, by org.Author) error {
	return s.write(ctx, orgID, "archive an agent", "agent "+id, func(t *tx) error {
		before, err := t.agent(orgID, id)
		if err != nil || before.ArchivedAt.IsZero() == at.IsZero() {
			return err
		}
		next := before
		next.ArchivedAt, next.UpdatedAt = at, updated
		if err := requireFound(t.exec(`UPDATE agents SET archived_at = ?, updated_at = ? WHERE org = ? AND id = ?`, millis(at), millis(updated), orgID, id)); err != nil {
			return err
		}
		return t.record(orgID, by, agent.Changed(by, &before, &next))
	})
}

// RemoveAgent implements agent.Store.
func (s *Store) RemoveAgent(ctx context.Context, orgID, id string, by org.Author) error {
	return s.write(ctx, orgID, "delete an agent", "agent "+id, func(t *tx) error {
		before, err := t.agent(orgID, id)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`DELETE FROM agents WHERE org = ? AND id = ?`, orgID, id)); err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM sessions WHERE org = ? AND agent = ?`, orgID, id); err != nil {
			return err
		}
		return t.record(orgID, by, agent.Changed(by, &before, nil))
	})
}

// ChangeSettings implements agent.Store.
func (s *Store) ChangeSettings(ctx context.Context, orgID string, change func(*org.Agents), by org.Author) error {
	return s.write(ctx, orgID, "change settings of agents", "settings", func(t *tx) error {
		var settings map[string]json.RawMessage
		err := orNotFound(t.queryRow(`SELECT runtime FROM orgs WHERE id = ?`, []any{orgID}, asJSON{&settings}))
		var before org.Agents
		if text := settings["agents"]; text != nil {
			err = json.Unmarshal(text, &before)
		}
		if err != nil {
			return fmt.Errorf("org %s: %w", orgID, err)
		}
		after := before
		change(&after)
		if settings["agents"], err = json.Marshal(after); err != nil {
			return err
		}
		runtime, err := encode(settings)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`UPDATE orgs SET runtime = ? WHERE id = ?`, runtime, orgID)); err != nil || before.Same(after) {
			return err
		}
		return t.record(orgID, by, agent.SettingsChanged(by, orgID, before, after))
	})
}
