package loop

import (
	"strconv"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// State is everything that the rules know of a run. The zero State is the one
// before the first fact. A State is a value: Apply never changes the one that
// it is given.
type State struct {
	Seq   int64 // of the last fact
	Epoch int64 // the highest seen
	At    int64 // of the last fact, Unix milliseconds
	Grade Grade // as accepted; a run that waits is durable from then on

	Accepted   *Accepted
	Catalogued *Catalogued
	Blocked    *Blocked
	Finished   *Finished

	Ended  event.Reason // why nothing new may be started: cancelled, out of time, blocked
	Taken  int          // owners that died since the run last got further
	Halted bool         // the progress guard has seen enough

	Attempt Attempt
	Turn    *Turn  // the latest
	Calls   []Call // of the latest turn: those that are complete
	settled bool   // their results stand in the transcript

	Spent     budget.Spent
	CallsUsed int  // calls that were executed, each once
	Cut       bool // a result was cut: the model may read the rest
	LeftOut   bool // a turn has asked for calls that the mode First does not execute
	Wrote     bool
	Usage     model.Usage
	History   []policy.Past

	Known    int64     // tokens of the transcript that the provider has counted
	Fresh    int64     // bytes of what came after
	Reserved *Reserved // of the latest model call

	// Transcript names the items that the model sees, in order. The first
	// InputRefs of them came from the caller.
	Transcript []string
	InputRefs  int

	Further int64 // when the run last got further, Unix milliseconds

	ActiveSince int64 // Unix milliseconds; 0 while parked
	ActiveMS    int64 // used up before ActiveSince
	Worked      int64 // the owner's last fact, by the clock that ActiveSince was read from
}

// Attempt is the latest model call of the round that is under way.
type Attempt struct {
	Number   int // 0 = none yet
	Target   int
	OnTarget int         // attempts on that target
	Open     bool        // started and neither done nor failed
	Failed   *TurnFailed // until the next attempt starts
	FailedAt int64
}

// Call is one tool call of the latest turn.
type Call struct {
	Key        CallKey
	Index      int
	ProviderID string
	Name       string

	Prepared *CallPrepared
	Guard    policy.Verdict
	Advice   string
	history  int // its place in State.History

	Attempt   int // 0 = never started
	Deaths    int // owners that died while it was under way
	Done      bool
	Outcome   Outcome
	ResultRef string

	WaitID   string
	Resolved bool
	Approved bool
	Message  string
}

// Key returns the identity of the call with the given index in a round.
func Key(round, index int) CallKey {
	return CallKey(strconv.Itoa(round) + "." + strconv.Itoa(index))
}

// DeadlineAt returns when the run's active time is used up, in Unix
// milliseconds, or 0 while it stands still.
func (s State) DeadlineAt() int64 {
	if s.Accepted == nil || s.ActiveSince == 0 {
		return 0
	}
	return s.ActiveSince + s.Accepted.Limits.ActiveMS - s.ActiveMS
}

// HiddenRefs names the items of the run that its caller has not sent and does
// not see.
func (s State) HiddenRefs() []string { return s.Transcript[s.InputRefs:] }

// HidesItems reports whether the run has items that a caller of client tools
// does not see: earlier rounds, or calls that the gateway executed.
func (s State) HidesItems() bool {
	if s.Spent.Rounds > 1 {
		return true
	}
	for _, c := range s.Calls {
		if c.owner() != tool.Client {
			return true
		}
	}
	return false
}

// ClientCalls returns the calls that are left for the caller, in order.
func (s State) ClientCalls() []Call {
	var out []Call
	for _, c := range s.Calls {
		if c.owner() == tool.Client && !c.Done {
			out = append(out, c)
		}
	}
	return out
}

// Deadly returns the call that is given up because its owners died while it was
// under way, or false.
func (s State) Deadly() (Call, bool) {
	for _, c := range s.Calls {
		if c.Deaths > 0 && c.Deaths >= s.Accepted.Rules.Deaths {
			return c, true
		}
	}
	return Call{}, false
}

// Suspect reports whether the run may be what its last two owners died of: the
// next one works on it while it works on no other suspect.
func (s State) Suspect() bool {
	if s.Grade != Durable || s.Ended != "" {
		return false
	}
	for _, c := range s.Calls {
		if !c.Done && c.Deaths >= suspicious {
			return true
		}
	}
	return s.Taken >= suspicious
}

// suspicious is how many deaths make a suspect. The first two owners after a crash
// work on all runs at once: most crashes are nobody's fault, and come once.
const suspicious = 2

// Call returns the call with the given key, or false.
func (s State) Call(key CallKey) (Call, bool) {
	for _, c := range s.Calls {
		if c.Key == key {
			return c, true
		}
	}
	return Call{}, false
}

func (c Call) owner() tool.Owner {
	if c.Prepared == nil {
		return ""
	}
	return c.Prepared.Owner
}

// class returns how often the call may be executed: once, where nothing is known.
func (c Call) class() tool.Class {
	if c.Prepared == nil {
		return tool.Once
	}
	return c.Prepared.Class
}

// Failed reports whether the call was started and has failed, or may have.
func (c Call) Failed() bool {
	return c.Done && c.Attempt > 0 && (c.Outcome == Error || c.Outcome == Unknown || c.Outcome == NotRun)
}

// wanted reports whether the call is to be executed, now or after a yes.
func (c Call) wanted() bool {
	if c.Prepared == nil || c.owner() == tool.Client || c.Guard != policy.Go {
		return false
	}
	return c.Prepared.Verdict == Run || c.Prepared.Verdict == Ask
}

// Runs reports whether the call is to be executed, and nothing but its turn
// stands before it.
func (c Call) Runs() bool { return !c.Done && c.free() }

// free reports whether nothing but its turn stands before the call.
func (c Call) free() bool {
	return c.wanted() && (c.Prepared.Verdict == Run || c.Resolved && c.Approved)
}

// lost reports whether the call was sent and nobody knows what became of it,
// and it must not be sent again.
func (c Call) lost() bool {
	return c.Attempt > 0 && !c.Done && !c.Prepared.Class.Repeatable()
}

// Cost returns what a model call has cost that ended with the fact: what its
// provider counted. Where it did not say, that is all that was set aside, unless
// the provider refused the call.
func (s State) Cost(end Body) budget.Amount {
	switch b := end.(type) {
	case Turn:
		return s.cost(b.Usage, false)
	case TurnFailed:
		return s.cost(b.Usage, b.Status >= 400)
	}
	return budget.Amount{}
}

func (s State) cost(u model.Usage, refused bool) budget.Amount {
	counted := budget.Amount{Tokens: u.Input + u.Output}
	if counted.Tokens == 0 && !refused && s.Reserved != nil {
		return s.Reserved.Amount
	}
	return counted
}
