package memory

import (
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
func (c *Conversations) Save(_ context.Context, orgID, principal string, one journal.Conversation, ttl time.Duration, keys ...journal.ConversationKey) error {
	if err := one.Check(ttl, keys); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.drop(func(s *storedConversation) bool { return s.expired(now) })
	s := &storedConversation{Conversation: clone(one), saved: now, expires: now.Add(ttl)}
	s.Version++
	for _, k := range keys {
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
	c.drop(func(old *storedConversation) bool { return old.keys[0] == s.keys[0] })
	if c.byKey == nil {
		c.byKey = map[conversationKey]*storedConversation{}
	}
	for _, key := range s.keys {
		c.byKey[key] = s
	}
	c.order = append(c.order, s)
	c.applyCaps(orgID)
	return nil
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

// drop removes the conversations for which which returns true. It asks in the order in
// which they were saved.
func (c *Conversations) drop(which func(*storedConversation) bool) {
	c.order = slices.DeleteFunc(c.order, func(s *storedConversation) bool {
		if !which(s) {
			return false
		}
		for _, key := range s.keys {
			delete(c.byKey, key)
		}
		return true
	})
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
	now := c.now()
	for _, s := range c.order {
		if k := s.keys[0]; k.org == orgID && k.principal == principal && k.Kind == journal.SessionID && !s.expired(now) {
			out = append(out, journal.StoredSession{ID: k.ID, SavedAt: s.saved.UnixMilli()})
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
