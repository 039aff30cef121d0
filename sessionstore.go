package turnpike

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// SessionStore is a place of sessions that also shows and deletes them, such as sqlite.Store.Conversations. owner is
// Caller.Owner.
type SessionStore interface {
	Sessions

	// Get returns a session. The error wraps [ErrNoSession] if there is none.
	Get(ctx context.Context, owner, id string) (SessionInfo, error)
	// Turns returns the turns that the next run gets. The error wraps [ErrNoSession] if there is none.
	Turns(ctx context.Context, owner, id string) ([]Turn, error)
	// Delete deletes a session with its turns. The error wraps [ErrNoSession] if there is none, and [ErrBusy]
	// if the session is reserved.
	Delete(ctx context.Context, owner, id string) error
}

// SessionLister is a place of sessions that lists them: what [Agent.Sessions] needs.
type SessionLister interface {
	// List returns sessions of an owner, those with the latest turn first: up to limit of them, 0 = as many as it
	// returns at a time, after the one with the id before; "" = from the first.
	List(ctx context.Context, owner, before string, limit int) ([]SessionInfo, error)
}

// SessionInfo is a session without its turns.
type SessionInfo struct {
	Owner string // Caller.Owner of its caller: "program" for runs without [As]
	ID    string

	Title        string
	Participants []string
	Metadata     map[string]string

	// Summary stands for earlier turns: see sqlite.Conversations.Summarize; "" = none.
	Summary string

	Created, Updated time.Time // of its first turn and of its last one
	Expires          time.Time // zero = never
}

// ErrNoSession is wrapped by errors about a session that has no turns, has expired, or is deleted.
var ErrNoSession = errors.New("there is no such session")

// Info returns what is known of the session besides its turns. [As] names its caller, as for runs; other
// options are refused. The error wraps [ErrNoSession] if the session has no turns.
func (s *Session) Info(ctx context.Context, opts ...Option) (SessionInfo, error) {
	kept, owner, err := s.shown(opts)
	if err != nil {
		return SessionInfo{}, err
	}
	return kept.Get(ctx, owner, s.id)
}

// Turns returns the turns of the session that are in front of its next run, the oldest first. Options and errors are those
// of [Session.Info].
func (s *Session) Turns(ctx context.Context, opts ...Option) ([]Turn, error) {
	kept, owner, err := s.shown(opts)
	if err != nil {
		return nil, err
	}
	return kept.Turns(ctx, owner, s.id)
}

// Delete deletes the session with its turns: a next run begins anew. The journals of its runs stay in the store. While a
// run of the session has not ended, the error is a [*SessionError]; [Session.Cancel] ends a run that waits. Options
// and other errors are those of [Session.Info].
func (s *Session) Delete(ctx context.Context, opts ...Option) error {
	kept, owner, err := s.shown(opts)
	if err != nil {
		return err
	}
	c := &call{engine: s.agent.engine, caller: tool.CallerOf(owner), session: s.id, sessions: kept, id: "Delete"}
	past, leave, err := c.enterSession(ctx)
	if err != nil {
		return err
	}
	err = c.mayFollow(ctx, past)
	leave()
	if err != nil {
		return err
	}
	if err = kept.Delete(ctx, owner, s.id); errors.Is(err, ErrBusy) { // a run has begun meanwhile
		return c.busy()
	}
	return err
}

// Sessions returns sessions that the agent's Conversation or Store keeps, those with the latest turn first: up to limit of
// them, at most 1,000 and 1,000 for 0, after the one with the id before; "" = from the first. They are those of the caller of
// [As]; other options are refused. A Conversation lists runs without a session too, under the ids of the runs.
func (a *Agent) Sessions(ctx context.Context, before string, limit int, opts ...Option) ([]SessionInfo, error) {
	e, err := a.prepare()
	if err != nil {
		return nil, err
	}
	owner, err := shownTo(opts)
	if err != nil {
		return nil, err
	}
	kept, ok := e.keptSessions(nil).(SessionLister)
	if !ok {
		return nil, invalid("nothing lists the sessions of the agent: set Agent.Store, or Agent.Conversation to a SessionLister; a session in memory is known to its value only")
	}
	return kept.List(ctx, owner, before, limit)
}

// shown returns what keeps the session, and the owner for whom it is shown.
func (s *Session) shown(opts []Option) (SessionStore, string, error) {
	e, err := s.agent.prepare()
	if err != nil {
		return nil, "", err
	}
	if err := checkSession(s.id); err != nil {
		return nil, "", err
	}
	owner, err := shownTo(opts)
	if err != nil {
		return nil, "", err
	}
	kept, ok := e.keptSessions(s).(SessionStore)
	if !ok {
		return nil, "", invalid("Agent.Conversation is a %T, which does not show or delete sessions: it does not implement SessionStore", e.agent.Conversation)
	}
	return kept, owner, nil
}

// shownTo returns the owner whose sessions these options show.
func shownTo(opts []Option) (owner string, err error) {
	o := options{caller: everything()}
	for _, opt := range opts {
		opt(&o)
	}
	owner = o.caller.Owner()
	if o.caller = (Caller{}); !reflect.DeepEqual(o, options{}) {
		return "", invalid("sessions are shown and deleted with no other option than As")
	}
	return owner, nil
}

// Get implements SessionStore.
func (m *memorySessions) Get(_ context.Context, owner, session string) (SessionInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := sessionKey{owner, session}
	if len(m.turns[key]) == 0 {
		return SessionInfo{}, fmt.Errorf("session %s: %w", session, ErrNoSession)
	}
	at := m.times[key]
	return SessionInfo{Owner: owner, ID: session, Created: at.created, Updated: at.updated}, nil
}

// Turns implements SessionStore.
func (m *memorySessions) Turns(ctx context.Context, owner, session string) ([]Turn, error) {
	if _, err := m.Get(ctx, owner, session); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.turns[sessionKey{owner, session}]), nil
}

// Delete implements SessionStore.
func (m *memorySessions) Delete(ctx context.Context, owner, session string) error {
	if _, err := m.Get(ctx, owner, session); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := sessionKey{owner, session}
	if m.busy[key] != "" {
		return ErrBusy
	}
	delete(m.turns, key)
	delete(m.times, key)
	return nil
}
