package main

import (
	"context"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/stats"
)

const (
	idleGate = 15 // MiB that an idle gateway may have of its own

	patience = 15 * time.Second // with memory that goes on growing
)

// streamGates are how many times the memory of the baseline's an idle stream may
// take.
func streamGates() gates {
	return gates{table: stats.AtMost(1), floor: stats.AtMost(1.3)}
}

// idle measures the memory of streams in which nothing happens, in new
// processes for each pair: what a process has given back of an earlier crowd
// would say nothing.
func idle(ctx context.Context, r *rig) ([]row, error) {
	n := r.opt.idleStreams
	var ratios, own, base []float64
	for range r.opt.idlePairs {
		b, g, err := r.idlePair(ctx, n)
		if err != nil {
			return nil, err
		}
		ratios, base, own = append(ratios, g/b), append(base, b), append(own, g)
	}
	b, g := stats.Summarize(base), stats.Summarize(own)
	rows := []row{{
		what: fmt.Sprintf("RssAnon of %d streams, gateway / baseline", n), digits: 3,
		seen: stats.Summarize(ratios), gate: r.opt.gate(streamGates()),
		note: fmt.Sprintf("a stream takes %.1f KiB of the baseline, %.1f KiB of the gateway (medians)", b.Median/1024, g.Median/1024),
	}}
	if r.opt.self {
		return rows, nil
	}
	alone, err := r.idleGateway(ctx)
	return append(rows, row{what: "RssAnon of an idle gateway, MiB", digits: 1, seen: stats.Exactly(alone), gate: stats.AtMost(idleGate)}), err
}

// idlePair returns the bytes that each of n streams takes of the two proxies.
func (r *rig) idlePair(ctx context.Context, n int) (baseline, gateway float64, err error) {
	holder, err := r.child(ctx, roleHolder)
	if err != nil {
		return 0, 0, err
	}
	b, g, err := r.proxies(ctx, holder)
	if err != nil {
		return 0, 0, err
	}
	if baseline, err = r.idleStreams(ctx, b, n); err != nil {
		return 0, 0, err
	}
	if gateway, err = r.idleStreams(ctx, g, n); err != nil {
		return 0, 0, err
	}
	return baseline, gateway, r.group.Stop()
}

func (r *rig) idleStreams(ctx context.Context, proxy target, n int) (bytesEach float64, err error) {
	before, err := proxy.memory(ctx, r.opt.steady)
	if err != nil {
		return 0, err
	}
	crowd, err := r.gather(ctx, proxy, n, false)
	if err != nil {
		return 0, err
	}
	defer crowd.Leave()
	during, err := proxy.memory(ctx, r.opt.steady)
	if err != nil {
		return 0, err
	}
	return float64(during-before) / float64(n), proxy.heapProfile(ctx, "streams")
}

// idleGateway returns the MiB of a gateway that has an MCP server and has
// answered one run.
func (r *rig) idleGateway(ctx context.Context) (float64, error) {
	l, err := r.loopServers(ctx)
	if err != nil {
		return 0, err
	}
	defer l.client.close()
	g, err := r.loopSide(ctx, l, "parallel")
	if err != nil {
		return 0, err
	}
	if err := l.pass(ctx, g, plan{of: inRow(2, 0), runs: 1, width: 1}, false); err != nil {
		return 0, err
	}
	n, err := g.memory(ctx, r.opt.steady)
	return float64(n) / (1 << 20), err
}

// memory returns the process's RssAnon once it has not grown for a while.
func (t target) memory(ctx context.Context, steady time.Duration) (int64, error) {
	most, at := int64(0), time.Now()
	var now int64
	err := until(ctx, patience, "memory that does not grow", func() (bool, error) {
		var err error
		if now, err = t.proc.RssAnon(); now > most {
			most, at = now, time.Now()
		}
		return time.Since(at) >= steady, err
	})
	return now, err
}
