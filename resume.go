package turnpike

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Decision is what a person has decided about a tool call that waits.
type Decision struct {
	Approval string // the ID of the [Approval]
	Approved bool
	By       string // who has decided, for the audit log; "" = the program
	Reason   string // for the model, and the audit log
}

// Approve returns the decision that the call is executed.
func Approve(approvalID string) Decision { return Decision{Approval: approvalID, Approved: true} }

// Deny returns the decision that the call is not executed. The model is told the reason.
func Deny(approvalID, reason string) Decision { return Decision{Approval: approvalID, Reason: reason} }

// Resume goes on with a run of the agent's store: with one that waits, after the decisions about all its
// calls; with one that a crash has broken off; and with one that has reached a limit which is higher
// now. Of another run that has ended it returns the result, or the error, that it had. A run that is in memory can be resumed
// while it waits. The stream has the events from here on, and the result is that of the whole run, with its steps. If calls
// still wait, the error is [*Waiting].
//
// The agent must be the one that began the run, or one with the same model and tools. A run that has
// reached a limit goes on as another run, with another id: it begins with the transcript of the
// first, and what the first has spent counts.
//
// Other turns of its [Session] come after it: a run of a session that lives in memory is resumed with
// [Session.Resume].
func (a *Agent) Resume(ctx context.Context, runID string, decisions ...Decision) *Stream {
	return a.resume(ctx, nil, runID, decisions)
}

// resume resumes a run. s is its session, if that is known; nil = not.
func (a *Agent) resume(ctx context.Context, s *Session, runID string, decisions []Decision) *Stream {
	e, err := a.prepare()
	if err != nil {
		return failedStream(err)
	}
	c := e.resumed(runID)
	return newStream(ctx, runID, func(ctx context.Context, sink sink) (*Result, error) {
		return c.resume(ctx, s, decisions, sink)
	})
}

// resumed returns the call of a run that has begun before.
func (e *engine) resumed(runID string) *call {
	o := options{caller: everything(), limits: e.agent.Limits, mode: Auto, trace: true}
	return &call{engine: e, id: runID, o: o, ended: map[string]outcome{}}
}

// key returns the key of the run in the store.
func (c *call) key() journal.RunKey { return journal.RunKey{Org: orgID, Run: c.id} }

func (c *call) resume(ctx context.Context, s *Session, decisions []Decision, sink sink) (*Result, error) {
	e := c.engine
	leave, err := c.recall(ctx, s)
	if err != nil {
		return nil, errorOf(ctx, err, Partial{})
	}
	defer leave()
	if err := e.ready(c.caller.ID); err != nil {
		return nil, err
	}
	for _, d := range decisions {
		if err := c.decide(ctx, d); err != nil {
			return nil, errorOf(ctx, err, Partial{})
		}
	}
	c.sink = sink
	out := e.enter(c)
	p, err := e.here.Continue(ctx, c.key(), c)
	out()
	if not, ok := errors.AsType[*run.NotNow](err); ok {
		switch not.Status {
		case journal.Done:
			return c.goOn(ctx, sink)
		case journal.Waiting:
			return nil, c.stillWaits(ctx)
		case journal.Running, journal.IsAside:
		}
	}
	return c.end(ctx, p, err)
}

// recall finds the session of the run and what its conversation has. It reserves the session until leave
// is called. s is the session, if the caller knows it.
func (c *call) recall(ctx context.Context, s *Session) (leave func(), err error) {
	e := c.engine
	c.conversation = e.agent.Conversation
	before, err := e.here.Transcript(ctx, c.key())
	if err != nil {
		return nil, err
	}
	c.lastTurn, c.turns, c.caller = item.LastTurn(before.Items[:before.Input]), 1, before.Caller
	c.session = before.State.Accepted.AgentSession
	c.noteEnded(before)
	if s != nil && s.id != c.session {
		return nil, &ResumeError{Message: fmt.Sprintf("session %s has no run %s", s.id, c.id), status: http.StatusNotFound}
	}
	if c.session == "" {
		return func() {}, nil
	}
	if c.sessions = e.sessionsOf(s); c.sessions == nil {
		return nil, &ResumeError{Message: fmt.Sprintf("run %s is part of session %s, which is in memory; use Session.Resume or Session.Cancel", c.id, c.session), status: http.StatusConflict}
	}
	c.conversation = c.sessions
	past, leave, err := c.enterSession(ctx)
	if err == nil && slices.Contains(past.Rewound, c.id) {
		leave()
		message := fmt.Sprintf("run %s is not in session %s any more: Session.Rewind has taken it out", c.id, c.session)
		err = &ResumeError{Message: message, status: http.StatusConflict}
	}
	return leave, err
}

// noteEnded notes the tool calls that have ended, in whatever process.
func (c *call) noteEnded(p run.Performed) {
	for _, done := range p.Ended {
		c.ended[string(done.Key)] = outcome{done.Outcome, time.Duration(done.Micros) * time.Microsecond}
	}
}

// decide records a decision.
func (c *call) decide(ctx context.Context, d Decision) error {
	e := c.engine
	a, err := e.archive.Approval(ctx, orgID, d.Approval)
	switch {
	case errors.Is(err, org.ErrNotFound), err == nil && a.RunID != c.id:
		return &ResumeError{Message: fmt.Sprintf("run %s has no approval %s", c.id, d.Approval), status: 404}
	case err != nil:
		return err
	}
	by := d.By
	if by == "" {
		by = programID
	}
	if err := e.ready(by); err != nil {
		return err
	}
	made := journal.Decision{Approved: d.Approved, Message: d.Reason}
	decider := run.TrustedDecider(org.Author{Principal: by, At: clock.Wall().UnixMilli()})
	_, err = e.runner.Decisions().Decide(ctx, orgID, d.Approval, made, decider)
	return err
}

// stillWaits returns the error of a run that waits for more decisions.
func (c *call) stillWaits(ctx context.Context) error {
	e := c.engine
	p, err := e.here.Transcript(ctx, c.key())
	if err != nil {
		return errorOf(ctx, err, Partial{})
	}
	w := &Waiting{RunID: c.id, Partial: Partial{c.result(p)}}
	const most = 1000
	approvals, err := e.archive.Approvals(ctx, orgID, journal.ApprovalQuery{RunID: c.id, Limit: most})
	if err != nil {
		return errorOf(ctx, err, w.Partial)
	}
	for _, of := range p.State.Calls { // in this order
		for _, one := range approvals {
			if one.Status == journal.ApprovalWaiting && one.Call == of.Key {
				w.Approvals = append(w.Approvals, c.approval(ctx, one))
			}
		}
	}
	return w
}

// approval returns an approval as the caller sees it.
func (c *call) approval(ctx context.Context, a journal.Approval) Approval {
	const most = 1 << 20 // bytes of arguments
	out := Approval{ID: a.ID, Tool: a.Name}
	if rows, err := c.engine.archive.Rows(ctx, orgID, c.id, []string{a.ArgsRef}, most); err == nil && len(rows) > 0 {
		out.Arguments = rows[0]
	}
	if a.ExpiresAt > 0 {
		out.ExpiresAt = timeOf(a.ExpiresAt)
	}
	return out
}

// goOn returns the result of a run that has ended. If it has reached a limit that is higher now, a next
// run goes on with its transcript.
func (c *call) goOn(ctx context.Context, sink sink) (*Result, error) {
	p, err := c.engine.here.Transcript(ctx, c.key())
	if err != nil {
		return nil, errorOf(ctx, err, Partial{})
	}
	rest, ok := c.rest(p)
	if !ok {
		return c.end(ctx, p, nil)
	}
	next := &call{
		engine: c.engine, id: newRunID(), input: p.Items[c.system(p):], o: c.o, caller: p.Caller, ended: map[string]outcome{},
		lastTurn: item.LastTurn(p.Items), conversation: c.conversation, session: c.session, sessions: c.sessions,
	}
	next.o.limits, next.o.skipInput = rest, true
	next.o.trace = c.o.trace
	return next.performHere(ctx, sink)
}

// system returns how many items of the transcript the agent has put in front of the input.
func (c *call) system(p run.Performed) int {
	if c.engine.agent.Instructions != "" && p.Input > 0 && p.Items[0].Role == item.System {
		return 1
	}
	return 0
}

// rest returns what is left of the agent's limits for a run that has reached one of its own; false if
// nothing is, or if no limit has ended the run.
func (c *call) rest(p run.Performed) (Limits, bool) {
	s := &p.State
	if r := s.Finished.Reason; !r.Limit() && r != event.BudgetExceeded || r == event.NoProgress {
		return Limits{}, false
	}
	l := c.o.limits
	sealed := l.sealed()
	l.Rounds, l.Calls = sealed.Rounds-s.Counts.Rounds, sealed.Calls-s.Counts.Calls
	if l.Rounds <= 0 || l.Calls <= 0 {
		return l, false
	}
	if l.Tokens > 0 {
		if l.Tokens -= s.Spent.Tokens; l.Tokens <= 0 {
			return l, false
		}
	}
	if !l.USD.IsZero() {
		left := l.USD.Nano() - s.Spent.NanoUSD
		if left <= 0 {
			return l, false
		}
		l.USD = tool.NanoUSD(left)
	}
	if l.Time > 0 {
		if l.Time -= time.Duration(s.At-s.ActiveSince+s.ActiveMS) * time.Millisecond; l.Time < time.Millisecond {
			return l, false
		}
	}
	return l, true
}

// Follow reports the events of a run that [Agent.Start] has begun, after a position: the zero position is
// before the first one. It reports those that are stored, and then those that happen: of a run that a crash has broken off, once
// somebody resumes it. Leaving the loop does not end the run.
func (a *Agent) Follow(ctx context.Context, runID string, after event.Position) *Stream {
	e, err := a.prepare()
	if err != nil {
		return failedStream(err)
	}
	c := e.resumed(runID)
	return newStream(ctx, runID, func(ctx context.Context, sink sink) (*Result, error) {
		c.sink = sink
		if err := e.runner.Follow(ctx, eventlog.Follow{Org: orgID, RunID: runID, After: after, ToWaiting: true}, c); err != nil {
			return nil, errorOf(ctx, err, Partial{})
		}
		p, err := e.here.Transcript(ctx, c.key())
		if err != nil {
			return nil, errorOf(ctx, err, Partial{})
		}
		c.noteEnded(p)
		if failure := c.failure(ctx, p, nil); failure != nil {
			return nil, failure
		}
		return c.result(p), nil
	})
}

// Cancel ends a run that [Agent.Start] has begun, that waits, or that a crash has broken off. What its tools did stays.
// A run that is in progress ends a little later. One that waits in a [Session] in memory is cancelled
// with [Session.Cancel].
func (a *Agent) Cancel(ctx context.Context, runID string) error { return a.cancel(ctx, nil, runID) }

// cancel cancels a run. s is its session, if that is known; nil = not.
func (a *Agent) cancel(ctx context.Context, s *Session, runID string) error {
	e, err := a.prepare()
	if err != nil {
		return err
	}
	c := e.resumed(runID)
	leave, err := c.recall(ctx, s)
	if _, busy := errors.AsType[*SessionError](err); busy { // its run ends by itself
		leave, err = func() {}, nil
	}
	if err != nil {
		return errorOf(ctx, err, Partial{})
	}
	defer leave()
	err = e.runner.Cancel(ctx, orgID, runID, org.Author{Principal: programID, At: clock.Wall().UnixMilli()})
	if err != nil {
		return errorOf(ctx, err, Partial{})
	}
	out := e.enter(c)
	p, err := e.here.Continue(ctx, c.key(), c) // of a run that nobody performs
	out()
	if _, performed := errors.AsType[*run.NotNow](err); performed {
		return nil
	}
	_, err = c.end(ctx, p, err)
	if _, cancelled := errors.AsType[*AbortError](err); cancelled && ctx.Err() == nil {
		return nil
	}
	return err
}

func timeOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
