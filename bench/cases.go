package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/turnpike-gateway/turnpike/bench/proc"
)

// benchCase is one case of the table. It starts what it needs in the group,
// which its caller stops, and returns its rows.
type benchCase struct {
	name         string
	about        string
	needsGateway bool // makes no sense with -self
	run          func(context.Context, *rig) ([]row, error)
}

// cases is the table of cases; a new one is one line here and one function.
func cases() []benchCase {
	return []benchCase{
		{"small", "pass-through, small bodies", false, relay{unit: "requests/s"}.run},
		{"body100k", "pass-through, request bodies of 100 KB", false, relay{unit: "requests/s", size: 100_000}.run},
		{"burst", "streams of 200 chunks, as fast as they go", false, relay{unit: "streams/s", stream: true}.run},
		{"cuts", "streams that arrive cut or altered", false, cuts},
		{"store", "pass-through while the database is locked", true, store},
		{"loop", "one round of 8 tools of 50 ms, a model of 20 ms", true, loop},
		{"rounds", "runs of 10 rounds, a model of 20 ms", true, rounds},
		{"cpu", "CPU of runs of 3 rounds without latency", true, loopCPU},
		{"idle", "memory of idle streams and of an idle gateway", false, idle},
		{"leak", "clients that leave", false, leak},
		{"neighbour", "an org beside one that is at its limits", true, neighbour},
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
	return passed, nil
}

// runCase runs one case with processes of its own. One that did not stop as it
// should is reported, but says nothing about what was measured.
func runCase(ctx context.Context, c benchCase, r *rig, errs io.Writer) ([]row, error) {
	r.group, r.current, r.profiles = &proc.Group{}, c.name, 0
	rows, err := c.run(ctx, r)
	if stopped := r.group.Stop(); stopped != nil && ctx.Err() == nil {
		fmt.Fprintf(errs, "bench: after case %s: %v\n", c.name, stopped)
	}
	return rows, err
}
