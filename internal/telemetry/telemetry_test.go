package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recordSpans returns the spans of what do reports, by name.
func recordSpans(t *testing.T, o Options, do func(*Telemetry)) map[string]tracetest.SpanStub {
	t.Helper()
	spans := &keepingExporter{InMemoryExporter: tracetest.NewInMemoryExporter()}
	o.Spans = spans
	tel, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	do(tel)
	if err := tel.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		out[s.Name] = s
	}
	return out
}

// keepingExporter is an in-memory exporter that keeps its spans after Shutdown.
type keepingExporter struct{ *tracetest.InMemoryExporter }

// Shutdown implements sdktrace.SpanExporter.
func (*keepingExporter) Shutdown(context.Context) error { return nil }

func attributesOf(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		out[string(a.Key)] = a.Value.String()
	}
	return out
}

// Failures are reported by class. The provider's message, which may quote the
// prompt, is not in a span.
func TestFailuresAreReportedByClassOnly(t *testing.T) {
	failed := &model.Error{Class: model.Invalid, Status: 400, Message: "PRIVATE is no good prompt"}
	spans := recordSpans(t, Options{Kind: kinds{"up": "gemini"}.of}, func(tel *Telemetry) {
		ctx, ended := tel.Run(t.Context(), run.Begun{Org: "o", RunID: "run_1", Surface: "chat", Grade: loop.Light})
		ctx, over := tel.Round(ctx, 0)
		_, called := tel.ModelCall(ctx, run.ModelCall{Attempt: 2, Provider: "up", Request: &model.Request{Model: "g", MaxTokens: 7}})
		called(run.ModelEnd{Err: fmt.Errorf("round 0: %w", failed)})
		for i, end := range []run.ToolEnd{{Outcome: loop.NotRun, Fatal: true}, {Outcome: loop.Unknown}, {Outcome: loop.Cached}} {
			_, done := tel.ToolCall(ctx, run.ToolCall{Index: i, Name: fmt.Sprint("t", i)})
			done(end)
		}
		over()
		ended(run.End{Reason: event.ModelError})
	})
	for name, want := range map[string]string{
		"routing_execute": "model_error", "chat g": "invalid", "execute_tool t0": "blocked", "execute_tool t1": "unknown", "execute_tool t2": "", "agent_round_0": "",
	} {
		s := spans[name]
		if got := attributesOf(s)["error.type"]; got != want || s.Status.Description != want || (s.Status.Code == codes.Error) != (want != "") {
			t.Errorf("%s ended with %q and %+v, want %q", name, got, s.Status, want)
		}
		if strings.Contains(fmt.Sprint(s), "PRIVATE") {
			t.Errorf("%s contains the provider's message", name)
		}
	}
	a := attributesOf(spans["chat g"])
	for key, want := range map[string]string{"gen_ai.provider.name": "gcp.gemini", "provider": "up", "http.response.status_code": "400", "gen_ai.request.max_tokens": "7", "attempt": "2"} {
		if a[key] != want {
			t.Errorf("%s is %q, want %q", key, a[key], want)
		}
	}
}

// A span of a call has the session in which the call was sent last, and the call carries
// the span as its parent, without baggage. // P17
func TestACallOfAnMCPServerBelongsToItsSpan(t *testing.T) {
	var carried map[string]string
	spans := recordSpans(t, Options{}, func(tel *Telemetry) {
		if got := tel.Trace(t.Context()); got != nil {
			t.Errorf("without a span, a call carries %v", got)
		}
		ctx := Extract(t.Context(), http.Header{
			"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Tracestate": {"vendor=x"}, "Baggage": {"user=alice"},
		})
		ctx, done := tel.ToolCall(ctx, run.ToolCall{Name: "t", Server: "s", Attempt: 1})
		tel.CallSent(ctx, "lost", "2025-06-18", false)
		tel.CallSent(ctx, strings.Repeat("é", maxName), "2025-11-25", false)
		carried = tel.Trace(ctx)
		done(run.ToolEnd{Outcome: loop.OK})
		ctx, done = tel.ToolCall(t.Context(), run.ToolCall{Name: "program", Server: "s", Attempt: 1})
		tel.CallSent(ctx, "", "2025-11-25", true)
		done(run.ToolEnd{Outcome: loop.OK})
		ctx, done = tel.ToolCall(t.Context(), run.ToolCall{Name: "bare", Server: "s", Attempt: 1})
		tel.CallSent(ctx, "", "", false)
		done(run.ToolEnd{Outcome: loop.OK})
	})
	span := spans["execute_tool t"].SpanContext
	want := map[string]string{"traceparent": fmt.Sprintf("00-4bf92f3577b34da6a3ce929d0e0e4736-%s-01", span.SpanID()), "tracestate": "vendor=x"}
	if diff := cmp.Diff(want, carried); diff != "" {
		t.Errorf("_meta (-want +got):\n%s", diff)
	}
	for name, want := range map[string][3]string{
		"execute_tool t":       {truncateName(strings.Repeat("é", maxName)), "2025-11-25", "tcp"},
		"execute_tool program": {"", "2025-11-25", "pipe"},
		"execute_tool bare":    {"", "", "tcp"},
	} {
		a := attributesOf(spans[name])
		if got := [3]string{a["mcp.session.id"], a["mcp.protocol.version"], a["network.transport"]}; got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}

// The next owner of a run continues its trace below the span of the first one. // P17
func TestARunThatIsTakenOverStaysInItsTrace(t *testing.T) {
	begun := run.Begun{Org: "o", RunID: "run_1", Surface: "chat", Grade: loop.Durable}
	stored := map[string]map[string]string{}
	own := func(name string, ctx context.Context, trace map[string]string) tracetest.SpanStub {
		return recordSpans(t, Options{}, func(tel *Telemetry) {
			ctx, end := tel.Run(tel.WithTrace(ctx, trace), begun)
			stored[name] = tel.Trace(ctx)
			end(run.End{Reason: event.Complete})
		})["routing_execute"]
	}
	called := Extract(t.Context(), http.Header{
		"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Tracestate": {"vendor=x"}, "Baggage": {"user=alice"},
	})
	first := own("first", called, nil)
	second := own("second", t.Context(), stored["first"])
	if second.SpanContext.TraceID() != first.SpanContext.TraceID() || second.Parent.SpanID() != first.SpanContext.SpanID() || !second.Parent.IsRemote() {
		t.Errorf("the second owner's span is %v below %v, want it below %v", second.SpanContext, second.Parent, first.SpanContext)
	}
	if got := second.SpanContext.TraceState().String(); got != "vendor=x" || stored["first"]["baggage"] != "" || len(stored["first"]) != 2 {
		t.Errorf("stored %v, and the state is %q", stored["first"], got)
	}
	for name, damaged := range map[string]map[string]string{"none": nil, "empty": {}, "damaged": {"traceparent": "00-zz"}} {
		if fresh := own(name, t.Context(), damaged); fresh.Parent.IsValid() || !fresh.SpanContext.IsValid() {
			t.Errorf("%s: the span is %v below %v", name, fresh.SpanContext, fresh.Parent)
		}
	}
	unsampled := map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}
	if span := own("unsampled", t.Context(), unsampled); span.Name != "" {
		t.Errorf("a run of a trace that is not sampled exports %v", span)
	}
	metrics, err := New(t.Context(), Options{Metrics: true})
	if err != nil {
		t.Fatal(err)
	}
	if ctx := metrics.WithTrace(t.Context(), stored["first"]); ctx != t.Context() || metrics.Trace(ctx) != nil {
		t.Error("without an exporter, a stored trace is continued")
	}
}

// Long transcripts and long names are truncated at character boundaries.
func TestSpanContentIsLimited(t *testing.T) {
	long := strings.Repeat("é", maxText)
	var items []item.Item
	for i := range 40 {
		items = append(items, item.NewText(item.User, fmt.Sprintf("%d%s", i, long)))
	}
	spans := recordSpans(t, Options{Content: true}, func(tel *Telemetry) {
		ctx, called := tel.ModelCall(t.Context(), run.ModelCall{Provider: "up", Request: &model.Request{Model: "g", Items: items}})
		called(run.ModelEnd{Turn: &model.Turn{ID: long, Model: long, Items: []item.Item{item.NewText(item.Assistant, long)}}})
		_, done := tel.ToolCall(ctx, run.ToolCall{Name: long + "\xff", ID: long, Server: "s", Arguments: []byte(long)})
		done(run.ToolEnd{Outcome: loop.OK, Text: long})
	})
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	for name, s := range spans {
		if len(name) > maxName+32 {
			t.Errorf("a span name has %d bytes", len(name))
		}
		for key, value := range attributesOf(s) {
			if len(value) > maxMessages+4096 || strings.ContainsRune(value, '\uFFFD') {
				t.Errorf("%s has %d bytes, or a split character", key, len(value))
			}
		}
	}
	if got := attributesOf(spans["chat g"])["gen_ai.input.messages"]; !strings.Contains(got, `"39`) || strings.Contains(got, `"0é`) {
		t.Errorf("the latest messages were not kept: %.80s", got)
	}
}

// stuckExporter is an exporter that blocks until Shutdown, like one whose collector hangs.
type stuckExporter struct {
	entered, release chan struct{}
	once             sync.Once
}

// ExportSpans implements sdktrace.SpanExporter.
func (s *stuckExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.release
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (s *stuckExporter) Shutdown(context.Context) error {
	s.once.Do(func() { close(s.release) })
	return nil
}

// With a hanging collector and a full queue, ending a span does not block, and Stop
// returns when its context ends.
func TestAHangingCollectorBlocksNothing(t *testing.T) {
	s := &stuckExporter{entered: make(chan struct{}, 1), release: make(chan struct{})}
	tel, err := New(t.Context(), Options{Spans: s})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 * sdktrace.DefaultMaxQueueSize {
		_, ended := tel.Run(t.Context(), run.Begun{Grade: loop.Relay})
		ended(run.End{Reason: event.Complete})
	}
	<-s.entered
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := tel.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop returned %v", err)
	}
}

type failingExporter struct{ sdktrace.SpanExporter }

// ExportSpans implements sdktrace.SpanExporter.
func (failingExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("refused")
}

func TestExportFailuresAreLoggedOnceAMinute(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1e9, 0)
	c := &loggingExporter{SpanExporter: failingExporter{}, log: slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Time { return now }}
	for range 130 { // one batch per second
		if err := c.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 2)); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	if got := strings.Count(log.String(), "spans could not be exported"); got != 3 || !strings.Contains(log.String(), "spans=120") {
		t.Errorf("%d lines, want 3, two of them for 120 spans:\n%s", got, &log)
	}
}

// Any number of models and orgs creates a limited number of series, and every
// request is counted in one. // L05
func TestLabelsAreBounded(t *testing.T) {
	tel, err := New(t.Context(), Options{Metrics: true, Kind: kinds{"p": "openai", "q": "demo"}.of})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	count := func(org, name, status string) {
		n++
		provider := "p"
		if strings.HasPrefix(name, "made-up") {
			provider = fmt.Sprint("gone-", n)
		}
		tel.Recorded(org, audit.Entry{Body: audit.Request{Surface: audit.SurfaceRelay, Provider: provider, Model: name, Status: status, HTTPStatus: n}})
	}
	for i := range 200 {
		count("greedy", fmt.Sprint("made-up-", i), audit.Failed)
		count("greedy", fmt.Sprint("m", i), audit.OK)
	}
	for i := range 3000 {
		count(fmt.Sprint("org", i), "m", audit.OK)
	}
	count("greedy", "m0", audit.Failed) // has a series
	families, err := tel.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series, sum, other, m0 := map[string]bool{}, 0.0, 0.0, 0.0
	providers, errors := map[string]bool{}, 0.0
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "provider" {
					providers[l.GetValue()] = true
				}
			}
			if f.GetName() == "turnpike_provider_errors_total" {
				errors += m.GetCounter().GetValue()
			}
		}
		if f.GetName() != "turnpike_requests_total" {
			continue
		}
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if strings.HasPrefix(labels["model"], "made-up") {
				t.Fatalf("an unknown model name became a label value: %v", labels)
			}
			series[labels["org"]+" "+labels["model"]] = true
			sum += m.GetCounter().GetValue()
			if labels["org"] == "greedy" && labels["model"] == "other" {
				other += m.GetCounter().GetValue()
			}
			if labels["model"] == "m0" && labels["status"] == "failed" {
				m0 += m.GetCounter().GetValue()
			}
		}
	}
	if diff := cmp.Diff(map[string]bool{"p": true, "other": true}, providers); diff != "" || errors != 201 {
		t.Errorf("%v provider errors; the providers (-want +got):\n%s", errors, diff)
	}
	if len(series) > maxSeries+1 || sum != 3401 || other < 200+150 || m0 != 1 {
		t.Errorf("%d pairs (%v counted, %v of them under other for one org, %v for the known name)", len(series), sum, other, m0)
	}
}

// The labels that requests give their MCP servers are no label values. // P12
func TestTheLabelsOfDeclaredServersAreNoLabelValues(t *testing.T) {
	tel, err := New(t.Context(), Options{Metrics: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		tel.Recorded("o", audit.Entry{Body: audit.ToolCall{Server: fmt.Sprint("made-up", i), Status: "ok", FromRequest: true}})
	}
	families, err := tel.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	calls := 0.0
	for _, f := range families {
		for _, metric := range f.Metric {
			for _, l := range metric.Label {
				if strings.HasPrefix(l.GetValue(), "made-up") {
					t.Errorf("%s has the label value %s", f.GetName(), l.GetValue())
				}
				if l.GetName() == "server" && l.GetValue() == "declared" {
					calls += metric.GetCounter().GetValue()
				}
			}
		}
	}
	if calls != 3 {
		t.Errorf("%v calls of declared servers are counted, want 3", calls)
	}
}

func BenchmarkRelayMetrics(b *testing.B) {
	tel, err := New(b.Context(), Options{Metrics: true})
	if err != nil {
		b.Fatal(err)
	}
	ttft := float64(3)
	b.ReportAllocs()
	for b.Loop() {
		_, ended := tel.Run(b.Context(), run.Begun{Org: "o", Surface: "chat", Grade: loop.Relay, Model: "m"})
		tel.Recorded("o", audit.Entry{Body: audit.Request{Surface: audit.SurfaceRelay, Model: "m", Status: audit.OK, TTFTMS: &ttft}})
		ended(run.End{Reason: event.Complete})
	}
}

// kinds are the kinds of providers, by name.
type kinds map[string]string

func (k kinds) of(provider string) string { return k[provider] }
