package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
)

// row is one line of the table: a measurement, its gate, and a note below it.
type row struct {
	what   string
	digits int // after the decimal point
	seen   summary
	gate   threshold // zero = for information only
	note   string    // "" = none
}

const layout = "%-10s %-46s %9s %9s %9s  %-9s %s\n"

func printCases(out io.Writer) {
	for _, c := range cases() {
		fmt.Fprintf(out, "%-10s %s\n", c.name, c.about)
	}
}

func printHeader(out io.Writer, opt options) {
	subject := "gateway"
	if opt.against != "" {
		subject = "gateway, compared with the one before it"
	}
	if opt.self {
		subject = "a second baseline in the gateway's place"
	}
	if opt.profile != "" {
		subject = "a gateway that is being profiled"
	}
	fmt.Fprintf(out, "%s; c=%d, %d pairs of passes of %v; %s %s/%s, %d CPUs\n\n",
		subject, opt.concurrency, opt.pairs, opt.pass, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	low, high := "MIN", "MAX"
	if opt.against != "" {
		low, high = "QUARTILE", "QUARTILE"
	}
	fmt.Fprintf(out, layout, "CASE", "WHAT", low, "MEDIAN", high, "GATE", "")
}

func printRows(out io.Writer, name string, rows []row) {
	for _, r := range rows {
		fmt.Fprintf(out, layout, name, r.what,
			r.number(r.seen.min), r.number(r.seen.median), r.number(r.seen.max), r.bound(), r.verdict())
		if r.note != "" {
			fmt.Fprintf(out, "%-10s %s\n", "", r.note)
		}
		name = "" // one name for all rows of a case
	}
}

func (r row) number(x float64) string { return strconv.FormatFloat(x, 'f', r.digits, 64) }

func (r row) bound() string {
	if r.gate.op == "" {
		return "-"
	}
	return r.gate.op + " " + strconv.FormatFloat(r.gate.limit, 'g', 3, 64)
}

func (r row) verdict() string {
	switch {
	case r.gate.op == "":
		return ""
	case r.gate.holds(r.seen):
		return "PASS"
	}
	return "FAIL"
}

func allHold(rows []row) bool {
	for _, r := range rows {
		if !r.gate.holds(r.seen) {
			return false
		}
	}
	return true
}

// summary is what the table shows of a set of measurements, in their unit.
type summary struct{ min, median, max float64 }

// summarize does not change xs. The median of an even number of values is the
// mean of the middle two. For no values all three are NaN, so that a case that
// measured nothing passes no gate.
func summarize(xs []float64) summary {
	if len(xs) == 0 {
		return summary{math.NaN(), math.NaN(), math.NaN()}
	}
	s := slices.Sorted(slices.Values(xs))
	mid := len(s) / 2
	median := s[mid]
	if len(s)%2 == 0 {
		median = (s[mid-1] + s[mid]) / 2
	}
	return summary{s[0], median, s[len(s)-1]}
}

// exactly returns the summary of one counted value.
func exactly(x float64) summary { return summary{x, x, x} }

// threshold is a bound on a median. The zero value is no bound.
type threshold struct {
	op    string // ">=" or "<="; "" for none
	limit float64
}

// quickShare is how much of a gate must hold on a machine on which anything may run beside the measurement.
const quickShare = 0.75

// relaxed returns the bound of -quick: a median that is three quarters as good still holds. A count that must be 0 stays
// exact.
func (t threshold) relaxed() threshold {
	switch t.op {
	case ">=":
		t.limit *= quickShare
	case "<=":
		t.limit /= quickShare
	}
	return t
}

func atLeast(limit float64) threshold { return threshold{">=", limit} }

func atMost(limit float64) threshold { return threshold{"<=", limit} }

// holds reports whether the median of s is within the bound. NaN never is.
func (t threshold) holds(s summary) bool {
	switch t.op {
	case ">=":
		return s.median >= t.limit
	case "<=":
		return s.median <= t.limit
	}
	return true
}
