package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const sessionColumns = `s.org, s.id, s.agent, s.principal, s.pinned, s.snapshot, s.title, s.metadata, s.turns, s.run_id, s.created_at, s.updated_at, s.active_ms, s.cost_nano_usd,
	coalesce(CASE r.finish_reason WHEN '' THEN r.status ELSE r.finish_reason END, '') FROM sessions s LEFT JOIN runs r ON r.org = s.org AND r.run_id = s.run_id`

func scanSession(row scanner) (s agent.Session, err error) {
	var snapshot, metadata []byte
	if err := row.Scan(&s.Org, &s.ID, &s.Agent, &s.Principal, &s.Pinned, &snapshot, &s.Title, &metadata, &s.Turns, &s.RunID,
		asTime{&s.CreatedAt}, asTime{&s.UpdatedAt}, &s.Spent.ActiveMS, &s.Spent.NanoUSD, &s.State); err != nil {
		return s, err
	}
	err = agent.DecodeSession(&s, snapshot, metadata)
	return s, err
}

// checkSessions returns an error if the org, or the key, has too many sessions for one more. Those of the key are
// counted, which no index does, only if the org has that many.
func (t *tx) checkSessions(one agent.Session) error {
	if t.caps.Sessions == 0 {
		return nil
	}
	const ofOrg = `SELECT count(*) FROM sessions WHERE org = ?`
	var all int
	if err := t.queryRow(ofOrg, []any{one.Org}, &all); err != nil {
		return err
	}
	switch {
	case all >= t.caps.Sessions:
		return t.caps.SessionsError()
	case all >= t.caps.KeySessions():
		return t.checkCap(t.caps.KeySessions(), t.caps.KeySessionsError, ofOrg+` AND principal = ?`, one.Org, one.Principal)
	}
	return nil
}

// CreateSession implements agent.Sessions.
func (s *Store) CreateSession(ctx context.Context, one agent.Session, declared bool) error {
	return s.createSession(ctx, one, declared, journal.Conversation{}, func(t *tx, kept conversation) error { return kept.insert(t) })
}

// ForkSession implements agent.Sessions.
func (s *Store) ForkSession(ctx context.Context, one agent.Session, declared bool, f journal.Fork) error {
	f.ID, f.Conversation.Version = one.ID, 0
	return s.createSession(ctx, one, declared, f.Conversation, func(t *tx, kept conversation) error { return t.fork(kept, f) })
}

// createSession stores a session, and its conversation with keep.
func (s *Store) createSession(ctx context.Context, one agent.Session, declared bool, c journal.Conversation, keep func(*tx, conversation) error) error {
	snapshot, metadata, err := agent.SessionRow(one)
	if err != nil {
		return err
	}
	saved := journal.Saved{Conversation: c, TTL: journal.Kept, Keys: []journal.ConversationKey{sessionKey(one.ID)}}
	kept, err := conversationOf(one.Org, "", saved, s.now())
	if err != nil {
		return err
	}
	return s.write(ctx, one.Org, "create a session", "session", func(t *tx) error {
		if err := t.mustExist(one.Org); err != nil {
			return err
		}
		if !declared {
			if a, err := t.agent(one.Org, one.Agent); err != nil || !a.ArchivedAt.IsZero() {
				return cmpErr(err, org.ErrNotFound)
			}
		}
		if err := t.checkSessions(one); err != nil {
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
		return keep(t, kept)
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
	}
	busy := s.RunID // that has not ended; "" = none
	if s.Status() == agent.Idle {
		busy = ""
	}
	if !turn.Queued {
		var current string // also a run that was cancelled before its turn, and has not ended
		err = t.queryRow(`SELECT b.run_id FROM sessions AS s `+unfinishedTurn+` WHERE s.org = ? AND s.id = ? ORDER BY b.number LIMIT 1`, []any{key.org, s.ID}, &current)
		switch {
		case err == nil:
			return &journal.SessionBusy{Session: s.ID, RunID: current}
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
	}
	var snapshot sql.NullString
	if turn.Snapshot != nil {
		snapshot = sql.NullString{String: string(turn.Snapshot), Valid: true}
	}
	if _, err := t.exec(`UPDATE sessions SET turns = turns + 1, updated_at = max(updated_at, ?) WHERE org = ? AND id = ?`, now, key.org, s.ID); err != nil {
		return err
	}
	if !turn.Queued {
		if _, err := t.exec(`UPDATE sessions SET run_id = ?, snapshot = coalesce(?, snapshot) WHERE org = ? AND id = ?`, key.run, snapshot, key.org, s.ID); err != nil {
			return err
		}
		snapshot.Valid = false // the session has it
	}
	if _, err := t.exec(`INSERT INTO session_turns (org, run_id, session, number, version, rounds, reasoning, created_at, snapshot) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		key.org, key.run, s.ID, s.Turns+1, turn.Version, turn.Rounds, turn.Reasoning, now, snapshot); err != nil {
		return err
	}
	if turn.Interrupt != nil && busy != "" {
		if err := t.addInput(key.org, s.ID, *turn.Interrupt, busy, now, false); err != nil {
			return err
		}
	}
	return t.addInput(key.org, s.ID, turn.Input, key.run, now, !turn.Queued)
}

// addInput adds an input to the inbox of a session. run is the run that it is for; with processed it has it.
func (t *tx) addInput(orgID, session string, in journal.SessionInput, run string, now int64, processed bool) error {
	if in.Key != "" {
		var known journal.Submitted
		err := t.queryRow(`SELECT run_id, digest FROM session_inputs WHERE org = ? AND session = ? AND key = ?`, []any{orgID, session, in.Key}, &known.RunID, &known.Hash)
		if err == nil {
			return &known
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	var last int64
	if err := t.queryRow(`SELECT coalesce((SELECT created_at FROM session_inputs WHERE org = ? AND session = ? ORDER BY seq DESC LIMIT 1), 0)`,
		[]any{orgID, session}, &last); err != nil {
		return err
	}
	at := max(now, last+1) // strictly rising, also if the clock was set back
	idempotency, done := sql.NullString{String: in.Key, Valid: in.Key != ""}, sql.NullInt64{Int64: at, Valid: processed}
	_, err := t.exec(`INSERT INTO session_inputs (org, session, id, kind, principal, body, key, digest, run_id, created_at, processed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, orgID, session, in.ID, in.Kind, in.Principal, string(in.Body), idempotency, in.Digest, run, at, done)
	return err
}

// checkDelivered returns why an input cannot be delivered to a run. It is checked before the batch is written, with
// the lock of the session held: a batch that is refused later would take those of the run's owner with it.
func (s *Store) checkDelivered(ctx context.Context, key runKey, d journal.Delivered) error {
	var turns int
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM session_turns WHERE org = ? AND run_id = ? AND session = ?`, key.org, key.run, d.Session).Scan(&turns); err != nil {
		return s.wrap("read a turn", err)
	}
	if turns == 0 {
		return fmt.Errorf("run %s of session %s: %w", key.run, d.Session, org.ErrNotFound)
	}
	if d.Input.Key == "" {
		return nil
	}
	known := new(journal.Submitted)
	err := s.db.QueryRowContext(ctx, `SELECT run_id, digest FROM session_inputs WHERE org = ? AND session = ? AND key = ?`, key.org, d.Session, d.Input.Key).Scan(&known.RunID, &known.Hash)
	switch {
	case err == nil:
		return known
	case errors.Is(err, sql.ErrNoRows):
		return nil
	}
	return s.wrap("read an input", err)
}

// lockInbox locks the inbox of a session, and returns the function that unlocks it.
func (s *Store) lockInbox(orgID, session string) (unlock func()) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(orgID + "\x00" + session)) // never fails
	m := &s.inboxes[h.Sum32()%uint32(len(s.inboxes))]
	m.Lock()
	return m.Unlock
}

// writeInbox stores what the batch changes in the inbox of the session of its run: an input is delivered to it, its
// own input is used when it begins, and nothing waits for it when it is to end.
func (b batch) writeInbox(t *tx, c headChange) error {
	if d := b.delivered; d != nil {
		var turns int
		if err := t.queryRow(`SELECT count(*) FROM session_turns WHERE org = ? AND run_id = ? AND session = ?`, []any{b.key.org, b.key.run, d.Session}, &turns); err != nil || turns == 0 {
			return err // the session was deleted, and its run ends
		}
		return t.addInput(b.key.org, d.Session, d.Input, b.key.run, c.now.UnixMilli(), true)
	}
	if c.from.Seq == 0 || c.to.Summary.Surface != agent.Surface {
		return nil
	}
	begins := slices.ContainsFunc(b.facts, func(f fact) bool { return f.kind == string(loop.KindInputAdded) })
	ends := slices.ContainsFunc(b.facts, func(f fact) bool {
		return f.kind == string(loop.KindCancelRequested) || f.kind == string(loop.KindFinished)
	})
	if !begins && !ends {
		return nil
	}
	if ends {
		if _, err := t.exec(`DELETE FROM orphaned_runs WHERE org = ? AND run_id = ?`, b.key.org, b.key.run); err != nil {
			return err
		}
	}
	if b.spent != (journal.SessionSpent{}) {
		if _, err := t.exec(`UPDATE sessions SET active_ms = active_ms + ?, cost_nano_usd = cost_nano_usd + ? FROM session_turns t
			WHERE t.org = ? AND t.run_id = ? AND sessions.org = t.org AND sessions.id = t.session`, b.spent.ActiveMS, b.spent.NanoUSD, b.key.org, b.key.run); err != nil {
			return err
		}
	}
	n, err := t.exec(`UPDATE session_inputs INDEXED BY session_inputs_of_run SET processed_at = max(created_at, ?) WHERE org = ? AND run_id = ? AND processed_at IS NULL`,
		c.now.UnixMilli(), b.key.org, b.key.run)
	if err != nil || n == 0 || !begins {
		return err
	}
	_, err = t.exec(`UPDATE sessions SET run_id = t.run_id, snapshot = coalesce(t.snapshot, sessions.snapshot), updated_at = max(updated_at, ?1)
		FROM session_turns t WHERE t.org = ?2 AND t.run_id = ?3 AND sessions.org = t.org AND sessions.id = t.session`, c.now.UnixMilli(), b.key.org, b.key.run)
	return err
}

// notItsTurn is true for a queued run q that is a turn of a session of which an earlier turn has not ended.
const notItsTurn = `EXISTS (SELECT 1 FROM session_inputs AS i INDEXED BY session_inputs_of_run WHERE i.org = q.org AND i.run_id = q.run_id AND i.processed_at IS NULL
	AND EXISTS (SELECT 1 FROM sessions AS s ` + unfinishedTurn + ` WHERE s.org = i.org AND s.id = i.session
		AND b.number < (SELECT mine.number FROM session_turns AS mine WHERE mine.org = q.org AND mine.run_id = q.run_id)))`

// unfinishedTurn joins a session s with its turns b that have not ended. Those before the turn that began last have.
const unfinishedTurn = `JOIN session_turns AS b ON b.org = s.org AND b.session = s.id
	AND b.number >= coalesce((SELECT l.number FROM session_turns AS l WHERE l.org = s.org AND l.run_id = s.run_id), 0)
	JOIN runs AS r ON r.org = b.org AND r.run_id = b.run_id AND r.status <> 'done'`

// InterruptedRuns implements journal.Archive.
func (r *Reader) InterruptedRuns(ctx context.Context, limit int) ([]journal.WaitingRun, error) {
	found, err := list(ctx, r.db, func(row scanner) (w journal.WaitingRun, err error) {
		err = row.Scan(&w.Org, &w.RunID, &w.Principal)
		return w, err
	}, `SELECT i.org, i.run_id, i.principal FROM session_inputs AS i INDEXED BY session_inputs_interrupts JOIN runs AS r ON r.org = i.org AND r.run_id = i.run_id
		WHERE i.processed_at IS NULL AND i.kind = 'interrupt' AND r.status <> 'done'
			AND NOT EXISTS (SELECT 1 FROM session_inputs AS e WHERE e.org = i.org AND e.run_id = i.run_id AND e.processed_at IS NULL
				AND e.kind = 'interrupt' AND e.seq < i.seq)
		ORDER BY i.seq LIMIT ?`, limit)
	return found, r.wrap("list interrupted runs", err)
}

// OrphanedRuns implements journal.Archive.
func (r *Reader) OrphanedRuns(ctx context.Context, limit int) ([]journal.WaitingRun, error) {
	found, err := list(ctx, r.db, func(row scanner) (w journal.WaitingRun, err error) {
		err = row.Scan(&w.Org, &w.RunID, &w.Principal)
		return w, err
	}, `SELECT o.org, o.run_id, r.principal FROM orphaned_runs AS o JOIN runs AS r ON r.org = o.org AND r.run_id = o.run_id
		WHERE r.status <> 'done' ORDER BY o.org, o.run_id LIMIT ?`, limit)
	return found, r.wrap("list runs of deleted sessions", err)
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

const turnColumns = `session, run_id, number, version, rounds, reasoning, created_at, snapshot FROM session_turns`

func scanTurn(row scanner) (t agent.SessionTurn, err error) {
	var snapshot []byte
	if err = row.Scan(&t.Session, &t.RunID, &t.Number, &t.Version, &t.Rounds, &t.Reasoning, asTime{&t.CreatedAt}, &snapshot); err == nil {
		t.Snapshot, err = agent.DecodeSnapshot(t.Session, snapshot)
	}
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
func (r *Reader) SessionInputs(ctx context.Context, orgID, id string, limit, offset int) ([]agent.Input, int, error) {
	var total int
	if err := r.db.QueryRowContext(ctx, `SELECT count(*) FROM session_inputs WHERE org = ? AND session = ?`, orgID, id).Scan(&total); err != nil {
		return nil, 0, r.wrap("count inputs of a session", err)
	}
	found, err := list(ctx, r.db, scanInput, `SELECT `+inputColumns+` FROM session_inputs
		WHERE org = ? AND session = ? ORDER BY seq LIMIT ? OFFSET ?`, orgID, id, limit, offset)
	return found, total, r.wrap("list inputs of a session", err)
}

// InputsOf implements agent.Sessions.
func (r *Reader) InputsOf(ctx context.Context, orgID, id, runID string) ([]agent.Input, error) {
	found, err := list(ctx, r.db, scanInput, `SELECT `+inputColumns+` FROM session_inputs
		WHERE org = ? AND session = ? AND run_id = ? ORDER BY seq`, orgID, id, runID)
	return found, r.wrap("list inputs of a run", err)
}

const inputColumns = `id, kind, principal, body, coalesce(key, ''), digest, run_id, created_at, coalesce(processed_at, 0)`

func scanInput(row scanner) (in agent.Input, err error) {
	var body []byte
	err = row.Scan(&in.ID, &in.Kind, &in.Principal, &body, &in.Key, &in.Digest, &in.RunID, asTime{&in.CreatedAt}, asTime{&in.ProcessedAt})
	in.Body = body
	return in, err
}

// RemoveSession implements agent.Sessions.
func (s *Store) RemoveSession(ctx context.Context, orgID, id string, unused bool) (unfinished []string, err error) {
	err = s.write(ctx, orgID, "delete a session", "session "+id, func(t *tx) error {
		runs, err := queryAll(t, func(row scanner) (run string, err error) {
			err = row.Scan(&run)
			return run, err
		}, `SELECT t.run_id FROM session_turns t JOIN runs r ON r.org = t.org AND r.run_id = t.run_id
			WHERE t.org = ? AND t.session = ? AND r.status <> 'done' AND ? = 0 ORDER BY t.number`, orgID, id, unused)
		if err != nil {
			return err
		}
		n, err := t.exec(`DELETE FROM sessions WHERE org = ? AND id = ? AND (turns = 0 OR ? = 0)`, orgID, id, unused)
		if err == nil && n == 0 && !unused {
			return org.ErrNotFound
		}
		unfinished = runs
		return err
	})
	return unfinished, err
}
