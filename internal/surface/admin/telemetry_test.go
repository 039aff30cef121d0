package admin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// A run of three rounds with tools, through a collector: the tree, every
// attribute, what failed; and one trace from the client to the provider and the
// MCP server. // L03 P17 C23
func TestACollectorSeesARun(t *testing.T) {
	g, sink, up, tools := Traced(t, "", "")
	a := g.Post(PrivateQuestion, "Traceparent", Traceparent, "Tracestate", ClientState, "Baggage", "user=PRIVATE-user")
	if got, _ := a.Completion(t); got != "PRIVATE-answer" {
		t.Fatalf("the answer is %q", got)
	}
	if err := g.Stop(); err != nil { // what is left is sent
		t.Fatal(err)
	}
	if sink.About["service.name"] != "turnpike" || sink.About["telemetry.sdk.language"] != "go" {
		t.Errorf("the resource is %v", sink.About)
	}
	root := sink.Named("routing_execute", -1)
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
	if got := sink.Tree(root); got != want {
		t.Errorf("the tree is\n%s", got)
	}
	for _, s := range sink.Spans {
		if fmt.Sprintf("%x", s.TraceId) != ClientTrace {
			t.Errorf("%s belongs to the trace %x", s.Name, s.TraceId)
		}
	}
	if fmt.Sprintf("%x", root.ParentSpanId) != ClientSpan {
		t.Errorf("the run's parent is %x", root.ParentSpanId)
	}
	sink.CheckRun(root)
	calls := tools.Of("tools/call")
	broken := calls[slices.IndexFunc(calls, func(r RPC) bool { return bytes.Contains(r.Params, []byte("broken")) })]
	sink.CheckTools(broken.Header.Get("Mcp-Session-Id"))
	Continued(t, sink.Named("chat m", 1), up.Requests()[1].Header)
	Continued(t, sink.Named("execute_tool broken", 1), broken.Header)
	Continued(t, sink.Named("execute_tool broken", 1), metaOf(t, broken))
	for _, r := range calls {
		if strings.Contains(string(r.Params), "PRIVATE") || r.Header.Get("Baggage") != "" || len(metaOf(t, r)) == 0 {
			t.Errorf("the server got %s and the baggage %q", r.Params, r.Header.Get("Baggage"))
		}
	}
	for _, secret := range []string{"PRIVATE", "7177717771", "CANARY", "owner-key"} {
		if bytes.Contains(sink.Raw, []byte(secret)) {
			t.Errorf("the spans hold %s", secret)
		}
	}
}

// metaOf returns the strings in the _meta of a request, as a header.
func metaOf(t *testing.T, r RPC) http.Header {
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
	g, sink, _, _ := Traced(t, "", "telemetry: {content: true}\n")
	g.Post(PrivateQuestion)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	chat, tool := Attributes(sink.Named("chat m", 2).Attributes), Attributes(sink.Named("execute_tool echo", 0).Attributes)
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
		if bytes.Contains(sink.Raw, []byte(secret)) {
			t.Errorf("the spans hold %s", secret)
		}
	}
}

// A durable run outlives its caller, and belongs to its trace. A call that is
// not executed is seen, too.
func TestADurableRunBelongsToTheTraceOfItsCaller(t *testing.T) {
	g, sink, _, _ := Traced(t, "max_calls: 1", "")
	g.Post(PrivateQuestion, "Traceparent", Traceparent, "Idempotency-Key", "k")
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	root := sink.Named("routing_execute", -1)
	if fmt.Sprintf("%x", root.ParentSpanId) != ClientSpan || Attributes(root.Attributes)["grade"] != "durable" {
		t.Errorf("the run's parent is %x: %v", root.ParentSpanId, root.Attributes)
	}
	if got := Attributes(sink.Named("execute_tool broken", 1).Attributes); got["outcome"] != "skipped_limit" || got["attempt"] != "0" || got["mcp.method.name"] != "" {
		t.Errorf("the call that was not executed has %v", got)
	}
}

// A process dies while a model call of a durable run is under way, and the next process
// continues the run from what is on disk then: both belong to one trace. // P17
func TestARunThatChangesItsOwnerIsOneTrace(t *testing.T) {
	NoLeaks(t)
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		Says("done").Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL+"/mcp", "")}}.Yaml()
	dead, next := NewSpanSink(t), NewSpanSink(t)
	data := NewData(t)
	first := MustRunIn(t, data, yaml, WithCollector(dead))
	var callers sync.WaitGroup
	callers.Go(func() { first.Post(PrivateQuestion, "Idempotency-Key", "k") })
	defer callers.Wait()
	<-asked
	second := MustRunIn(t, copyOf(t, data), yaml, WithCollector(next)) // what a kill leaves behind
	<-asked
	release()
	callers.Wait()
	if err := errors.Join(first.Stop(), second.Stop()); err != nil { // the run ends first
		t.Fatal(err)
	}
	was, is := dead.Named("routing_execute", -1), next.Named("routing_execute", -1)
	if !bytes.Equal(is.TraceId, was.TraceId) || !bytes.Equal(is.ParentSpanId, was.SpanId) || Attributes(is.Attributes)["taken_over"] != "true" {
		t.Errorf("the run of the next process is %x below %x (%v), want it in %x below %x", is.TraceId, is.ParentSpanId, Attributes(is.Attributes), was.TraceId, was.SpanId)
	}
	if got := Attributes(is.Attributes)["finish_reason"]; got != "complete" {
		t.Errorf("the next process ended the run with %q", got)
	}
	if len(was.ParentSpanId) != 0 {
		t.Errorf("the run of the first process is below %x", was.ParentSpanId)
	}
	if got := next.Tree(is); got != "routing_execute\n  agent_round_0\n    chat m\n" {
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
	NoLeaks(t)
	sink, up := NewSpanSink(t), NewUpstream(t, Script(Says("PRIVATE-answer")))
	yaml := Site{Upstream: up.URL}.Yaml()
	g := MustRunIn(t, NewData(t), yaml, WithCollector(sink))
	g.Post(PrivateQuestion, "Traceparent", Traceparent, "Tracestate", ClientState)
	g.Post(PrivateQuestion, "Traceparent", "00-nonsense", "Tracestate", ClientState)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if len(sink.Spans) != 2 {
		t.Fatalf("%d spans, want one for each request", len(sink.Spans))
	}
	sink.Wants(sink.Spans[0], otlp.Span_SPAN_KIND_SERVER, map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.provider.name": "openai", "provider": "up",
		"agent_run_id": "*", "org": "o", "surface": "chat", "grade": "relay", "principal": "*", "finish_reason": "complete",
		"relay_reason":              "no_loop",
		"http.response.status_code": "200", "gen_ai.response.time_to_first_chunk": "a number",
	})
	Continued(t, sink.Spans[0], up.Requests()[0].Header)
	if h := up.Requests()[1].Header; h.Get("Traceparent") != fmt.Sprintf("00-%x-%x-01", sink.Spans[1].TraceId, sink.Spans[1].SpanId) || h.Get("Tracestate") != "" {
		t.Errorf("after nonsense the provider was told %q, %q", h.Get("Traceparent"), h.Get("Tracestate"))
	}
	if bytes.Contains(sink.Raw, []byte("PRIVATE")) {
		t.Error("the spans hold what was said")
	}
	off := MustRun(t, yaml)
	off.Post(PrivateQuestion, "Traceparent", Traceparent, "Tracestate", ClientState)
	if h := up.Requests()[2].Header; h.Get("Traceparent") != Traceparent || h.Get("Tracestate") != ClientState {
		t.Errorf("without a collector the provider was told %q, %q", h.Get("Traceparent"), h.Get("Tracestate"))
	}
}

func TestTheMetricsOfAScrape(t *testing.T) { // L09 L05 K07
	NoLeaks(t)
	var flaky atomic.Int64
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		switch {
		case bytes.Contains(got.Body, []byte(`"g-none"`)):
			http.Error(w, `{"error":{"message":"no such model"}}`, http.StatusNotFound)
		case bytes.Contains(got.Body, []byte(`"g-flaky"`)) && flaky.Add(1) == 1:
			http.Error(w, `{"error":{"message":"busy"}}`, http.StatusServiceUnavailable)
		case bytes.Contains(got.Body, []byte(`"g-flaky"`)):
			Says("done").Write(w)
		case bytes.Contains(got.Body, []byte(`"tools"`)) && !bytes.Contains(got.Body, []byte(`"role":"tool"`)):
			Asks(Use("echo", `{"n":1}`), Use("nobody", `{}`)).Write(w)
		default:
			Says("done").Write(w)
		}
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL+"/mcp")}}.Yaml() + `
  - id: second
    features: [mcp_outbound]
    runtime: {max_rounds: 1}
    keys: [{name: a, key: second-key, role: owner}]
    mcp_servers: [{name: tools, url: "` + tools.URL + `/mcp"}]
telemetry: {metrics_listen: "127.0.0.1:0"}
`
	g := MustRun(t, yaml)
	g.Post(Question)
	g.Post(Question, "Turnpike-Mcp-Disabled", "1")
	g.Post(strings.Replace(Question, `"m"`, `"g-none"`, 1), "Turnpike-Mcp-Disabled", "1")
	g.Post(strings.Replace(Question, `"m"`, `"g-flaky"`, 1))
	g.Post(Question, "Authorization", "Bearer second-key")
	g.Post(Question, "Authorization", "Bearer nobody")
	g.Post(strings.Replace(Question, `"m"`, `"unknown"`, 1))
	if status := g.Send("GET", "/metrics", nil).Status; status != 404 {
		t.Errorf("clients get %d for /metrics", status)
	}
	got := Scrape(t, g)
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
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL+"/mcp")}}.Yaml())
	g.Post(ChatBody)
	g.Post(ChatBody, "Turnpike-Mcp-Disabled", "1")
	g.Post(ChatBody, "Authorization", "Bearer wrong")
	g.Send("GET", "/nowhere/CANARY-path?x=CANARY-query", nil)
	g.Send("GET", "/healthz", nil)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(g.Log.String()) {
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
	if log := g.Log.String(); strings.Contains(log, "CANARY-path") || strings.Contains(log, "CANARY-query") {
		t.Error("the log holds what a client wrote into its URL")
	}
}
