package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/sqlite"
	"github.com/turnpike-gateway/turnpike/tool"
)

// local is the org of what agents store, as the library calls it.
const local = "local"

// Limits of conversations.
const (
	defaultTTL       = 30 * 24 * time.Hour
	defaultTurnBytes = 1 << 20
	defaultTurns     = 200
	maxReadBytes     = 32 << 20 // of the turns that are read back at a time
	maxPage          = 1000     // conversations
)

// ErrNotFound is wrapped by the errors about a conversation that is missing or has expired.
var ErrNotFound = turnpike.ErrNoSession

// ConversationOptions are limits of [Conversations]. The zero value is useful.
type ConversationOptions struct {
	// TTL is how long a conversation is kept after its last turn; 0 = 30 days, negative = for ever. What
	// has expired is not found any more, and is deleted by later writes, up to 100 conversations each.
	TTL time.Duration

	// TurnBytes is how large a turn may be, as JSON; 0 = 1 MiB. A larger one ends its run with an error.
	TurnBytes int

	// Turns is how many turns are read back for the next run of a session; 0 = 200. They also have at
	// most 32 MiB together. Older ones stay stored. Whole runs are left out.
	Turns int
}

// Conversations keeps the conversations of agents in the file of a store: for Agent.Conversation, and for the
// sessions of agents. The turns of a run without a session are a conversation with the id of the run. A turn
// that is appended again, by a run that is resumed after a crash, is stored once. It is safe for
// concurrent use.
type Conversations struct {
	store *Store
	o     ConversationOptions
}

var (
	_ turnpike.SessionStore  = (*Conversations)(nil)
	_ turnpike.SessionLister = (*Conversations)(nil)
)

// Conversations returns the conversations of the store.
func (s *Store) Conversations(o ConversationOptions) *Conversations {
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	if o.TTL < 0 {
		o.TTL = 0 // for ever, to the store
	}
	if o.TurnBytes <= 0 {
		o.TurnBytes = defaultTurnBytes
	}
	if o.Turns <= 0 {
		o.Turns = defaultTurns
	}
	return &Conversations{s, o}
}

// Sessions returns what keeps the sessions of agents without a Conversation: Conversations with the zero
// ConversationOptions.
func (s *Store) Sessions() turnpike.Sessions { return s.Conversations(ConversationOptions{}) }

// key returns the key of a conversation.
func key(owner, id string) sqlite.AgentConversationKey {
	return sqlite.AgentConversationKey{Org: local, Owner: owner, ID: id}
}

// Append implements turnpike.Conversation.
func (c *Conversations) Append(ctx context.Context, turn turnpike.Turn) error {
	of := sqlite.AgentTurn{RunID: turn.RunID, Number: turn.Number, Role: string(turn.Role), Items: turn.Items}
	k := key(turn.Caller.Owner(), cmp.Or(turn.Session, turn.RunID))
	return c.store.inner.AppendAgentTurn(ctx, k, of, c.o.TurnBytes, c.o.TTL)
}

// Enter implements turnpike.Sessions. The reservation holds for all agents that share the store.
func (c *Conversations) Enter(ctx context.Context, owner, session, runID string) (turnpike.Past, func(), error) {
	k := key(owner, session)
	if err := c.store.reserve(k, runID); err != nil {
		return turnpike.Past{}, nil, err
	}
	leave := func() { c.store.release(k) }
	past, err := c.past(ctx, k)
	if err != nil {
		leave()
		return turnpike.Past{}, nil, err
	}
	return past, leave, nil
}

// past reads what is in front of the next run.
func (c *Conversations) past(ctx context.Context, k sqlite.AgentConversationKey) (turnpike.Past, error) {
	found, err := c.store.inner.AgentConversation(ctx, k)
	if errors.Is(err, org.ErrNotFound) {
		return turnpike.Past{}, nil
	} else if err != nil {
		return turnpike.Past{}, err
	}
	turns, err := c.store.inner.AgentTurns(ctx, k, found.SummarizedThrough, c.o.Turns, maxReadBytes)
	if err != nil {
		return turnpike.Past{}, err
	}
	past := turnpike.Past{Summary: found.Summary}
	for _, t := range turns {
		past.Turns = append(past.Turns, turnpike.Turn{
			Session: k.ID, RunID: t.RunID, Caller: tool.CallerOf(k.Owner),
			Number: t.Number, Role: turnpike.TurnRole(t.Role), Items: t.Items,
		})
	}
	return past, nil
}

// reserve reserves a conversation for a run.
func (s *Store) reserve(k sqlite.AgentConversationKey, runID string) error {
	s.enteredMu.Lock()
	defer s.enteredMu.Unlock()
	if by := s.entered[k]; by != "" {
		return fmt.Errorf("%w: %s", turnpike.ErrBusy, by)
	}
	if s.entered == nil {
		s.entered = map[sqlite.AgentConversationKey]string{}
	}
	s.entered[k] = runID
	return nil
}

func (s *Store) release(k sqlite.AgentConversationKey) {
	s.enteredMu.Lock()
	defer s.enteredMu.Unlock()
	delete(s.entered, k)
}

// Conversation is a stored conversation, without its turns. Its ID is that of the session, or of the run without one.
type Conversation = turnpike.SessionInfo

func conversationOf(c sqlite.AgentConversation) Conversation {
	out := Conversation{
		Owner: c.Owner, ID: c.ID, Title: c.Title, Participants: c.Participants, Metadata: c.Metadata,
		Summary: c.Summary, Created: time.UnixMilli(c.CreatedAt).UTC(), Updated: time.UnixMilli(c.UpdatedAt).UTC(),
	}
	if c.ExpiresAt > 0 {
		out.Expires = time.UnixMilli(c.ExpiresAt).UTC()
	}
	return out
}

// Get returns a conversation of an owner. The error wraps [ErrNotFound] if there is none.
func (c *Conversations) Get(ctx context.Context, owner, id string) (Conversation, error) {
	found, err := c.store.inner.AgentConversation(ctx, key(owner, id))
	return conversationOf(found), named(id, err)
}

// List returns the conversations of an owner, those with the latest turn first: up to limit of them, at most
// 1,000 and 1,000 for 0, after the one with the id before; "" = from the first.
func (c *Conversations) List(ctx context.Context, owner, before string, limit int) ([]Conversation, error) {
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	found, err := c.store.inner.AgentConversations(ctx, local, owner, before, limit)
	var out []Conversation
	for _, one := range found {
		out = append(out, conversationOf(one))
	}
	return out, err
}

// Turns returns the newest turns of a conversation as the next run of the session gets them, those that the
// summary stands for left out. The error wraps [ErrNotFound] if there is none.
func (c *Conversations) Turns(ctx context.Context, owner, id string) ([]turnpike.Turn, error) {
	if _, err := c.Get(ctx, owner, id); err != nil {
		return nil, err
	}
	past, err := c.past(ctx, key(owner, id))
	return past.Turns, err
}

// Describe stores the title, the participants and the metadata of a conversation. The error wraps
// [ErrNotFound] if there is none.
func (c *Conversations) Describe(
	ctx context.Context, owner, id, title string, participants []string, metadata map[string]string,
) error {
	size := len(title)
	for _, p := range participants {
		size += len(p)
	}
	for k, v := range metadata {
		size += len(k) + len(v)
	}
	if err := c.fits("the description of a conversation", size); err != nil {
		return err
	}
	return named(id, c.store.inner.DescribeAgent(ctx, key(owner, id), title, participants, metadata))
}

// Summarize stores a text that stands for the turns of a conversation from the first one to the last one of a run,
// in place of an earlier summary. Later runs of the session get it as a system message, and not these
// turns. The error wraps [ErrNotFound] if the conversation does not have the run.
func (c *Conversations) Summarize(ctx context.Context, owner, id, throughRun, summary string) error {
	if err := c.fits("a summary", len(summary)); err != nil {
		return err
	}
	return named(id, c.store.inner.SummarizeAgent(ctx, key(owner, id), throughRun, summary))
}

// fits returns an error for a text that is larger than a turn may be.
func (c *Conversations) fits(what string, size int) error {
	if size > c.o.TurnBytes {
		return fmt.Errorf("%s has %d bytes, and may have %d (ConversationOptions.TurnBytes)", what, size, c.o.TurnBytes)
	}
	return nil
}

// Delete deletes a conversation with its turns. The error wraps [ErrNotFound] if there is none, and
// turnpike.ErrBusy if a run of the session is in progress. The journals of its runs stay.
func (c *Conversations) Delete(ctx context.Context, owner, id string) error {
	k := key(owner, id)
	if err := c.store.reserve(k, "Delete"); err != nil {
		return err
	}
	defer c.store.release(k)
	return named(id, c.store.inner.DeleteAgent(ctx, k))
}

func named(id string, err error) error {
	if errors.Is(err, org.ErrNotFound) {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("conversation %s: %w", id, err)
	}
	return nil
}
