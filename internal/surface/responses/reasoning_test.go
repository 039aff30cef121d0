package responses_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// handover is a chat client with a tool of its own. It sends back what the chat
// dialect has a place for.
type handover struct {
	*Gateway
	key      string
	model    string
	messages []any
	dropped  []string // header turnpike-dropped-params of each answer
}

func newConversation(g *Gateway) *handover {
	return &handover{Gateway: g, key: "owner-key", model: "m", messages: []any{map[string]any{"role": "user", "content": "go"}}}
}

// ask sends the conversation, with reasoning. It adds the answer and a result of
// every call in it, and returns the answer's text and the ids of its calls.
func (c *handover) ask() (text string, ids []string) {
	c.T.Helper()
	body, err := json.Marshal(map[string]any{
		"model": c.model, "reasoning_effort": "low", "messages": c.messages,
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "mine", "parameters": map[string]any{"type": "object", "properties": map[string]any{}}}}},
	})
	if err != nil {
		c.T.Fatal(err)
	}
	a := c.Post(string(body), "Authorization", "Bearer "+c.key)
	text, _ = a.Completion(c.T)
	var got WireCompletion
	if err := json.Unmarshal(a.Body, &got); err != nil {
		c.T.Fatal(err)
	}
	c.dropped = append(c.dropped, a.Header.Get("Turnpike-Dropped-Params"))
	said := map[string]any{"role": "assistant", "content": text}
	var calls, results []any
	for _, call := range got.Choices[0].Message.ToolCalls {
		if call.Function.Name != "mine" {
			c.T.Errorf("the client got a call of %s", call.Function.Name)
		}
		ids = append(ids, call.ID)
		calls = append(calls, map[string]any{"id": call.ID, "type": "function", "function": map[string]any{"name": call.Function.Name, "arguments": call.Function.Arguments}})
		results = append(results, map[string]any{"role": "tool", "tool_call_id": call.ID, "content": "theirs"})
	}
	if calls != nil {
		said["tool_calls"] = calls
	}
	c.messages = append(append(c.messages, said), results...)
	return text, ids
}

// wantReasoning fails the test unless the provider accepted every request, and each
// has so many pieces of reasoning.
func wantReasoning(t *testing.T, up *turnpiketest.Upstream, kind string, pieces ...int) {
	t.Helper()
	requests := up.Requests()
	if len(requests) != len(pieces) {
		t.Fatalf("%d requests, want %d", len(requests), len(pieces))
	}
	for i, r := range requests {
		if r.Refused != "" {
			t.Errorf("request %d was refused: %s\n%s", i, r.Refused, r.Body)
		}
		if n := strings.Count(string(r.Body), Kinds[kind].Reasoning); n != pieces[i] {
			t.Errorf("request %d has %d pieces of reasoning, want %d: %s", i, n, pieces[i], r.Body)
		}
	}
}

// Reasoning that the chat dialect has no place for is kept for the client that
// executes calls, also where nothing else is hidden, and comes back unchanged. The
// gateway is started anew before each request. // P08 M08
func TestReasoningSurvivesHandovers(t *testing.T) {
	const (
		only = "reasoning Hm.\nreasoning\ncall c1 mine {}\n\n" +
			"reasoning Then.\ncall c2 mine {\"n\":2}\n\ntext Done."
		mixed = "reasoning Hm.\nreasoning\ncall c1 mine {}\ncall g1 look {}\n\n" +
			"reasoning Look.\ncall g2 look {\"n\":2}\n\nreasoning Then.\ncall c2 mine {\"n\":2}\n\ntext Done."
	)
	for _, tt := range []struct {
		kind, story string
		ours        bool  // the first answer has an id of ours
		pieces      []int // of reasoning, in each request
	}{
		{"anthropic", only, true, []int{0, 2, 3}},
		{"bedrock", only, true, []int{0, 2, 3}},
		{"bedrock", mixed, true, []int{0, 2, 3, 4}},
		{"openai-responses", only, true, []int{0, 2, 3}},
		{"gemini", only, true, []int{0, 2, 3}},
		{"openai", only, false, []int{0, 0, 0}}, // the client has seen it, and this one does not send it
		{"anthropic", mixed, true, []int{0, 2, 3, 4}},
		{"openai-responses", mixed, true, []int{0, 2, 3, 4}},
		{"gemini", mixed, true, []int{0, 2, 3, 4}},
		{"openai", mixed, true, []int{0, 1, 2, 3}}, // what is in one message is one piece
	} {
		t.Run(fmt.Sprintf("%s, gateway tools %v", tt.kind, tt.story == mixed), func(t *testing.T) {
			NoLeaks(t)
			tools := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "look", Result: "ours"})
			t.Cleanup(tools.Close)
			up := StrictUpstream(t, tt.story)
			yaml := Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Runtime: "dropped_params: refuse", Servers: []string{Server("s", tools.URL)}}.Yaml()
			yaml, name := OfKind(yaml, tt.kind)
			data := NewData(t)
			c := newConversation(nil)
			c.model = name
			for n := range 3 {
				c.Gateway = MustRunIn(t, data, yaml, Environment())
				text, ids := c.ask()
				if n < 2 && (len(ids) != 1 || n == 0 && strings.HasPrefix(ids[0], "call_tp_") != tt.ours) || n == 2 && text != "Done." {
					t.Fatalf("answer %d is %q, %q", n, text, ids)
				}
				if err := c.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			wantReasoning(t, up, tt.kind, tt.pieces...)
			for i, r := range up.Requests() {
				if !strings.Contains(string(r.Body), Kinds[tt.kind].Effort) {
					t.Errorf("request %d does not ask for reasoning: %s", i, r.Body)
				}
			}
		})
	}
}

// Reasoning that is lost at the client is no error. Where the provider cannot
// reason without it, the answer says that reasoning_effort is left out. // P08 M08
func TestReasoningThatIsLostAtTheClient(t *testing.T) {
	for _, tt := range []struct {
		kind    string
		feature string // none = a relay, which keeps nothing
		dropped string
	}{
		{"anthropic", "none", "reasoning_effort"},
		{"bedrock", "none", "reasoning_effort"},
		{"bedrock", "", "reasoning_effort"},
		{"openai-responses", "none", ""},
		{"gemini", "none", ""},                // the calls are marked as unsigned
		{"anthropic", "", "reasoning_effort"}, // another key sends the ids
		{"openai-responses", "", ""},
		{"gemini", "", ""},
	} {
		t.Run(tt.kind+" "+tt.feature, func(t *testing.T) {
			NoLeaks(t)
			tools := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{})
			t.Cleanup(tools.Close)
			up := StrictUpstream(t, "reasoning Hm.\nreasoning\ncall c1 mine {}\n\nreasoning Then.\ncall c2 mine {\"n\":2}\n\nreasoning Well.\ntext Done.\n\nreasoning Well.\ntext Yes.")
			yaml := Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Feature: tt.feature, Servers: []string{Server("s", tools.URL)}}.Yaml()
			yaml, name := OfKind(yaml, tt.kind)
			c := newConversation(MustRun(t, yaml))
			c.model = name
			c.ask()
			c.key = "member-key"
			c.ask()
			if text, _ := c.ask(); text != "Done." {
				t.Errorf("the answer is %q", text)
			}
			c.messages = append(c.messages, map[string]any{"role": "user", "content": "more"})
			if text, _ := c.ask(); text != "Yes." { // reasoning of earlier turns is not needed
				t.Errorf("the answer is %q", text)
			}
			if got, want := strings.Join(c.dropped, " "), strings.Join([]string{"", tt.dropped, tt.dropped, ""}, " "); got != want {
				t.Errorf("dropped: %q, want %q", got, want)
			}
			for i, r := range up.Requests() {
				if r.Refused != "" {
					t.Errorf("request %d was refused: %s\n%s", i, r.Refused, r.Body)
				}
				if asks := strings.Contains(string(r.Body), Kinds[tt.kind].Effort); asks != (c.dropped[i] == "") {
					t.Errorf("request %d asks for reasoning: %v, the answer says that %q is left out", i, asks, c.dropped[i])
				}
			}
		})
	}
}

// A provider that takes over gets neither the reasoning nor the native forms of
// the one before it, also where both speak the same dialect. The conversation stays at the
// one that took over, until that one fails too: the one before gets its own back then. // P08 M08
func TestReasoningStaysWithItsProvider(t *testing.T) {
	for _, tt := range []struct{ first, second string }{
		{"anthropic", "openai"},
		{"anthropic", "openai-responses"},
		{"anthropic", "anthropic"},
		{"openai-responses", "anthropic"},
		{"openai-responses", "openai-responses"},
		{"openai", "openai"},
		{"openai", "anthropic"},
		{"gemini", "openai"},
		{"gemini", "anthropic"},
		{"gemini", "gemini"},
		{"bedrock", "openai"},
		{"bedrock", "anthropic"},
		{"anthropic", "bedrock"},
		{"bedrock", "bedrock"},
		{"bedrock", "gemini"},
		{"gemini", "bedrock"},
	} {
		t.Run(tt.first+", then "+tt.second, func(t *testing.T) {
			NoLeaks(t)
			tools := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "look", Result: "ours"})
			t.Cleanup(tools.Close)
			one := StrictUpstream(t, "reasoning One thinks.\nreasoning\ntext Looking.\ncall a1 look {}\n\nfail 401 who are you\n\nreasoning One ends.\ntext Done.")
			two := StrictUpstream(t, "reasoning Two thinks.\nreasoning\ncall b1 look {\"n\":2}\n\nreasoning Two goes on.\ncall b2 mine {}\n\nfail 401 who are you")
			yaml := Site{Upstream: strings.TrimSuffix(one.URL, "/v1"), Servers: []string{Server("s", tools.URL)}}.Yaml()
			yaml, name := OfKind(yaml, tt.first)
			second := fmt.Sprintf("kind: %s, api_key: env:UPSTREAM_KEY", tt.second)
			if tt.second == "bedrock" {
				second, name = BedrockKeys, "g-anthropic.claude-sonnet-4-5-v1"
			}
			yaml = strings.Replace(yaml, "outbound:", fmt.Sprintf("  - {name: two, %s, base_url: %q, models: [m, \"g-*\"]}\noutbound:", second, two.URL), 1)
			c := newConversation(MustRun(t, yaml))
			c.model = name
			if _, ids := c.ask(); len(ids) != 1 {
				t.Fatalf("calls %q", ids)
			}
			if text, _ := c.ask(); text != "Done." {
				t.Errorf("the answer is %q", text)
			}
			pieces := 2 // of one turn: what is in one chat message is one
			if tt.first == "openai" {
				pieces = 1
			}
			wantReasoning(t, one, tt.first, 0, pieces, pieces)
			if pieces = 2; tt.second == "openai" {
				pieces = 1
			}
			wantReasoning(t, two, tt.second, 0, pieces, pieces+1)
			for i, r := range one.Requests() {
				if strings.Contains(string(r.Body), "Two ") || strings.Contains(string(r.Body), "One thinks.") != (i > 0) {
					t.Errorf("request %d to the first provider is %s", i, r.Body)
				}
			}
			for i, r := range two.Requests() {
				if body := string(r.Body); strings.Contains(body, "One ") || !strings.Contains(body, "Looking.") || strings.Contains(body, "Two thinks.") != (i > 0) {
					t.Errorf("request %d to the second provider is %s", i, body)
				}
			}
		})
	}
}

// An answer that breaks off after a complete call is continued: what it had of
// reasoning goes back as far as the provider takes it. // P08
func TestReasoningOfAnAnswerThatBreaksOff(t *testing.T) {
	for kind := range Kinds {
		t.Run(kind, func(t *testing.T) {
			NoLeaks(t)
			tools := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "look", Result: "ours"})
			t.Cleanup(tools.Close)
			up := StrictUpstream(t, "reasoning One.\nreasoning\ncall c1 look {}\nreasoning Two.\ncall c2 look {\"n\":2}\ncut\n\n"+
				"reasoning Three.\ncall c3 look {\"n\":3}\nreasoning Four.\ncall c4 look {\"n\":4}\nreasoning Five.\ncut\n\ntext Done.")
			yaml := Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Servers: []string{Server("s", tools.URL)}}.Yaml()
			yaml, name := OfKind(yaml, kind)
			g := MustRun(t, yaml)
			a := g.Post(`{"model":"` + name + `","reasoning_effort":"low","messages":[{"role":"user","content":"go"}]}`)
			requests := up.Requests()
			for i, r := range requests {
				if r.Refused != "" {
					t.Errorf("request %d was refused: %s\n%s", i, r.Refused, r.Body)
				}
			}
			if text, _ := a.Completion(t); text != "Done." {
				t.Errorf("the answer is %q", text)
			}
			last := string(requests[len(requests)-1].Body)
			if len(requests) != 3 || !strings.Contains(last, "One.") || !strings.Contains(last, "Three.") || strings.Contains(last, `"c2"`) {
				t.Errorf("%d requests, the last is %s", len(requests), last)
			}
		})
	}
}

// What an OpenAI-compatible provider adds to reasoning and calls, and the client
// does not get, is kept for the client too. // P08
func TestSignaturesOfChatSurviveHandovers(t *testing.T) {
	for name, tt := range map[string]struct {
		reasoning, call string // members of the message and of its call
		ours            bool   // the call's id is ours
	}{
		"readable reasoning":     {`"reasoning_content":"Hm."`, `"id":"c1"`, false},
		"reasoning with details": {`"reasoning":"Hm.","reasoning_details":[{"type":"reasoning.text","text":"Hm.","signature":"s=="}]`, `"id":"c1"`, true},
		"a signature of a call":  {`"content":null`, `"id":"c1","extra_content":{"google":{"thought_signature":"t=="}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			NoLeaks(t)
			tools := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{})
			t.Cleanup(tools.Close)
			up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
				message, reason := `{"role":"assistant","content":"Done."}`, "stop"
				if !strings.Contains(string(got.Body), `"role":"tool"`) {
					message = `{"role":"assistant",` + tt.reasoning + `,"tool_calls":[{` + tt.call + `,"type":"function","function":{"name":"mine","arguments":"{}"}}]}`
					reason = "tool_calls"
				}
				_, _ = fmt.Fprintf(w, `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":%s,"finish_reason":%q}]}`, message, reason)
			})
			c := newConversation(MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml()))
			if _, ids := c.ask(); len(ids) != 1 || strings.HasPrefix(ids[0], "call_tp_") != tt.ours {
				t.Errorf("calls %q", ids)
			}
			if text, _ := c.ask(); text != "Done." {
				t.Errorf("the answer is %q", text)
			}
			asked := up.Requests()
			for _, member := range slices.DeleteFunc([]string{tt.reasoning, tt.call}, func(string) bool { return !tt.ours }) {
				if last := string(asked[len(asked)-1].Body); !strings.Contains(last, member) {
					t.Errorf("the provider does not get %s back: %s", member, last)
				}
			}
		})
	}
}
