package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// begin notes that a run adds to a conversation. It returns an error that wraps journal.ErrChanged if that has another
// version than the run has read.
func (c *Conversations) begin(key runKey, a journal.Adds) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Alone {
		if err := c.mustBeIdle(key.org, a.Conversation); err != nil {
			return err
		}
	}
	if a.Version != 0 {
		if err := c.mustHaveVersion(key.org, a.Conversation, a.Version); err != nil {
			return err
		}
	}
	if c.adding == nil {
		c.adding = map[runKey]string{}
	}
	c.adding[key] = a.Conversation
	return nil
}

func (c *Conversations) end(key runKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.adding, key)
}

// mustHaveVersion is called with mu held.
func (c *Conversations) mustHaveVersion(orgID, id string, version int64) error {
	s := c.byKey[conversationKey{orgID, "", keyOf(id)}]
	if s == nil || s.expired(c.now()) || s.Version != version {
		return fmt.Errorf("conversation %s: %w", id, journal.ErrChanged)
	}
	return nil
}

// mustBeIdle is called with mu held.
func (c *Conversations) mustBeIdle(orgID, id string) error {
	for key, of := range c.adding {
		if key.org == orgID && of == id {
			return &journal.SessionBusy{Session: id, RunID: key.run}
		}
	}
	return nil
}

// AddingRun implements journal.Branches.
func (c *Conversations) AddingRun(_ context.Context, orgID, id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, of := range c.adding {
		if key.org == orgID && of == id {
			return key.run, nil
		}
	}
	return "", nil
}

// DropParts implements journal.Branches.
func (c *Conversations) DropParts(
	_ context.Context, orgID, id string, one journal.Conversation, ttl time.Duration, dropped []journal.ConversationKey, idle bool,
) error {
	if err := one.Check(ttl, []journal.ConversationKey{keyOf(id)}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if idle {
		if err := c.mustBeIdle(orgID, id); err != nil {
			return err
		}
	}
	if err := c.save(orgID, "", journal.Saved{Conversation: one, TTL: ttl, Keys: []journal.ConversationKey{keyOf(id)}}); err != nil {
		return err
	}
	c.dropParts(orgID, id, dropped)
	return nil
}

// AddPart implements journal.Branches.
func (c *Conversations) AddPart(
	_ context.Context, orgID, id string, part journal.Saved, one journal.Conversation, ttl time.Duration, dropped []journal.ConversationKey,
) error {
	if err := part.Check(part.TTL, part.Keys); err != nil {
		return err
	}
	if err := one.Check(ttl, []journal.ConversationKey{keyOf(id)}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := conversationKey{orgID, "", part.Keys[0]}
	old := c.remove(func(s *storedConversation) bool { return s.keys[0] == key })
	err := c.save(orgID, "", part, journal.Saved{Conversation: one, TTL: ttl, Keys: []journal.ConversationKey{keyOf(id)}})
	if err != nil {
		for _, s := range old {
			c.byKey[key], c.order = s, append(c.order, s)
		}
		return err
	}
	c.share(key, id)
	c.dropParts(orgID, id, dropped)
	return nil
}

// share notes that a conversation has a part. It is called with mu held.
func (c *Conversations) share(part conversationKey, id string) {
	if c.shared == nil {
		c.shared = map[conversationKey]map[string]struct{}{}
	}
	if c.shared[part] == nil {
		c.shared[part] = map[string]struct{}{}
	}
	c.shared[part][id] = struct{}{}
}

// dropParts drops parts that a conversation had, and that no other one has: those that were shared, and added ones. It is
// called with mu held.
func (c *Conversations) dropParts(orgID, id string, parts []journal.ConversationKey) {
	for _, part := range parts {
		key := conversationKey{orgID, "", part}
		c.unshare(orgID, key, id)
		if part.Kind == journal.SessionID && len(c.shared[key]) == 0 {
			c.remove(func(s *storedConversation) bool { return s.keys[0] == key })
		}
	}
}

// DeleteWith implements journal.Branches.
func (c *Conversations) DeleteWith(_ context.Context, orgID, id string, version int64, parts []journal.ConversationKey) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := conversationKey{orgID, "", keyOf(id)}
	s := c.byKey[key]
	if s == nil || s.expired(c.now()) {
		return false, nil
	}
	if version != 0 && s.Version != version {
		return false, fmt.Errorf("conversation %s: %w", id, journal.ErrChanged)
	}
	c.drop(func(s *storedConversation) bool { return s.keys[0] == key })
	c.dropParts(orgID, id, parts)
	return true, nil
}

// unshare notes that a conversation does not have a part any more, and drops the part if it was shared and no other
// conversation has it. It is called with mu held.
func (c *Conversations) unshare(orgID string, part conversationKey, id string) {
	have := c.shared[part]
	if _, is := have[id]; !is || part.org != orgID {
		return
	}
	if delete(have, id); len(have) == 0 {
		delete(c.shared, part)
		c.remove(func(s *storedConversation) bool { return s.keys[0] == part })
	}
}

// Fork implements journal.Branches.
func (c *Conversations) Fork(_ context.Context, orgID string, f journal.Fork, ttl time.Duration) error {
	f.Conversation.Version = 0
	if err := f.Check(ttl, []journal.ConversationKey{keyOf(f.ID)}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mustBeIdle(orgID, f.From); err != nil {
		return err
	}
	if err := c.mustHaveVersion(orgID, f.From, f.Version); err != nil {
		return err
	}
	saved := journal.Saved{Conversation: f.Conversation, TTL: ttl, Keys: []journal.ConversationKey{keyOf(f.ID)}}
	if err := c.save(orgID, "", saved); err != nil {
		return err
	}
	for _, part := range f.Shared {
		key := conversationKey{orgID, "", part}
		c.share(key, f.From)
		c.share(key, f.ID)
	}
	return nil
}

// Shared implements journal.Branches.
func (c *Conversations) Shared(_ context.Context, orgID string, part journal.ConversationKey, id string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sharedBeside(conversationKey{orgID, "", part}, id), nil
}

// sharedBeside reports whether a conversation other than the one with the id has a shared part. It is called with mu held.
func (c *Conversations) sharedBeside(part conversationKey, id string) bool {
	for has := range c.shared[part] {
		if has != id {
			return true
		}
	}
	return false
}

// ForkSession implements agent.Sessions.
func (s *Sessions) ForkSession(ctx context.Context, one agent.Session, _ bool, f journal.Fork) error {
	f.ID = one.ID
	return s.create(one, func() error { return s.Conversations.Fork(ctx, one.Org, f, journal.Kept) })
}
