package apptest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// Claude returns a configuration whose model is behind the Messages dialect.
func Claude(s Site, more string) string {
	yaml := s.Yaml()
	return strings.Replace(yaml, "{name: up,", "{name: up, kind: anthropic"+more+",", 1)
}

// StrictUpstream is a provider that plays the story in every dialect. It refuses
// reasoning that differs by a byte from what it sent.
func StrictUpstream(t *testing.T, story string) *turnpiketest.Upstream {
	up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, story), turnpiketest.UpstreamOptions{Strict: true})
	t.Cleanup(up.Close)
	return up
}

// Kinds are the kinds of provider, each with what a request has for every piece of
// reasoning that it returns, and for the effort.
var Kinds = map[string]struct{ Reasoning, Effort string }{
	"openai":           {`"reasoning_content":`, `"reasoning_effort":"low"`},
	"anthropic":        {`thinking"}`, `"thinking":{"type":"enabled"`}, // the type of both blocks
	"openai-responses": {`"encrypted_content":`, `"reasoning":{"effort":"low"`},
	"gemini":           {`"thoughtSignature":"Eg`, `"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"low"}`},
	"bedrock":          {`"reasoningContent":`, `"thinking":{"type":"enabled"`},
}

// OfKind returns a configuration whose provider up is of the kind, and a name of a model
// of it that reasons, which is also one that Gemini could have: without a colon. A strict
// upstream accepts its credentials.
func OfKind(yaml, kind string) (with, model string) {
	if kind != "bedrock" {
		return strings.Replace(yaml, "{name: up,", "{name: up, kind: "+kind+",", 1), "m"
	}
	with = strings.Replace(yaml, "{name: up,", "{name: up, "+BedrockKeys+",", 1)
	return strings.Replace(with, "api_key: env:UPSTREAM_KEY, ", "", 1), "g-anthropic.claude-sonnet-4-5-v1"
}

const BedrockKeys = "kind: bedrock, region: " + turnpiketest.AWSRegion + ", access_key_id: " + turnpiketest.AWSAccessKeyID +
	", secret_access_key: " + turnpiketest.AWSSecretAccessKey + ", session_token: " + turnpiketest.AWSSessionToken

const (
	RoleFrame = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
	TextFrame = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n"
	EndFrames = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]," +
		"\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2,\"total_tokens\":12}}\n\ndata: [DONE]\n\n"
)

// says answers a chat request with a stream.
func SaysChat(text string) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, RoleFrame, fmt.Sprintf(TextFrame, text), EndFrames)
	}
}

// BreaksAfter sends the frames and breaks the connection.
func BreaksAfter(frames string) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, frames)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// Refuses answers with a status. What is tried again is tried at once.
func Refuses(status int) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After-Ms", "1")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":"first says %d","type":"server_error"}}`, status)
	}
}

// RoutesYAML is a gateway with a route over two providers.
func RoutesYAML(one, two, route string) string {
	return strings.Replace(Site{Upstream: one}.Yaml(), "outbound:", fmt.Sprintf(
		"  - {name: two, base_url: %q, api_key: env:UPSTREAM_KEY, models: [only-two]}\nroutes:\n  - {model: fast, %s targets: [{provider: up, model: a}, {provider: two, model: b}]}\noutbound:", two+"/v1", route), 1)
}

// Upstream is a model provider that answers as its test wants.
type Upstream struct {
	*httptest.Server
	Answer func(w http.ResponseWriter, r *http.Request, got Received)

	mu   sync.Mutex
	seen []Received
}

// Received is one request as the upstream saw it.
type Received struct {
	Number int // from 0
	Path   string
	Header http.Header
	Body   []byte
}

func NewUpstream(t *testing.T, answer func(http.ResponseWriter, *http.Request, Received)) *Upstream {
	u := &Upstream{Answer: answer}
	u.Server = httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(u.Close)
	return u
}

func (u *Upstream) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	got := Received{Number: len(u.seen), Path: r.URL.Path, Header: r.Header.Clone(), Body: body}
	u.seen = append(u.seen, got)
	u.mu.Unlock()
	u.Answer(w, r, got)
}

func (u *Upstream) Requests() []Received {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]Received(nil), u.seen...)
}

// Forget removes the requests that were recorded.
func (u *Upstream) Forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen = nil
}

// modelRequest is the part of a request to the model that the tests look at.
type modelRequest struct {
	Model    string
	Tools    json.RawMessage
	Messages []struct {
		Role, Content string
		ToolCallID    string `json:"tool_call_id"`
	}
}

func (r Received) Decode(t *testing.T) modelRequest {
	t.Helper()
	var m modelRequest
	if err := json.Unmarshal(r.Body, &m); err != nil {
		t.Fatalf("request %d to the model: %v: %.300q", r.Number, err, r.Body)
	}
	return m
}

// Results returns what the model was told by tools, in order.
func (r Received) Results(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range r.Decode(t).Messages {
		if m.Role == "tool" {
			out = append(out, m.Content)
		}
	}
	return out
}

// Turn is a model's answer to one call.
type Turn struct {
	Text  string
	Calls []Call
	GpuMS int  // in its usage; 0 = not said
	input int  // tokens of the prompt; 0 = 10
	cut   bool // by the length of the output; the last call is not complete
}

type Call struct{ Name, Arguments string }

// Use is a call of a tool.
func Use(name, arguments string) Call { return Call{name, arguments} }

func Says(text string) Turn          { return Turn{Text: text} }
func Asks(calls ...Call) Turn        { return Turn{Calls: calls} }
func (u Turn) Saying(t string) Turn  { u.Text = t; return u }
func (u Turn) Reading(n int) Turn    { u.input = n; return u }
func CutAfter(text string) Turn      { return Turn{Text: text, cut: true} }
func Frame(w io.Writer, data string) { fmt.Fprintf(w, "data: %s\n\n", data) }

// Script answers with the turns in order, and repeats the last one.
func Script(turns ...Turn) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, got Received) {
		turns[min(got.Number, len(turns)-1)].Write(w)
	}
}

// Write streams the turn as the dialect has it.
func (u Turn) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	reason := "stop"
	Frame(w, `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant"}}]}`)
	if u.Text != "" {
		Frame(w, `{"choices":[{"index":0,"delta":{"content":`+Quote(u.Text)+`}}]}`)
	}
	for i, c := range u.Calls {
		reason = "tool_calls"
		Frame(w, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"call_%d","type":"function","function":{"name":%s,"arguments":%s}}]}}]}`,
			i, i, Quote(c.Name), Quote(c.Arguments)))
	}
	if u.cut {
		reason = "length"
	}
	Frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"`+reason+`"}]}`)
	billed := ""
	if u.GpuMS > 0 {
		billed = fmt.Sprintf(`,"gpu_ms":%d`, u.GpuMS)
	}
	input := cmp.Or(u.input, 10)
	Frame(w, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":5,"total_tokens":%d%s}}`, input, input+5, billed))
	Frame(w, "[DONE]")
}

func Quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(b)
}
