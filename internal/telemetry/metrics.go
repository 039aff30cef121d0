package telemetry

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

// metrics holds the Prometheus metrics. The startRun method accepts a nil *metrics.
type metrics struct {
	rounds, relays *labelLimiter[*requestMetrics]
	tools          *labelLimiter[*toolMetrics]
	builtins       *prometheus.CounterVec   // calls of built-in tools
	builtinsTook   *prometheus.HistogramVec // how long their executions took
	decisions      *prometheus.HistogramVec // how long approvals waited, by decision
	hooks          *prometheus.CounterVec   // hooks that have run
	stored         *prometheus.CounterVec   // operations on files of buckets
	webhooks       *prometheus.CounterVec   // attempts to deliver messages, by outcome
	orgs           *labelLimiter[*orgMetrics]
	relaysOpen     prometheus.Gauge
	failures       counters               // failed model calls, by provider and error
	compactions    *prometheus.CounterVec // attempts to make prompts shorter, by outcome
	freed          prometheus.Counter     // tokens

	kind func(provider string) string // "" = it is not configured
}

// requestMetrics holds the metrics of the rounds, or of the relays, of an org and model.
type requestMetrics struct {
	ok, failed, unknown      prometheus.Counter
	duration, ttft           prometheus.Observer
	input, output            prometheus.Counter
	cachedInput, outReasoned prometheus.Counter
	cost                     prometheus.Counter
}

// toolMetrics holds the metrics of the tool calls of an org and server.
type toolMetrics struct {
	outcomes counters
	duration prometheus.Observer
}

// orgMetrics holds the metrics of an org.
type orgMetrics struct {
	slots     prometheus.Gauge
	runs      counters // by surface and reason
	exhausted counters // by budget
	refused   counters // by code
	approvals counters // by action
}

// counters are the counters of a vector whose last labels have a fixed set of
// values. It caches the lookup of each counter.
type counters struct {
	vec   *prometheus.CounterVec
	first []string // the values of the first labels
	byKey *sync.Map
}

func (c counters) inc(key string, labels ...string) {
	found, ok := c.byKey.Load(key)
	if !ok {
		found, _ = c.byKey.LoadOrStore(key, c.vec.WithLabelValues(append(c.first[:len(c.first):len(c.first)], labels...)...))
	}
	found.(prometheus.Counter).Inc()
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "turnpike", Name: name, Help: help}, labels)
}

// secondsHistogram returns a histogram with buckets from 5 ms to 5 minutes.
func secondsHistogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "turnpike", Name: name, Help: help,
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
	}, labels)
}

func newMetrics(r *prometheus.Registry, o Options) *metrics {
	m := &metrics{kind: o.Kind, relaysOpen: prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "relays_in_flight", Help: "Relayed requests in progress.",
	})}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.relaysOpen)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "turnpike", Name: "build_info", Help: "1, with the version of the gateway and of Go."}, []string{"version", "go_version"})
	build.WithLabelValues(o.Version, runtime.Version()).Set(1)
	r.MustRegister(build)
	m.registerRequests(r)
	m.registerTools(r)
	m.registerOrgs(r)
	m.registerApprovals(r, o.Waiting)
	m.stored = counter("bucket_operations_total", "Operations on files of buckets, by operation (list, read, write or delete), kind of the bucket and outcome: ok, refused (not found, or not valid), over_limit or failed.", "operation", "kind", "outcome")
	r.MustRegister(m.stored)
	m.hooks = counter("hooks_total", "Hooks that have run, by point, type, verdict (what took effect) and whether the hook has failed.", "point", "type", "verdict", "failed")
	r.MustRegister(m.hooks)
	registerQueued(r, o.QueuedRuns)
	m.registerWebhooks(r, o.Outbox)
	registerServers(r, o.Servers)
	registerBreakers(r, o.Targets)
	failures := counter("provider_errors_total", "Failed attempts at model calls and failed relayed requests, by the HTTP status of the provider or the class of the failure.", "provider", "error")
	r.MustRegister(failures)
	m.failures = counters{failures, nil, new(sync.Map)}
	m.compactions = counter("compactions_total", "Attempts to make the prompts of runs shorter, by outcome: pruned, summarized, none (nothing could be freed) or failed (the summary was not written).", "outcome")
	freed := counter("compacted_tokens_total", "Tokens by which prompts of runs were made shorter, estimated.")
	r.MustRegister(m.compactions, freed)
	m.freed = freed.WithLabelValues()
	if o.Expiring != nil {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "turnpike", Name: "keys_expiring", Help: "API keys that expire within 7 days, over all orgs. Expired and revoked keys do not count.",
		}, func() float64 { return float64(o.Expiring()) }))
	}
	if o.MCPSessions != nil {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "turnpike", Name: "mcp_sessions", Help: "Sessions of outside MCP clients at /mcp, over all orgs.",
		}, func() float64 { return float64(o.MCPSessions()) }))
	}
	if o.BudgetWrites != nil {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "turnpike", Name: "budget_writes_total", Help: "Writes to the store for budgets of relayed requests and of runs that are not durable.",
		}, func() float64 { return float64(o.BudgetWrites()) }))
	}
	registerReplicas(r, o.Replicas)
	if o.PoolWaits != nil {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "turnpike", Name: "store_pool_waits_total", Help: "Reads that had to wait for a connection to the database.",
		}, func() float64 { n, _ := o.PoolWaits(); return float64(n) }), prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "turnpike", Name: "store_pool_wait_seconds_total",
			Help: "Seconds for which reads had to wait for a connection to the database.",
		}, func() float64 { _, waited := o.PoolWaits(); return waited.Seconds() }))
	}
	if o.Queue != nil {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "turnpike", Name: "store_queue_length", Help: "Writes that wait for the store, including the group that is being written.",
		}, func() float64 { return float64(o.Queue()) }))
	}
	return m
}

// registerReplicas registers what a replica knows of itself and the others; nothing for one process.
func registerReplicas(r *prometheus.Registry, replicas func() (living int, lag int64, out time.Duration)) {
	if replicas == nil {
		return
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "replica_living", Help: "Replicas that live and are not stopping, by which limits are divided.",
	}, func() float64 {
		living, _, _ := replicas()
		return float64(living)
	}))
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "replica_epoch_lag",
		Help: "Changes of keys, servers and settings that this replica knows of and has not applied.",
	}, func() float64 {
		_, lag, _ := replicas()
		return float64(lag)
	}))
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "turnpike", Name: "replica_out_seconds_total",
		Help: "Seconds in which this replica has refused requests because it could not confirm its settings.",
	}, func() float64 {
		_, _, out := replicas()
		return out.Seconds()
	}))
}

func (m *metrics) registerRequests(r *prometheus.Registry) {
	total := counter("requests_total", "Rounds of runs (surface agent) and relayed requests (surface relay), by status.", "surface", "org", "provider", "model", "status")
	took := secondsHistogram("request_duration_seconds", "Duration of the last attempt of a round, or of a whole relayed request.", "surface", "org", "provider", "model")
	first := secondsHistogram("time_to_first_token_seconds", "Time to the first token of a round, or to the first byte of a relayed response.", "surface", "org", "provider", "model")
	tokens := counter("tokens_total", "Tokens of rounds, as reported by providers. input includes cached_input; output includes reasoning_output if the provider reports it.", "org", "provider", "model", "type")
	cost := counter("cost_usd_total", "Cost of model calls in US dollars, by the prices that were in effect when their runs began. Models without a price count 0.", "org", "provider", "model")
	r.MustRegister(total, took, first, tokens, cost)
	of := func(surface string, p series) *requestMetrics {
		count := func(status string) prometheus.Counter {
			return total.WithLabelValues(surface, p.org, p.provider, p.name, status)
		}
		return &requestMetrics{
			ok: count(audit.OK), failed: count(audit.Failed), unknown: count(audit.Unknown),
			duration: took.WithLabelValues(surface, p.org, p.provider, p.name), ttft: first.WithLabelValues(surface, p.org, p.provider, p.name),
		}
	}
	m.relays = newLabelLimiter(func(p series) *requestMetrics { return of(audit.SurfaceRelay, p) })
	m.rounds = newLabelLimiter(func(p series) *requestMetrics {
		h := of(audit.SurfaceAgent, p)
		of := func(kind string) prometheus.Counter { return tokens.WithLabelValues(p.org, p.provider, p.name, kind) }
		h.input, h.output, h.cachedInput, h.outReasoned = of("input"), of("output"), of("cached_input"), of("reasoning_output")
		h.cost = cost.WithLabelValues(p.org, p.provider, p.name)
		return h
	})
}

func (m *metrics) registerTools(r *prometheus.Registry) {
	total := counter("tool_calls_total", "Tool calls that the gateway answered, executed or not, by outcome. The server is none for unknown tool names.", "org", "server", "outcome")
	took := secondsHistogram("tool_call_duration_seconds", "Duration of executed tool calls.", "org", "server")
	m.builtins = counter("builtin_tool_calls_total", "Calls of built-in tools, of runs and over /mcp, executed or not, by outcome.", "tool", "outcome")
	m.builtinsTook = secondsHistogram("builtin_tool_call_duration_seconds", "Duration of executed calls of built-in tools.", "tool")
	r.MustRegister(total, took, m.builtins, m.builtinsTook)
	m.tools = newLabelLimiter(func(p series) *toolMetrics {
		return &toolMetrics{counters{total, []string{p.org, p.name}, new(sync.Map)}, took.WithLabelValues(p.org, p.name)}
	})
}

func (m *metrics) registerOrgs(r *prometheus.Registry) {
	runs := counter("runs_total", "Runs that ended or started to wait, by reason; handed_over means that another process continues the run.", "org", "surface", "reason")
	exhausted := counter("budgets_exhausted_total", "Runs that ended because a budget was used up.", "org", "budget")
	refused := counter("refusals_total", "Requests that were answered with an error and started no run, by error code. The org is none if the key is unknown.", "org", "code")
	slots := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "turnpike", Name: "slots_in_use", Help: "Runs in progress in this process."}, []string{"org"})
	approvals := counter("approvals_total", "Tool calls that need approval, by what happened: asked, approved, denied, expired, void or executed.", "org", "action")
	r.MustRegister(runs, exhausted, refused, slots, approvals)
	m.orgs = newLabelLimiter(func(p series) *orgMetrics {
		return &orgMetrics{slots.WithLabelValues(p.org), counters{runs, []string{p.org}, new(sync.Map)}, counters{exhausted, []string{p.org}, new(sync.Map)}, counters{refused, []string{p.org}, new(sync.Map)}, counters{approvals, []string{p.org}, new(sync.Map)}}
	})
}

// waitHistogram returns a histogram with buckets from 1 second to 7 days, for what people do.
func waitHistogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "turnpike", Name: name, Help: help,
		Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600},
	}, labels)
}

func (m *metrics) registerApprovals(r *prometheus.Registry, waiting func() (int, time.Duration)) {
	m.decisions = waitHistogram("approval_wait_seconds", "Time from the question to the decision, by decision: approved, denied or expired.", "decision")
	r.MustRegister(m.decisions)
	if waiting == nil {
		return
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "approvals_waiting", Help: "Tool calls that wait for approval, over all orgs. -1: the database cannot be read.",
	}, func() float64 { n, _ := waiting(); return float64(n) }))
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "approvals_oldest_waiting_seconds", Help: "Age of the oldest tool call that waits for approval. 0: none waits.",
	}, func() float64 { _, age := waiting(); return age.Seconds() }))
}

func registerQueued(r *prometheus.Registry, queued func() int) {
	if queued == nil {
		return
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "runs_queued", Help: "Runs in the background that wait for a free slot of their org, over all orgs. -1: the database cannot be read.",
	}, func() float64 { return float64(queued()) }))
}

func (m *metrics) registerWebhooks(r *prometheus.Registry, outbox func() (int, time.Duration)) {
	m.webhooks = counter("webhook_attempts_total", "Attempts to deliver messages for webhooks, by outcome: delivered, waiting (the attempt failed and is repeated) or given_up.", "outcome")
	r.MustRegister(m.webhooks)
	for _, o := range journal.Outcomes() {
		m.webhooks.WithLabelValues(o)
	}
	if outbox == nil {
		return
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "webhook_messages_waiting", Help: "Messages for webhooks that wait for delivery, over all orgs. -1: the database cannot be read.",
	}, func() float64 { n, _ := outbox(); return float64(n) }))
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "webhook_oldest_message_seconds", Help: "Age of the oldest message that waits for delivery. 0: none waits.",
	}, func() float64 { _, age := outbox(); return age.Seconds() }))
}

// registerServers adds the state of the MCP servers, which each scrape reads.
func registerServers(r *prometheus.Registry, servers func() []Server) {
	if servers == nil {
		return
	}
	r.MustRegister(&serverStates{servers: servers, up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "mcp_server_up", Help: "1: the MCP server answered when it was used last. 0: it could not be used. Servers that were not used yet are missing.",
	}, []string{"org", "server"})})
}

// serverStates is the collector of the state of the MCP servers.
type serverStates struct {
	servers func() []Server

	mu sync.Mutex // of scrapes
	up *prometheus.GaugeVec
}

// Describe implements [prometheus.Collector].
func (s *serverStates) Describe(to chan<- *prometheus.Desc) { s.up.Describe(to) }

// Collect implements [prometheus.Collector]. Servers beyond [maxSeries] are left out, those that
// are up first.
func (s *serverStates) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up.Reset()
	left, servers := maxSeries, s.servers()
	for _, up := range []bool{false, true} {
		for _, server := range servers {
			if server.Up != up || left == 0 {
				continue
			}
			value := 0.0
			if up {
				value = 1
			}
			s.up.WithLabelValues(server.Org, server.Name).Set(value)
			left--
		}
	}
	s.up.Collect(to)
}

// registerBreakers adds the states of the circuit breakers, which each scrape reads.
func registerBreakers(r *prometheus.Registry, targets func() []Target) {
	if targets == nil {
		return
	}
	r.MustRegister(&breakerStates{targets: targets, state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "turnpike", Name: "target_breaker_state", Help: "1 for the state of the target's circuit breaker: closed, open or half_open. 0 for the others.",
	}, []string{"provider", "model", "state"})})
}

// breakerStates is the collector of the states of the circuit breakers.
type breakerStates struct {
	targets func() []Target

	mu    sync.Mutex // of scrapes
	state *prometheus.GaugeVec
}

// Describe implements [prometheus.Collector].
func (b *breakerStates) Describe(to chan<- *prometheus.Desc) { b.state.Describe(to) }

// Collect implements [prometheus.Collector]. Targets beyond [maxSeries] are left out.
func (b *breakerStates) Collect(to chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Reset()
	targets := b.targets()
	for _, t := range targets[:min(len(targets), maxSeries)] {
		for _, state := range []string{"closed", "open", "half_open"} {
			value := 0.0
			if t.Breaker == state {
				value = 1
			}
			b.state.WithLabelValues(t.Provider, t.Model, state).Set(value)
		}
	}
	b.state.Collect(to)
}

// startRun counts a run as in progress. The returned function counts its end; it is
// called once.
func (m *metrics) startRun(b run.Begun) func(run.End) {
	if m == nil {
		return func(run.End) {}
	}
	if b.Grade == loop.Relay {
		m.relaysOpen.Inc()
		return m.endRelay
	}
	of := m.orgs.get(series{org: b.Org}, true)
	of.slots.Inc()
	return func(end run.End) {
		of.slots.Dec()
		reason := string(end.Reason)
		if reason == "" {
			reason = "handed_over"
		}
		of.runs.inc(b.Surface+" "+reason, b.Surface, reason)
	}
}

func (m *metrics) endRelay(run.End) { m.relaysOpen.Dec() }

// record updates the metrics for an entry of the audit log.
func (m *metrics) record(org string, e audit.Entry) {
	switch b := e.Body.(type) {
	case audit.Request:
		m.request(org, b)
	case audit.ToolCall:
		server := b.Server
		switch {
		case server == "":
			server = "none"
		case b.FromRequest && server != loop.DispatchServer: // clients can use any number of labels
			server = "declared"
		}
		m.toolCall(org, server, b.Tool, b.Status, b.Attempts > 0, b.LatencyMS)
	case audit.MCPCall:
		if b.Status == audit.Started {
			return
		}
		m.toolCall(org, b.Server, b.Tool, b.Status, b.LatencyMS > 0, b.LatencyMS)
	case audit.Approval:
		m.orgs.get(series{org: org}, true).approvals.inc(b.Action, b.Action)
		switch journal.ApprovalStatus(b.Action) {
		case journal.ApprovalApproved, journal.ApprovalDenied, journal.ApprovalExpired:
			m.decisions.WithLabelValues(b.Action).Observe(toSeconds(float64(b.WaitedMS)))
		}
	case audit.BudgetExhausted:
		m.orgs.get(series{org: org}, true).exhausted.inc(b.Budget, b.Budget)
	}
}

// toolCall counts a call of a tool.
func (m *metrics) toolCall(orgID, server, tool, outcome string, executed bool, ms float64) {
	h := m.tools.get(series{org: orgID, name: server}, true)
	h.outcomes.inc(outcome, outcome)
	if executed {
		h.duration.Observe(toSeconds(ms))
	}
	if server != org.BuiltinTools || !slices.Contains(builtin.Names(), tool) { // a model can write any name
		return
	}
	m.builtins.WithLabelValues(tool, outcome).Inc()
	if executed {
		m.builtinsTook.WithLabelValues(tool).Observe(toSeconds(ms))
	}
}

// request counts a round or a relay. A model's name becomes a label value only after
// a provider has answered for it, because clients can send any name.
func (m *metrics) request(org string, r audit.Request) {
	family := m.rounds
	if r.Surface == audit.SurfaceRelay {
		family = m.relays
		if r.Status == audit.Failed && r.Class != string(model.Gone) {
			m.failed(r.Provider, r.HTTPStatus, r.Class)
		}
	}
	h := family.get(series{org: org, name: truncateName(r.Model), provider: m.provider(r.Provider)}, r.Status == audit.OK)
	switch r.Status {
	case audit.OK:
		h.ok.Inc()
	case audit.Failed:
		h.failed.Inc()
	default:
		h.unknown.Inc()
	}
	h.duration.Observe(toSeconds(r.LatencyMS))
	if r.TTFTMS != nil {
		h.ttft.Observe(toSeconds(*r.TTFTMS))
	}
	if h.input != nil {
		h.input.Add(float64(r.InputTokens))
		h.output.Add(float64(r.OutputTokens))
		h.cachedInput.Add(float64(r.CachedTokens))
		h.outReasoned.Add(float64(r.ReasoningTokens))
		h.cost.Add(float64(r.CostNanoUSD) / float64(money.USD))
	}
}

// provider returns the label of a provider. Journals and audit rows may name one
// that is no longer configured.
func (m *metrics) provider(name string) string {
	if m.kind(name) == "" {
		return other
	}
	return name
}

// failed counts an attempt that failed at the provider: by its HTTP status if that
// is an error, else by the class of the failure.
func (m *metrics) failed(provider string, status int, class string) {
	provider = m.provider(provider)
	if status >= 400 && status < 600 {
		class = strconv.Itoa(status)
	}
	m.failures.inc(provider+" "+class, provider, class)
}

// compacted counts an attempt to make a prompt shorter.
func (m *metrics) compacted(c loop.Compacted) {
	outcome := "pruned"
	switch {
	case c.Failed:
		outcome = "failed"
	case len(c.Refs) == 0:
		outcome = "none"
	case c.Summarized:
		outcome = "summarized"
	}
	m.compactions.WithLabelValues(outcome).Inc()
	if outcome == "pruned" || outcome == "summarized" {
		m.freed.Add(float64(max(c.Before-c.After, 0)))
	}
}

func toSeconds(n float64) float64 { return max(n, 0) / 1000 }
