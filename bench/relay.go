package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/load"
)

// The rate of the gateway divided by that of the baseline, and the gateway's CPU time of a small
// relayed request in multiples of the baseline's.
const (
	relayGate    = 0.8
	relayCPUGate = 1.3
)

// The rate at many connections has a gate of its own: the baseline gains more from such a load.
const (
	manyConnections     = 128
	manyConnectionsGate = 0.7
)

// relay is a pass-through case.
type relay struct {
	unit        string
	size        int // of a request body, in bytes; 0 = small
	stream      bool
	kind        string // of the provider: "" = chat completions, openai-responses = responses
	connections int    // 0 = as many as the command line says
}

// run compares the gateway with the baseline.
func (c relay) run(ctx context.Context, r *rig) ([]row, error) {
	baseline, gateway, err := r.relayTargets(ctx, c.kind)
	if err != nil {
		return nil, err
	}
	p, err := c.measurePairs(ctx, r, baseline, gateway)
	if err != nil {
		return nil, err
	}
	if p.first.Wrong() > 0 {
		return nil, fmt.Errorf("wrong answers of the baseline: %s", p.first.Describe())
	}
	rate, cpu := atLeast(relayGate), atMost(relayCPUGate)
	if c.connections == manyConnections {
		rate, cpu = atLeast(manyConnectionsGate), threshold{}
	}
	rows := c.rows(p.ratios, p.first, p.second, r.opt.gate(rate))
	if len(p.cpus) > 0 && c.size == 0 && !c.stream {
		rows = append(rows, row{what: "CPU of a request, gateway / baseline", digits: 3, seen: summarize(p.cpus), gate: r.opt.gate(cpu)})
	}
	return rows, nil
}

// compare compares the gateway with the one before it.
func (c relay) compare(ctx context.Context, r *rig) (comparison, error) {
	upstream, err := r.child(ctx, roleUpstream)
	if err != nil {
		return comparison{}, err
	}
	before, err := r.startGateway(ctx, gatewayConfig{program: r.opt.against, provider: upstream.addr, kind: c.kind})
	if err != nil {
		return comparison{}, fmt.Errorf("before: %w", err)
	}
	now, err := r.startGateway(ctx, gatewayConfig{provider: upstream.addr, kind: c.kind})
	if err != nil {
		return comparison{}, err
	}
	p, err := c.measurePairs(ctx, r, before, now)
	if err != nil {
		return comparison{}, err
	}
	if p.first.Wrong()+p.second.Wrong() > 0 {
		return comparison{}, fmt.Errorf("wrong answers: before %s; now %s", p.first.Describe(), p.second.Describe())
	}
	return comparison{what: c.unit, ratios: p.ratios, cpuBefore: p.first.each(), cpuNow: p.second.each()}, nil
}

// pairs is what pairs of passes on two targets have measured.
type pairs struct {
	ratios        []float64 // of the rates of each pair, second / first
	cpus          []float64 // of the CPU of an answer, the same; empty where it is unknown
	first, second measured  // wrong answers of the pair that is not measured are counted
	warm          int       // answers of the second in the pair that is not measured
}

// measurePairs makes pairs of passes, after one pair that is not measured: first, second, second, first, and so on.
// Each pair gives a ratio: what slows the whole machine for a second slows both passes.
func (c relay) measurePairs(ctx context.Context, r *rig, first, second target) (pairs, error) {
	var p pairs
	for i := -1; i < r.opt.pairs; i++ {
		var got [2]measured // of first, of second
		for k := range got {
			side := (k + i + 1) % 2
			t := [...]target{first, second}[side]
			var err error
			if got[side], err = c.pass(ctx, r, t); err != nil {
				return p, fmt.Errorf("%w\n%s", err, t.proc.Tail())
			}
		}
		a, b := got[0], got[1]
		if i < 0 {
			p.first.Faults, p.first.First = a.Faults, a.First
			p.second.Faults, p.second.First = b.Faults, b.First
			p.warm = b.Answers + b.Warm
			continue
		}
		p.ratios = append(p.ratios, b.Rate()/a.Rate())
		if ratio := b.each() / a.each(); !math.IsNaN(ratio) {
			p.cpus = append(p.cpus, ratio)
		}
		p.first, p.second = p.first.add(a), p.second.add(b)
	}
	return p, nil
}

func (c relay) rows(ratios []float64, base, gate measured, rate threshold) []row {
	rows := []row{{
		what: c.unit + ", gateway / baseline", digits: 3,
		seen: summarize(ratios), gate: rate,
		note: fmt.Sprintf("baseline %s; gateway %s", base.describe(c.unit), gate.describe(c.unit)),
	}}
	if gate.Wrong() > 0 {
		rows = append(rows, row{what: "wrong answers", seen: exactly(float64(gate.Wrong())),
			gate: atMost(0), note: gate.Describe()})
	}
	return rows
}

// measured is the tally of passes and the CPU time that the proxy used.
type measured struct {
	load.Tally
	cpu   time.Duration
	noCPU bool // the system does not report it
}

func (m measured) add(o measured) measured {
	return measured{m.Tally.Add(o.Tally), m.cpu + o.cpu, m.noCPU || o.noCPU}
}

func (m measured) describe(unit string) string {
	s := fmt.Sprintf("%.0f %s", m.Rate(), unit)
	ms := m.each()
	if math.IsNaN(ms) {
		return s + ", CPU unknown"
	}
	return fmt.Sprintf("%s, %.3f ms CPU each", s, ms)
}

// each returns the milliseconds of CPU time for each answer, or NaN if they are unknown.
func (m measured) each() float64 {
	n := m.Answers + m.Warm
	if m.noCPU || n == 0 || m.cpu == 0 {
		return math.NaN()
	}
	return m.cpu.Seconds() * 1000 / float64(n)
}

// pass makes one pass of the case's length.
func (c relay) pass(ctx context.Context, r *rig, t target) (measured, error) {
	return r.load(ctx, t, load.Plan{For: r.opt.pass, Connections: c.exchanges(t.addr, r)})
}

// load makes one pass and measures the CPU time of the proxy.
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

// exchanges returns two exchanges for each connection, which it makes in turn. No
// two are equal: an answer to another request is found.
func (c relay) exchanges(addr string, r *rig) [][]load.Exchange {
	all := make([][]load.Exchange, cmp.Or(c.connections, r.opt.concurrency))
	for i := range all {
		for v := range 2 {
			tag := fmt.Sprintf("s%03dv%d", i, v)
			if c.kind != "" {
				body := fake.ResponsesBody(tag)
				all[i] = append(all[i], load.Exchange{
					Request: load.Post(addr, fake.ResponsesPath, r.clientKey, body, fake.LoopOff), Want: wanted(body, fake.ResponsesAnswer),
				})
				continue
			}
			body := fake.RequestBody(tag, c.size, c.stream)
			all[i] = append(all[i], load.Exchange{
				Request: load.Post(addr, fake.ChatPath, r.clientKey, body), Want: wanted(body, fake.JSONAnswer),
			})
		}
	}
	return all
}

// wanted returns the right answer to a request, which is whole if it asks for no stream.
func wanted(body []byte, whole func(fake.Sum) []byte) load.Answer {
	sum, stream, err := fake.ReadRequest(body)
	switch {
	case err != nil:
		panic(err) // RequestBody made it
	case stream:
		return load.Answer{Status: 200, ContentType: "text/event-stream", Body: fake.StreamAnswer(sum)}
	}
	return load.Answer{Status: 200, ContentType: "application/json", Body: whole(sum)}
}

// relayTargets starts an upstream and, in front of it, the baseline and the
// gateway, or with -self a second baseline. The provider of the gateway is of this kind.
func (r *rig) relayTargets(ctx context.Context, kind string) (baseline, gateway target, err error) {
	upstream, err := r.child(ctx, roleUpstream)
	if err != nil {
		return baseline, gateway, err
	}
	return r.proxies(ctx, upstream, kind)
}

// proxies starts the baseline and the gateway in front of an upstream.
func (r *rig) proxies(ctx context.Context, upstream target, kind string) (baseline, gateway target, err error) {
	if baseline, err = r.child(ctx, roleBaseline, upstreamVar+"="+upstream.addr); err != nil {
		return baseline, gateway, err
	}
	if r.opt.self {
		gateway, err = r.child(ctx, roleBaseline, upstreamVar+"="+upstream.addr)
	} else {
		gateway, err = r.startGateway(ctx, gatewayConfig{provider: upstream.addr, kind: kind})
	}
	return baseline, gateway, err
}

// cuts counts the streams that do not arrive exactly as they were sent: first
// streams one after another on each connection, the next request right after the
// end of the stream before, then many streams at the same time.
func cuts(ctx context.Context, r *rig) ([]row, error) {
	_, gateway, err := r.relayTargets(ctx, "")
	if err != nil {
		return nil, err
	}
	c := relay{stream: true}
	got, err := r.load(ctx, gateway, load.Plan{Count: r.opt.streams, Connections: c.exchanges(gateway.addr, r)})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, gateway.proc.Tail())
	}
	rows := []row{{
		what: fmt.Sprintf("cut or altered streams, of %d", got.Answers),
		seen: exactly(float64(got.Wrong())), gate: atMost(0),
		note: fmt.Sprintf("%s; %s", got.Describe(), got.describe("streams/s")),
	}}
	atOnce, err := r.cutsAtOnce(ctx)
	return append(rows, atOnce...), err
}

// cutsAtOnce opens streams through the gateway that pause in the middle, and
// continue when all of them are open.
func (r *rig) cutsAtOnce(ctx context.Context) ([]row, error) {
	upstream, err := r.child(ctx, rolePausing)
	if err != nil {
		return nil, err
	}
	_, gateway, err := r.proxies(ctx, upstream, "")
	if err != nil {
		return nil, err
	}
	streams, err := r.openStreams(ctx, gateway, r.opt.streamsAtOnce, false)
	if err != nil {
		return nil, err
	}
	if err := upstream.resume(ctx); err != nil {
		streams.Disconnect()
		return nil, err
	}
	got := streams.Finish()
	return []row{{
		what: fmt.Sprintf("the same of %d at the same time", got.Answers),
		seen: exactly(float64(got.Wrong())), gate: atMost(0), note: got.Describe(),
	}}, nil
}

// store passes requests through while the database of the gateway is locked. A
// request that needs the database must hang meanwhile: it shows that the lock works.
func store(ctx context.Context, r *rig) ([]row, error) {
	_, gateway, err := r.relayTargets(ctx, "")
	if err != nil {
		return nil, err
	}
	c := relay{}
	plan := load.Plan{Connections: c.exchanges(gateway.addr, r), Count: r.opt.lockedRequests}
	if err := r.requestStore(ctx, gateway); err != nil {
		return nil, err
	}
	lock, err := lockDatabase(filepath.Join(gateway.data, "turnpike.db"))
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := r.requestStore(ctx, gateway); !errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("a request that needs the database was answered while it was locked: %w", errors.Join(err))
	}
	got, err := r.load(ctx, gateway, plan)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, gateway.proc.Tail())
	}
	waited := 0
	if got.Elapsed > time.Second {
		waited = got.Answers // requests that need the store wait for five seconds
	}
	if err := lock.Close(); err != nil {
		return nil, err
	}
	if err := r.requestStore(ctx, gateway); err != nil {
		return nil, fmt.Errorf("after the lock: %w", err)
	}
	return []row{{
		what: fmt.Sprintf("of %d requests, those that need the store", got.Answers),
		seen: exactly(float64(max(waited, got.Wrong()))), gate: atMost(0),
		note: fmt.Sprintf("with the database locked: %s; %s", got.Describe(), got.describe("requests/s")),
	}}, nil
}

// requestStore makes a request that needs the database. It times out after 300 ms.
func (r *rig) requestStore(ctx context.Context, gateway target) error {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+gateway.addr+"/api/keys", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.clientKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /api/keys: status %d", resp.StatusCode)
	}
	return nil
}
