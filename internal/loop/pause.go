package loop

import (
	"fmt"

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

// overCalls reports whether the answer that answerFor has given a call is that of the run's limit on
// calls, and not that of a turn.
func overCalls(outcome Outcome, c *Call, left, nth, perTurn int) bool {
	return outcome == SkippedLimit && left <= 0 && nth < perTurn && c.owner() != tool.Client
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
