package spectest_test

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
)

const (
	usage    = `{"input_tokens":1,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":2}`
	response = `{"id":"resp_1","object":"response","created_at":1,"completed_at":null,"status":"in_progress","background":false,"error":null,"incomplete_details":null,"model":"m",
		"output":[],"usage":` + usage + `,"instructions":null,"max_output_tokens":null,"max_tool_calls":null,"metadata":{},"parallel_tool_calls":true,"previous_response_id":null,
		"prompt_cache_key":null,"reasoning":{"effort":null,"summary":null},"safety_identifier":null,"service_tier":"default","store":true,"temperature":1,
		"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":1,"presence_penalty":0,"frequency_penalty":0,"truncation":"disabled"}`
	mcpCall = `{"id":"mcp_1","type":"mcp_call","server_label":"s","name":"f","arguments":"{}"}`
)

// Valid answers pass, and each violation is found.
// cited is a message whose text has a citation.
func cited(annotation string) string {
	return `{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","logprobs":[],"annotations":[` + annotation + `]}]}`
}

func TestViolations(t *testing.T) {
	specs := spectest.Read(t)
	with := func(old, other string) string {
		if !strings.Contains(response, old) {
			t.Fatalf("the response has no %s", old)
		}
		return strings.Replace(response, old, other, 1)
	}
	for _, tt := range []struct {
		name, answer string
		wrong        int
	}{
		{"a response", response, 0},
		{"an MCP item, which only OpenAI knows", with(`"output":[]`, `"output":[`+mcpCall+`]`), 0},
		{"a citation that only OpenAI knows", with(`"output":[]`, `"output":[`+cited(`{"type":"file_path","file_id":"f","index":1}`)+`]`), 0},
		{"a citation without a title", with(`"output":[]`, `"output":[`+cited(`{"type":"url_citation","url":"http://a","start_index":0,"end_index":1}`)+`]`), 2},
		{"an MCP item without a name", with(`"output":[]`, `"output":[`+strings.Replace(mcpCall, `"name":"f",`, "", 1)+`]`), 1},
		{"a reason of the gateway", with(`"incomplete_details":null`, `"incomplete_details":{"reason":"max_rounds"}`), 0},
		{"an error code of the gateway", with(`"error":null`, `"error":{"code":"outbound_ssrf_blocked","message":"no"}`), 0},
		{"an error code of nobody", with(`"error":null`, `"error":{"code":"tired","message":"no"}`), 1},
		{"a reason of nobody", with(`"incomplete_details":null`, `"incomplete_details":{"reason":"tired"}`), 1}, // Open Responses has no list of them
		{"no usage yet: OpenAI's document has no null", with(usage, "null"), 1},
		{"no usage at all: Open Responses requires it", with(`"usage":`+usage+`,`, ""), 1},
		{"a schema", with(`{"type":"text"}`, `{"type":"json_schema","name":"n","description":"","schema":{"type":"object"},"strict":true}`), 0},
		{"a schema without a description, which Open Responses requires", with(`{"type":"text"}`, `{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}`), 1},
		{"a description that is null", with(`{"type":"text"}`, `{"type":"json_schema","name":"n","description":null,"schema":{"type":"object"},"strict":true}`), 1},
		{"no presence_penalty, which only Open Responses has", with(`"presence_penalty":0,`, ""), 1},
		{"an event", "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":" + strings.ReplaceAll(response, "\n", "") + "}\n\ndata: [DONE]\n\n", 0},
		{"an event without a number", "data: {\"type\":\"response.created\",\"response\":" + strings.ReplaceAll(response, "\n", "") + "}\n\n", 2},
		{"an event of nobody", "data: {\"type\":\"response.pondering\",\"sequence_number\":1}\n\n", 1},
		{"the end of a stream", "data: [DONE]\n\n", 0},
		{"a stream that is cut", "data: {\"type\":\n\n", 2},
		{"an error", `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}`, 0},
		{"an error without a code", `{"error":{"message":"no","type":"invalid_request_error","param":null}}`, 2},
		{"a conversation", `{"id":"conv_1","object":"conversation","created_at":1,"metadata":{}}`, 0},
		{"a conversation without metadata", `{"id":"conv_1","object":"conversation","created_at":1}`, 1},
		{"an item without a role", `{"id":"msg_1","type":"message","status":"completed","content":[]}`, 2},
		{"an empty list", `{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}`, 0},
		{"an empty list with more", `{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":true}`, 1},
		{"a list without ids", `{"object":"list","data":[{"id":"msg_1","type":"message","status":"completed","role":"user","content":[{"type":"input_text","text":"a"}]}],"has_more":false}`, 1},
		{"HTML", "<html>", 1},
	} {
		if wrong := specs.Violations(tt.name, tt.answer); len(wrong) != tt.wrong {
			t.Errorf("%s: %d violations, want %d: %v", tt.name, len(wrong), tt.wrong, wrong)
		}
	}
	var none *spectest.Documents
	if wrong := none.Violations("", "<html>"); wrong != nil {
		t.Errorf("without documents: %v", wrong)
	}
}
