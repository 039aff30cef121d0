package cli

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

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

// When a gateway in which more than smallHeap lives returns memory to the operating system:
// within two quietTimes of the end of a load, if it can return enough. It has many open
// streams then, and most of them are silent. A gateway in which little lives keeps its heap:
// the next load would need the same pages again.
const (
	quietTime   = time.Second
	quietBytes  = 1 << 20 // allocated in quietTime: less is no load
	worthReturn = 4 << 20 // bytes that are free or may be garbage, and at least an eighth of what lives
)

// collectLessOften sets the rate after every collection, and returns memory when the program
// has become quiet, until ctx ends. If GOGC is set, it does neither. GOMEMLIMIT stays in force.
func collectLessOften(ctx context.Context, env config.Environment) {
	if _, set := env("GOGC"); set {
		return
	}
	c := &gcTuner{sample: samples(liveBytes, stackBytes, allocatedBytes)}
	c.adapt()
	go c.returnMemory(ctx)
}

// The names of the metrics.
const (
	liveBytes      = "/gc/heap/live:bytes"             // after the last collection
	allocatedBytes = "/gc/heap/allocs:bytes"           // since the start
	freeBytes      = "/memory/classes/heap/free:bytes" // not returned yet
	stackBytes     = "/memory/classes/heap/stacks:bytes"
)

// gcTuner sets the rate. It is called after every collection by the finalizer of an object
// that nothing refers to.
type gcTuner struct {
	sample    []metrics.Sample
	percent   int           // as it was set last
	collected atomic.Uint64 // what was allocated before the last collection, in bytes
}

func (c *gcTuner) adapt() {
	metrics.Read(c.sample)
	c.collected.Store(valueOf(c.sample[2]))
	if percent := percentOf(valueOf(c.sample[0]), valueOf(c.sample[1])); percent != c.percent {
		debug.SetGCPercent(percent)
		c.percent = percent
	}
	type left struct{ _ [16]byte }
	runtime.SetFinalizer(new(left), func(*left) { c.adapt() })
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

// returnMemory returns memory each time the program has become quiet, until ctx ends.
func (c *gcTuner) returnMemory(ctx context.Context) {
	tick := time.NewTicker(quietTime)
	defer tick.Stop()
	sample := samples(allocatedBytes, liveBytes, stackBytes, freeBytes)
	for before := uint64(0); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(sample)
		allocated, live, stacks, free := valueOf(sample[0]), valueOf(sample[1]), valueOf(sample[2]), valueOf(sample[3])
		garbage := allocated - min(c.collected.Load(), allocated) // at most
		if allocated-before < quietBytes && isWorthReturn(live, stacks, garbage+free) {
			debug.FreeOSMemory()
		}
		before = allocated
	}
}

// isWorthReturn reports whether returning memory is worth a collection, with so many bytes of
// live memory and of stacks, and so many that are free or may be garbage.
func isWorthReturn(live, stacks, unused uint64) bool {
	return live+stacks > smallHeap && unused >= max(worthReturn, live/8)
}

func samples(names ...string) []metrics.Sample {
	out := make([]metrics.Sample, len(names))
	for i, name := range names {
		out[i].Name = name
	}
	return out
}

// valueOf returns the value of a sample, 0 if the runtime does not have it.
func valueOf(s metrics.Sample) uint64 {
	if s.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s.Value.Uint64()
}
