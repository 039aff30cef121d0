package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// sessionRef is the row with the session of a key to which a run adds when it ends.
const sessionRef = "session"

// storedSession is the form of the row.
type storedSession struct {
	ID    string         `json:"id"`
	TTL   int64          `json:"ttl_ns"`
	Since int64          `json:"since_ms"`
	Cut   map[string]int `json:"cut,omitempty"`
}

// Sessions returns the sessions of keys, to which the runs add.
func (r *Runner) Sessions() *conversation.Sessions { return r.sessions }

// sessionName returns the name of the session to which a run adds; false = it adds to none.
func (s *runState) sessionName() (conversation.SessionName, bool) {
	c := s.req.Continues
	return conversation.SessionName{Org: s.req.Org, Principal: s.req.Principal, ID: c.ID}, c.Resent && !s.relay
}

// toolSession returns the name of the session for the tools of a run, unique in its org; "" = it has none. A session that was
// deleted, or has expired, leaves nothing to a later one with its id.
func (s *runState) toolSession() string {
	n, ok := s.sessionName()
	if !ok {
		return ""
	}
	return nameForTools(n, s.req.Continues.Since)
}

func nameForTools(n conversation.SessionName, since int64) string {
	return fmt.Sprintf("session %s %s %d", n.Principal, n.ID, since)
}

// mayRemember returns a [fault.Error] for a decision that is to be remembered in a session that the run does not have.
func mayRemember(ctx context.Context, archive journal.Archive, orgID, runID string, d journal.Decision) error {
	if !d.Remember {
		return nil
	}
	rows, err := archive.Rows(ctx, orgID, runID, []string{sessionRef}, maxSessionRow)
	if err == nil && (len(rows) == 0 || rows[0] == nil) || errors.Is(err, org.ErrNotFound) {
		return fault.New(fault.Invalid, "unsupported_value", "remember_for_session: the run has no session; send the decision without it, or chat requests with a session_id").In("remember_for_session")
	}
	return err
}

// maxSessionRow bounds the bytes of the row with the session of a run. A cut in a part has about 40.
const maxSessionRow = 1 << 20

// sessionKeeper adds what a run has said to the session of its key.
type sessionKeeper struct {
	o        *Options
	run      *runState
	sessions *conversation.Sessions
}

// openedSession is the session of a run that is about to be accepted; nil = it has none.
type openedSession struct{ *conversation.Opened }

// open begins the run of the session that the request continues.
func (d *sessionKeeper) open() (*openedSession, error) {
	name, ok := d.run.sessionName()
	if !ok {
		return nil, nil
	}
	asked := d.run.req
	for {
		began, err := asked.beginning(d.run.ctx, d.o)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.run.ctx), appendTimeout)
		opened, err := d.sessions.Open(ctx, name, began.Session, d.run.lease.RunID, asked.Continues.TTL, asked.Key)
		cancel()
		refused, answer := asked.refusal(err)
		switch {
		case err == nil:
			asked.Continues.Since, asked.Continues.Remembered, began.Version = opened.Since, opened.Remembered, opened.Version
			return &openedSession{opened}, nil
		case errors.Is(err, journal.ErrChanged) && d.run.ctx.Err() == nil:
			asked.forget() // it is read again
		case refused, errors.As(err, new(*fault.Error)):
			return nil, answer
		default:
			d.run.storeFailed(err)
			return nil, journal.Unavailable(fmt.Errorf("session %s: %w", name.ID, err))
		}
	}
}

// accepted says whether the run was accepted. If nobody knows, whether the session is busy follows from the store.
func (o *openedSession) accepted(run *runState, unsure bool, err error) {
	if o == nil {
		return
	}
	if err == nil || unsure {
		o.Stored()
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	if err := o.Undo(ctx); err != nil {
		run.log.Warn("a session is kept although its run was not accepted", "error", err)
	}
}

// rows returns the row from which the next owner of the run knows its session.
func (d *sessionKeeper) rows() []journal.Row {
	if _, ok := d.run.sessionName(); !ok {
		return nil
	}
	c := d.run.req.Continues
	return []journal.Row{{Ref: sessionRef, Value: storedSession{c.ID, int64(c.TTL), c.Since, c.Cut}}}
}

// continuesOf returns what the request of a run continues.
func continuesOf(q *storedRequest, rows map[string]json.RawMessage) (conversation.Ref, error) {
	raw, ok := rows[sessionRef]
	if !ok {
		return q.continues(), nil
	}
	var s storedSession
	if err := json.Unmarshal(raw, &s); err != nil {
		return conversation.Ref{}, journal.Damaged(sessionRef, err)
	}
	return conversation.Ref{ID: s.ID, Resent: true, TTL: time.Duration(s.TTL), Since: s.Since, Cut: s.Cut}, nil
}

// isAnswer reports whether a run that ends so has given its client an answer, which the client sends again.
func isAnswer(r event.Reason) bool {
	return r == event.Complete || r == event.ClientCalls || r == event.OutputCut
}

// close stores what the run adds to its session, before the run ends. callIDs are the ids of the calls that the
// client executes. failed says that the run cannot be continued. close may be called again, by the next owner of the run, and
// then replaces what is stored.
func (d *sessionKeeper) close(reason event.Reason, failed bool, callIDs map[string]string) error {
	run := d.run
	name, ok := run.sessionName()
	if !ok {
		return nil
	}
	var added *conversation.Added
	if isAnswer(reason) && !failed {
		added = &conversation.Added{Conversation: run.segment(callIDs), Behind: run.start.parts, Cut: run.req.Continues.Cut}
		if len(added.Behind) == 0 { // what is in front is then of a build that stored sessions whole, and so did not name parts
			added.Items = append(slices.Clone(run.events.Items("input")[:run.start.notOwn]), added.Items...)
		}
		encoded := heldBySegment(&added.Conversation) // also beyond the limit: the run is at its end
		run.req.Account.Add(encoded)
		defer run.req.Account.Release(encoded)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	err := d.sessions.Close(ctx, name, run.req.Continues.Since, run.lease.RunID, added, run.state().Remembered)
	var bad *journal.Unreadable
	if errors.As(err, &bad) {
		run.log.Error("what a run has said is not added to its session", "session", name.ID, "error", err)
		return nil
	}
	if err != nil {
		run.storeFailed(err)
		return journal.Unavailable(fmt.Errorf("run %s: store its session: %w", run.lease.RunID, err))
	}
	return nil
}
