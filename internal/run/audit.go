package run

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// timing is the time at which the latest model call was sent, and the time at which the first
// part of its answer arrived; zero = not yet. Both are readings of time.Now, so that setting
// the wall clock changes no latency.
type timing struct{ sent, first time.Time }

// received notes that a part of the answer has arrived.
func (c *timing) received(now time.Time) {
	if c.first.IsZero() {
		c.first = now
	}
}

// times returns the time that the call has taken until now, and the time to the first part of
// its answer, in milliseconds; nil if nothing has arrived.
func (c timing) times(now time.Time) (latencyMS float64, ttftMS *float64) {
	if c.sent.IsZero() {
		return 0, nil
	}
	if !c.first.IsZero() {
		ms := audit.Milliseconds(atLeastOne(c.first.Sub(c.sent)).Microseconds())
		ttftMS = &ms
	}
	return audit.Milliseconds(atLeastOne(now.Sub(c.sent)).Microseconds()), ttftMS
}

// atLeastOne returns d, or a microsecond if d is shorter, because 0 means that nothing happened.
func atLeastOne(d time.Duration) time.Duration { return max(d, time.Microsecond) }

// auditor makes the audit entries of a run. A round has one entry: when its turn is
// stored, or when the run ends without it. A call has one when it has ended, and a budget
// that was used up has one at the end of the run.
type auditor struct {
	runID, principal string
	timing           timing // of the latest model call
}

// entries returns the entries of a fact, which follows the state before.
func (a auditor) entries(before *loop.State, f loop.Fact) []audit.Entry {
	if before.Accepted == nil {
		return nil
	}
	switch b := f.Body.(type) {
	case loop.Catalogued:
		return a.collisions(b, f.At)
	case loop.Turn:
		return []audit.Entry{a.entry(audit.KindRequest, b.Round, f.At, a.answered(before, b))}
	case loop.CallDone:
		round, body := a.called(before, b)
		return []audit.Entry{a.entry(audit.KindToolCall, round, f.At, body)}
	case loop.CallWaiting:
		return []audit.Entry{a.approval("asked", b, f.At, a.principal)}
	case loop.CallStarted:
		if c, ok := before.Call(b.Key); ok && c.Wait != nil && b.Attempt == 1 {
			return []audit.Entry{a.approval("executed", *c.Wait, f.At, a.principal)}
		}
	case loop.CallPrepared:
		if c, ok := before.Call(b.Key); ok && c.Wait != nil {
			return []audit.Entry{a.approval("void", *c.Wait, f.At, "")}
		}
	case loop.CallResolved: // another than an early one is recorded by who appends it
		for _, c := range before.Calls {
			if b.Early && b.WaitID != "" && c.WaitID() == b.WaitID {
				return []audit.Entry{a.decided(*c.Wait, b, f.At)}
			}
		}
	case loop.Paused:
		if b.Scope == "" {
			return []audit.Entry{a.exhausted(before, b.Reason, true, f.At)}
		}
	case loop.HookRan:
		if b.Failed || b.Verdict != loop.HookAllow {
			return []audit.Entry{a.hook(before, b, f.At)}
		}
	case loop.Finished:
		return a.closing(before, b, f.At)
	case loop.Accepted, loop.Blocked, loop.CancelRequested, loop.Compacted, loop.Expired,
		loop.InputAdded, loop.LimitsRaised, loop.Parked, loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Routed, loop.TurnFailed, loop.TurnStarted: // not in the audit log
	}
	return nil
}

// approval returns the entry for what the run has done with an approval.
func (a auditor) approval(action string, w loop.CallWaiting, at int64, by string) audit.Entry {
	e := a.entry(audit.KindApproval, 0, at, audit.Approval{
		ID: w.WaitID, RunID: a.runID, Action: action, Server: w.Server, Tool: w.Tool, Principal: a.principal, Asker: string(w.Asker),
		ToolDigest: w.ToolDigest, ArgsDigest: w.ArgsDigest, Policy: w.Policy,
	})
	e.Principal = by
	return e
}

// decided returns the entry for a decision that was made before its call was asked for.
func (a auditor) decided(w loop.CallWaiting, d loop.CallResolved, at int64) audit.Entry {
	action := journal.ApprovalDenied
	if d.Approved {
		action = journal.ApprovalApproved
	}
	e := a.approval(string(action), w, at, d.By)
	body := e.Body.(audit.Approval)
	body.Reason = d.Message
	e.Body = body
	return e
}

// hook returns the entry for what a hook has decided.
func (a auditor) hook(s *loop.State, b loop.HookRan, at int64) audit.Entry {
	h, _ := s.HookOf(b.Hook)
	c, _ := s.Call(b.Key)
	body := audit.Hook{
		RunID: a.runID, Hook: b.Hook, Event: b.Point.Event(), Type: string(h.Type), Tool: c.Name, Call: string(b.Key), Action: string(b.Verdict),
		Status: string(event.HookSucceeded), LatencyMS: audit.Milliseconds(b.Micros),
	}
	switch {
	case b.TimedOut:
		body.Status = string(event.HookTimedOut)
	case b.Failed:
		body.Status = string(event.HookFailed)
	}
	round := 0
	if s.Turn != nil {
		round = s.Turn.Round
	}
	return a.entry(audit.KindHook, round, at, body)
}

// collisions returns the entries of tools that were dropped because of their names.
func (a auditor) collisions(b loop.Catalogued, at int64) (out []audit.Entry) {
	for _, c := range b.Collisions {
		out = append(out, a.entry(audit.KindCollision, 0, at, audit.Collision{RunID: a.runID, Tool: c.Tool, Server: c.Server, KeptFrom: c.KeptFrom}))
	}
	return out
}

// entry returns an entry about a round. The request id of round 0 is the id of the run.
func (a auditor) entry(kind audit.Kind, round int, at int64, body any) audit.Entry {
	id := a.runID
	if round > 0 {
		id += "." + strconv.Itoa(round)
	}
	return audit.Entry{Kind: kind, At: at, Principal: a.principal, RunID: a.runID, RequestID: id, Body: body}
}

// round returns the fields that every entry of a round has, with the duration of the latest
// model call.
func (a auditor) round(s *loop.State, n int) audit.Request {
	r := audit.Request{
		Surface: audit.SurfaceAgent, Via: s.Accepted.Surface, EndUser: s.Accepted.EndUser, Round: &n, Model: s.Accepted.Model,
		Provider: s.Accepted.Targets[s.Attempt.Target].Provider, Target: s.Accepted.Targets[s.Attempt.Target].Model,
		Attempts: s.Attempt.Number, Status: audit.OK, Agent: s.Accepted.Agent,
	}
	r.LatencyMS, r.TTFTMS = a.timing.times(time.Now())
	return r
}

// answered returns the entry of a turn.
func (a auditor) answered(s *loop.State, turn loop.Turn) audit.Request {
	r := a.round(s, turn.Round)
	u := turn.Usage
	r.CachedTokens, r.ReasoningTokens, r.GPUMS, r.CacheWriteTokens = u.CachedInput, u.Reasoning, u.GPUMS, u.CacheWrite
	charged(&r, s.ChargedInRound.Add(s.Charge(turn)))
	r.ToolCalls, r.Stop = len(turn.Calls), string(turn.Stop)
	return r
}

// called returns the entry of a tool call that has ended, and its round.
func (a auditor) called(s *loop.State, done loop.CallDone) (round int, body audit.ToolCall) {
	text, index, _ := strings.Cut(string(done.Key), ".")
	round, _ = strconv.Atoi(text) // made by loop.Key
	body = audit.ToolCall{
		RunID: a.runID, Round: round, Status: string(done.Outcome), LatencyMS: audit.Milliseconds(done.Micros), Attempts: done.Attempt, Digest: done.ResultDigest,
		Agent: s.Accepted.Agent,
	}
	body.Index, _ = strconv.Atoi(index)
	if body.CostNanoUSD = s.CallCost(done).NanoUSD; body.CostNanoUSD > 0 {
		body.Model, body.EndUser = s.Accepted.Model, s.Accepted.EndUser
	}
	c, _ := s.Call(done.Key)
	body.Tool = c.Name
	if p := c.Prepared; p != nil {
		body.Server, body.Class = p.Server, string(p.Class)
		body.FromRequest = s.FromRequest(p.Server)
		if p.Tool != "" {
			body.Tool = p.Tool
		}
	}
	if c.Unknown > 0 && s.Accepted.NoStore {
		body.Tool = fmt.Sprintf("(unknown, %d bytes)", c.Unknown) // the model wrote it
	}
	return round, body
}

// closing returns the entries of a run's end: that of a round without a turn, and that of
// the budget that has ended the run.
func (a auditor) closing(s *loop.State, end loop.Finished, at int64) (out []audit.Entry) {
	if s.Attempt.Open || s.Attempt.Failed != nil {
		round := s.Spent.Rounds
		r := a.round(s, round)
		r.Status = audit.Unknown
		if f := s.Attempt.Failed; f != nil {
			r.Status, r.Class, r.HTTPStatus = audit.Failed, string(f.Class), f.Status
			r.CacheWriteTokens = f.Usage.CacheWrite
		}
		charged(&r, s.ChargedInRound)
		out = append(out, a.entry(audit.KindRequest, round, at, r))
	}
	for _, c := range s.Calls {
		if c.Wait != nil && !c.Resolved {
			e := a.approval("void", *c.Wait, at, "")
			if s.Cancelled != nil {
				void := e.Body.(audit.Approval)
				void.Reason = journal.GoneReason(*s.Cancelled)
				e.Body = void
			}
			out = append(out, e)
		}
	}
	if limit := s.LimitReached(end.Reason); limit != "" && (s.PauseOver != limit || s.Refused != nil) { // its pause had none
		out = append(out, a.exhausted(s, limit, false, at))
	}
	return out
}

// exhausted returns the entry of a limit that the run has reached.
func (a auditor) exhausted(s *loop.State, limit event.Reason, paused bool, at int64) audit.Entry {
	run := s.Accepted
	return a.entry(audit.KindBudgetExhausted, 0, at, audit.BudgetExhausted{
		Budget: string(limit), Via: run.Surface, Model: run.Model, Limits: s.Limits,
		Rounds: s.Spent.Rounds, Calls: s.Counts.Calls, Tokens: s.Spent.Tokens, Paused: paused,
	})
}

// charged sets what the model calls of a row are charged with.
func charged(r *audit.Request, c loop.Charge) {
	r.InputTokens, r.OutputTokens, r.CostNanoUSD = c.Input, c.Output, c.NanoUSD
	r.EstimatedInput, r.EstimatedOutput, r.EstimatedNanoUSD = c.EstimatedInput, c.EstimatedOutput, c.EstimatedNanoUSD
}
