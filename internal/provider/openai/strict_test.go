package openai

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// asOpenAI returns a Provider that talks to a fake OpenAI which refuses what the API
// refuses.
func asOpenAI(t *testing.T, story string) (*upstreamtest.Upstream, *Provider) {
	t.Helper()
	u := upstreamtest.New(turnpiketest.NewScript(t, story), upstreamtest.Options{Strict: true})
	t.Cleanup(u.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	p := New(wire.Endpoint{BaseURL: u.URL, Transport: transport}, Options{MaxTokensParam: "max_completion_tokens"})
	p.openAI = true
	return u, p
}

// A request of another dialect with every setting, and a second round with calls
// that had no id of their own, is accepted by an API that refuses what it does not
// know.
func TestOpenAIAcceptsRequestsOfAnotherDialect(t *testing.T) { // M01 M05 P22
	u, p := asOpenAI(t, "call c1 search {\"q\":\"a\"}\ncall c1 search {\"q\":\"b\"}\ncall - search {\"q\":\"c\"}\n\ntext {}\n")
	schema := json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}},"required":["q"],"additionalProperties":false}`)
	req := &model.Request{
		Model: "gpt-5", Dialect: "other", MaxTokens: 100,
		Items: []item.Item{
			item.NewText(item.System, "Be brief."), item.NewText(item.Developer, "Answer in JSON."),
			{Kind: item.Message, Role: item.User, Parts: []item.Part{
				{Kind: item.Text, Text: "What is this?"}, {Kind: item.Image, Data: "AAAA", MIMEType: "image/png", Detail: "low"},
				{Kind: item.Audio, Data: "AAAA", MIMEType: "audio/mpeg"}, {Kind: item.File, Data: "AAAA", MIMEType: "application/pdf", Name: "a.pdf"},
				{Kind: item.Resource, URL: "file:///a", Text: "a"},
			}},
			{Kind: item.Reasoning, Turn: 1, Parts: []item.Part{{Kind: item.Text, Text: "Hm."}}, Native: item.Native{Dialect: "other", JSON: json.RawMessage(`{}`)}},
			{Kind: item.ToolCall, Turn: 1, CallID: strings.Repeat("i", 64), Name: "search", Arguments: "{}"},
			item.NewResult(strings.Repeat("i", 64), "nothing", true),
		},
		Tools:      []model.Tool{{Definition: tool.Definition{Name: "search", InputSchema: schema}, Strict: new(true)}, {Definition: tool.Definition{Name: "other"}}, {Native: json.RawMessage(`{"type":"web_search"}`)}},
		ToolChoice: model.ToolChoice{Only: []string{"search"}},
		Options: model.Options{
			Temperature: new(0.5), TopP: new(0.9), TopK: new(int64(4)), PresencePenalty: new(0.1), FrequencyPenalty: new(-0.1), Seed: new(int64(1)),
			Stop: []string{"1", "2", "3", "4", "5"}, Effort: "low", Verbosity: "low", ParallelCalls: new(true), Metadata: map[string]string{"a": "b"}, User: "u",
			Format: model.Format{Type: "json_schema", Schema: schema, Strict: new(true)},
		},
	}
	turn, err := p.Stream(t.Context(), req, (&providertest.Heard{}).Emit)
	if err != nil {
		t.Fatal(err)
	}
	turn.Items[0].Native.Provider = "p"
	req.Items = append(req.Items, turn.Items...)
	for _, c := range turn.Calls {
		req.Items = append(req.Items, item.NewResult(c.ID, c.Arguments, false))
	}
	if turn, err = p.Stream(t.Context(), req, (&providertest.Heard{}).Emit); err != nil || turn.Text() != "{}" {
		t.Fatalf("the second round: %+v, %v", turn, err)
	}
	var sent struct {
		Messages []struct {
			Content json.RawMessage
			CallID  string `json:"tool_call_id"`
			Calls   []struct {
				ID       string
				Function struct{ Arguments string }
			} `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(u.Requests()[1].Body, &sent); err != nil {
		t.Fatal(err)
	}
	calls, results := sent.Messages[5].Calls, sent.Messages[6:]
	seen := map[string]bool{"": true}
	for i, c := range calls {
		var text string
		_ = json.Unmarshal(results[i].Content, &text)
		if seen[c.ID] || results[i].CallID != c.ID || text != c.Function.Arguments {
			t.Errorf("call %d has the id %q, its result the id %q and the text %s", i, c.ID, results[i].CallID, text)
		}
		seen[c.ID] = true
	}
	if len(calls) != 3 {
		t.Errorf("%d calls", len(calls))
	}
}
