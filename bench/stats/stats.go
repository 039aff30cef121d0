// Package stats reduces the passes of a benchmark to the three numbers of its
// table: the smallest, the median and the largest.
package stats

import (
	"math"
	"slices"
)

// Summary is a set of measurements reduced. In what unit is the caller's affair.
// The zero value is the summary of nothing.
type Summary struct {
	Min, Median, Max float64
}

// Summarize reduces xs, in any order; xs is not changed. The median of an even
// number of values is the mean of the middle two. Of no values, all three are
// NaN: a case that measured nothing must not pass a gate.
func Summarize(xs []float64) Summary {
	if len(xs) == 0 {
		return Summary{math.NaN(), math.NaN(), math.NaN()}
	}
	s := slices.Sorted(slices.Values(xs))
	mid := len(s) / 2
	median := s[mid]
	if len(s)%2 == 0 {
		median = (s[mid-1] + s[mid]) / 2
	}
	return Summary{s[0], median, s[len(s)-1]}
}

// Exactly returns the summary of one counted value.
func Exactly(x float64) Summary { return Summary{x, x, x} }

// Gate is a bound on a median. The zero value is no bound: the row informs.
type Gate struct {
	Op    string // ">=" or "<="; "" for none
	Limit float64
}

// AtLeast returns the gate that wants a median of at least limit.
func AtLeast(limit float64) Gate { return Gate{">=", limit} }

// AtMost returns the gate that wants a median of at most limit.
func AtMost(limit float64) Gate { return Gate{"<=", limit} }

// Holds reports whether the median of s is within g. NaN never is.
func (g Gate) Holds(s Summary) bool {
	switch g.Op {
	case ">=":
		return s.Median >= g.Limit
	case "<=":
		return s.Median <= g.Limit
	}
	return true
}
