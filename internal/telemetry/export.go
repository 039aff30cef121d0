package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// failureLogInterval is the shortest time between two log lines about failed exports.
const failureLogInterval = time.Minute

// OTLP returns an exporter that sends spans to the collector at url, such as
// http://127.0.0.1:4318/v1/traces, over OTLP/HTTP. Spans of a failed export are
// lost; failures are logged at most once a minute. Headers and compression come
// from the environment variables OTEL_EXPORTER_OTLP_….
func OTLP(ctx context.Context, url string, client *http.Client, log *slog.Logger) (sdktrace.SpanExporter, error) {
	inner, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url), otlptracehttp.WithHTTPClient(client))
	if err != nil {
		return nil, err
	}
	return &loggingExporter{SpanExporter: inner, log: log, now: time.Now}, nil
}

// loggingExporter wraps an exporter and logs its failures.
type loggingExporter struct {
	sdktrace.SpanExporter
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	last time.Time
	lost int // spans lost since the last log line
}

// ExportSpans implements sdktrace.SpanExporter. It logs a failure and returns nil,
// because the caller cannot handle it.
func (c *loggingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := c.SpanExporter.ExportSpans(ctx, spans); err != nil {
		c.logFailure(err, len(spans))
	}
	return nil
}

func (c *loggingExporter) logFailure(err error, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += lost
	now := c.now()
	if !c.last.IsZero() && now.Sub(c.last) < failureLogInterval {
		return
	}
	c.log.Warn("spans could not be exported", "spans", c.lost, "error", err)
	c.last, c.lost = now, 0
}
