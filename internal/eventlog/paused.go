package eventlog

import (
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/tool"
)

// pausedEvent returns the event of a run that waits at a limit since at, in Unix milliseconds.
func pausedEvent(s *loop.State, at int64) event.Paused {
	b := s.Paused
	e := event.Paused{
		ID: b.WaitID, Reason: b.Reason, Budget: b.Scope, Message: PausedText(s), Usage: s.Usage, Rounds: s.Counts.Rounds, ToolCalls: s.Counts.Calls,
		Active: milliseconds(s.ActiveMS), SideEffects: s.SideEffects, Cost: paid(s), At: time.UnixMilli(at).UTC(),
	}
	if b.EndsAt > 0 {
		e.BudgetEndsAt = time.UnixMilli(b.EndsAt).UTC()
	}
	if b.ExpiresAt > 0 {
		e.ExpiresAt = time.UnixMilli(b.ExpiresAt).UTC()
	}
	return e
}

// PausedText says what a paused run has used up, and what lets it go on.
func PausedText(s *loop.State) string {
	if s.Paused.Scope != "" {
		again := "raise the budget, or wait for its next period; then POST /v1/runs/{id}/limits with {} tries again"
		return fmt.Sprintf("the budget %s has no room for the next model call; %s", s.Paused.Scope, again)
	}
	l := s.Limits
	switch s.Paused.Reason {
	case event.MaxRounds:
		return fmt.Sprintf("the run has used %d of %s; raise rounds", s.Counts.Rounds, count(int64(l.Rounds), "round"))
	case event.MaxCalls:
		return fmt.Sprintf("the run has used %d of %s, and the model asks for more; raise calls", s.Counts.Calls, count(int64(l.Calls), "tool call"))
	case event.Tokens:
		return fmt.Sprintf("the run has used %d of %s, and the next model call may need more than the rest; raise tokens", s.Spent.Tokens, count(l.Tokens, "token"))
	case event.Deadline:
		return fmt.Sprintf("the run has used %v of its time limit of %v; raise active_ms", milliseconds(s.ActiveMS), milliseconds(l.ActiveMS))
	}
	if l.NanoUSD == nil {
		return "a limit on money leaves no room for the next call"
	}
	return fmt.Sprintf("the run has spent %s of %s USD, and its next call may cost more than the rest; raise usd", money.Nano(s.Spent.NanoUSD), money.Nano(*l.NanoUSD))
}

// paid returns what the run has spent; no amount = nothing of it has a price.
func paid(s *loop.State) tool.Money {
	if n := s.Paid(); n != nil {
		return tool.NanoUSD(max(*n, 0))
	}
	return tool.Money{}
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
