package loop

import (
	"cmp"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Abandon returns the state from which to end a run that cannot continue, because
// its journal is not safe or has facts that cannot be decoded. facts are the facts
// that can be decoded, in order. last is the Seq of the journal's last fact.
//
// State.Calls has the calls of any turn that started and did not end, and all
// calls of the latest turn that have no result. If facts are missing since the
// latest turn, each of its calls that the gateway may have executed counts as
// started, because the missing fact may be its CallStarted.
//
// The caller must append [CancelRequested] unless State.Ended is set. Decide then
// returns the answers of the open calls, and Finish.
func Abandon(facts []Fact, last int64) State {
	s := State{Seq: last, Turn: &Turn{}}
	open := map[CallKey]*Call{}
	named, done := map[CallKey]TurnCall{}, map[CallKey]bool{}
	prepared := map[CallKey]*CallPrepared{}
	missing, read := false, int64(0) // whether facts are missing since the latest turn; Seq of the last fact read
	for _, f := range facts {
		missing, read = missing || f.Seq > read+1, f.Seq
		s.Epoch, s.At, s.OwnerLastAt = max(s.Epoch, f.Epoch), max(s.At, f.At), f.At
		s.Counts = s.Counts.After(f.Body)
		s.Spent.Rounds = s.Counts.Rounds
		switch b := f.Body.(type) {
		case Accepted:
			b.Policy = b.Policy.withDefaults(missingDefaults())
			s.Accepted, s.Limits = &b, b.Limits
		case Turn:
			s.Turn, missing = &b, false
			s.Usage = s.Usage.Add(b.Usage)
			for i, c := range b.Calls {
				named[Key(b.Round, i)] = c
			}
			s.Attempt = Attempt{}
		case TurnStarted:
			s.startAttempt(b)
		case TurnFailed:
			s.failAttempt(b, f.At)
		case CallPrepared:
			prepared[b.Key] = &b
		case CallStarted:
			open[b.Key] = &Call{
				Key: b.Key, Name: named[b.Key].Name, ProviderID: named[b.Key].ProviderID, Unknown: named[b.Key].UnknownBytes,
				Prepared: prepared[b.Key], Attempt: b.Attempt,
			}
		case CallDone:
			done[b.Key] = true
			if c := open[b.Key]; c != nil && (b.Attempt == 0 || b.Attempt == c.Attempt) {
				delete(open, b.Key)
			}
		case CancelRequested:
			s.cancel(b)
		case Expired:
			if b.WaitID == "" && s.Cuts(b) {
				s.end(event.Deadline)
			}
		case Finished:
			s.Finished = &b
		case Blocked, CallResolved, CallWaiting, Catalogued, Compacted, HookRan, InputAdded, LimitsRaised, Parked, Paused, ReserveRefused, Reserved,
			Resumed, Routed: // no call or end is in them
		}
	}
	if s.Accepted == nil {
		s.Accepted = &Accepted{}
	}
	if s.Attempt.Target < 0 || s.Attempt.Target >= len(s.Accepted.Targets) {
		s.Attempt = Attempt{}
	}
	s.Grade = Durable // each remaining fact must be on disk before it is reported
	for i, c := range s.Turn.Calls {
		key := Key(s.Turn.Round, i)
		if c.Complete && open[key] == nil && !done[key] {
			open[key] = &Call{Key: key, Name: c.Name, ProviderID: c.ProviderID, Unknown: c.UnknownBytes, Prepared: prepared[key]}
			if (missing || last > read) && open[key].mayHaveStarted() {
				open[key].Attempt = 1
			}
		}
	}
	for _, c := range open {
		s.Calls = append(s.Calls, c)
	}
	slices.SortFunc(s.Calls, func(a, b *Call) int { return cmp.Compare(a.Key, b.Key) })
	for i := range s.Calls {
		s.Calls[i].Index = i
	}
	return s
}

// mayHaveStarted reports whether the gateway may have started the call, given the facts
// that were read.
func (c Call) mayHaveStarted() bool {
	return c.owner() != tool.Client && (c.Prepared == nil || c.Prepared.Verdict != Answer)
}
