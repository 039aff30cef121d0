package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// MaxConversations is the most conversations that a Conversations stores.
const MaxConversations = 4096

// Conversations implements journal.Conversations. The zero value is ready to use.
type Conversations struct {
	Now  func() time.Time // nil = clock.Wall
	Caps org.Caps         // apply to every org; the zero value is no limit

	mu    sync.Mutex
	byKey map[conversationKey]*storedConversation
	order []*storedConversation // the one that was saved first comes first

	adding map[runKey]string                       // the conversations to which runs add that have not ended
	shared map[conversationKey]map[string]struct{} // the ids of the conversations that have a shared part
}

type conversationKey struct {
	org, principal string
	journal.ConversationKey
}

type storedConversation struct {
	journal.Conversation
	keys    []conversationKey
	saved   time.Time
	expires time.Time
}

// Save implements journal.Conversations.
func (c *Conversations) Save(ctx context.Context, orgID, principal string, one journal.Conversation, ttl time.Duration, keys ...journal.ConversationKey) error {
	return c.SaveAll(ctx, orgID, principal, journal.Saved{Conversation: one, TTL: ttl, Keys: keys})
}

// SaveAll implements journal.Chains.
func (c *Conversations) SaveAll(_ context.Context, orgID, principal string, all ...journal.Saved) error {
	for _, one := range all {
		if err := one.Check(one.TTL, one.Keys); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.save(orgID, principal, all...)
}

// save is SaveAll with mu held, for what Check has admitted.
func (c *Conversations) save(orgID, principal string, all ...journal.Saved) error {
	now := c.now()
	c.drop(func(s *storedConversation) bool { return s.expired(now) })
	c.dropUnreached(principal)
	var stored []*storedConversation
	for _, one := range all {
		s := &storedConversation{Conversation: clone(one.Conversation), saved: now, expires: now.Add(one.TTL)}
		if one.At != 0 {
			s.saved = time.UnixMilli(one.At)
		}
		s.Version++
		for _, k := range one.Keys {
			key := conversationKey{orgID, principal, k}
			old := c.byKey[key]
			switch {
			case one.Version == 0 && old != nil:
				return fmt.Errorf("conversation %s: %w", k, org.ErrExists)
			case one.Version != 0 && (old == nil || old.Version != one.Version):
				return fmt.Errorf("conversation %s: %w", k, journal.ErrChanged)
			}
			s.keys = append(s.keys, key)
		}
		stored = append(stored, s)
	}
	if c.byKey == nil {
		c.byKey = map[conversationKey]*storedConversation{}
	}
	for _, s := range stored {
		c.remove(func(old *storedConversation) bool { return old.keys[0] == s.keys[0] })
		for _, key := range s.keys {
			c.byKey[key] = s
		}
		c.order = append(c.order, s)
	}
	c.dropUnreached(principal)
	c.applyCaps(orgID)
	return nil
}

// dropUnreached drops the segments of a principal that no head reaches: see journal.Chains.
func (c *Conversations) dropUnreached(principal string) {
	if !strings.HasPrefix(principal, journal.LibraryPrefix) {
		return
	}
	reached := map[*storedConversation]bool{}
	for _, s := range c.order {
		for s.keys[0].principal == principal && (s.keys[0].Kind == journal.SessionID || reached[s]) {
			next := c.byKey[conversationKey{s.keys[0].org, principal, journal.ConversationKey{Kind: journal.ResponseID, ID: s.Previous}}]
			if next == nil || reached[next] {
				break
			}
			reached[next], s = true, next
		}
	}
	c.drop(func(s *storedConversation) bool {
		return s.keys[0].principal == principal && s.keys[0].Kind == journal.ResponseID && !reached[s]
	})
}

// applyCaps drops those of the org, and then those of all orgs, that were saved first,
// until the limits hold. Handovers and other conversations have a limit each.
func (c *Conversations) applyCaps(orgID string) {
	c.applyCap(orgID, c.Caps.Handovers, func(s *storedConversation) bool { return s.isHandover() })
	c.applyCap(orgID, c.Caps.Responses, func(s *storedConversation) bool { return !s.isHandover() })
	excess := len(c.order) - MaxConversations
	c.drop(func(*storedConversation) bool {
		excess--
		return excess >= 0
	})
}

// isHandover reports whether a client is expected to answer the tool calls of s.
func (s *storedConversation) isHandover() bool { return s.keys[0].Kind == journal.CallID }

// applyCap drops conversations of the org until it has no more than limit of those that which
// selects; 0 = no limit.
func (c *Conversations) applyCap(orgID string, limit int, which func(*storedConversation) bool) {
	if limit == 0 {
		return
	}
	excess := -limit
	for _, s := range c.order {
		if s.keys[0].org == orgID && which(s) {
			excess++
		}
	}
	c.drop(func(s *storedConversation) bool {
		if s.keys[0].org != orgID || excess <= 0 || !which(s) {
			return false
		}
		excess--
		return true
	})
}

// drop removes the conversations for which which returns true, and the shared parts that no other has. It asks in the
// order in which they were saved.
func (c *Conversations) drop(which func(*storedConversation) bool) {
	for _, s := range c.remove(which) {
		if k := s.keys[0]; k.Kind == journal.SessionID && k.principal == "" {
			for part := range c.shared {
				c.unshare(k.org, part, k.ID)
			}
		}
	}
}

// remove removes the conversations for which which returns true, and returns them.
func (c *Conversations) remove(which func(*storedConversation) bool) (removed []*storedConversation) {
	c.order = slices.DeleteFunc(c.order, func(s *storedConversation) bool {
		if !which(s) {
			return false
		}
		for _, key := range s.keys {
			delete(c.byKey, key)
		}
		removed = append(removed, s)
		return true
	})
	return removed
}

// Find implements journal.Conversations.
func (c *Conversations) Find(_ context.Context, orgID, principal string, key journal.ConversationKey) (*journal.Conversation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.byKey[conversationKey{orgID, principal, key}]
	if !ok || s.expired(c.now()) {
		return nil, nil
	}
	found := clone(s.Conversation)
	return &found, nil
}

// FindAll implements journal.Conversations.
func (c *Conversations) FindAll(ctx context.Context, orgID, principal string, keys []journal.ConversationKey, each func(int, *journal.Conversation) error) error {
	for i, key := range keys {
		found, err := c.Find(ctx, orgID, principal, key)
		if err == nil && found != nil {
			err = each(i, found.History(false))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// FindChain implements journal.Conversations.
func (c *Conversations) FindChain(ctx context.Context, orgID, principal, id string, each func(*journal.Conversation) error) error {
	for id != "" {
		found, err := c.Find(ctx, orgID, principal, journal.ConversationKey{Kind: journal.ResponseID, ID: id})
		if err != nil || found == nil {
			return err
		}
		if err := each(found.History(true)); err != nil {
			return err
		}
		id = found.Previous
	}
	return nil
}

// Heads implements journal.Chains.
func (c *Conversations) Heads(_ context.Context, orgID, principal, before string, limit int) ([]*journal.Conversation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	var heads []*storedConversation
	for _, s := range c.order {
		if k := s.keys[0]; k.org == orgID && k.principal == principal && k.Kind == journal.SessionID && !s.expired(now) {
			heads = append(heads, s)
		}
	}
	slices.SortFunc(heads, func(a, b *storedConversation) int {
		return cmp.Or(cmp.Compare(b.saved.UnixMilli(), a.saved.UnixMilli()), strings.Compare(b.keys[0].ID, a.keys[0].ID))
	})
	if before != "" {
		at := slices.IndexFunc(heads, func(s *storedConversation) bool { return s.keys[0].ID == before })
		heads = heads[cmp.Or(at+1, len(heads)):]
	}
	var out []*journal.Conversation
	for _, s := range heads[:min(len(heads), limit)] {
		one := clone(s.Conversation)
		out = append(out, &one)
	}
	return out, nil
}

// UnknownEffects implements journal.Effects.
func (c *Conversations) UnknownEffects(_ context.Context, orgID, after string, limit int) ([]journal.UnknownEffect, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []journal.UnknownEffect
	now := c.now()
	for _, s := range c.order {
		k := s.keys[0]
		if k.org == orgID && k.principal == "" && k.Kind == journal.EffectKey && k.ID > after && len(s.Items) == 0 && !s.expired(now) {
			out = append(out, journal.UnknownEffect{ID: k.ID, Version: s.Version, RunID: s.RunID, RequestJSON: s.RequestJSON, SavedAt: s.saved.UnixMilli()})
		}
	}
	slices.SortFunc(out, func(a, b journal.UnknownEffect) int { return strings.Compare(a.ID, b.ID) })
	return out[:min(len(out), limit)], nil
}

// StoredSessions implements journal.SessionLister.
func (c *Conversations) StoredSessions(_ context.Context, orgID, principal string) ([]journal.StoredSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []journal.StoredSession
	now, prefix := c.now(), journal.SessionPrefix(principal)
	for _, s := range c.order {
		k := s.keys[0]
		id, of := strings.CutPrefix(k.ID, prefix)
		if of && k.org == orgID && k.principal == "" && k.Kind == journal.SessionID && !s.expired(now) {
			out = append(out, journal.StoredSession{ID: id, SavedAt: s.saved.UnixMilli()})
		}
	}
	return out, nil
}

// Delete implements journal.Conversations.
func (c *Conversations) Delete(_ context.Context, orgID, principal string, key journal.ConversationKey) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.byKey[conversationKey{orgID, principal, key}]
	if !ok {
		return false, nil
	}
	c.drop(func(one *storedConversation) bool { return one == s })
	c.dropUnreached(principal)
	return !s.expired(c.now()), nil
}

func (c *Conversations) now() time.Time {
	if c.Now == nil {
		return clock.Wall()
	}
	return c.Now()
}

func (s *storedConversation) expired(now time.Time) bool { return !now.Before(s.expires) }

// clone copies the parts that the caller may modify. Items are never modified.
func clone(c journal.Conversation) journal.Conversation {
	c.Items, c.CallIDs, c.Full = slices.Clone(c.Items), maps.Clone(c.CallIDs), maps.Clone(c.Full)
	return c
}
