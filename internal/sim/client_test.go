package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// client wants one run. One with a key sends its request until it has seen the
// end; one without sends it once, but for refusals.
type client struct {
	w       *world
	id, org string
	key     *journal.SubmitKey // nil = a light run
	script  [][]string         // the tools that the model asks for in each round
	like    run.Request        // what every request of the client says
	conns   []*conn
	talk    *session // whose turns have this model; nil = none
	remark  *remark  // the turn of a talk that the client wants; nil = none
	window  int      // what its provider takes, in tokens, and tells only when it refuses; 0 = everything
}

// populate invents the clients of a world. Those of different orgs use the same
// keys.
func (w *world) populate() {
	slots := 3 + w.chance("slots").IntN(4)
	for _, org := range orgs() {
		for n := range 9 {
			w.clients = append(w.clients, w.newClient(org, n, n < 6, slots))
		}
	}
	w.converse(slots)
	w.talk(slots)
}

// liveOrNot is what a surface that streams, or one that does not, says it sends.
func liveOrNot(live bool) []model.DeltaKind {
	if !live {
		return nil
	}
	return []model.DeltaKind{model.TextDelta, model.ReasoningDelta, model.RefusalDelta}
}

func orgs() []string { return []string{"red", "blue"} }

func (w *world) newClient(org string, n int, durable bool, slots int) *client {
	c := &client{w: w, id: fmt.Sprintf("%s-c%d", org, n), org: org}
	r := w.chance("client", c.id)
	for range 1 + r.IntN(4) {
		var round []string
		for range 1 + r.IntN(3) {
			round = append(round, string(classes()[r.IntN(3)]))
		}
		c.script = append(c.script, round)
	}
	c.like = run.Request{
		Who:    run.Who{Org: org, Principal: "p", Surface: "sim"},
		Input:  run.Input{Model: c.model()},
		Reply:  run.Reply{Attach: r.IntN(2) == 0},
		Policy: loop.Policy{Grade: loop.Light, MaxTokens: int64(60 + r.IntN(200)), Limits: budget.Limits{ActiveMS: int64(20_000 + r.IntN(100_000))}.Clamp(budget.MaxRounds), Parallelism: []loop.Parallelism{loop.Parallel, loop.Safe, loop.Serial}[r.IntN(3)], Slots: slots, Budgets: w.budgets(), Live: liveOrNot(r.IntN(2) == 0)},
	}
	if r.IntN(3) == 0 {
		c.like.Policy.Limits.Tokens = int64(400 + r.IntN(2000))
		if r.IntN(2) == 0 {
			c.like.Policy.Limits.OnLimit, c.like.Policy.Limits.KeepBack = budget.Answer, 15
		}
	}
	if w.swarm.listFails > 0 {
		c.like.Policy.Parallelism = loop.Serial // calls of a tool that is gone end at once, so that their order would be chance
	}
	c.long()
	if w.chance("continues", c.id).IntN(3) == 0 {
		c.like.Policy.Continuations = 3
	}
	c.like.Policy.CatalogTTLNS = []int64{0, int64(10 * time.Second)}[r.IntN(2)]
	c.gate()
	if durable {
		c.key = &journal.SubmitKey{Principal: "p", Key: fmt.Sprint("k", n), Hash: "h" + c.id}
		c.like.Policy.Grade, c.like.Key = loop.Durable, c.key
		c.pauses()
	}
	return c
}

// long gives some clients more to say than the model takes: with a threshold, or with a window that only the provider knows.
func (c *client) long() {
	r := c.w.chance("context", c.id)
	switch r.IntN(4) {
	case 0:
		c.like.Policy.Context = loop.ContextPolicy{Mode: loop.ContextAuto, Threshold: int64(120 + r.IntN(150))}
	case 1:
		c.like.Policy.Context = loop.ContextPolicy{Mode: loop.ContextAuto}
		c.window = 256 + r.IntN(60)
	}
}

// budgets are those of every org: two, so that one can have room and the other
// none.
func (w *world) budgets() []budget.Shared {
	r := w.chance("budgets")
	most := int64(1_000_000)
	if w.swarm.tight {
		most = 1_000 + r.Int64N(9_000)
	}
	return []budget.Shared{
		{Scope: "day", Limit: budget.Amount{Tokens: most}},
		{Scope: "month", Limit: budget.Amount{Tokens: most * (80 + r.Int64N(60)) / 100}},
	}
}

func (c *client) model() string { return "m-" + c.id }

func (c *client) targets(p *process) []route.Target {
	return []route.Target{{Target: loop.Target{Provider: "a", Model: "a"}, Client: speaker{p, c}}, {Target: loop.Target{Provider: "b", Model: "b"}, Client: speaker{p, c}}}
}

func (c *client) servers(p *process) []catalog.Server {
	return []catalog.Server{{Name: "s", Source: server{p, c.org}}}
}

// request is the client's request as a process decodes it.
func (c *client) request(p *process) *run.Request {
	req := c.like
	req.Policy.Rules = p.build
	req.Items = []item.Item{item.NewText(item.User, "org="+c.org+" client="+c.id)}
	req.Targets, req.Servers = c.targets(p), c.servers(p)
	if c.remark != nil {
		c.remark.request(p, &req)
	}
	return &req
}

// live sends the request until there is nothing left to want.
func (c *client) live() {
	defer c.leave()
	c.sends(90 * time.Second)
}

// sends sends the request until there is nothing left to want; false = the world is over before. most is how long the
// client waits first.
func (c *client) sends(most time.Duration) bool {
	r := c.w.chance("sends", c.id)
	pause := between(r, 0, most)
	for {
		var p *process
		goesOn := c.w.wait(context.Background(), c.id+" sends", pause, func(chance *rand.Rand) {
			p = c.w.replicas[chance.IntN(replicas)].serving()
		})
		if !goesOn || p != nil && c.send(p, r) {
			return goesOn
		}
		pause = between(r, 100*time.Millisecond, 5*time.Second)
	}
}

func (c *client) leave() {
	c.w.mu.Lock()
	delete(c.w.waits, c.id)
	c.w.mu.Unlock()
	c.w.bus.ring()
}

// send sends the request once and reports whether that was the last time.
func (c *client) send(p *process, r *rand.Rand) bool {
	ctx, cut := context.WithCancel(context.Background())
	defer cut()
	conn := &conn{p: p, cut: cut}
	if r.Float64() < c.w.swarm.cuts && !c.w.calm() {
		conn.most = 1 + r.IntN(12)
	}
	if c.remark != nil && c.remark.hasty {
		conn.most = 1
	}
	if r.IntN(3) == 0 && !c.w.calm() {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, between(r, 2*time.Second, 40*time.Second))
		defer stop()
	}
	known := c.key != nil && c.w.book.knows(c)
	err := p.runner.Run(ctx, c.request(p), conn)
	c.conns = append(c.conns, conn)
	c.remark.leaves(p)
	switch {
	case conn.finished() && known:
		c.w.saw("a repeat was answered")
	case len(conn.events) > 0 && known:
		c.w.saw("a repeat attached")
	}
	if conn.finished() {
		return true
	}
	return c.understand(p, err, ctx.Err() != nil, len(conn.events) > 0)
}

// understand judges an answer that is not the end of a run, and reports whether
// it is the last one nevertheless.
func (c *client) understand(p *process, err error, left, begun bool) bool {
	var f *fault.Error
	isFault := errors.As(err, &f)
	switch {
	case p.isDead() || left || errors.Is(err, errOver):
		return c.key == nil // whoever has no key cannot come back
	case err == nil:
		c.w.violate("I8: the connection of %s ended without an end", c.id)
		return true
	case isFault && (f.Code == fault.Limited || f.Code == fault.Unavailable || f.Code == fault.Conflict):
		return c.key == nil && begun
	case c.key == nil && isFault && f.Reason == "run_lost": // whoever stands in for a zombie gives its light runs up
		c.w.saw("a light run was fenced off")
		return true
	}
	c.w.violate("I7: %s was answered %v", c.id, err)
	return true
}

// meddle cancels the client's run, and tries to cancel it from another org.
func (c *client) meddle() {
	r := c.w.chance("meddles", c.id)
	if r.Float64() >= c.w.swarm.cancels {
		return
	}
	for range 4 {
		var p *process
		var runID string
		goesOn := c.w.wait(context.Background(), c.id+" meddles", between(r, time.Second, 40*time.Second), func(chance *rand.Rand) {
			p, runID = c.w.replicas[chance.IntN(replicas)].serving(), c.w.book.runOf(c)
		})
		if !goesOn {
			return
		}
		if p == nil || runID == "" {
			continue
		}
		c.trespass(p, runID)
		if err := p.runner.Cancel(context.Background(), c.org, runID, org.Author{Principal: "meddler"}); err == nil {
			c.w.saw("a run was cancelled")
			c.w.book.cancelled(runKey{c.org, runID})
			return
		}
	}
}

// trespass tries to cancel the run of another org, or to find out that there is
// one.
func (c *client) trespass(p *process, runID string) {
	other := orgs()[0]
	if other == c.org {
		other = orgs()[1]
	}
	err := p.runner.Cancel(context.Background(), other, runID, org.Author{Principal: "trespasser"})
	var f *fault.Error
	if err == nil || errors.As(err, &f) && f.Code == fault.Conflict {
		c.w.violate("I11: org %s cancels run %s of org %s: %v", other, runID, c.org, err)
	}
	if errors.Is(err, org.ErrNotFound) {
		c.w.saw("a foreign run was not found")
	}
}

// conn is one connection of a client.
type conn struct {
	p      *process
	cut    context.CancelFunc
	most   int // events after which the client cuts it; 0 = it does not
	events []event.Event
}

// Emit implements eventlog.Sink. Nobody hears what a process says that was killed,
// or what comes after the cut.
func (c *conn) Emit(_ event.Position, e event.Event) error {
	if c.p.isDead() || c.most > 0 && len(c.events) >= c.most {
		return errKilled
	}
	c.events = append(c.events, e)
	if len(c.events) == c.most {
		c.cut()
	}
	return nil
}

func (c *conn) finished() bool {
	if len(c.events) == 0 {
		return false
	}
	_, ok := c.events[len(c.events)-1].(event.Finished)
	return ok
}

var _ model.Model = speaker{}
