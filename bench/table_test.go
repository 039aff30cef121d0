package main

import (
	"bytes"
	"testing"

	"github.com/turnpike-gateway/turnpike/bench/load"
	"github.com/turnpike-gateway/turnpike/bench/stats"
)

func TestPrintRows(t *testing.T) {
	rows := []row{
		{what: "ratio", digits: 3, seen: stats.Summary{Min: 0.7, Median: 0.9, Max: 1}, gate: stats.AtLeast(0.8), note: "and why"},
		{what: "counted", seen: stats.Exactly(2), gate: stats.AtMost(0)},
		{what: "informs", digits: 1, seen: stats.Exactly(440)},
	}
	const want = `case       ratio                                              0.700     0.900     1.000  >= 0.8    PASS
           and why
           counted                                                2         2         2  <= 0      FAIL
           informs                                            440.0     440.0     440.0  -         
`
	var out bytes.Buffer
	printRows(&out, "case", rows)
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	if allHold(rows) || !allHold(rows[:1]) || !allHold(rows[2:]) {
		t.Error("the verdict is not that of the gates")
	}
}

func TestWrongAnswersFailARelayCaseWhateverItsRatio(t *testing.T) {
	gate := measured{Tally: load.Tally{Answers: 100, Faults: map[load.Kind]int{load.Cut: 1}}}
	if rows := (relay{unit: "streams/s"}).rows([]float64{1.2}, measured{}, gate); allHold(rows) {
		t.Errorf("a cut stream passed: %+v", rows)
	}
	if rows := (relay{unit: "streams/s"}).rows([]float64{1.2}, measured{}, measured{}); !allHold(rows) {
		t.Errorf("right answers at a good rate failed: %+v", rows)
	}
}
