// Package telemetry shows the work of the gateway to the operator's own tools:
// traces over OpenTelemetry, and metrics for Prometheus. Both are fed by what
// runs report to their [run.Observer].
//
//	run.Run ────► routing_execute            span.go     spans ─► batches ─► OTLP     export.go
//	 Round ─────►   agent_round_0
//	  ModelCall ►     chat MODEL
//	  ToolCall ─►     execute_tool NAME
//	 Recorded ──► counters and histograms    metrics.go ◄─ GET /metrics
//
// Attributes follow the conventions of OpenTelemetry for generative AI and MCP,
// as of its version 1.41. Spans have no content unless [Options] ask for it, and
// never a header.
package telemetry

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

var _ run.Observer = (*Telemetry)(nil)

// Options say what is shown. The zero value shows nothing.
type Options struct {
	// Spans takes the spans, in batches; nil = there are none. See [OTLP].
	Spans sdktrace.SpanExporter
	// Content puts what was said into spans: messages, arguments and results.
	Content bool
	// Kinds are the kinds of providers by their names, as in the configuration.
	Kinds map[string]string
	// Version is that of the gateway.
	Version string

	// Metrics says that there are metrics.
	Metrics bool
	// Queue returns how many writes wait for the store; nil = nobody knows.
	Queue func() int
}

// Telemetry is a [run.Observer]. It is safe for concurrent use.
type Telemetry struct {
	o        Options
	provider *sdktrace.TracerProvider // nil = no spans
	tracer   trace.Tracer
	registry *prometheus.Registry // nil = no metrics
	metrics  *metrics
}

// New returns a Telemetry. What the options leave open is taken from the
// variables of the process that OpenTelemetry has for it, such as
// OTEL_SERVICE_NAME and OTEL_TRACES_SAMPLER.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	t := &Telemetry{o: o}
	if o.Metrics {
		t.registry = prometheus.NewRegistry()
		t.metrics = newMetrics(t.registry, o.Version, o.Queue)
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

// Stop sends the spans that are left, as long as ctx allows, which must not be
// done yet. What is being sent then is cut off.
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

// Metrics answers a scrape.
func (t *Telemetry) Metrics() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 3})
}

// Recorded implements [run.Observer].
func (t *Telemetry) Recorded(org string, e audit.Entry) {
	if t.metrics != nil {
		t.metrics.recorded(org, e)
	}
}

// Refused counts a request that was answered with an error before a run began.
func (t *Telemetry) Refused(org, code string) {
	if t.metrics == nil {
		return
	}
	if org == "" {
		org = "none"
	}
	t.metrics.orgs.of(pair{org: org}, true).refused.inc(code, code)
}

// Extract returns ctx with the trace that a client's request belongs to. A
// header that says nothing, or nothing right, begins a new one.
func Extract(ctx context.Context, h http.Header) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(h))
}

// Inject writes into a header which trace ctx belongs to, in place of what it
// said; nothing if ctx belongs to none.
func Inject(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		h.Del("Tracestate")
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// Carry implements [run.Observer].
func (t *Telemetry) Carry(to, from context.Context) context.Context {
	if parent := trace.SpanContextFromContext(from); parent.IsValid() {
		return trace.ContextWithRemoteSpanContext(to, parent)
	}
	return to
}
