package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// selectHookMessages reads messages with what is stored of their runs.
const selectHookMessages = `SELECT m.org, m.id, m.run_id, m.hook, m.agent, m.position, m.answer_ref, m.at, m.outcome, m.ended_at, m.micros, r.principal, r.model, r.surface
	FROM hook_messages m JOIN runs r ON r.org = m.org AND r.run_id = m.run_id `

func scanHookMessage(row scanner) (m journal.HookMessage, err error) {
	err = row.Scan(&m.Org, &m.ID, &m.RunID, &m.Hook, &m.Agent, &m.Position, &m.AnswerRef, &m.At, &m.Outcome, &m.EndedAt, &m.Micros, &m.Principal, &m.Model, &m.Surface)
	return m, err
}

// addHookMessages stores messages that wait.
func (t *tx) addHookMessages(messages []journal.HookMessage) error {
	for _, m := range messages {
		if err := t.makeHookRoom(m); err != nil {
			return fmt.Errorf("message for hook %s: %w", m.Hook, err)
		}
		if _, err := t.exec(`INSERT INTO hook_messages (org, id, run_id, hook, agent, position, answer_ref, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			m.Org, m.ID, m.RunID, m.Hook, m.Agent, m.Position, m.AnswerRef, m.At); err != nil {
			return fmt.Errorf("message for hook %s: %w", m.Hook, err)
		}
	}
	return nil
}

// makeHookRoom gives up the oldest message that waits, if the org has as many as its caps allow.
func (t *tx) makeHookRoom(m journal.HookMessage) error {
	if t.caps.Deliveries == 0 {
		return nil
	}
	var n int
	if err := t.queryRow(`SELECT count(*) FROM hook_messages INDEXED BY hook_messages_waiting WHERE org = ? AND ended_at = 0`, []any{m.Org}, &n); err != nil || n < t.caps.Deliveries {
		return err
	}
	gone, err := queryOne(t, scanHookMessage, selectHookMessages+`WHERE m.org = ? AND m.ended_at = 0 AND m.claimed_until = 0 ORDER BY m.rowid LIMIT 1`, m.Org)
	if errors.Is(err, org.ErrNotFound) { // all of them are being sent
		return nil
	}
	if err != nil {
		return err
	}
	t.log.Warn("too many hooks of an org wait to be told of their runs: the oldest message was given up (org_caps.webhook_deliveries)",
		"org", gone.Org, "hook", gone.Hook, "run", gone.RunID)
	_, err = t.endHookMessage(gone.End(journal.HookGivenUp, time.UnixMilli(m.At), 0))
	return err
}

func (t *tx) endHookMessage(m journal.HookMessage) (bool, error) {
	n, err := t.exec(`UPDATE hook_messages SET outcome = ?, ended_at = ?, micros = ?, claimed_until = 0 WHERE org = ? AND id = ? AND ended_at = 0`,
		string(m.Outcome), m.EndedAt, m.Micros, m.Org, m.ID)
	return n == 1, err
}

// DueHooks implements journal.HookMessages.
func (r *Reader) DueHooks(ctx context.Context, now time.Time) ([]journal.HookKey, error) {
	due, err := list(ctx, r.db, func(row scanner) (k journal.HookKey, err error) {
		err = row.Scan(&k.Org, &k.Hook)
		return k, err
	}, `SELECT DISTINCT org, hook FROM hook_messages INDEXED BY hook_messages_waiting WHERE ended_at = 0 AND claimed_until <= ? ORDER BY org, hook`, now.UnixMilli())
	return due, r.wrap("find hooks that are to be told of a run", err)
}

// ClaimHookMessages implements journal.HookMessages.
func (s *Store) ClaimHookMessages(ctx context.Context, now, until time.Time, asks []journal.HookAsk) (claimed []journal.HookMessage, err error) {
	orgOf := func(ask journal.HookAsk) string { return ask.Org }
	claimed, err = inLanes(ctx, s.writer, asks, orgOf, func(t *tx, asks []journal.HookAsk) (claimed []journal.HookMessage, err error) {
		for _, ask := range asks {
			found, err := queryAll(t, scanHookMessage, selectHookMessages+`WHERE m.org = ? AND m.hook = ? AND m.ended_at = 0 AND m.claimed_until <= ? ORDER BY m.rowid LIMIT ?`,
				ask.Org, ask.Hook, now.UnixMilli(), max(ask.Max, 0))
			if err != nil {
				return nil, err
			}
			for _, m := range found {
				if _, err := t.exec(`UPDATE hook_messages SET claimed_until = ? WHERE org = ? AND id = ?`, until.UnixMilli(), m.Org, m.ID); err != nil {
					return nil, err
				}
			}
			claimed = append(claimed, found...)
		}
		return claimed, nil
	})
	return claimed, s.wrap("claim messages for hooks", err)
}

// SettleHookMessage implements journal.HookMessages.
func (s *Store) SettleHookMessage(ctx context.Context, m journal.HookMessage, entries ...audit.Entry) (settled bool, err error) {
	settled, err = performed(ctx, s.writer, m.Org, func(t *tx) (bool, error) {
		settled, err := t.endHookMessage(m)
		if err != nil || !settled {
			return false, err
		}
		return true, t.addAudit(m.Org, entries)
	})
	return settled, s.wrap("store what became of a message for a hook", err)
}

// DropHookMessage implements journal.HookMessages.
func (s *Store) DropHookMessage(ctx context.Context, orgID, id string) error {
	return s.wrap("delete a message for a hook", s.writer.perform(ctx, orgID, func(t *tx) error {
		_, err := t.exec(`DELETE FROM hook_messages WHERE org = ? AND id = ? AND ended_at = 0`, orgID, id)
		return err
	}))
}

// HookMessages implements journal.HookMessages.
func (r *Reader) HookMessages(ctx context.Context, orgID, runID string) ([]journal.HookMessage, error) {
	found, err := list(ctx, r.db, scanHookMessage, selectHookMessages+`WHERE m.org = ? AND m.run_id = ? ORDER BY m.rowid`, orgID, runID)
	return found, r.wrap("list the messages for hooks of a run", err)
}
