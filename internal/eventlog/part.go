package eventlog

import (
	"strconv"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// PartSuffix is what the ids of a response, and of its items, have after the id of the run: ""
// for its first part.
func PartSuffix(part int, step int64) string {
	switch {
	case part == 0:
		return ""
	case step == 0:
		return "p" + strconv.Itoa(part)
	}
	return "p" + strconv.Itoa(part) + "s" + strconv.FormatInt(step, 10)
}

// partSink reports one part of a run as if it were the whole: with a beginning of its own, and
// its own usage.
type partSink struct {
	sink    Sink
	part    int // from 1
	passed  int // parts that are over
	begin   event.Started
	usage   model.Usage // of earlier parts
	cost    tool.Money  // of earlier parts
	decided time.Time
	begun   bool
}

// Emit implements Sink.
func (p *partSink) Emit(at event.Position, e event.Event) error {
	switch ev := e.(type) {
	case event.Started:
		p.begin = ev
		if p.part > 1 {
			return nil
		}
		p.begun = true
	case event.Waiting:
		p.passed++
		if p.passed < p.part {
			p.usage, p.cost = ev.Usage, ev.Cost
			return nil
		}
		ev.Usage, ev.Cost = ev.Usage.Sub(p.usage), p.since(ev.Cost)
		e = ev
	case event.Finished:
		ev.Usage, ev.Cost = ev.Usage.Sub(p.usage), p.since(ev.Cost)
		e = ev
	case event.ApprovalDecided:
		p.decided = ev.At
		if p.passed+1 != p.part || !p.begun {
			return nil
		}
	case event.CallDelta, event.Citation, event.ItemDone, event.NativeItem, event.NativeProgress,
		event.Compacted, event.HookRan, event.LimitsRaised, event.Paused, event.ReasoningDelta, event.RefusalDelta, event.RelayBody, event.RelayHead, event.RoundDone,
		event.ModelFallback, event.RoundStarted, event.TextDelta, event.ToolDone, event.ToolStarted, event.ToolsListed: // passed on unchanged
	}
	if p.passed+1 < p.part {
		return nil
	}
	if !p.begun {
		p.begun = true
		p.begin.Part, p.begin.Queued = PartSuffix(p.part-1, 0), false
		if !p.decided.IsZero() {
			p.begin.At = p.decided
		}
		if err := p.sink.Emit(event.Position{Seq: at.Seq - 1}, p.begin); err != nil {
			return err
		}
	}
	return p.sink.Emit(at, e)
}

// ShowStep reports a part in which nothing happened: further approvals have to be decided.
func ShowStep(sink Sink, begin event.Started, waiting event.Waiting) error {
	if err := sink.Emit(event.Position{Seq: 1}, begin); err != nil {
		return err
	}
	return sink.Emit(event.Position{Seq: 2}, waiting)
}

// since returns the cost of the part of a run that cost so much in all.
func (p *partSink) since(cost tool.Money) tool.Money {
	if cost.IsZero() || p.cost.IsZero() {
		return cost
	}
	return tool.NanoUSD(max(cost.Nano()-p.cost.Nano(), 0))
}
