package main

import (
	"fmt"
	"math"
	"slices"
)

// A case is slower than before when the median of its ratios is below slowMedian and their upper quartile below
// slowQuartile: on a busy machine single pairs say little. It is also slower when it is by a tenth and spends slowCPU
// times the CPU: that depends less on what else the machine does.
const (
	slowMedian   = 0.75
	slowQuartile = 0.9
	slowCPU      = 1.15
)

// againstPairs is how many pairs of passes compare two gateways.
const againstPairs = 7

// comparison is what a case says of the gateway and of the one before it.
type comparison struct {
	what              string    // the rate that is compared
	ratios            []float64 // of the rates of each pair of passes, now / before
	cpuBefore, cpuNow float64   // milliseconds of a request or run; NaN = unknown
}

func (c comparison) rows() []row {
	return []row{{what: c.what + ", now / before", digits: 3, seen: quartiles(c.ratios), note: c.cpu()}}
}

func (c comparison) cpu() string {
	if math.IsNaN(c.cpuBefore + c.cpuNow) {
		return "CPU unknown"
	}
	return fmt.Sprintf("CPU of each: %.3f ms before, %.3f ms now", c.cpuBefore, c.cpuNow)
}

// slower returns a line about a case that is slower than before, and "" about one that is not.
func (c comparison) slower(name string) string {
	q := quartiles(c.ratios)
	steady := q.median < slowMedian && q.max < slowQuartile
	dearer := q.median < slowQuartile && c.cpuNow > slowCPU*c.cpuBefore // never with an unknown CPU
	if !steady && !dearer {
		return ""
	}
	return fmt.Sprintf("slower than the commit before: %s: %s, now / before: %.2f, quartiles %.2f and %.2f. %s",
		name, c.what, q.median, q.min, q.max, c.cpu())
}

// quartiles returns the lower quartile, the median and the upper quartile of values.
func quartiles(xs []float64) summary {
	s := slices.Sorted(slices.Values(xs))
	at := func(part float64) float64 {
		place := part * float64(len(s)-1)
		low, high := int(math.Floor(place)), int(math.Ceil(place))
		return s[low] + (s[high]-s[low])*(place-float64(low))
	}
	return summary{at(0.25), at(0.5), at(0.75)}
}
