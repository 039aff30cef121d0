package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// local is the org of what agents store, as the library calls it.
const local = "local"

// Limits of conversations.
const (
	defaultTTL       = 30 * 24 * time.Hour
	defaultTurnBytes = 1 << 20
	defaultTurns     = 200
	maxPage          = 1000 // conversations
)

// ErrNotFound is wrapped by the errors about a conversation that is missing or has expired.
var ErrNotFound = turnpike.ErrNoSession

// ConversationOptions are limits of [Conversations]. The zero value is useful.
type ConversationOptions struct {
	// TTL is how long a conversation is kept after its last turn, or after it was forked; 0 = 30 days, negative = for ever.
	// What has expired is not found any more, and is deleted by later writes, up to 100 conversations each.
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
	_ turnpike.SessionStore    = (*Conversations)(nil)
	_ turnpike.SessionLister   = (*Conversations)(nil)
	_ turnpike.SessionRewinder = (*Conversations)(nil)
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

// Append implements turnpike.Conversation.
func (c *Conversations) Append(ctx context.Context, turn turnpike.Turn) error {
	body, err := item.List(turn.Items).MarshalJSON()
	if err != nil {
		return fmt.Errorf("turn %d of run %s: %w", turn.Number, turn.RunID, err)
	}
	if err := c.fits(fmt.Sprintf("turn %d of run %s", turn.Number, turn.RunID), len(body)); err != nil {
		return err
	}
	n := conversation.ChainName{Owner: turn.Caller.Owner(), ID: cmp.Or(turn.Session, turn.RunID)}
	one := journal.Conversation{RunID: turn.RunID, Part: turn.Number + 1, Role: string(turn.Role), Items: turn.Items}
	return c.store.chains.Append(ctx, n, one, c.o.TTL)
}

// Enter implements turnpike.Sessions. The reservation holds for all agents that share the store.
func (c *Conversations) Enter(ctx context.Context, owner, session, _ string) (turnpike.Past, func(), error) {
	leave, err := c.store.chains.Reserve(conversation.ChainName{Owner: owner, ID: session})
	if err != nil {
		return turnpike.Past{}, nil, err
	}
	past, err := c.past(ctx, owner, session)
	if err != nil && !errors.Is(err, ErrNotFound) {
		leave()
		return turnpike.Past{}, nil, err
	}
	return past, leave, nil
}

// past reads what is in front of the next run.
func (c *Conversations) past(ctx context.Context, owner, id string) (turnpike.Past, error) {
	turns, info, err := c.store.chains.Turns(ctx, conversation.ChainName{Owner: owner, ID: id}, c.o.Turns)
	past := turnpike.Past{Summary: info.Summary, Rewound: info.Rewound}
	for _, t := range turns {
		past.Turns = append(past.Turns, turnpike.Turn{
			Session: id, RunID: t.RunID, Caller: tool.CallerOf(owner), Number: t.Part - 1, Role: turnpike.TurnRole(t.Role), Items: t.Items,
		})
	}
	return past, err
}

// Conversation is a stored conversation, without its turns. Its ID is that of the session, or of the run without one.
type Conversation = turnpike.SessionInfo

// Get returns a conversation of an owner. The error wraps [ErrNotFound] if there is none.
func (c *Conversations) Get(ctx context.Context, owner, id string) (Conversation, error) {
	found, err := c.store.chains.Info(ctx, conversation.ChainName{Owner: owner, ID: id})
	return Conversation(found.ChainShown), err
}

// List returns the conversations of an owner, those with the latest turn first: up to limit of them, at most
// 1,000 and 1,000 for 0, after the one with the id before; "" = from the first.
func (c *Conversations) List(ctx context.Context, owner, before string, limit int) ([]Conversation, error) {
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	found, err := c.store.chains.List(ctx, owner, before, limit)
	var out []Conversation
	for _, one := range found {
		out = append(out, Conversation(one.ChainShown))
	}
	return out, err
}

// Turns returns the newest turns of a conversation as the next run of the session gets them, those that the
// summary stands for left out. The error wraps [ErrNotFound] if there is none.
func (c *Conversations) Turns(ctx context.Context, owner, id string) ([]turnpike.Turn, error) {
	past, err := c.past(ctx, owner, id)
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
	return c.store.chains.Describe(ctx, conversation.ChainName{Owner: owner, ID: id}, title, participants, metadata)
}

// Summarize stores a text that stands for the turns of a conversation from the first one to the last one of a run,
// in place of an earlier summary. Later runs of the session get it as a system message, and not these
// turns. The error wraps [ErrNotFound] if the conversation does not have the run.
func (c *Conversations) Summarize(ctx context.Context, owner, id, throughRun, summary string) error {
	if err := c.fits("a summary", len(summary)); err != nil {
		return err
	}
	return c.store.chains.Summarize(ctx, conversation.ChainName{Owner: owner, ID: id}, throughRun, summary)
}

// fits returns an error for a text that is larger than a turn may be.
func (c *Conversations) fits(what string, size int) error {
	if size > c.o.TurnBytes {
		return fmt.Errorf("%s has %d bytes, and may have %d (ConversationOptions.TurnBytes)", what, size, c.o.TurnBytes)
	}
	return nil
}

// Rewind implements turnpike.SessionRewinder. A summary that stands for one of the runs that leave the conversation is
// deleted, and the turns before are read back again.
func (c *Conversations) Rewind(ctx context.Context, owner, id, beforeRun string) error {
	return c.store.chains.Rewind(ctx, conversation.ChainName{Owner: owner, ID: id}, beforeRun)
}

// Fork implements turnpike.SessionRewinder. The turns are stored once, until the last conversation with them is deleted. The
// title, the participants, the metadata and the summary are copied.
func (c *Conversations) Fork(ctx context.Context, owner, id, fork string) error {
	return c.store.chains.Fork(ctx, conversation.ChainName{Owner: owner, ID: id}, fork, c.o.TTL)
}

// Delete deletes a conversation with its turns; those that another one has as a fork stay there. The error wraps
// [ErrNotFound] if there is none, and turnpike.ErrBusy if a run of the session is in progress. The journals of its
// runs stay.
func (c *Conversations) Delete(ctx context.Context, owner, id string) error {
	return c.store.chains.Delete(ctx, conversation.ChainName{Owner: owner, ID: id})
}
