package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const sessionColumns = `s.org, s.id, s.agent, s.principal, s.pinned, s.snapshot, s.title, s.metadata, s.turns, s.run_id, s.created_at, s.updated_at,
	coalesce(iif(r.finish_reason = '', r.status, r.finish_reason), '') FROM sessions s LEFT JOIN runs r ON r.org = s.org AND r.run_id = s.run_id`

func scanSession(row scanner) (s agent.Session, err error) {
	var snapshot, metadata []byte
	if err := row.Scan(&s.Org, &s.ID, &s.Agent, &s.Principal, &s.Pinned, &snapshot, &s.Title, &metadata, &s.Turns, &s.RunID,
		asTime{&s.CreatedAt}, asTime{&s.UpdatedAt}, &s.State); err != nil {
		return s, err
	}
	err = agent.DecodeSession(&s, snapshot, metadata)
	return s, err
}

// CreateSession implements agent.Sessions.
func (s *Store) CreateSession(ctx context.Context, one agent.Session, declared bool) error {
	snapshot, metadata, err := agent.SessionRow(one)
	if err != nil {
		return err
	}
	body, err := journal.Conversation{}.Encode()
	if err != nil {
		return err
	}
	now := s.now()
	key := journal.ConversationKey{Kind: journal.SessionID, ID: one.ID}.String()
	kept := conversation{org: one.Org, keys: []string{key}, body: string(body), savedAt: now.UnixMilli(), expiresAt: now.Add(journal.Kept).UnixMilli()}
	return s.write(ctx, "create a session", "session", func(t *tx) error {
		if err := t.mustExist(one.Org); err != nil {
			return err
		}
		if !declared {
			if a, err := t.agent(one.Org, one.Agent); err != nil || !a.ArchivedAt.IsZero() {
				return cmpErr(err, org.ErrNotFound)
			}
		}
		if err := t.checkCap(t.caps.Sessions, t.caps.SessionsError, `SELECT count(*) FROM sessions WHERE org = ?`, one.Org); err != nil {
			return err
		}
		if err := t.checkStored(one.Org); err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO sessions (org, id, agent, principal, pinned, snapshot, title, metadata, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, one.Org, one.ID, one.Agent, one.Principal, one.Pinned, string(snapshot), one.Title, string(metadata),
			millis(one.CreatedAt), millis(one.CreatedAt)); err != nil {
			return err
		}
		return kept.insert(t)
	})
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// beginTurn makes the run the next turn of a session.
func (t *tx) beginTurn(key runKey, turn journal.SessionTurn, now int64) error {
	s, err := queryOne(t, scanSession, `SELECT `+sessionColumns+` WHERE s.org = ? AND s.id = ?`, key.org, turn.Session)
	switch {
	case err != nil:
		return fmt.Errorf("session %s: %w", turn.Session, orNotFound(err))
	case turn.Principal != "" && turn.Principal != s.Principal:
		return fmt.Errorf("session %s of another key: %w", turn.Session, org.ErrNotFound)
	case s.Status() != agent.Idle:
		return &journal.SessionBusy{Session: s.ID, RunID: s.RunID}
	}
	var snapshot sql.NullString
	if turn.Snapshot != nil {
		snapshot = sql.NullString{String: string(turn.Snapshot), Valid: true}
	}
	if err := requireFound(t.exec(`UPDATE sessions SET turns = turns + 1, run_id = ?, snapshot = coalesce(?, snapshot), updated_at = max(updated_at, ?) WHERE org = ? AND id = ?`,
		key.run, snapshot, now, key.org, s.ID)); err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO session_turns (org, run_id, session, number, version, rounds, reasoning, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		key.org, key.run, s.ID, s.Turns+1, turn.Version, turn.Rounds, turn.Reasoning, now); err != nil {
		return err
	}
	return t.addInput(key.org, s.ID, turn.Input, key.run, now)
}

// addInput adds an input to the inbox of a session; run is what it is delivered to.
func (t *tx) addInput(orgID, session string, in journal.SessionInput, run string, now int64) error {
	var last int64
	if err := t.queryRow(`SELECT coalesce((SELECT created_at FROM session_inputs WHERE org = ? AND session = ? ORDER BY seq DESC LIMIT 1), 0)`,
		[]any{orgID, session}, &last); err != nil {
		return err
	}
	at := max(now, last+1) // strictly rising, also if the clock was set back
	idempotency := sql.NullString{String: in.Key, Valid: in.Key != ""}
	_, err := t.exec(`INSERT INTO session_inputs (org, session, id, kind, principal, body, key, digest, run_id, created_at, processed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, orgID, session, in.ID, in.Kind, in.Principal, string(in.Body), idempotency, in.Digest, run, at, at)
	return err
}

// Session implements agent.Sessions.
func (r *Reader) Session(ctx context.Context, orgID, id string) (agent.Session, error) {
	s, err := scanSession(r.db.QueryRowContext(ctx, `SELECT `+sessionColumns+` WHERE s.org = ? AND s.id = ?`, orgID, id))
	if err != nil {
		return agent.Session{}, fmt.Errorf("session %s: %w", id, r.wrap("read a session", orNotFound(err)))
	}
	return s, nil
}

// Sessions implements agent.Sessions.
func (r *Reader) Sessions(ctx context.Context, orgID string, q agent.SessionQuery) ([]agent.Session, int, error) {
	where, args := ` WHERE s.org = ? AND s.turns >= ?`, []any{orgID, q.MinTurns}
	add := func(more string, arg any) { where, args = where+more, append(args, arg) }
	if q.Agent != "" {
		add(` AND s.agent = ?`, q.Agent)
	}
	if q.Principal != "" {
		add(` AND s.principal = ?`, q.Principal)
	}
	if q.Search != "" {
		add(` AND instr(lower(s.title), lower(?)) > 0`, q.Search)
	}
	if !q.CreatedAfter.IsZero() {
		add(` AND s.created_at > ?`, millis(q.CreatedAfter))
	}
	if !q.CreatedBefore.IsZero() {
		add(` AND s.created_at < ?`, millis(q.CreatedBefore))
	}
	if q.MaxTurns > 0 {
		add(` AND s.turns <= ?`, q.MaxTurns)
	}
	var total int
	if err := r.db.QueryRowContext(ctx, `SELECT count(*) FROM sessions s`+where, args...).Scan(&total); err != nil {
		return nil, 0, r.wrap("count sessions", err)
	}
	found, err := list(ctx, r.db, scanSession, `SELECT `+sessionColumns+where+` ORDER BY s.updated_at DESC, s.id DESC LIMIT ? OFFSET ?`, append(args, q.Limit, q.Offset)...)
	return found, total, r.wrap("list sessions", err)
}

const turnColumns = `session, run_id, number, version, rounds, reasoning, created_at FROM session_turns`

func scanTurn(row scanner) (t agent.SessionTurn, err error) {
	err = row.Scan(&t.Session, &t.RunID, &t.Number, &t.Version, &t.Rounds, &t.Reasoning, asTime{&t.CreatedAt})
	return t, err
}

// SessionTurns implements agent.Sessions.
func (r *Reader) SessionTurns(ctx context.Context, orgID, id string, limit, offset int) ([]agent.SessionTurn, int, error) {
	var total int
	if err := r.db.QueryRowContext(ctx, `SELECT count(*) FROM session_turns WHERE org = ? AND session = ?`, orgID, id).Scan(&total); err != nil {
		return nil, 0, r.wrap("count turns of a session", err)
	}
	found, err := list(ctx, r.db, scanTurn, `SELECT `+turnColumns+` WHERE org = ? AND session = ? ORDER BY number DESC LIMIT ? OFFSET ?`, orgID, id, limit, offset)
	return found, total, r.wrap("list turns of a session", err)
}

// TurnOf implements agent.Sessions.
func (r *Reader) TurnOf(ctx context.Context, orgID, runID string) (agent.Session, agent.SessionTurn, error) {
	t, err := scanTurn(r.db.QueryRowContext(ctx, `SELECT `+turnColumns+` WHERE org = ? AND run_id = ?`, orgID, runID))
	if err != nil {
		return agent.Session{}, t, fmt.Errorf("run %s of a session: %w", runID, r.wrap("read a turn", orNotFound(err)))
	}
	s, err := r.Session(ctx, orgID, t.Session)
	return s, t, err
}

// SessionInputs implements agent.Sessions.
func (r *Reader) SessionInputs(ctx context.Context, orgID, id string, limit, offset int) ([]agent.Input, error) {
	found, err := list(ctx, r.db, func(row scanner) (in agent.Input, err error) {
		var body []byte
		err = row.Scan(&in.ID, &in.Kind, &in.Principal, &body, &in.Key, &in.Digest, &in.RunID, asTime{&in.CreatedAt}, asTime{&in.ProcessedAt})
		in.Body = body
		return in, err
	}, `SELECT id, kind, principal, body, coalesce(key, ''), digest, run_id, created_at, coalesce(processed_at, 0) FROM session_inputs
		WHERE org = ? AND session = ? ORDER BY seq LIMIT ? OFFSET ?`, orgID, id, limit, offset)
	return found, r.wrap("list inputs of a session", err)
}

// RemoveSession implements agent.Sessions.
func (s *Store) RemoveSession(ctx context.Context, orgID, id string, unused bool) error {
	return s.write(ctx, "delete a session", "session "+id, func(t *tx) error {
		n, err := t.exec(`DELETE FROM sessions WHERE org = ? AND id = ? AND (turns = 0 OR NOT ?)`, orgID, id, unused)
		if err == nil && n == 0 && !unused {
			return org.ErrNotFound
		}
		return err
	})
}
