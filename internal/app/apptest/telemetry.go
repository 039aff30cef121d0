package apptest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spanSink is a collector that takes OTLP over HTTP, as any would.
type spanSink struct {
	*httptest.Server
	t *testing.T

	mu    sync.Mutex
	Raw   []byte // all that came, unpacked
	Spans []*otlp.Span
	About map[string]string // of the latest resource
}

func NewSpanSink(t *testing.T) *spanSink {
	s := &spanSink{t: t}
	s.Server = httptest.NewServer(http.HandlerFunc(s.take))
	t.Cleanup(s.Close)
	return s
}

func (s *spanSink) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	var got collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &got)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		s.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Raw = append(s.Raw, body...)
	for _, resource := range got.ResourceSpans {
		s.About = Attributes(resource.Resource.Attributes)
		for _, scope := range resource.ScopeSpans {
			s.Spans = append(s.Spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func Attributes(all []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range all {
		out[kv.Key] = text(kv.Value)
	}
	return out
}

func text(v *common.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *common.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	case *common.AnyValue_DoubleValue:
		return "a number"
	case *common.AnyValue_ArrayValue:
		var all []string
		for _, e := range v.ArrayValue.Values {
			all = append(all, text(e))
		}
		return strings.Join(all, ",")
	}
	return "?"
}

// Tree returns the names of a span and of all below it, each level further in.
func (s *spanSink) Tree(of *otlp.Span) string {
	var b strings.Builder
	s.branch(&b, of, "")
	return b.String()
}

func (s *spanSink) branch(b *strings.Builder, of *otlp.Span, indent string) {
	fmt.Fprintf(b, "%s%s\n", indent, of.Name)
	below := slices.DeleteFunc(slices.Clone(s.Spans), func(c *otlp.Span) bool { return !bytes.Equal(c.ParentSpanId, of.SpanId) })
	slices.SortFunc(below, func(a, b *otlp.Span) int { return strings.Compare(place(a), place(b)) })
	for _, c := range below {
		s.branch(b, c, indent+"  ")
	}
}

// place orders spans of one parent as they were asked for.
func place(s *otlp.Span) string {
	a := Attributes(s.Attributes)
	return a["round_index"] + " " + a["tool_call_index"] + " " + a["attempt"]
}

// Named returns the only span of that name below the round, or anywhere for -1.
func (s *spanSink) Named(name string, round int) *otlp.Span {
	s.t.Helper()
	var found []*otlp.Span
	for _, span := range s.Spans {
		if span.Name == name && (round < 0 || Attributes(span.Attributes)["round_index"] == fmt.Sprint(round)) {
			found = append(found, span)
		}
	}
	if len(found) != 1 {
		s.t.Fatalf("%d spans are called %s (round %d), want one", len(found), name, round)
	}
	return found[0]
}

// Wants fails the test unless the span has the attributes, and no others beside
// those whose values a test cannot know.
func (s *spanSink) Wants(span *otlp.Span, kind otlp.Span_SpanKind, want map[string]string) {
	s.t.Helper()
	got := Attributes(span.Attributes)
	if span.Kind != kind {
		s.t.Errorf("%s is of the kind %v, want %v", span.Name, span.Kind, kind)
	}
	for k, v := range want {
		if got[k] != v && !(v == "*" && got[k] != "") {
			s.t.Errorf("%s: %s is %q, want %q", span.Name, k, got[k], v)
		}
		delete(got, k)
	}
	for k, v := range got {
		s.t.Errorf("%s: has %s (%q), and nobody wants it", span.Name, k, v)
	}
}

const (
	ClientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	ClientSpan  = "00f067aa0ba902b7"
	ClientState = "vendor=CLIENTSTATE"
	Traceparent = "00-" + ClientTrace + "-" + ClientSpan + "-01"
)

// Traced is a gateway that exports, with a model that asks for tools twice.
func Traced(t *testing.T, runtime, more string) (*Gateway, *spanSink, *Upstream, *MCPServer) {
	t.Helper()
	NoLeaks(t)
	sink := NewSpanSink(t)
	up := NewUpstream(t, Script(
		Asks(Use("echo", `{"n":7177717771}`)),
		Asks(Use("echo", `{"n":7178}`), Use("broken", `{}`)),
		Says("PRIVATE-answer")))
	tools := NewMCP(t, map[string]Handler{
		"echo":   func(_ context.Context, arguments string) (string, error) { return "PRIVATE-result " + arguments, nil },
		"broken": func(context.Context, string) (string, error) { return "", errors.New("PRIVATE-failure") },
	})
	yaml := Site{Upstream: up.URL, Runtime: runtime, Servers: []string{Server("tools", tools.URL+"/mcp", `headers: {Authorization: "Bearer env:TOKEN"}`)}}.Yaml()
	return MustRunIn(t, NewData(t), yaml+more, WithCollector(sink)), sink, up, tools
}

func WithCollector(s *spanSink) map[string]string {
	env := Environment()
	env["OTEL_EXPORTER_OTLP_ENDPOINT"] = s.URL
	return env
}

const PrivateQuestion = `{"model":"m","messages":[{"role":"user","content":"PRIVATE-question"}]}`

func (s *spanSink) CheckRun(root *otlp.Span) {
	s.t.Helper()
	s.Wants(root, otlp.Span_SPAN_KIND_SERVER, map[string]string{
		"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m", "gen_ai.provider.name": "openai", "provider": "up",
		"agent_run_id": "*", "org": "o", "surface": "chat", "grade": "light", "principal": "*", "finish_reason": "complete", "rounds": "3", "tool_calls": "3",
		"gen_ai.usage.input_tokens": "30", "gen_ai.usage.output_tokens": "15",
	})
	s.Wants(s.Named("agent_round_1", -1), otlp.Span_SPAN_KIND_INTERNAL, map[string]string{
		"agent_run_id": Attributes(root.Attributes)["agent_run_id"], "org": "o", "surface": "chat", "round_index": "1",
	})
	s.Wants(s.Named("chat m", 2), otlp.Span_SPAN_KIND_CLIENT, map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.provider.name": "openai", "provider": "up",
		"agent_run_id": Attributes(root.Attributes)["agent_run_id"], "org": "o", "surface": "chat", "round_index": "2", "attempt": "1",
		"gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": "5", "gen_ai.response.finish_reasons": "stop", "gen_ai.response.id": "x",
		"gen_ai.response.time_to_first_chunk": "a number",
	})
}

func (s *spanSink) CheckTools(session string) {
	s.t.Helper()
	if session == "" {
		s.t.Error("the calls have no session")
	}
	want := map[string]string{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "echo", "gen_ai.tool.type": "extension", "gen_ai.tool.call.id": "call_0",
		"mcp.method.name": "tools/call", "mcp.session.id": session, "mcp.protocol.version": "2025-11-25", "network.transport": "tcp", "server_id": "tools", "agent_run_id": "*", "org": "o", "surface": "chat",
		"round_index": "1", "tool_call_index": "0", "attempt": "1", "outcome": "ok",
	}
	echo, broken := s.Named("execute_tool echo", 1), s.Named("execute_tool broken", 1)
	s.Wants(echo, otlp.Span_SPAN_KIND_INTERNAL, want)
	want["gen_ai.tool.name"], want["gen_ai.tool.call.id"], want["tool_call_index"] = "broken", "call_1", "1"
	want["outcome"], want["error.type"] = "error", "tool_error"
	s.Wants(broken, otlp.Span_SPAN_KIND_INTERNAL, want)
	if got := broken.Status; got.GetCode() != otlp.Status_STATUS_CODE_ERROR || got.GetMessage() != "tool_error" {
		s.t.Errorf("the failed call has the status %v", got)
	}
	if echo.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET || echo.EndTimeUnixNano <= echo.StartTimeUnixNano {
		s.t.Errorf("the call that worked has the status %v and took %d ns", echo.Status, echo.EndTimeUnixNano-echo.StartTimeUnixNano)
	}
}

// Continued fails the test unless the header goes on from the span.
func Continued(t *testing.T, from *otlp.Span, h http.Header) {
	t.Helper()
	if want := fmt.Sprintf("00-%s-%x-01", ClientTrace, from.SpanId); h.Get("Traceparent") != want || h.Get("Tracestate") != ClientState {
		t.Errorf("%s was told %q, %q; want %q", from.Name, h.Get("Traceparent"), h.Get("Tracestate"), want)
	}
}

// Scrape returns what /metrics shows: the value of every counter and gauge, and
// the count of every histogram, by name and labels.
func Scrape(t *testing.T, g *Gateway) map[string]float64 {
	t.Helper()
	found := regexp.MustCompile(`metrics are served" url=(\S+)`).FindStringSubmatch(g.Log.String())
	if found == nil {
		t.Fatal("the log does not say where the metrics are")
	}
	resp, err := g.Client.Get(found[1])
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("what is scraped is not readable: %v", err)
	}
	out := map[string]float64{}
	for name, f := range families {
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[name+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}
