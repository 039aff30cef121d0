package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
)

// The loop case: one round with parallel tools, then the answer.
const (
	loopTools   = 8
	loopToolMS  = 50
	loopModelMS = 20

	// loopMinMS is the minimum time of a run: model, tools at the same time, model.
	// serialMinMS is the same with tools in series.
	loopMinMS   = loopModelMS + loopToolMS + loopModelMS
	serialMinMS = loopModelMS + loopTools*loopToolMS + loopModelMS
)

// loopGate bounds the time of a run in multiples of its minimum, and in multiples of the bare
// loop's.
const loopGate = 1.15

// loop measures one run at a time: with tools in parallel, in turn with the bare
// loop, and with tools in series.
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
	if err := l.passes(ctx, plan{eightTools(5), 1, 1, r.opt.warm, r.opt.runs}, bare, gateway); err != nil {
		return nil, fmt.Errorf("tools in parallel: %w", err)
	}
	rows := []row{
		ratioRow("time of a run / minimum of 90 ms", gateway, loopMinMS, r.opt.quietGate(atMost(loopGate))),
		ratioRow("the same, bare loop", bare, loopMinMS, threshold{}),
		pairRow("time of a run, gateway / bare loop", gateway.medians, bare.medians, r.opt.gate(atMost(loopGate))),
	}
	serial, err := r.loopSide(ctx, l, "serial")
	if err != nil {
		return rows, err
	}
	if err := l.passes(ctx, plan{eightTools(0), 1, 1, r.opt.warm, r.opt.serialRuns}, serial); err != nil {
		return rows, fmt.Errorf("tools in series: %w", err)
	}
	return append(rows,
		ratioRow("in series / minimum of 440 ms", serial, serialMinMS, threshold{}),
		row{
			what: "serial calls that overlapped",
			seen: exactly(float64(serial.overlaps)), gate: atMost(0),
		}, row{
			what: fmt.Sprintf("results out of call order, of %d runs", gateway.runs+serial.runs),
			seen: exactly(float64(gateway.outOfOrder + serial.outOfOrder)), gate: atMost(0),
			note: gateway.firstOutOfOrder + serial.firstOutOfOrder,
		}), nil
}

// eightTools returns the scripts of the loop case. In every third run each tool call
// is stepMS shorter than the one before it, so that results come back in reverse.
func eightTools(stepMS int) scriptFunc {
	return func(run int) fake.Script {
		tools := make([]int, loopTools)
		for i := range tools {
			tools[i] = loopToolMS
			if run%3 == 0 {
				tools[i] -= i * stepMS
			}
		}
		return fake.Script{Run: run, LatencyMS: loopModelMS, Rounds: [][]int{tools}}
	}
}

// pairRow is a row of the ratios gateway / bare of each pair of passes: what slows
// the whole machine for a second slows both passes of a pair.
func pairRow(what string, gateway, bare []float64, gate threshold) row {
	ratios := make([]float64, len(gateway))
	for i := range ratios {
		ratios[i] = gateway[i] / bare[i]
	}
	return row{what: what, digits: 3, seen: summarize(ratios), gate: gate}
}

// ratioRow is a row of the times of runs in multiples of their minimum.
func ratioRow(what string, s *loopSide, minMS float64, gate threshold) row {
	ratios := make([]float64, len(s.ms))
	for i, ms := range s.ms {
		ratios[i] = ms / minMS
	}
	return row{what: what, digits: 3, seen: summarize(ratios), gate: gate, note: s.describe()}
}

// parallelWidth is how many runs of the case parallel are under way at a time.
const parallelWidth = 8

// parallelGate bounds the time of a run in multiples of the bare loop's.
const parallelGate = 1.25

// parallel measures the time of runs with parallel tools, several at a time, in turn with
// the bare loop. All of them call one server of one org.
func parallel(ctx context.Context, r *rig) ([]row, error) {
	bare, gateway, err := r.roundPasses(ctx, eightTools(0), r.opt.parallelRuns, parallelWidth)
	if err != nil {
		return nil, err
	}
	return []row{
		pairRow("time of a run, gateway / bare loop", gateway.medians, bare.medians, r.opt.gate(atMost(parallelGate))),
		ratioRow("time of a run / minimum of 90 ms", gateway, loopMinMS, threshold{}),
		ratioRow("the same, bare loop", bare, loopMinMS, threshold{}),
	}, nil
}

// The cases rounds and cpu. A round is a model call and the tool calls that it asks
// for; the last round of a run is the model call that answers.
const (
	roundsPerRun = 10 // the default limit of the gateway
	roundsMinMS  = roundsPerRun * loopModelMS
	cpuRounds    = 3

	cpuWidth = 8 // runs at a time
)

// The CPU time of a run in multiples of the bare loop's, and that of a run whose response is
// stored.
const (
	cpuGate          = 2.2
	responsesCPUGate = 2.8
)

// oneToolPerRound returns scripts of runs with so many rounds. Each but the last has
// one tool call without latency.
func oneToolPerRound(rounds, modelMS int) scriptFunc {
	return func(run int) fake.Script {
		s := fake.Script{Run: run, LatencyMS: modelMS}
		for range rounds - 1 {
			s.Rounds = append(s.Rounds, []int{0})
		}
		return s
	}
}

// rounds measures the time of runs of ten rounds, several at a time, in turn with the
// bare loop.
func rounds(ctx context.Context, r *rig) ([]row, error) {
	bare, gateway, err := r.roundPasses(ctx, oneToolPerRound(roundsPerRun, loopModelMS), r.opt.roundRuns, r.opt.roundWidth)
	if err != nil {
		return nil, err
	}
	return []row{
		ratioRow(fmt.Sprintf("time of a run / minimum of %d ms", roundsMinMS), gateway, roundsMinMS, r.opt.quietGate(atMost(loopGate))),
		ratioRow("the same, bare loop", bare, roundsMinMS, threshold{}),
		pairRow("time of a run, gateway / bare loop", gateway.medians, bare.medians, r.opt.gate(atMost(loopGate))),
	}, nil
}

// loopCPU measures the CPU time of runs of three rounds without latency.
func loopCPU(ctx context.Context, r *rig) ([]row, error) {
	bare, gateway, err := r.roundPasses(ctx, oneToolPerRound(cpuRounds, 0), r.opt.cpuRuns, cpuWidth)
	if err != nil {
		return nil, err
	}
	return cpuRows(bare, gateway, r.opt.gate(atMost(cpuGate))), nil
}

func cpuRows(bare, gateway *loopSide, gate threshold) []row {
	return []row{
		pairRow("CPU of a run, gateway / bare loop", gateway.cpuMS, bare.cpuMS, gate),
		{what: "ms of gateway CPU a run", digits: 2, seen: summarize(gateway.cpuMS)},
		{what: "the same, bare loop", digits: 2, seen: summarize(bare.cpuMS)},
	}
}

// responsesCPU measures the same for runs over the Responses API, which are stored. The bare
// loop has no such API and makes its runs over chat completions.
func responsesCPU(ctx context.Context, r *rig) ([]row, error) {
	l, err := r.loopServers(ctx)
	if err != nil {
		return nil, err
	}
	defer l.client.close()
	bare, gateway, err := r.loopSides(ctx, l, "parallel")
	if err != nil {
		return nil, err
	}
	gateway.client = newLoopClient(r.clientKey)
	gateway.client.responses = true
	defer gateway.client.close()
	if err := l.passes(ctx, plan{oneToolPerRound(cpuRounds, 0), r.opt.cpuRuns, cpuWidth, r.opt.warm, r.opt.passes}, bare, gateway); err != nil {
		return nil, err
	}
	return cpuRows(bare, gateway, r.opt.gate(atMost(responsesCPUGate))), nil
}

// comparedRuns returns what compares the time of runs of two gateways.
func comparedRuns(of scriptFunc, responses bool, width int, runs func(sizes) int) func(context.Context, *rig) (comparison, error) {
	return func(ctx context.Context, r *rig) (comparison, error) {
		l, err := r.loopServers(ctx)
		if err != nil {
			return comparison{}, err
		}
		l.client.responses = responses
		defer l.client.close()
		config := gatewayConfig{program: r.opt.against, provider: l.model.addr, mcp: l.tool.addr}
		var before, now loopSide
		if before.target, err = r.startGateway(ctx, config); err != nil {
			return comparison{}, fmt.Errorf("before: %w", err)
		}
		config.program = ""
		if now.target, err = r.startGateway(ctx, config); err != nil {
			return comparison{}, err
		}
		if err := l.passes(ctx, plan{of, runs(r.opt.sizes), width, 1, r.opt.pairs}, &before, &now); err != nil {
			return comparison{}, err
		}
		c := comparison{what: "runs/s", cpuBefore: summarize(before.cpuMS).median, cpuNow: summarize(now.cpuMS).median}
		for i, ms := range before.medians {
			c.ratios = append(c.ratios, ms/now.medians[i]) // of the rates
		}
		return c, nil
	}
}

func (r *rig) roundPasses(ctx context.Context, of scriptFunc, runs, width int) (bare, gateway *loopSide, err error) {
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

// loopRig is the two servers that the gateway and the bare loop call, and a client.
type loopRig struct {
	model, tool target
	client      *loopClient
	runs        int // number of the last run
}

// scriptFunc makes the script of a run.
type scriptFunc func(run int) fake.Script

// loopSide is the gateway or the bare loop, and the results of its runs.
type loopSide struct {
	target
	loopResult
	client *loopClient // nil = that of the rig
}

// loopResult is the result of the runs of one side.
type loopResult struct {
	runs    int           // measured or not
	ms      []float64     // of each measured run
	medians []float64     // the median of ms, of each measured pass
	cpu     time.Duration // of all measured runs
	cpuMS   []float64     // CPU of a run, of each measured pass; NaN if the system does not report it

	peak            int // most tool calls of a run at the same time
	overlaps        int // calls that began before an earlier one of the run had ended
	outOfOrder      int // runs whose results were in another order than their calls
	firstOutOfOrder string
}

func (l *loopResult) describe() string {
	s := fmt.Sprintf("at most %d tool calls at the same time", l.peak)
	if l.cpu > 0 {
		s += fmt.Sprintf("; %.2f ms CPU a run", l.cpu.Seconds()*1000/float64(len(l.ms)))
	}
	return s
}

// measured adds a pass: the times of its runs, and their CPU time unless noCPU says
// why there is none.
func (l *loopResult) measured(ms []float64, cpu time.Duration, noCPU error) {
	l.ms = append(l.ms, ms...)
	l.medians = append(l.medians, summarize(ms).median)
	if noCPU != nil {
		l.cpuMS = append(l.cpuMS, math.NaN())
		return
	}
	l.cpu += cpu
	l.cpuMS = append(l.cpuMS, cpu.Seconds()*1000/float64(len(ms)))
}

func (r *rig) loopServers(ctx context.Context) (l *loopRig, err error) {
	l = &loopRig{client: newLoopClient(r.clientKey)}
	if l.model, err = r.child(ctx, roleModel); err != nil {
		return l, err
	}
	l.tool, err = r.child(ctx, roleTool)
	return l, err
}

// loopSide starts a gateway between model and tool.
func (r *rig) loopSide(ctx context.Context, l *loopRig, parallelism string) (*loopSide, error) {
	t, err := r.startGateway(ctx, gatewayConfig{provider: l.model.addr, mcp: l.tool.addr, parallelism: parallelism})
	return &loopSide{target: t}, err
}

// loopSides starts the bare loop and a gateway between model and tool.
func (r *rig) loopSides(ctx context.Context, l *loopRig, parallelism string) (bare, gateway *loopSide, err error) {
	t, err := r.child(ctx, roleLoop, upstreamVar+"="+l.model.addr, mcpVar+"="+l.tool.addr)
	if err != nil {
		return nil, nil, err
	}
	gateway, err = r.loopSide(ctx, l, parallelism)
	return &loopSide{target: t}, gateway, err
}

// plan says which runs are made.
type plan struct {
	of     scriptFunc
	runs   int // in a pass
	width  int // of them at a time
	warm   int // passes that are not measured
	passes int // passes that are
}

// passes makes passes on the sides in turn. The order of the sides alternates, so
// that neither is always second.
func (l *loopRig) passes(ctx context.Context, p plan, sides ...*loopSide) error {
	sides = slices.Clone(sides)
	for i := -p.warm; i < p.passes; i++ {
		slices.Reverse(sides)
		for _, side := range sides {
			if err := l.pass(ctx, side, p, i >= 0); err != nil {
				return fmt.Errorf("%w\n%s", err, side.proc.Tail())
			}
		}
	}
	return nil
}

// pass makes one pass on one side and verifies its runs by the ledgers of the
// servers.
func (l *loopRig) pass(ctx context.Context, side *loopSide, p plan, measured bool) error {
	scripts := make([]fake.Script, p.runs)
	for i := range scripts {
		l.runs++
		scripts[i] = p.of(l.runs)
	}
	before, noCPU := side.proc.CPU()
	ms, err := cmp.Or(side.client, l.client).runAll(ctx, side.addr, scripts, p.width)
	if err != nil {
		return err
	}
	after, err := side.proc.CPU()
	if measured {
		side.measured(ms, after-before, errors.Join(noCPU, err))
	}
	side.runs += p.runs
	calls, err := takeLedger[fake.ToolCall](ctx, l.client, l.tool.addr)
	if err != nil {
		return err
	}
	turns, err := takeLedger[fake.ModelCall](ctx, l.client, l.model.addr)
	if err != nil {
		return err
	}
	return side.verifyAll(scripts, calls, turns)
}
