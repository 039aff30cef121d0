package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
)

const (
	noisyClients  = 200                    // of the noisy org
	retryPause    = 100 * time.Millisecond // of a noisy client after a refusal; it ignores Retry-After
	firstNoisyRun = 1_000_000              // number of the noisy org's first run

	measuredWidth = 4 // concurrent runs of the measured org
	neighborGate  = 2.0
)

// noisyNeighbor compares the p99 of one org's runs while another org is at its limits
// with the p99 while that org is idle.
func noisyNeighbor(ctx context.Context, r *rig) ([]row, error) {
	l, err := r.loopServers(ctx)
	if err != nil {
		return nil, err
	}
	defer l.client.close()
	gateway, err := r.startGateway(ctx, gatewayConfig{provider: l.model.addr, mcp: l.tool.addr, secondOrg: true})
	if err != nil {
		return nil, err
	}
	n := &orgPair{measured: l.client, noisy: newLoopClient(r.secondKey), addr: gateway.addr, runs: r.opt.neighborRuns}
	defer n.noisy.close()
	var ratios, idle, busy []float64
	for i := -1; i < r.opt.neighborPairs; i++ {
		without, err := n.pass(ctx)
		if err != nil {
			return nil, fmt.Errorf("without the noisy org: %w\n%s", err, gateway.proc.Tail())
		}
		with, err := n.passWithNoise(ctx)
		if err != nil {
			return nil, fmt.Errorf("with the noisy org: %w\n%s", err, gateway.proc.Tail())
		}
		if i >= 0 {
			ratios, idle, busy = append(ratios, with/without), append(idle, without), append(busy, with)
		}
	}
	if n.refused.Load() == 0 {
		return nil, errors.New("the noisy org was never refused: it was not at its limits")
	}
	return []row{{
		what: "p99 of an org, other org loud / silent", digits: 3, seen: summarize(ratios), gate: r.opt.gate(atMost(neighborGate)),
		note: fmt.Sprintf("p99 %.0f ms silent, %.0f ms loud (medians); %d runs a pass; %d clients of the other org made %d runs and were refused %d times",
			summarize(idle).median, summarize(busy).median, n.runs, noisyClients, n.answered.Load(), n.refused.Load()),
	}}, nil
}

// orgPair is two orgs of one gateway.
type orgPair struct {
	measured, noisy *loopClient
	addr            string
	runs            int // of the measured org in a pass
	last            int // number of the measured org's last run

	lastNoisy         atomic.Int64 // number of the noisy org's last run
	answered, refused atomic.Int64 // runs of the noisy org
}

// oneTool is a run of one tool call between two model calls.
func oneTool(run int) fake.Script {
	return fake.Script{Run: run, LatencyMS: loopModelMS, Rounds: [][]int{{loopToolMS}}}
}

// pass makes the runs of the measured org and returns their p99 in milliseconds. A
// refused or wrong run is an error.
func (n *orgPair) pass(ctx context.Context) (p99 float64, err error) {
	scripts := make([]fake.Script, n.runs)
	for i := range scripts {
		n.last++
		scripts[i] = oneTool(n.last)
	}
	ms, err := n.measured.runAll(ctx, n.addr, scripts, measuredWidth)
	return percentile(ms, 99), err
}

// passWithNoise does the same while the clients of the noisy org make runs.
func (n *orgPair) passWithNoise(ctx context.Context) (p99 float64, err error) {
	during, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	failed := make(chan error, noisyClients)
	for range noisyClients {
		all.Go(func() { failed <- n.noisyClient(during) })
	}
	p99, err = n.pass(ctx)
	stop()
	all.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return p99, err
}

// noisyClient makes runs, one after another, until ctx ends.
func (n *orgPair) noisyClient(ctx context.Context) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		_, err := n.noisy.run(ctx, n.addr, oneTool(firstNoisyRun+int(n.lastNoisy.Add(1))))
		var refusal statusError
		switch {
		case err == nil:
			n.answered.Add(1)
			pause.Reset(0)
		case errors.As(err, &refusal) && refusal.status == http.StatusTooManyRequests:
			n.refused.Add(1)
			pause.Reset(retryPause)
		case ctx.Err() == nil:
			return err
		}
	}
}

// percentile returns the p-th percentile of xs by the nearest-rank method.
func percentile(xs []float64, p int) float64 {
	sorted := slices.Sorted(slices.Values(xs))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
