// Bench measures what the gateway costs and compares it with its gates:
//
//	go run ./bench            the whole table, in some minutes
//	go run ./bench -quick     shorter passes, for CI
//	go run ./bench -list      the cases
//	go run ./bench -against PATH   compares the gateway with one that was built before
//	go run ./bench -h         the rest
//
// It builds the gateway, starts it between fake servers on 127.0.0.1, loads it,
// prints one table and exits 1 when a gate fails. Each server is a process of
// its own, most of them this same binary:
//
//	bench ──┬─ load ─────────► bench child baseline ──► bench child upstream     relay cases
//	        ├─ load ─────────► turnpike serve ────────► bench child upstream
//	        ├─ runs ─────────► turnpike serve ───┬───► bench child model          loop cases
//	        └─ runs ─────────► bench child loop ─┴───► bench child tool (MCP)
//
// Where to find what:
//
//	main.go        command line, list of cases
//	table.go       the table, medians, gates
//	relay.go       cases small, body100k, burst, responses, cuts, store; caps.go has caps
//	streams.go     cases idle, leak
//	loop.go        cases loop, rounds, cpu, respcpu; loopclient.go makes the runs and verifies them
//	neighbour.go   case neighbour
//	against.go     what -against makes of two gateways
//	rig.go         starts the child processes; gateway.go starts the gateway
//
// README.md says what each case measures and how to read the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := bench(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// bench is main without the process. It returns the exit code: 0 when every gate
// held, 1 when one did not or a case could not be measured, 2 for an invalid
// command line.
func bench(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) == 2 && args[0] == childCommand {
		if err := child(ctx, args[1], in, out); err != nil {
			fmt.Fprintln(errs, "bench child:", err)
			return 1
		}
		return 0
	}
	opt, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errs, "bench:", err)
		return 2
	}
	if opt.list {
		printCases(out)
		return 0
	}
	passed, err := measure(ctx, opt, out, errs)
	if err != nil {
		fmt.Fprintln(errs, "bench:", err)
		return 1
	}
	if !passed {
		return 1
	}
	return 0
}

// benchCase is one case of the table. Its run function starts processes in
// rig.group, which its caller stops, and returns the rows.
type benchCase struct {
	name         string
	about        string
	needsGateway bool // cannot run with -self
	run          func(context.Context, *rig) ([]row, error)

	// compare compares the gateway with the one of -against; nil = the case has no rate.
	compare func(context.Context, *rig) (comparison, error)
}

// compared returns a case that compares two gateways, in place of its measurement.
func (c benchCase) compared() benchCase {
	compare := c.compare
	c.run = func(ctx context.Context, r *rig) ([]row, error) {
		got, err := compare(ctx, r)
		if err != nil {
			return nil, err
		}
		if line := got.slower(c.name); line != "" {
			r.slower = append(r.slower, line)
		}
		return got.rows(), nil
	}
	return c
}

// cases are all cases, in the order of the table.
func cases() []benchCase {
	relayed := func(name, about string, c relay) benchCase {
		return benchCase{name: name, about: about, run: c.run, compare: c.compare}
	}
	return []benchCase{
		relayed("small", "pass-through, small bodies", relay{unit: "requests/s"}),
		relayed("small128", "pass-through, small bodies, 128 connections", relay{unit: "requests/s", connections: manyConnections}),
		relayed("body100k", "pass-through, request bodies of 100 KB", relay{unit: "requests/s", size: 100_000}),
		relayed("burst", "streams of 200 chunks, as fast as they go", relay{unit: "streams/s", stream: true}),
		relayed("responses", "pass-through of the Responses API, small bodies", relay{unit: "requests/s", kind: "openai-responses"}),
		{"caps", "pass-through with budgets and a route, against one without", true, caps, nil},
		{"cuts", "streams that arrive cut or altered", false, cuts, nil},
		{"store", "pass-through while the database is locked", true, store, nil},
		{"loop", "one round of 8 tools of 50 ms, a model of 20 ms", true, loop, nil},
		{"parallel", "8 runs at once, each with 8 tools of 50 ms at once", true, parallel,
			comparedRuns(eightTools(0), false, parallelWidth, func(s sizes) int { return s.parallelRuns })},
		{"rounds", "runs of 10 rounds, a model of 20 ms", true, rounds,
			comparedRuns(oneToolPerRound(roundsPerRun, loopModelMS), false, cpuWidth, func(s sizes) int { return s.roundRuns })},
		{"cpu", "CPU of runs of 3 rounds without latency", true, loopCPU,
			comparedRuns(oneToolPerRound(cpuRounds, 0), false, cpuWidth, func(s sizes) int { return s.cpuRuns })},
		{"respcpu", "CPU of runs of 3 rounds over the Responses API", true, responsesCPU,
			comparedRuns(oneToolPerRound(cpuRounds, 0), true, cpuWidth, func(s sizes) int { return s.cpuRuns })},
		{"idle", "memory of idle streams and of an idle gateway", false, idle, nil},
		{"leak", "clients that leave", false, leak, nil},
		{"neighbour", "an org beside one that is at its limits", true, noisyNeighbor, nil},
	}
}

// measure runs the chosen cases, prints the table as it grows, and reports
// whether every case could be measured and every gate held.
func measure(ctx context.Context, opt options, out, errs io.Writer) (passed bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, opt.limit, fmt.Errorf("not done within %v", opt.limit))
	defer cancel()
	r, err := newRig(ctx, opt)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	printHeader(out, opt)
	passed = true
	for _, c := range opt.cases {
		rows, err := runCase(ctx, c, r, errs)
		printRows(out, c.name, rows)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err != nil {
			fmt.Fprintf(errs, "bench: case %s: %v\n", c.name, err)
			fmt.Fprintf(out, "%-10s could not be measured: FAIL\n", c.name)
		}
		passed = passed && err == nil && allHold(rows)
	}
	for _, line := range r.slower {
		fmt.Fprintln(out, line)
	}
	return passed, nil
}

// runCase runs one case and stops its processes. A process that does not stop in
// order is reported and does not change the result.
func runCase(ctx context.Context, c benchCase, r *rig, errs io.Writer) ([]row, error) {
	r.group, r.current, r.profiles = &proc.Group{}, c.name, 0
	rows, err := c.run(ctx, r)
	if stopped := r.group.Stop(); stopped != nil && ctx.Err() == nil {
		fmt.Fprintf(errs, "bench: after case %s: %v\n", c.name, stopped)
	}
	return rows, err
}

// options are what the command line asks for.
type options struct {
	gateway string      // a prebuilt gateway; "" = build it
	self    bool        // measure a second baseline in the gateway's place
	profile string      // directory for profiles of the gateway; "" = none
	list    bool        // only list the cases
	cases   []benchCase // in the order of the table
	floors  bool        // -quick: relaxed gates
	against string      // a gateway that was built before, to compare with; "" = compare with the baselines

	concurrency int // connections of the load
	sizes
	limit time.Duration // for everything
}

// sizes is how much is measured.
type sizes struct {
	pairs          int           // relay cases: measured pairs of passes
	pass           time.Duration // relay cases: length of a pass
	streams        int           // cuts: streams, one after another on each connection
	streamsAtOnce  int           // cuts: streams that are open at the same time
	lockedRequests int           // store: requests while the database is locked
	runs           int           // loop: measured runs, tools in parallel
	serialRuns     int           // loop: measured runs, tools in series
	warm           int           // loop, parallel, rounds, cpu: passes that are not measured
	passes         int           // parallel, rounds, cpu: measured passes
	parallelRuns   int           // parallel: runs of a pass
	roundRuns      int           // rounds: runs of a pass
	roundWidth     int           // rounds: runs at a time
	cpuRuns        int           // cpu: runs of a pass
	idleStreams    int           // idle: open streams
	idlePairs      int           // idle: pairs of processes
	steady         time.Duration // idle: memory is read when it has not grown for this long
	disconnects    int           // leak: clients that disconnect
	runDisconnects int           // leak: clients of runs that disconnect
	neighborPairs  int           // neighbour: measured pairs of passes
	neighborRuns   int           // neighbour: runs of a pass
}

func full() sizes {
	return sizes{
		pairs: 21, pass: time.Second, streams: 10_000, streamsAtOnce: 2000, lockedRequests: 500, runs: 40, serialRuns: 5,
		warm: 3, passes: 15, parallelRuns: 80, roundRuns: 80, roundWidth: 8, cpuRuns: 400, idleStreams: 1000, idlePairs: 5, steady: 2 * time.Second, disconnects: 1000, runDisconnects: 200,
		neighborPairs: 5, neighborRuns: 400,
	}
}

func quick() sizes {
	return sizes{
		pairs: 7, pass: 300 * time.Millisecond, streams: 1000, streamsAtOnce: 500, lockedRequests: 200, runs: 31, serialRuns: 2,
		warm: 2, passes: 15, parallelRuns: 16, roundRuns: 8, roundWidth: 4, cpuRuns: 150, idleStreams: 500, idlePairs: 1, steady: time.Second, disconnects: 500, runDisconnects: 60,
		neighborPairs: 3, neighborRuns: 100,
	}
}

func parse(args []string, errs io.Writer) (options, error) {
	opt := options{concurrency: 16, sizes: full(), limit: 20 * time.Minute}
	var short bool
	var pairs int
	var names string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&opt.gateway, "gateway", "", "`path` of a gateway binary; without it that of the variable "+programVar+", or ./cmd/turnpike is built")
	flags.StringVar(&opt.against, "against", "", "compare the rates with those of the gateway binary at this `path`, and name the cases that are slower")
	flags.StringVar(&names, "case", "", "measure only these cases, comma-separated `names`; -list has them")
	flags.BoolVar(&opt.list, "list", false, "list the cases, and measure nothing")
	flags.BoolVar(&short, "quick", false, "shorter passes, fewer streams and runs, and gates that fail only below three quarters of their goal: for CI, on any machine")
	flags.BoolVar(&opt.self, "self", false, "measure a second baseline in place of the gateway: ratios of about 1 show what this machine can tell apart")
	flags.IntVar(&pairs, "pairs", opt.pairs, "pairs of passes of each relay case; with -quick or -against the default is 7")
	flags.StringVar(&opt.profile, "profile", "", "write CPU and heap profiles of the gateway to this `directory`")
	if err := flags.Parse(args); err != nil {
		return opt, err
	}
	if short {
		opt.sizes, opt.limit, opt.floors = quick(), 5*time.Minute, true
	}
	if opt.against != "" {
		opt.pairs = againstPairs
	}
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "pairs" {
			opt.pairs = pairs
		}
	})
	var err error
	opt.cases, err = chosen(names, opt)
	switch {
	case err != nil:
		return opt, err
	case flags.NArg() > 0:
		return opt, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case opt.pairs < 1 || opt.pairs > 1000:
		return opt, fmt.Errorf("-pairs %d is out of range; use 1 to 1000", opt.pairs)
	case opt.self && (opt.gateway != "" || opt.profile != ""):
		return opt, errors.New("-self measures no gateway; do not give -gateway or -profile")
	case opt.against != "" && (opt.self || opt.profile != ""):
		return opt, errors.New("-against compares two gateways; do not give -self or -profile")
	case opt.gateway != "" && opt.profile != "":
		return opt, errors.New("-profile builds its own gateway; do not give -gateway")
	}
	return opt, nil
}

// gate returns the bound of a ratio: the gate of the table, or with -quick three quarters of it.
func (o options) gate(t threshold) threshold {
	if o.floors {
		return t.relaxed()
	}
	return t
}

// quietGate returns the bound of a figure that a busy machine alone can make twice as large: none
// with -quick.
func (o options) quietGate(t threshold) threshold {
	if o.floors {
		return threshold{}
	}
	return t
}

// chosen returns the named cases, all for "", in the order of the table.
func chosen(names string, opt options) ([]benchCase, error) {
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
		case opt.self && c.needsGateway && !all:
			return nil, fmt.Errorf("case %s needs the gateway", c.name)
		case opt.self && c.needsGateway:
		case opt.against != "" && c.compare == nil && !all:
			return nil, fmt.Errorf("case %s has no rate to compare", c.name)
		case opt.against != "" && c.compare == nil:
		case opt.against != "":
			picked = append(picked, c.compared())
		default:
			picked = append(picked, c)
		}
		delete(wanted, c.name)
	}
	for name := range wanted {
		return nil, fmt.Errorf("unknown case %q; -list has the names", name)
	}
	return picked, nil
}
