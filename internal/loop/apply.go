package loop

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Fold applies the facts in order to the zero State.
func Fold(facts []Fact) State {
	var s State
	for _, f := range facts {
		s = Apply(s, f)
	}
	return s
}

// Apply returns the state after the fact. It is total: a fact that does not
// fit changes nothing but the sequence number. Ask [Allowed] before.
func Apply(s State, f Fact) State {
	s.Seq = f.Seq
	s.Epoch = max(s.Epoch, f.Epoch)
	worked := s.Worked
	if f.Epoch == s.Epoch {
		s.Worked = f.At
	}
	s.At = max(s.At, f.At)
	if s.Accepted == nil {
		if b, ok := f.Body.(Accepted); ok {
			b = b.filled(version1())
			s.Accepted, s.ActiveSince, s.Grade, s.Further = &b, f.At, b.Grade, f.At
		}
		return s
	}
	switch b := f.Body.(type) {
	case Catalogued:
		s.Catalogued = &b
		s.Fresh += b.Bytes
		s.further(f.At)
	case Blocked:
		s.Blocked, s.Ended = &b, event.Blocked
	case InputAdded:
		s.addInput(b)
	case Reserved:
		s.Reserved = &b
	case ReserveRefused:
		s.end(b.Reason)
	case TurnStarted:
		s.startAttempt(b)
	case TurnFailed:
		s.failAttempt(b, f.At)
		s.further(f.At)
	case Turn:
		s.addTurn(b)
		s.further(f.At)
	case CallPrepared:
		s.prepare(b)
	case CallStarted:
		s.start(b)
	case CallDone:
		s.finishCall(b)
		s.further(f.At)
	case CallWaiting:
		s.setCall(b.Key, func(c *Call) { c.WaitID = b.WaitID })
	case CallResolved:
		s.resolve(b.WaitID, b.Approved, b.Message)
	case CancelRequested:
		s.end(b.Cause)
	case Expired:
		s.expire(b)
	case Parked:
		s.ActiveMS += b.ActiveMS
		s.ActiveSince = 0
		s.Grade = Durable
		s.further(f.At)
	case Resumed:
		s.resume(b, f.At, worked)
	case Finished:
		s.Finished = &b
	}
	s.settle()
	return s
}

// further notes that the run has got further.
func (s *State) further(at int64) { s.Taken, s.Further = 0, at }

// resume gives the run to a new owner. Time in which nobody worked on it is not
// active time: what the last owner did after its last fact is not known.
func (s *State) resume(b Resumed, at, last int64) {
	if s.ActiveSince != 0 {
		s.ActiveMS += max(0, last-s.ActiveSince)
	}
	if s.ActiveSince != 0 && !b.Handed {
		s.ownerDied()
	}
	s.ActiveSince = at
	if s.Attempt.Open && s.Reserved != nil { // the call was paid for, and nobody knows how much
		s.Spent.Tokens += s.Reserved.Amount.Tokens
		s.Reserved = nil
	}
	_, deadly := s.Deadly()
	switch rules := s.Accepted.Rules; {
	case s.Grade != Durable: // its client went with its owner
		s.end(event.Lost)
	case deadly:
		s.end(event.Lost)
	case s.Taken >= rules.Taken && at-s.Further >= rules.StuckMS:
		s.end(event.Lost)
	}
}

// ownerDied counts against the run, and against each of its calls that were under
// way, that an owner has died.
func (s *State) ownerDied() {
	s.Taken++
	for _, c := range s.Calls {
		if c.Attempt > 0 && !c.Done {
			s.setCall(c.Key, func(c *Call) { c.Deaths++ })
		}
	}
}

func (s *State) addInput(b InputAdded) {
	s.Fresh += b.Bytes
	s.Transcript = append(slices.Clip(s.Transcript), b.ItemsRef)
	s.Cut = s.Cut || b.Cut
	if s.Turn == nil {
		s.InputRefs = len(s.Transcript)
	}
}

func (s *State) startAttempt(b TurnStarted) {
	s.Halted = false // other rules wrote this: they went on
	onTarget := 1
	if s.Attempt.Number > 0 && s.Attempt.Target == b.Target {
		onTarget = s.Attempt.OnTarget + 1
	}
	s.Attempt = Attempt{Number: b.Attempt, Target: b.Target, OnTarget: onTarget, Open: true}
}

func (s *State) failAttempt(b TurnFailed, at int64) {
	s.Attempt.Open = false
	s.Attempt.Failed, s.Attempt.FailedAt = &b, at
	s.Usage = s.Usage.Add(b.Usage)
	s.Spent.Tokens += s.Cost(b).Tokens
	s.Reserved = nil
}

// addTurn begins a new set of calls. Calls whose end the dialect did not mark
// are no calls: they stand in no item either.
func (s *State) addTurn(b Turn) {
	s.Turn = &b
	s.Spent.Tokens += s.Cost(b).Tokens
	s.Reserved = nil
	s.Fresh += b.Bytes
	if known := b.Usage.Input + b.Usage.Output; known > 0 {
		s.Known, s.Fresh = known, 0
	}
	s.Attempt = Attempt{Target: s.Attempt.Target}
	s.Usage = s.Usage.Add(b.Usage)
	if b.Purpose == PurposeTurn {
		s.Spent.Rounds++
	}
	if b.ItemsRef != "" {
		s.Transcript = append(slices.Clip(s.Transcript), b.ItemsRef)
	}
	s.Calls, s.settled = nil, false
	for i, c := range b.Calls {
		if c.Complete {
			s.Calls = append(s.Calls, Call{Key: Key(b.Round, i), Index: len(s.Calls), ProviderID: c.ProviderID, Name: c.Name})
		}
	}
	if n := len(s.History) - s.Accepted.Guard.Window; n > 0 {
		s.History = slices.Clone(s.History[n:])
	}
}

// prepare also asks the progress guard, in the order of the calls.
func (s *State) prepare(b CallPrepared) {
	c, ok := s.Call(b.Key)
	if !ok || c.Prepared != nil {
		return
	}
	c.Prepared = &b
	if b.Owner != tool.Client {
		next := policy.Past{
			Turn: s.Turn.Round, Tool: c.Name, Args: b.ArgsDigest, Invalid: b.Verdict == Tell,
			Exempt: b.Polling, Reads: b.Class == tool.Read,
		}
		c.Guard, next.Advised, c.Advice = s.Accepted.Guard.Check(s.History, next)
		s.Halted = s.Halted || c.Guard == policy.Halt
		c.history = len(s.History)
		s.History = append(slices.Clip(s.History), next)
	}
	s.setCall(b.Key, func(old *Call) { *old = c })
	s.LeftOut = s.LeftOut || s.Accepted.Parallelism == First && s.wantedCalls() > 1
}

func (s *State) wantedCalls() (n int) {
	for _, c := range s.Calls {
		if c.wanted() {
			n++
		}
	}
	return n
}

func (s *State) start(b CallStarted) {
	c, ok := s.Call(b.Key)
	if !ok || c.Prepared == nil || c.Done {
		return
	}
	if c.Attempt == 0 {
		s.CallsUsed++
	}
	s.Halted = false // as in startAttempt; under the present rules neither verdict lets a call start
	s.setCall(b.Key, func(c *Call) { c.Attempt, c.Guard, c.Advice = b.Attempt, policy.Go, "" })
}

func (s *State) finishCall(b CallDone) {
	c, ok := s.Call(b.Key)
	if !ok || c.Done {
		return
	}
	if b.Outcome == SkippedLimit && s.nth(c) < s.Accepted.Limits.CallsPerTurn {
		s.Spent.CallsSkipped = true // for the run's limit: of the turn's, the model may ask again
	}
	if b.Attempt > 0 && b.Outcome != NotRun && c.Prepared != nil && c.Prepared.Class != tool.Read {
		s.Wrote = true
	}
	if (b.Attempt > 0 || b.Outcome == Cached) && c.Prepared != nil && c.history < len(s.History) {
		s.History = slices.Clone(s.History)
		s.History[c.history].Result = b.ResultDigest
	}
	s.Cut = s.Cut || b.FullRef != ""
	s.Fresh += b.Bytes
	s.setCall(b.Key, func(c *Call) { c.Done, c.Outcome, c.ResultRef = true, b.Outcome, b.ResultRef })
}

// nth returns how many calls of the turn come before c that are not the
// caller's.
func (s *State) nth(c Call) int {
	n := 0
	for _, other := range s.Calls[:c.Index] {
		if other.owner() != tool.Client {
			n++
		}
	}
	return n
}

func (s *State) resolve(waitID string, approved bool, message string) {
	for _, c := range s.Calls {
		if waitID != "" && c.WaitID == waitID && !c.Resolved {
			s.setCall(c.Key, func(c *Call) { c.Resolved, c.Approved, c.Message = true, approved, message })
			return
		}
	}
}

func (s *State) expire(b Expired) {
	if b.WaitID == "" {
		s.end(event.Deadline)
		return
	}
	s.resolve(b.WaitID, false, "Approval timed out")
}

// end keeps the first cause.
func (s *State) end(cause event.Reason) {
	if s.Ended == "" {
		s.Ended = cause
	}
}

// settle puts the results of a turn into the transcript, in the order of the
// calls, once every call that is not the caller's has one. Where tools are not
// allowed, no call is handed over to the caller: every call gets a result.
func (s *State) settle() {
	if s.settled || len(s.Calls) == 0 {
		return
	}
	var refs []string
	for _, c := range s.Calls {
		switch {
		case c.Done:
			refs = append(refs, c.ResultRef)
		case c.owner() != tool.Client, s.Accepted.NoTools:
			return
		}
	}
	s.settled = true
	s.Transcript = append(slices.Clip(s.Transcript), refs...)
}

// setCall changes one call in a copy of the list.
func (s *State) setCall(key CallKey, change func(*Call)) {
	for i := range s.Calls {
		if s.Calls[i].Key == key {
			s.Calls = slices.Clone(s.Calls)
			change(&s.Calls[i])
			return
		}
	}
}
