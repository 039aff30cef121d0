package database

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// conversation is a journal.Conversation in its stored form.
type conversation struct {
	org, principal string
	keys           []string // the least first
	version        int64    // of the one that it replaces; 0 = it is new
	previous       string
	body           []byte
	parts          *sharedList // those that body does not name; nil = it names all
	now            int64       // Unix milliseconds
	savedAt        int64       // Unix milliseconds
	expiresAt      int64       // Unix milliseconds
}

// Save implements journal.Conversations.
func (s *Store) Save(
	ctx context.Context, orgID, principal string, c journal.Conversation, ttl time.Duration, keys ...journal.ConversationKey,
) error {
	return s.SaveAll(ctx, orgID, principal, journal.Saved{Conversation: c, TTL: ttl, Keys: keys})
}

// SaveAll implements journal.Chains.
func (s *Store) SaveAll(ctx context.Context, orgID, principal string, saved ...journal.Saved) error {
	now, size, added := s.now(), 0, false
	var all []conversation
	for _, c := range saved {
		one, err := conversationOf(orgID, principal, c, now)
		if err != nil {
			return err
		}
		kind := c.Keys[0].Kind
		added = added || c.Version == 0 && (kind == journal.SessionID || kind == journal.RequestKey) // by a request that can be refused
		all, size = append(all, one), size+len(one.body)
	}
	var dropped int64
	err := s.writer.performOne(ctx, &write{awaited: true, plain: true, org: orgID, size: size, do: func(t *tx) (err error) {
		for _, one := range all {
			if err == nil {
				err = t.dropExpired(one)
			}
		}
		if err == nil && added {
			err = t.checkStored(orgID)
		}
		for _, one := range all {
			if err == nil {
				err = one.save(t)
			}
		}
		if err == nil {
			dropped, err = t.evictConversations(orgID)
		}
		return err
	}})
	if err == nil && dropped > 0 {
		s.reportEvicted(orgID)
	}
	return s.wrap("save a conversation", err)
}

// conversationOf returns the stored form of c.
func conversationOf(orgID, principal string, c journal.Saved, now time.Time) (one conversation, err error) {
	if err := c.Check(c.TTL, c.Keys); err != nil {
		return one, err
	}
	one = conversation{
		org: orgID, principal: principal, version: c.Version, previous: c.Previous,
		now: now.UnixMilli(), savedAt: cmp.Or(c.At, now.UnixMilli()), expiresAt: now.Add(c.TTL).UnixMilli(),
	}
	if one.parts, err = sharedParts(c.Parts); err != nil {
		return one, err
	}
	if one.parts != nil {
		c.Parts = nil
	}
	one.body, err = c.Encode()
	for _, k := range c.Keys {
		one.keys = append(one.keys, k.String())
	}
	slices.Sort(one.keys)
	return one, err
}

// save stores c.
func (c conversation) save(t *tx) error {
	if err := t.storeList(c.org, c.parts); err != nil {
		return err
	}
	if c.version == 0 {
		return c.insert(t)
	}
	return c.replace(t)
}

// dropExpired deletes some conversations that have expired, and all of those that have
// one of the keys of c.
func (t *tx) dropExpired(c conversation) error {
	var first sql.NullInt64
	err := t.queryRow(`SELECT min(expires_at) FROM conversations WHERE `+t.swept(), []any{c.org}, &first)
	if err != nil || !first.Valid || first.Int64 > c.now {
		return err
	}
	_, err = t.exec(`DELETE FROM conversations WHERE _rowid_ IN
		(SELECT _rowid_ FROM conversations WHERE expires_at <= ? AND `+t.swept()+` ORDER BY expires_at LIMIT ?)`,
		c.now, c.org, sweepBatch)
	for _, key := range c.keys {
		if err != nil {
			break
		}
		_, err = t.exec(`DELETE FROM conversations WHERE org = ?1 AND principal = ?2 AND expires_at <= ?4
			AND key = (SELECT conversation FROM conversation_keys WHERE org = ?1 AND principal = ?2 AND key = ?3)`, c.org, c.principal, key, c.now)
	}
	return err
}

// checkStored returns an *[org.CapError] if the org has stored as much as its cap allows.
func (t *tx) checkStored(orgID string) error {
	if t.caps.Stored == 0 {
		return nil
	}
	stored, _, _, err := t.usage(orgID)
	if err == nil && stored >= t.caps.Stored {
		return t.caps.StoredError()
	}
	return err
}

func (c conversation) insert(t *tx) error {
	_, err := t.exec(`INSERT INTO conversations (org, principal, key, version, previous, body, parts, saved_at, expires_at)
		VALUES (?, ?, ?, 1, ?, CAST(? AS TEXT), ?, ?, ?)`,
		c.org, c.principal, c.keys[0], c.previous, c.body, c.parts.digest(), c.savedAt, c.expiresAt)
	for _, key := range c.keys {
		if err != nil {
			break
		}
		_, err = t.exec(`INSERT INTO conversation_keys (org, principal, key, conversation) VALUES (?, ?, ?, ?)`, c.org, c.principal, key, c.keys[0])
	}
	if isUniqueViolation(err) {
		return fmt.Errorf("conversation %s: %w", c.keys[0], org.ErrExists)
	} else if err != nil {
		return err
	}
	handovers := 0
	if c.isHandover() {
		handovers = 1
	}
	return t.addUsage(c.org, sizeOfConversation+len(c.body)+len(c.keys)*sizeOfConversationKey, 1, handovers)
}

// replace stores c in place of the conversation with the same key and version.
func (c conversation) replace(t *tx) error {
	n, err := t.exec(`UPDATE conversations SET version = version + 1, previous = ?, body = CAST(? AS TEXT), parts = ?,
			saved_at = ?, expires_at = ?
		WHERE org = ? AND principal = ? AND key = ? AND version = ?`,
		c.previous, c.body, c.parts.digest(), c.savedAt, c.expiresAt, c.org, c.principal, c.keys[0], c.version)
	switch {
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("conversation %s: %w", c.keys[0], journal.ErrChanged)
	}
	return t.addUsage(c.org, len(c.body), 0, 0)
}

// reportEvicted logs that conversations of an org were deleted early, at most once an
// hour.
func (s *Store) reportEvicted(orgID string) {
	now, last := s.now().UnixMilli(), s.evictedReported.Load()
	if now-last < time.Hour.Milliseconds() || !s.evictedReported.CompareAndSwap(last, now) {
		return
	}
	s.log.Warn("an org has more handovers or responses than org_caps.handovers and org_caps.responses allow; the oldest are deleted before they expire", "org", orgID)
}

// isHandover reports whether a client is expected to answer the tool calls of c. The schema has
// the same test.
func (c conversation) isHandover() bool {
	return strings.HasPrefix(c.keys[0], string(journal.CallID)+":")
}

// evictConversations deletes the handovers of an org above their cap that were saved first, the
// same with its other conversations, and returns how many. The new one is not refused, because
// its run has already ended; the oldest is the least likely to be needed.
func (t *tx) evictConversations(orgID string) (int64, error) {
	_, all, handovers, err := t.usage(orgID)
	if err != nil {
		return 0, err
	}
	first, err := t.evictOldest(orgID, true, handovers, t.caps.Handovers)
	if err != nil {
		return first, err
	}
	second, err := t.evictOldest(orgID, false, all-handovers, t.caps.Responses)
	return first + second, err
}

// evictOldest deletes the handovers, or the other conversations, of an org above a cap. There
// are n of them. A cap of 0 is no limit.
func (t *tx) evictOldest(orgID string, handovers bool, n int64, limit int) (int64, error) {
	excess := n - int64(limit)
	if limit == 0 || excess <= 0 {
		return 0, nil
	}
	if !handovers { // those of sessions do not count
		var kept int64
		if err := t.queryRow(`SELECT count(*) FROM conversations INDEXED BY conversations_kept WHERE org = ? AND expires_at >= 7000000000000`, []any{orgID}, &kept); err != nil {
			return 0, err
		}
		if excess -= kept; excess <= 0 {
			return 0, nil
		}
	}
	return t.exec(`DELETE FROM conversations WHERE _rowid_ IN (SELECT _rowid_ FROM conversations
		WHERE org = ? AND (substr(key, 1, 5) = 'call:') = (? = 1)
		AND expires_at < 7000000000000 ORDER BY saved_at, rowid LIMIT ?)`, orgID, handovers, min(excess, sweepBatch))
}

// Find implements journal.Conversations.
func (s *Store) Find(ctx context.Context, orgID, principal string, key journal.ConversationKey) (*journal.Conversation, error) {
	var body, parts []byte
	var version int64
	err := s.db.QueryRowContext(ctx, `SELECT c.version, c.body, `+partsOf+` FROM conversation_keys k
		JOIN conversations c ON c.org = k.org AND c.principal = k.principal AND c.key = k.conversation
		WHERE k.org = ? AND k.principal = ? AND k.key = ? AND c.expires_at > ?`,
		orgID, principal, key.String(), s.now().UnixMilli()).Scan(&version, &body, &parts)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, s.wrap("find a conversation", err)
	}
	c, err := journal.DecodeConversation(key, body)
	if bad, is := errors.AsType[*journal.Unreadable](err); is && bad.Conversation != nil {
		return nil, errors.Join(err, addParts(key, bad.Conversation, parts))
	}
	if err != nil {
		return nil, err
	}
	c.Version = version
	return c, addParts(key, c, parts)
}

// addParts adds the parts of a shared list, which are nil if there is none, to a conversation that does not name them.
func addParts(key journal.ConversationKey, c *journal.Conversation, elements []byte) error {
	if elements == nil {
		return nil
	}
	if err := json.Unmarshal(extended([]byte("[]"), elements), &c.Parts); err != nil {
		return journal.DamagedConversation(key, *c, err)
	}
	return nil
}

// The queries of histories. CROSS JOIN fixes the order of the tables: without it the planner begins
// with all conversations that have not expired. There is no ORDER BY, which would make SQLite hold
// all bodies before it returns the first row: json_each and the recursion already return the rows
// in order.
const (
	findAll = `SELECT j.key, c.version, c.body, NULL FROM json_each(?3) j
		CROSS JOIN conversation_keys k ON k.org = ?1 AND k.principal = ?2 AND k.key = j.value
		CROSS JOIN conversations c ON c.org = k.org AND c.principal = k.principal AND c.key = k.conversation
		WHERE c.expires_at > ?4`

	findChain = `WITH RECURSIVE chain (id, previous, depth) AS (
			SELECT c._rowid_, c.previous, 0 FROM conversation_keys k
			CROSS JOIN conversations c ON c.org = k.org AND c.principal = k.principal AND c.key = k.conversation
			WHERE k.org = ?1 AND k.principal = ?2 AND k.key = 'response:' || ?3 AND c.expires_at > ?4
		UNION ALL
			SELECT c._rowid_, c.previous, chain.depth + 1 FROM chain
			CROSS JOIN conversation_keys k ON k.org = ?1 AND k.principal = ?2 AND k.key = 'response:' || chain.previous
			CROSS JOIN conversations c ON c.org = k.org AND c.principal = k.principal AND c.key = k.conversation
			WHERE c.expires_at > ?4)
		SELECT 0, c.version, c.body, ` + partsOf + ` FROM chain CROSS JOIN conversations c ON c._rowid_ = chain.id`
)

// eachHistory calls each for the rows of one of these queries, with the first column and the body,
// which is valid during the call.
func (s *Store) eachHistory(ctx context.Context, each func(i int, version int64, body, parts []byte) error, query string, args ...any) error {
	rows, err := s.db.QueryContext(ctx, query, append(args, s.now().UnixMilli())...)
	if err != nil {
		return s.wrap("find conversations", err)
	}
	defer rows.Close()
	for rows.Next() {
		var i int
		var version int64
		var body sql.RawBytes
		var parts []byte
		if err := rows.Scan(&i, &version, &body, &parts); err != nil {
			return s.wrap("find conversations", err)
		}
		if err := each(i, version, body, parts); err != nil {
			return err
		}
	}
	return s.wrap("find conversations", rows.Err())
}

// FindAll implements journal.Conversations.
func (s *Store) FindAll(ctx context.Context, orgID, principal string, keys []journal.ConversationKey, each func(int, *journal.Conversation) error) error {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = key.String()
	}
	list, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	return s.eachHistory(ctx, func(i int, version int64, body, _ []byte) error {
		c, err := journal.DecodeHistory(keys[i], body, false)
		if err != nil {
			return err
		}
		c.Version = version
		return each(i, c)
	}, s.ordered(findAll, `j.key`), orgID, principal, string(list))
}

// FindChain implements journal.Conversations.
func (s *Store) FindChain(ctx context.Context, orgID, principal, id string, each func(*journal.Conversation) error) error {
	return s.eachHistory(ctx, func(_ int, version int64, body, parts []byte) error {
		key := journal.ConversationKey{Kind: journal.ResponseID, ID: id}
		c, err := journal.DecodeHistory(key, body, true)
		if err != nil {
			return err
		}
		if err := addParts(key, c, parts); err != nil {
			return err
		}
		c.Version, id = version, c.Previous
		return each(c)
	}, s.ordered(findChain, `chain.depth`), orgID, principal, id)
}

// Heads implements journal.Chains.
func (s *Store) Heads(ctx context.Context, orgID, principal, before string, limit int) ([]*journal.Conversation, error) {
	prefix := journal.ConversationKey{Kind: journal.SessionID}.String()
	out, err := list(ctx, s.db, func(row scanner) (*journal.Conversation, error) {
		var key string
		var version int64
		var body []byte
		if err := row.Scan(&key, &version, &body); err != nil {
			return nil, err
		}
		c, err := journal.DecodeConversation(journal.ConversationKey{Kind: journal.SessionID, ID: strings.TrimPrefix(key, prefix)}, body)
		if err == nil {
			c.Version = version
		}
		return c, err
	}, `SELECT key, version, body FROM conversations INDEXED BY conversations_heads
		WHERE org = ?1 AND principal = ?2 AND principal >= 'library:' AND principal < 'library;' AND key >= 'session:' AND key < 'session;'
		AND expires_at > ?3 AND (?4 = ?5 OR (saved_at, key) <
			(SELECT saved_at, key FROM conversations WHERE org = ?1 AND principal = ?2 AND key = ?4))
		ORDER BY saved_at DESC, key DESC LIMIT ?6`, orgID, principal, s.now().UnixMilli(), prefix+before, prefix, limit)
	return out, s.wrap("list sessions", err)
}

// UnknownEffects implements journal.Effects.
func (s *Store) UnknownEffects(ctx context.Context, orgID, after string, limit int) ([]journal.UnknownEffect, error) {
	prefix := journal.ConversationKey{Kind: journal.EffectKey}.String()
	out, err := list(ctx, s.db, func(row scanner) (e journal.UnknownEffect, err error) {
		var key string
		var body []byte
		if err := row.Scan(&key, &e.Version, &body, &e.SavedAt); err != nil {
			return e, err
		}
		e.ID = strings.TrimPrefix(key, prefix)
		c, err := journal.DecodeConversation(journal.ConversationKey{Kind: journal.EffectKey, ID: e.ID}, body)
		if err == nil {
			e.RunID, e.RequestJSON = c.RunID, c.RequestJSON
		}
		return e, err
	}, `SELECT key, version, body, saved_at FROM conversations
		WHERE org = ?1 AND principal = '' AND key > ?2 AND key > ?3 AND key < ?4 AND expires_at > ?5 AND coalesce(json_array_length(body, '$.items.items'), 0) = 0
		ORDER BY key LIMIT ?6`, orgID, prefix, prefix+after, strings.TrimSuffix(prefix, ":")+";", s.now().UnixMilli(), limit)
	return out, s.wrap("list unknown effects", err)
}

// StoredSessions implements journal.SessionLister.
func (s *Store) StoredSessions(ctx context.Context, orgID, principal string) ([]journal.StoredSession, error) {
	first, end := sessionsOf(principal)
	out, err := list(ctx, s.db, func(row scanner) (one journal.StoredSession, err error) {
		err = row.Scan(&one.ID, &one.SavedAt)
		one.ID = strings.TrimPrefix(one.ID, first)
		return one, err
	}, `SELECT key, saved_at FROM conversations WHERE org = ? AND principal = '' AND key >= ? AND key < ? AND expires_at > ?
		ORDER BY saved_at, rowid`, orgID, first, end, s.now().UnixMilli())
	return out, s.wrap("list sessions of a key", err)
}

// sessionsOf returns what the keys of the chat sessions of a principal begin with, and the first text behind them.
func sessionsOf(principal string) (first, end string) {
	first = sessionKey(journal.SessionPrefix(principal)).String()
	return first, strings.TrimSuffix(first, "/") + "0"
}

// deleteSessions deletes the chat sessions of a key.
func (t *tx) deleteSessions(orgID, principal string) error {
	first, end := sessionsOf(principal)
	_, err := t.exec(`DELETE FROM conversations WHERE org = ? AND principal = '' AND key >= ? AND key < ?`, orgID, first, end)
	return err
}

// Delete implements journal.Conversations.
func (s *Store) Delete(ctx context.Context, orgID, principal string, key journal.ConversationKey) (bool, error) {
	now := s.now().UnixMilli()
	n, err := performed(ctx, s.writer, orgID, func(t *tx) (int64, error) {
		return t.exec(`DELETE FROM conversations WHERE org = ?1 AND principal = ?2 AND expires_at > ?4
			AND key = (SELECT conversation FROM conversation_keys WHERE org = ?1 AND principal = ?2 AND key = ?3)`, orgID, principal, key.String(), now)
	})
	return n > 0, s.wrap("delete a conversation", err)
}
