package upstreamtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// refusals is a request that a strict Upstream accepts, and the smallest changes
// for which it does not.
type refusals struct {
	path, valid string
	rows        []refused
}

type refused struct {
	old, new string // replaced in the valid request; old stands there once
	why      string // a part of the message
}

const chatValid = `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"developer","content":[{"type":"text","text":"d"}]},` +
	`{"role":"user","content":[{"type":"text","text":"t"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}},` +
	`{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},{"type":"file","file":{"file_data":"data:application/pdf;base64,AAAA","filename":"f"}}]},` +
	`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{"}}]},` +
	`{"role":"tool","tool_call_id":"c2","content":"2"},{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"1"}]},{"role":"assistant","content":"a","reasoning_content":"r"},{"role":"user","content":"u"}],` +
	`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false},"strict":true}},{"type":"function","function":{"name":"g"}}],` +
	`"tool_choice":{"type":"function","function":{"name":"g"}},"parallel_tool_calls":false,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{},"additionalProperties":false},"strict":true}},` +
	`"max_completion_tokens":9,"temperature":0.5,"stop":["x"],"reasoning_effort":"low","metadata":{"k":"v"},"stream":false}`

func chatRefusals() refusals {
	return refusals{"/chat/completions", chatValid, []refused{
		{`"model":"m",`, ``, "Missing required parameter: 'model'"},
		{`"model":"m"`, `"model":1`, "Invalid type for 'model': expected a string, but got an integer"},
		{`"stop":["x"]`, `"stop":["1","2","3","4","5"]`, "'stop': array too long"},
		{`"stop":["x"]`, `"stopp":["x"]`, "Unrecognized request argument supplied: stopp"},
		{`"temperature":0.5`, `"temperature":2.5`, "Invalid 'temperature': decimal above"},
		{`"temperature":0.5`, `"temperature":"0"`, "Invalid type for 'temperature'"},
		{`"temperature":0.5`, `"max_tokens":9`, "Setting 'max_tokens' and 'max_completion_tokens'"},
		{`"max_completion_tokens":9`, `"max_completion_tokens":0`, "integer below minimum value"},
		{`"reasoning_effort":"low"`, `"reasoning_effort":"much"`, "Invalid value: 'much'"},
		{`"metadata":{"k":"v"}`, `"metadata":{"k":1}`, "'metadata.k'"},
		{`"stream":false`, `"stream_options":{"include_usage":true}`, "only allowed when 'stream' is enabled"},
		{`"role":"developer"`, `"role":"dev"`, "Invalid value: 'dev'"},
		{`"role":"developer","content"`, `"role":"developer","text"`, "Unknown parameter: 'messages[1].text'"},
		{`{"role":"developer","content":[{"type":"text","text":"d"}]}`, `{"role":"developer"}`, "Missing required parameter: 'messages[1].content'"},
		{`{"type":"text","text":"d"}`, ``, "Invalid 'messages[1].content': empty array"},
		{`{"type":"text","text":"d"}`, `{"type":"image_url","image_url":{"url":"https://x/i.png"}}`, "Image URLs are only allowed for messages with role 'user'"},
		{`{"type":"text","text":"1"}`, `{"type":"file","file":{"file_id":"f"}}`, "Invalid value: 'file'"},
		{`data:image/png;`, `data:image/bmp;`, "unsupported image"},
		{`data:image/png;base64,AAAA`, `data:image/png;base64,A*A`, "Invalid base64"},
		{`data:image/png;base64,AAAA`, `ftp://x`, "neither an http(s) URL"},
		{`{"data":"AAAA"`, `{"data":"?"`, "not base64"},
		{`"format":"wav"`, `"format":"ogg"`, "Invalid value: 'ogg'"},
		{`data:application/pdf;base64,`, ``, "base64-encoded data URL"},
		{`"file":{"file_data":"data:application/pdf;base64,AAAA","filename":"f"}`, `"file":{"filename":"f"}`, "file.file_id"},
		{`"type":"input_audio"`, `"type":"video"`, "Invalid value: 'video'"},
		{`"content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{"}}]},{"role":"tool","tool_call_id":"c2","content":"2"},{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"1"}]}`, `"content":null}`, "expected a string, got null"},
		{`"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}`, `"id":"c1","type":"function","function":{"name":"f","arguments":{}}`, "tool_calls[0].function.arguments"},
		{`"id":"c1"`, `"id":"` + strings.Repeat("c", 41) + `"`, "maximum length 40"},
		{`"tool_call_id":"c2"`, `"tool_call_id":"c3"`, "'tool_call_id' of 'c3' not found"},
		{`{"role":"tool","tool_call_id":"c2","content":"2"},`, ``, "did not have response messages: c2"},
		{`{"role":"assistant","content":"a","reasoning_content":"r"},{"role":"user","content":"u"}`, `{"role":"assistant","content":"a","tool_calls":[{"id":"c9","type":"function","function":{"name":"f","arguments":"{}"}}]}`, "did not have response messages: c9"},
		{`{"role":"user","content":"u"}`, `{"role":"tool","tool_call_id":"c1","content":"1"}`, "must be a response to a preceding message"},
		{`"name":"g"}}],"tool_choice"`, `"name":"f"}}],"tool_choice"`, "Tool names must be unique"},
		{`"name":"g"}}],"tool_choice"`, `"name":"g h"}}],"tool_choice"`, "does not match pattern"},
		{`"name":"g"}}],"tool_choice"`, `"name":"` + strings.Repeat("g", 65) + `"}}],"tool_choice"`, "maximum length 64"},
		{`"function":{"name":"g"}},"parallel`, `"function":{"name":"h"}},"parallel`, "the tool 'h' is not found"},
		{`{"type":"function","function":{"name":"g"}},"parallel`, `"any","parallel`, "Invalid value: 'any'"},
		{`{"type":"function","function":{"name":"g"}},"parallel`, `{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"h"}}]}},"parallel`, "the tool 'h' is not found"},
		{`"required":["a"],`, ``, "'required' is required to be supplied"},
		{`"required":["a"],"additionalProperties":false`, `"required":["a"]`, "'additionalProperties' is required"},
		{`"parameters":{"type":"object"`, `"parameters":{"type":"array"`, `type: "array"`},
		{`"json_schema":{"name":"n",`, `"json_schema":{`, "Missing required parameter: 'response_format.json_schema.name'"},
		{`{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{},"additionalProperties":false},"strict":true}}`, `{"type":"json_object"}`, "must contain the word 'json'"},
		{`"properties":{},"additionalProperties":false}`, `"properties":{}}`, "Invalid schema for response_format 'n'"},
	}}
}

const anthropicValid = `{"model":"m","max_tokens":4096,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],` +
	`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"image","source":{"type":"url","url":"https://x/i.png"}},` +
	`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"},"title":"t"},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"}}]},` +
	`{"role":"user","content":"again"},{"role":"system","content":"note"},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"u1","name":"f","input":{}},{"type":"tool_use","id":"u2","name":"f","input":{"a":1}}]},` +
	`{"role":"user","content":[{"type":"tool_result","tool_use_id":"u2","content":[{"type":"text","text":"2"},{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"BBBB"}}]},{"type":"tool_result","tool_use_id":"u1","content":"1","is_error":true},{"type":"text","text":"more"}]},` +
	`{"role":"assistant","content":"The"}],` +
	`"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{}}},{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true},` +
	`"stop_sequences":["x"],"metadata":{"user_id":"u"},"temperature":1,"output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}}}`

func anthropicRefusals() refusals {
	thinking := `"temperature":1,"thinking":{"type":"enabled","budget_tokens":2048}`
	return refusals{"/messages", anthropicValid, []refused{
		{`"model":"m",`, ``, "model: Field required"},
		{`"max_tokens":4096,`, ``, "max_tokens: Field required"},
		{`"max_tokens":4096`, `"max_tokens":0`, "max_tokens: Input should be greater than or equal to 1"},
		{`"stop_sequences":["x"]`, `"stop":["x"]`, "stop: Extra inputs are not permitted"},
		{`"stop_sequences":["x"]`, `"stop_sequences":[" "]`, "non-whitespace"},
		{`"temperature":1`, `"temperature":1.5`, "temperature: Input should be less than or equal to 1"},
		{`"metadata":{"user_id":"u"}`, `"metadata":{"a":"u"}`, "metadata.a: Extra inputs"},
		{`"type":"text","text":"s"`, `"type":"text","text":""`, "system: text content blocks must be non-empty"},
		{`"effort":"low"`, `"effort":"much"`, "output_config.effort: Input should be 'low'"},
		{`"type":"json_schema","schema"`, `"type":"json_object","schema"`, "output_config.format.type: Input should be 'json_schema'"},
		{`{"role":"system","content":"note"}`, `{"role":"system","content":""}`, "non-empty content"},
		{`"messages":[{"role":"user"`, `"messages":[{"role":"system","content":"x"},{"role":"user"`, `first message must use the "user" role`},
		{`{"role":"assistant","content":"The"}`, `{"role":"assistant","content":"The"},{"role":"system","content":"x"}`, `"system" must follow one of the role "user"`},
		{`"temperature":1`, `"thinking":{"type":"on"}`, "thinking.type: Input should be 'adaptive'"},
		{`{"role":"user","content":"again"}`, `{"role":"tool","content":"x"}`, `Unexpected role "tool"`},
		{`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64"`, `"messages":[{"role":"assistant","content":"x"},{"role":"user","content":[{"type":"image","source":{"type":"base64"`, `first message must use the "user" role`},
		{`{"type":"text","text":"a"}`, `{"type":"text","text":""}`, "text content blocks must be non-empty"},
		{`{"type":"text","text":"a"}`, `{"type":"text","text":" "}`, "non-whitespace text"},
		{`{"type":"text","text":"a"}`, `{"type":"texts","text":"a"}`, "Input tag 'texts'"},
		{`{"type":"text","text":"a"}`, `{"type":"image","source":{"type":"url","url":"https://x"}}`, "not permitted in messages of role `assistant`"},
		{`{"type":"text","text":"a"}`, `{"type":"text","text":"a","x":1}`, "x: Extra inputs"},
		{`"media_type":"image/png"`, `"media_type":"image/bmp"`, "media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"},
		{`"media_type":"image/gif"`, `"media_type":"image/svg+xml"`, "media_type: Input should be 'image/jpeg'"},
		{`"media_type":"image/png","data":"AAAA"`, `"media_type":"image/png","data":"A*"`, "Invalid base64 data"},
		{`https://x/i.png`, `file:///x`, "Only HTTP and HTTPS URLs"},
		{`"media_type":"application/pdf"`, `"media_type":"application/zip"`, "Input should be 'application/pdf'"},
		{`"media_type":"text/plain"`, `"media_type":"text/html"`, "Input should be 'text/plain'"},
		{`"id":"u2"`, `"id":"u1"`, "ids must be unique"},
		{`"id":"u2"`, `"id":"u:2"`, "String should match pattern"},
		{`"input":{"a":1}`, `"input":"{}"`, "Input should be a valid dictionary"},
		{`{"type":"tool_result","tool_use_id":"u1","content":"1","is_error":true},`, ``, "`tool_use` ids were found without `tool_result` blocks immediately after: u1"},
		{`,{"type":"tool_use","id":"u2","name":"f","input":{"a":1}}`, ``, "unexpected `tool_use_id` found in `tool_result` blocks: u2"},
		{`[{"type":"tool_result","tool_use_id":"u2"`, `[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"u2"`, "immediately after"},
		{`{"type":"text","text":"more"}`, `{"type":"tool_result","tool_use_id":"u1"}`, "single result"},
		{`"content":"The"`, `"content":"The "`, "cannot end with trailing whitespace"},
		{`{"type":"auto","disable_parallel_tool_use":true}`, `{"type":"tool","name":"g"}`, "Tool 'g' not found"},
		{`{"type":"auto","disable_parallel_tool_use":true}`, `"auto"`, "tool_choice: Input should be a valid dictionary"},
		{`{"type":"auto","disable_parallel_tool_use":true}`, `{"type":"required"}`, "'auto', 'any', 'tool' or 'none'"},
		{`"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{}}},{"type":"web_search_20250305","name":"web_search"}],`, ``, "may only be specified while providing tools"},
		{`"type":"web_search_20250305","name":"web_search"`, `"name":"f","input_schema":{"type":"object"}`, "Tool names must be unique"},
		{`{"name":"f"`, `{"name":"f g"`, "String should match pattern"},
		{`{"name":"f"`, `{"name":"` + strings.Repeat("f", 129) + `"`, "at most 128 characters"},
		{`"input_schema":{"type":"object","properties"`, `"input_schema":{"properties"`, "input_schema.type: Field required"},
		{`"input_schema":{"type":"object","properties"`, `"input_schema":{"type":"array","properties"`, "Input should be 'object'"},
		{`"input_schema":{"type":"object",`, `"input_schema":{"type":"object","anyOf":[{}],`, "does not support oneOf, allOf, or anyOf"},
		{`"temperature":1`, strings.Replace(thinking, "2048", "1023", 1), "budget_tokens: Input should be greater than or equal to 1024"},
		{`"temperature":1`, strings.Replace(thinking, "2048", "4096", 1), "`max_tokens` must be greater than `thinking.budget_tokens`"},
		{`"temperature":1`, strings.Replace(thinking, ":1,", ":0.5,", 1), "`temperature` may only be set to 1"},
		{`"temperature":1`, thinking + `,"top_k":4`, "`top_k` must be unset"},
		{`"temperature":1`, thinking + `,"top_p":0.5`, "`top_p` must be greater"},
		{`"disable_parallel_tool_use":true},"stop_sequences":["x"]`, `"disable_parallel_tool_use":true},` + thinking[len(`"temperature":1,`):], "Expected `thinking` or `redacted_thinking`, but found `text`"},
		{`"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"stop_sequences":["x"]`, `"tool_choice":{"type":"any"},` + thinking[len(`"temperature":1,`):], "Thinking may not be enabled when tool_choice forces tool use"},
		{`{"type":"text","text":"a"}`, `{"type":"thinking","thinking":"x","signature":"eHh4"}`, "messages.3.content.0: Invalid `signature` in `thinking` block"},
		{`{"type":"text","text":"a"}`, `{"type":"redacted_thinking","data":"eHh4"}`, "Invalid `data` in `redacted_thinking` block"},
	}}
}

const responsesValid = `{"model":"m","instructions":"i","store":false,"include":["reasoning.encrypted_content"],"input":[` +
	`{"role":"developer","content":"d"},{"type":"message","role":"user","content":[{"type":"input_text","text":"t"},{"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"auto"},{"type":"input_file","file_data":"data:application/pdf;base64,AAAA","filename":"f"}]},` +
	`{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[]}]},` +
	`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call","id":"fc_2","call_id":"c2","name":"f","arguments":"{}"},` +
	`{"type":"function_call_output","call_id":"c2","output":"2"},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"1"},{"type":"input_image","image_url":"https://x/i.png"}]}],` +
	`"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"object","properties":{},"additionalProperties":false}},"required":["a"],"additionalProperties":false},"strict":true},{"type":"web_search"}],` +
	`"tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}},"verbosity":"low"},"reasoning":{"effort":"low","summary":"auto"},"max_output_tokens":16,"truncation":"auto","top_p":1}`

func responsesRefusals() refusals {
	return refusals{"/responses", responsesValid, []refused{
		{`"model":"m",`, ``, "Missing required parameter: 'model'"},
		{`"instructions":"i"`, `"instructions":["i"]`, "Invalid type for 'instructions'"},
		{`"top_p":1`, `"messages":[]`, "Unknown parameter: 'messages'"},
		{`"top_p":1`, `"top_p":2`, "decimal above maximum value"},
		{`"max_output_tokens":16`, `"max_output_tokens":15`, "Expected a value >= 16, but got 15"},
		{`"truncation":"auto"`, `"truncation":"off"`, "Invalid value: 'off'"},
		{`["reasoning.encrypted_content"]`, `["reasoning"]`, "Invalid value: 'reasoning'"},
		{`"effort":"low"`, `"effort":"much"`, "Invalid value: 'much'"},
		{`"summary":"auto"`, `"sum":"auto"`, "Unknown parameter: 'reasoning.sum'"},
		{`"name":"n","schema"`, `"schema"`, "Missing required parameter: 'text.format.name'"},
		{`{"type":"json_schema","name":"n","schema":{"type":"object"}}`, `{"type":"json_object"}`, "must contain the word 'json'"},
		{`{"type":"json_schema","name":"n","schema":{"type":"object"}}`, `{"type":"json_schema","json_schema":{}}`, "Unknown parameter: 'text.format.json_schema'"},
		{`"type":"web_search"`, `"type":"websearch"`, "Invalid value: 'websearch'"},
		{`"type":"web_search"`, `"type":"function","name":"f"`, "Tool names must be unique"},
		{`"type":"web_search"`, `"type":"function","function":{"name":"g"}`, "Missing required parameter: 'tools[1].name'"},
		{`"type":"function","name":"f","description"`, `"type":"function","name":"f.g","description"`, "does not match pattern"},
		{`"properties":{},"additionalProperties":false`, `"properties":{}`, "In context=('properties', 'a'), 'additionalProperties'"},
		{`"required":["a"],`, ``, "Missing 'a'"},
		{`"tool_choice":{"type":"function","name":"f"}`, `"tool_choice":{"type":"function","name":"g"}`, "Tool choice 'g' not found"},
		{`"tool_choice":{"type":"function","name":"f"}`, `"tool_choice":"any"`, "Invalid value: 'any'"},
		{`"tool_choice":{"type":"function","name":"f"}`, `"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}`, "Tool choice 'g' not found"},
		{`"role":"developer"`, `"role":"tool"`, "Invalid value: 'tool'"},
		{`{"role":"developer","content":"d"}`, `{"type":"note"}`, "Invalid value: 'note'"},
		{`"type":"input_text","text":"t"`, `"type":"text","text":"t"`, "Invalid value: 'text'. Supported values are: 'input_text'"},
		{`"type":"output_text"`, `"type":"input_text"`, "Supported values are: 'output_text', 'refusal'"},
		{`data:image/png;`, `data:image/tiff;`, "unsupported image"},
		{`data:application/pdf;base64,AAAA`, `AAAA`, "base64-encoded data URL"},
		{`"id":"msg_1"`, `"id":"chatcmpl_1"`, "Expected an ID that begins with 'msg'"},
		{`"id":"fc_2"`, `"id":"call_2"`, "Expected an ID that begins with 'fc'"},
		{`"call_id":"c1","name":"f","arguments":"{}"`, `"call_id":"c1","name":"f","arguments":{}`, "'input[3].arguments'"},
		{`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},`, ``, "No tool call found for function call output with call_id c1"},
		{`{"type":"function_call_output","call_id":"c2","output":"2"},`, ``, "No tool output found for function call c2"},
		{`"output":"2"`, `"output":{"a":2}`, "'input[5].output'"},
		{`{"role":"developer","content":"d"}`, `{"type":"item_reference","id":"msg_9"}`, "Items are not persisted when `store` is set to false"},
		{`{"role":"developer","content":"d"}`, `{"type":"reasoning","id":"rs_9","summary":[]}`, "Item with id 'rs_9' not found"},
		{`{"role":"developer","content":"d"}`, `{"type":"reasoning","summary":[],"encrypted_content":"eHh4"},{"role":"assistant","content":"a"}`, "could not be verified"},
		{`"store":false`, `"previous_response_id":"resp_9"`, "Previous response with id 'resp_9' not found"},
	}}
}

func TestAStrictUpstreamRefusesWhatTheProviderRefuses(t *testing.T) {
	for _, all := range []refusals{chatRefusals(), anthropicRefusals(), responsesRefusals(), bedrockRefusals()} {
		t.Run(all.path, func(t *testing.T) {
			u := upstreamtest.New(turnpiketest.NewScript(t, "text a\nagain"), upstreamtest.Options{Strict: true})
			defer u.Close()
			if status, _, body := send(t, u, all.path, all.valid); status != http.StatusOK {
				t.Fatalf("the valid request: %d %s", status, body)
			}
			for _, row := range all.rows {
				if n := strings.Count(all.valid, row.old); n != 1 {
					t.Errorf("%s stands %d times in the valid request", row.old, n)
					continue
				}
				checkRefused(t, u, all.path, strings.Replace(all.valid, row.old, row.new, 1), row.why)
			}
			for body, why := range map[string]string{
				`{`:  "not valid JSON",
				`[]`: "",
				`{"model":"m","max_tokens":20,"messages":[]}`: "",
				`{"model":"m","input":[]}`:                    "",
				`{"model":"m","messages":"hi","input":7}`:     "",
			} {
				checkRefused(t, u, all.path, body, why)
			}
			requests := u.Requests()
			if requests[0].Refused != "" || requests[1].Refused == "" {
				t.Errorf("%q, %q", requests[0].Refused, requests[1].Refused)
			}
		})
	}
}

// checkRefused checks that a request is refused in the form of its dialect.
func checkRefused(t *testing.T, u *upstreamtest.Upstream, path, body, why string) {
	t.Helper()
	status, _, answer := send(t, u, path, body)
	o := parse(t, answer)
	if path == converse {
		message, _ := o["message"].(string)
		if status != http.StatusBadRequest || !strings.Contains(message, why) || message == "" || len(o) != 1 {
			t.Errorf("%s\nfor %s\nwant %s\nhave %d %s", path, body, why, status, answer)
		}
		return
	}
	details, _ := o["error"].(object)
	message, _ := details["message"].(string)
	if status != http.StatusBadRequest || !strings.Contains(message, why) || message == "" || details["type"] != "invalid_request_error" {
		t.Errorf("%s\nfor %s\nwant %s\nhave %d %s", path, body, why, status, answer)
	}
	_, hasCode := details["code"]
	if messages := path == "/messages"; messages != (o["type"] == "error") || messages == hasCode {
		t.Errorf("not the form of %s: %s", path, answer)
	}
}

func TestMessagesWithoutAVersionAreRefused(t *testing.T) {
	u := upstreamtest.New(turnpiketest.NewScript(t, "text a"), upstreamtest.Options{Strict: true})
	defer u.Close()
	resp, err := http.Post(u.URL+"/messages", "application/json", strings.NewReader(fmt.Sprintf(messagesBody, "")))
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest || u.Requests()[0].Refused != "anthropic-version: header is required" {
		t.Errorf("%d %+v", resp.StatusCode, u.Requests())
	}
}

// An Upstream knows the thinking that it sent. A second request repeats it; the
// rows change it.
func TestThinkingThatWasChangedIsRefused(t *testing.T) { // P08
	u := upstreamtest.New(turnpiketest.NewScript(t, "reasoning Hm.\nreasoning\ntext Look.\ncall c1 f {}\n\ntext Done.\nagain"), upstreamtest.Options{Strict: true})
	defer u.Close()
	const first = `{"model":"m","max_tokens":4000,"thinking":%s,"tools":[{"name":"f","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"go"}%s]}`
	const enabled, adaptive = `{"type":"enabled","budget_tokens":2000}`, `{"type":"adaptive"}`
	_, _, body := send(t, u, "/messages", fmt.Sprintf(first, enabled, ""))
	var blocks []string
	for _, b := range parse(t, body)["content"].([]any) {
		blocks = append(blocks, string(encode(t, b)))
	}
	if len(blocks) != 4 {
		t.Fatalf("%s", blocks)
	}
	signature := parse(t, []byte(blocks[0]))["signature"].(string)
	data := parse(t, []byte(blocks[1]))["data"].(string)
	other := func(s string) string { // another last letter
		return s[:10] + string("AB"[strings.Count(s[10:11], "A")]) + s[11:]
	}
	thought, redacted, text, call := blocks[0], blocks[1], blocks[2], blocks[3]
	for _, row := range []struct {
		name, thinking string
		content        []string
		why            string // "" = accepted
	}{
		{"unchanged", enabled, blocks, ""},
		{"unchanged, adaptive", adaptive, blocks, ""},
		{"the text is left out", enabled, []string{thought, redacted, call}, ""},
		{"the thinking is left out where thinking is off", `{"type":"disabled"}`, []string{text, call}, ""},
		{"all is left out with adaptive thinking", adaptive, []string{text, call}, ""},
		{"another text", enabled, []string{strings.Replace(thought, "Hm.", "Hm!", 1), redacted, text, call}, "Invalid `signature` in `thinking` block"},
		{"another signature", enabled, []string{strings.Replace(thought, signature, other(signature), 1), redacted, text, call}, "Invalid `signature` in `thinking` block"},
		{"other data", enabled, []string{thought, strings.Replace(redacted, data, other(data), 1), text, call}, "Invalid `data` in `redacted_thinking` block"},
		{"no signature", enabled, []string{`{"type":"thinking","thinking":"Hm."}`, redacted, text, call}, "signature: Field required"},
		{"one is left out", enabled, []string{thought, text, call}, "cannot be modified"},
		{"one is left out, adaptive", adaptive, []string{thought, text, call}, "cannot be modified"},
		{"another order", enabled, []string{redacted, thought, text, call}, "cannot be modified"},
		{"another place", enabled, []string{thought, text, call, redacted}, "cannot be modified"},
		{"all are left out", enabled, []string{text, call}, "Expected `thinking` or `redacted_thinking`, but found `text`"},
	} {
		t.Run(row.name, func(t *testing.T) {
			again := `,{"role":"assistant","content":[` + strings.Join(row.content, ",") + `]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x"}]}`
			body := fmt.Sprintf(first, row.thinking, again)
			if row.why != "" {
				checkRefused(t, u, "/messages", body, row.why)
			} else if status, _, answer := send(t, u, "/messages", body); status != http.StatusOK {
				t.Errorf("%d %s", status, answer)
			}
		})
	}
	// Outside of the loop that goes on, thinking may be left out.
	past := `,{"role":"assistant","content":[` + call + `]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1"}]},{"role":"assistant","content":"Done."},{"role":"user","content":"and?"}`
	if status, _, answer := send(t, u, "/messages", fmt.Sprintf(first, enabled, past)); status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
}

func TestReasoningThatWasChangedIsRefused(t *testing.T) { // P08
	u := upstreamtest.New(turnpiketest.NewScript(t, "reasoning Hm.\ncall c1 f {}\n\ntext Done.\nagain"), upstreamtest.Options{Strict: true})
	defer u.Close()
	const first = `{"model":"m","store":false,"include":["reasoning.encrypted_content"],"input":[{"role":"user","content":"go"}%s]}`
	_, _, body := send(t, u, "/responses", fmt.Sprintf(first, ""))
	output := parse(t, body)["output"].([]any)
	reasoning, call := string(encode(t, output[0])), string(encode(t, output[1]))
	item := output[0].(object)
	sealed, id := item["encrypted_content"].(string), item["id"].(string)
	withoutID := strings.Replace(reasoning, `"id":"`+id+`",`, "", 1)
	for _, row := range []struct {
		name  string
		items []string
		why   string
	}{
		{"unchanged", []string{reasoning, call}, ""},
		{"without ids", []string{withoutID, `{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`}, ""},
		{"no reasoning and no id", []string{`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`}, ""},
		{"another id", []string{strings.Replace(reasoning, id, "rs_1", 1), call}, "could not be verified"},
		{"another summary", []string{strings.Replace(reasoning, "Hm.", "Hm!", 1), call}, "could not be verified"},
		{"other content", []string{strings.Replace(reasoning, sealed, "x"+sealed, 1), call}, "could not be verified"},
		{"no content", []string{strings.Replace(reasoning, `"encrypted_content":"`+sealed+`",`, "", 1), call}, "Items are not persisted"},
		{"no summary", []string{`{"type":"reasoning","encrypted_content":"` + sealed + `"}`, call}, "input[1].summary"},
		{"without what followed", []string{`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`, reasoning}, "without its required following item"},
		{"another item follows", []string{reasoning, `{"role":"assistant","content":"a"}`, `{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`}, "without its required following item"},
		{"without reasoning", []string{call}, "without its required 'reasoning' item"},
	} {
		t.Run(row.name, func(t *testing.T) {
			body := fmt.Sprintf(first, ","+strings.Join(row.items, ",")+`,{"type":"function_call_output","call_id":"c1","output":"x"}`)
			if row.why != "" {
				checkRefused(t, u, "/responses", body, row.why)
			} else if status, _, answer := send(t, u, "/responses", body); status != http.StatusOK {
				t.Errorf("%d %s", status, answer)
			}
		})
	}
}

// A response that may be stored is found by its id, and so are its items.
func TestAResponseIsContinued(t *testing.T) {
	u := upstreamtest.New(turnpiketest.NewScript(t, "reasoning Hm.\ncall c1 f {}\n\ntext Done.\nagain"), upstreamtest.Options{Strict: true})
	defer u.Close()
	_, _, body := send(t, u, "/responses", `{"model":"m","input":"go"}`)
	r := parse(t, body)
	if _, has := r["output"].([]any)[0].(object)["encrypted_content"]; has {
		t.Error("encrypted content that was not asked for")
	}
	id := r["id"].(string)
	call, reasoning := r["output"].([]any)[1].(object)["id"].(string), r["output"].([]any)[0].(object)["id"].(string)
	for _, valid := range []string{
		`{"model":"m","previous_response_id":"` + id + `","input":[{"type":"function_call_output","call_id":"c1","output":"x"}]}`,
		`{"model":"m","input":[{"type":"item_reference","id":"` + reasoning + `"},{"type":"item_reference","id":"` + call + `"},{"type":"function_call_output","call_id":"c1","output":"x"}]}`,
		`{"model":"m","input":[{"type":"reasoning","id":"` + reasoning + `","summary":[]},{"type":"item_reference","id":"` + call + `"},{"type":"function_call_output","call_id":"c1","output":"x"}]}`,
	} {
		if status, _, answer := send(t, u, "/responses", valid); status != http.StatusOK {
			t.Errorf("%d %s", status, answer)
		}
	}
	checkRefused(t, u, "/responses", `{"model":"m","previous_response_id":"`+id+`","input":[{"role":"user","content":"and?"}]}`, "No tool output found for function call c1")
	checkRefused(t, u, "/responses", `{"model":"m","input":[{"type":"item_reference","id":"msg_9"}]}`, "Item with id 'msg_9' not found.")
}

// What the real providers accepted in recorded exchanges, a strict Upstream
// accepts, but for reasoning that it has not sent itself. What they refused as
// invalid, it refuses.
func TestRecordedRequestsAreJudgedAsTheyWere(t *testing.T) {
	for dialect, path := range map[string]string{"openai-chat": "/chat/completions", "anthropic": "/messages", "openai-responses": "/responses", "bedrock-converse": "/model/m/converse"} {
		t.Run(dialect, func(t *testing.T) {
			u := upstreamtest.New(turnpiketest.NewScript(t, "text a\nagain"), upstreamtest.Options{Strict: true})
			defer u.Close()
			accepted := 0
			for _, r := range providertest.Recordings(t, dialect) {
				if strings.Contains(r.Name, "vertex") {
					continue // its dialect differs: the version is in the body
				}
				status, _, answer := send(t, u, path, string(r.Request.Body))
				requests := u.Requests()
				message := requests[len(requests)-1].Refused
				own := strings.Contains(message, "Invalid `signature`") || strings.Contains(message, "could not be verified")
				switch {
				case r.Response.Status == http.StatusOK && status == http.StatusOK:
					accepted++
				case r.Response.Status == http.StatusOK && !own:
					t.Errorf("%s: %s", r.Name, answer)
				case strings.Contains(r.Name, "bedrock-streaming-error"): // for the model, which is in the path
				case r.Response.Status == http.StatusBadRequest && status != http.StatusBadRequest && !strings.Contains(r.Name, "context-length") && !strings.Contains(r.Name, "filter"):
					t.Errorf("%s was refused with %s", r.Name, r.Body)
				case strings.Contains(r.Name, "responses-model-http-error") && message != r.Expected.Error.Message:
					t.Errorf("%s, recorded %s", answer, r.Body)
				}
			}
			if accepted < 8 {
				t.Errorf("only %d recorded requests were accepted", accepted)
			}
		})
	}
}
