package loop

import (
	"fmt"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/tool"
)

// A durable run with the setting on_limit: pause waits at a limit instead of ending: at a limit of its
// own, and where a shared budget has no room. What was done stays, and calls over the limit stay open.
// When the limit is raised, the run goes on where it was. The first model call is an exception for
// limits in tokens and money: nothing is done yet, so that the request is refused as without the setting.
//
// At the time limit, what is under way may end: it has OvertimeMS for that. Then it is cut off, and the
// run ends.

// OvertimeMS is how much longer than its time limit what is under way in a run that pauses may take, in
// milliseconds. Most calls of models and tools end within it.
const OvertimeMS = 2 * 60 * 1000

// Pauses reports whether the run waits at a limit instead of ending.
func (p *Policy) Pauses() bool { return p.Grade == Durable && p.Limits.OnLimit == budget.Pause }

// pauses reports whether the run waits at its next limit.
func (s *State) pauses() bool { return s.Accepted != nil && s.Accepted.Pauses() && s.PauseOver == "" }

// CutAt returns when what is under way is cut off, in Unix milliseconds: at the deadline, or later if
// the run pauses there. It returns 0 before the run is accepted and while it waits.
func (s *State) CutAt() int64 {
	at := s.DeadlineAt()
	if at > 0 && s.pauses() {
		at += OvertimeMS
	}
	return at
}

// TimeIsUp reports whether the time limit of a run that pauses is used up at the time now, and no fact
// says so yet. The owner of the run must append Expired before it starts anything else.
func (s *State) TimeIsUp(now int64) bool {
	at := s.DeadlineAt()
	return s.pauses() && !s.TimeUp && s.Ended == "" && at > 0 && now >= at
}

// Cuts reports whether an Expired of the deadline ends the run.
func (s *State) Cuts(b Expired) bool { return b.Cut || !s.pauses() }

// PauseFor returns the fact with which a run waits for what a says. now is the time of the fact, in
// Unix milliseconds.
func (s *State) PauseFor(a Pause, waitID string, now int64) Paused {
	b := Paused{
		WaitID: waitID, Reason: a.Reason, Scope: a.Scope, EndsAt: a.EndsAt, ActiveMS: now - s.ActiveSince, CallerAt: s.Accepted.CallerAt,
	}
	if wait := s.Accepted.PauseMS; wait > 0 {
		b.ExpiresAt = now + wait
	}
	return b
}

// pauseAt returns the wait for a raise of a limit of the run.
func (s decision) pauseAt(reason event.Reason) Action { return Pause{Reason: reason} }

// inTime returns an action that starts something, or the wait for more time.
func (s decision) inTime(a Action) Action {
	if s.TimeUp {
		return s.pauseAt(event.Deadline)
	}
	return a
}

// held returns the calls that are held back because they are over a limit of a run that pauses, with
// what the run would end with.
func (s decision) held() map[CallKey]event.Reason {
	if !s.pauses() {
		return nil
	}
	_, held := s.judge()
	return held
}

// firstHeld returns the limit that holds back the first of the held calls.
func (s decision) firstHeld() event.Reason {
	held := s.held()
	for _, c := range s.Calls {
		if over := held[c.Key]; over != "" {
			return over
		}
	}
	return ""
}

// overCalls reports whether the answer that answerFor has given a call is that of the run's limit on
// calls, and not that of a turn.
func overCalls(outcome Outcome, c *Call, left, nth, perTurn int) bool {
	return outcome == SkippedLimit && left <= 0 && nth < perTurn && c.owner() != tool.Client
}

// pause applies that the run waits, or that it may not.
func (s *State) pause(b Paused, at int64) {
	if b.Refused != "" {
		s.endPause(b.Reason)
		return
	}
	s.Paused = &b
	s.ActiveMS += b.ActiveMS
	s.ActiveSince = 0
	s.madeProgress(at)
}

// endPause applies that the run may not wait any more at a limit.
func (s *State) endPause(limit event.Reason) {
	s.Paused, s.PauseOver = nil, limit
	switch {
	case s.TimeUp:
		s.end(event.Deadline)
	case s.Refused != nil:
		s.end(s.Refused.Reason)
	}
}

// goOn applies a raise for which the run has waited.
func (s *State) goOn(b LimitsRaised) {
	if s.Paused == nil || s.Paused.WaitID != b.WaitID {
		return
	}
	s.Paused, s.Refused = nil, nil
	s.TimeUp = s.TimeUp && (b.Raise.ActiveMS <= 0 || s.ActiveMS >= s.Limits.ActiveMS)
	if b.Rebudget {
		s.Budgets = b.Budgets
	}
}

// HeldAfter returns the limit of the run for which it would wait again at once after the raise; "" =
// it goes on. It must be called for a run that is Paused.
func (s *State) HeldAfter(b LimitsRaised) event.Reason {
	if a, ok := Decide(Apply(*s, Fact{Seq: s.Seq + 1, At: s.At, Version: Version, Body: b})).(Pause); ok {
		return a.Reason
	}
	return ""
}

func allowPaused(s *State, b Paused) error {
	a, ok := Decide(*s).(Pause)
	return expects(s, Pause{}, ok && s.ActiveSince != 0 && b.WaitID != "" && a.Reason == b.Reason && a.Scope == b.Scope)
}

// allowRaisedPause allows a raise after which the run goes on.
func allowRaisedPause(s *State, b LimitsRaised) error {
	switch {
	case s.Paused == nil || s.Paused.WaitID != b.WaitID:
		return fmt.Errorf("the run does not wait for it")
	case !b.Raise.IsZero() && s.Limits.Equal(s.Limits.Raised(b.Raise)):
		return fmt.Errorf("%+v raises no limit that the run has", b.Raise)
	}
	if again := s.HeldAfter(b); again != "" {
		return fmt.Errorf("after %+v the run would wait again (%s)", b.Raise, again)
	}
	return nil
}
