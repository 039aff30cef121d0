package main

import (
	"context"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/load"
	"github.com/turnpike-gateway/turnpike/bench/stats"
	"github.com/turnpike-gateway/turnpike/bench/wire"
)

// relayGates are the least share of the baseline's rate that passes.
func relayGates() gates {
	return gates{table: stats.AtLeast(0.8), floor: stats.AtLeast(0.6)}
}

// relay is a case of pure pass-through, gateway against baseline.
type relay struct {
	unit   string
	size   int // of a request body, in bytes; 0 = small
	stream bool
}

// run makes pairs of passes, baseline then gateway, after one unmeasured pair.
// The ratio is taken within each pair, so that what slows the whole machine
// for a second slows both sides of it.
func (c relay) run(ctx context.Context, r *rig) ([]row, error) {
	baseline, gateway, err := r.relayTargets(ctx)
	if err != nil {
		return nil, err
	}
	var ratios []float64
	var base, gate measured
	for i := -1; i < r.opt.pairs; i++ {
		b, err := c.pass(ctx, r, baseline)
		if err != nil {
			return nil, fmt.Errorf("baseline: %w", err)
		}
		if b.Wrong() > 0 {
			return nil, fmt.Errorf("the baseline's answers are no measure: %s", b.Describe())
		}
		g, err := c.pass(ctx, r, gateway)
		if err != nil {
			return nil, fmt.Errorf("gateway: %w\n%s", err, gateway.proc.Tail())
		}
		if i < 0 {
			gate.Faults, gate.First = g.Faults, g.First // also while warming up, wrong is wrong
			continue
		}
		ratios = append(ratios, g.Rate()/b.Rate())
		base, gate = base.add(b), gate.add(g)
	}
	return c.rows(ratios, base, gate, r.opt.gate(relayGates())), nil
}

func (c relay) rows(ratios []float64, base, gate measured, rate stats.Gate) []row {
	rows := []row{{
		what: c.unit + ", gateway / baseline", digits: 3,
		seen: stats.Summarize(ratios), gate: rate,
		note: fmt.Sprintf("baseline %s; gateway %s", base.describe(c.unit), gate.describe(c.unit)),
	}}
	if gate.Wrong() > 0 {
		rows = append(rows, row{what: "wrong answers", seen: stats.Exactly(float64(gate.Wrong())),
			gate: stats.AtMost(0), note: gate.Describe()})
	}
	return rows
}

// measured is a tally with the processor time that the proxy spent on it.
type measured struct {
	load.Tally
	cpu   time.Duration
	noCPU bool // this machine does not tell
}

func (m measured) add(o measured) measured {
	return measured{m.Tally.Add(o.Tally), m.cpu + o.cpu, m.noCPU || o.noCPU}
}

func (m measured) describe(unit string) string {
	s := fmt.Sprintf("%.0f %s", m.Rate(), unit)
	n := m.Answers + m.Warm
	if m.noCPU || n == 0 {
		return s + ", CPU unknown"
	}
	return fmt.Sprintf("%s, %.3f ms CPU each", s, m.cpu.Seconds()*1000/float64(n))
}

// pass makes one pass of the case's length.
func (c relay) pass(ctx context.Context, r *rig, t target) (measured, error) {
	return r.load(ctx, t, load.Plan{For: r.opt.pass, Lanes: c.lanes(t.addr, r)})
}

// load makes one pass and takes the proxy's processor time around it.
func (r *rig) load(ctx context.Context, t target, p load.Plan) (measured, error) {
	p.Addr = t.addr
	before, err := t.proc.CPU()
	m := measured{noCPU: err != nil}
	if m.Tally, err = load.Run(ctx, p); err != nil {
		return m, err
	}
	after, err := t.proc.CPU()
	m.cpu, m.noCPU = after-before, m.noCPU || err != nil
	return m, nil
}

// lanes returns the exchanges of each connection: two, in turn, that no other
// connection makes, so that an answer given to the wrong request shows.
func (c relay) lanes(addr string, r *rig) [][]load.Exchange {
	lanes := make([][]load.Exchange, r.opt.concurrency)
	for i := range lanes {
		for v := range 2 {
			body := wire.Body(fmt.Sprintf("s%02dv%d", i, v), c.size, c.stream)
			lanes[i] = append(lanes[i], load.Exchange{
				Request: load.Post(addr, wire.Path, r.clientKey, body),
				Want:    wanted(body),
			})
		}
	}
	return lanes
}

func wanted(body []byte) load.Answer {
	sum, stream, err := wire.Read(body)
	switch {
	case err != nil:
		panic(err) // our own body
	case stream:
		return load.Answer{Status: 200, ContentType: "text/event-stream", Body: wire.Stream(sum)}
	}
	return load.Answer{Status: 200, ContentType: "application/json", Body: wire.JSON(sum)}
}

// relayTargets starts an upstream and, in front of it, the baseline and the
// gateway, or with -self a second baseline.
func (r *rig) relayTargets(ctx context.Context) (baseline, gateway target, err error) {
	upstream, err := r.child(ctx, roleUpstream)
	if err != nil {
		return baseline, gateway, err
	}
	return r.proxies(ctx, upstream)
}

// proxies starts the baseline and the gateway in front of an upstream.
func (r *rig) proxies(ctx context.Context, upstream target) (baseline, gateway target, err error) {
	if baseline, err = r.child(ctx, roleBaseline, upstreamVar+"="+upstream.addr); err != nil {
		return baseline, gateway, err
	}
	if r.opt.self {
		gateway, err = r.child(ctx, roleBaseline, upstreamVar+"="+upstream.addr)
	} else {
		gateway, err = r.startGateway(ctx, gatewayConfig{provider: upstream.addr})
	}
	return baseline, gateway, err
}
