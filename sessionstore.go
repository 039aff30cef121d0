package turnpike

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/org"
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

// SessionRewinder is a place of sessions that can take runs out of them and copy them: what [Session.Rewind] and
// [Session.Fork] need. The errors wrap [ErrNoSession] if there is no such session, and [ErrBusy] if one is reserved.
type SessionRewinder interface {
	// Rewind takes a run and all turns after its first one out of a session. The error wraps ErrNoSession if the session does
	// not contain the run, and nothing changes. [Past].Rewound names them from then on.
	Rewind(ctx context.Context, owner, id, beforeRun string) error
	// Fork begins another session with the turns of a session. If there is one with the id fork, it is an error.
	Fork(ctx context.Context, owner, id, fork string) error
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

	Created, Updated time.Time // of its first turn, or when it was forked, and of its last one
	Expires          time.Time // zero = never
}

// ErrNoSession is wrapped by errors about a session that has never had a turn, has expired, or is deleted, and about a run
// that a session does not contain.
var ErrNoSession = conversation.ErrNoSession

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

// Delete deletes the session with its turns: a next run begins anew. What a fork has of them stays there. The journals of its
// runs stay in the store. While a run of the session has not ended, the error is a [*SessionError]; [Session.Cancel] ends a run
// that waits. Options and other errors are those of [Session.Info].
func (s *Session) Delete(ctx context.Context, opts ...Option) error {
	kept, owner, err := s.unlessBusy(ctx, opts)
	if err != nil {
		return err
	}
	return s.orBusy(kept.Delete(ctx, owner, s.id))
}

// Rewind takes a run of the session, and all that came after it, out of its history: a next run goes on from what was before.
// The journals of the runs stay in the store; they cannot be resumed. The error wraps [ErrNoSession] if the session does not
// contain the run, and nothing changes. While a run of the session has not ended, the error is a [*SessionError]. Options and
// other errors are those of [Session.Info].
func (s *Session) Rewind(ctx context.Context, beforeRun string, opts ...Option) error {
	kept, owner, err := s.rewinder(ctx, opts)
	if err != nil {
		return err
	}
	return s.orBusy(kept.Rewind(ctx, owner, s.id, beforeRun))
}

// Fork begins another session, with the given id, that has the turns of this one, and returns it. From then on they are
// independent: turns of one, rewinds and deletion do not change the other. In a store, the turns are stored once. If a
// session has the id, the error is a [*ValidationError]. While a run of this session has not ended, it is a [*SessionError].
// Options and other errors are those of [Session.Info].
func (s *Session) Fork(ctx context.Context, id string, opts ...Option) (*Session, error) {
	if err := checkSession(id); err != nil {
		return nil, err
	}
	kept, owner, err := s.rewinder(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := kept.Fork(ctx, owner, s.id, id); errors.Is(err, org.ErrExists) {
		return nil, invalid("there is a session %q; fork into another id, or delete it", id)
	} else if err != nil {
		return nil, s.orBusy(err)
	}
	return &Session{s.agent, id, s.memory}, nil
}

// rewinder is unlessBusy for a place of sessions that can rewind them.
func (s *Session) rewinder(ctx context.Context, opts []Option) (SessionRewinder, string, error) {
	kept, owner, err := s.unlessBusy(ctx, opts)
	if err != nil {
		return nil, "", err
	}
	rewinder, ok := kept.(SessionRewinder)
	if !ok {
		return nil, "", invalid("Agent.Conversation is a %T, which does not rewind or fork sessions: it does not implement SessionRewinder", kept)
	}
	return rewinder, owner, nil
}

// unlessBusy is shown for a session without a run that has not ended, and otherwise returns a *SessionError.
func (s *Session) unlessBusy(ctx context.Context, opts []Option) (SessionStore, string, error) {
	kept, owner, err := s.shown(opts)
	if err != nil {
		return nil, "", err
	}
	c := &call{engine: s.agent.engine, caller: tool.CallerOf(owner), session: s.id, sessions: kept, id: "change"}
	past, leave, err := c.enterSession(ctx)
	if err == nil {
		err = c.mayFollow(ctx, past)
		leave()
	}
	return kept, owner, err
}

// orBusy returns a *SessionError for an error that wraps ErrBusy: a run has begun meanwhile.
func (s *Session) orBusy(err error) error {
	if errors.Is(err, ErrBusy) {
		return (&call{session: s.id}).busy()
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
		return "", invalid("sessions are shown and changed with no other option than As")
	}
	return owner, nil
}
