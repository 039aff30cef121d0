// Package telemetry exports traces over OpenTelemetry and metrics for Prometheus.
// It derives both from what runs report to their [run.Observer].
//
//	run.Run ────► routing_execute            span.go     spans ─► batches ─► OTLP     export.go
//	 Round ─────►   agent_round_0
//	  ModelCall ►     chat MODEL
//	  ToolCall ─►     execute_tool NAME
//	 Recorded ──► counters and histograms    metrics.go ◄─ GET /metrics
//
// Attributes follow the OpenTelemetry semantic conventions for generative AI and
// MCP, version 1.41. Spans contain no message content unless [Options.Content] is
// set, and never a header.
package telemetry

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

var _ run.Observer = (*Telemetry)(nil)

// Options configure a [Telemetry]. The zero value exports nothing.
type Options struct {
	// Spans receives the spans, in batches. Nil disables tracing. See [OTLP].
	Spans sdktrace.SpanExporter
	// Content adds message texts, tool arguments and tool results to spans.
	Content bool
	// Kind returns the kind of a provider by its name in the configuration, "" if it has
	// no such provider. It must be safe for concurrent use. Nil = there are no providers.
	Kind func(provider string) string
	// Version is the version of the gateway.
	Version string

	// Metrics enables metrics.
	Metrics bool
	// MCPSessions returns the number of sessions of outside MCP clients. Nil leaves the
	// metric out.
	MCPSessions func() int

	// BudgetWrites returns how often the store was called for slices of budgets. Nil leaves the
	// metric out.
	BudgetWrites func() int64
	// Queue returns the number of writes that wait for the store. Nil leaves the
	// metric out.
	Queue func() int
	// Waiting returns the number of tool calls that wait for approval, -1 if it is not known,
	// and the age of the oldest. Nil leaves the metrics out.
	Waiting func() (int, time.Duration)
	// QueuedRuns returns the number of runs in the background that have not begun, -1 if it is not
	// known. Nil leaves the metric out.
	QueuedRuns func() int
	// Outbox returns the number of messages for webhooks that wait, -1 if it is not known, and
	// the age of the oldest. Nil leaves the metrics out.
	Outbox func() (int, time.Duration)
	// Servers returns the MCP servers of all orgs that were asked for their tools, or called.
	// Nil leaves the metric out.
	Servers func() []Server
	// Targets returns the circuit breakers of the targets of routes, and of others that are not
	// closed. Nil leaves the metric out.
	Targets func() []Target
	// PoolWaits returns how often somebody had to wait for a connection to the database, and for how long in all. Nil = there are
	// no such connections.
	PoolWaits func() (n int64, waited time.Duration)

	// Replicas returns the number of living replicas, how many changes this one knows of and has not
	// applied, and how long it has refused requests. Nil leaves the metrics out.
	Replicas func() (living int, lag int64, out time.Duration)
	// Expiring returns how many API keys expire within 7 days. Nil leaves the metric out.
	Expiring func() int
}

// Target is a provider's model with the state of its circuit breaker: closed, open or half_open.
type Target struct{ Provider, Model, Breaker string }

// Server is an MCP server of an org.
type Server struct {
	Org, Name string
	Up        bool // it answered when it was used last
}

// Telemetry is a [run.Observer]. It is safe for concurrent use.
type Telemetry struct {
	o        Options
	provider *sdktrace.TracerProvider // nil = no spans
	tracer   trace.Tracer
	registry *prometheus.Registry // nil = no metrics
	metrics  *metrics
}

// New returns a Telemetry. Settings that the options do not have come from the
// OpenTelemetry environment variables, such as OTEL_SERVICE_NAME and
// OTEL_TRACES_SAMPLER.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	if o.Kind == nil {
		o.Kind = func(string) string { return "" }
	}
	t := &Telemetry{o: o}
	if o.Metrics {
		t.registry = prometheus.NewRegistry()
		t.metrics = newMetrics(t.registry, o)
	}
	if o.Spans == nil {
		return t, nil
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("turnpike"), semconv.ServiceVersion(o.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) && !errors.Is(err, resource.ErrSchemaURLConflict) {
		return nil, err
	}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(o.Spans))
	t.tracer = t.provider.Tracer("github.com/turnpike-gateway/turnpike", trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))
	return t, nil
}

// Stop sends the remaining spans until ctx ends, and then aborts the export. ctx
// must not have ended at the call.
func (t *Telemetry) Stop(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	err := t.provider.Shutdown(ctx)
	if ctx.Err() != nil {
		err = errors.Join(err, t.o.Spans.Shutdown(context.WithoutCancel(ctx)))
	}
	return err
}

// Metrics returns the handler for Prometheus scrapes. [Options.Metrics] must be set.
func (t *Telemetry) Metrics() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 3})
}

// Recorded implements [run.Observer].
func (t *Telemetry) Recorded(org string, e audit.Entry) {
	if t.metrics != nil {
		t.metrics.record(org, e)
	}
}

// Refused counts a request that was answered with an error before a run started.
func (t *Telemetry) Refused(org, code string) {
	if t.metrics == nil {
		return
	}
	if org == "" {
		org = "none"
	}
	t.metrics.orgs.get(series{org: org}, true).refused.inc(code, code)
}

// HookRan implements [run.Observer]. What a hook has decided is an event of the span of the run or of the
// tool call.
func (t *Telemetry) HookRan(ctx context.Context, kind loop.HookType, ran loop.HookRan) {
	if t.metrics != nil {
		t.metrics.hooks.WithLabelValues(string(ran.Point), string(kind), string(ran.Verdict), strconv.FormatBool(ran.Failed)).Inc()
	}
	if t.tracer != nil {
		trace.SpanFromContext(ctx).AddEvent("hook", trace.WithAttributes(
			attribute.String("turnpike.hook.id", ran.Hook), attribute.String("turnpike.hook.point", string(ran.Point)), attribute.String("turnpike.hook.type", string(kind)),
			attribute.String("turnpike.hook.verdict", string(ran.Verdict)), attribute.Bool("turnpike.hook.failed", ran.Failed)))
	}
}

// WebhookAttempted counts an attempt to deliver a message for a webhook.
func (t *Telemetry) WebhookAttempted(o journal.Outcome) {
	if t.metrics != nil {
		t.metrics.webhooks.WithLabelValues(string(o)).Inc()
	}
}

// BucketUsed counts an operation on files of a bucket.
func (t *Telemetry) BucketUsed(operation, kind, outcome string) {
	if t.metrics != nil {
		t.metrics.stored.WithLabelValues(operation, kind, outcome).Inc()
	}
}

// Extract returns ctx with the trace context of a client's request (W3C Trace
// Context). A missing or invalid header leaves ctx without a parent, which starts a
// new trace.
func Extract(ctx context.Context, h http.Header) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(h))
}

// Inject writes the trace context of ctx into h and replaces what h has. It does
// nothing if ctx has no trace context.
func Inject(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		h.Del("Tracestate")
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// Trace implements [run.Observer] and mcptool.Tracer. It returns traceparent, and tracestate
// if there is one. Baggage is never included.
func (*Telemetry) Trace(ctx context.Context) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier
}

// WithTrace implements [run.Observer].
func (t *Telemetry) WithTrace(ctx context.Context, stored map[string]string) context.Context {
	if t.tracer == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(stored))
}

// Carry implements [run.Observer].
func (t *Telemetry) Carry(to, from context.Context) context.Context {
	if parent := trace.SpanContextFromContext(from); parent.IsValid() {
		return trace.ContextWithRemoteSpanContext(to, parent)
	}
	return to
}
