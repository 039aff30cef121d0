package loop

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
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

// Apply returns the state after the fact. It does not modify s. It accepts every
// fact: one that does not fit the state changes only Seq, Epoch and At. Callers
// check a new fact with [Allowed] and a stored one with [CheckSafety] first.
func Apply(s State, f Fact) State {
	s.Seq = f.Seq
	s.Epoch = max(s.Epoch, f.Epoch)
	worked := s.OwnerLastAt
	if f.Epoch == s.Epoch {
		s.OwnerLastAt = f.At
	}
	s.At = max(s.At, f.At)
	if s.Accepted == nil {
		if b, ok := f.Body.(Accepted); ok {
			b.Policy = b.Policy.withDefaults(missingDefaults())
			s.Limits, s.Budgets, s.Remembered = b.Limits, b.Budgets, b.Remembered
			s.Accepted, s.ActiveSince, s.Grade, s.ProgressAt = &b, f.At, b.Grade, f.At
			if b.Queued {
				s.ActiveSince = 0
			}
		}
		return s
	}
	s.Counts = s.Counts.After(f.Body)
	s.Spent.Rounds = s.Counts.Rounds
	switch b := f.Body.(type) {
	case Catalogued:
		s.Catalogued = &b
		s.UncountedBytes += b.Bytes
		s.madeProgress(f.At)
	case Blocked:
		s.Blocked, s.Ended = &b, event.Blocked
	case InputAdded:
		s.addInput(b)
	case HookRan:
		s.hookRan(b)
	case Compacted:
		s.compact(b)
		s.madeProgress(f.At)
	case LimitsRaised:
		s.raise(b)
	case Reserved:
		s.Reserved = &b
	case ReserveRefused:
		s.Refused = &b
		if s.answerRemains() { // it ends with the answer that it has
			break
		}
		if !s.pauses() || s.Turn == nil { // the first call: nothing is lost if the caller asks again
			s.end(b.Reason)
		}
	case Routed:
		s.Routed = &b
	case TurnStarted:
		s.startAttempt(b)
	case TurnFailed:
		s.failAttempt(b, f.At)
		s.madeProgress(f.At)
	case Turn:
		s.addTurn(b)
		s.madeProgress(f.At)
	case CallPrepared:
		s.prepare(b)
	case CallStarted:
		s.start(b)
	case CallDone:
		s.finishCall(b)
		s.madeProgress(f.At)
	case CallWaiting:
		if b.On == OnApproval {
			s.setCall(b.Key, func(c *Call) { c.Wait, c.AskedAt = &b, f.At })
		}
	case CallResolved:
		s.decide(b, f.At)
	case CancelRequested:
		s.cancel(b)
	case Expired:
		s.expire(b, f.At)
	case Paused:
		s.pause(b, f.At)
	case Parked:
		s.ActiveMS += b.ActiveMS
		s.ActiveSince = 0
		s.Parks++
		s.Grade = Durable
		s.madeProgress(f.At)
	case Resumed:
		s.resume(b, f.At, worked)
	case Finished:
		s.Finished = &b
	case Accepted: // folded before: see above
	}
	s.appendResults()
	return s
}

// madeProgress records progress: earlier dead owners no longer count.
func (s *State) madeProgress(at int64) { s.DeadOwners, s.ProgressAt = 0, at }

// resume applies the takeover by a new owner at the time at. last is the time of the
// previous owner's last fact: active time ends there, because nothing later is
// known. A run that is not Durable is lost, since its client was connected to the
// previous owner.
func (s *State) resume(b Resumed, at, last int64) {
	if s.ActiveSince != 0 {
		s.ActiveMS += max(0, last-s.ActiveSince)
	}
	if s.ActiveSince != 0 && !b.HandedOver {
		s.ownerDied()
	}
	s.ActiveSince = at
	if s.Reserved != nil && (s.Attempt.Open || s.Reserved.Compaction > 0) { // the cost of the open call is unknown: count the whole reservation
		if s.Attempt.Open {
			s.charge(s.lostCharge())
		}
		s.spend(s.Counts.Rounds, model.Usage{}, s.Reserved.Amount)
		s.Compactions.Begun = max(s.Compactions.Begun, s.Reserved.Compaction)
		s.Reserved = nil
	}
	_, deadly := s.FatalCall()
	switch rules := s.Accepted.Rules; {
	case s.Grade != Durable:
		s.end(event.Lost)
	case deadly:
		s.end(event.Lost)
	case s.DeadOwners >= rules.DeadOwners && at-s.ProgressAt >= rules.StuckMS:
		s.end(event.Lost)
	}
}

// ownerDied counts a dead owner for the run and for each of its calls in flight.
func (s *State) ownerDied() {
	s.DeadOwners++
	for _, c := range s.Calls {
		if c.Attempt > 0 && !c.Done {
			s.setCall(c.Key, func(c *Call) { c.DeadOwners++ })
		}
	}
}

// raise raises limits. The run goes on if a call was skipped for the limit that is raised.
func (s *State) raise(b LimitsRaised) {
	before := s.Limits
	s.Limits = s.Limits.Raised(b.Raise)
	s.goOn(b)
	if s.Limits.Calls > before.Calls {
		s.Spent.CallsSkipped = false
	}
}

func (s *State) startAttempt(b TurnStarted) {
	s.Halted = false // the fact was written under rules that did not halt; follow the journal
	onTarget := 1
	if s.Attempt.Number > 0 && s.Attempt.Target == b.Target {
		onTarget = s.Attempt.AttemptsOnTarget + 1
	}
	if !s.callsOpen() && !s.Continues() { // the model sees the input that came during an earlier attempt
		s.Unanswered = false
		s.admitLate()
	}
	if b.Warned {
		s.WarnedAt = b.Round + 1
	}
	s.Attempt = Attempt{Number: b.Attempt, Target: b.Target, AttemptsOnTarget: onTarget, Tried: s.Attempt.Tried, First: s.Attempt.First, NoTools: b.NoTools || b.Toolless, Open: true}
}

func (s *State) failAttempt(b TurnFailed, at int64) {
	s.Attempt.Open = false
	s.Attempt.Failed, s.Attempt.FailedAt = &b, at
	if !slices.Contains(s.Attempt.Tried, s.Attempt.Target) {
		s.Attempt.Tried = append(slices.Clip(s.Attempt.Tried), s.Attempt.Target)
	}
	if s.Attempt.Tried[0] == s.Attempt.Target {
		s.Attempt.First = &b
	}
	s.charge(s.Charge(b))
	s.spend(s.Counts.Rounds, b.Usage, s.Cost(b))
	s.Reserved = nil
	if b.Class == model.TooLong {
		s.Compactions.refuse(s.Attempt.Target, b.Limit)
	}
}

// addTurn starts a new round with the turn's calls. Incomplete calls are dropped:
// they are in no item of the turn either.
func (s *State) addTurn(b Turn) {
	cut := s.Turn
	s.Turn, s.NoTools = &b, s.Attempt.NoTools
	s.charge(s.Charge(b))
	s.ChargedInRound = Charge{}
	s.spend(b.Round, b.Usage, s.Cost(b))
	s.Reserved = nil
	s.tokens = s.tokens.Learn(s.UncountedBytes-s.lateBytes(), b.Usage.Input-s.CountedTokens)
	s.Compactions.Refused, s.Compactions.tried = 0, 0
	s.UncountedBytes += b.Bytes
	if known := b.Usage.Input + b.Usage.Output; known > 0 && !b.Uncounted {
		s.CountedTokens, s.UncountedBytes = known, s.lateBytes()
	}
	s.nextAttempt(b)
	s.keepAnswer(cut, b)
	s.Calls, s.resultsAppended, s.Unanswered, s.hooksBefore = nil, false, false, len(s.Hooks)
	for i, c := range b.Calls {
		if c.Complete {
			s.Calls = append(s.Calls, &Call{Key: Key(b.Round, i), Index: len(s.Calls), ProviderID: c.ProviderID, Name: c.Name, Tool: c.Tool, Unknown: c.UnknownBytes})
		}
	}
	if len(s.Calls) == 0 && !b.Continues {
		s.Unanswered = len(s.late) > 0
		s.admitLate()
	}
	if n := len(s.History) - s.Accepted.Guard.Window; n > 0 {
		s.History = slices.Clone(s.History[n:])
	}
}

// prepare records the preparation of a call and runs the progress guard on it. The
// guard depends on the order of the calls.
func (s *State) prepare(b CallPrepared) {
	c, ok := s.Call(b.Key)
	switch {
	case !ok || c.Prepared != nil && b.Revision == 0:
		return
	case b.Revision > 0: // the guard has seen the call
		s.setCall(b.Key, func(c *Call) {
			c.Prepared, c.Wait = &b, nil
			c.Resolved, c.Approved, c.TimedOut, c.Message, c.Decided = false, false, false, "", 0
		})
		return
	}
	c.Prepared = &b
	if b.Owner != tool.Client {
		next := policy.PastCall{
			Turn: s.Turn.Round, Tool: c.Name, Args: b.ArgsDigest, Invalid: b.Verdict == Answer,
			Exempt: b.Polling, Reads: b.Class == tool.Read,
		}
		c.Guard, next.Advised, c.Advice = s.Accepted.Guard.Check(s.History, next)
		s.Halted = s.Halted || c.Guard == policy.Halt
		c.historyIndex = len(s.History)
		s.History = slices.Concat(s.History, []policy.PastCall{next}) // of the exact size: there is one for each fact
	}
	s.setCall(b.Key, func(old *Call) { *old = c })
	s.SkippedByFirst = s.SkippedByFirst || s.Accepted.Parallelism == First && s.callsToExecute() > 1
}

func (s *State) callsToExecute() (n int) {
	for _, c := range s.Calls {
		if c.toExecute() {
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
	s.Halted = false // as in startAttempt: current rules would not have started the call
	if c.Attempt == 0 {
		s.Uses = s.Accepted.countUse(s.Uses, &c, 1)
	}
	s.setCall(b.Key, func(c *Call) { c.Attempt, c.Guard, c.Advice, c.hooksBefore = b.Attempt, policy.Allow, "", len(c.Hooks) })
}

func (s *State) finishCall(b CallDone) {
	c, ok := s.Call(b.Key)
	if !ok || c.Done {
		return
	}
	if b.Outcome == SkippedLimit && s.gatewayCallsBefore(c) < s.Limits.CallsPerTurn {
		s.Spent.CallsSkipped = true // skipped by the run's limit; after the turn's limit the model may ask again
	}
	if b.Attempt > 0 && b.Outcome != NotRun && c.Prepared != nil && c.Prepared.Class != tool.Read {
		s.SideEffects = true
	}
	s.Untrusted = s.Untrusted || b.Label == item.Untrusted
	s.spend(s.Turn.Round, model.Usage{}, c.cost(b.Outcome))
	if (b.Attempt > 0 || b.Outcome == Cached) && c.Prepared != nil && c.historyIndex < len(s.History) {
		s.History = slices.Clone(s.History)
		s.History[c.historyIndex].Result = b.ResultDigest
		s.History[c.historyIndex].Failed = b.Outcome == Error || b.Outcome == Unknown
	}
	s.Truncated = s.Truncated || b.FullRef != ""
	s.UncountedBytes += b.Bytes
	s.setCall(b.Key, func(c *Call) { c.Done, c.Outcome, c.ResultRef, c.resultBytes = true, b.Outcome, b.ResultRef, b.Bytes })
}

// gatewayCallsBefore returns how many of the turn's gateway calls come before c.
func (s *State) gatewayCallsBefore(c Call) int {
	n := 0
	for _, other := range s.Calls[:c.Index] {
		if other.owner() != tool.Client {
			n++
		}
	}
	return n
}

// decide applies a decision: one that is early without an approval is kept, and the first that is kept goes
// with its approval.
func (s *State) decide(b CallResolved, at int64) {
	switch {
	case b.Early && b.WaitID == "":
		s.Early = append(slices.Clip(s.Early), b)
		return
	case b.Early && len(s.Early) > 0:
		s.Early = s.Early[1:]
	}
	if b.Approved && b.Remember {
		s.remember(b.WaitID)
	}
	s.resolve(b.WaitID, b.Approved, b.Message, at)
}

// resolve decides an approval, unless it is decided, and returns its call; "" = none.
func (s *State) resolve(waitID string, approved bool, message string, at int64) CallKey {
	for _, c := range s.Calls {
		if waitID != "" && c.WaitID() == waitID && !c.Resolved {
			s.setCall(c.Key, func(c *Call) { c.Resolved, c.Approved, c.Message, c.Decided = true, approved, message, at })
			return c.Key
		}
	}
	return ""
}

func (s *State) expire(b Expired, at int64) {
	switch {
	case b.WaitID == "" && !s.Cuts(b):
		s.TimeUp = true
		return
	case b.WaitID == "":
		s.end(event.Deadline)
		return
	case s.Paused != nil && s.Paused.WaitID == b.WaitID:
		s.endPause(s.Paused.Reason)
		return
	}
	if key := s.resolve(b.WaitID, false, "", at); key != "" {
		s.setCall(key, func(c *Call) { c.TimedOut = true })
	}
}

func (s *State) cancel(b CancelRequested) {
	if s.Ended == "" {
		s.Cancelled = &b
	}
	s.end(b.Cause)
}

// end sets Ended unless an earlier fact has set it.
func (s *State) end(cause event.Reason) {
	if s.Ended == "" {
		s.Ended = cause
	}
}

// appendResults appends the results of the turn to the transcript, in the order of the
// calls, once every gateway call has one. With NoTools no call goes to the caller,
// so client calls must have a result as well.
func (s *State) appendResults() {
	if s.resultsAppended || len(s.Calls) == 0 {
		return
	}
	for _, c := range s.Calls {
		if !c.Done && (c.owner() != tool.Client || s.Accepted.NoTools) {
			return
		}
	}
	var results []Segment
	for _, c := range s.Calls {
		if c.Done {
			results = append(results, Segment{Kind: Own, Ref: c.ResultRef, Bytes: c.resultBytes})
		}
	}
	s.resultsAppended = true
	s.extend(results...)
	s.admitLate()
}

// setCall applies change to a copy of one call, in a copy of Calls.
func (s *State) setCall(key CallKey, change func(*Call)) {
	for i, c := range s.Calls {
		if c.Key == key {
			changed := *c
			change(&changed)
			s.Calls = slices.Clone(s.Calls)
			s.Calls[i] = &changed
			return
		}
	}
}

// hookRan records the hook with its call, or with the run. A denial at the start ends the run.
func (s *State) hookRan(b HookRan) {
	if b.Key != "" {
		s.setCall(b.Key, func(c *Call) { c.Hooks = append(slices.Clip(c.Hooks), b) })
		return
	}
	s.Hooks = append(slices.Clip(s.Hooks), b)
	if b.Point == PreResponse && b.PatchRef != "" {
		s.replaceAnswer(b.PatchRef)
	}
	if b.Point == OnRunStart && b.Verdict == HookDeny {
		s.end(event.HookDenied)
	}
}

// replaceAnswer puts the items of a row in place of those of the latest turn: for the caller, and for
// those who continue its conversation.
func (s *State) replaceAnswer(ref string) {
	for i, seg := range slices.Backward(s.Transcript) {
		if seg.Kind == Own {
			s.Transcript = slices.Clone(s.Transcript)
			s.Transcript[i].Ref = ref
			return
		}
	}
}

// charge counts what a model call is charged with.
func (s *State) charge(c Charge) {
	s.Charged, s.ChargedInRound = s.Charged.Add(c), s.ChargedInRound.Add(c)
}

// spend counts what was spent in a round, from 0. An amount of money that is out of range exceeds every limit. A round that is out of
// range, in a store that is damaged, counts as the next one.
func (s *State) spend(round int, u model.Usage, a budget.Amount) {
	s.Usage = s.Usage.Add(u)
	s.Spent.Tokens += a.Tokens
	s.Spent.NanoUSD = int64(money.Nano(s.Spent.NanoUSD).Add(money.Nano(a.NanoUSD)))
	s.Rounds = slices.Clone(s.Rounds)
	if round >= len(s.Rounds) {
		round, s.Rounds = len(s.Rounds), append(s.Rounds, RoundSpent{})
	}
	in := &s.Rounds[round]
	in.Usage, in.NanoUSD = in.Usage.Add(u), int64(money.Nano(in.NanoUSD).Add(money.Nano(a.NanoUSD)))
}

// RoundSpent is what a round has spent: its model calls, with those that failed before its answer and summaries for its prompt,
// and its tool calls.
type RoundSpent struct {
	Usage   model.Usage
	NanoUSD int64
}

// addInput appends the input to the transcript. Input that arrives during a model call, after an answer that broke
// off, or while calls have no results, follows the answer and its results: the model sees it in its next turn.
func (s *State) addInput(b InputAdded) {
	s.UncountedBytes += b.Bytes
	s.Truncated = s.Truncated || b.Truncated
	seg := Segment{Kind: Added, Ref: b.ItemsRef, Bytes: b.Bytes}
	if b.By == ByClient && s.Turn == nil && s.Attempt.Number == 0 {
		seg.Kind, s.begun = Input, true
	}
	if s.Attempt.Open || s.CutRef() != "" || s.callsOpen() || s.Continues() {
		s.late = append(slices.Clip(s.late), seg)
		return
	}
	s.extend(seg)
	s.Unanswered = s.Turn != nil
}

// extend appends segments to the transcript, in a copy of it.
func (s *State) extend(segments ...Segment) {
	before := len(s.Transcript)
	s.Transcript = append(slices.Clip(s.Transcript), segments...)
	for i := range s.Transcript[before:] {
		s.Transcript[before+i].At = s.At
	}
}

// admitLate appends the input that waits for its place.
func (s *State) admitLate() {
	s.extend(s.late...)
	s.late = nil
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
