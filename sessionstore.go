package turnpike

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// SessionStore is a [Conversation] whose turns can be read again: what an [Agent.Session] needs, such as sqlite.NewSessions
// returns.
type SessionStore interface {
	Conversation

	// Enter returns what is in front of the next run of a session, and reserves the session for the run
	// until leave is called. The error wraps [ErrBusy] if the session is reserved. A session that is not known is empty.
	Enter(ctx context.Context, key SessionKey, runID string) (past Past, leave func(), err error)

	// Get returns a session. The error wraps [ErrNoSession] if there is none.
	Get(ctx context.Context, key SessionKey) (SessionInfo, error)

	// Turns returns the turns that the next run gets. The error wraps [ErrNoSession] if there is none.
	Turns(ctx context.Context, key SessionKey) ([]Turn, error)

	// Delete deletes a session with its turns. The error wraps [ErrNoSession] if there is none, and [ErrBusy]
	// if the session is reserved.
	Delete(ctx context.Context, key SessionKey) error

	// List returns a page of the sessions of a caller, those with the latest turn first: up to limit of them, after the one with
	// the id before; "" = from the first.
	List(ctx context.Context, caller tool.CallerKey, before string, limit int) ([]SessionInfo, error)
}

// SessionKey names a session of a [SessionStore].
type SessionKey struct {
	Caller CallerKey
	ID     string
}

// SessionRewinder is a place of sessions that can take runs out of them and copy them: what [Session.Rewind] and
// [Session.Fork] need. The errors wrap [ErrNoSession] if there is no such session, and [ErrBusy] if one is reserved.
type SessionRewinder interface {
	// Rewind takes a run and all turns after its first one out of a session. The error wraps ErrNoSession if the session does
	// not contain the run, and nothing changes. [Past].Rewound names them from then on.
	Rewind(ctx context.Context, key SessionKey, beforeRun string) error
	// Fork begins another session with the turns of a session. If there is one with the id fork, it is an error.
	Fork(ctx context.Context, key SessionKey, fork string) error
}

// SessionInfo is a session without its turns.
type SessionInfo struct {
	Caller CallerKey // that of [Program] for runs without [As]
	ID     string

	Title        string
	Participants []string
	Metadata     map[string]string

	// Summary stands for earlier turns: see sqlite.Sessions.Summarize; "" = none.
	Summary string

	Created, Updated time.Time // of its first turn, or when it was forked, and of its last one
	Expires          time.Time // zero = never
}

// ErrNoSession is wrapped by errors about a session that has never had a turn, has expired, or is deleted, and about a run
// that a session does not contain.
var ErrNoSession = conversation.ErrNoSession

// Info returns what is known of the session besides its turns. The error wraps [ErrNoSession] if the session has no turns.
func (s *Session) Info(ctx context.Context) (SessionInfo, error) {
	kept, key, err := s.shown()
	if err != nil {
		return SessionInfo{}, err
	}
	return kept.Get(ctx, key)
}

// Turns returns the turns of the session that are in front of its next run, the oldest first. Errors are those
// of [Session.Info].
func (s *Session) Turns(ctx context.Context) ([]Turn, error) {
	kept, key, err := s.shown()
	if err != nil {
		return nil, err
	}
	return kept.Turns(ctx, key)
}

// Delete deletes the session with its turns: a next run begins anew. What a fork has of them stays there. The journals of its
// runs stay in the store. While a run of the session has not ended, the error is a [*SessionError]; [Session.Cancel] ends a run
// that waits. Other errors are those of [Session.Info].
func (s *Session) Delete(ctx context.Context) error {
	kept, key, err := s.unlessBusy(ctx)
	if err != nil {
		return err
	}
	return s.orBusy(kept.Delete(ctx, key))
}

// Rewind takes a run of the session, and all that came after it, out of its history: a next run goes on from what was before.
// The journals of the runs stay in the store; they cannot be resumed. The error wraps [ErrNoSession] if the session does not
// contain the run, and nothing changes. While a run of the session has not ended, the error is a [*SessionError]. Other errors are those of [Session.Info].
func (s *Session) Rewind(ctx context.Context, beforeRun string) error {
	kept, key, err := s.rewinder(ctx)
	if err != nil {
		return err
	}
	return s.orBusy(kept.Rewind(ctx, key, beforeRun))
}

// Fork begins another session, with the given id, that has the turns of this one, and returns it. From then on they are
// independent: turns of one, rewinds and deletion do not change the other. In a store, the turns are stored once. If a
// session has the id, the error is a [*ValidationError]. While a run of this session has not ended, it is a [*SessionError].
// Other errors are those of [Session.Info].
func (s *Session) Fork(ctx context.Context, id string) (*Session, error) {
	if err := checkSession(id); err != nil {
		return nil, err
	}
	kept, key, err := s.rewinder(ctx)
	if err != nil {
		return nil, err
	}
	if err := kept.Fork(ctx, key, id); errors.Is(err, org.ErrExists) {
		return nil, invalid("there is a session %q; fork into another id, or delete it", id)
	} else if err != nil {
		return nil, s.orBusy(err)
	}
	return &Session{s.agent, id, s.caller, s.memory}, nil
}

// rewinder is unlessBusy for a place of sessions that can rewind them.
func (s *Session) rewinder(ctx context.Context) (SessionRewinder, SessionKey, error) {
	kept, key, err := s.unlessBusy(ctx)
	if err != nil {
		return nil, SessionKey{}, err
	}
	rewinder, ok := kept.(SessionRewinder)
	if !ok {
		return nil, SessionKey{}, invalid(
			"Agent.Conversation is a %T, which does not rewind or fork sessions: it does not implement SessionRewinder",
			kept,
		)
	}
	return rewinder, key, nil
}

// unlessBusy is shown for a session without a run that has not ended, and otherwise returns a *SessionError.
func (s *Session) unlessBusy(ctx context.Context) (SessionStore, SessionKey, error) {
	kept, key, err := s.shown()
	if err != nil {
		return nil, SessionKey{}, err
	}
	c := &call{engine: s.agent.engine, caller: key.Caller.Caller(), session: s.id, sessions: kept, id: "change"}
	past, leave, err := c.enterSession(ctx)
	if err == nil {
		err = c.mayFollow(ctx, past)
		leave()
	}
	return kept, key, err
}

// orBusy returns a *SessionError for an error that wraps ErrBusy: a run has begun meanwhile.
func (s *Session) orBusy(err error) error {
	if errors.Is(err, ErrBusy) {
		return (&call{session: s.id}).busy()
	}
	return err
}

// sessionsPage is how many sessions are read at a time.
const sessionsPage = 100

// Sessions yields the sessions of a caller, such as [Program], that the agent's Conversation or Store keeps, those with the latest
// turn first. An error is the last pair. A Conversation lists runs without a session too, under the ids of the runs.
func (a *Agent) Sessions(ctx context.Context, c Caller) iter.Seq2[SessionInfo, error] {
	return pages(func(before string) ([]SessionInfo, string, error) {
		e, err := a.prepare()
		if err != nil {
			return nil, "", err
		}
		kept := e.keptSessions(nil)
		if kept == nil {
			return nil, "", invalid(
				"nothing lists the sessions of the agent: set Agent.Store, or Agent.Conversation to a SessionStore; a session in memory is known to its value only",
			)
		}
		found, err := kept.List(ctx, c.Key(), before, sessionsPage)
		if err != nil || len(found) < sessionsPage {
			return found, "", err
		}
		return found, found[len(found)-1].ID, nil
	})
}

// pages yields what a function reads page by page, each after the name that it has returned with the one before; "" = the last.
func pages[T any](read func(after string) (page []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := ""; ; {
			page, next, err := read(after)
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if after = next; after == "" {
				return
			}
		}
	}
}

// shown returns what keeps the session, and its key there.
func (s *Session) shown() (SessionStore, SessionKey, error) {
	e, err := s.agent.prepare()
	if err != nil {
		return nil, SessionKey{}, err
	}
	if err := checkSession(s.id); err != nil {
		return nil, SessionKey{}, err
	}
	return e.keptSessions(s), SessionKey{s.caller.Key(), s.id}, nil
}
