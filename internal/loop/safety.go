package loop

import (
	"errors"
	"fmt"
)

// ErrUnsafe is wrapped by the errors of [CheckSafety].
var ErrUnsafe = errors.New("the journal cannot be continued safely")

// CheckSafety returns nil if the stored fact f may follow state s in a journal that
// is resumed or replayed. Else the error wraps [ErrUnsafe] and names the broken
// invariant. It checks less than [Allowed]: only what every release guarantees. A
// build with other limits or rules can therefore continue the runs of another.
//
// The invariants:
//
//   - Sequence numbers have no gap.
//   - Accepted is the first fact and occurs once. Nothing follows Finished.
//   - Every call belongs to the latest turn and is prepared before it starts.
//   - A call that must not be repeated starts once. A call that is done does not
//     start again and is not done twice.
//   - A call that needs an approval starts only as it was approved.
//   - A compaction replaces what the model has seen, and more than the one before it.
//   - A new turn does not replace calls that have started and not ended.
//
// Every fact that is Allowed is safe.
func CheckSafety(s State, f Fact) error {
	if f.Body == nil {
		return fmt.Errorf("%w: fact %d has no body", ErrUnsafe, f.Seq)
	}
	if err := checkFact(&s, f); err != nil {
		return fmt.Errorf("%w: fact %d, %s: %w", ErrUnsafe, f.Seq, f.Body.Kind(), err)
	}
	return nil
}

func checkFact(s *State, f Fact) error {
	_, opens := f.Body.(Accepted)
	switch {
	case f.Seq != s.Seq+1:
		return fmt.Errorf("it follows fact %d, want %d", s.Seq, s.Seq+1)
	case s.Finished != nil:
		return fmt.Errorf("the run has finished (%s)", s.Finished.Reason)
	case opens && s.Accepted != nil:
		return fmt.Errorf("the run is already accepted")
	case !opens && s.Accepted == nil:
		return fmt.Errorf("the run is not accepted")
	}
	switch b := f.Body.(type) {
	case Turn:
		return unsafeTurn(s, b)
	case CallPrepared:
		if _, ok := s.Call(b.Key); !ok {
			return fmt.Errorf("call %s belongs to no turn", b.Key)
		}
	case CallStarted:
		return unsafeStart(s, b)
	case CallDone:
		return unsafeDone(s, b)
	case CallWaiting:
		if _, ok := s.Call(b.Key); !ok {
			return fmt.Errorf("call %s belongs to no turn", b.Key)
		}
	case Compacted:
		if !b.Failed && len(b.Refs) > 0 && !s.replaces(b) {
			return fmt.Errorf("it replaces %d segments of %d", b.Until, len(s.Transcript))
		}
	case Accepted, Blocked, CallResolved, CancelRequested, Catalogued, Expired, Finished, HookRan, InputAdded, LimitsRaised, Parked, Paused,
		ReserveRefused, Reserved, Resumed, Routed, TurnFailed, TurnStarted: // safe at any place
	}
	return nil
}

func unsafeTurn(s *State, b Turn) error {
	if b.Purpose == PurposeTurn && b.Round != s.Spent.Rounds {
		return fmt.Errorf("the turn is of round %d, want %d", b.Round, s.Spent.Rounds)
	}
	for _, c := range s.Calls {
		if c.Attempt > 0 && !c.Done {
			return fmt.Errorf("call %s has started and is not done", c.Key)
		}
	}
	return nil
}

func unsafeStart(s *State, b CallStarted) error {
	c, ok := s.Call(b.Key)
	switch {
	case !ok:
		return fmt.Errorf("call %s belongs to no turn", b.Key)
	case c.Prepared == nil:
		return fmt.Errorf("call %s is not prepared", b.Key)
	case c.Done:
		return fmt.Errorf("call %s is done", b.Key)
	case c.lost():
		return fmt.Errorf("call %s must not be repeated", b.Key)
	case c.Prepared.Verdict == Ask && !c.approved():
		return fmt.Errorf("call %s is not approved", b.Key)
	case b.Attempt != c.Attempt+1:
		return fmt.Errorf("attempt %d of call %s follows attempt %d", b.Attempt, b.Key, c.Attempt)
	}
	return nil
}

func unsafeDone(s *State, b CallDone) error {
	c, ok := s.Call(b.Key)
	switch {
	case !ok:
		return fmt.Errorf("call %s belongs to no turn", b.Key)
	case c.Done:
		return fmt.Errorf("call %s is done", b.Key)
	case b.Attempt != 0 && b.Attempt != c.Attempt:
		return fmt.Errorf("attempt %d of call %s was not started", b.Attempt, b.Key)
	}
	return nil
}
