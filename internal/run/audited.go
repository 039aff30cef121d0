package run

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// Recorder keeps audit entries that belong to no journal. Implemented by
// store/memory and store/sqlite.
type Recorder interface {
	// Record stores the entry a little later, in the order of the calls. While
	// too many entries wait, it waits too: nothing is dropped. An error may be that of
	// an earlier entry, which could not be stored.
	Record(ctx context.Context, org string, e audit.Entry) error
}

// timing is when the model call that is under way was sent, and when the first of
// its answer came. Both are readings of time.Now, so that a step of the wall clock
// changes no latency.
type timing struct{ sent, first time.Time }

// heard notes that something of the answer has come.
func (c *timing) heard(now time.Time) {
	if c.first.IsZero() {
		c.first = now
	}
}

// times returns how long the call has taken until now, and how long until the
// first of its answer; nil if nothing came.
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

// atLeastOne returns d, at least a microsecond: zero says that nothing happened.
func atLeastOne(d time.Duration) time.Duration { return max(d, time.Microsecond) }

// entries returns what an auditor is to see of a fact: of a round when its turn
// is there, or when the run ends without one, of every call when it has ended,
// and of a budget that was used up. A run has one end, so it has one of these.
func (d *drive) entries(before loop.State, f loop.Fact) []audit.Entry {
	if before.Accepted == nil || before.Accepted.Raw {
		return nil // a relay is recorded as a whole
	}
	switch b := f.Body.(type) {
	case loop.Catalogued:
		return d.collisions(b, f.At)
	case loop.Turn:
		return []audit.Entry{d.entry(audit.KindRequest, b.Round, f.At, d.answered(before, b))}
	case loop.CallDone:
		round, body := d.called(before, b)
		return []audit.Entry{d.entry(audit.KindToolCall, round, f.At, body)}
	case loop.Finished:
		return d.closing(before, b, f.At)
	}
	return nil
}

func (d *drive) collisions(b loop.Catalogued, at int64) (out []audit.Entry) {
	for _, c := range b.Collisions {
		out = append(out, d.entry(audit.KindCollision, 0, at, audit.Collision{RunID: d.lease.RunID, Tool: c.Tool, Server: c.Server, KeptFrom: c.KeptFrom}))
	}
	return out
}

// entry names the round's own request: the first one's is that of the run.
func (d *drive) entry(kind audit.Kind, round int, at int64, body any) audit.Entry {
	id := d.lease.RunID
	if round > 0 {
		id += "." + strconv.Itoa(round)
	}
	return audit.Entry{Kind: kind, At: at, Principal: d.req.Principal, RunID: d.lease.RunID, RequestID: id, Body: body}
}

// round is what all rounds of a run have in common, with how long the latest
// model call took.
func (d *drive) round(s loop.State, n int) audit.Request {
	r := audit.Request{
		Surface: audit.SurfaceAgent, Via: s.Accepted.Surface, Round: &n, Model: s.Accepted.Model,
		Provider: s.Accepted.Targets[s.Attempt.Target].Provider, Target: s.Accepted.Targets[s.Attempt.Target].Model,
		Attempts: s.Attempt.Number, Status: audit.OK,
	}
	r.LatencyMS, r.TTFTMS = d.timing.times(time.Now())
	return r
}

func (d *drive) answered(s loop.State, turn loop.Turn) audit.Request {
	r := d.round(s, turn.Round)
	u := turn.Usage
	r.InputTokens, r.OutputTokens, r.CachedTokens, r.ReasoningTokens = u.Input, u.Output, u.CachedInput, u.Reasoning
	r.ToolCalls, r.Stop = len(turn.Calls), string(turn.Stop)
	return r
}

func (d *drive) called(s loop.State, done loop.CallDone) (round int, body audit.ToolCall) {
	text, index, _ := strings.Cut(string(done.Key), ".")
	round, _ = strconv.Atoi(text) // our own spelling
	body = audit.ToolCall{
		RunID: d.lease.RunID, Round: round, Status: string(done.Outcome), LatencyMS: audit.Milliseconds(done.Took()), Attempts: done.Attempt, Digest: done.ResultDigest,
	}
	body.Index, _ = strconv.Atoi(index)
	c, _ := s.Call(done.Key)
	body.Tool = c.Name
	if p := c.Prepared; p != nil {
		body.Server, body.Class = p.Server, string(p.Class)
		if p.Tool != "" {
			body.Tool = p.Tool
		}
	}
	return round, body
}

// closing returns the entries of a run's end: of the round that never got its
// turn, and of the budget that has ended the run.
func (d *drive) closing(s loop.State, end loop.Finished, at int64) (out []audit.Entry) {
	if s.Attempt.Number > 0 {
		round := s.Spent.Rounds
		r := d.round(s, round)
		r.Status = audit.Unknown
		if f := s.Attempt.Failed; f != nil {
			r.Status, r.Class, r.HTTPStatus = audit.Failed, string(f.Class), f.Status
			r.InputTokens, r.OutputTokens = f.Usage.Input, f.Usage.Output
		}
		out = append(out, d.entry(audit.KindRequest, round, at, r))
	}
	switch end.Reason {
	case event.MaxRounds, event.MaxCalls, event.Deadline, event.Tokens, event.Money:
		a := s.Accepted
		out = append(out, d.entry(audit.KindBudgetExhausted, 0, at, audit.BudgetExhausted{
			Budget: string(end.Reason), Via: a.Surface, Model: a.Model, Limits: a.Limits,
			Rounds: s.Spent.Rounds, Calls: s.CallsStarted, Tokens: s.Spent.Tokens,
		}))
	}
	return out
}

// relayed performs a relay and keeps what became of it. While nothing can be
// kept, nothing is passed on.
func (d *drive) relayed() error {
	if d.o.Recorder == nil {
		return d.perform()
	}
	if err := d.Health(); err != nil {
		return unavailable(err)
	}
	if d.lease.RunID = d.req.ID; d.lease.RunID == "" {
		d.lease.RunID = d.o.NewID("req_")
	}
	if err := d.perform(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), appendTimeout) // a caller who is gone changes nothing
	defer cancel()
	entry := d.relayEntry()
	if err := d.o.Recorder.Record(ctx, d.req.Org, entry); err != nil {
		d.log.Error("a request that was passed on is not in the audit", "request", d.lease.RunID, "org", d.req.Org, "error", err)
		d.trouble(err)
		return nil
	}
	d.recorded(entry)
	return nil
}

func (d *drive) relayEntry() audit.Entry {
	target, now := d.req.Targets[d.state.Attempt.Target], d.o.Now()
	r := audit.Request{
		Surface: audit.SurfaceRelay, Via: d.req.Surface, Provider: target.Provider, Model: d.req.Model, Target: target.Name,
		Attempts: 1, Status: audit.OK, HTTPStatus: d.passed.status, Bytes: d.passed.bytes,
	}
	r.LatencyMS, r.TTFTMS = d.timing.times(time.Now())
	if d.passed.status >= 400 {
		r.Status = audit.Failed
	}
	if d.failed != nil {
		r.Status, r.Class = audit.Failed, string(d.failed.Class)
	}
	return audit.Entry{Kind: audit.KindRequest, At: now.UnixMilli(), Principal: d.req.Principal, RequestID: d.lease.RunID, Body: r}
}
