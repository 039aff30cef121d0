package responses

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// described is an item on one line: its kind, role or name, call id, turn and content.
func described(it item.Item) string {
	words := []string{string(it.Kind)}
	add := func(s string) {
		if s != "" {
			words = append(words, s)
		}
	}
	add(string(it.Role))
	add(it.Name)
	add(it.CallID)
	add(it.Arguments)
	for _, p := range it.Parts {
		add(string(p.Kind) + ":" + p.Text + p.URL + p.FileID + p.Data)
	}
	if it.Turn > 0 {
		add("turn " + string(rune('0'+it.Turn)))
	}
	if it.Native.JSON != nil {
		add("native")
	}
	return strings.Join(words, " ")
}

// Every form of input becomes items, in order. // D21 D22
func TestInput(t *testing.T) {
	for _, tt := range []struct {
		name, input string
		want        []string
	}{
		{"a text", `"hi"`, []string{"message user text:hi"}},
		{"messages without a type", `[{"role":"developer","content":"Be brief."},{"role":"user","content":[{"type":"input_text","text":"hi"}]}]`,
			[]string{"message developer text:Be brief. native", "message user text:hi native"}},
		{"an answer that is sent back, with and without id and status", `[{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]},{"type":"refusal","refusal":"b"}]},{"role":"assistant","content":"c"}]`,
			[]string{"message assistant text:a refusal:b turn 1 native", "message assistant text:c turn 1 native"}},
		{"images and files", `[{"role":"user","content":[{"type":"input_image","image_url":"https://x/i.png","detail":"low"},{"type":"input_image","file_id":"file_1"},{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="},{"type":"input_file","file_url":"https://x/f.pdf"}]}]`,
			[]string{"message user image:https://x/i.png image:file_1 file:data:application/pdf;base64,AA== file:https://x/f.pdf native"}},
		{"reasoning and parallel calls are one answer", `[{"role":"user","content":"q"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm."}]},` +
			`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call","call_id":"c2","name":"f","arguments":""},` +
			`{"type":"function_call_output","call_id":"c1","output":"1"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"}]},{"role":"assistant","content":"3"}]`,
			[]string{"message user text:q native", "reasoning text:Hm. turn 1 native", "tool_call f c1 {} turn 1 native", "tool_call f c2 {} turn 1 native",
				"tool_result c1 text:1 native", "tool_result c2 text:2 native", "message assistant text:3 turn 2 native"}},
		{"a call of a tool of a namespace", `[{"type":"function_call","call_id":"c1","namespace":"ns","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"1"}]`,
			[]string{"tool_call ns__f c1 {} turn 1", "tool_result c1 text:1 native"}},
		{"a call of a custom tool", `[{"type":"custom_tool_call","call_id":"c1","name":"patch","input":"a \"b\""},{"type":"custom_tool_call_output","call_id":"c1","output":"ok"}]`,
			[]string{`tool_call patch c1 {"input":"a \"b\""} turn 1`, "tool_result c1 text:ok"}},
		{"an output that is sent twice, two outputs of a custom tool, and a call that has the id of another", `[{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"1"},{"role":"user","content":"so?"},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"1"}]},` +
			`{"type":"custom_tool_call","call_id":"c1","name":"g","input":""},{"type":"custom_tool_call_output","call_id":"c1","output":"3"},{"role":"user","content":"and?"},{"type":"custom_tool_call_output","call_id":"c1","output":"4"}]`,
			[]string{"tool_call f c1 {} turn 1 native", "tool_result c1 text:1 native", "message user text:so? native", `tool_call g c1 {"input":""} turn 2`, "tool_result c1 text:3 text:4", "message user text:and? native"}},
		{"two calls with one id", `[{"type":"function_call","call_id":"c","name":"f"},{"type":"function_call","call_id":"c","name":"f"},{"type":"function_call_output","call_id":"c","output":"1"},{"type":"function_call_output","call_id":"c","output":"2"}]`,
			[]string{"tool_call f c {} turn 1 native", "tool_call f c {} turn 1 native", "tool_result c text:1 native", "tool_result c text:2 native"}},
		{"items of MCP servers", `[{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[]},{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"t","arguments":"{}","output":"o"},` +
			`{"type":"mcp_call","id":"mcp_2","server_label":"s","name":"t","arguments":"{}","error":{"type":"mcp_tool_execution_error","content":[{"type":"text","text":"no"}]}},{"role":"user","content":"and?"}]`,
			[]string{"tool_call t mcp_1 {} turn 1", "tool_result mcp_1 text:o", "tool_call t mcp_2 {} turn 2", "tool_result mcp_2 text:Tool call failed: no", "message user text:and? native"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, _, err := decoded(`{"model":"m","input":` + tt.input + `}`)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, it := range req.Items {
				got = append(got, described(it))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// Instructions are a system message in front of the input, also where they come after it.
func TestInstructions(t *testing.T) {
	req, _, err := decoded(`{"input":"hi","model":"m","instructions":"Be brief."}`)
	if err != nil || len(req.Items) != 1 || len(req.System) != 1 || described(req.System[0]) != "message system text:Be brief." {
		t.Errorf("%v %+v %+v", err, req.System, req.Items)
	}
}

// What cannot be honoured is refused at its place.
func TestWhatIsRefused(t *testing.T) {
	for body, want := range map[string]string{
		`{}`:               "missing_required_parameter input",
		`{"input":null}`:   "missing_required_parameter input",
		`{"input":[]}`:     "missing_required_parameter input",
		`{"input":7}`:      "invalid_type input",
		`{"input":["hi"]}`: "invalid_type input[0]",
		`{"input":[{}]}`:   "missing_required_parameter input[0].type",
		`{"input":[{"type":"message","content":"x"}]}`:                                                              "missing_required_parameter input[0].role",
		`{"input":[{"role":"critic","content":"x"}]}`:                                                               "invalid_value input[0].role",
		`{"input":[{"role":"user","content":7}]}`:                                                                   "invalid_type input[0].content",
		`{"input":[{"role":"user","content":[{"text":"x"}]}]}`:                                                      "missing_required_parameter input[0].content[0].type",
		`{"input":[{"role":"user","content":[{"type":"input_image"}]}]}`:                                            "missing_required_parameter input[0].content[0].image_url",
		`{"input":[{"role":"user","content":[{"type":"input_file","filename":"a"}]}]}`:                              "missing_required_parameter input[0].content[0].file_data",
		`{"input":[{"role":"user","content":[{"type":"input_video","video_url":"u"}]}]}`:                            "unsupported_value input[0].content[0]",
		`{"input":[{"type":"function_call","name":"f"}]}`:                                                           "missing_required_parameter input[0].call_id",
		`{"input":[{"type":"function_call","call_id":"c"}]}`:                                                        "missing_required_parameter input[0].name",
		`{"input":[{"type":"function_call_output","output":"x"}]}`:                                                  "missing_required_parameter input[0].call_id",
		`{"input":[{"type":"function_call_output","call_id":"c"}]}`:                                                 "missing_required_parameter input[0].output",
		`{"input":[{"type":"item_reference"}]}`:                                                                     "missing_required_parameter input[0].id",
		`{"input":[{"type":"mcp_approval_response","approval_request_id":"x"}]}`:                                    "missing_required_parameter input[0].approve",
		`{"input":"x","conversation":{}}`:                                                                           "missing_required_parameter conversation",
		`{"input":"x","conversation":7}`:                                                                            "invalid_type conversation",
		`{"input":"x","conversation":{"id":"conv_1"},"previous_response_id":"resp_1"}`:                              "mutually_exclusive_parameters previous_response_id",
		`{"input":"x","background":true,"store":false}`:                                                             "unsupported_value background",
		`{"input":"x","background":"yes"}`:                                                                          "invalid_type background",
		`{"input":"x","prompt":{"id":"p"}}`:                                                                         "unsupported_parameter prompt",
		`{"input":"x","temperature":"hot"}`:                                                                         "invalid_type temperature",
		`{"input":"x","stream":"yes"}`:                                                                              "invalid_type stream",
		`{"input":"x","max_output_tokens":0}`:                                                                       "integer_below_min_value max_output_tokens",
		`{"input":"x","metadata":{"a":1}}`:                                                                          "invalid_type metadata",
		`{"input":"x","metadata":{"a":"` + strings.Repeat("x", 513) + `"}}`:                                         "invalid_value metadata",
		`{"input":"x","text":{"format":{"type":"xml"}}}`:                                                            "invalid_value text.format.type",
		`{"input":"x","text":{"format":{"type":"json_schema","name":"n"}}}`:                                         "missing_required_parameter text.format",
		`{"input":"x","tools":{}}`:                                                                                  "invalid_type tools",
		`{"input":"x","tools":[{}]}`:                                                                                "missing_required_parameter tools[0].type",
		`{"input":"x","tools":[{"type":"function"}]}`:                                                               "missing_required_parameter tools[0].name",
		`{"input":"x","tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}]}`:                       "invalid_value tools[1].name",
		`{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"m"}]}]}`:         "invalid_value tools[0].tools[0].type",
		`{"input":[{"type":"additional_tools","tools":[{"type":"mcp","authorization":"secret"}]}]}`:                 "invalid_value input[0].tools[0].type",
		`{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp","authorization":"secret"}]}]}`: "invalid_value tools[0].tools[0].type",
		`{"input":[{"type":"item_reference","id":7}]}`:                                                              "invalid_type input[0].id",
		`{"input":"x","metadata":{"a":null}}`:                                                                       "invalid_type metadata",
		`{"input":"x","truncation":"middle"}`:                                                                       "invalid_value truncation",
		`{"input":"x","truncation":""}`:                                                                             "invalid_value truncation",
		`{"input":"x","top_logprobs":-1}`:                                                                           "integer_below_min_value top_logprobs",
		`{"input":"x","top_logprobs":21}`:                                                                           "integer_above_max_value top_logprobs",
		`{"input":"x","top_logprobs":1.5}`:                                                                          "invalid_type top_logprobs",
		`{"input":"x","temperature":-0.1}`:                                                                          "decimal_below_min_value temperature",
		`{"input":"x","temperature":2.1}`:                                                                           "decimal_above_max_value temperature",
		`{"input":"x","top_p":-1}`:                                                                                  "decimal_below_min_value top_p",
		`{"input":"x","top_p":1.01}`:                                                                                "decimal_above_max_value top_p",
		`{"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":"s"}}}`:                            "invalid_type text.format.schema",
		`{"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":null}}}`:                           "invalid_type text.format.schema",
		`{"input":[{"type":"function_call","call_id":"c","name":"f"},{"type":"function_call_output","call_id":"c","output":"1"},{"type":"function_call_output","call_id":"c","output":"2"}]}`: "invalid_value input[2]",
		`{"input":"x","tools":[{"type":"function","name":"f","parameters":"x"}]}`:                                                                                                             "invalid_type tools[0].parameters",
		`{"input":"x","tools":[{"type":"function","name":"f","parameters":[]}]}`:                                                                                                              "invalid_type tools[0].parameters",
		`{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":true}]}]}`:                                                                  "invalid_type tools[0].tools[0].parameters",
		`{"input":"x","tools":[{"type":"namespace","tools":[{"type":"function","name":"f"}]}]}`:                                                                                               "missing_required_parameter tools[0].name",
		`{"input":"x","tool_choice":{"type":"allowed_tools","mode":"none","tools":[]}}`:                                                                                                       "invalid_value tool_choice.mode",
		`{"input":"x","tool_choice":{"type":"allowed_tools","tools":[]}}`:                                                                                                                     "invalid_value tool_choice.mode",
		`{"input":"x","tool_choice":"maybe"}`:                                                                                                                                                 "invalid_value tool_choice",
		`{"input":"x","tool_choice":{"type":"function","name":"f"}}`:                                                                                                                          "invalid_value tool_choice",
		`{"input":"x","tool_choice":{"type":"web_search"}}`:                                                                                                                                   "unsupported_value tool_choice",
		`{"input":"x","tool_choice":{"type":"mcp","server_label":"s"}}`:                                                                                                                       "invalid_value tool_choice.server_label",
		`{"input":"x","tool_choice":{"type":"allowed_tools","mode":"never","tools":[]}}`:                                                                                                      "invalid_value tool_choice.mode",
		`{"input":"x","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}}`:                                                                         "invalid_value tool_choice.tools[0]",
	} {
		_, _, err := decoded(body)
		f := fault.From(err)
		if err == nil || f.Code != fault.Invalid || f.Reason+" "+f.Param != want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
	_, _, err := decoded(`{"input":[{"type":"item_reference","id":"msg_1"}]}`)
	if f := fault.From(err); f.Code != fault.NotFound || f.Reason != "item_not_found" || f.Param != "input[0]" {
		t.Errorf("an item that is not stored: %v", err)
	}
}

// An input of which the model would see nothing is refused at the first item that is left out.
func TestAnInputOfWhichTheModelSeesNothing(t *testing.T) {
	const misspelt, search = `{"type":"mesage","role":"user","content":"x"}`, `{"type":"web_search_call","id":"ws_1","status":"completed"}`
	for body, want := range map[string]string{
		`{"input":[` + misspelt + `]}`:                                                            "input[0]",
		`{"input":[` + misspelt + `],"instructions":"Be brief."}`:                                 "input[0]",
		`{"input":[{"type":"additional_tools","tools":[]},` + search + `,` + misspelt + `]}`:      "input[1]",
		`{"input":[` + misspelt + `,{"role":"user","content":"x"}]}`:                              "",
		`{"input":[{"role":"developer","content":"x"},` + misspelt + `]}`:                         "",
		`{"input":[` + misspelt + `,{"type":"function_call_output","call_id":"c","output":"x"}]}`: "",
		`{"input":[` + search + `],"previous_response_id":"resp_1"}`:                              "",
		`{"input":[` + search + `],"conversation":"conv_1"}`:                                      "",
		`{"input":[{"type":"additional_tools","tools":[]}]}`:                                      "",
	} {
		_, _, err := decoded(body)
		f := fault.From(err)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", body, err)
		case want != "" && (err == nil || f.Code != fault.Invalid || f.Reason != "invalid_value" || f.Param != want || !strings.Contains(f.Message, "the provider up")):
			t.Errorf("%s: %v at %q, want %s", body, err, f.Param, want)
		}
	}
	if _, _, err := decodedFor(relaying{}, `{"input":[`+misspelt+`]}`); err != nil {
		t.Errorf("a provider of the dialect judges it: %v", err)
	}
	if _, _, err := answered(relaying{}, `{"input":[`+search+`],"tools":[{"type":"web_search"}]}`); fault.From(err).Param != "input[0]" {
		t.Errorf("an item of the gateway's own: %v", err)
	}
}

// Values at the limits, and those that only a provider can judge, are accepted.
func TestValuesThatAreAccepted(t *testing.T) {
	for _, members := range []string{
		`"temperature":0,"top_p":0,"top_logprobs":0,"truncation":"auto"`, `"temperature":2,"top_p":1,"top_logprobs":20,"truncation":"disabled"`,
		`"reasoning":{"effort":"next","summary":"next"},"service_tier":"next","text":{"verbosity":"next"}`,
		`"tools":[{"type":"function","name":"f","parameters":null},{"type":"function","name":"g"},{"type":"function","name":"h","parameters":{}}]`,
		`"tool_choice":{"type":"allowed_tools","mode":"required","tools":[]}`, `"metadata":{"a":""}`,
	} {
		if _, _, err := decoded(`{"input":"x",` + members + `}`); err != nil {
			t.Errorf("%s: %v", members, err)
		}
	}
	_, _, err := decoded(`{"input":"x","tool_choice":{"type":"allowed_tools","mode":"never","tools":[]}}`)
	if f := fault.From(err); f.Message != "tool_choice.mode must be auto or required" {
		t.Errorf("the error of a mode: %q", f.Message)
	}
}

// With the loop off nothing is stored, and nothing stored is continued.
func TestWithTheLoopOffNothingIsStored(t *testing.T) {
	relayed := func(body string) (*run.Request, surface.Reply, error) {
		members, err := surface.Scan(nil, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		req := &run.Request{Input: run.Input{Model: "m", Targets: []route.Target{{Client: translating{}}}}}
		req.Relay = &run.Relay{}
		reply, err := decodeWith(req, members)
		return req, reply, err
	}
	req, reply, err := relayed(`{"input":"x"}`)
	if err != nil || req.Store != nil || reply.Dropped != nil {
		t.Errorf("%v %+v %q", err, req.Store, reply.Dropped)
	}
	if _, reply, err = relayed(`{"input":"x","store":true}`); err != nil || !slices.Equal(reply.Dropped, []string{"store"}) {
		t.Errorf("%v %q", err, reply.Dropped)
	}
	if _, _, err = relayed(`{"input":"x","previous_response_id":"resp_1"}`); fault.From(err).Param != "previous_response_id" {
		t.Error(err)
	}
}

// What has no effect is named.
func TestWhatIsDropped(t *testing.T) {
	body := `{"input":[{"role":"user","content":"x"},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}],"store":true,"include":["reasoning.encrypted_content"],"stream_options":{"include_obfuscation":true},` +
		`"tools":[{"type":"web_search"},{"type":"function","name":"f","defer_loading":true},{"type":"local_shell"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"},{"type":"function","name":"f"}]}}`
	_, reply, err := decoded(body)
	want := []string{"include", "input[1]", "tool_choice.tools[0]", "tools[0]", "tools[1].defer_loading", "tools[2]"}
	if slices.Sort(reply.Dropped); err != nil || !slices.Equal(reply.Dropped, want) {
		t.Errorf("%v %q", err, reply.Dropped)
	}
	req, reply, err := decodedFor(relaying{}, body)
	if err != nil || len(reply.Dropped) > 0 || !reply.Native {
		t.Errorf("for a provider of the dialect: %v %q", err, reply.Dropped)
	}
	if len(req.Hosted) != 2 || req.Hosted[1].Place != "tools[2]" || len(req.ToolChoice.OnlyHosted) != 1 || !slices.Equal(req.ToolChoice.Only, []string{"f"}) {
		t.Errorf("%+v %+v", req.Hosted, req.ToolChoice)
	}
	req, _, err = decodedFor(relaying{}, `{"input":"x","include":["message.input_image.image_url"]}`)
	if err != nil || !req.Params[0].Typed {
		t.Errorf("what every provider includes: %v %+v", err, req.Params)
	}
	req, _, err = decodedFor(relaying{}, `{"input":"x","include":["reasoning.encrypted_content"]}`)
	if err != nil || req.Params[0].Typed {
		t.Errorf("a target of another dialect must name what it leaves out: %v %+v", err, req.Params)
	}
	req, _, err = decoded(`{"input":"x","reasoning":{"effort":"low","generate_summary":null},"text":{"verbosity":"low","x":null},"safety_identifier":"","prompt_cache_key":"","context_management":[],"logit_bias":{}}`)
	if err != nil || len(req.Params) != 5 || slices.ContainsFunc(req.Params, func(p model.Param) bool { return !p.Typed }) {
		t.Errorf("values that say nothing: %v %+v", err, req.Params)
	}
	_, reply, err = decoded(`{"input":"x","store":false,"include":[],"background":false,"truncation":"disabled","service_tier":"auto","top_logprobs":0,"stream_options":{},"previous_response_id":"","conversation":null}`)
	if err != nil || len(reply.Dropped) > 0 {
		t.Errorf("what asks for nothing: %v %q", err, reply.Dropped)
	}
}

// Members that nothing in the gateway or at the provider reads are named. Tools of namespaces and
// custom tools are sent as functions, to a provider of the dialect, too.
func TestUnknownMembersAreNamed(t *testing.T) {
	const grammar = `"format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"`
	for members, want := range map[string]struct{ translated, relayed string }{
		`"tools":[{"type":"namespace","name":"n","description":"N","x":1,"y":null,"tools":[{"type":"function","name":"f","strict":true,"defer_loading":true,"z":false}]}]`: {"tools[0].tools[0].defer_loading tools[0].x", "tools[0].tools[0].defer_loading tools[0].x"},
		`"tools":[{"type":"custom","name":"c","description":"C",` + grammar + `}}]`:                                                                                        {"", ""},
		`"tools":[{"type":"custom","name":"c","defer_loading":true,` + grammar + `,"x":1}}]`:                                                                               {"tools[0].defer_loading tools[0].format.x", "tools[0].defer_loading tools[0].format.x"},
		`"tools":[{"type":"custom","name":"c","format":{"type":"text"}}]`:                                                                                                  {"", ""},
		`"tools":[{"type":"custom","name":"c","format":{"type":"regular"}}]`:                                                                                               {"tools[0].format", "tools[0].format"},
		`"tools":[{"type":"function","name":"f","x":1}]`:                                                                                                                   {"tools[0].x", ""},
		`"text":{"format":{"type":"json_schema","name":"n","schema":{},"strict":true,"x":1}}`:                                                                              {"text.format.x", ""},
		`"text":{"format":{"type":"text","x":null}}`:                                                                                                                       {"", ""},
		`"stream_options":{"include_obfuscation":false,"include_usage":true}`:                                                                                              {"stream_options.include_usage", "stream_options.include_usage"},
	} {
		for m, dropped := range map[model.Model]string{translating{}: want.translated, relaying{}: want.relayed} {
			_, reply, err := decodedFor(m, `{"input":"x",`+members+`}`)
			slices.Sort(reply.Dropped)
			if got := strings.Join(reply.Dropped, " "); err != nil || got != dropped {
				t.Errorf("%T, %s: %v, dropped %q, want %q", m, members, err, got, dropped)
			}
		}
	}
	req, _, err := decodedFor(relaying{}, `{"input":"x","text":{"format":{"type":"text","x":1}}}`)
	if err != nil || req.Params[0].Typed {
		t.Errorf("a target of another dialect must name what it leaves out: %v %+v", err, req.Params)
	}
}

// The model does not get a namespace: its description is a part of those of its tools.
func TestTheDescriptionOfANamespace(t *testing.T) {
	const tools = `{"type":"function","name":"f","description":"Reads."},{"type":"function","name":"g"},{"type":"custom","name":"h","description":"Writes.","format":{"type":"grammar","syntax":"lark","definition":"x"}}`
	for description, want := range map[string][]string{
		`,"description":"Files."`: {"Files.\n\nReads.", "Files.", "Files.\n\nWrites.\n\nThe input must match this grammar (lark):\nx"},
		`,"description":""`:       {"Reads.", "", "Writes.\n\nThe input must match this grammar (lark):\nx"},
		``:                        {"Reads.", "", "Writes.\n\nThe input must match this grammar (lark):\nx"},
	} {
		req, reply, err := decoded(`{"input":"x","tools":[{"type":"namespace","name":"n"` + description + `,"tools":[` + tools + `]}]}`)
		if err != nil || len(reply.Dropped) > 0 {
			t.Fatal(err, reply.Dropped)
		}
		var got []string
		for _, tool := range req.ClientTools {
			got = append(got, tool.Description)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", description, diff)
		}
	}
}

// Tools of the item additional_tools are like those of the member tools, and replace them.
func TestAdditionalTools(t *testing.T) { // P37
	const items = `[
		{"type":"additional_tools","role":"developer","tools":[
			{"type":"namespace","name":"functions","tools":[{"type":"custom","name":"exec"}]},
			{"type":"function","name":"wait","description":"new","parameters":{"type":"object"}},
			{"type":"web_search"}]},
		{"role":"user","content":"go"}]`
	req, reply, err := decoded(`{"model":"m","tools":[{"type":"function","name":"wait","description":"old"}],"tool_choice":{"type":"custom","namespace":"functions","name":"exec"},"input":` + items + `}`)
	if err != nil {
		t.Fatal(err)
	}
	var offered []string
	for _, tool := range req.ClientTools {
		offered = append(offered, tool.Name+": "+tool.Description)
	}
	if diff := cmp.Diff([]string{"wait: new", "functions__exec: "}, offered); diff != "" {
		t.Error(diff)
	}
	if len(req.Items) != 1 || req.ToolChoice.Name != "functions__exec" || !slices.Equal(reply.Dropped, []string{"input[0].tools[2]"}) {
		t.Errorf("items %+v, choice %+v, dropped %q", req.Items, req.ToolChoice, reply.Dropped)
	}
	kept := stored{input: req.Store.Input}
	if err := json.Unmarshal(req.Store.RequestJSON, &kept); err != nil {
		t.Fatal(err)
	}
	if got := kept.clientTools().sent; len(got) != 1 || got["functions__exec"] != (clientTool{"functions", "exec", true}) {
		t.Errorf("a stored response knows the tools %+v", got)
	}
	if _, _, err := decoded(`{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"function"}]}]}`); err == nil || fault.From(err).Param != "input[0].tools[0].name" {
		t.Errorf("a tool without a name: %v", err)
	}
}

// An MCP server is called by the gateway, within its limits: no form of its tool reaches a
// provider, which would call the server itself.
func TestMCPToolsDoNotReachAProvider(t *testing.T) {
	const server = `"server_label":"s","server_url":"https://mcp.example.com","authorization":"t"`
	for body, want := range map[string]string{
		`{"input":[{"type":"additional_tools","tools":[{"type":"mcp",` + server + `}]}]}`: "invalid_value input[0].tools[0].type",
		`{"input":"x","tools":[null]}`:                                                                    "missing_required_parameter tools[0].type",
		`{"input":[{"type":"additional_tools","tools":[{}]}]}`:                                            "missing_required_parameter input[0].tools[0].type",
		`{"input":"x","tools":[{"type":"mcp","TYPE":"web_search",` + server + `}]}`:                       "unknown_parameter tools[0].TYPE",
		`{"input":"x","tools":[{"type":"mcp","type":"function","name":"f",` + server + `}]}`:              "invalid_value tools[0].type",
		`{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp",` + server + `}]}]}`: "invalid_value tools[0].tools[0].type",
	} {
		req, _, err := decodedFor(relaying{}, body)
		if f := fault.From(err); err == nil || f.Reason+" "+f.Param != want {
			t.Errorf("%s: %v, hosted %s", body, err, req.Hosted)
		}
	}
}

// A name that is longer than providers take is cut, and stays that of one tool.
func TestNamesOfToolsInNamespacesAreShort(t *testing.T) {
	long := strings.Repeat("n", 60)
	a, b := flatName(long, long+"a"), flatName(long, long+"b")
	if len(a) != 64 || len(b) != 64 || a == b || a != flatName(long, long+"a") {
		t.Errorf("%s and %s", a, b)
	}
	if got := flatName("mail__", "send"); got != "mail__send" {
		t.Error(got)
	}
}
