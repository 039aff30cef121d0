package database

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// addingRun finds a run that adds to a conversation and has not ended.
const addingRun = `SELECT run_id FROM runs INDEXED BY runs_adding
	WHERE org = ? AND conversation = ? AND conversation <> '' AND status <> 'done' LIMIT 1`

// AddingRun implements journal.Branches.
func (s *Store) AddingRun(ctx context.Context, orgID, id string) (run string, err error) {
	err = s.db.QueryRowContext(ctx, addingRun, orgID, id).Scan(&run)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return run, s.wrap("find a run of a conversation", err)
}

// mustBeIdle returns a *[journal.SessionBusy] if a run that adds to a conversation has not ended.
func (t *tx) mustBeIdle(orgID, id string) error {
	busy := &journal.SessionBusy{Session: id}
	err := t.queryRow(addingRun, []any{orgID, id}, &busy.RunID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return busy
}

// mustHaveVersion returns an error that wraps journal.ErrChanged unless a conversation with parts is stored in a version.
func (t *tx) mustHaveVersion(orgID, id string, version int64, now time.Time) error {
	var stored int64
	err := t.queryRow(`SELECT version FROM conversations WHERE org = ? AND principal = '' AND key = ? AND expires_at > ?`,
		[]any{orgID, sessionKey(id).String(), now.UnixMilli()}, &stored)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	case stored != version:
		return fmt.Errorf("conversation %s: %w", id, journal.ErrChanged)
	}
	return nil
}

func sessionKey(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.SessionID, ID: id}
}

// DropParts implements journal.Branches.
func (s *Store) DropParts(
	ctx context.Context, orgID, id string, c journal.Conversation, ttl time.Duration, dropped []journal.ConversationKey, idle bool,
) error {
	one, err := conversationOf(orgID, "", journal.Saved{Conversation: c, TTL: ttl, Keys: []journal.ConversationKey{sessionKey(id)}}, s.now())
	if err != nil {
		return err
	}
	return s.write(ctx, orgID, "take parts out of a conversation", "conversation", func(t *tx) error {
		if idle {
			if err := t.mustBeIdle(orgID, id); err != nil {
				return err
			}
		}
		if err := one.save(t); err != nil {
			return err
		}
		return t.dropParts(orgID, id, dropped)
	})
}

// AddPart implements journal.Branches.
func (s *Store) AddPart(
	ctx context.Context, orgID, id string, part journal.Saved, c journal.Conversation, ttl time.Duration, dropped []journal.ConversationKey,
) error {
	now := s.now()
	head, err := conversationOf(orgID, "", journal.Saved{Conversation: c, TTL: ttl, Keys: []journal.ConversationKey{sessionKey(id)}}, now)
	if err != nil {
		return err
	}
	added, err := conversationOf(orgID, "", part, now)
	if err != nil {
		return err
	}
	var evicted int64
	err = s.write(ctx, orgID, "add a part to a conversation", "conversation", func(t *tx) error {
		err := t.dropExpired(head)
		if err == nil && head.version == 0 {
			err = t.checkStored(orgID)
		}
		if err == nil {
			err = t.addPart(added, head.keys[0])
		}
		if err == nil {
			err = head.save(t)
		}
		if err == nil {
			err = t.dropParts(orgID, id, dropped)
		}
		if err == nil {
			evicted, err = t.evictConversations(orgID)
		}
		return err
	})
	if err == nil && evicted > 0 {
		s.reportEvicted(orgID)
	}
	return err
}

// addPart stores a part that is deleted with the last conversation that has it.
func (t *tx) addPart(part conversation, conversation string) error {
	if _, err := t.exec(`DELETE FROM conversations WHERE org = ? AND principal = '' AND key = ?`, part.org, part.keys[0]); err != nil {
		return err
	}
	if err := part.save(t); err != nil {
		return err
	}
	_, err := t.exec(share, part.org, part.keys[0], conversation)
	return err
}

// share notes that a conversation has a part.
const share = `INSERT INTO shared_parts (org, part, conversation) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`

// dropParts deletes parts that a conversation had, and that no other one has: those that were shared, and added ones.
func (t *tx) dropParts(orgID, id string, parts []journal.ConversationKey) error {
	keys := make([]string, len(parts))
	for i, part := range parts {
		keys[i] = part.String()
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	_, err = t.exec(`DELETE FROM shared_parts WHERE org = ? AND part IN (SELECT value FROM json_each(?)) AND conversation = ?`,
		orgID, string(list), sessionKey(id).String()) // a trigger deletes those of nobody
	if err != nil {
		return err
	}
	_, err = t.exec(`DELETE FROM conversations WHERE org = ?1 AND principal = '' AND key IN (SELECT value FROM json_each(?2))
		AND key >= 'session:' AND key < 'session;' AND NOT EXISTS (SELECT 1 FROM shared_parts s WHERE s.org = ?1 AND s.part = conversations.key)`,
		orgID, string(list))
	return err
}

// DeleteWith implements journal.Branches.
func (s *Store) DeleteWith(ctx context.Context, orgID, id string, version int64, parts []journal.ConversationKey) (bool, error) {
	now := s.now()
	was, err := performed(ctx, s.writer, orgID, func(t *tx) (bool, error) {
		if err := t.mustHaveVersion(orgID, id, version, now); version != 0 && err != nil {
			return false, err
		}
		n, err := t.exec(`DELETE FROM conversations WHERE org = ? AND principal = '' AND key = ? AND expires_at > ?`,
			orgID, sessionKey(id).String(), now.UnixMilli())
		if err != nil || n == 0 {
			return false, err
		}
		return true, t.dropParts(orgID, id, parts)
	})
	return was, s.wrap("delete a conversation", err)
}

// Fork implements journal.Branches.
func (s *Store) Fork(ctx context.Context, orgID string, f journal.Fork, ttl time.Duration) error {
	f.Conversation.Version = 0
	saved := journal.Saved{Conversation: f.Conversation, TTL: ttl, Keys: []journal.ConversationKey{sessionKey(f.ID)}}
	one, err := conversationOf(orgID, "", saved, s.now())
	if err != nil {
		return err
	}
	var dropped int64
	err = s.write(ctx, orgID, "fork a conversation", "conversation", func(t *tx) error {
		err := t.dropExpired(one)
		if err == nil {
			err = t.checkStored(orgID)
		}
		if err == nil {
			err = t.fork(one, f)
		}
		if err == nil {
			dropped, err = t.evictConversations(orgID)
		}
		return err
	})
	if err == nil && dropped > 0 {
		s.reportEvicted(orgID)
	}
	return err
}

// fork stores the conversation of a fork, and that its parts are shared.
func (t *tx) fork(one conversation, f journal.Fork) error {
	if err := t.mustBeIdle(one.org, f.From); err != nil {
		return err
	}
	if err := t.mustHaveVersion(one.org, f.From, f.Version, time.UnixMilli(one.savedAt)); err != nil {
		return err
	}
	for _, part := range f.Shared {
		for _, has := range []string{sessionKey(f.From).String(), one.keys[0]} {
			if _, err := t.exec(share, one.org, part.String(), has); err != nil {
				return err
			}
		}
	}
	return one.save(t)
}

// Shared implements journal.Branches.
func (s *Store) Shared(ctx context.Context, orgID string, part journal.ConversationKey, id string) (shared bool, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM shared_parts WHERE org = ? AND part = ? AND conversation <> ?)`,
		orgID, part.String(), sessionKey(id).String()).Scan(&shared)
	return shared, s.wrap("find conversations with a part", err)
}
