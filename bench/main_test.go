package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also the binary that the rig starts: as its children, and
// as a gateway of few virtues, see testgateway_test.go.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == childCommand:
		main()
		return
	case len(os.Args) == 4 && os.Args[1] == "serve":
		os.Exit(serveTestGateway(os.Args[3]))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // else each child takes a second to end under -race
	goleak.VerifyTestMain(m)
}

// smallest is as little as shows that something was measured.
func smallest() sizes {
	return sizes{
		pairs: 1, pass: 30 * time.Millisecond, streams: 50, crowd: 20, lockedRequests: 20, runs: 2, serialRuns: 1,
		warm: 1, passes: 1, roundRuns: 2, roundWidth: 2, cpuRuns: 4, idleStreams: 20, idlePairs: 1, steady: 50 * time.Millisecond, leavers: 10, leaveRuns: 4,
		neighbourPairs: 1, quietRuns: 4,
	}
}

// tiny is the command line -self with everything as short as it goes.
func tiny(t *testing.T, args ...string) options {
	t.Helper()
	opt, err := parse(append([]string{"-self", "-quick", "-pairs", "1"}, args...), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	opt.concurrency, opt.sizes = 2, smallest()
	return opt
}

// Ratios of such short passes say nothing, so the verdict is not looked at.
func TestTheRelayCasesMeasureABaselineAgainstItself(t *testing.T) {
	var out, errs bytes.Buffer
	if _, err := measure(t.Context(), tiny(t), &out, &errs); err != nil {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Errorf("complaints: %s", &errs)
	}
	for _, want := range []string{
		"small requests/s, gateway / baseline", "body100k requests/s", "burst streams/s",
		"cuts cut or altered streams, of 50 0 0 0 <= 0 PASS", "the same of 20 at the same time 0 0 0 <= 0 PASS",
		"idle RssAnon of 20 streams, gateway / baseline", "leak streams open 1 s after 10 clients left 0 0 0 <= 0 PASS",
	} {
		if !strings.Contains(spaced(out.String()), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestWithoutAGatewayOnlyWhatABaselineCanDoIsMeasured(t *testing.T) {
	var names []string
	for _, c := range tiny(t).cases {
		names = append(names, c.name)
	}
	if got := strings.Join(names, " "); got != "small body100k burst cuts idle leak" {
		t.Errorf("cases %s", got)
	}
}

func TestListNamesEveryCase(t *testing.T) {
	var out bytes.Buffer
	if code := bench(t.Context(), []string{"-list"}, strings.NewReader(""), &out, t.Output()); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, c := range cases() {
		if !strings.Contains(out.String(), c.name+" ") {
			t.Errorf("no case %s in\n%s", c.name, &out)
		}
	}
}

func TestACancelledBenchmarkSaysSoAndLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	opt := tiny(t, "-case", "small")
	opt.pass = time.Minute
	var out, errs bytes.Buffer
	passed, err := measure(ctx, opt, &out, &errs)
	if passed || err == nil {
		t.Errorf("passed %v, error %v", passed, err)
	}
}

func TestAGatewayThatDoesNotStartFailsTheTable(t *testing.T) {
	out, errs, passed := withTestGateway(t, "", "small")
	if passed || !strings.Contains(errs, "I do not serve") || !strings.Contains(out, "FAIL") {
		t.Errorf("passed %v, output:\n%s\ncomplaints:\n%s", passed, out, errs)
	}
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want int
	}{
		{"help is no failure", []string{"-h"}, 0},
		{"an unknown case makes no sense", []string{"-case", "smal"}, 2},
		{"an unknown flag makes no sense", []string{"-fast"}, 2},
		{"an argument makes no sense", []string{"small"}, 2},
		{"no pairs make no sense", []string{"-pairs", "0"}, 2},
		{"a loop without a gateway makes no sense", []string{"-self", "-case", "loop"}, 2},
		{"a gateway that is not measured makes no sense", []string{"-self", "-gateway", "x"}, 2},
		{"a profile of somebody else's binary makes no sense", []string{"-profile", "x", "-gateway", "y"}, 2},
		{"a gateway that is not there fails", []string{"-gateway", "/nonexistent/turnpike", "-case", "small"}, 1},
		{"an unknown child fails", []string{"child", "nobody"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if got := bench(t.Context(), tt.args, strings.NewReader(""), &out, t.Output()); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}

func TestACrowdThatTheSystemHasNoRoomForIsRefused(t *testing.T) {
	if err := fits(1000, 2199); err == nil || !strings.Contains(err.Error(), "need 2200 open files") {
		t.Errorf("error %v", err)
	}
	if err := fits(1000, 2200); err != nil {
		t.Error(err)
	}
}

func TestQuickIsShorter(t *testing.T) {
	full, err := parse(nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	quick, err := parse([]string{"-quick"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if full.streams != 10_000 || full.leavers != 1000 || quick.streams >= full.streams || quick.pass >= full.pass || full.pairs <= quick.pairs || quick.pairs < 5 {
		t.Errorf("full %+v, quick %+v", full, quick)
	}
	if asked, err := parse([]string{"-pairs", "7", "-quick"}, t.Output()); err != nil || asked.pairs != 7 {
		t.Errorf("%d pairs, error %v", asked.pairs, err)
	}
}
