package route

import (
	"cmp"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// A circuit breaker opens when its target has failed openAfter times within openWithin without an
// answer in between. After openFor it is half-open: one request is sent as a probe, whose outcome
// closes the breaker or opens it again.
const (
	openAfter  = 5
	openWithin = 30 * time.Second
	openFor    = 30 * time.Second
)

// maxBreakers is how many targets a Router remembers. Names of the form provider/model are the
// callers' own: the target that was used least recently is forgotten.
const maxBreakers = 1024

// targetName identifies a target.
type targetName struct{ provider, model string }

func nameOf(t loop.Target) targetName { return targetName{t.Provider, t.Model} }

// BreakerState is the state of a circuit breaker.
type BreakerState string

// The states.
const (
	Closed   BreakerState = "closed"    // the target is used
	Open     BreakerState = "open"      // it is not
	HalfOpen BreakerState = "half_open" // one request is sent as a probe
)

// TargetState is what a Router knows of a target.
type TargetState struct {
	Provider, Model string
	Breaker         BreakerState
	Failures        int           // since the last answer, that count at the moment; at most openAfter
	OpenedAt        time.Time     // when the breaker was opened last; zero for a closed one
	Latency         time.Duration // to the begin of an answer, on average; 0 = not known
}

// breakers are the circuit breakers of targets, and their latency. A target that is not in the map
// is closed and of unknown latency. The zero value is ready to be used.
type breakers struct{ of map[targetName]*breaker }

type breaker struct {
	failures []time.Time // since the last answer, at most openAfter
	opened   time.Time   // zero = closed
	probe    time.Time   // when the probe was sent; zero = none is under way
	began    time.Duration
	used     time.Time
}

// admits reports whether a request may be sent to the target. A half-open one admits one probe,
// whose outcome may be missing: then another one is admitted after openFor.
func (b *breakers) admits(t targetName, now time.Time) bool {
	x := b.of[t]
	switch {
	case x == nil || x.opened.IsZero():
		return true
	case now.Sub(x.opened) < openFor:
		return false
	}
	return x.probe.IsZero() || now.Sub(x.probe) >= openFor
}

// tried notes that a request is about to be sent to the target.
func (b *breakers) tried(t targetName, now time.Time) {
	if x := b.of[t]; x != nil && !x.opened.IsZero() && now.Sub(x.opened) >= openFor {
		x.probe = now
	}
}

// latencyShare is the share of the newest answer in the average latency.
const latencyShare = 0.2

func (b *breakers) report(t targetName, o Outcome, began time.Duration, now time.Time) {
	x := b.entry(t, now)
	x.used = now
	switch o {
	case NoVerdict:
		x.probe = time.Time{}
	case Answered:
		x.failures, x.opened, x.probe = nil, time.Time{}, time.Time{}
		switch {
		case began <= 0:
		case x.began == 0:
			x.began = began
		default:
			x.began += time.Duration(latencyShare * float64(began-x.began))
		}
	case Failed:
		x.failures = append(x.failures[max(0, len(x.failures)-openAfter+1):], now)
		probed := !x.opened.IsZero() && now.Sub(x.opened) >= openFor
		if probed || x.opened.IsZero() && len(x.failures) == openAfter && now.Sub(x.failures[0]) <= openWithin {
			x.opened, x.probe = now, time.Time{}
		}
	}
}

// entry returns the entry of a target, which is made if it is new.
func (b *breakers) entry(t targetName, now time.Time) *breaker {
	if x := b.of[t]; x != nil {
		return x
	}
	if b.of == nil {
		b.of = map[targetName]*breaker{}
	}
	if len(b.of) >= maxBreakers {
		var oldest targetName
		at := now
		for t, x := range b.of {
			if !x.used.After(at) {
				oldest, at = t, x.used
			}
		}
		delete(b.of, oldest)
	}
	x := &breaker{}
	b.of[t] = x
	return x
}

func (b *breakers) latency(t targetName) time.Duration {
	if x := b.of[t]; x != nil {
		return x.began
	}
	return 0 // it is tried, so that its latency is known
}

func (b *breakers) state(t targetName, now time.Time) TargetState {
	out := TargetState{Provider: t.provider, Model: t.model, Breaker: Closed}
	x := b.of[t]
	if x == nil {
		return out
	}
	out.Latency = x.began
	for _, at := range x.failures {
		if now.Sub(at) <= openWithin {
			out.Failures++
		}
	}
	switch {
	case x.opened.IsZero():
	case now.Sub(x.opened) < openFor:
		out.Breaker, out.OpenedAt = Open, x.opened
	default:
		out.Breaker, out.OpenedAt = HalfOpen, x.opened
	}
	return out
}

// notClosed returns the states of the targets whose breaker is not closed, sorted by name.
func (b *breakers) notClosed(now time.Time) (out []TargetState) {
	for t, x := range b.of {
		if !x.opened.IsZero() {
			out = append(out, b.state(t, now))
		}
	}
	slices.SortFunc(out, func(a, b TargetState) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	return out
}
