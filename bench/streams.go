package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/load"
)

const (
	idleGate = 15 // MiB of an idle gateway

	memoryTimeout = 15 * time.Second // until memory must stop growing
)

// streamGate bounds the memory of an idle stream, in multiples of the baseline's.
const streamGate = 0.97

// idle measures the memory of idle streams. Each pair has new processes: memory
// that a process keeps from earlier streams would hide what new ones take.
func idle(ctx context.Context, r *rig) ([]row, error) {
	n := r.opt.idleStreams
	var ratios, gate, base []float64
	for range r.opt.idlePairs {
		b, g, err := r.idlePair(ctx, n)
		if err != nil {
			return nil, err
		}
		ratios, base, gate = append(ratios, g/b), append(base, b), append(gate, g)
	}
	b, g := summarize(base), summarize(gate)
	rows := []row{{
		what: fmt.Sprintf("RssAnon of %d streams, gateway / baseline", n), digits: 3,
		seen: summarize(ratios), gate: r.opt.gate(atMost(streamGate)),
		note: fmt.Sprintf("a stream takes %.1f KiB of the baseline, %.1f KiB of the gateway (medians)", b.median/1024, g.median/1024),
	}}
	if r.opt.self {
		return rows, nil
	}
	alone, err := r.idleGateway(ctx)
	return append(rows, row{what: "RssAnon of an idle gateway, MiB", digits: 1, seen: exactly(alone), gate: r.opt.gate(atMost(idleGate))}), err
}

// idlePair returns how many bytes each of n streams takes in the two proxies.
func (r *rig) idlePair(ctx context.Context, n int) (baseline, gateway float64, err error) {
	upstream, err := r.child(ctx, rolePausing)
	if err != nil {
		return 0, 0, err
	}
	b, g, err := r.proxies(ctx, upstream, "")
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
	streams, err := r.openStreams(ctx, proxy, n, false)
	if err != nil {
		return 0, err
	}
	defer streams.Disconnect()
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
	if err := l.pass(ctx, g, plan{of: oneToolPerRound(2, 0), runs: 1, width: 1}, false); err != nil {
		return 0, err
	}
	n, err := g.memory(ctx, r.opt.steady)
	return float64(n) / (1 << 20), err
}

// memory returns the process's RssAnon once it has not grown for a while, apart from a few
// pages.
func (t target) memory(ctx context.Context, steady time.Duration) (int64, error) {
	most, at := int64(0), time.Now()
	var now int64
	err := until(ctx, memoryTimeout, "memory that does not grow", func() (bool, error) {
		var err error
		if now, err = t.proc.RssAnon(); now > most+most/256 {
			most, at = now, time.Now()
		}
		return time.Since(at) >= steady, err
	})
	return now, err
}

// disconnectTime is how long the gateway may keep requests open after the client
// has disconnected.
const disconnectTime = time.Second

// leak disconnects many clients at once, half of them before their answers begin and
// half in the middle, and counts the upstream streams that are still open after
// disconnectTime.
func leak(ctx context.Context, r *rig) ([]row, error) {
	upstream, err := r.child(ctx, rolePausing)
	if err != nil {
		return nil, err
	}
	_, gateway, err := r.proxies(ctx, upstream, "")
	if err != nil {
		return nil, err
	}
	n := r.opt.disconnects
	silent, err := r.openStreams(ctx, gateway, n/2, true)
	if err != nil {
		return nil, err
	}
	defer silent.Disconnect()
	begun, err := r.openStreams(ctx, gateway, n-n/2, false)
	if err != nil {
		return nil, err
	}
	defer begun.Disconnect()
	if err := waitOpen(ctx, upstream, n); err != nil {
		return nil, err
	}
	silent.Disconnect()
	begun.Disconnect()
	seen, err := countOpen(ctx, fmt.Sprintf("streams open 1 s after %d clients left", n), upstream)
	if err != nil || r.opt.self {
		return []row{seen}, err
	}
	runs, err := r.leakRuns(ctx)
	return append([]row{seen}, runs...), err
}

// leakRuns does the same with runs, half of them in a model call and half in a tool
// call.
func (r *rig) leakRuns(ctx context.Context) ([]row, error) {
	l, err := r.loopServers(ctx)
	if err != nil {
		return nil, err
	}
	defer l.client.close()
	n := r.opt.runDisconnects
	gateway, err := r.startGateway(ctx, gatewayConfig{provider: l.model.addr, mcp: l.tool.addr, slots: n, calls: n})
	if err != nil {
		return nil, err
	}
	connected, disconnect := context.WithCancel(ctx)
	defer disconnect()
	const longMS = 9000
	var runs sync.WaitGroup
	inTool := n / 2
	for i := range n {
		s := fake.Script{Run: i + 1, LatencyMS: longMS}
		if i < inTool {
			s = fake.Script{Run: i + 1, Rounds: [][]int{{longMS}}}
		}
		runs.Go(func() { _, _ = l.client.run(connected, gateway.addr, s) }) // it disconnects before the answer
	}
	err = waitOpen(ctx, l.tool, inTool)
	if err == nil {
		err = waitOpen(ctx, l.model, n-inTool)
	}
	disconnect()
	runs.Wait()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, gateway.proc.Tail())
	}
	model, err := countOpen(ctx, fmt.Sprintf("model calls, after %d clients of runs left", n), l.model)
	if err != nil {
		return nil, err
	}
	tool, err := countOpen(ctx, "tool calls, the same", l.tool)
	return []row{model, tool}, err
}

// waitOpen waits until n requests are open at a fake server.
func waitOpen(ctx context.Context, server target, n int) error {
	seen := 0
	err := until(ctx, 10*time.Second, fmt.Sprintf("%d open requests", n), func() (bool, error) {
		var err error
		seen, err = server.openRequests(ctx)
		return seen == n, err
	})
	if err != nil {
		return fmt.Errorf("%w; %d are", err, seen)
	}
	return nil
}

// countOpen counts the requests that are open at a fake server disconnectTime after
// the call. It returns as soon as there are none, and notes when that was.
func countOpen(ctx context.Context, what string, server target) (row, error) {
	left, began := 0, time.Now()
	r := row{what: what, gate: atMost(0)}
	err := until(ctx, 2*disconnectTime, "the count of open requests", func() (bool, error) {
		var err error
		left, err = server.openRequests(ctx)
		return left == 0 || time.Since(began) >= disconnectTime, err
	})
	if left == 0 {
		r.note = fmt.Sprintf("the last one ended within %.0f ms", time.Since(began).Seconds()*1000)
	}
	r.seen = exactly(float64(left))
	return r, err
}

// streamBody is the size of the request bodies of openStreams, in bytes.
const streamBody = 8 << 10

// openStreams opens n streams through the proxy to a [fake.PausingUpstream]. They
// pause after their first events; silent ones pause before them.
func (r *rig) openStreams(ctx context.Context, proxy target, n int, silent bool) (*load.Streams, error) {
	if files, known := openFiles(); known {
		if err := checkFileLimit(n, files); err != nil {
			return nil, err
		}
	}
	exchanges := make([]load.Exchange, n)
	for i := range exchanges {
		tag := fmt.Sprintf("held%05d", i)
		if silent {
			tag = fake.SilentTag + tag
		}
		body := fake.RequestBody(tag, streamBody, true)
		exchanges[i] = load.Exchange{Request: load.Post(proxy.addr, fake.ChatPath, r.clientKey, body), Want: wanted(body, fake.JSONAnswer)}
		if !silent {
			exchanges[i].Mark = len(fake.FirstPart(exchanges[i].Want.Body))
		}
	}
	streams, err := load.OpenStreams(ctx, proxy.addr, exchanges)
	if err != nil {
		return nil, fmt.Errorf("%d streams at the same time: %w\n%s", n, err, proxy.proc.Tail())
	}
	return streams, nil
}

// checkFileLimit fails if the limit of open files is too low for n streams at the
// same time: the gateway has two connections for each.
func checkFileLimit(n int, files uint64) error {
	const others = 200
	if need := uint64(2*n + others); files < need {
		return fmt.Errorf("%d streams at the same time need %d open files, and a process may have %d (ulimit -Hn)", n, need, files)
	}
	return nil
}

// openRequests asks a fake server how many requests it is answering.
func (t target) openRequests(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.addr+"/open", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 100))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// resume ends the pause of the streams of a [fake.PausingUpstream].
func (t target) resume(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.addr+"/resume", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
