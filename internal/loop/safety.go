package loop

import (
	"errors"
	"fmt"
)

// ErrUnsafe is wrapped by the errors of [CheckSafety].
var ErrUnsafe = errors.New("the journal is not safe to go on with")

// CheckSafety says whether the stored fact f may follow state s in a journal
// that is resumed or replayed. It asks for less than [Allowed]: only for what
// holds under the rules of every release, so that a build with other limits, or
// with another order of its rules, goes on with the runs that it finds.
//
//   - The numbers of the facts have no gap.
//   - The first fact is accepted, no other is, and nothing follows finished.
//   - Every call belongs to the latest turn, and is prepared before it starts.
//   - A call that must not be repeated starts once. What is done does not start
//     again and is not done again.
//   - A turn does not take the place of calls that have started and not ended.
//
// Whatever is Allowed is safe. The error names what was broken.
func CheckSafety(s State, f Fact) error {
	if f.Body == nil {
		return fmt.Errorf("%w: fact %d has no body", ErrUnsafe, f.Seq)
	}
	if err := unsafe(s, f); err != nil {
		return fmt.Errorf("%w: fact %d, %s: %w", ErrUnsafe, f.Seq, f.Body.Kind(), err)
	}
	return nil
}

func unsafe(s State, f Fact) error {
	_, opens := f.Body.(Accepted)
	switch {
	case f.Seq != s.Seq+1:
		return fmt.Errorf("it follows fact %d", s.Seq)
	case s.Finished != nil:
		return fmt.Errorf("the run has finished (%s)", s.Finished.Reason)
	case opens && s.Accepted != nil:
		return fmt.Errorf("the run was accepted already")
	case !opens && s.Accepted == nil:
		return fmt.Errorf("the run was not accepted")
	}
	switch b := f.Body.(type) {
	case Turn:
		return s.unsafeTurn(b)
	case CallPrepared:
		if _, ok := s.Call(b.Key); !ok {
			return fmt.Errorf("call %s belongs to no turn", b.Key)
		}
	case CallStarted:
		return s.unsafeStart(b)
	case CallDone:
		return s.unsafeDone(b)
	case CallWaiting:
		if _, ok := s.Call(b.Key); !ok {
			return fmt.Errorf("call %s belongs to no turn", b.Key)
		}
	}
	return nil
}

func (s State) unsafeTurn(b Turn) error {
	if b.Purpose == PurposeTurn && b.Round != s.Spent.Rounds {
		return fmt.Errorf("round %d follows %d rounds", b.Round, s.Spent.Rounds)
	}
	for _, c := range s.Calls {
		if c.Attempt > 0 && !c.Done {
			return fmt.Errorf("call %s has started and not ended", c.Key)
		}
	}
	return nil
}

func (s State) unsafeStart(b CallStarted) error {
	c, ok := s.Call(b.Key)
	switch {
	case !ok:
		return fmt.Errorf("call %s belongs to no turn", b.Key)
	case c.Prepared == nil:
		return fmt.Errorf("call %s was not prepared", b.Key)
	case c.Done:
		return fmt.Errorf("call %s is done", b.Key)
	case c.lost():
		return fmt.Errorf("call %s must not be repeated", b.Key)
	case b.Attempt != c.Attempt+1:
		return fmt.Errorf("attempt %d of call %s follows attempt %d", b.Attempt, b.Key, c.Attempt)
	}
	return nil
}

func (s State) unsafeDone(b CallDone) error {
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
