package turnpike

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/connect"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The names of what the library puts into stores that the gateway shares with it.
const (
	orgID       = "local"
	surfaceName = "library"
	programID   = "program" // the caller without As
	functions   = "program" // the server whose tools are the agent's own
)

// engine performs the runs of an agent.
type engine struct {
	agent   *Agent
	log     *slog.Logger
	out     *egress.Egress
	catalog *catalog.Catalog
	archive journal.Archive
	effects effects
	memory  *volatile // nil = the runs are in a store
	durable bool      // they are

	recorder ledger.Recorder // of what runs do; nil = nothing is recorded

	runner  *run.Runner
	here    run.Performer    // of runner
	own     []tool.Tool      // of the agent itself: functions and resources
	servers []catalog.Server // of own first, then of the sources
	target  loop.Target

	life     context.Context // of what watches runs without callers; ends with close
	end      context.CancelFunc
	watching sync.WaitGroup

	card   sync.Once
	prices *money.Card // set by card

	mu     sync.Mutex
	calls  map[string]*call // runs that are performed here
	flying map[string]bool  // calls with effects that are under way, see effect.go
}

// effects is where the effects of calls are noted.
type effects interface {
	journal.Conversations
	journal.Effects
}

// prepare checks the agent and builds its engine, once.
func (a *Agent) prepare() (*engine, error) {
	a.once.Do(func() { a.engine, a.err = newEngine(a) })
	return a.engine, a.err
}

func newEngine(a *Agent) (*engine, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	e := &engine{agent: a, log: a.Log, calls: map[string]*call{}, flying: map[string]bool{}}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.life, e.end = context.WithCancel(context.Background())
	e.target = targetOf(a.Model)
	e.out = egress.New(a.Outbound.policy(), egress.Options{})
	e.catalog = catalog.New(catalog.Options{Log: e.log})
	e.own = slices.Clone(a.Tools)
	for _, p := range a.Resources {
		if p == nil {
			return nil, invalid("a resource of the agent is nil")
		}
		if c, ok := p.(interface{ Check() error }); ok {
			if err := c.Check(); err != nil {
				return nil, invalid("%v", err)
			}
		}
		e.own = append(e.own, p.Tools(everything())...)
	}
	if err := checkTools(e.own); err != nil {
		return nil, err
	}
	if len(e.own) > 0 {
		e.servers = []catalog.Server{{Name: functions, Source: e.gate(tool.Tools(e.own)), Revision: 1}}
	}
	if err := e.connect(); err != nil {
		return nil, err
	}
	var store ledger.Ledger
	if a.Store == nil {
		e.memory = &volatile{Journal: memory.Journal{NoAudit: true}}
		store = e.memory
	} else {
		store, e.durable = a.Store.Ledger(), true
	}
	e.archive, e.effects = store, store
	o := run.Options{
		Catalog: e.catalog, Journal: store, Conversations: store, Leases: store, Archive: store, LaterDeleter: store,
		Resources: e, Price: e.price, Hooks: asker{e}, Alone: true, Log: e.log,
	}
	if a.Audit != nil {
		e.recorder = a.Audit.Runs()
		o.Journal, o.Recorder = recordedRuns{store, e.recorder}, recordedCalls{e.recorder}
	}
	e.runner = run.New(o)
	e.here = e.runner.Performer()
	store.OnClose(e.close)
	return e, nil
}

// volatile is the memory of an agent without a store.
type volatile struct {
	memory.Journal
	conversations
}

type conversations = memory.Conversations

// OnClose implements ledger.Ledger: memory is not closed.
func (*volatile) OnClose(func()) {}

// close hands the runs that Start has begun over to whoever resumes them.
func (e *engine) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.end()
	e.runner.Close(ctx, 0)
	e.watching.Wait()
	e.catalog.Close()
	e.out.CloseIdleConnections()
}

// check returns what is wrong with the agent.
func (a *Agent) check() error {
	if a.Model == nil {
		return invalid("the agent has no Model")
	}
	if m, ok := a.Model.(model.Checked); ok {
		if err := m.Check(); err != nil {
			return invalid("Agent.Model: %v", err)
		}
	}
	for _, f := range []struct {
		field, value string
		may          []string
	}{
		{"Parallelism", string(a.Parallelism), []string{"", string(Parallel), string(Safe), string(Serial)}},
		{"Validation", string(a.Validation), []string{"", string(Strict), string(Lenient), string(NoValidation)}},
		{"ToolErrors", string(a.ToolErrors), []string{"", string(Recover), string(Abort)}},
	} {
		if !slices.Contains(f.may, f.value) {
			return invalid("Agent.%s is %q; use %s", f.field, f.value, strings.Join(f.may[1:], ", "))
		}
	}
	if form := map[string]any(nil); a.Output != nil && (json.Unmarshal(a.Output, &form) != nil || form == nil) {
		return invalid("Agent.Output is no JSON object; use a JSON Schema such as {\"type\":\"object\"}, or Into")
	}
	if a.ResultMaxBytes < 0 {
		return invalid("Agent.ResultMaxBytes is %d; use 0 or more", a.ResultMaxBytes)
	}
	for name, rate := range a.Rates {
		if _, err := rate.price(); err != nil {
			return invalid("Agent.Rates of %s: %v", name, err)
		}
	}
	if err := a.Compaction.check(); err != nil {
		return err
	}
	if err := a.Hooks.check(); err != nil {
		return err
	}
	return a.Limits.check()
}

// checkTools returns what is wrong with the agent's own tools.
func checkTools(tools []tool.Tool) error {
	seen := map[string]bool{}
	for _, t := range tools {
		if t == nil {
			return invalid("a tool of the agent is nil")
		}
		if c, ok := t.(tool.Checked); ok {
			if err := c.Check(); err != nil {
				return invalid("%v", err)
			}
		}
		def := t.Definition()
		switch _, err := catalog.Usable(def); {
		case def.Name == "":
			return invalid("a tool has no name")
		case err != nil:
			return invalid("tool %s: %v", def.Name, err)
		case seen[def.Name]:
			return invalid("two tools have the name %s", def.Name)
		}
		seen[def.Name] = true
	}
	return nil
}

// connect makes servers of the agent's sources.
func (e *engine) connect() error {
	seen := map[string]bool{}
	for i, source := range e.agent.Sources {
		if source == nil {
			return invalid("a source of the agent is nil")
		}
		server := catalog.Server{Name: fmt.Sprintf("source%d", i+1), Revision: 1}
		if n, ok := source.(interface{ Name() string }); ok && n.Name() != "" {
			server.Name = n.Name()
		}
		name := server.Name
		if name == functions {
			return invalid("a source has the name %s, which the agent's own tools have; give it another name, as with mcp.Source.Named", name)
		}
		if seen[name] {
			return invalid("two sources have the name %s; give one of them another name", name)
		}
		seen[name] = true
		if c, ok := source.(connect.Source); ok {
			connected, err := c.Connect(connect.Agent{
				Client: e.out.Guarded(egress.GuardedOptions{}), Changed: func() { e.catalog.Invalidate(orgID, name) }, Log: e.log,
			})
			if err != nil {
				return invalid("%v", err)
			}
			source, server.Required = connected.Source, connected.Required
		}
		server.Source = e.gate(source)
		e.servers = append(e.servers, server)
	}
	return nil
}

func (o Outbound) policy() egress.Policy {
	p := egress.DefaultPolicy()
	p.Allowlist, p.ExtraBlocked = o.Allow, o.Block
	return p
}

// price implements run.Options.Price.
func (e *engine) price(t loop.Target) money.Price {
	rate, ok := e.agent.Rates[t.Provider+"/"+t.Model]
	if !ok {
		rate, ok = e.agent.Rates[t.Model]
	}
	if ok {
		p, _ := rate.price() // was checked
		return p
	}
	return e.knownPrice(t, money.Date(clock.Wall().UTC().Format(time.DateOnly)))
}

// For implements run.Resources: the run is one that Resume continues.
func (e *engine) For(_ context.Context, a *loop.Accepted) ([]route.Target, []catalog.Server, error) {
	e.mu.Lock()
	c := e.calls[a.RunID]
	e.mu.Unlock()
	if c == nil {
		return nil, nil, fmt.Errorf("run %s is not resumed here", a.RunID)
	}
	c.caller.ID = a.Principal
	targets := make([]route.Target, len(a.Targets))
	for i, t := range a.Targets {
		if t.Provider != e.target.Provider || t.Model != e.target.Model {
			return nil, nil, fmt.Errorf("the run began with the model %s/%s, and the agent has %s/%s", t.Provider, t.Model, e.target.Provider, e.target.Model)
		}
		targets[i] = route.Target{Target: t, Client: c.client(a.Context)}
	}
	return targets, e.servers, nil
}

// enter notes that a run is performed here, until leave is called.
func (e *engine) enter(c *call) (leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.calls[c.id] // which performs the run: this one is refused
	e.calls[c.id] = c
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		c.left = true
		switch {
		case e.calls[c.id] != c:
		case before != nil && !before.left:
			e.calls[c.id] = before
		default:
			delete(e.calls, c.id)
		}
		if e.memory != nil {
			e.memory.Drop(orgID, c.id)
		}
	}
}

func newRunID() string { return id.NewOrdered("run_") }
