package main

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/stats"
)

// The loop case: one round with parallel tools, then the answer.
const (
	loopTools   = 8
	loopToolMS  = 50
	loopModelMS = 20

	// loopLeast is what a run cannot be faster than: model, tools at the same
	// time, model. In series the tools take their time one after another.
	loopLeast   = loopModelMS + loopToolMS + loopModelMS
	serialLeast = loopModelMS + loopTools*loopToolMS + loopModelMS
)

// loopGates are how many times their minimum runs may take. A busy machine says
// nothing about it: there they are only compared with the bare loop.
func loopGates() gates {
	return gates{table: stats.AtMost(1.15)}
}

// bareGate is how many times what they take on the bare loop runs may take.
const bareGate = 1.15

// loop measures the agent loop at one run at a time, tools in parallel, in turn
// with the bare loop, and again in series, where a run must take as long as all
// its tools together.
func loop(ctx context.Context, r *rig) ([]row, error) {
	l, err := r.loopServers(ctx)
	if err != nil {
		return nil, err
	}
	defer l.client.close()
	bare, gateway, err := r.loopSides(ctx, l, "parallel")
	if err != nil {
		return nil, err
	}
	if err := l.passes(ctx, plan{eight(5), 1, 1, r.opt.warm, r.opt.runs}, bare, gateway); err != nil {
		return nil, fmt.Errorf("tools in parallel: %w", err)
	}
	rows := []row{
		ratioRow("time of a run / minimum of 90 ms", gateway, loopLeast, r.opt.gate(loopGates())),
		ratioRow("the same, bare loop", bare, loopLeast, stats.Gate{}),
		pairRow("time of a run, gateway / bare loop", gateway.mid, bare.mid, stats.AtMost(bareGate)),
	}
	serial, err := r.loopSide(ctx, l, "serial")
	if err != nil {
		return rows, err
	}
	if err := l.passes(ctx, plan{eight(0), 1, 1, r.opt.warm, r.opt.serialRuns}, serial); err != nil {
		return rows, fmt.Errorf("tools in series: %w", err)
	}
	return append(rows,
		ratioRow("in series / minimum of 440 ms", serial, serialLeast, stats.Gate{}),
		row{
			what: "serial calls that overlapped",
			seen: stats.Exactly(float64(serial.overlaps)), gate: stats.AtMost(0),
		}, row{
			what: fmt.Sprintf("results out of call order, of %d runs", gateway.runs+serial.runs),
			seen: stats.Exactly(float64(gateway.disorders + serial.disorders)), gate: stats.AtMost(0),
			note: gateway.firstDisorder + serial.firstDisorder,
		}), nil
}

// eight is the shape of a run of the loop case. The first of its tools takes the
// whole time. In every third run each further one takes less milliseconds less,
// so that results come back in the wrong order.
func eight(less int) shape {
	return func(run int) fake.Script {
		tools := make([]int, loopTools)
		for i := range tools {
			tools[i] = loopToolMS
			if run%3 == 0 {
				tools[i] -= i * less
			}
		}
		return fake.Script{Run: run, LatencyMS: loopModelMS, Rounds: [][]int{tools}}
	}
}

// pairRow is a row of the ratios of passes that were made in turn: what slows
// the whole machine for a second slows both passes of a pair.
func pairRow(what string, gateway, bare []float64, gate stats.Gate) row {
	ratios := make([]float64, len(gateway))
	for i := range ratios {
		ratios[i] = gateway[i] / bare[i]
	}
	return row{what: what, digits: 3, seen: stats.Summarize(ratios), gate: gate}
}

// ratioRow is a row of runs' times in minimums.
func ratioRow(what string, s *loopSide, leastMS float64, gate stats.Gate) row {
	ratios := make([]float64, len(s.ms))
	for i, ms := range s.ms {
		ratios[i] = ms / leastMS
	}
	return row{what: what, digits: 3, seen: stats.Summarize(ratios), gate: gate, note: s.describe()}
}
