package sim

import (
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// chance returns the source of chance for one thing. It depends on the seed and
// on the words and on nothing else: what others draw, and in which order, does
// not change it.
func (w *world) chance(words ...string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, strings.Join(words, "\x00"))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// between returns a time from lo to hi. Its odd nanoseconds keep it from
// falling together with anybody else's timer.
func between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(r.Int64N(int64(hi-lo)+1))
}

// swarm says which faults there are in one world, and how often. Each kind is
// there or not, so that rare states are not hidden by the noise of all others.
// The zero value is a world without faults.
type swarm struct {
	pace  time.Duration // how long a call takes at most when all is well
	store faults
	tools faults

	dies         float64 // which appends and calls of models and tools are the last of their process
	modelLost    float64 // the request does not arrive
	modelRefused float64 // an answer of 429 or 500
	modelCut     float64 // the stream breaks after some text
	modelHangs   float64 // no answer until the caller gives up
	modelSilent  float64 // the usage is not reported
	listFails    float64 // a tool server does not answer

	lives   time.Duration // how long a process lives at most; 0 = it is not killed
	drains  float64       // which of its ends are orderly
	pauses  time.Duration // how long a process works at most until it is stopped for a while; 0 = it is not
	cuts    float64       // which connections the client cuts
	cancels float64       // which runs are cancelled
	clocks  time.Duration // how wrong the clock of a process is at most
	steps   time.Duration // how long until the clock of a process is set, again and again, at most; 0 = it is not
	builds  bool          // every process is of another build
	queues  bool          // what need not be on disk is written later
	tight   bool          // the budgets are too small for all runs

	sessions bool // there are sessions, with several turns; otherwise there are talks
}

// faults are the rates at which the calls of a port go wrong.
type faults struct {
	lost       float64 // the request does not arrive
	unanswered float64 // it does, and its answer does not
	fatal      float64 // it does, and its sender is killed
	slow       float64 // it takes up to limit
	limit      time.Duration
}

// dying returns the faults of a call that can be the last of its process.
func (s swarm) dying(f faults) faults {
	f.fatal = s.dies
	return f
}

func (w *world) newSwarm() swarm {
	r := w.chance("swarm")
	rate := func(most float64) float64 {
		if on, rate := r.IntN(2) == 0, most*r.Float64(); on {
			return rate
		}
		return 0
	}
	some := func(lo, hi time.Duration) time.Duration {
		if on, d := r.IntN(2) == 0, between(r, lo, hi); on {
			return d
		}
		return 0
	}
	s := swarm{
		pace:  between(r, 20*time.Millisecond, time.Second),
		store: faults{lost: rate(0.04), unanswered: rate(0.04), slow: rate(0.04), limit: 20 * time.Second},
		tools: faults{lost: rate(0.2), unanswered: rate(0.2), slow: rate(0.2), limit: 20 * time.Second},
		dies:  rate(0.04), modelLost: rate(0.2), modelRefused: rate(0.2), modelCut: rate(0.2), modelHangs: rate(0.05), modelSilent: rate(0.5),
		listFails: rate(0.2),
		lives:     some(4*time.Second, 40*time.Second), drains: rate(1), pauses: some(5*time.Second, 60*time.Second),
		cuts: rate(0.5), cancels: rate(0.4), clocks: some(time.Second, 10*time.Minute), queues: r.IntN(2) == 0, tight: r.IntN(2) == 0,
	}
	s.steps = some(10*time.Second, 90*time.Second)
	s.builds = r.IntN(2) == 0
	s.sessions = r.IntN(3) > 0 && !slices.Contains(ofTalks(), w.mutation)
	return s
}
