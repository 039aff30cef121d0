package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// How large the heap may grow before the next collection. Little lives in a gateway
// without open streams: 2 MiB under load. At Go's own rate of 100 percent it would collect
// many times a second, which is a tenth of its CPU. Therefore up to smallHeap of live
// memory, the heap grows to heapTarget. Above smallHeap, garbage is limited to three quarters
// of the live memory, because it is memory too. See docs/performance.md.
//
// The rate is set after a collection. percentOfFew bounds how far the heap grows before
// that, if much lives suddenly. A memory limit would bound it better, but it is the
// operator's: the overload check reads it.
const (
	smallHeap  = 12 << 20 // bytes, with stacks
	heapTarget = 32 << 20

	percentAtStart = 300 // most of what a start allocates is collected: an idle gateway stays small
	percentOfFew   = 700
	percentOfMany  = 75
)

// collectLessOften sets the rate after every collection, unless GOGC is set. GOMEMLIMIT
// stays in force.
func collectLessOften(env config.Environment) {
	if _, set := env("GOGC"); set {
		return
	}
	c := &gcTuner{sample: []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}}
	c.adapt()
}

// gcTuner sets the rate. It is called after every collection by the finalizer of an object
// that nothing refers to.
type gcTuner struct {
	sample  []metrics.Sample
	percent int // as it was set last
}

func (c *gcTuner) adapt() {
	metrics.Read(c.sample)
	if percent := percentOf(bytesOf(c.sample[0]), bytesOf(c.sample[1])); percent != c.percent {
		debug.SetGCPercent(percent)
		c.percent = percent
	}
	type left struct{ _ [16]byte }
	runtime.SetFinalizer(new(left), func(*left) { c.adapt() })
}

// bytesOf returns the value of a sample, 0 if the runtime does not have it.
func bytesOf(s metrics.Sample) uint64 {
	if s.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s.Value.Uint64()
}

// percentOf returns the rate for so many bytes of live memory and of stacks. Before the
// first collection, live is 0. The sum is rounded up to 2 MiB, because a change of the rate
// stops the program for a moment.
func percentOf(live, stacks uint64) int {
	if live == 0 {
		return percentAtStart
	}
	const step = 2 << 20
	live = (live + stacks + step - 1) / step * step
	if live > smallHeap {
		return percentOfMany
	}
	return int(min((heapTarget-live)*100/live, percentOfFew))
}
