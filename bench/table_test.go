package main

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/load"
)

func TestPrintRows(t *testing.T) {
	rows := []row{
		{what: "ratio", digits: 3, seen: summary{min: 0.7, median: 0.9, max: 1}, gate: atLeast(0.8), note: "and why"},
		{what: "counted", seen: exactly(2), gate: atMost(0)},
		{what: "informs", digits: 1, seen: exactly(440)},
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
	rate := atLeast(relayGate)
	if rows := (relay{unit: "streams/s"}).rows([]float64{1.2}, measured{}, gate, rate); allHold(rows) {
		t.Errorf("a cut stream passed: %+v", rows)
	}
	if rows := (relay{unit: "streams/s"}).rows([]float64{1.2}, measured{}, measured{}, rate); !allHold(rows) {
		t.Errorf("right answers at a good rate failed: %+v", rows)
	}
}

func TestQuickFailsBelowThreeQuartersOfTheGoal(t *testing.T) {
	table, err := parse(nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	quick, err := parse([]string{"-quick"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name                string
		gate                threshold
		seen                float64
		inTable, amongQuick bool
	}{
		{"a relay at its gate", atLeast(relayGate), 0.8, true, true},
		{"a relay on a busy machine", atLeast(relayGate), 0.62, false, true},
		{"a relay that has lost more than a quarter", atLeast(relayGate), 0.54, false, false},
		{"the CPU of runs at its gate", atMost(cpuGate), 2.2, true, true},
		{"the CPU of runs on a busy machine", atMost(cpuGate), 2.9, false, true},
		{"the CPU of runs that has grown by more than a third", atMost(cpuGate), 3, false, false},
		{"what must not happen at all", atMost(0), 1, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := table.gate(tt.gate).holds(exactly(tt.seen)); got != tt.inTable {
				t.Errorf("%v in the table: %v", tt.seen, got)
			}
			if got := quick.gate(tt.gate).holds(exactly(tt.seen)); got != tt.amongQuick {
				t.Errorf("%v with -quick: %v", tt.seen, got)
			}
		})
	}
	if got := quick.quietGate(atMost(loopGate)); got != (threshold{}) {
		t.Errorf("the time of runs on a busy machine, of which the minimum knows nothing: %+v", got)
	}
}

func TestPassesAreComparedWithTheirOwnPair(t *testing.T) {
	var bare, gateway loopResult
	for _, slowdown := range []int{1, 3, 10} { // of the whole machine
		unit := time.Duration(slowdown) * time.Millisecond
		bare.measured([]float64{100 * float64(slowdown), 90 * float64(slowdown), 400 * float64(slowdown)}, 10*unit, nil)
		gateway.measured([]float64{110 * float64(slowdown), 900 * float64(slowdown), 90 * float64(slowdown)}, 30*unit, nil)
	}
	if got := pairRow("time", gateway.medians, bare.medians, threshold{}).seen; got != exactly(1.1) {
		t.Errorf("time: %+v, want 1.1 three times", got)
	}
	if got := pairRow("CPU", gateway.cpuMS, bare.cpuMS, threshold{}).seen; got != exactly(3) {
		t.Errorf("CPU: %+v, want 3 three times", got)
	}
}

func TestAMachineThatDoesNotTellTheCPUPassesNoGateOfIt(t *testing.T) {
	var bare, gateway loopResult
	bare.measured([]float64{1}, 0, errors.New("no /proc here"))
	gateway.measured([]float64{1}, 0, errors.New("no /proc here"))
	if r := pairRow("CPU", gateway.cpuMS, bare.cpuMS, atMost(cpuGate)); allHold([]row{r}) {
		t.Errorf("passed: %+v", r)
	}
}

func TestSummarize(t *testing.T) {
	for _, tt := range []struct {
		name string
		xs   []float64
		want summary
	}{
		{"one value is all three", []float64{2}, summary{2, 2, 2}},
		{"an odd number has a middle", []float64{9, 1, 4}, summary{1, 4, 9}},
		{"an even number has the mean of the middle two", []float64{4, 1, 2, 9}, summary{1, 3, 9}},
		{"one bad pass does not move the median", []float64{0.1, 0.9, 0.9, 0.9, 0.9}, summary{0.1, 0.9, 0.9}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			given := slices.Clone(tt.xs)
			if got := summarize(tt.xs); got != tt.want {
				t.Errorf("summarize(%v) = %v, want %v", tt.xs, got, tt.want)
			}
			if !slices.Equal(given, tt.xs) {
				t.Errorf("the values were reordered: %v", tt.xs)
			}
		})
	}
}

func TestGate(t *testing.T) {
	for _, tt := range []struct {
		name string
		gate threshold
		s    summary
		want bool
	}{
		{"at least: on the limit passes", atLeast(0.8), exactly(0.8), true},
		{"at least: below fails", atLeast(0.8), exactly(0.79), false},
		{"at least: the median counts, not the minimum", atLeast(0.8), summary{0.1, 0.9, 1}, true},
		{"at most: on the limit passes", atMost(0), exactly(0), true},
		{"at most: above fails", atMost(0), exactly(1), false},
		{"at most: the median counts, not the maximum", atMost(103.5), summary{90, 95, 400}, true},
		{"nothing measured fails a lower bound", atLeast(0), summarize(nil), false},
		{"nothing measured fails an upper bound", atMost(math.MaxFloat64), summarize(nil), false},
		{"no gate always holds", threshold{}, exactly(5), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.gate.holds(tt.s); got != tt.want {
				t.Errorf("Holds = %v, want %v", got, tt.want)
			}
		})
	}
}
