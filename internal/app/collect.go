package app

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// How much garbage may grow beside what lives, in percent. Little lives in a
// gateway without open streams, so that at Go's own rate of 100 it would collect
// many times a second, which is a tenth of a relay's CPU. Once much lives, that
// rate is right: what is not collected is memory too. See docs/performance.md.
const (
	smallHeap     = 12 << 20 // bytes
	percentOfFew  = 300
	percentOfMany = 100
)

// collectLessOften sets the rate after every collection, unless GOGC says what it
// is to be.
func collectLessOften(env config.Environment) {
	if _, said := env("GOGC"); said {
		return
	}
	c := &gcTuner{sample: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	c.adapt()
}

// gcTuner is told of every collection: it leaves something behind that nobody
// needs, and whose end is told to it.
type gcTuner struct {
	sample  []metrics.Sample
	percent int // as it was set last
}

func (c *gcTuner) adapt() {
	metrics.Read(c.sample)
	percent := percentOfFew
	if v := c.sample[0].Value; v.Kind() == metrics.KindUint64 && v.Uint64() > smallHeap {
		percent = percentOfMany
	}
	if percent != c.percent {
		debug.SetGCPercent(percent)
		c.percent = percent
	}
	type left struct{ _ [16]byte }
	runtime.SetFinalizer(new(left), func(*left) { c.adapt() })
}
