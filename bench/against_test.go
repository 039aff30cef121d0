package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
)

// The test gateway is compared with itself: the ratios of such short passes mean nothing.
func TestAgainstComparesTwoGateways(t *testing.T) {
	t.Setenv(behaviourVar, asConfigured)
	opt, err := parse([]string{"-gateway", os.Args[0], "-against", os.Args[0], "-case", "small,small128,cpu,rounds"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if opt.pairs != againstPairs {
		t.Errorf("%d pairs", opt.pairs)
	}
	opt.sizes = smallest()
	opt.pairs = 2
	var out, errs bytes.Buffer
	if passed, err := measure(t.Context(), opt, &out, &errs); err != nil || !passed {
		t.Errorf("passed %v, %v\n%s", passed, err, &errs)
	}
	for _, want := range []string{
		"QUARTILE MEDIAN QUARTILE", "small requests/s, now / before", "small128 requests/s, now / before",
		"cpu runs/s, now / before", "rounds runs/s, now / before", "CPU of each: ",
	} {
		if !strings.Contains(spaced(out.String()), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestTheLastLinesNameTheCasesThatAreSlower(t *testing.T) {
	found := func(ratio float64) func(context.Context, *rig) (comparison, error) {
		return func(context.Context, *rig) (comparison, error) {
			return comparison{what: "requests/s", ratios: []float64{ratio}, cpuBefore: 0.1, cpuNow: 0.2}, nil
		}
	}
	opt := options{gateway: "now", against: "before", limit: 1 << 40}
	for _, c := range []benchCase{
		{name: "slow", compare: found(0.5)},
		{name: "equal", compare: found(1)},
		{name: "broken", compare: func(context.Context, *rig) (comparison, error) { return comparison{}, errors.New("no answer") }},
	} {
		opt.cases = append(opt.cases, c.compared())
	}
	var out, errs bytes.Buffer
	passed, err := measure(t.Context(), opt, &out, &errs)
	if passed || err != nil || !strings.Contains(out.String(), "broken     could not be measured") {
		t.Errorf("passed %v, error %v", passed, err)
	}
	const want = "\nslower than the commit before: slow: requests/s, now / before: 0.50, quartiles 0.50 and 0.50. " +
		"CPU of each: 0.100 ms before, 0.200 ms now\n"
	if !strings.HasSuffix(out.String(), want) || strings.Count(out.String(), "slower than the commit before") != 1 {
		t.Errorf("got\n%s", &out)
	}
}

func TestSlowerNeedsMostPairs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ratios []float64
		slower bool
	}{
		{"equal", []float64{0.9, 1, 1.1, 1, 0.95, 1.05, 1}, false},
		{"a fall of a third", []float64{0.6, 0.7, 0.66, 0.64, 0.68, 0.71, 0.65}, true},
		{"a fall of a fifth", []float64{0.8, 0.78, 0.81, 0.82, 0.8, 0.79, 0.8}, false},
		{"a third of the pairs on a machine that is busy elsewhere", []float64{0.3, 0.4, 1, 1, 1.1, 1, 0.9}, false},
		{"a low median, but the pairs differ too much", []float64{0.4, 0.5, 0.6, 0.7, 0.9, 1.2, 1.3}, false},
	} {
		c := comparison{what: "requests/s", ratios: tt.ratios, cpuBefore: math.NaN(), cpuNow: math.NaN()}
		if line := c.slower("small"); (line != "") != tt.slower {
			t.Errorf("%s: %q", tt.name, line)
		}
	}
}

func TestSlowerAlsoCountsCPU(t *testing.T) {
	for _, tt := range []struct {
		ratio, cpu float64
		slower     bool
	}{{0.85, 1.04, false}, {0.85, 1.2, true}, {1, 1.2, false}} {
		c := comparison{what: "requests/s", ratios: []float64{tt.ratio}, cpuBefore: 1, cpuNow: tt.cpu}
		if line := c.slower("small"); (line != "") != tt.slower {
			t.Errorf("ratio %v, CPU %v: %q", tt.ratio, tt.cpu, line)
		}
	}
}

func TestQuartiles(t *testing.T) {
	for _, tt := range []struct {
		xs   []float64
		want summary
	}{
		{[]float64{3}, summary{3, 3, 3}},
		{[]float64{4, 1, 3, 2}, summary{1.75, 2.5, 3.25}},
		{[]float64{7, 1, 6, 2, 5, 3, 4}, summary{2.5, 4, 5.5}},
	} {
		if got := quartiles(tt.xs); got != tt.want {
			t.Errorf("quartiles(%v) = %v, want %v", tt.xs, got, tt.want)
		}
	}
}
