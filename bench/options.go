package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/stats"
)

// options is the command line, and what -quick makes of it.
type options struct {
	gateway string      // a prebuilt gateway; "" = build it
	self    bool        // measure a second baseline in the gateway's place
	profile string      // directory for profiles of the gateway; "" = none
	list    bool        // only say which cases there are
	cases   []benchCase // in the order of the table
	floors  bool        // floors in place of the gates that need a quiet machine

	concurrency int // connections of the load
	sizes
	limit time.Duration // for everything
}

// sizes is how much is measured.
type sizes struct {
	pairs          int           // measured pairs of passes of a relay case
	pass           time.Duration // length of a pass of a relay case
	streams        int           // of the case cuts, one after another on each connection …
	crowd          int           // … and at the same time
	lockedRequests int           // of the case store
	runs           int           // measured runs of the case loop, tools in parallel
	serialRuns     int           // the same, tools in series
	warm           int           // unmeasured passes of the loop cases: connections, MCP session, catalogue
	passes         int           // of the cases rounds and cpu, on each side
	roundRuns      int           // runs of such a pass of the case rounds
	roundWidth     int           // of them at a time
	cpuRuns        int           // the same of the case cpu
	idleStreams    int           // of the case idle
	idlePairs      int           // pairs of processes that hold them
	steady         time.Duration // for how long memory must not have grown until it is measured
	leavers        int           // clients of the case leak
	leaveRuns      int           // the same, in runs
	neighbourPairs int           // pairs of passes of the case neighbour
	quietRuns      int           // runs of such a pass
}

func full() sizes {
	return sizes{
		pairs: 9, pass: 2 * time.Second, streams: 10_000, crowd: 2000, lockedRequests: 500, runs: 40, serialRuns: 5,
		warm: 3, passes: 7, roundRuns: 80, roundWidth: 8, cpuRuns: 400, idleStreams: 1000, idlePairs: 5, steady: 2 * time.Second, leavers: 1000, leaveRuns: 200,
		neighbourPairs: 5, quietRuns: 400,
	}
}

func quick() sizes {
	return sizes{
		pairs: 7, pass: 300 * time.Millisecond, streams: 1000, crowd: 500, lockedRequests: 200, runs: 31, serialRuns: 2,
		warm: 2, passes: 15, roundRuns: 8, roundWidth: 4, cpuRuns: 150, idleStreams: 500, idlePairs: 1, steady: time.Second, leavers: 500, leaveRuns: 60,
		neighbourPairs: 3, quietRuns: 100,
	}
}

func parse(args []string, errs io.Writer) (options, error) {
	opt := options{concurrency: 16, sizes: full(), limit: 20 * time.Minute}
	var short bool
	var pairs int
	var names string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&opt.gateway, "gateway", "", "`path` of a gateway binary; without it ./cmd/turnpike is built")
	flags.StringVar(&names, "case", "", "measure only these cases, comma-separated `names`; -list has them")
	flags.BoolVar(&opt.list, "list", false, "list the cases, and measure nothing")
	flags.BoolVar(&short, "quick", false, "shorter passes, fewer streams and runs, and floors in place of gates: for CI, on any machine")
	flags.BoolVar(&opt.self, "self", false, "measure a second baseline in place of the gateway: ratios of about 1 show what this machine can tell apart")
	flags.IntVar(&pairs, "pairs", opt.pairs, "pairs of passes of each relay case; with -quick the default is 7")
	flags.StringVar(&opt.profile, "profile", "", "write CPU and heap profiles of the gateway to this `directory`")
	if err := flags.Parse(args); err != nil {
		return opt, err
	}
	if short {
		opt.sizes, opt.limit, opt.floors = quick(), 5*time.Minute, true
	}
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "pairs" {
			opt.pairs = pairs
		}
	})
	var err error
	opt.cases, err = chosen(names, opt.self)
	switch {
	case err != nil:
		return opt, err
	case flags.NArg() > 0:
		return opt, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case opt.pairs < 1 || opt.pairs > 1000:
		return opt, fmt.Errorf("%d pairs; 1 to 1000 make sense", opt.pairs)
	case opt.self && (opt.gateway != "" || opt.profile != ""):
		return opt, errors.New("-self measures no gateway")
	case opt.gateway != "" && opt.profile != "":
		return opt, errors.New("-profile builds a gateway of its own")
	}
	return opt, nil
}

// gates is what a measurement must keep.
type gates struct {
	table stats.Gate // on a quiet machine
	floor stats.Gate // on any machine, also a busy one, unless a third is lost; zero = none
}

// gate returns the one of g that these options ask for.
func (o options) gate(g gates) stats.Gate {
	if o.floors {
		return g.floor
	}
	return g.table
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
