package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/stats"
)

// leaveTime is how long after its client has left the gateway may still hold
// anything of a request open.
const leaveTime = time.Second

// leak lets many clients leave at once, half of them before their answers have
// begun and half in the middle, and counts the upstream streams that are open a
// second later.
func leak(ctx context.Context, r *rig) ([]row, error) {
	holder, err := r.child(ctx, roleHolder)
	if err != nil {
		return nil, err
	}
	_, gateway, err := r.proxies(ctx, holder)
	if err != nil {
		return nil, err
	}
	n := r.opt.leavers
	mute, err := r.gather(ctx, gateway, n/2, true)
	if err != nil {
		return nil, err
	}
	defer mute.Leave()
	speaking, err := r.gather(ctx, gateway, n-n/2, false)
	if err != nil {
		return nil, err
	}
	defer speaking.Leave()
	if err := opened(ctx, holder, n); err != nil {
		return nil, err
	}
	mute.Leave()
	speaking.Leave()
	seen, err := remaining(ctx, fmt.Sprintf("streams open 1 s after %d clients left", n), holder)
	if err != nil || r.opt.self {
		return []row{seen}, err
	}
	runs, err := r.leakRuns(ctx)
	return append([]row{seen}, runs...), err
}

// leakRuns does the same with runs: half of them in a model call and half in a
// tool call.
func (r *rig) leakRuns(ctx context.Context) ([]row, error) {
	l, err := r.loopServers(ctx)
	if err != nil {
		return nil, err
	}
	defer l.client.close()
	n := r.opt.leaveRuns
	gateway, err := r.startGateway(ctx, gatewayConfig{provider: l.model.addr, mcp: l.tool.addr, slots: n, calls: n})
	if err != nil {
		return nil, err
	}
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	const forLong = 9000 // ms
	var runs sync.WaitGroup
	inTool := n / 2
	for i := range n {
		s := fake.Script{Run: i + 1, LatencyMS: forLong}
		if i < inTool {
			s = fake.Script{Run: i + 1, Rounds: [][]int{{forLong}}}
		}
		runs.Go(func() { _, _ = l.client.run(leaving, gateway.addr, s) }) // it leaves: there is no answer
	}
	err = opened(ctx, l.tool, inTool)
	if err == nil {
		err = opened(ctx, l.model, n-inTool)
	}
	leave()
	runs.Wait()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, gateway.proc.Tail())
	}
	model, err := remaining(ctx, fmt.Sprintf("model calls, after %d clients of runs left", n), l.model)
	if err != nil {
		return nil, err
	}
	tool, err := remaining(ctx, "tool calls, the same", l.tool)
	return []row{model, tool}, err
}

// opened waits until n requests are open at a fake server.
func opened(ctx context.Context, server target, n int) error {
	seen := 0
	err := until(ctx, 10*time.Second, fmt.Sprintf("%d open requests", n), func() (bool, error) {
		var err error
		seen, err = server.open(ctx)
		return seen == n, err
	})
	if err != nil {
		return fmt.Errorf("%w; %d are", err, seen)
	}
	return nil
}

// remaining counts what is still open at a fake server a second after now, or
// says when nothing was.
func remaining(ctx context.Context, what string, server target) (row, error) {
	left, began := 0, time.Now()
	r := row{what: what, gate: stats.AtMost(0)}
	err := until(ctx, 2*leaveTime, "the count of open requests", func() (bool, error) {
		var err error
		left, err = server.open(ctx)
		return left == 0 || time.Since(began) >= leaveTime, err
	})
	if left == 0 {
		r.note = fmt.Sprintf("the last one ended within %.0f ms", time.Since(began).Seconds()*1000)
	}
	r.seen = stats.Exactly(float64(left))
	return r, err
}
