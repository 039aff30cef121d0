package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/mcpserver"
	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/spend"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/telemetry"
)

// How long the collector may take, and what of that a stopping gateway has.
const (
	exportTimeout = 10 * time.Second
	lastSpans     = 2 * time.Second
)

// shown is what the operator's tools see of the gateway. The zero value shows
// nothing.
type shown struct {
	telemetry *telemetry.Telemetry // nil = nobody looks
	spans     bool
	listener  net.Listener // of the metrics; nil = there are none
	server    *http.Server
	tasks     sync.WaitGroup
	store     *database.Store

	router    atomic.Pointer[route.Router]        // whose breakers the metrics show; nil = not made yet
	pool      atomic.Pointer[mcppool.Pool]        // whose servers the metrics show; nil = not made yet
	directory atomic.Pointer[directory.Directory] // whose keys they count; nil = not made yet
	mcp       atomic.Pointer[mcpserver.Handler]   // whose sessions they count; nil = not made yet
	spend     atomic.Pointer[spend.Keeper]        // whose writes they count; nil = not made yet
}

// showTelemetry makes the way out, on which requests say which trace they belong
// to, and what watches the gateway, whose spans leave over it.
func (a *App) showTelemetry(ctx context.Context, env config.Environment) error {
	s, own := &a.shown, []netip.AddrPort(nil)
	s.store = a.store
	if a.listener != nil {
		own = append(own, addrPort(a.listener))
	}
	if s.listener != nil {
		own = append(own, addrPort(s.listener))
	}
	collector := collectorURL(a.config.Telemetry, env)
	s.spans = collector != ""
	way := egress.Options{Listen: own}
	if s.spans {
		way.Annotate = telemetry.Inject
	}
	a.out = egress.New(OutboundPolicy(a.config.Outbound.SSRF), way)
	a.atClose(a.out.CloseIdleConnections)
	if !s.spans && s.listener == nil {
		return nil
	}
	o := telemetry.Options{
		Content: a.config.Telemetry.Content, Kind: a.live.providerKind, Version: Version(),
		Metrics: s.listener != nil, Queue: a.store.QueueLength, Waiting: s.waitingApprovals, QueuedRuns: s.queuedRuns, Servers: s.usedServers, Targets: s.targets, Expiring: s.expiringKeys, MCPSessions: s.mcpSessions, BudgetWrites: s.budgetWrites,
		Outbox: s.outboxState, Replicas: a.replicas.count(), PoolWaits: a.storage.poolWaits(),
	}
	var err error
	if s.spans {
		if o.Spans, err = telemetry.OTLP(ctx, collector, a.out.OperatorClient(exportTimeout), a.log); err != nil {
			return fmt.Errorf("telemetry: %w", err)
		}
	}
	if s.telemetry, err = telemetry.New(ctx, o); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	a.atClose(func() { s.stop(a.log) })
	s.serve(a.log)
	return nil
}

// usedServers returns the MCP servers that were used, with their states.
func (s *shown) usedServers() (out []telemetry.Server) {
	if pool := s.pool.Load(); pool != nil {
		pool.Used(func(orgID, server string, up bool) {
			out = append(out, telemetry.Server{Org: orgID, Name: server, Up: up})
		})
	}
	return out
}

// targets returns the circuit breakers of targets.
func (s *shown) targets() (out []telemetry.Target) {
	if router := s.router.Load(); router != nil {
		for _, t := range router.Targets() {
			out = append(out, telemetry.Target{Provider: t.Provider, Model: t.Model, Breaker: string(t.Breaker)})
		}
	}
	return out
}

// expiringKeys returns how many keys expire soon.
func (s *shown) expiringKeys() int {
	if d := s.directory.Load(); d != nil {
		return d.Expiring()
	}
	return 0
}

// mcpSessions returns how many MCP clients have a session.
func (s *shown) mcpSessions() int {
	if h := s.mcp.Load(); h != nil {
		return h.Sessions()
	}
	return 0
}

// budgetWrites returns how often the store was called for slices of budgets.
func (s *shown) budgetWrites() int64 {
	if k := s.spend.Load(); k != nil {
		return k.Writes()
	}
	return 0
}

// recorded returns what counts audit entries that are of no run, or nil.
func (s *shown) recorded() func(string, audit.Entry) {
	if s.telemetry == nil {
		return nil
	}
	return s.telemetry.Recorded
}

// waitingApprovals returns how many approvals wait, -1 if the store cannot be read, and the age
// of the oldest.
func (s *shown) waitingApprovals() (int, time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	n, oldest, err := s.store.WaitingApprovals(ctx)
	switch {
	case err != nil:
		return -1, 0
	case n == 0:
		return 0, 0
	}
	return n, max(0, clock.Wall().Sub(time.UnixMilli(oldest)))
}

// queuedRuns returns how many runs are queued, -1 if the store cannot be read.
func (s *shown) queuedRuns() int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	queued, err := s.store.QueuedRuns(ctx)
	if err != nil {
		return -1
	}
	n := 0
	for _, q := range queued {
		n += q.Runs
	}
	return n
}

// outboxState returns how many messages for webhooks wait, -1 if the store cannot be read, and the
// age of the oldest.
func (s *shown) outboxState() (int, time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	state, err := s.store.OutboxState(ctx)
	switch {
	case err != nil:
		return -1, 0
	case state.Waiting == 0:
		return 0, 0
	}
	return state.Waiting, max(0, clock.Wall().Sub(time.UnixMilli(state.Oldest)))
}

// stored returns what counts operations on files of buckets, or nil.
func (s *shown) stored() func(operation, kind, outcome string) {
	if s.telemetry == nil {
		return nil
	}
	return s.telemetry.BucketUsed
}

// attempted returns what counts attempts to deliver messages for webhooks, or nil.
func (s *shown) attempted() func(journal.Outcome) {
	if s.telemetry == nil {
		return nil
	}
	return s.telemetry.WebhookAttempted
}

// hookTold returns what counts hooks that were told of their runs, or nil.
func (s *shown) hookTold() func(context.Context, journal.HookMessage) {
	if s.telemetry == nil {
		return nil
	}
	return func(ctx context.Context, m journal.HookMessage) {
		s.telemetry.HookRan(ctx, loop.HookHTTP, loop.HookRan{
			Point: loop.OnRunComplete, Hook: m.Hook, Verdict: loop.HookAllow, Failed: m.Outcome != journal.HookSucceeded, TimedOut: m.Outcome == journal.HookTimedOut, Micros: m.Micros,
		})
	}
}

// collectorURL returns where spans go, "" for nowhere. The variables are those
// that OpenTelemetry has for it.
func collectorURL(c config.Telemetry, env config.Environment) string {
	value := func(name string) string {
		v, _ := env(name)
		return v
	}
	switch own := value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); {
	case strings.EqualFold(value("OTEL_SDK_DISABLED"), "true"), value("OTEL_TRACES_EXPORTER") == "none":
		return ""
	case own != "":
		return own
	case c.OTLPEndpoint == "":
		return ""
	}
	return strings.TrimRight(c.OTLPEndpoint, "/") + "/v1/traces"
}

// serve answers scrapes, if there are metrics.
func (s *shown) serve(log *slog.Logger) {
	if s.listener == nil {
		return
	}
	log.Info("metrics are served", "url", "http://"+s.listener.Addr().String()+"/metrics")
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.telemetry.Metrics())
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	s.tasks.Go(func() { _ = s.server.Serve(s.listener) })
}

// observer returns who watches runs, or nil.
func (s *shown) observer() run.Observer {
	if s.telemetry == nil {
		return nil
	}
	return s.telemetry
}

// extract returns what reads the trace of a request, or nil.
func (s *shown) extract() func(context.Context, http.Header) context.Context {
	if !s.spans {
		return nil
	}
	return telemetry.Extract
}

// tracer returns what connects calls of MCP servers with traces, or nil.
func (s *shown) tracer() mcptool.Tracer {
	if !s.spans {
		return nil
	}
	return s.telemetry
}

// refused returns what counts the requests that are refused, or nil.
func (s *shown) refused() func(org, code string) {
	if s.listener == nil {
		return nil
	}
	return s.telemetry.Refused
}

// stop sends what is left, and stops answering.
func (s *shown) stop(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	if err := s.telemetry.Stop(ctx); err != nil {
		log.Warn("the last spans were not sent", "error", err)
	}
	if s.server != nil {
		_ = s.server.Close()
	}
	s.tasks.Wait()
}
