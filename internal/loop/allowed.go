package loop

import (
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/budget"
)

// Allowed returns nil if the fact may be appended in state s, else an error that
// names the broken rule. The driver must call it before every append. It is not for
// stored facts: another build may have written them under other rules; check those
// with [CheckSafety].
func Allowed(s State, f Fact) error {
	if f.Body == nil {
		return fmt.Errorf("fact %d has no body", f.Seq)
	}
	if err := allowed(&s, f.Body); err != nil {
		return fmt.Errorf("fact %s is not allowed: %w", f.Body.Kind(), err)
	}
	return nil
}

func allowed(s *State, body Body) error {
	_, opens := body.(Accepted)
	switch {
	case s.Finished != nil:
		return fmt.Errorf("the run has finished (%s)", s.Finished.Reason)
	case opens && s.Accepted != nil:
		return fmt.Errorf("the run is already accepted")
	case !opens && s.Accepted == nil:
		return fmt.Errorf("the run is not accepted")
	case AllowedAnytime(body):
		return nil
	}
	switch b := body.(type) {
	case Accepted:
		return allowAccepted(b)
	case Catalogued:
		if err := allowAnnounced(s, b); err != nil {
			return err
		}
		return expects(s, Discover{}, s.Catalogued == nil && !s.relays())
	case Routed:
		return allowRouted(s, b)
	case TurnStarted:
		return allowTurnStarted(s, b)
	case TurnFailed:
		return expects(s, CallModel{}, s.Attempt.Open && s.Attempt.Number == b.Attempt)
	case Turn:
		fits := (b.Purpose == PurposeRaw) == s.Accepted.Raw && (b.WholeRef != "") == s.Continues() && (!b.Continues || s.ContinuesAfter(b, true))
		return expects(s, CallModel{}, s.Attempt.Open && b.Round == s.Spent.Rounds && fits)
	case CallPrepared:
		if err := allowPreparedByHooks(s, b); err != nil {
			return err
		}
		if b.Revision > 0 {
			return allowPreparedAgain(s, b)
		}
		keys := s.unprepared()
		return expects(s, PrepareTools{}, s.Ended == "" && len(keys) > 0 && keys[0] == b.Key)
	case CallStarted:
		return allowCallStarted(s, b)
	case CallDone:
		return allowCallDone(s, b)
	case CallWaiting:
		return allowWaiting(s, b)
	case Parked:
		_, waits := Decide(*s).(Interrupt)
		return expects(s, Interrupt{}, waits && s.ActiveSince != 0 && allAsked(s))
	case Paused:
		return allowPaused(s, b)
	case HookRan:
		return allowHook(s, b)
	case Compacted:
		return allowCompacted(s, b)
	case LimitsRaised:
		return allowRaised(s, b)
	case Reserved:
		if b.Compaction > 0 {
			a, compacts := Decide(*s).(Compact)
			return expects(s, Compact{}, compacts && a.Number == b.Compaction && a.MaxCost != budget.Amount{} && s.Reserved == nil)
		}
		return allowReserved(s, b.Round, b.Attempt)
	case ReserveRefused:
		return allowReserved(s, b.Round, b.Attempt)
	case CallResolved:
		if b.Early {
			return allowEarly(s, b)
		}
		if s.Paused != nil {
			return fmt.Errorf("the run waits for a raise of its limits, not for an approval")
		}
		return allowResolved(s, b.WaitID)
	case Expired:
		return allowResolved(s, b.WaitID)
	case Finished:
		return allowFinished(s, b)
	case Blocked, CancelRequested, InputAdded, Resumed: // allowed at any time, or never
	}
	return fmt.Errorf("there is no rule for it")
}

// AllowedAnytime reports whether the fact may be appended in every state of a run that
// is accepted and has not finished. Its writer does not have to fold the journal.
func AllowedAnytime(body Body) bool {
	switch b := body.(type) {
	case InputAdded, CancelRequested, Blocked, Resumed:
		return true
	case Expired:
		return b.WaitID == "" // the deadline of the run
	case Accepted, CallDone, CallPrepared, CallResolved, CallStarted, CallWaiting, Catalogued, Compacted, Finished, HookRan, LimitsRaised, Parked, Paused,
		ReserveRefused, Reserved, Routed, Turn, TurnFailed, TurnStarted: // only at their place
	}
	return false
}

func allowFinished(s *State, b Finished) error {
	if a, ok := Decide(*s).(Finish); !ok || a.Reason != b.Reason {
		return fmt.Errorf("the next action is %#v", Decide(*s))
	}
	return nil
}

func allowAccepted(b Accepted) error {
	switch {
	case len(b.Targets) == 0:
		return fmt.Errorf("it has no target")
	case b.Raw && b.Grade != Relay:
		return fmt.Errorf("it is raw and of the grade %q, want %q", b.Grade, Relay)
	case b.Grade != Relay && (b.Limits.Rounds < 1 || b.Limits.ActiveMS < 1):
		return fmt.Errorf("limits %+v allow no round or no time", b.Limits)
	}
	return nil
}

// allowRouted allows an order of targets that are left, each once.
func allowRouted(s *State, b Routed) error {
	a, ok := Decide(*s).(Route)
	ok = ok && a.Round == b.Round && a.Attempt == b.Attempt && (a.Attempt > 0 || len(b.Order) > 0) &&
		(b.First == nil || a.Attempt == 0 && slices.Contains(a.Left, *b.First) && *b.First != b.Order[0])
	for i, target := range b.Order {
		ok = ok && slices.Contains(a.Left, target) && !slices.Contains(b.Order[:i], target)
	}
	return expects(s, Route{}, ok)
}

func allowTurnStarted(s *State, b TurnStarted) error {
	a, ok := Decide(*s).(CallModel)
	return expects(s, CallModel{}, ok && a.Purpose == b.Purpose && a.Round == b.Round && a.Attempt == b.Attempt && a.Target == b.Target && a.Warn == b.Warned &&
		(s.Reserved != nil || a.MaxCost == budget.Amount{}))
}

func allowReserved(s *State, round, attempt int) error {
	a, ok := Decide(*s).(CallModel)
	return expects(s, CallModel{}, ok && a.Round == round && a.Attempt == attempt && a.MaxCost != budget.Amount{} && s.Reserved == nil)
}

// allowCallStarted is stricter than runnable: a call that must wait for others may
// not start while those are in flight.
func allowCallStarted(s *State, b CallStarted) error {
	c, ok := s.Call(b.Key)
	ok = ok && s.Ended == "" && b.Attempt == c.Attempt+1 && !c.lost()
	if a, isExecute := Decide(withoutInFlight(s, b.Key)).(ExecuteTools); !isExecute || !slices.Contains(a.Calls, b.Key) {
		ok = false
	}
	return expects(s, ExecuteTools{}, ok)
}

// withoutInFlight returns s with the calls in flight, except key, as not started. Calls
// that may be repeated stay as they are, because Decide executes them again.
// Without it Decide would treat calls that were started together as lost. In modes
// that execute one call at a time it returns s.
func withoutInFlight(s *State, key CallKey) State {
	out := *s
	if s.Accepted.Parallelism == Serial || s.Accepted.Parallelism == First {
		return out
	}
	out.Calls = slices.Clone(s.Calls)
	for i, c := range s.Calls {
		if c.Key != key && c.lost() {
			waits := *c
			waits.Attempt = 0
			out.Calls[i] = &waits
			out.Counts.Calls--
			out.Uses = s.Accepted.countUse(out.Uses, c, -1)
		}
	}
	return out
}

func allowCallDone(s *State, b CallDone) error {
	c, ok := s.Call(b.Key)
	switch {
	case !ok || c.Done:
		return fmt.Errorf("call %s is unknown or already done", b.Key)
	case b.Attempt > 0 && c.Attempt == b.Attempt: // in flight
		return allowResultByHooks(s, b)
	case b.Attempt > 0:
		return fmt.Errorf("attempt %d of call %s was not started", b.Attempt, b.Key)
	}
	if b.Outcome == Cached {
		a, runs := Decide(*s).(ExecuteTools)
		return expects(s, ExecuteTools{}, runs && slices.Contains(a.Calls, b.Key))
	}
	a, isAnswer := Decide(*s).(AnswerCalls)
	switch {
	case isAnswer && a.Outcome == b.Outcome && slices.Contains(a.Calls, b.Key):
		return nil
	case isAnswer && s.Ended == "" && !s.Halted && slices.ContainsFunc(decision{s}.answers(), func(a answer) bool { return a.key == b.Key && a.outcome == b.Outcome }):
		return nil // a turn may have several kinds of answer; their order does not matter
	}
	return fmt.Errorf("the next action is %#v", Decide(*s))
}

// allowPreparedAgain allows it for a call that is not started and has no approval that is
// still to be decided.
func allowPreparedAgain(s *State, b CallPrepared) error {
	c, ok := s.Call(b.Key)
	if !ok || s.Ended != "" || !c.mayBePreparedAgain() || b.Owner != c.Prepared.Owner || b.Revision != c.Prepared.Revision+1 {
		return fmt.Errorf("call %s cannot be prepared again", b.Key)
	}
	return nil
}

// allowRaised allows it for a run that goes on and has one of these limits.
func allowRaised(s *State, b LimitsRaised) error {
	switch {
	case s.Ended != "" || s.relays():
		return fmt.Errorf("the run ends, or is a relay: its limits do not change")
	case b.Raise.Negative():
		return fmt.Errorf("limits are raised only, and %+v lowers one", b.Raise)
	case b.WaitID != "" || s.Paused != nil:
		return allowRaisedPause(s, b)
	case s.Limits.Equal(s.Limits.Raised(b.Raise)):
		return fmt.Errorf("%+v raises no limit that the run has", b.Raise)
	}
	return nil
}

// allowWaiting allows only what asks for the call exactly as it is prepared, once.
func allowWaiting(s *State, b CallWaiting) error {
	c, ok := s.Call(b.Key)
	_, interrupts := Decide(*s).(Interrupt)
	asks := ok && interrupts && b.On == OnApproval && c.Wait == nil && b.WaitID != "" && slices.Contains(s.undecided(), b.Key)
	if asks {
		p := c.Prepared
		asks = b.Revision == p.Revision && b.Server == p.Server && b.Tool == p.Tool && b.ToolDigest == p.ToolDigest && b.ArgsDigest == p.ArgsDigest && b.Place == p.Place && b.Host == p.Host && b.Asker == p.Asker
	}
	return expects(s, Interrupt{}, asks)
}

func allowResolved(s *State, waitID string) error {
	if s.Paused != nil && waitID != "" && waitID == s.Paused.WaitID {
		return expects(s, Pause{}, s.Ended == "")
	}
	for _, c := range s.Calls {
		if waitID != "" && c.WaitID() == waitID {
			return expects(s, Interrupt{}, s.Ended == "" && !c.Resolved && !c.Done)
		}
	}
	return fmt.Errorf("no call waits for approval %q", waitID)
}

// allowEarly allows a decision for a call that is not asked for yet while none waits, and the first of those
// that are kept for a call that was asked for.
func allowEarly(s *State, b CallResolved) error {
	switch {
	case b.WaitID == "" && s.Awaits():
		return fmt.Errorf("a call waits for a decision: this one names no approval")
	case b.WaitID == "" && len(s.Early) >= MaxEarly:
		return fmt.Errorf("%d decisions wait for calls already", MaxEarly)
	case b.WaitID == "":
		return expects(s, Interrupt{}, s.Ended == "")
	case len(s.Early) == 0 || s.Early[0].Approved != b.Approved || s.Early[0].By != b.By || s.Early[0].Remember != b.Remember || s.Early[0].Message != b.Message:
		return fmt.Errorf("the decision about approval %q is not the first that was made early", b.WaitID)
	}
	return allowResolved(s, b.WaitID)
}

func allAsked(s *State) bool {
	for _, key := range s.undecided() {
		if c, _ := s.Call(key); c.Wait == nil {
			return false
		}
	}
	return true
}

// expects returns nil if ok, else an error with the action that the fact belongs to
// and the action that Decide returns.
func expects(s *State, of Action, ok bool) error {
	if ok {
		return nil
	}
	return fmt.Errorf("it belongs to %T, but the next action is %#v", of, Decide(*s))
}
