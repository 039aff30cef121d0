package main

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/stats"
)

// A round is a model call and the tool calls that it asks for; the last round
// of a run is the model call that answers.
const (
	roundsRounds = 10 // as many as a run may have by default
	roundsLeast  = roundsRounds * loopModelMS
	cpuRounds    = 3

	cpuWidth = 8 // runs at a time
)

// cpuGates are how many times the CPU of the bare loop the gateway may use.
func cpuGates() gates {
	return gates{table: stats.AtMost(3.5), floor: stats.AtMost(4)}
}

// inRow is the shape of a run of that many rounds, each but the last with one
// tool call that takes no time.
func inRow(rounds, modelMS int) shape {
	return func(run int) fake.Script {
		s := fake.Script{Run: run, LatencyMS: modelMS}
		for range rounds - 1 {
			s.Rounds = append(s.Rounds, []int{0})
		}
		return s
	}
}

// rounds measures the time of runs of ten rounds, some at a time, in turn with
// the bare loop.
func rounds(ctx context.Context, r *rig) ([]row, error) {
	bare, gateway, err := r.roundPasses(ctx, inRow(roundsRounds, loopModelMS), r.opt.roundRuns, r.opt.roundWidth)
	if err != nil {
		return nil, err
	}
	return []row{
		ratioRow(fmt.Sprintf("time of a run / minimum of %d ms", roundsLeast), gateway, roundsLeast, r.opt.gate(loopGates())),
		ratioRow("the same, bare loop", bare, roundsLeast, stats.Gate{}),
		pairRow("time of a run, gateway / bare loop", gateway.mid, bare.mid, stats.AtMost(bareGate)),
	}, nil
}

// loopCPU measures the processor time of runs of three rounds without latency.
func loopCPU(ctx context.Context, r *rig) ([]row, error) {
	bare, gateway, err := r.roundPasses(ctx, inRow(cpuRounds, 0), r.opt.cpuRuns, cpuWidth)
	if err != nil {
		return nil, err
	}
	return []row{
		pairRow("CPU of a run, gateway / bare loop", gateway.cpuMS, bare.cpuMS, r.opt.gate(cpuGates())),
		{what: "ms of gateway CPU a run", digits: 2, seen: stats.Summarize(gateway.cpuMS)},
		{what: "the same, bare loop", digits: 2, seen: stats.Summarize(bare.cpuMS)},
	}, nil
}

func (r *rig) roundPasses(ctx context.Context, of shape, runs, width int) (bare, gateway *loopSide, err error) {
	l, err := r.loopServers(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer l.client.close()
	if bare, gateway, err = r.loopSides(ctx, l, "parallel"); err != nil {
		return nil, nil, err
	}
	return bare, gateway, l.passes(ctx, plan{of, runs, width, r.opt.warm, r.opt.passes}, bare, gateway)
}
