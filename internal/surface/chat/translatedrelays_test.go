package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// messagesSite boots a gateway whose loop is off and whose provider speaks the Messages
// dialect: a strict one that plays the story.
func messagesSite(t *testing.T, data, story, runtime string) (*Gateway, *turnpiketest.Upstream) {
	t.Helper()
	up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, story), turnpiketest.UpstreamOptions{Strict: true})
	t.Cleanup(up.Close)
	yaml := Claude(Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Runtime: runtime}, "")
	return MustRunIn(t, data, yaml, Environment()), up
}

const parallelCalls = `reasoning Two places.
text Looking.
call c1 weather {"city":"Lisbon"}
call c2 weather {"city":"Oslo"}
usage 20 9
again`

const twoCities = `{"model":"m","max_tokens":77,"tool_choice":"required","seed":1,
	"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"go"}],
	"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]}`

// With the loop off, a chat client is served by a provider of another dialect. // A14
func TestARelayToAnotherDialectIsTranslated(t *testing.T) {
	NoLeaks(t)
	data := NewData(t)
	g, up := messagesSite(t, data, parallelCalls, "")
	a := g.Post(twoCities)
	var c WireCompletion
	if err := json.Unmarshal(a.Body, &c); err != nil || a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	if m := c.Choices[0].Message; m.Content != "Looking." || c.Choices[0].FinishReason != "tool_calls" || len(m.ToolCalls) != 2 ||
		m.ToolCalls[0].ID == m.ToolCalls[1].ID || m.ToolCalls[1].Function.Arguments != `{"city":"Oslo"}` || c.Usage.Total != 29 {
		t.Errorf("the answer is %s", a.Body)
	}
	if a.Header.Get("Turnpike-Run-Id") != "" || !strings.HasPrefix(a.Header.Get("Turnpike-Request-Id"), "req_") || a.Header.Get("Turnpike-Dropped-Params") != "seed" {
		t.Errorf("header %v", a.Header)
	}
	streamed := g.Post(strings.Replace(twoCities, "{", `{"stream":true,"stream_options":{"include_usage":true},`, 1))
	s := streamed.Stream(t)
	if s.Text != "Looking." || fmt.Sprint(s.Reasons) != "[tool_calls]" || s.Done != 1 || len(s.Errors) != 0 ||
		!strings.Contains(string(streamed.Body), `"reasoning_content":"Two places."`) || !strings.Contains(string(streamed.Body), `"total_tokens":29`) {
		t.Errorf("the stream is %s", streamed.Body)
	}
	for _, got := range up.Requests() {
		var sent struct {
			MaxTokens  int `json:"max_tokens"`
			System     json.RawMessage
			Tools      []json.RawMessage
			ToolChoice struct{ Type string } `json:"tool_choice"`
		}
		if err := json.Unmarshal(got.Body, &sent); err != nil {
			t.Fatal(err)
		}
		if got.Path != "/v1/messages" || got.Header.Get("X-Api-Key") != "CANARY-upstream-key" || got.Header.Get("Authorization") != "" ||
			sent.MaxTokens != 77 || len(sent.Tools) != 1 || sent.ToolChoice.Type != "any" || !strings.Contains(string(sent.System), "Be brief.") {
			t.Errorf("the upstream got %s with %v: %s", got.Path, got.Header, got.Body)
		}
	}
	status, runs, errs := RunMain(t, "runs", "list", "--json", "--data", data, "--org", "o")
	if status != 0 || runs != "" {
		t.Errorf("stored runs: %d, %s%s", status, runs, errs)
	}
}

// A relay takes no slot, also when it is translated: both requests are at the
// provider at the same time, of an org that may have one run.
func TestATranslatedRelayTakesNoSlotAndEndsWithItsClient(t *testing.T) {
	NoLeaks(t)
	g, up := messagesSite(t, NewData(t), "text Hm\nhang\nagain", "concurrency: 1")
	ctx, leave := context.WithCancel(t.Context())
	over := make(chan error, 2)
	for _, body := range []string{Question, strings.Replace(Question, "{", `{"stream":true,`, 1)} {
		go func() {
			resp, err := g.Client.Do(g.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(body)))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			over <- err
		}()
	}
	reached, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := up.Await(reached, 2); err != nil {
		t.Fatal(err)
	}
	leave()
	for range 2 {
		if err := Wait(t, over, "the clients' end"); err == nil {
			t.Error("a client got a whole answer")
		}
	}
	// noLeaks fails the test if the provider still serves one of the requests.
}

// Errors of a provider of another dialect reach the client as those of its own, and
// nothing is repeated.
func TestErrorsOfATranslatedRelay(t *testing.T) {
	NoLeaks(t)
	for _, tt := range []struct {
		status    int
		body      string
		want      int
		kind      string
		code      string
		message   string
		final     string // x-should-retry
		relations string // header fields that the client gets
	}{
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"bad"}}`, 400, "invalid_request_error", "invalid_request_error", "bad", "", ""},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 300000 tokens > 200000 maximum"}}`, 400, "invalid_request_error", "context_length_exceeded", "prompt is too long: 300000 tokens > 200000 maximum", "", ""},
		{401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, 502, "upstream_error", "upstream_credential_refused", "", "false", ""},
		{403, `{"type":"error","error":{"type":"permission_error","message":"not yours"}}`, 403, "permission_error", "permission_error", "not yours", "", ""},
		{404, `{"type":"error","error":{"type":"not_found_error","message":"model: m"}}`, 404, "invalid_request_error", "not_found_error", "model: m", "", ""},
		{413, `{"type":"error","error":{"type":"request_too_large","message":"large"}}`, 413, "invalid_request_error", "request_too_large", "large", "", ""},
		{429, `{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`, 429, "rate_limit_error", "rate_limit_error", "slow", "", "Retry-After: 7"},
		{500, `{"type":"error","error":{"type":"api_error","message":"oops"}}`, 500, "upstream_error", "api_error", "oops", "", ""},
		{529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, 529, "upstream_error", "overloaded_error", "Overloaded", "", "Retry-After: 7"},
		{502, `<html>bad gateway</html>`, 502, "upstream_error", "model_error", "", "", ""},
		{503, ``, 503, "upstream_error", "model_error", "", "", ""},
	} {
		t.Run(fmt.Sprint(tt.status, " ", tt.code), func(t *testing.T) {
			up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Request-Id", "req_theirs")
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			g := MustRun(t, Claude(Site{Upstream: up.URL}, ""))
			for i, body := range []string{Question, strings.Replace(Question, "{", `{"stream":true,`, 1)} {
				a := g.Post(body)
				e := a.Fault(t).Error
				if a.Status != tt.want || e.Type != tt.kind || e.Code == nil || *e.Code != tt.code || tt.message != "" && e.Message != tt.message || a.Header.Get("X-Should-Retry") != tt.final {
					t.Errorf("status %d, x-should-retry %q: %s", a.Status, a.Header.Get("X-Should-Retry"), a.Body)
				}
				if name, value, ok := strings.Cut(tt.relations, ": "); ok && a.Header.Get(name) != value {
					t.Errorf("header %v lacks %s", a.Header, tt.relations)
				}
				if tt.want == tt.status && a.Header.Get("Request-Id") != "req_theirs" {
					t.Errorf("the provider's request id is lost: %v", a.Header)
				}
				if got := len(up.Requests()); got != i+1 {
					t.Errorf("%d requests to the provider, want %d", got, i+1)
				}
			}
		})
	}
}

// An answer that fails after it has begun ends in the form of the client's dialect.
func TestATranslatedRelayThatFailsInMidStream(t *testing.T) {
	NoLeaks(t)
	for _, tt := range []struct{ name, story, code, message string }{
		{"the provider says so", "text Hel\nfail 529 Overloaded", "overloaded_error", "Overloaded"},
		{"the connection breaks", "text Hel\ncut", "model_error", "up"},
		{"the connection breaks after a call", "text Hel\ncall c1 f {}\ntext lo\ncut", "model_error", "up"}, // nothing of a broken turn is complete for a client
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, up := messagesSite(t, NewData(t), tt.story+"\nagain", "")
			s := g.Post(strings.Replace(Question, "{", `{"stream":true,`, 1)).Stream(t)
			if !strings.HasPrefix(s.Text, "Hel") || len(s.Errors) != 1 || s.Done != 1 || len(s.Reasons) != 0 {
				t.Fatalf("the stream is %+v", s)
			}
			if !strings.Contains(s.Errors[0], `"code":"`+tt.code+`"`) || !strings.Contains(s.Errors[0], tt.message) || strings.Contains(s.Errors[0], `"type":"error"`) {
				t.Errorf("the error is %s", s.Errors[0])
			}
			if a := g.Post(Question); a.Status < 500 {
				t.Errorf("as JSON: status %d: %s", a.Status, a.Body)
			}
			if got := len(up.Requests()); got != 2 {
				t.Errorf("%d requests to the provider, want 2: a relay repeats nothing", got)
			}
		})
	}
}

// What a client gets does not depend on the dialect of the provider. // A14
func TestARelayLooksTheSameWhateverTheProviderSpeaks(t *testing.T) {
	NoLeaks(t)
	for _, kind := range []string{"anthropic", "openai-responses", "gemini", "bedrock"} {
		t.Run(kind, func(t *testing.T) {
			up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, "text Looking.\ncall c1 weather {\"city\":\"Lisbon\"}\ncall c2 weather {\"city\":\"Oslo\"}\nusage 20 9\nagain 1\n\ntext Hel\nstop length\n\nfail 429 retry-after 7 slow\n\ntext Hel\nfail 500 oops"),
				turnpiketest.UpstreamOptions{Strict: true})
			t.Cleanup(up.Close)
			yaml, _ := OfKind(Site{Upstream: strings.TrimSuffix(up.URL, "/v1")}.Yaml(), kind)
			g := MustRun(t, yaml)
			streaming := strings.Replace(twoCities, "{", `{"stream":true,"stream_options":{"include_usage":true},`, 1)
			for _, body := range []string{twoCities, streaming} {
				a := g.Post(body)
				calls := callsIn(a)
				if a.Status != 200 || fmt.Sprint(calls) != `[{weather {"city":"Lisbon"}} {weather {"city":"Oslo"}}]` ||
					!strings.Contains(string(a.Body), `"finish_reason":"tool_calls"`) || !strings.Contains(string(a.Body), `"prompt_tokens":20,"completion_tokens":9`) {
					t.Errorf("status %d, calls %v: %s", a.Status, calls, a.Body)
				}
			}
			if text, reason := g.Post(Question).Completion(t); text != "Hel" || reason != "length" {
				t.Errorf("%q ends with %s", text, reason)
			}
			if a := g.Post(Question); a.Status != 429 || a.Header.Get("Retry-After") != "7" || a.Fault(t).Error.Message != "slow" || a.Fault(t).Error.Type != "rate_limit_error" {
				t.Errorf("status %d: %s", a.Status, a.Body)
			}
			if s := g.Post(strings.Replace(Question, "{", `{"stream":true,`, 1)).Stream(t); s.Text != "Hel" || len(s.Errors) != 1 || !strings.Contains(s.Errors[0], "oops") || s.Done != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// C25
func TestAForcedToolChoiceOfATranslatedRelayNeedsATool(t *testing.T) {
	NoLeaks(t)
	g, up := messagesSite(t, NewData(t), "text Hm\nagain", "")
	for _, choice := range []string{`"required"`, `{"type":"function","function":{"name":"ghost"}}`,
		`{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"ghost"}}]}}`} {
		a := g.Post(strings.Replace(Question, "{", `{"tool_choice":`+choice+`,`, 1))
		if e := a.Fault(t).Error; a.Status != 400 || e.Param == nil || *e.Param != "tool_choice" || *e.Code != "tool_choice_unavailable" {
			t.Errorf("%s: status %d: %s", choice, a.Status, a.Body)
		}
	}
	if len(up.Requests()) != 0 {
		t.Error("the provider was asked")
	}
	only := `{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"b"}}]}}`
	a := g.Post(strings.Replace(Question, "{", `{"tool_choice":`+only+`,"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}],`, 1))
	if sent := string(up.Requests()[0].Body); a.Status != 200 || !strings.Contains(sent, `"name":"b"`) || strings.Contains(sent, `"name":"a"`) || !strings.Contains(sent, `"type":"any"`) {
		t.Errorf("status %d, the provider got %s", a.Status, sent)
	}
}

// A translated relay leaves one audit row, with its tokens. // L01
func TestATranslatedRelayLeavesOneRow(t *testing.T) {
	NoLeaks(t)
	g, _ := messagesSite(t, NewData(t), parallelCalls, "")
	d := Manage(g)
	id := g.Post(twoCities).Header.Get("Turnpike-Request-Id")
	var rows []any
	for end := time.Now().Add(Patience); len(rows) == 0 && time.Now().Before(end); { // it is written a little later
		rows = d.Do("GET", "/api/audit?request_id="+id, "owner-key", "", 200)["data"].([]any)
	}
	row := rows[0].(map[string]any)
	body := row["body"].(map[string]any)
	if len(rows) != 1 || row["agent_run_id"] != nil || body["surface"] != "relay" || body["status"] != "ok" || body["http_status"] != 200.0 ||
		body["input_tokens"] != 20.0 || body["output_tokens"] != 9.0 || body["tool_calls"] != 2.0 || body["provider"] != "up" {
		t.Errorf("%v", rows)
	}
}

// A translated relay is one span, as any relay, and tells the tokens too.
func TestATranslatedRelayIsOneSpan(t *testing.T) {
	NoLeaks(t)
	sink := NewSpanSink(t)
	up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, "text Hm\nusage 12 3"), turnpiketest.UpstreamOptions{Strict: true})
	t.Cleanup(up.Close)
	g := MustRunIn(t, NewData(t), Claude(Site{Upstream: strings.TrimSuffix(up.URL, "/v1")}, ""), WithCollector(sink))
	g.Post(PrivateQuestion, "Traceparent", Traceparent, "Tracestate", ClientState)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if len(sink.Spans) != 1 {
		t.Fatalf("%d spans, want one", len(sink.Spans))
	}
	sink.Wants(sink.Spans[0], otlp.Span_SPAN_KIND_SERVER, map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.provider.name": "anthropic", "provider": "up",
		"agent_run_id": "*", "org": "o", "surface": "chat", "grade": "relay", "principal": "*", "finish_reason": "complete",
		"relay_reason":              "no_loop",
		"http.response.status_code": "200", "gen_ai.response.time_to_first_chunk": "a number",
		"gen_ai.usage.input_tokens": "12", "gen_ai.usage.output_tokens": "3",
	})
	Continued(t, sink.Spans[0], up.Requests()[0].Header)
}

// function.strict reaches a provider whose dialect has it, and is named where it
// does not, with the loop on and off. // C08
func TestStrictFunctionsArePassedOnOrNamed(t *testing.T) {
	NoLeaks(t)
	const tools = `"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false}}}],`
	body := strings.Replace(Question, "{", "{"+tools, 1)
	gateways := NewMCP(t, map[string]Handler{"echo": Echo})
	for name, servers := range map[string][]string{"loop on": {Server("s", gateways.URL)}, "loop off": nil} {
		t.Run(name, func(t *testing.T) {
			up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, "text Hm\nagain"), turnpiketest.UpstreamOptions{Strict: true})
			t.Cleanup(up.Close)
			s := Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Servers: servers}
			if a := MustRun(t, s.Yaml()).Post(body); a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "" || !strings.Contains(string(up.Requests()[0].Body), `"strict":true`) {
				t.Errorf("chat completions: status %d: %s, header %v", a.Status, a.Body, a.Header)
			}
			if a := MustRun(t, Claude(s, "")).Post(body); a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "tools[].function.strict" {
				t.Errorf("messages: status %d: %s, header %v", a.Status, a.Body, a.Header)
			}
		})
	}
}

// A client of the Responses API reads the names of its own members, in the header and
// in the error of an org that refuses them. // P22
func TestWhatAResponsesRequestLosesHasItsNames(t *testing.T) {
	const body = `{"model":"m","store":false,"text":{"format":{"type":"json_object"},"verbosity":"low"},"reasoning":{"effort":"auto"},
		"input":[{"role":"user","content":"hi"},{"type":"web_search_call","id":"ws_1","status":"completed"}]}`
	g, _ := messagesSite(t, NewData(t), "text a", "")
	a := g.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key")
	if got, want := a.Header.Get("Turnpike-Dropped-Params"), "input[1],reasoning.effort,text.format,text.verbosity"; a.Status != 200 || got != want {
		t.Errorf("status %d, dropped %q, want %q: %s", a.Status, got, want, a.Body)
	}
	g, up := messagesSite(t, NewData(t), "text a", "dropped_params: refuse")
	for lost, want := range map[string]string{
		`"text":{"verbosity":"low"}`: `"param":"text.verbosity"`, `"reasoning":{"effort":"auto"}`: `"param":"reasoning.effort"`,
		`"text":{"format":{"type":"json_object"}}`: `"param":"text.format"`,
	} {
		a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"hi",`+lost+`}`), "Authorization", "Bearer owner-key")
		if a.Status != 400 || !strings.Contains(string(a.Body), want) || !strings.Contains(string(a.Body), `"code":"unsupported_parameter"`) {
			t.Errorf("%s: status %d: %s", lost, a.Status, a.Body)
		}
	}
	if n := len(up.Requests()); n != 0 {
		t.Errorf("%d requests reached the provider", n)
	}
}

// callsIn returns the tool calls of an answer, whose pieces clients join by their index.
func callsIn(a Answer) []Call {
	type piece struct {
		Index    int
		Function struct{ Name, Arguments string }
	}
	type said struct {
		ToolCalls []piece `json:"tool_calls"`
	}
	var out []Call
	for line := range strings.Lines(string(a.Body)) {
		var c struct {
			Choices []struct{ Message, Delta said }
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &c) != nil || len(c.Choices) == 0 {
			continue // an empty line, the usage or the end mark
		}
		for _, p := range c.Choices[0].Message.ToolCalls {
			out = append(out, Use(p.Function.Name, p.Function.Arguments))
		}
		for _, p := range c.Choices[0].Delta.ToolCalls {
			if p.Index == len(out) {
				out = append(out, Call{})
			}
			out[p.Index].Name += p.Function.Name
			out[p.Index].Arguments += p.Function.Arguments
		}
	}
	return out
}
