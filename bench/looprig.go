package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/stats"
)

// loopRig is the two servers around the loop, which all that runs it shares.
type loopRig struct {
	model, tool target
	client      *loopClient
	runs        int // made so far; numbers the runs
}

// shape makes the script of a run.
type shape func(run int) fake.Script

// loopSide is one that runs the loop, the gateway or the bare loop, and what
// its runs showed.
type loopSide struct {
	target
	loopResult
}

// loopResult is what the runs of one side showed.
type loopResult struct {
	runs  int           // measured or not
	ms    []float64     // of each measured run
	mid   []float64     // the median of ms, of each measured pass
	cpu   time.Duration // of all measured runs
	cpuMS []float64     // for a run, of each measured pass; NaN if the machine does not tell

	peak          int // most tool calls of a run at the same time
	overlaps      int // calls that began before an earlier one of the run had ended
	disorders     int // runs whose results stood in another order than their calls
	firstDisorder string
}

func (l *loopResult) describe() string {
	s := fmt.Sprintf("at most %d tool calls at the same time", l.peak)
	if l.cpu > 0 {
		s += fmt.Sprintf("; %.2f ms CPU a run", l.cpu.Seconds()*1000/float64(len(l.ms)))
	}
	return s
}

// measured adds a pass: how long its runs took, and their processor time unless
// the machine does not tell.
func (l *loopResult) measured(ms []float64, cpu time.Duration, noCPU error) {
	l.ms = append(l.ms, ms...)
	l.mid = append(l.mid, stats.Summarize(ms).Median)
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
	of     shape
	runs   int // in a pass
	width  int // of them at a time
	warm   int // passes that do not count
	passes int // that do
}

// passes makes passes on the sides in turn. Every other time the order of the
// sides is reversed, so that neither is always the one that comes second.
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

// pass makes one pass on one side and judges its runs by the ledgers of the
// servers. It fails when one was not as scripted: then its time means nothing.
func (l *loopRig) pass(ctx context.Context, side *loopSide, p plan, measured bool) error {
	scripts := make([]fake.Script, p.runs)
	for i := range scripts {
		l.runs++
		scripts[i] = p.of(l.runs)
	}
	before, noCPU := side.proc.CPU()
	ms, err := l.client.runAll(ctx, side.addr, scripts, p.width)
	if err != nil {
		return err
	}
	after, err := side.proc.CPU()
	if measured {
		side.measured(ms, after-before, errors.Join(noCPU, err))
	}
	side.runs += p.runs
	calls, err := take[fake.ToolCall](ctx, l.client, l.tool.addr)
	if err != nil {
		return err
	}
	turns, err := take[fake.ModelCall](ctx, l.client, l.model.addr)
	if err != nil {
		return err
	}
	return side.judgeAll(scripts, calls, turns)
}

// runAll makes all runs, c at a time, and returns how many milliseconds each
// took. The first that fails ends them.
func (c *loopClient) runAll(ctx context.Context, addr string, scripts []fake.Script, width int) ([]float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ms := make([]float64, len(scripts))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(width, len(scripts)) {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(scripts) {
					return
				}
				took, err := c.run(ctx, addr, scripts[i])
				if err != nil {
					cancel(fmt.Errorf("run %d: %w", scripts[i].Run, err))
				}
				ms[i] = took.Seconds() * 1000
			}
		})
	}
	all.Wait()
	return ms, context.Cause(ctx)
}

// run makes one run and checks its answer.
func (c *loopClient) run(ctx context.Context, addr string, s fake.Script) (time.Duration, error) {
	began := time.Now()
	answer, err := c.chat(ctx, addr, s.Text())
	took := time.Since(began)
	if err != nil {
		return took, err
	}
	return took, answer.check(s.Final())
}
