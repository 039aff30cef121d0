package main

import (
	"fmt"
	"io"
	"runtime"
	"strconv"

	"github.com/turnpike-gateway/turnpike/bench/stats"
)

// row is one line of the table: a measurement, its gate, and a note below it.
type row struct {
	what   string
	digits int // after the decimal point
	seen   stats.Summary
	gate   stats.Gate // zero = the row only informs
	note   string     // "" = none
}

const layout = "%-10s %-46s %9s %9s %9s  %-9s %s\n"

func printCases(out io.Writer) {
	for _, c := range cases() {
		fmt.Fprintf(out, "%-10s %s\n", c.name, c.about)
	}
}

func printHeader(out io.Writer, opt options) {
	subject := "gateway"
	if opt.self {
		subject = "a second baseline in the gateway's place"
	}
	if opt.profile != "" {
		subject = "a gateway that is being profiled"
	}
	fmt.Fprintf(out, "%s; c=%d, %d pairs of passes of %v; %s %s/%s, %d CPUs\n\n",
		subject, opt.concurrency, opt.pairs, opt.pass, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	fmt.Fprintf(out, layout, "CASE", "WHAT", "MIN", "MEDIAN", "MAX", "GATE", "")
}

func printRows(out io.Writer, name string, rows []row) {
	for _, r := range rows {
		fmt.Fprintf(out, layout, name, r.what,
			r.number(r.seen.Min), r.number(r.seen.Median), r.number(r.seen.Max), r.bound(), r.verdict())
		if r.note != "" {
			fmt.Fprintf(out, "%-10s %s\n", "", r.note)
		}
		name = "" // one name for all rows of a case
	}
}

func (r row) number(x float64) string { return strconv.FormatFloat(x, 'f', r.digits, 64) }

func (r row) bound() string {
	if r.gate.Op == "" {
		return "-"
	}
	return r.gate.Op + " " + strconv.FormatFloat(r.gate.Limit, 'f', -1, 64)
}

func (r row) verdict() string {
	switch {
	case r.gate.Op == "":
		return ""
	case r.gate.Holds(r.seen):
		return "PASS"
	}
	return "FAIL"
}

func allHold(rows []row) bool {
	for _, r := range rows {
		if !r.gate.Holds(r.seen) {
			return false
		}
	}
	return true
}
