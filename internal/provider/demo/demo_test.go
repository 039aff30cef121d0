package demo_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

type object = map[string]any

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); s.Close() })
	return s.URL
}

func model(t *testing.T) string {
	return serve(t, demo.New(demo.Options{Now: func() time.Time { return time.Unix(1700000000, 0) }})) + "/v1"
}

func post(t *testing.T, url string, body any) (int, []byte) {
	t.Helper()
	data, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		data = string(b)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/chat/completions", strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type completion struct {
	Object, Model string
	Choices       []struct {
		Message struct {
			Role, Content string
			ToolCalls     []toolCall `json:"tool_calls"`
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
}

// said is what one turn says, in short.
type said struct{ Text, Tool, Arguments, Finish string }

func ask(t *testing.T, url string, body object) (said, completion) {
	t.Helper()
	status, data := post(t, url, body)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, data)
	}
	var c completion
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	s := said{Text: c.Choices[0].Message.Content, Finish: c.Choices[0].FinishReason}
	if calls := c.Choices[0].Message.ToolCalls; len(calls) > 0 {
		s.Tool, s.Arguments = calls[0].Function.Name, calls[0].Function.Arguments
	}
	return s, c
}

func function(name, schema string) object {
	return object{"type": "function", "function": object{"name": name, "description": "does " + name, "parameters": json.RawMessage(schema)}}
}

// reading is function for a tool whose source says that it only reads.
func reading(name, schema string) object {
	f := function(name, schema)
	f["function"].(object)["annotations"] = object{"readOnlyHint": true}
	return f
}

func user(text string) object { return object{"role": "user", "content": text} }

func request(messages []object, tools []object, more object) object {
	r := object{"model": "any", "messages": messages}
	if tools != nil {
		r["tools"] = tools
	}
	for k, v := range more {
		r[k] = v
	}
	return r
}

// turn appends a call and its result.
func turn(messages []object, id, tool, arguments, result string) []object {
	return append(messages,
		object{"role": "assistant", "content": nil, "tool_calls": []object{{"id": id, "type": "function", "function": object{"name": tool, "arguments": arguments}}}},
		object{"role": "tool", "tool_call_id": id, "content": result})
}

const (
	citySchema = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`
	sumSchema  = `{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}`
)

func TestTheQuestionTakesTwoRoundsOfRealTools(t *testing.T) {
	session := connect(t)
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var tools []object
	for _, tool := range list.Tools {
		if !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s does not say that it only reads", tool.Name)
		}
		schema, err := json.Marshal(tool.InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, reading(tool.Name, string(schema)))
	}
	url := model(t)
	messages := []object{user(demo.Question)}
	var story []said
	for range 3 {
		s, _ := ask(t, url, request(messages, tools, nil))
		story = append(story, s)
		if s.Tool != "" {
			messages = turn(messages, "c"+s.Tool, s.Tool, s.Arguments, callTool(t, session, s.Tool, s.Arguments))
		}
	}
	want := []said{
		{"Let me ask get_weather.", "get_weather", `{"city":"Lisbon"}`, "tool_calls"},
		{"Next, convert_temperature with what came back.", "convert_temperature", `{"value":24,"from":"celsius","to":"fahrenheit"}`, "tool_calls"},
		{Text: `Here is what the tools found: get_weather said "Lisbon: 24 degrees Celsius, sunny (example data, not a forecast)", and convert_temperature said "24 °C = 75.2 °F". (From Turnpike's scripted demo model: no AI wrote this.)`, Finish: "stop"},
	}
	if diff := cmp.Diff(want, story); diff != "" {
		t.Error(diff)
	}
}

func TestTheScript(t *testing.T) {
	weather, sum := reading("get_weather", citySchema), reading("get-sum", sumSchema)
	echo := reading("mcp__everything__echo", `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`)
	remove := function("delete_account", `{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}`)
	note := function("mcp__notes__add_note", `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)
	asked := func(question string) string {
		return "I am Turnpike's scripted demo model: I follow a script, no AI is at work. You asked: \"" + question + "\""
	}
	const written = `call get_weather with {"city":"Oslo"}, then use add_note with {"text":"x"}`
	const hint = ". I call tools that only read, tools that the question names, and any tool for: use TOOL with {…}"
	question := []object{{"role": "system", "content": "Be brief."}, user("Weather in New York? Then 2.5 and 3.")}
	once := turn(question, "c1", "get_weather", `{}`, "19 degrees")
	for name, c := range map[string]struct {
		messages, tools []object
		more            object
		want            said
	}{
		"without tools it says what it is": {messages: []object{user("Hi there")}, want: said{`I am Turnpike's scripted demo model: I follow a script, no AI is at work. You asked: "Hi there"`, "", "", "stop"}},
		"weather comes before sums":        {messages: question, tools: []object{echo, sum, weather}, want: said{"Let me ask get_weather.", "get_weather", `{"city":"New York"}`, "tool_calls"}},
		"the tool that the question names comes first": {messages: []object{user("Please echo this")}, tools: []object{weather, echo},
			want: said{"Let me ask mcp__everything__echo.", "mcp__everything__echo", `{"message":"Please echo this"}`, "tool_calls"}},
		"the second call uses the first result": {messages: once, tools: []object{weather, sum}, want: said{"Next, get-sum with what came back.", "get-sum", `{"a":19,"b":2.5}`, "tool_calls"}},
		"one tool alone makes one round": {messages: once, tools: []object{weather},
			want: said{`Here is what the tools found: get_weather said "19 degrees". (From Turnpike's scripted demo model: no AI wrote this.)`, "", "", "stop"}},
		"two results are enough": {messages: turn(once, "c2", "get-sum", `{}`, "21.5"), tools: []object{weather, sum, echo},
			want: said{`Here is what the tools found: get_weather said "19 degrees", and get-sum said "21.5". (From Turnpike's scripted demo model: no AI wrote this.)`, "", "", "stop"}},
		"a new question starts the script again": {messages: append(turn(once, "c2", "get-sum", `{}`, "21.5"), object{"role": "assistant", "content": "Done."}, user("And in Paris?")), tools: []object{weather},
			want: said{"Let me ask get_weather.", "get_weather", `{"city":"Paris"}`, "tool_calls"}},
		"a tool that may write is not called unasked": {
			messages: []object{user("Hi, I have an account")},
			tools:    []object{remove, note},
			want:     said{asked("Hi, I have an account") + hint, "", "", "stop"}},
		"a tool that shows secrets is not called unasked": {
			messages: []object{user("Hi")},
			tools:    []object{reading("get-env", `{"type":"object"}`)},
			want:     said{asked("Hi") + hint, "", "", "stop"}},
		"a tool that may write is called when the question names it": {
			messages: []object{user("Add a note: milk")},
			tools:    []object{weather, note},
			want:     said{"Let me ask mcp__notes__add_note.", "mcp__notes__add_note", `{"text":"Add a note: milk"}`, "tool_calls"}},
		"tools that the question names come in its order": {
			messages: []object{user("Add a note, then echo it")},
			tools:    []object{echo, note},
			want:     said{"Let me ask mcp__notes__add_note.", "mcp__notes__add_note", `{"text":"Add a note, then echo it"}`, "tool_calls"}},
		"a call that the question writes out": {
			messages: []object{user(`Please use add_note with {"text": "milk", "n": 1}, thanks`)},
			tools:    []object{weather, note},
			want:     said{"Let me ask mcp__notes__add_note.", "mcp__notes__add_note", `{"text": "milk", "n": 1}`, "tool_calls"}},
		"the second call that it writes out": {
			messages: turn([]object{user(written)}, "c1", "get_weather", `{"city":"Oslo"}`, "no data"),
			tools:    []object{weather, note},
			want:     said{"Next, mcp__notes__add_note with what came back.", "mcp__notes__add_note", `{"text":"x"}`, "tool_calls"}},
		"after the calls that it writes out comes the answer": {
			messages: turn([]object{user(`use add_note with {"text":"x"}`)}, "c1", "mcp__notes__add_note", `{"text":"x"}`, "denied"),
			tools:    []object{weather, note},
			want: said{`Here is what the tools found: mcp__notes__add_note said "denied". ` +
				"(From Turnpike's scripted demo model: no AI wrote this.)", "", "", "stop"}},
		"tool_choice none": {messages: []object{user("Hi")}, tools: []object{weather}, more: object{"tool_choice": "none"},
			want: said{asked("Hi") + hint, "", "", "stop"}},
		"tool_choice named": {messages: question, tools: []object{weather, remove}, more: object{"tool_choice": object{"type": "function", "function": object{"name": "delete_account"}}},
			want: said{"Let me ask delete_account.", "delete_account", `{"id":3}`, "tool_calls"}},
		"tool_choice required after all were used": {messages: once, tools: []object{weather}, more: object{"tool_choice": "required"},
			want: said{"Next, get_weather with what came back.", "get_weather", `{"city":"New York"}`, "tool_calls"}},
		"allowed tools": {messages: question, tools: []object{weather, sum}, more: object{"tool_choice": object{"type": "allowed_tools", "allowed_tools": object{"mode": "auto", "tools": []object{{"type": "function", "function": object{"name": "get-sum"}}}}}},
			want: said{"Let me ask get-sum.", "get-sum", `{"a":2.5,"b":3}`, "tool_calls"}},
		"a list of parts": {messages: []object{{"role": "user", "content": []object{{"type": "text", "text": "Hi "}, {"type": "text", "text": "you"}}}}, want: said{`I am Turnpike's scripted demo model: I follow a script, no AI is at work. You asked: "Hi you"`, "", "", "stop"}},
		"a token limit":   {messages: []object{user("Hi")}, more: object{"max_completion_tokens": 4}, want: said{"I am Turnpike's scripted", "", "", "length"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, whole := ask(t, model(t), request(c.messages, c.tools, c.more))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if u := whole.Usage; u.Prompt < 1 || u.Completion < 1 || u.Total != u.Prompt+u.Completion {
				t.Errorf("usage %+v", u)
			}
			again, _ := ask(t, model(t), request(c.messages, c.tools, c.more))
			if again != got {
				t.Errorf("the second time it said %+v", again)
			}
		})
	}
}

// events reads a stream: the data of its events.
func events(t *testing.T, url string, body object) []string {
	t.Helper()
	_, data := post(t, url, body)
	var all []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if d, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			all = append(all, d)
		}
	}
	return all
}

type chunk struct {
	ID, Object string
	Choices    []struct {
		Delta struct {
			Content   string
			ToolCalls []toolCall `json:"tool_calls"`
		}
		FinishReason *string `json:"finish_reason"`
	}
	Usage json.RawMessage
}

func TestAStreamSaysWhatTheWholeAnswerSays(t *testing.T) {
	for name, tools := range map[string][]object{
		"text": nil,
		"call": {function("get_weather", citySchema)},
	} {
		t.Run(name, func(t *testing.T) {
			url := model(t)
			body := request([]object{user(demo.Question)}, tools, nil)
			whole, c := ask(t, url, body)
			body["stream"], body["stream_options"] = true, object{"include_usage": true}
			all := events(t, url, body)
			var got said
			for i, data := range all[:len(all)-1] {
				var k chunk
				if err := json.Unmarshal([]byte(data), &k); err != nil {
					t.Fatal(err)
				}
				if i == len(all)-2 {
					usage, err := json.Marshal(object{"prompt_tokens": c.Usage.Prompt, "completion_tokens": c.Usage.Completion, "total_tokens": c.Usage.Total})
					if err != nil || len(k.Choices) != 0 || !sameJSON(t, usage, k.Usage) {
						t.Errorf("the last chunk is %s", data)
					}
					continue
				}
				if string(k.Usage) != "null" || k.Object != "chat.completion.chunk" || k.ID == "" {
					t.Errorf("chunk %s", data)
				}
				d := k.Choices[0].Delta
				got.Text += d.Content
				for _, call := range d.ToolCalls {
					got.Tool += call.Function.Name
					got.Arguments += call.Function.Arguments
				}
				if f := k.Choices[0].FinishReason; f != nil {
					got.Finish = *f
				}
			}
			if all[len(all)-1] != "[DONE]" {
				t.Errorf("the stream ends with %s", all[len(all)-1])
			}
			if diff := cmp.Diff(whole, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return cmp.Equal(x, y)
}

func TestWithoutIncludeUsageNoChunkSpeaksOfIt(t *testing.T) {
	all := events(t, model(t), request([]object{user("Hi")}, nil, object{"stream": true}))
	if len(all) < 4 || strings.Contains(strings.Join(all, ""), "usage") {
		t.Errorf("%d events: %s", len(all), all)
	}
}

func TestACallerThatLeavesEndsTheStream(t *testing.T) {
	url := serve(t, demo.New(demo.Options{Delay: time.Hour})) + "/chat/completions"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, _ := json.Marshal(request([]object{user("Hi")}, nil, object{"stream": true}))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel() // the server's Close waits for the handler, an hour if it does not notice
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the stream went on")
	}
}

func TestRefusalsHaveOpenAIsShape(t *testing.T) {
	messages := `"model":"m","messages":[{"role":"user","content":"x"}`
	call := `{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	for name, c := range map[string]struct {
		body, param, message string
	}{
		"no JSON":                       {`{"model"`, "", "we could not parse the JSON body of your request: unexpected end of JSON input"},
		"no model":                      {`{"messages":[]}`, "model", "you must provide a model parameter"},
		"no messages":                   {`{"model":"m"}`, "messages", "messages must hold at least one message"},
		"messages that are no list":     {`{"model":"m","messages":"x"}`, "messages", "invalid type for 'messages': found string"},
		"a role that is none":           {`{"model":"m","messages":[{"role":"robot"}]}`, "messages[0].role", "invalid value: 'robot'"},
		"a result without a call":       {`{` + messages + `,{"role":"tool","tool_call_id":"c"}]}`, "messages[1]", "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"},
		"a call without a result":       {`{` + messages + `,` + call + `]}`, "messages", "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"},
		"a call answered too late":      {`{` + messages + `,` + call + `,{"role":"user","content":"y"}]}`, "messages[2]", "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"},
		"two choices":                   {`{` + messages + `],"n":2}`, "n", "the demo model gives one choice"},
		"a choice without tools":        {`{` + messages + `],"tool_choice":"auto"}`, "tool_choice", "'tool_choice' is only allowed when 'tools' are specified"},
		"a choice that is none":         {`{` + messages + `],"tool_choice":"maybe"}`, "tool_choice", "invalid value: 'maybe'"},
		"a choice that was not offered": {`{` + messages + `],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}}}`, "tool_choice", "tool choice 'g' not found in 'tools' parameter"},
		"a tool without a name":         {`{` + messages + `],"tools":[{"type":"function"}]}`, "tools[0].function.name", "missing required parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			status, data := post(t, model(t), c.body)
			var param any = c.param
			if c.param == "" {
				param = nil
			}
			want, _ := json.Marshal(object{"error": object{"message": c.message, "type": "invalid_request_error", "param": param, "code": nil}})
			if status != http.StatusBadRequest || !sameJSON(t, want, data) {
				t.Errorf("%d %s", status, data)
			}
		})
	}
	if status, _ := post(t, model(t), strings.Repeat(" ", demo.MaxBody+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %d", status)
	}
}

func TestModelsAndOtherPaths(t *testing.T) {
	url := serve(t, demo.New(demo.Options{Model: "toy"}))
	for path, want := range map[string]int{"/v1/models": 200, "/models": 200, "/v1/embeddings": 404, "/v1/chat/completions": 405} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want || want == 200 && !strings.Contains(string(data), `"id":"toy"`) || want != 200 && !strings.Contains(string(data), `"error"`) {
			t.Errorf("%s: %d %s", path, res.StatusCode, data)
		}
	}
}

func connect(t *testing.T) *mcp.ClientSession {
	t.Helper()
	url := serve(t, demo.MCPServer())
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func callTool(t *testing.T, s *mcp.ClientSession, name, arguments string) string {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatal(err)
	}
	text := res.Content[0].(*mcp.TextContent).Text
	if res.IsError {
		return "error: " + text
	}
	return text
}

func TestTheToolsComputeAndRefuse(t *testing.T) {
	session := connect(t)
	for name, c := range map[string]struct{ tool, arguments, want string }{
		"a city in any case":       {"get_weather", `{"city":" tokyo"}`, "Tokyo: 20 degrees Celsius, clear (example data, not a forecast)"},
		"a city that is not there": {"get_weather", `{"city":"Atlantis"}`, `error: no example data for "Atlantis"; known cities: Berlin, Cairo, Lagos, Lisbon, London, Mumbai, New York, Paris, Reykjavik, São Paulo, Sydney, Tokyo`},
		"freezing water":           {"convert_temperature", `{"value":32,"from":"fahrenheit","to":"celsius"}`, "32 °F = 0 °C"},
		"a fraction":               {"convert_temperature", `{"value":-40.55,"from":"celsius","to":"kelvin"}`, "-40.55 °C = 232.6 K"},
		"the same unit":            {"convert_temperature", `{"value":1,"from":"kelvin","to":"kelvin"}`, "1 K = 1 K"},
		"colder than can be":       {"convert_temperature", `{"value":-300,"from":"celsius","to":"kelvin"}`, "error: -300 °C is below absolute zero"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := callTool(t, session, c.tool, c.arguments); got != c.want {
				t.Errorf("got %s", got)
			}
		})
	}
	if got := callTool(t, session, "convert_temperature", `{"value":1,"from":"rankine","to":"kelvin"}`); !strings.HasPrefix(got, "error: ") {
		t.Errorf("a unit outside the schema: %s", got)
	}
}
