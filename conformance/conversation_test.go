package conformance

import (
	"bytes"
	"encoding/base64"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// conversation is what a program wants of a model, in no API's words.
type conversation struct {
	Prompt     string   `json:"prompt"` // no other conversation has it
	System     string   `json:"system"`
	Images     []object `json:"images,omitempty"`
	Tools      []object `json:"tools,omitempty"` // echo and get-sum, executed by the client
	Think      bool     `json:"think,omitempty"`
	Structured bool     `json:"structured,omitempty"`
	Stream     bool     `json:"stream,omitempty"`

	name  string
	story string        // what the model says, as turnpiketest writes it
	want  []seenTurn    // what the client sees; finish reasons are those of Chat Completions
	wants *parsedAnswer // the structured answer
}

// seenTurn is a turn of the model as the client's code sees it.
type seenTurn struct {
	Text      string     `json:"text"`
	Reasoning string     `json:"reasoning"`
	Calls     []seenCall `json:"calls"`
	Finish    string     `json:"finish"` // as the API calls it
	Usage     [2]int     `json:"usage"`  // tokens of input and output
}

// twoTools declares a tool that returns its message and one that adds.
func twoTools(echo, sum string) []object {
	return []object{
		{"name": echo, "description": "Returns the message.", "schema": object{
			"type": "object", "properties": object{"message": object{"type": "string"}}, "required": []string{"message"},
		}},
		{"name": sum, "description": "Adds two numbers.", "schema": object{
			"type": "object", "properties": object{"a": object{"type": "number"}, "b": object{"type": "number"}}, "required": []string{"a", "b"},
		}},
	}
}

// thinkingConversation is two rounds of tools, with thinking before each turn; that
// of the second is hidden.
func thinkingConversation(echo, sum string) conversation {
	const message, first, second = `{"message":"20 – „22“"}`, `{"a":1,"b":2}`, `{"a":20,"b":22}`
	story := `
reasoning "First "
reasoning the echo.
text I ask.
call toolu_1 ECHO ` + message + `
call toolu_2 SUM ` + first + `
usage 30 12

reasoning
call toolu_3 SUM ` + second + `
usage 60 9

reasoning Both agree.
text "It is "
text 42.
usage 80 7
`
	return conversation{
		Tools: twoTools(echo, sum), Think: true, story: strings.NewReplacer("ECHO", echo, "SUM", sum).Replace(story),
		want: []seenTurn{
			{Reasoning: "First the echo.", Text: "I ask.", Calls: []seenCall{{"toolu_1", echo, message}, {"toolu_2", sum, first}}, Finish: "tool_calls", Usage: [2]int{30, 12}},
			{Calls: []seenCall{{"toolu_3", sum, second}}, Finish: "tool_calls", Usage: [2]int{60, 9}},
			{Reasoning: "Both agree.", Text: "It is 42.", Finish: "stop", Usage: [2]int{80, 7}},
		},
	}
}

// conversations returns every conversation, as JSON and streamed.
func conversations(t *testing.T) []conversation {
	tools := thinkingConversation("echo", "get-sum")
	tools.name, tools.Think = "two rounds of tools, the first with parallel calls", false
	tools.story = regexp.MustCompile(`reasoning.*\n`).ReplaceAllString(tools.story, "")
	for i := range tools.want {
		tools.want[i].Reasoning = ""
	}
	thinking := thinkingConversation("echo", "get-sum")
	thinking.name = "thinking, with two rounds of tools"
	own := thinkingConversation("my-echo", "my-sum")
	own.name = "thinking, with two rounds of tools that only the client has"
	kinds := []conversation{
		tools, thinking, own,
		{name: "an answer that its limit ends", story: "text It is\nstop length\nusage 9 6000",
			want: []seenTurn{{Text: "It is", Finish: "length", Usage: [2]int{9, 6000}}}},
		{name: "an answer that a filter ends", story: "text Well\nstop content_filter\nusage 9 2",
			want: []seenTurn{{Text: "Well", Finish: "content_filter", Usage: [2]int{9, 2}}}},
		{name: "text", story: "text Good \ntext morning ☀.\nusage 11 4",
			want: []seenTurn{{Text: "Good morning ☀.", Finish: "stop", Usage: [2]int{11, 4}}}},
		{name: "images", story: "text A square.\nusage 900 3",
			Images: []object{pictureOf(t), {"url": "https://images.example/square.png"}},
			want:   []seenTurn{{Text: "A square.", Finish: "stop", Usage: [2]int{900, 3}}}},
		{name: "structured output", Structured: true, story: "text \"{\\\"sum\\\":42,\"\ntext \"\\\"words\\\":\\\"zweiundvierzig ✓\\\"}\"\nusage 20 8",
			want:  []seenTurn{{Text: `{"sum":42,"words":"zweiundvierzig ✓"}`, Finish: "stop", Usage: [2]int{20, 8}}},
			wants: &parsedAnswer{42, "zweiundvierzig ✓"}},
	}
	return bothWays(kinds...)
}

// bothWays returns each conversation twice: as JSON and streamed.
func bothWays(kinds ...conversation) []conversation {
	var all []conversation
	for _, c := range kinds {
		all = append(all, c)
		c.Stream = true
		c.name += ", streamed"
		all = append(all, c)
	}
	return asked(all)
}

// asked gives conversations their prompts.
func asked(all []conversation) []conversation {
	for i := range all {
		all[i].System, all[i].Prompt = "Be brief.", "The question about "+all[i].name+"?"
	}
	return all
}

func (c conversation) named(other conversation) bool { return c.name == other.name }

// pictureOf is the picture of the image tests as bytes.
func pictureOf(t *testing.T) object {
	_, data, _ := strings.Cut(picture(t), ",")
	if _, err := base64.StdEncoding.DecodeString(data); err != nil {
		t.Fatal(err)
	}
	return object{"media_type": "image/png", "data": data}
}

// fakes stands where a provider would: it hands each request to the strict
// Upstream of the conversation whose prompt is in the request.
type fakes struct {
	*httptest.Server

	mu   sync.Mutex
	each map[string]*upstreamtest.Upstream // by prompt; guarded by mu
}

func startFakes(t *testing.T) *fakes {
	f := &fakes{}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// play gives each conversation an Upstream that has seen nothing yet.
func (f *fakes) play(t *testing.T, all []conversation) []*upstreamtest.Upstream {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.each = map[string]*upstreamtest.Upstream{}
	var started []*upstreamtest.Upstream
	for _, c := range all {
		up := upstreamtest.New(turnpiketest.NewScript(t, c.story), upstreamtest.Options{Strict: true})
		t.Cleanup(up.Close)
		f.each[c.Prompt] = up
		started = append(started, up)
	}
	return started
}

func (f *fakes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	up := f.of(body)
	if up == nil {
		http.Error(w, "no conversation has this prompt: "+string(body), http.StatusBadRequest)
		return
	}
	target, err := url.Parse(up.URL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	target.Path = ""
	onward := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, Transport: up.Transport(), FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0), // of answers that a story cuts
	}
	onward.ServeHTTP(w, r)
}

func (f *fakes) of(body []byte) *upstreamtest.Upstream {
	f.mu.Lock()
	defer f.mu.Unlock()
	for prompt, up := range f.each {
		if bytes.Contains(body, marshal(prompt)) {
			return up
		}
	}
	return nil
}

// dialect is an API of a provider, and the model that the gateway gets from it.
type dialect struct {
	api, model, base string
	finish           map[string]string // Chat Completions' finish reasons in the API's words
}

var dialects = []dialect{
	{"chat", "gpt-test", "/v1", map[string]string{"stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter"}},
	{"messages", "claude-sonnet-4-5", "/anthropic", map[string]string{"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}},
	{"responses", "responses-test", "/v1", map[string]string{"stop": "completed", "tool_calls": "completed", "length": "max_output_tokens", "content_filter": "content_filter"}},
}

// google has no reason of its own for calls.
var google = dialect{"gemini", "gemini-3-flash-preview", "/google", map[string]string{"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}}

// testConversations has the same conversations with the official client of each
// API before a strict fake of it, and with OpenAI's chat client before the gateway
// before the same fakes, with the loop off and on. Every request is accepted, every
// answer is understood, and what reaches the fakes means the same.
func testConversations(t *testing.T, s *site) { // A14 M01 M02 M06 P08
	all := conversations(t)
	f := startFakes(t)
	gateway := s.startGateway(t, f.URL, []object{{"name": "everything", "url": s.everything + "/mcp", "enabled": true}}).url
	var gateways, clients []conversation // with thinking, by whose tools they are
	for _, c := range all {
		switch {
		case c.Think && strings.Contains(c.story, " my-echo "):
			clients = append(clients, c)
		case c.Think:
			c.Tools = nil
			gateways = append(gateways, c)
		}
	}
	client := nodeClient{node: s.node, script: "conversation.mjs"}
	for _, d := range append(slices.Clone(dialects), google) {
		t.Run(d.api, func(t *testing.T) {
			direct := f.play(t, all)
			got := answer(t, client, ask{API: d.api, BaseURL: f.URL + d.base, Key: upKey, Model: d.model, Conversations: all})
			t.Run("direct", func(t *testing.T) { wantConversations(t, all, got, d.finish, direct) })
			through := f.play(t, all)
			got = answer(t, client, ask{API: "chat", BaseURL: gateway + "/v1", Key: plainKey, Model: d.model, Conversations: all})
			t.Run("through the gateway", func(t *testing.T) { wantConversations(t, all, got, dialects[0].finish, through) })
			for i, c := range all {
				t.Run("requests of "+c.name, func(t *testing.T) {
					wantSameRequests(t, direct[i], through[i], append(differencesOf[d.api], unsigned[d.api]...)...)
				})
			}
			inLoop := func(all []conversation) (outcome, []*upstreamtest.Upstream) {
				ups := f.play(t, all)
				return answer(t, client, ask{API: "chat", BaseURL: gateway + "/v1", Key: devKey, Model: d.model, Conversations: all}), ups
			}
			same := func(t *testing.T, c conversation, up *upstreamtest.Upstream) {
				wantSameRequests(t, direct[slices.IndexFunc(all, c.named)], up, append(differencesOf[d.api], looped[d.api]...)...)
			}
			got, ups := inLoop(gateways)
			for i, c := range gateways {
				t.Run("in the loop, "+c.name, func(t *testing.T) {
					wantFinalTurn(t, c, got.Each[i], ups[i])
					same(t, c, ups[i])
				})
			}
			got, ups = inLoop(clients)
			if d.api != "chat" { // whose reasoning a client can send back itself
				wantKeptReasoning(t, clients, got, func(seenTurn) bool { return true })
			}
			t.Run("in the loop", func(t *testing.T) { wantConversations(t, clients, got, dialects[0].finish, ups) })
			for i, c := range clients {
				t.Run("requests in the loop of "+c.name, func(t *testing.T) { same(t, c, ups[i]) })
			}
			t.Run("with the Responses API", func(t *testing.T) { responsesConversations(t, client, f, gateway, d, all, gateways) })
		})
	}
}

// responsesConversations has the conversations with OpenAI's client of the Responses API
// before the gateway: with tools of the client, and with those of the gateway.
func responsesConversations(t *testing.T, client client, f *fakes, gateway string, d dialect, all, gateways []conversation) {
	of := func(key string, all []conversation) (outcome, []*upstreamtest.Upstream) {
		ups := f.play(t, all)
		return answer(t, client, ask{API: "responses", BaseURL: gateway + "/v1", Key: key, Model: d.model, Conversations: all}), ups
	}
	finish := dialects[2].finish
	got, ups := of(plainKey, all)
	var thinking []conversation
	var turns outcome
	for i, c := range all {
		if c.Think || d.api == google.api { // which signs every first call
			thinking, turns.Each = append(thinking, c), append(turns.Each, got.Each[i])
		}
	}
	wantKeptReasoning(t, thinking, turns, func(turn seenTurn) bool {
		return d.api != "chat" || turn.Reasoning != "" // there is no hidden reasoning in that API
	})
	wantConversations(t, all, got, finish, ups)
	got, ups = of(devKey, gateways)
	for i, c := range gateways {
		t.Run("tools of the gateway, "+c.name, func(t *testing.T) {
			wantAccepted(t, ups[i])
			if got.Each[i].Error != nil || len(got.Each[i].Turns) != 1 {
				t.Fatalf("the client saw %+v", got.Each[i])
			}
			turn := got.Each[i].Turns[0]
			text, reasoning := "", ""
			for _, w := range c.want { // a response has the items of all rounds
				text, reasoning = text+w.Text, reasoning+w.Reasoning
			}
			wantEqual(t, "turn", seenTurn{Text: text, Reasoning: reasoning, Calls: []seenCall{}, Finish: "completed", Usage: [2]int{30 + 60 + 80, 12 + 9 + 7}}, turn)
		})
	}
}

// wantFinalTurn checks what is left of a conversation for a client whose tools the
// gateway executes.
func wantFinalTurn(t *testing.T, c conversation, got outcome, up *upstreamtest.Upstream) {
	t.Helper()
	wantAccepted(t, up)
	if got.Error != nil || len(got.Turns) != 1 {
		t.Fatalf("the client saw %d turns, and the error %+v", len(got.Turns), got.Error)
	}
	last := c.want[len(c.want)-1]
	turn := got.Turns[0]
	wantEqual(t, "final text", last.Text, finalText(turn.Text, c.Stream))
	wantEqual(t, "finish reason", last.Finish, turn.Finish)
	wantEqual(t, "calls", 0, len(turn.Calls))
	wantEqual(t, "usage of all rounds", [2]int{30 + 60 + 80, 12 + 9 + 7}, turn.Usage)
}

// wantKeptReasoning checks that calls have ids by which the gateway finds the
// reasoning that led to them, and puts the provider's in their place.
func wantKeptReasoning(t *testing.T, all []conversation, got outcome, isKept func(seenTurn) bool) {
	t.Helper()
	for i, c := range all {
		for k, turn := range got.Each[i].Turns {
			for n := range turn.Calls {
				if k >= len(c.want) || n >= len(c.want[k].Calls) || !isKept(c.want[k]) {
					continue // reported with the turns
				}
				if id := turn.Calls[n].ID; !strings.HasPrefix(id, "call_tp_") {
					t.Errorf("%s, turn %d: call %d has the id %q, want one of the gateway", c.name, k, n, id)
				}
				turn.Calls[n].ID = c.want[k].Calls[n].ID
			}
		}
	}
}

func wantAccepted(t *testing.T, up *upstreamtest.Upstream) {
	t.Helper()
	for k, r := range up.Requests() {
		if r.Refused != "" {
			t.Errorf("request %d was refused: %s\n%s", k, r.Refused, r.Body)
		}
	}
}

func wantConversations(t *testing.T, all []conversation, got outcome, finish map[string]string, ups []*upstreamtest.Upstream) {
	if len(got.Each) != len(all) {
		t.Fatalf("%d outcomes of %d conversations", len(got.Each), len(all))
	}
	for i, c := range all {
		t.Run(c.name, func(t *testing.T) {
			wantAccepted(t, ups[i])
			if e := got.Each[i].Error; e != nil {
				t.Fatalf("the client raised %+v", *e)
			}
			var want []seenTurn
			for _, turn := range c.want {
				turn.Finish = finish[turn.Finish]
				if turn.Calls == nil {
					turn.Calls = []seenCall{}
				}
				want = append(want, turn)
			}
			wantEqual(t, "turns", want, got.Each[i].Turns)
			wantEqual(t, "structured answer", c.wants, got.Each[i].Parsed)
		})
	}
}

// wantSameRequests compares the requests of an official client with those of the
// gateway, after the differences that are allowed.
func wantSameRequests(t *testing.T, direct, through *upstreamtest.Upstream, differences ...difference) {
	a, b := direct.Requests(), through.Requests()
	if len(a) != len(b) {
		t.Fatalf("%d requests of the official client, %d of the gateway", len(a), len(b))
	}
	for i := range a {
		official, ours := decodedAs[object](t, a[i].Body), decodedAs[object](t, b[i].Body)
		for _, d := range differences {
			d.forget(official)
			d.forget(ours)
		}
		if diff := cmp.Diff(official, ours); diff != "" {
			t.Errorf("request %d (-official client +gateway):\n%s", i, diff)
		}
	}
}

// difference is one that is allowed between requests that mean the same. forget
// makes it disappear.
type difference struct {
	why    string
	forget func(request object)
}

func without(names ...string) func(object) {
	return func(request object) {
		for _, name := range names {
			delete(request, name)
		}
	}
}

var streamed = difference{"the gateway always asks a provider of another dialect for a stream", without("stream")}

var differencesOf = map[string][]difference{
	"chat": nil, // the relay changes nothing
	"messages": {
		streamed,
		{"a text is short for a list of one text block", func(request object) {
			request["system"] = textBlocks(request["system"])
			for _, m := range listOf(request["messages"]) {
				for _, block := range listOf(m["content"]) {
					if block["type"] == "tool_result" {
						block["content"] = textBlocks(block["content"])
					}
				}
			}
		}},
	},
	"gemini": {
		{"pieces of one text, as a stream has them, are one text", func(request object) {
			for _, c := range listOf(request["contents"]) {
				c["parts"] = joinedTexts(listOf(c["parts"]))
			}
		}},
		{"the role of a system instruction says nothing", func(request object) {
			if system, ok := request["systemInstruction"].(object); ok {
				delete(system, "role")
			}
		}},
	},
	"responses": {
		streamed,
		{"instructions are short for a system message that comes first", func(request object) {
			if text, ok := request["instructions"]; ok {
				first := object{"role": "system", "content": []any{object{"type": "input_text", "text": text}}}
				request["input"] = append([]any{first}, request["input"].([]any)...)
				delete(request, "instructions")
			}
		}},
		{"message is the default type of an item with a role", func(request object) {
			for _, item := range listOf(request["input"]) {
				if _, ok := item["role"]; ok {
					item["type"] = "message"
				}
			}
		}},
		{"the gateway asks for encrypted reasoning in every request, as models may reason unasked", without("include")},
	},
}

// unsigned are the differences of requests whose transcript the client keeps.
var unsigned = map[string][]difference{
	"messages": {{"Chat Completions has no place for signatures: thinking is shown to the client and not sent back, and Anthropic refuses to go on thinking without it",
		func(request object) {
			for _, m := range listOf(request["messages"]) {
				if m["role"] == "assistant" {
					m["content"] = slices.DeleteFunc(m["content"].([]any), func(block any) bool {
						return strings.HasSuffix(block.(object)["type"].(string), "thinking")
					})
					delete(request, "thinking")
				}
			}
		}}},
	"gemini": {{"Chat Completions has no place for thoughts and signatures: calls without their own are marked", func(request object) {
		for _, c := range listOf(request["contents"]) {
			var kept []any
			for _, p := range listOf(c["parts"]) {
				delete(p, "thoughtSignature")
				if p["thought"] == nil && p["text"] != "" {
					kept = append(kept, p)
				}
			}
			c["parts"] = kept
		}
	}}},
	"responses": {{"Chat Completions has no place for the reasoning, ids and states of a response's items",
		func(request object) {
			request["input"] = slices.DeleteFunc(request["input"].([]any), func(item any) bool { return item.(object)["type"] == "reasoning" })
			for _, item := range listOf(request["input"]) {
				without("id", "status")(item)
				for _, part := range listOf(item["content"]) {
					without("annotations", "logprobs")(part)
				}
			}
		}}},
}

// looped are the differences of requests that the gateway makes in its own loop.
var looped = map[string][]difference{
	"chat": {
		ownTools,
		{"the gateway always asks for a stream with usage", without("stream", "stream_options")},
		{"a member of a message that is null or empty says nothing", func(request object) {
			for _, m := range listOf(request["messages"]) {
				maps.DeleteFunc(m, func(_ string, value any) bool {
					list, isList := value.([]any)
					return value == nil || value == "" || isList && len(list) == 0
				})
			}
		}},
	},
	"messages": {ownTools},
	"gemini":   {ownTools},
	"responses": {
		ownTools,
		{"with store: false nothing is stored that the ids and states of items could name", func(request object) {
			for _, item := range listOf(request["input"]) {
				without("id", "status")(item)
			}
		}},
	},
}

var ownTools = difference{"the gateway offers all tools of its server, with their own descriptions", without("tools")}

// joinedTexts joins adjacent texts, and adjacent thoughts, that have no signature.
func joinedTexts(parts []object) []any {
	var out []any
	for _, p := range parts {
		text, isText := p["text"].(string)
		if n := len(out) - 1; isText && n >= 0 && p["thoughtSignature"] == nil {
			before := out[n].(object)
			if said, ok := before["text"].(string); ok && before["thoughtSignature"] == nil && before["thought"] == p["thought"] {
				before["text"] = said + text
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

func textBlocks(content any) any {
	if text, ok := content.(string); ok {
		return []any{object{"type": "text", "text": text}}
	}
	return content
}

// listOf returns the objects of a list; none where the value is something else.
func listOf(value any) []object {
	list, _ := value.([]any)
	var all []object
	for _, v := range list {
		if o, ok := v.(object); ok {
			all = append(all, o)
		}
	}
	return all
}
