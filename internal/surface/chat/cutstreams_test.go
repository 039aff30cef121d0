package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// A provider that thinks before it speaks, and counts 10 tokens of input and 500 of output.
const (
	countedInput  = 10
	countedOutput = 500
)

// countedStreams returns the events of an answer of two words in each dialect, and the same answer as JSON where a
// provider of the dialect is relayed to unchanged. The usage is in the last but one at the earliest.
func countedStreams() map[string][]string {
	sse := func(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }
	message := func(name, data string) string {
		m := eventstream.Message{Payload: []byte(data)}
		m.Headers.Set(":message-type", eventstream.StringValue("event"))
		m.Headers.Set(":event-type", eventstream.StringValue(name))
		m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
		var b bytes.Buffer
		if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
			panic(err)
		}
		return b.String()
	}
	chunk := func(choices, more string) string {
		return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[` + choices + `]` + more + "}\n\n"
	}
	gemini := func(text, more string, output, thoughts int) string {
		return fmt.Sprintf(`data: {"candidates":[{"content":{"role":"model","parts":[{"text":%q}]}%s}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":%d,"thoughtsTokenCount":%d}}`+"\r\n\r\n",
			text, more, output, thoughts)
	}
	const item = `{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hi there","annotations":[]}]}`
	return map[string][]string{
		"openai": {
			chunk(`{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}`, ""), chunk(`{"index":0,"delta":{"content":"Hi"},"finish_reason":null}`, ""),
			chunk(`{"index":0,"delta":{"content":" there"},"finish_reason":null}`, ""), chunk(`{"index":0,"delta":{},"finish_reason":"stop"}`, ""),
			chunk("", `,"usage":{"prompt_tokens":10,"completion_tokens":500,"total_tokens":510}`), "data: [DONE]\n\n",
		},
		"openai, running totals": {
			chunk(`{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}`, `,"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}`),
			chunk(`{"index":0,"delta":{"content":" there"},"finish_reason":null}`, `,"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}`),
			chunk(`{"index":0,"delta":{},"finish_reason":"stop"}`, ""),
			chunk("", `,"usage":{"prompt_tokens":10,"completion_tokens":500,"total_tokens":510}`), "data: [DONE]\n\n",
		},
		"openai-responses": {
			sse("response.created", `{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","model":"m","status":"in_progress","output":[],"usage":null}}`),
			sse("response.output_item.added", `{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","status":"in_progress","content":[]}}`),
			sse("response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hi"}`),
			sse("response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"delta":" there"}`),
			sse("response.output_item.done", `{"type":"response.output_item.done","sequence_number":4,"output_index":0,"item":`+item+`}`),
			sse("response.completed", `{"type":"response.completed","sequence_number":5,"response":{"id":"resp_1","object":"response","model":"m","status":"completed","output":[`+item+`],"usage":{"input_tokens":10,"output_tokens":500,"total_tokens":510}}}`),
		},
		"anthropic": {
			sse("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}`),
			sse("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
			sse("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`),
			sse("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" there"}}`),
			sse("content_block_stop", `{"type":"content_block_stop","index":0}`),
			sse("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":500}}`),
			sse("message_stop", `{"type":"message_stop"}`),
		},
		"gemini": {gemini("Hi", "", 1, 0), gemini(" there", "", 2, 0), gemini("", `,"finishReason":"STOP"`, 2, 498)},
		"bedrock": {
			message("messageStart", `{"role":"assistant"}`), message("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"Hi"}}`),
			message("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":" there"}}`), message("contentBlockStop", `{"contentBlockIndex":0}`),
			message("messageStop", `{"stopReason":"end_turn"}`), message("metadata", `{"usage":{"inputTokens":10,"outputTokens":500,"totalTokens":510},"metrics":{"latencyMs":1}}`),
		},
	}
}

// wholeAnswers are the JSON answers of the dialects that are relayed to, in two pieces.
func wholeAnswers() map[string][]string {
	return map[string][]string{
		"openai": {`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi there"},"finish_reason":"stop"}],`,
			`"usage":{"prompt_tokens":10,"completion_tokens":500,"total_tokens":510}}`},
		"openai-responses": {`{"id":"resp_1","object":"response","model":"m","status":"completed","output":[],`, `"usage":{"input_tokens":10,"output_tokens":500,"total_tokens":510}}`},
	}
}

// Under a budget, no call costs less than its provider counted, wherever its client leaves. A whole answer costs
// what was counted, and any other what was reserved: /api/usage says that this is an estimate. // P03
func TestAStreamThatIsCutCostsWhatWasReserved(t *testing.T) {
	for name, events := range countedStreams() {
		t.Run(name, func(t *testing.T) {
			NoLeaks(t)
			kind, _, _ := strings.Cut(name, ",")
			up := &cutUpstream{sent: make(chan struct{}, 1)}
			server := NewUpstream(t, up.serve)
			yaml := Site{Upstream: server.URL, Runtime: "budgets: [{scope: org, period: day, tokens: 10000000}]", Servers: []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}}.Yaml()
			yaml, called := OfKind(yaml, kind)
			data := NewData(t)
			g := MustRunIn(t, data, yaml, Environment())
			charge := charges{g: g}
			path, input := "/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}]`
			if kind == "openai-responses" {
				path, input = "/v1/responses", `"input":"hi","store":false`
			}
			limit := "max_tokens"
			if kind == "openai-responses" {
				limit = "max_output_tokens"
			}
			for _, how := range []string{"relayed, streamed", "relayed, not streamed", "loop, streamed", "loop, not streamed"} {
				body := fmt.Sprintf(`{"model":%q,%q:1000,"stream":%t,%s}`, called, limit, strings.HasSuffix(how, ", streamed"), input)
				up.events = events
				if whole, raw := wholeAnswers()[kind]; raw && how == "relayed, not streamed" {
					up.events = whole
				}
				var row []string
				for cut := range len(up.events) + 1 {
					up.cut = cut
					up.ask(g, path, body, fmt.Sprint(strings.HasPrefix(how, "relayed")))
					got, estimated := charge.next(t)
					row = append(row, fmt.Sprint(got))
					atEnd := cut >= len(up.events)-1 // the count has come, or not: it depends on who is faster
					switch {
					case got < countedInput+countedOutput, !atEnd && (got < 1000 || estimated < 1000), cut == len(up.events) && (got != countedInput+countedOutput || estimated != 0):
						t.Errorf("%s, cut after %d of %d events: %d tokens are charged, %d of them estimated", how, cut, len(up.events), got, estimated)
					}
				}
				t.Logf("| %s | %s | %s | %d |", name, how, strings.Join(row, " "), countedInput+countedOutput)
			}
			if err := g.Stop(); err != nil { // which stores what was spent
				t.Fatal(err)
			}
			store, err := database.OpenReader(t.Context(), filepath.Join(data, app.DatabaseFile))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			all, err := store.UsedAll(t.Context(), "o", "org/day/", "", 2)
			if err != nil || len(all) != 1 || all[0].Spent.Tokens != charge.tokens {
				t.Errorf("the budget has %+v (%v), and the usage %d", all, err, charge.tokens)
			}
		})
	}
}

// cutUpstream sends so many events of an answer. Its client leaves then, unless these are all.
type cutUpstream struct {
	events []string
	cut    int
	sent   chan struct{} // has room for one: they are sent
}

func (u *cutUpstream) serve(w http.ResponseWriter, r *http.Request, got Received) {
	events, cut := u.events, u.cut // those of the next request come when these are sent
	contentType := "text/event-stream"
	switch {
	case strings.HasPrefix(events[0], "{"):
		contentType = "application/json"
	case strings.Contains(r.URL.Path, "converse-stream"):
		contentType = "application/vnd.amazon.eventstream"
	}
	w.Header().Set("Content-Type", contentType)
	for _, event := range events[:cut] {
		if strings.Contains(event, `"choices":[]`) && !strings.Contains(string(got.Body), `"include_usage":true`) {
			continue
		}
		_, _ = io.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
	}
	u.sent <- struct{}{}
	if cut < len(events) {
		<-r.Context().Done()
	}
}

// ask sends a request, and leaves when the events are sent.
func (u *cutUpstream) ask(g *Gateway, path, body, relay string) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := g.Client.Do(g.Request(ctx, "POST", path, strings.NewReader(body), "Authorization", "Bearer member-key", "turnpike-mcp-disabled", relay))
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	<-u.sent
	if u.cut < len(u.events) {
		leave()
	}
	<-done
}

// charges reads what each request is charged with.
type charges struct {
	g                           *Gateway
	requests, tokens, estimated int64
}

// next waits until one more request is charged, and returns its tokens and how many of them are estimated.
func (c *charges) next(t *testing.T) (tokens, estimated int64) {
	t.Helper()
	for end := time.Now().Add(Patience); ; PollPause() {
		var page struct {
			Data []struct {
				Requests int64 `json:"requests"`
				Input    int64 `json:"input_tokens"`
				Output   int64 `json:"output_tokens"`
				InputEst int64 `json:"estimated_input_tokens"`
				OutEst   int64 `json:"estimated_output_tokens"`
			}
		}
		a := c.g.Send("GET", "/api/usage", nil, "Authorization", "Bearer owner-key")
		if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != 200 {
			t.Fatalf("%d %s %v", a.Status, a.Body, err)
		}
		if len(page.Data) == 1 && page.Data[0].Requests > c.requests {
			d := page.Data[0]
			tokens, estimated = d.Input+d.Output-c.tokens, d.InputEst+d.OutEst-c.estimated
			c.requests, c.tokens, c.estimated = d.Requests, d.Input+d.Output, d.InputEst+d.OutEst
			return tokens, estimated
		}
		if time.Now().After(end) {
			t.Fatalf("no request was charged: %s", a.Body)
		}
	}
}

// A relayed stream under a budget is asked for its usage. The client gets neither the chunk with it nor anything else
// that it has not asked for, and a provider that refuses to be asked is asked without it from then on.
func TestARelayedStreamIsAskedForItsUsage(t *testing.T) {
	NoLeaks(t)
	const refused = `{"error":{"message":"Unknown field: stream_options","type":"invalid_request_error","param":"stream_options","code":null}}`
	refuses := false
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		asked := strings.Contains(string(got.Body), `"include_usage":true`)
		if refuses && strings.Contains(string(got.Body), "stream_options") {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, refused)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range countedStreams()["openai"] {
			if asked || !strings.Contains(event, `"choices":[]`) {
				_, _ = io.WriteString(w, event)
			}
		}
	})
	g := inBudget(t, NewData(t), up, "budgets: [{scope: org, period: day, tokens: 10000000}]")
	charge := charges{g: g}
	relay := func(path, more string) (string, int64) {
		a := g.Send("POST", path, strings.NewReader(` {"model":"m",`+more+`"max_tokens":1000,"prompt":"`+strings.Repeat("x", 5000)+`","messages":[]}`),
			"Authorization", "Bearer owner-key", "turnpike-mcp-disabled", "true")
		tokens, _ := charge.next(t)
		return string(a.Body), tokens
	}
	all := countedStreams()["openai"]
	plain := strings.Join(slices.Delete(slices.Clone(all), 4, 5), "")
	for _, tt := range []struct {
		path, more, want string
		sent             string // what was sent of more
		tokens           int64
	}{
		{"/v1/chat/completions", `"stream":true,`, plain, `"stream":true,"stream_options":{"include_usage":true},`, 510},
		{"/v1/chat/completions", `"stream":true,"stream_options":{"include_usage":true},`, strings.Join(all, ""), `"stream":true,"stream_options":{"include_usage":true},`, 510},
		{"/v1/chat/completions", `"stream_options" : {"include_usage":false,"x":[1]} ,"stream":true,`, plain, `"stream_options" : {"include_usage":true,"x":[1]} ,"stream":true,`, 510},
		{"/v1/completions", `"stream":true,`, plain, `"stream":true,"stream_options":{"include_usage":true},`, 510},
		{"/v1/completions", `"stream":true,"stream_options":null,`, plain, `"stream":true,"stream_options":{"include_usage":true},`, 510},
	} {
		up.Forget()
		got, tokens := relay(tt.path, tt.more)
		if sent := string(up.Requests()[0].Body); got != tt.want || tokens != tt.tokens || !strings.HasPrefix(sent, ` {"model":"m",`+tt.sent+`"max_tokens":1000,"prompt":"xxx`) || !json.Valid([]byte(sent)) {
			t.Errorf("%s with %s: %d tokens, sent %.150q, got %q", tt.path, tt.more, tokens, sent, got)
		}
	}
	refuses = true
	for i, path := range []string{"/v1/chat/completions", "/v1/chat/completions", "/v1/completions"} {
		up.Forget()
		got, tokens := relay(path, `"stream":true,`)
		if want := []int{2, 1, 1}[i]; got != plain || tokens < 1000 || len(up.Requests()) != want {
			t.Errorf("%s, refused: %d calls, %d tokens, %q", path, len(up.Requests()), tokens, got)
		}
	}
	up.Forget()
	if got, _ := relay("/v1/chat/completions", `"stream":true,"stream_options":{"include_usage":true},`); got != refused || len(up.Requests()) != 1 {
		t.Errorf("what the client asks itself: %q after %d calls", got, len(up.Requests()))
	}
	up.Forget()
	a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`), "Authorization", "Bearer owner-key")
	if a.Status != 200 || !strings.Contains(string(a.Body), " there") || len(up.Requests()) != 1 {
		t.Errorf("a run: %d after %d calls: %s", a.Status, len(up.Requests()), a.Body)
	}
}

// An error of the provider before any output costs what the provider has counted until then. // P03
func TestAnErrorWithinAStreamIsFreeBeforeTheOutput(t *testing.T) {
	NoLeaks(t)
	events := 0
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Join(countedStreams()["anthropic"][:events], ""))
		_, _ = io.WriteString(w, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n")
	})
	g := MustRun(t, Claude(Site{Upstream: up.URL, Runtime: "budgets: [{scope: org, period: day, tokens: 10000000}]"}, ""))
	charge := charges{g: g}
	for _, tt := range []struct {
		events            int
		tokens, estimated int64
	}{{0, 0, 0}, {1, 11, 0}, {2, 11, 0}, {3, 1021, 1011}} { // the reservation, of which 10 are counted
		events = tt.events
		g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":1000,"stream":true,"messages":[{"role":"user","content":"Say hi, and then say it once more."}]}`), "Authorization", "Bearer member-key")
		if tokens, estimated := charge.next(t); tokens != tt.tokens || estimated != tt.estimated {
			t.Errorf("after %d events: %d tokens, %d of them estimated", tt.events, tokens, estimated)
		}
	}
}
