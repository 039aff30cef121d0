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
	"github.com/turnpike-gateway/turnpike/bench/stats"
)

const (
	// loudClients is how many clients the loud org has. One that was refused
	// comes back after comeBack, whatever Retry-After says.
	loudClients = 200
	comeBack    = 100 * time.Millisecond

	quietWidth    = 4 // runs of the quiet org at a time
	neighbourGate = 2.0

	// loudRun is where the numbers of the loud org's runs begin.
	loudRun = 1_000_000
)

// neighbour measures the runs of an org while another one, with 200 clients, is
// at its limits, in turn with passes in which that one is silent.
func neighbour(ctx context.Context, r *rig) ([]row, error) {
	l, err := r.loopServers(ctx)
	if err != nil {
		return nil, err
	}
	defer l.client.close()
	gateway, err := r.startGateway(ctx, gatewayConfig{provider: l.model.addr, mcp: l.tool.addr, neighbour: true})
	if err != nil {
		return nil, err
	}
	n := &neighbours{quiet: l.client, loud: newLoopClient(r.neighbourKey), addr: gateway.addr, runs: r.opt.quietRuns}
	defer n.loud.close()
	var ratios, quiet, loud []float64
	for i := -1; i < r.opt.neighbourPairs; i++ {
		alone, err := n.pass(ctx)
		if err != nil {
			return nil, fmt.Errorf("alone: %w\n%s", err, gateway.proc.Tail())
		}
		beside, err := n.besides(ctx)
		if err != nil {
			return nil, fmt.Errorf("beside a loud org: %w\n%s", err, gateway.proc.Tail())
		}
		if i >= 0 {
			ratios, quiet, loud = append(ratios, beside/alone), append(quiet, alone), append(loud, beside)
		}
	}
	if n.refused.Load() == 0 {
		return nil, errors.New("the loud org was never refused: it was not at its limits")
	}
	return []row{{
		what: "p99 of an org, other org loud / silent", digits: 3, seen: stats.Summarize(ratios), gate: stats.AtMost(neighbourGate),
		note: fmt.Sprintf("p99 %.0f ms silent, %.0f ms loud (medians); %d runs a pass; %d clients of the other org made %d runs and were refused %d times",
			stats.Summarize(quiet).Median, stats.Summarize(loud).Median, n.runs, loudClients, n.answered.Load(), n.refused.Load()),
	}}, nil
}

// neighbours is two orgs of one gateway.
type neighbours struct {
	quiet, loud *loopClient
	addr        string
	runs        int // of the quiet org in a pass
	made        int // so far; numbers them

	number            atomic.Int64 // of the loud org's last run
	answered, refused atomic.Int64 // of the loud org
}

// oneTool is a run of one tool call between two model calls.
func oneTool(run int) fake.Script {
	return fake.Script{Run: run, LatencyMS: loopModelMS, Rounds: [][]int{{loopToolMS}}}
}

// pass makes the quiet org's runs and returns their p99 in milliseconds. None
// of them may be refused or wrong.
func (n *neighbours) pass(ctx context.Context) (p99 float64, err error) {
	scripts := make([]fake.Script, n.runs)
	for i := range scripts {
		n.made++
		scripts[i] = oneTool(n.made)
	}
	ms, err := n.quiet.runAll(ctx, n.addr, scripts, quietWidth)
	return percentile(ms, 99), err
}

// besides does the same while the loud org has all its clients.
func (n *neighbours) besides(ctx context.Context) (p99 float64, err error) {
	during, quiet := context.WithCancel(ctx)
	var all sync.WaitGroup
	failed := make(chan error, loudClients)
	for range loudClients {
		all.Go(func() { failed <- n.shout(during) })
	}
	p99, err = n.pass(ctx)
	quiet()
	all.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return p99, err
}

// shout makes runs, one after another, until ctx ends.
func (n *neighbours) shout(ctx context.Context) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		_, err := n.loud.run(ctx, n.addr, oneTool(loudRun+int(n.number.Add(1))))
		var no refused
		switch {
		case err == nil:
			n.answered.Add(1)
			pause.Reset(0)
		case errors.As(err, &no) && no.status == http.StatusTooManyRequests:
			n.refused.Add(1)
			pause.Reset(comeBack)
		case ctx.Err() == nil:
			return err
		}
	}
}

// percentile returns the least of xs that at least p percent of them do not exceed.
func percentile(xs []float64, p int) float64 {
	sorted := slices.Sorted(slices.Values(xs))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
