package main

import (
	"context"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/stats"
)

// The loop case: one round with parallel tools, then the answer.
const (
	loopTools   = 8
	loopToolMS  = 50
	loopModelMS = 20

	// loopLeast is what a run cannot be faster than: model, tools at the same
	// time, model. The gate is this and 15 %.
	loopLeast = loopModelMS + loopToolMS + loopModelMS
	loopGate  = 1.15 * loopLeast

	loopWarm = 3 // unmeasured runs: connections, MCP session, catalogue
)

// loop measures the agent loop at one run at a time, tools in parallel and
// again in series, where it must take as long as all tools together.
func loop(ctx context.Context, r *rig) ([]row, error) {
	parallel, err := r.loopRuns(ctx, "parallel", r.opt.runs)
	if err != nil {
		return nil, fmt.Errorf("tools in parallel: %w", err)
	}
	rows := []row{{
		what: "ms a run, tools in parallel", digits: 1,
		seen: stats.Summarize(parallel.ms), gate: stats.AtMost(loopGate), note: parallel.describe(loopLeast),
	}}
	serial, err := r.loopRuns(ctx, "serial", r.opt.serialRuns)
	if err != nil {
		return rows, fmt.Errorf("tools in series: %w", err)
	}
	return append(rows, row{
		what: "ms a run, tools in series", digits: 1,
		seen: stats.Summarize(serial.ms), note: serial.describe(2*loopModelMS + loopTools*loopToolMS),
	}, row{
		what: "serial calls that overlapped",
		seen: stats.Exactly(float64(serial.overlaps)), gate: stats.AtMost(0),
	}, row{
		what: fmt.Sprintf("results out of call order, of %d runs", parallel.runs+serial.runs),
		seen: stats.Exactly(float64(parallel.disorders + serial.disorders)), gate: stats.AtMost(0),
		note: parallel.firstDisorder + serial.firstDisorder,
	}), nil
}

// loopResult is what the runs of one gateway showed.
type loopResult struct {
	ms   []float64 // of each measured run
	cpu  time.Duration
	runs int // measured or not

	peak          int // most tool calls at the same time
	overlaps      int // calls that began before an earlier one had ended
	disorders     int // runs whose results stood in another order than their calls
	firstDisorder string
}

func (l loopResult) describe(least int) string {
	s := fmt.Sprintf("minimum %d ms; at most %d tool calls at the same time", least, l.peak)
	if l.cpu > 0 {
		s += fmt.Sprintf("; %.2f ms gateway CPU a run", l.cpu.Seconds()*1000/float64(len(l.ms)))
	}
	return s
}

// loopRuns starts model, tool and gateway and makes the runs, one by one: some
// to warm up, one whose first call is the slowest, so that results come back in
// the wrong order, and then the measured ones.
func (r *rig) loopRuns(ctx context.Context, parallelism string, measured int) (loopResult, error) {
	var res loopResult
	l, err := r.loopTargets(ctx, parallelism)
	if err != nil {
		return res, err
	}
	defer l.client.close()
	for range loopWarm {
		if _, err := l.run(ctx, steps(0), &res); err != nil {
			return res, err
		}
	}
	if _, err := l.run(ctx, steps(-5), &res); err != nil {
		return res, err
	}
	before, noCPU := l.gateway.proc.CPU()
	for range measured {
		took, err := l.run(ctx, steps(0), &res)
		if err != nil {
			return res, err
		}
		res.ms = append(res.ms, took.Seconds()*1000)
	}
	if after, err := l.gateway.proc.CPU(); noCPU == nil && err == nil {
		res.cpu = after - before
	}
	return res, nil
}

// steps returns how long the tools of a round take: the first one the whole
// time, each further one step milliseconds more.
func steps(step int) []int {
	ms := make([]int, loopTools)
	for i := range ms {
		ms[i] = loopToolMS + i*step
	}
	return ms
}

// loopRig is the processes of the loop case.
type loopRig struct {
	model, tool, gateway target
	client               *loopClient
}

func (r *rig) loopTargets(ctx context.Context, parallelism string) (l loopRig, err error) {
	if l.model, err = r.child(ctx, roleModel); err != nil {
		return l, err
	}
	if l.tool, err = r.child(ctx, roleTool); err != nil {
		return l, err
	}
	l.gateway, err = r.startGateway(ctx, gatewayConfig{
		provider: l.model.addr, mcp: l.tool.addr, parallelism: parallelism,
	})
	l.client = newLoopClient(r.clientKey)
	return l, err
}

// run makes one run, measures it, and judges what the ledgers say about it.
func (l loopRig) run(ctx context.Context, tools []int, res *loopResult) (time.Duration, error) {
	res.runs++
	s := fake.Script{Run: res.runs, LatencyMS: loopModelMS, Rounds: [][]int{tools}}
	began := time.Now()
	answer, err := l.client.chat(ctx, l.gateway.addr, s.Text())
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("run %d: %w\n%s", s.Run, err, l.gateway.proc.Tail())
	}
	if err := answer.check(s.Final()); err != nil {
		return 0, fmt.Errorf("run %d: %w", s.Run, err)
	}
	calls, err := take[fake.ToolCall](ctx, l.client, l.tool.addr)
	if err != nil {
		return 0, err
	}
	turns, err := take[fake.ModelCall](ctx, l.client, l.model.addr)
	if err != nil {
		return 0, err
	}
	return took, res.judge(s, calls, turns)
}
