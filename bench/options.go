package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// options is the command line, and what -quick makes of it.
type options struct {
	gateway string      // a prebuilt gateway; "" = build it
	self    bool        // measure a second baseline in the gateway's place
	cases   []benchCase // in the order of the table

	concurrency int           // connections of the load
	pairs       int           // measured pairs of passes of a relay case
	pass        time.Duration // length of a pass
	streams     int           // of the case cuts
	runs        int           // measured runs of the loop, tools in parallel
	serialRuns  int           // the same, tools in series
	limit       time.Duration // for everything
}

func parse(args []string, errs io.Writer) (options, error) {
	opt := options{concurrency: 16, pairs: 5, pass: time.Second, streams: 10_000, runs: 20, serialRuns: 5, limit: 15 * time.Minute}
	var quick bool
	var names string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&opt.gateway, "gateway", "", "`path` of a gateway binary; without it ./cmd/turnpike is built")
	flags.StringVar(&names, "case", "", "measure only these cases, comma-separated `names`:"+caseHelp())
	flags.BoolVar(&quick, "quick", false, "passes of 300 ms and 1,000 streams")
	flags.BoolVar(&opt.self, "self", false, "measure a second baseline in place of the gateway: ratios of about 1 show what this machine can tell apart")
	flags.IntVar(&opt.pairs, "pairs", opt.pairs, "pairs of passes of each relay case")
	if err := flags.Parse(args); err != nil {
		return opt, err
	}
	if quick {
		opt.pass, opt.streams, opt.serialRuns, opt.limit = 300*time.Millisecond, 1000, 3, 5*time.Minute
	}
	var err error
	opt.cases, err = chosen(names, opt.self)
	switch {
	case err != nil:
		return opt, err
	case flags.NArg() > 0:
		return opt, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case opt.pairs < 1 || opt.pairs > 1000:
		return opt, fmt.Errorf("%d pairs; 1 to 1000 make sense", opt.pairs)
	case opt.self && opt.gateway != "":
		return opt, errors.New("-self measures no gateway")
	}
	return opt, nil
}

// chosen returns the named cases, all for "", in the order of the table.
func chosen(names string, self bool) ([]benchCase, error) {
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		if name != "" {
			wanted[name] = true
		}
	}
	all := len(wanted) == 0
	var picked []benchCase
	for _, c := range cases() {
		switch {
		case !all && !wanted[c.name]:
		case self && c.needsGateway && !all:
			return nil, fmt.Errorf("case %s needs the gateway", c.name)
		case self && c.needsGateway:
		default:
			picked = append(picked, c)
		}
		delete(wanted, c.name)
	}
	for name := range wanted {
		return nil, fmt.Errorf("no case %q", name)
	}
	return picked, nil
}

func caseHelp() string {
	var b strings.Builder
	for _, c := range cases() {
		fmt.Fprintf(&b, "\n%-9s %s", c.name, c.about)
	}
	return b.String()
}
