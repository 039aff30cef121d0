package app_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// spanSink is a collector that takes OTLP over HTTP, as any would.
type spanSink struct {
	*httptest.Server
	t *testing.T

	mu    sync.Mutex
	raw   []byte // all that came, unpacked
	spans []*otlp.Span
	about map[string]string // of the latest resource
}

func newSpanSink(t *testing.T) *spanSink {
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
	s.raw = append(s.raw, body...)
	for _, resource := range got.ResourceSpans {
		s.about = attributes(resource.Resource.Attributes)
		for _, scope := range resource.ScopeSpans {
			s.spans = append(s.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func attributes(all []*common.KeyValue) map[string]string {
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

// tree returns the names of a span and of all below it, each level further in.
func (s *spanSink) tree(of *otlp.Span) string {
	var b strings.Builder
	s.branch(&b, of, "")
	return b.String()
}

func (s *spanSink) branch(b *strings.Builder, of *otlp.Span, indent string) {
	fmt.Fprintf(b, "%s%s\n", indent, of.Name)
	below := slices.DeleteFunc(slices.Clone(s.spans), func(c *otlp.Span) bool { return !bytes.Equal(c.ParentSpanId, of.SpanId) })
	slices.SortFunc(below, func(a, b *otlp.Span) int { return strings.Compare(place(a), place(b)) })
	for _, c := range below {
		s.branch(b, c, indent+"  ")
	}
}

// place orders spans of one parent as they were asked for.
func place(s *otlp.Span) string {
	a := attributes(s.Attributes)
	return a["round_index"] + " " + a["tool_call_index"] + " " + a["attempt"]
}

// named returns the only span of that name below the round, or anywhere for -1.
func (s *spanSink) named(name string, round int) *otlp.Span {
	s.t.Helper()
	var found []*otlp.Span
	for _, span := range s.spans {
		if span.Name == name && (round < 0 || attributes(span.Attributes)["round_index"] == fmt.Sprint(round)) {
			found = append(found, span)
		}
	}
	if len(found) != 1 {
		s.t.Fatalf("%d spans are called %s (round %d), want one", len(found), name, round)
	}
	return found[0]
}

// wants fails the test unless the span has the attributes, and no others beside
// those whose values a test cannot know.
func (s *spanSink) wants(span *otlp.Span, kind otlp.Span_SpanKind, want map[string]string) {
	s.t.Helper()
	got := attributes(span.Attributes)
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
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
	clientState = "vendor=CLIENTSTATE"
	traceparent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// traced is a gateway that exports, with a model that asks for tools twice.
func traced(t *testing.T, runtime, more string) (*gateway, *spanSink, *upstream, *mcpServer) {
	t.Helper()
	noLeaks(t)
	sink := newSpanSink(t)
	up := newUpstream(t, script(
		asks(call{"echo", `{"n":7177717771}`}),
		asks(call{"echo", `{"n":7178}`}, call{"broken", `{}`}),
		says("PRIVATE-answer")))
	tools := newMCP(t, map[string]handler{
		"echo":   func(_ context.Context, arguments string) (string, error) { return "PRIVATE-result " + arguments, nil },
		"broken": func(context.Context, string) (string, error) { return "", errors.New("PRIVATE-failure") },
	})
	yaml := site{upstream: up.URL, runtime: runtime, servers: []string{server("tools", tools.URL+"/mcp", `headers: {Authorization: "Bearer env:TOKEN"}`)}}.yaml()
	return mustRunIn(t, newData(t), yaml+more, withCollector(sink)), sink, up, tools
}

func withCollector(s *spanSink) map[string]string {
	env := environment()
	env["OTEL_EXPORTER_OTLP_ENDPOINT"] = s.URL
	return env
}

const privateQuestion = `{"model":"m","messages":[{"role":"user","content":"PRIVATE-question"}]}`

// A run of three rounds with tools, through a collector: the tree, every
// attribute, what failed; and one trace from the client to the provider and the
// MCP server. // L03 P17 C23
func TestACollectorSeesARun(t *testing.T) {
	g, sink, up, tools := traced(t, "", "")
	a := g.post(privateQuestion, "Traceparent", traceparent, "Tracestate", clientState, "Baggage", "user=PRIVATE-user")
	if got, _ := a.completion(t); got != "PRIVATE-answer" {
		t.Fatalf("the answer is %q", got)
	}
	if err := g.stop(); err != nil { // what is left is sent
		t.Fatal(err)
	}
	if sink.about["service.name"] != "turnpike" || sink.about["telemetry.sdk.language"] != "go" {
		t.Errorf("the resource is %v", sink.about)
	}
	root := sink.named("routing_execute", -1)
	const want = `routing_execute
  agent_round_0
    chat m
    execute_tool echo
  agent_round_1
    chat m
    execute_tool echo
    execute_tool broken
  agent_round_2
    chat m
`
	if got := sink.tree(root); got != want {
		t.Errorf("the tree is\n%s", got)
	}
	for _, s := range sink.spans {
		if fmt.Sprintf("%x", s.TraceId) != clientTrace {
			t.Errorf("%s belongs to the trace %x", s.Name, s.TraceId)
		}
	}
	if fmt.Sprintf("%x", root.ParentSpanId) != clientSpan {
		t.Errorf("the run's parent is %x", root.ParentSpanId)
	}
	sink.checkRun(root)
	calls := tools.of("tools/call")
	broken := calls[slices.IndexFunc(calls, func(r rpc) bool { return bytes.Contains(r.Params, []byte("broken")) })]
	sink.checkTools(broken.header.Get("Mcp-Session-Id"))
	continued(t, sink.named("chat m", 1), up.requests()[1].header)
	continued(t, sink.named("execute_tool broken", 1), broken.header)
	continued(t, sink.named("execute_tool broken", 1), metaOf(t, broken))
	for _, r := range calls {
		if strings.Contains(string(r.Params), "PRIVATE") || r.header.Get("Baggage") != "" || len(metaOf(t, r)) == 0 {
			t.Errorf("the server got %s and the baggage %q", r.Params, r.header.Get("Baggage"))
		}
	}
	for _, secret := range []string{"PRIVATE", "7177717771", "CANARY", "owner-key"} {
		if bytes.Contains(sink.raw, []byte(secret)) {
			t.Errorf("the spans hold %s", secret)
		}
	}
}

func (s *spanSink) checkRun(root *otlp.Span) {
	s.t.Helper()
	s.wants(root, otlp.Span_SPAN_KIND_SERVER, map[string]string{
		"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m", "gen_ai.provider.name": "openai", "provider": "up",
		"agent_run_id": "*", "org": "o", "surface": "chat", "grade": "light", "principal": "*", "finish_reason": "complete", "rounds": "3", "tool_calls": "3",
		"gen_ai.usage.input_tokens": "30", "gen_ai.usage.output_tokens": "15",
	})
	s.wants(s.named("agent_round_1", -1), otlp.Span_SPAN_KIND_INTERNAL, map[string]string{
		"agent_run_id": attributes(root.Attributes)["agent_run_id"], "org": "o", "surface": "chat", "round_index": "1",
	})
	s.wants(s.named("chat m", 2), otlp.Span_SPAN_KIND_CLIENT, map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.provider.name": "openai", "provider": "up",
		"agent_run_id": attributes(root.Attributes)["agent_run_id"], "org": "o", "surface": "chat", "round_index": "2", "attempt": "1",
		"gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": "5", "gen_ai.response.finish_reasons": "stop", "gen_ai.response.id": "x",
		"gen_ai.response.time_to_first_chunk": "a number",
	})
}

func (s *spanSink) checkTools(session string) {
	s.t.Helper()
	if session == "" {
		s.t.Error("the calls have no session")
	}
	want := map[string]string{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "echo", "gen_ai.tool.type": "extension", "gen_ai.tool.call.id": "call_0",
		"mcp.method.name": "tools/call", "mcp.session.id": session, "mcp.protocol.version": "2025-11-25", "network.transport": "tcp", "server_id": "tools", "agent_run_id": "*", "org": "o", "surface": "chat",
		"round_index": "1", "tool_call_index": "0", "attempt": "1", "outcome": "ok",
	}
	echo, broken := s.named("execute_tool echo", 1), s.named("execute_tool broken", 1)
	s.wants(echo, otlp.Span_SPAN_KIND_INTERNAL, want)
	want["gen_ai.tool.name"], want["gen_ai.tool.call.id"], want["tool_call_index"] = "broken", "call_1", "1"
	want["outcome"], want["error.type"] = "error", "tool_error"
	s.wants(broken, otlp.Span_SPAN_KIND_INTERNAL, want)
	if got := broken.Status; got.GetCode() != otlp.Status_STATUS_CODE_ERROR || got.GetMessage() != "tool_error" {
		s.t.Errorf("the failed call has the status %v", got)
	}
	if echo.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET || echo.EndTimeUnixNano <= echo.StartTimeUnixNano {
		s.t.Errorf("the call that worked has the status %v and took %d ns", echo.Status, echo.EndTimeUnixNano-echo.StartTimeUnixNano)
	}
}

// continued fails the test unless the header goes on from the span.
func continued(t *testing.T, from *otlp.Span, h http.Header) {
	t.Helper()
	if want := fmt.Sprintf("00-%s-%x-01", clientTrace, from.SpanId); h.Get("Traceparent") != want || h.Get("Tracestate") != clientState {
		t.Errorf("%s was told %q, %q; want %q", from.Name, h.Get("Traceparent"), h.Get("Tracestate"), want)
	}
}

// metaOf returns the strings in the _meta of a request, as a header.
func metaOf(t *testing.T, r rpc) http.Header {
	t.Helper()
	var p struct {
		Meta map[string]any `json:"_meta"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		t.Fatal(err)
	}
	out := http.Header{}
	for name, value := range p.Meta {
		if text, ok := value.(string); ok {
			out.Set(name, text)
		}
	}
	return out
}

// Content comes on request only; secrets never do. // P17 K06
func TestContentIsInSpansOnlyOnRequest(t *testing.T) {
	g, sink, _, _ := traced(t, "", "telemetry: {content: true}\n")
	g.post(privateQuestion)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	chat, tool := attributes(sink.named("chat m", 2).Attributes), attributes(sink.named("execute_tool echo", 0).Attributes)
	for key, want := range map[string]string{
		"gen_ai.input.messages":  `[{"role":"user","parts":[{"type":"text","content":"PRIVATE-question"}]},{"role":"assistant","parts":[{"type":"tool_call","id":"call_0","name":"echo","arguments":"{\"n\":7177717771}"}]},`,
		"gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"text","content":"PRIVATE-answer"}],"finish_reason":"stop"}]`,
	} {
		if !strings.HasPrefix(chat[key], want) {
			t.Errorf("%s is %s, want %s…", key, chat[key], want)
		}
	}
	if tool["gen_ai.tool.call.arguments"] != `{"n":7177717771}` || tool["gen_ai.tool.call.result"] != `PRIVATE-result {"n":7177717771}` {
		t.Errorf("the call has %v", tool)
	}
	for _, secret := range []string{"CANARY", "owner-key"} {
		if bytes.Contains(sink.raw, []byte(secret)) {
			t.Errorf("the spans hold %s", secret)
		}
	}
}

// A durable run outlives its caller, and belongs to its trace. A call that is
// not executed is seen, too.
func TestADurableRunBelongsToTheTraceOfItsCaller(t *testing.T) {
	g, sink, _, _ := traced(t, "max_calls: 1", "")
	g.post(privateQuestion, "Traceparent", traceparent, "Idempotency-Key", "k")
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	root := sink.named("routing_execute", -1)
	if fmt.Sprintf("%x", root.ParentSpanId) != clientSpan || attributes(root.Attributes)["grade"] != "durable" {
		t.Errorf("the run's parent is %x: %v", root.ParentSpanId, root.Attributes)
	}
	if got := attributes(sink.named("execute_tool broken", 1).Attributes); got["outcome"] != "skipped_limit" || got["attempt"] != "0" || got["mcp.method.name"] != "" {
		t.Errorf("the call that was not executed has %v", got)
	}
}

// A process dies while a model call of a durable run is under way, and the next process
// continues the run from what is on disk then: both belong to one trace. // P17
func TestARunThatChangesItsOwnerIsOneTrace(t *testing.T) {
	noLeaks(t)
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, _ received) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		says("done").write(w)
	})
	tools := newMCP(t, map[string]handler{"echo": echo})
	yaml := site{upstream: up.URL, servers: []string{server("tools", tools.URL+"/mcp", "")}}.yaml()
	dead, next := newSpanSink(t), newSpanSink(t)
	data := t.TempDir()
	first := mustRunIn(t, data, yaml, withCollector(dead))
	var callers sync.WaitGroup
	callers.Go(func() { first.post(privateQuestion, "Idempotency-Key", "k") })
	defer callers.Wait()
	<-asked
	second := mustRunIn(t, copyOf(t, data), yaml, withCollector(next)) // what a kill leaves behind
	<-asked
	release()
	callers.Wait()
	if err := errors.Join(first.stop(), second.stop()); err != nil { // the run ends first
		t.Fatal(err)
	}
	was, is := dead.named("routing_execute", -1), next.named("routing_execute", -1)
	if !bytes.Equal(is.TraceId, was.TraceId) || !bytes.Equal(is.ParentSpanId, was.SpanId) || attributes(is.Attributes)["taken_over"] != "true" {
		t.Errorf("the run of the next process is %x below %x (%v), want it in %x below %x", is.TraceId, is.ParentSpanId, attributes(is.Attributes), was.TraceId, was.SpanId)
	}
	if got := attributes(is.Attributes)["finish_reason"]; got != "complete" {
		t.Errorf("the next process ended the run with %q", got)
	}
	if len(was.ParentSpanId) != 0 {
		t.Errorf("the run of the first process is below %x", was.ParentSpanId)
	}
	if got := next.tree(is); got != "routing_execute\n  agent_round_0\n    chat m\n" {
		t.Errorf("the next process did\n%s", got)
	}
}

// copyOf copies the data of a gateway that is running, as they are on disk.
func copyOf(t *testing.T, data string) string {
	t.Helper()
	to := t.TempDir()
	r, err := database.OpenReader(t.Context(), filepath.Join(data, app.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.CopyTo(t.Context(), filepath.Join(to, app.DatabaseFile)); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), app.DatabaseFile) || !f.Type().IsRegular() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(data, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// A relay is one span, and the provider goes on from it; without a collector it
// goes on from the client's own.
func TestARelayIsOneSpan(t *testing.T) {
	noLeaks(t)
	sink, up := newSpanSink(t), newUpstream(t, script(says("PRIVATE-answer")))
	yaml := site{upstream: up.URL}.yaml()
	g := mustRunIn(t, t.TempDir(), yaml, withCollector(sink))
	g.post(privateQuestion, "Traceparent", traceparent, "Tracestate", clientState)
	g.post(privateQuestion, "Traceparent", "00-nonsense", "Tracestate", clientState)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if len(sink.spans) != 2 {
		t.Fatalf("%d spans, want one for each request", len(sink.spans))
	}
	sink.wants(sink.spans[0], otlp.Span_SPAN_KIND_SERVER, map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.provider.name": "openai", "provider": "up",
		"agent_run_id": "*", "org": "o", "surface": "chat", "grade": "relay", "principal": "*", "finish_reason": "complete",
		"relay_reason":              "no_loop",
		"http.response.status_code": "200", "gen_ai.response.time_to_first_chunk": "a number",
	})
	continued(t, sink.spans[0], up.requests()[0].header)
	if h := up.requests()[1].header; h.Get("Traceparent") != fmt.Sprintf("00-%x-%x-01", sink.spans[1].TraceId, sink.spans[1].SpanId) || h.Get("Tracestate") != "" {
		t.Errorf("after nonsense the provider was told %q, %q", h.Get("Traceparent"), h.Get("Tracestate"))
	}
	if bytes.Contains(sink.raw, []byte("PRIVATE")) {
		t.Error("the spans hold what was said")
	}
	off := MustRun(t, yaml)
	off.post(privateQuestion, "Traceparent", traceparent, "Tracestate", clientState)
	if h := up.requests()[2].header; h.Get("Traceparent") != traceparent || h.Get("Tracestate") != clientState {
		t.Errorf("without a collector the provider was told %q, %q", h.Get("Traceparent"), h.Get("Tracestate"))
	}
}

// A collector that is not there costs a line in the log, and no request.
func TestACollectorThatIsGoneCostsNothing(t *testing.T) {
	alone(t)
	g, sink, _, _ := traced(t, "", "")
	sink.Close()
	for range 3 {
		if a := g.post(privateQuestion); a.status != 200 {
			t.Errorf("status %d", a.status)
		}
	}
	began := time.Now()
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > app.LastSpans+3*time.Second {
		t.Errorf("the gateway stopped after %v", took)
	}
	if got := strings.Count(g.log.String(), "spans could not be exported"); got != 1 {
		t.Errorf("the log says so %d times, want once", got)
	}
}

// scrape returns what /metrics shows: the value of every counter and gauge, and
// the count of every histogram, by name and labels.
func scrape(t *testing.T, g *gateway) map[string]float64 {
	t.Helper()
	found := regexp.MustCompile(`metrics are served" url=(\S+)`).FindStringSubmatch(g.log.String())
	if found == nil {
		t.Fatal("the log does not say where the metrics are")
	}
	resp, err := g.client.Get(found[1])
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

func TestTheMetricsOfAScrape(t *testing.T) { // L09 L05 K07
	noLeaks(t)
	var flaky atomic.Int64
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, got received) {
		switch {
		case bytes.Contains(got.body, []byte(`"g-none"`)):
			http.Error(w, `{"error":{"message":"no such model"}}`, http.StatusNotFound)
		case bytes.Contains(got.body, []byte(`"g-flaky"`)) && flaky.Add(1) == 1:
			http.Error(w, `{"error":{"message":"busy"}}`, http.StatusServiceUnavailable)
		case bytes.Contains(got.body, []byte(`"g-flaky"`)):
			says("done").write(w)
		case bytes.Contains(got.body, []byte(`"tools"`)) && !bytes.Contains(got.body, []byte(`"role":"tool"`)):
			asks(call{"echo", `{"n":1}`}, call{"nobody", `{}`}).write(w)
		default:
			says("done").write(w)
		}
	})
	tools := newMCP(t, map[string]handler{"echo": echo})
	yaml := site{upstream: up.URL, servers: []string{server("tools", tools.URL+"/mcp")}}.yaml() + `
  - id: second
    features: [mcp_outbound]
    runtime: {max_rounds: 1}
    keys: [{name: a, key: second-key, role: owner}]
    mcp_servers: [{name: tools, url: "` + tools.URL + `/mcp"}]
telemetry: {metrics_listen: "127.0.0.1:0"}
`
	g := MustRun(t, yaml)
	g.post(question)
	g.post(question, "Turnpike-Mcp-Disabled", "1")
	g.post(strings.Replace(question, `"m"`, `"g-none"`, 1), "Turnpike-Mcp-Disabled", "1")
	g.post(strings.Replace(question, `"m"`, `"g-flaky"`, 1))
	g.post(question, "Authorization", "Bearer second-key")
	g.post(question, "Authorization", "Bearer nobody")
	g.post(strings.Replace(question, `"m"`, `"unknown"`, 1))
	if status := g.send("GET", "/metrics", nil).status; status != 404 {
		t.Errorf("clients get %d for /metrics", status)
	}
	got := scrape(t, g)
	for name, want := range map[string]float64{
		"turnpike_requests_total{model=m,org=o,provider=up,status=ok,surface=agent}":         2,
		"turnpike_requests_total{model=m,org=o,provider=up,status=ok,surface=relay}":         1,
		"turnpike_requests_total{model=other,org=o,provider=up,status=failed,surface=relay}": 1,
		"turnpike_requests_total{model=m,org=second,provider=up,status=ok,surface=agent}":    1,
		"turnpike_request_duration_seconds{model=m,org=o,provider=up,surface=agent}":         2,
		"turnpike_request_duration_seconds{model=m,org=o,provider=up,surface=relay}":         1,
		"turnpike_time_to_first_token_seconds{model=m,org=o,provider=up,surface=relay}":      1,
		"turnpike_tokens_total{model=m,org=o,provider=up,type=input}":                        20,
		"turnpike_tokens_total{model=m,org=second,provider=up,type=output}":                  5,
		"turnpike_tool_calls_total{org=o,outcome=ok,server=tools}":                           1,
		"turnpike_tool_calls_total{org=o,outcome=error,server=none}":                         1,
		"turnpike_tool_call_duration_seconds{org=o,server=tools}":                            1,
		"turnpike_requests_total{model=g-flaky,org=o,provider=up,status=ok,surface=agent}":   1,
		"turnpike_provider_errors_total{error=404,provider=up}":                              1,
		"turnpike_provider_errors_total{error=503,provider=up}":                              1,
		"turnpike_runs_total{org=o,reason=complete,surface=chat}":                            2,
		"turnpike_runs_total{org=second,reason=max_rounds,surface=chat}":                     1,
		"turnpike_budgets_exhausted_total{budget=max_rounds,org=second}":                     1,
		"turnpike_slots_in_use{org=o}":                                                       0,
		"turnpike_refusals_total{code=invalid_api_key,org=none}":                             1,
		"turnpike_refusals_total{code=model_not_found,org=o}":                                1,
		"turnpike_relays_in_flight{}":                                                        0,

		"turnpike_build_info{go_version=" + runtime.Version() + ",version=" + app.Version() + "}": 1,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (%t), want %v", name, value, ok, want)
		}
	}
	for _, name := range []string{"turnpike_store_queue_length{}", "go_goroutines{}", "process_cpu_seconds_total{}"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestEachRequestHasOneLineInTheLog(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	tools := newMCP(t, map[string]handler{"echo": echo})
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("tools", tools.URL+"/mcp")}}.yaml())
	g.post(chatBody)
	g.post(chatBody, "Turnpike-Mcp-Disabled", "1")
	g.post(chatBody, "Authorization", "Bearer wrong")
	g.send("GET", "/nowhere/CANARY-path?x=CANARY-query", nil)
	g.send("GET", "/healthz", nil)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(g.log.String()) {
		if _, rest, ok := strings.Cut(line, " msg=request "); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	for i, want := range []string{
		`method=POST path=/v1/chat/completions status=200 request=req_\S+ org=o key=\S+ model=m run=run_\S+ reason=complete rounds=2 tool_calls=1 input_tokens=20 output_tokens=10 ttft_ms=\d+ ms=\d+ bytes=\d\d+`,
		`method=POST path=/v1/chat/completions status=200 request=req_\S+ org=o key=\S+ model=m run=req_\S+ reason=complete ttft_ms=\d+ ms=\d+ bytes=\d\d+`,
		`method=POST path=/v1/chat/completions status=401 code=invalid_api_key request=req_\S+ ms=\d+ bytes=\d\d+`,
		`method=GET path=- status=404 code=not_found request=req_\S+ ms=\d+ bytes=\d\d+`,
		`method=GET path=/healthz status=200 request=req_\S+ ms=\d+ bytes=3`,
	} {
		if i >= len(lines) || !regexp.MustCompile(`^`+want+`$`).MatchString(lines[i]) {
			t.Errorf("line %d of %q is not %s", i, lines, want)
		}
	}
	if log := g.log.String(); strings.Contains(log, "CANARY-path") || strings.Contains(log, "CANARY-query") {
		t.Error("the log holds what a client wrote into its URL")
	}
}
