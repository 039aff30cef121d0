package run

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// NewLimits are the limits that a paused run is to have. A field of nil = as it is.
type NewLimits struct {
	Rounds, Calls, Tokens, NanoUSD, ActiveMS *int64
}

// IsZero reports whether no limit is to change: the run tries again.
func (n NewLimits) IsZero() bool { return n == NewLimits{} }

// Allowance is what the org of a run allows now.
type Allowance struct {
	// Ceilings are the highest limits that the run may have. Tokens 0 and NanoUSD nil = no ceiling.
	Ceilings budget.Limits

	// SwitchedRounds are the most rounds of a run that switches of the org have engaged, if they are more.
	SwitchedRounds int

	// Budgets are those that the run spends from together with others.
	Budgets []budget.Shared
}

// notPaused returns the error for a run that does not wait for a raise; nil if it has the limits already.
func notPaused(s *loop.State, runID string, n NewLimits) error {
	has := !n.IsZero() && s.Accepted != nil && !s.Limits.Equal(s.Accepted.Limits)
	for _, l := range raisables(s, n, budget.Limits{}) {
		has = has && (l.to == nil || l.limited && *l.to == l.is)
	}
	if has { // the same raise again
		return nil
	}
	return fault.New(fault.Conflict, "not_paused", "run %s does not wait at a limit: only the limits of a paused run can be raised", runID)
}

// raisable is a limit that can be raised.
type raisable struct {
	name    string // in requests
	reason  event.Reason
	to      *int64
	is      int64
	limited bool // the run has the limit
	used    int64
	ceiling int64
	setting string // which sets the ceiling
	text    func(int64) string
}

// raisables returns the limits of a run in state s, as n wants them.
func raisables(s *loop.State, n NewLimits, c budget.Limits) []raisable {
	l := s.Limits
	number := func(v int64) string { return fmt.Sprint(v) }
	usd := func(v int64) string { return money.Nano(v).String() }
	var isUSD, mostUSD int64
	if l.NanoUSD != nil {
		isUSD = *l.NanoUSD
	}
	if mostUSD = math.MaxInt64; c.NanoUSD != nil {
		mostUSD = *c.NanoUSD
	}
	return []raisable{
		{name: "rounds", reason: event.MaxRounds, to: n.Rounds, is: int64(l.Rounds), limited: true, used: int64(s.Counts.Rounds),
			ceiling: int64(c.Rounds), setting: "runtime.max_rounds and max_rounds_cap", text: number},
		{name: "calls", reason: event.MaxCalls, to: n.Calls, is: int64(l.Calls), limited: true, used: int64(s.Counts.Calls),
			ceiling: int64(c.Calls), setting: "runtime.max_calls", text: number},
		{name: "tokens", reason: event.Tokens, to: n.Tokens, is: l.Tokens, limited: l.Tokens > 0, used: s.Spent.Tokens,
			ceiling: cmp.Or(c.Tokens, math.MaxInt64), setting: "runtime.max_run_tokens", text: number},
		{name: "usd", reason: event.Money, to: n.NanoUSD, is: isUSD, limited: l.NanoUSD != nil, used: s.Spent.NanoUSD,
			ceiling: mostUSD, setting: "runtime.max_run_cost_usd", text: usd},
		{name: "active_ms", reason: event.Deadline, to: n.ActiveMS, is: l.ActiveMS, limited: true, used: s.ActiveMS,
			ceiling: c.ActiveMS, setting: "runtime.deadline", text: number},
	}
}

// raiseOf returns the fact that raises the limits of a paused run. allowance is [Options.Allowance].
func raiseOf(s *loop.State, n NewLimits, by org.Author, allowance func(orgID, principal, endUser string) (Allowance, bool)) (loop.LimitsRaised, error) {
	body := loop.LimitsRaised{By: by.Principal, WaitID: s.Paused.WaitID}
	ceilings := budget.Limits{Rounds: budget.MaxRounds, Calls: budget.MaxCalls, ActiveMS: org.MaxDeadline.Milliseconds()}
	if allowance != nil {
		a, ok := allowance(s.Accepted.Org, s.Accepted.Principal, s.Accepted.EndUser)
		if !ok {
			return body, fault.New(fault.Conflict, "run_ending", "the key or the org that started the run is gone: the run ends")
		}
		ceilings, body.Budgets, body.Rebudget = a.Ceilings, a.Budgets, true
		if len(s.Accepted.Switched) > 0 || s.Accepted.Limits.Rounds > ceilings.Rounds { // only a switch gives so many
			ceilings.Rounds = max(ceilings.Rounds, a.SwitchedRounds)
		}
	}
	for _, l := range raisables(s, n, ceilings) {
		if l.to == nil {
			continue
		}
		if err := l.check(); err != nil {
			return body, err
		}
		delta := *l.to - l.is
		switch l.reason {
		case event.MaxRounds:
			body.Raise.Rounds = int(delta)
		case event.MaxCalls:
			body.Raise.Calls = int(delta)
		case event.Tokens:
			body.Raise.Tokens = delta
		case event.Money:
			body.Raise.NanoUSD = delta
		default:
			body.Raise.ActiveMS = delta
		}
	}
	if again := s.HeldAfter(body); again != "" {
		return body, heldAgain(s, body, again, ceilings)
	}
	return body, nil
}

// check returns why the limit cannot be raised to what is asked for.
func (l raisable) check() error {
	to := *l.to
	var f *fault.Error
	switch {
	case to <= 0:
		f = fault.New(fault.Invalid, "not_a_raise", "%s must be positive, and above the present limit of %s", l.name, l.text(l.is))
	case !l.limited:
		f = fault.New(fault.Invalid, "not_a_raise", "%s: the run has no such limit, so that it cannot be raised; leave it out", l.name)
	case to <= l.is:
		f = fault.New(fault.Invalid, "not_a_raise", "%s: the limit of the run is %s already, and a limit can only be raised; give a higher one, or leave it out", l.name, l.text(l.is))
	case to <= l.used:
		f = fault.New(fault.Invalid, "not_a_raise", "%s: the run has used %s, which is not less than %s; give a limit above what is used", l.name, l.text(l.used), l.text(to))
	case to > l.ceiling:
		f = fault.New(fault.Forbidden, "above_org_limit", "%s: the org allows its runs at most %s (%s); give less, or have the setting raised first", l.name, l.text(l.ceiling), l.setting)
	default:
		return nil
	}
	return f.In(l.name)
}

// heldAgain returns the error for a raise after which the run would wait again at once.
func heldAgain(s *loop.State, body loop.LimitsRaised, again event.Reason, ceilings budget.Limits) error {
	after := loop.Apply(*s, loop.Fact{Seq: s.Seq + 1, At: s.At, Version: loop.Version, Body: body})
	after.Paused = &loop.Paused{Reason: again}
	for _, l := range raisables(&after, NewLimits{}, ceilings) {
		if l.reason == again {
			return fault.New(fault.Invalid, "not_a_raise", "with this the run would wait again at once: %s above %s", eventlog.PausedText(&after), l.text(max(l.is, l.used))).In(l.name)
		}
	}
	return errors.New("the run would wait again for an unknown limit")
}
