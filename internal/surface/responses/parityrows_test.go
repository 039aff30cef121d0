package responses_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// threeRounds are rounds with calls of shown and hidden tools, reasoning and text.
const threeRounds = `reasoning Two things.
text Looking
text  it up.
call c1 search {"q":1}
call c2 customer {"n":7}
usage 20 9

text Once more.
call c3 read {"n":1}
usage 30 4

reasoning Enough.
text Done
text : 42.
usage 40 5`

// rounds makes a check of a stream one of the same run with a provider of each dialect.
func rounds(check func(*testing.T, []RespEvent)) func(*testing.T) {
	return func(t *testing.T) {
		for _, kind := range []string{"openai", "anthropic", "openai-responses", "gemini", "bedrock"} {
			t.Run(kind, func(t *testing.T) {
				p := NewParitySite(t, kind, threeRounds, "")
				all := p.Respond(`"input":"go","stream":true,"tools":[` + p.DocsTool(Never) + `]`).Events(t)
				if n := len(p.Up.Requests()); n != 3 || len(p.Docs.Calls()) != 2 || len(p.Hidden.Calls()) != 1 || last(all).Status != "completed" {
					t.Fatalf("%d model calls, %d and %d tool calls, %+v", n, len(p.Docs.Calls()), len(p.Hidden.Calls()), last(all))
				}
				check(t, all)
			})
		}
	}
}

func reasoningIsApart(t *testing.T, all []RespEvent) {
	if n := len(last(all).Of("reasoning")); n != 2 {
		t.Errorf("%d items with reasoning", n)
	}
	kinds := map[string]string{}
	for _, e := range typed(all, "response.output_item.added", "") {
		kinds[e.Item.ID] = e.Item.Type
	}
	for _, e := range all {
		ofReasoning := strings.HasPrefix(e.Type, "response.reasoning")
		ofText := strings.HasPrefix(e.Type, "response.output_text") || strings.HasPrefix(e.Type, "response.content_part")
		if ofReasoning && kinds[e.ItemID] != "reasoning" || ofText && kinds[e.ItemID] != "message" {
			t.Errorf("%s is of an item of the type %s", e.Type, kinds[e.ItemID])
		}
		if strings.HasSuffix(e.Type, "part.added") && e.Part.Type != map[bool]string{true: "summary_text", false: "output_text"}[ofReasoning] {
			t.Errorf("%s has a part of the type %s", e.Type, e.Part.Type)
		}
	}
}

func oneResponse(t *testing.T, all []RespEvent) {
	var order []string
	ids := map[string]bool{}
	for _, e := range all {
		if e.Response.ID != "" {
			order = append(order, strings.TrimPrefix(e.Type, "response."))
			ids[e.Response.ID] = true
		}
	}
	if fmt.Sprint(order) != "[created in_progress completed]" || len(ids) != 1 || all[0].Type != "response.created" {
		t.Errorf("%v with %d ids", order, len(ids))
	}
}

func noFunctionCalls(t *testing.T, all []RespEvent) {
	for _, e := range all {
		if e.Item.Type == "function_call" || strings.HasPrefix(e.Item.ID, "fc_") || strings.Contains(e.Type, "function_call") || e.Item.Name == "customer" {
			t.Errorf("%s %+v", e.Type, e.Item)
		}
	}
	calls := last(all).Of("mcp_call")
	if len(calls) != 2 || calls[0].Name != "search" || calls[0].Arguments != `{"q":1}` || calls[0].Output == nil || *calls[0].Output != "found" {
		t.Errorf("%+v", calls)
	}
}

func oneListForEachServer(t *testing.T, all []RespEvent) {
	lists := last(all).Of("mcp_list_tools")
	if len(lists) != 1 || lists[0].Label != "docs" || len(lists[0].Tools) != 2 {
		t.Fatalf("%+v", lists)
	}
	var order []string
	for _, e := range all {
		if e.ItemID == lists[0].ID || e.Item.ID == lists[0].ID {
			order = append(order, strings.TrimPrefix(e.Type, "response."))
		}
	}
	if fmt.Sprint(order) != "[output_item.added mcp_list_tools.in_progress mcp_list_tools.completed output_item.done]" {
		t.Error(order)
	}
}

// Also the events of a response that fails have their numbers.
func numbersOfEvents(t *testing.T) {
	rounds(WantNumbered)(t)
	p := NewParitySite(t, "openai", "text Looking.\ncall c1 search {}\n\ntext Hel\nfail 500 broken", "")
	all := p.Respond(`"input":"go","stream":true,"tools":[` + p.DocsTool(Never) + `]`).Events(t)
	if all[len(all)-1].Type != "response.failed" {
		t.Errorf("the last event is %s", all[len(all)-1].Type)
	}
	WantNumbered(t, all)
}

// The provider sends the last text with the finish reason, and closes without an end mark.
func closedEarly(t *testing.T) {
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		Frame(w, `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}`)
		Frame(w, `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"lo."},"finish_reason":"stop"}]}`)
	})
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	all := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"go","stream":true}`)).Events(t)
	wantWhole(t, all)
	wantEnded(t, all)
	if o := last(all); o.Status != "completed" || o.Text() != "Hello." || len(typed(all, "response.content_part", ".done")) != 1 {
		t.Errorf("%+v", o)
	}
}

// The server more has no tools.
func twoLists(t *testing.T) {
	p := NewParitySite(t, "openai", "text Done.", "")
	empty := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{})
	t.Cleanup(empty.Close)
	all := p.Respond(`"input":"go","stream":true,"tools":[` + p.DocsTool(Never) + `,{"type":"mcp","server_label":"crm","require_approval":"never"},` +
		fmt.Sprintf(`{"type":"mcp","server_label":"more","server_url":%q,"require_approval":"never"}]`, empty.URL)).Events(t)
	tools := map[string]int{}
	for _, it := range last(all).Of("mcp_list_tools") {
		tools[it.Label] = len(it.Tools)
	}
	if diff := cmp.Diff(map[string]int{"docs": 2, "crm": 1, "more": 0}, tools); diff != "" || len(typed(all, "response.mcp_list_tools", ".completed")) != 3 {
		t.Error(diff)
	}
	wantEnded(t, all)
}

// A chain of two responses with five rounds asks the server once, and shows one list.
func listedOnce(t *testing.T) {
	p := NewParitySite(t, "openai", threeRounds+"\n\ncall c4 search {\"q\":2}\n\ntext Yes.", "")
	tools := `,"tools":[` + p.DocsTool(Never) + `]`
	first := p.Respond(`"input":"go"` + tools).Responded(t)
	second := p.Respond(`"input":"again","previous_response_id":"` + first.ID + `"` + tools).Responded(t)
	if n := p.Docs.Count("tools/list"); n != 1 || len(p.Docs.Calls()) != 3 {
		t.Errorf("tools were listed %d times, called %d times", n, len(p.Docs.Calls()))
	}
	if len(first.Of("mcp_list_tools")) != 1 || len(second.Of("mcp_list_tools")) != 0 || len(second.Of("mcp_call")) != 1 {
		t.Errorf("the first response has %v, the second %v", first.Types(), second.Types())
	}
}

const clock = `{"type":"function","name":"clock","parameters":{"type":"object","properties":{}}}`

// Three responses, each with a call of the client's: the model sees all pairs in order.
func chainOfCalls(t *testing.T) {
	for _, kind := range []string{"openai", "anthropic", "openai-responses", "gemini", "bedrock"} {
		t.Run(kind, func(t *testing.T) {
			p := NewParitySite(t, kind, "call c1 search {\"q\":1}\ncall c2 clock {\"n\":1}\n\ncall c3 clock {\"n\":2}\n\ntext Late.", "")
			tools := `,"tools":[` + clock + `,` + p.DocsTool(Never) + `]`
			o := p.Respond(`"input":"Time?"` + tools).Responded(t)
			for i := range 2 {
				calls := o.Of("function_call")
				if len(calls) != 1 || calls[0].Name != "clock" || calls[0].Status != "completed" {
					t.Fatalf("%+v", o)
				}
				o = p.Respond(fmt.Sprintf(`"input":[{"type":"function_call_output","call_id":%q,"output":"noon %d"}],"previous_response_id":%q`, calls[0].CallID, i, o.ID) + tools).Responded(t)
			}
			if o.Text() != "Late." {
				t.Errorf("%+v", o)
			}
			at := 0
			for _, want := range []string{"Time?", "c1", "c2", "found", "noon 0", "c3", "noon 1"} { // a strict provider has checked the pairs
				i := strings.Index(p.Asked()[at:], want)
				if i < 0 {
					t.Fatalf("%q does not follow in %s", want, p.Asked())
				}
				at += i
			}
		})
	}
}

// A chain, and the same items sent back by the client: nothing is executed again.
func nothingIsExecutedAgain(t *testing.T) {
	p := NewParitySite(t, "openai", "call c1 search {\"q\":1}\n\ntext Found.\n\ntext As I said.\nagain", "")
	tools := `,"tools":[` + p.DocsTool(Never) + `]`
	a := p.Respond(`"input":"go"` + tools)
	first := a.Responded(t)
	var raw struct{ Output []json.RawMessage }
	if err := json.Unmarshal(a.Body, &raw); err != nil {
		t.Fatal(err)
	}
	items, _ := json.Marshal(raw.Output) // they were decoded from JSON
	for _, members := range []string{
		`"input":"again","previous_response_id":"` + first.ID + `"`,
		`"input":` + strings.TrimSuffix(string(items), "]") + `,{"role":"user","content":"again"}]`,
	} {
		o := p.Respond(members + tools).Responded(t)
		if len(p.Docs.Calls()) != 1 || len(o.Of("mcp_call")) != 0 || o.Text() != "As I said." || strings.Count(p.Asked(), `"found"`) != 1 {
			t.Errorf("%d calls, %v; the model was asked %s", len(p.Docs.Calls()), o.Types(), p.Asked())
		}
	}
}

func streamedIsStored(t *testing.T) {
	p := NewParitySite(t, "openai", "call c1 search {\"q\":1}\n\ntext Found.\n\ntext Yes.", "")
	tools := `,"tools":[` + p.DocsTool(Never) + `]`
	all := p.Respond(`"input":"go","stream":true` + tools).Events(t)
	got := p.Got(last(all).ID)
	if diff := cmp.Diff(last(all), got.Responded(t)); diff != "" || last(all).Text() != "Found." || len(last(all).Of("mcp_call")) != 1 {
		t.Errorf("stored is %s\n%s", got.Body, diff)
	}
	o := p.Respond(`"input":"Sure?","previous_response_id":"` + last(all).ID + `"` + tools).Responded(t)
	if o.Text() != "Yes." || !strings.Contains(p.Asked(), "found") || !strings.Contains(p.Asked(), "Found.") {
		t.Errorf("%+v after %s", o, p.Asked())
	}
}

func cutOff(t *testing.T) {
	p := NewParitySite(t, "openai", "text Hal\nstop length\nagain", "")
	all := p.Respond(`"input":"go","stream":true`).Events(t)
	if e := all[len(all)-1]; e.Type != "response.incomplete" {
		t.Errorf("the last event is %s", e.Type)
	}
	whole := p.Respond(`"input":"go"`).Responded(t)
	for _, o := range []RespObject{last(all), whole, p.Got(whole.ID).Responded(t)} {
		if o.Status != "incomplete" || o.Incomplete == nil || o.Incomplete.Reason != "max_output_tokens" || o.Text() != "Hal" || o.Output[0].Status != "incomplete" {
			t.Errorf("%+v", o)
		}
	}
}

// The first of the two calls is whole, and is not executed either.
func callCutOff(t *testing.T) {
	for _, of := range []string{"search", "clock"} {
		p := NewParitySite(t, "openai", "text Look\ncall c1 "+of+" {\"q\":1}\ncall c2 "+of+" {\"q\"\nstop length", "")
		all := p.Respond(`"input":"go","stream":true,"tools":[` + clock + `,` + p.DocsTool(Never) + `]`).Events(t)
		o := last(all)
		if len(p.Docs.Calls()) != 0 || len(p.Up.Requests()) != 1 || o.Status != "incomplete" || len(o.Of("function_call")) != 0 {
			t.Errorf("%d tool calls, %d model calls, %+v", len(p.Docs.Calls()), len(p.Up.Requests()), o)
		}
		for i, it := range o.Output {
			if it.Type == "message" && (it.Status == "incomplete") != (i == len(o.Output)-1) {
				t.Errorf("item %d of %d is %s", i, len(o.Output), it.Status)
			}
		}
	}
}

func failureInMidStream(t *testing.T) {
	for _, how := range []string{"cut", "fail 500 broken"} {
		p := NewParitySite(t, "openai", "call c1 search {}\n\ntext Hel\n"+how, "")
		a := p.Respond(`"input":"go","stream":true,"tools":[` + p.DocsTool(Never) + `]`)
		all := a.Events(t)
		o := last(all)
		if all[len(all)-1].Type != "response.failed" || o.Status != "failed" || o.Error == nil || o.Error.Code != "server_error" || o.Error.Message == "" || strings.Contains(string(a.Body), `data: {"error"`) {
			t.Errorf("%s: the end is %+v", how, all[len(all)-1])
		}
		if fmt.Sprint(o.Types()) != "[mcp_list_tools mcp_call message]" || o.Output[2].Status != "incomplete" || o.Text() != "Hel" {
			t.Errorf("%s: %+v", how, o.Output)
		}
		wantOpened(t, all)
		wantWhole(t, all)
		wantEnded(t, all)
		if diff := cmp.Diff(o, p.Got(o.ID).Responded(t)); diff != "" {
			t.Errorf("%s: stored is another response:\n%s", how, diff)
		}
	}
}

func usageIsTheSum(t *testing.T) {
	const want = `{"input_tokens":90,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":18,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":108}`
	rounds(func(t *testing.T, all []RespEvent) {
		if got := string(last(all).Usage); got != want {
			t.Errorf("usage is %s", got)
		}
	})(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		Frame(w, `{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}`)
		Frame(w, "[DONE]")
	})
	o := MustRun(t, Site{Upstream: up.URL}.Yaml()).Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"go"}`)).Responded(t)
	if got := string(o.Usage); got != `{"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}` {
		t.Errorf("without usage of the provider: %s", got)
	}
}

func callsWithOneIndex(t *testing.T) {
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, c := range []string{`"id":"a","type":"function","function":{"name":"clock","arguments":"{\"n\":"}`, `"function":{"arguments":"1}"}`, `"id":"b","type":"function","function":{"name":"clock","arguments":"{\"n\":2}"}`} {
			Frame(w, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,`+c+`}]}}]}`)
		}
		Frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`)
		Frame(w, "[DONE]")
	})
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	all := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"go","stream":true,"tools":[`+clock+`]}`)).Events(t)
	wantEnded(t, all)
	calls := last(all).Of("function_call")
	if len(calls) != 2 || calls[0].Arguments != `{"n":1}` || calls[1].Arguments != `{"n":2}` || calls[0].CallID == calls[1].CallID {
		t.Errorf("%+v", calls)
	}
}

// The model calls search or clock where the choice excludes it: the call is not executed, and does
// not reach the client.
func toolChoiceIsEnforced(t *testing.T) {
	for _, tt := range []struct{ choice, calls, sent string }{
		{`"none"`, "search", `"tool_choice":"none"`},
		{`"none"`, "clock", `"tool_choice":"none"`},
		{`{"type":"function","name":"clock"}`, "search", `"tool_choice":{"`},
		{`{"type":"mcp","server_label":"docs","name":"read"}`, "search", `"tool_choice":{"`},
		{`{"type":"mcp","server_label":"docs"}`, "clock", `"tool_choice":"required"`},
		{`{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"docs","name":"read"}]}`, "search", ""},
		{`{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"clock"}]}`, "search", `"tool_choice":"required"`},
		{`{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"docs"}]}`, "clock", ""},
	} {
		p := NewParitySite(t, "openai", "call c1 "+tt.calls+" {}\n\ntext Fine.\nagain", "")
		o := p.Respond(`"input":"go","tool_choice":` + tt.choice + `,"tools":[` + clock + `,` + p.DocsTool(Never) + `]`).Responded(t)
		if len(p.Docs.Calls()) != 0 || len(o.Of("function_call")) != 0 {
			t.Errorf("%s: %s was called: %d tool calls, %+v", tt.choice, tt.calls, len(p.Docs.Calls()), o.Output)
		}
		if sent := string(p.Up.Requests()[0].Body); !strings.Contains(sent, tt.sent) {
			t.Errorf("%s: the provider got %s", tt.choice, sent)
		}
		if len(o.Tools) != 2 { // the list is the same, whatever the choice
			t.Errorf("%s: tools are repeated as %v", tt.choice, o.Tools)
		}
	}
}

// codingTools are the tools that a coding agent sends.
const codingTools = `"tools":[{"type":"namespace","name":"mcp__fs__","description":"Files.","tools":[{"type":"function","name":"read","parameters":{"type":"object","properties":{}}}]},` +
	`{"type":"custom","name":"apply_patch","description":"Edits.","format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}},` +
	`{"type":"function","name":"shell","strict":false,"parameters":{"type":"object","properties":{"command":{"type":"string"}}}},{"type":"tool_search"},{"type":"web_search"}],` +
	`"tool_choice":"auto","parallel_tool_calls":true,"store":false,"include":["reasoning.encrypted_content"],"reasoning":{"effort":"low","summary":"auto"},"instructions":"You edit code."`

func toolsOfCodingAgents(t *testing.T) {
	story := "call c1 mcp__fs__read {\"p\":\"a\"}\ncall c2 apply_patch {\"input\":\"*** Begin\\n\"}\ncall c3 shell {\"command\":\"ls\"}\n\ntext Done."
	for _, kind := range []string{"openai", "openai-responses"} {
		t.Run(kind, func(t *testing.T) {
			p := NewParitySite(t, kind, story, "")
			a := p.Respond(codingTools + `,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Fix it."}]}]`)
			o := a.Responded(t)
			dropped := a.Header.Get("Turnpike-Dropped-Params")
			if left := strings.Contains(dropped, "tools[3]") && strings.Contains(dropped, "tools[4]"); left != (kind == "openai") || strings.Contains(p.Asked(), `{"type":"web_search"}`) == left {
				t.Errorf("dropped are %q of %s", dropped, p.Asked())
			}
			functions, custom := o.Of("function_call"), o.Of("custom_tool_call")
			if len(functions) != 2 || functions[0].Namespace != "mcp__fs__" || functions[0].Name != "read" || functions[1].Name != "shell" || functions[1].Namespace != "" ||
				len(custom) != 1 || custom[0].Name != "apply_patch" || custom[0].Input != "*** Begin\n" {
				t.Fatalf("%+v", o.Output)
			}
			var raw struct{ Output []json.RawMessage }
			if err := json.Unmarshal(a.Body, &raw); err != nil {
				t.Fatal(err)
			}
			items := []string{`{"role":"user","content":"Fix it."}`}
			for _, item := range raw.Output {
				items = append(items, string(item))
			}
			for _, it := range o.Output {
				if it.CallID != "" {
					items = append(items, fmt.Sprintf(`{"type":%q,"call_id":%q,"output":"ok"}`, it.Type+"_output", it.CallID))
				}
			}
			if o = p.Respond(codingTools + `,"input":[` + strings.Join(items, ",") + `]`).Responded(t); o.Text() != "Done." {
				t.Errorf("%+v", o)
			}
		})
	}
	p := NewParitySite(t, "openai", "text never", "dropped_params: refuse")
	e := p.Respond(`"input":"go",` + codingTools).Fault(t).Error
	if !strings.Contains(e.Message, "tools[3]") || len(p.Up.Requests()) != 0 {
		t.Errorf("%+v", e)
	}
}

// All forms of input. A reference to an item that is not stored is refused with its place.
func formsOfTheHistory(t *testing.T) {
	const history = `{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"c"}]},` +
		`{"type":"message","id":"msg_from_elsewhere","role":"assistant","status":"completed","content":[{"type":"output_text","text":"d","annotations":[],"logprobs":[]}]},` +
		`{"type":"message","role":"developer","content":[{"type":"input_text","text":"e"}]},{"type":"function_call","id":"fc_x","call_id":"k1","name":"clock","arguments":"{}"},` +
		`{"type":"function_call","call_id":"k2","name":"clock","arguments":"{}","status":"completed"},` +
		`{"type":"function_call_output","call_id":"k1","output":[{"type":"input_text","text":"f"}]},{"type":"function_call_output","id":"fco_1","call_id":"k2","output":"g","status":"completed"},` +
		`{"role":"user","content":[{"type":"input_text","text":"h"}]}`
	for _, kind := range []string{"openai", "anthropic", "openai-responses", "gemini", "bedrock"} {
		p := NewParitySite(t, kind, "text Done.\nagain", "")
		if o := p.Respond(`"store":false,"input":[` + history + `],"tools":[` + clock + `]`).Responded(t); o.Text() != "Done." {
			t.Errorf("%+v", o)
		}
		if a := p.Respond(`"input":[{"role":"user","content":"a"},{"type":"item_reference","id":"msg_1"}]`); a.Status != 404 || *a.Fault(t).Error.Param != "input[1]" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		stored := p.Respond(`"input":"a"`).Responded(t)
		p.Respond(`"input":[{"type":"item_reference","id":"` + stored.Output[0].ID + `"},{"role":"user","content":"i"}]`).Responded(t)
		if !strings.Contains(p.Asked(), "Done.") {
			t.Errorf("the reference is lost: %s", p.Asked())
		}
	}
	p := NewParitySite(t, "openai-responses", "reasoning Hm.\ncall c1 clock {}\n\ntext Done.", "") // the provider refuses changed reasoning
	tools := `,"include":["reasoning.encrypted_content"],"tools":[` + clock + `]`
	first := p.Respond(`"input":"go"` + tools).Responded(t)
	call := first.Of("function_call")[0]
	p.Respond(`"input":[{"type":"function_call_output","call_id":"` + call.CallID + `","output":"noon"}],"previous_response_id":"` + first.ID + `"` + tools).Responded(t)
	if !strings.Contains(p.Asked(), `"encrypted_content":"`) {
		t.Errorf("the reasoning is not sent back: %s", p.Asked())
	}
}

func formatOfTheText(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`
	for kind, want := range map[string]string{
		"openai": `"response_format":{"type":"json_schema","json_schema":{`, "openai-responses": `"format":{"type":"json_schema",`, "anthropic": `"additionalProperties":false`,
		"gemini": `"responseJsonSchema":{`, "bedrock": `"textFormat":{"type":"json_schema"`,
	} {
		p := NewParitySite(t, kind, `text {"a":1}`, "")
		o := p.Respond(`"input":"go","text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":` + schema + `}}`).Responded(t)
		if compact := strings.ReplaceAll(p.Asked(), " ", ""); !strings.Contains(compact, want) || o.Text() != `{"a":1}` {
			t.Errorf("%s was asked %s and said %q", kind, p.Asked(), o.Text())
		}
	}
}

// A request that uses nothing that the provider lacks drops nothing, though the org has MCP servers
// whose tools are not listed yet: an org that refuses what is dropped gets its answer. // P22
func TestAPlainResponseDropsNothing(t *testing.T) {
	NoLeaks(t)
	for _, kind := range []string{"openai", "anthropic", "openai-responses", "gemini", "bedrock"} {
		p := NewParitySite(t, kind, "text Hello.\nagain", "dropped_params: refuse")
		for _, members := range []string{`"input":"go"`, `"input":"go","tools":[` + p.DocsTool(Never) + `]`, `"input":"go","tool_choice":"auto","tools":[` + clock + `]`} {
			a := p.Respond(members)
			if o := a.Responded(t); o.Text() != "Hello." || a.Header.Get("Turnpike-Dropped-Params") != "" {
				t.Errorf("%s, %s: dropped are %q", kind, members, a.Header.Get("Turnpike-Dropped-Params"))
			}
		}
	}
}

// With the loop off, a provider that speaks the Responses API gets the request byte by byte, and
// its answer reaches the client so, also with tools that only the provider can execute. // A02
func TestAResponseIsRelayedByteByByte(t *testing.T) {
	NoLeaks(t)
	const said = `{ "id":"resp_theirs", "object":"response", "output":[{"type":"web_search_call","id":"ws_1"}] }`
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { _, _ = w.Write([]byte(said)) })
	g := MustRun(t, strings.Replace(Site{Upstream: up.URL}.Yaml(), "{name: up,", "{name: up, kind: openai-responses,", 1))
	const body = `{ "model":"m", "input":[{"type":"web_search_call","id":"ws_0","status":"completed","action":{"type":"search","query":"go"}},{"role":"user","content":"go"}], "tools":[{"type":"web_search"}] }`
	a := g.Send("POST", "/v1/responses", strings.NewReader(body), "Turnpike-Mcp-Disabled", "true")
	got := up.Requests()
	if a.Status != 200 || string(a.Body) != said || len(got) != 1 || string(got[0].Body) != body || got[0].Path != "/v1/responses" || got[0].Header.Get("Authorization") != "Bearer CANARY-upstream-key" {
		t.Errorf("status %d: %s; the provider got %+v", a.Status, a.Body, got)
	}
}

// With the loop on, what only such a provider understands goes to it, and is not named as dropped.
func TestItemsOfTheProviderGoBackToIt(t *testing.T) {
	NoLeaks(t)
	p := NewParitySite(t, "openai-responses", "text Done.", "")
	a := p.Respond(`"input":[{"role":"user","content":"a"},{"type":"web_search_call","id":"ws_0","status":"completed","action":{"type":"search","query":"go"}},{"role":"user","content":"b"}]`)
	if o := a.Responded(t); o.Text() != "Done." || a.Header.Get("Turnpike-Dropped-Params") != "" || !strings.Contains(p.Asked(), `"web_search_call"`) {
		t.Errorf("dropped are %q; the provider was asked %s", a.Header.Get("Turnpike-Dropped-Params"), p.Asked())
	}
}
