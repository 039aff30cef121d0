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

// SessionOptions are limits of [Sessions]. The zero value is useful.
type SessionOptions struct {
	// TTL is how long a conversation is kept after its last turn, or after it was forked; 0 = 30 days, negative = for ever.
	// What has expired is not found any more, and is deleted by later writes, up to 100 conversations each.
	TTL time.Duration

	// TurnBytes is how large a turn may be, as JSON; 0 = 1 MiB. A larger one ends its run with an error.
	TurnBytes int

	// Turns is how many turns are read back for the next run of a session; 0 = 200. They also have at
	// most 32 MiB together. Older ones stay stored. Whole runs are left out.
	Turns int
}

// Sessions keeps the conversations of agents in the file of a store: for Agent.Conversation, and for the
// sessions of agents. The turns of a run without a session are a conversation with the id of the run. A turn
// that is appended again, by a run that is resumed after a crash, is stored once. It is safe for
// concurrent use.
type Sessions struct {
	store *Store
	o     SessionOptions
}

var (
	_ turnpike.SessionStore    = (*Sessions)(nil)
	_ turnpike.SessionRewinder = (*Sessions)(nil)
)

// NewSessions returns the sessions of the store, for Agent.Conversation.
func NewSessions(s *Store, o SessionOptions) *Sessions {
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
	return &Sessions{s, o}
}

// Sessions implements turnpike.Store: it returns NewSessions with the zero SessionOptions.
func (s *Store) Sessions() turnpike.SessionStore { return NewSessions(s, SessionOptions{}) }

// Append implements turnpike.Conversation.
func (c *Sessions) Append(ctx context.Context, turn turnpike.Turn) error {
	body, err := item.List(turn.Items).MarshalJSON()
	if err != nil {
		return fmt.Errorf("turn %d of run %s: %w", turn.Number, turn.RunID, err)
	}
	if err := c.fits(fmt.Sprintf("turn %d of run %s", turn.Number, turn.RunID), len(body)); err != nil {
		return err
	}
	n := conversation.ChainName{Caller: turn.Caller.Key(), ID: cmp.Or(turn.Session, turn.RunID)}
	one := journal.Conversation{RunID: turn.RunID, Part: turn.Number + 1, Role: string(turn.Role), Items: turn.Items}
	return c.store.chains.Append(ctx, n, one, c.o.TTL)
}

// Enter implements turnpike.SessionStore. The reservation holds for all agents that share the store.
func (c *Sessions) Enter(ctx context.Context, key turnpike.SessionKey, _ string) (turnpike.Past, func(), error) {
	leave, err := c.store.chains.Reserve(conversation.ChainName(key))
	if err != nil {
		return turnpike.Past{}, nil, err
	}
	past, err := c.past(ctx, key)
	if err != nil && !errors.Is(err, turnpike.ErrNoSession) {
		leave()
		return turnpike.Past{}, nil, err
	}
	return past, leave, nil
}

// past reads what is in front of the next run.
func (c *Sessions) past(ctx context.Context, key turnpike.SessionKey) (turnpike.Past, error) {
	turns, info, err := c.store.chains.Turns(ctx, conversation.ChainName(key), c.o.Turns)
	past := turnpike.Past{Summary: info.Summary, Rewound: info.Rewound}
	for _, t := range turns {
		past.Turns = append(past.Turns, turnpike.Turn{
			Session: key.ID, RunID: t.RunID, Caller: key.Caller.Caller(), Number: t.Part - 1, Role: turnpike.TurnRole(t.Role), Items: t.Items,
		})
	}
	return past, err
}

// Get returns a conversation of a caller. The error wraps turnpike.ErrNoSession if there is none.
func (c *Sessions) Get(ctx context.Context, key turnpike.SessionKey) (turnpike.SessionInfo, error) {
	found, err := c.store.chains.Info(ctx, conversation.ChainName(key))
	return turnpike.SessionInfo(found.ChainShown), err
}

// List returns the conversations of a caller, those with the latest turn first: up to limit of them, at most
// 1,000 and 1,000 for 0, after the one with the id before; "" = from the first.
func (c *Sessions) List(ctx context.Context, caller tool.CallerKey, before string, limit int) ([]turnpike.SessionInfo, error) {
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	found, err := c.store.chains.List(ctx, caller, before, limit)
	var out []turnpike.SessionInfo
	for _, one := range found {
		out = append(out, turnpike.SessionInfo(one.ChainShown))
	}
	return out, err
}

// Turns returns the newest turns of a conversation as the next run of the session gets them, those that the
// summary stands for left out. The error wraps turnpike.ErrNoSession if there is none.
func (c *Sessions) Turns(ctx context.Context, key turnpike.SessionKey) ([]turnpike.Turn, error) {
	past, err := c.past(ctx, key)
	return past.Turns, err
}

// SessionDescription is what a program says of a session.
type SessionDescription struct {
	Title        string
	Participants []string
	Metadata     map[string]string
}

// Describe stores the description of a session in place of an earlier one. The error wraps turnpike.ErrNoSession if there is none.
func (c *Sessions) Describe(ctx context.Context, key turnpike.SessionKey, d SessionDescription) error {
	size := len(d.Title)
	for _, p := range d.Participants {
		size += len(p)
	}
	for k, v := range d.Metadata {
		size += len(k) + len(v)
	}
	if err := c.fits("the description of a session", size); err != nil {
		return err
	}
	return c.store.chains.Describe(ctx, conversation.ChainName(key), d.Title, d.Participants, d.Metadata)
}

// Summarize stores a text that stands for the turns of a conversation from the first one to the last one of a run,
// in place of an earlier summary. Later runs of the session get it as a system message, and not these
// turns. The error wraps turnpike.ErrNoSession if the conversation does not have the run.
func (c *Sessions) Summarize(ctx context.Context, key turnpike.SessionKey, throughRun, summary string) error {
	if err := c.fits("a summary", len(summary)); err != nil {
		return err
	}
	return c.store.chains.Summarize(ctx, conversation.ChainName(key), throughRun, summary)
}

// fits returns an error for a text that is larger than a turn may be.
func (c *Sessions) fits(what string, size int) error {
	if size > c.o.TurnBytes {
		return fmt.Errorf("%s has %d bytes, and may have %d (SessionOptions.TurnBytes)", what, size, c.o.TurnBytes)
	}
	return nil
}

// Rewind implements turnpike.SessionRewinder. A summary that stands for one of the runs that leave the conversation is
// deleted, and the turns before are read back again.
func (c *Sessions) Rewind(ctx context.Context, key turnpike.SessionKey, beforeRun string) error {
	return c.store.chains.Rewind(ctx, conversation.ChainName(key), beforeRun)
}

// Fork implements turnpike.SessionRewinder. The turns are stored once, until the last conversation with them is deleted. The
// title, the participants, the metadata and the summary are copied.
func (c *Sessions) Fork(ctx context.Context, key turnpike.SessionKey, fork string) error {
	return c.store.chains.Fork(ctx, conversation.ChainName(key), fork, c.o.TTL)
}

// Delete deletes a conversation with its turns; those that another one has as a fork stay there. The error wraps
// turnpike.ErrNoSession if there is none, and turnpike.ErrBusy if a run of the session is in progress. The journals of its
// runs stay.
func (c *Sessions) Delete(ctx context.Context, key turnpike.SessionKey) error {
	return c.store.chains.Delete(ctx, conversation.ChainName(key))
}
