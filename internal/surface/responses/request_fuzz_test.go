package responses

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// FuzzRequest: a body is refused with the member that is wrong, or its response repeats it as
// valid JSON: the same when it is answered and when it is read from the store. Neither has the
// credentials of MCP servers. // D22 K06
func FuzzRequest(f *testing.F) {
	for _, members := range []string{
		`"input":"hi"`,
		`"input":[{"role":"user","content":"hi"}],"stream":true,"instructions":"é <&>","metadata":{"a":"b"},"temperature":0.5,"max_output_tokens":9,"max_tool_calls":3,"user":"u"`,
		`"input":"hi","tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"x"}},{"type":"web_search"}],"tool_choice":"required"`,
		`"input":"hi","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"},{"type":"custom","name":"c"}]}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","namespace":"n","name":"f"}]}`,
		`"input":"hi","tools":[{"type":"mcp","server_label":"s","server_url":"https://u.example/CANARY","authorization":"CANARY","headers":{"a":"CANARY"},"require_approval":"never"}],"tool_choice":{"type":"mcp","server_label":"s","name":"x"}`,
		`"input":"hi","tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp","server_label":"s","authorization":"CANARY"}]}]`,
		`"input":[{"type":"additional_tools","tools":[{"type":"mcp","server_label":"s","authorization":"CANARY"}]},{"role":"user","content":"hi"}],"tools":[]`,
		`"input":"hi","text":{"format":{"type":"json_schema","name":"n","schema":{"maximum":9007199254740993},"strict":true},"verbosity":"low"},"reasoning":{"effort":"low","summary":"auto"}`,
		`"input":"hi","previous_response_id":"resp_1","store":true,"include":["reasoning.encrypted_content"],"service_tier":"flex","top_logprobs":2,"truncation":"auto","prompt_cache_key":"k"`,
	} {
		f.Add(`{"model":"m",`+members+`}`, false)
		f.Add(`{"model":"m",`+members+`}`, true)
	}
	f.Fuzz(func(t *testing.T, body string, native bool) {
		if surface.CheckJSON([]byte(body)) != nil {
			return
		}
		if members, err := surface.Scan(nil, []byte(body)); err != nil || len(members) == 0 {
			return
		}
		var m model.Model = translating{}
		if native {
			m = relaying{}
		}
		req, reply, err := decodedFor(m, body)
		hides := hasOnlySecrets(body)
		if err != nil {
			if e := fault.From(err); e.Code != fault.Invalid && e.Code != fault.NotFound || e.Param == "" || e.Reason == "" || hides && strings.Contains(e.Error(), "CANARY") {
				t.Errorf("%s: refused with %+v", body, e)
			}
			return
		}
		answered, err := surface.Marshal(endedObject(reply))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if hides && strings.Contains(string(answered), "CANARY") {
			t.Errorf("%s: the response has a credential: %s", body, answered)
		}
		if req.Store == nil {
			return
		}
		if kept, err := json.Marshal(req.Store); err != nil || hides && strings.Contains(string(kept), "CANARY") {
			t.Errorf("%s: stored is a credential: %s %v", body, kept, err)
		}
		s := stored{Response: newEcho()}
		if err := json.Unmarshal(req.Store.RequestJSON, &s); err != nil {
			t.Fatalf("%s: stored is %s: %v", body, req.Store.RequestJSON, err)
		}
		s.Response.encrypted, s.Response.plain, s.input = s.Encrypted, s.Plain, req.Store.Input
		again, err := surface.Marshal(newEncoder(&surface.Answer{Started: event.Started{RunID: "run_1"}}, nil, s.Response, s.clientTools()).ended())
		if err != nil || !sameJSON(t, answered, again) {
			t.Errorf("%s: answered with\n%s\nand stored is\n%s\n%v", body, answered, again, err)
		}
		wantListed(t, req.Store.Input)
	})
}

// FuzzInput: an item of the input is refused at its place, or becomes items of the conversation
// that a provider can be sent, and can be listed. // D20 D21
func FuzzInput(f *testing.F) {
	for _, text := range []string{
		`{"role":"user","content":"hi"}`, `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"b"}]}`,
		`{"role":"user","content":[{"type":"input_image","image_url":"https://x/y.png","detail":"low"},{"type":"input_file","file_data":"data:,x","filename":"a"}]}`,
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{}","namespace":"n"}`, `{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}`,
		`{"type":"custom_tool_call","call_id":"c","name":"f","input":"x\"y"}`, `{"type":"custom_tool_call_output","call_id":"c","output":"x"}`,
		`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"x"}],"encrypted_content":"e"}`, `{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"a b","arguments":"","error":"no"}`,
		`{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[]}`, `{"type":"item_reference","id":"msg_1"}`, `{"type":"web_search_call","id":"ws_1","status":"completed"}`, `{"Type":"message","ROLE":"user","content":null}`,
		`{"type":"item_reference","id":"msg_1","type":"message","role":"user","content":"x"}`, `{"type":"image_generation_call","id":"ig_1"}`, `{"id":"msg_1","role":"user"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		body := `{"model":"m","input":[{"role":"user","content":"a"},` + text + `]}`
		if !json.Valid([]byte(text)) || surface.CheckJSON([]byte(body)) != nil {
			return
		}
		for _, m := range []model.Model{translating{}, relaying{}} {
			req, reply, err := decodedFor(m, body)
			if err != nil {
				if e := fault.From(err); e.Code != fault.Invalid && e.Reason != "item_not_found" || !strings.HasPrefix(e.Param, "input[1]") {
					t.Errorf("%s: refused with %+v", text, e)
				}
				continue
			}
			wantListed(t, entriesOf([]json.RawMessage{json.RawMessage(text)}))
			if len(req.Items)+len(req.Listed)+len(reply.Dropped) < 2 && kindOf(json.RawMessage(text)) != "additional_tools" {
				t.Errorf("%s: it is lost", text)
			}
			for _, it := range req.Items {
				if (it.Kind == item.ToolCall) != (it.CallID != "" && it.Name != "") || it.Kind == item.ToolResult && it.CallID == "" || it.Kind == item.Message && it.Role == "" ||
					it.Native.JSON != nil && (!json.Valid(it.Native.JSON) || it.Native.Dialect != model.DialectResponses) {
					t.Errorf("%s: %+v", text, it)
				}
			}
		}
	})
}

// endedObject returns the response of a run that said nothing.
func endedObject(reply surface.Reply) any {
	return reply.Object(&surface.Answer{Started: event.Started{RunID: "run_1"}}).(*encoder).ended()
}

// wantListed fails the test unless each item of the input is listed with a type and an id.
func wantListed(t *testing.T, input []journal.Entry) {
	t.Helper()
	items, err := (&stored{input: input}).inputItems("resp_1")
	if err != nil {
		t.Fatalf("%s: %v", input, err)
	}
	for _, it := range items {
		kind, isText := it["type"].(string)
		id, hasID := it["id"].(string)
		if out, err := json.Marshal(it); err != nil || !isText || kind == "" || !hasID || id == "" {
			t.Errorf("%s is listed as %s: %v", input, out, err)
		}
	}
}

// sameJSON reports whether two JSON texts have the same value, with the same digits.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var values [2]any
	for i, text := range [][]byte{a, b} {
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		if err := d.Decode(&values[i]); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// hasOnlySecrets reports whether the canary is only in what is secret of tools of type mcp.
func hasOnlySecrets(body string) bool {
	var members map[string]json.RawMessage
	var tools []json.RawMessage
	if json.Unmarshal([]byte(body), &members) != nil || json.Unmarshal(members["tools"], &tools) != nil {
		return false
	}
	for name, value := range members {
		if name != "tools" && strings.Contains(name+spelled(value), "CANARY") {
			return false
		}
	}
	return onlyInTools(tools)
}

func onlyInTools(tools []json.RawMessage) bool {
	for _, raw := range tools {
		var members map[string]json.RawMessage
		var kind struct{ Type string }
		_ = json.Unmarshal(raw, &members) // nil if it is no object
		_ = json.Unmarshal(raw, &kind)
		var inner []json.RawMessage
		switch {
		case kind.Type == "mcp" && hasOnlySecretCanaries(members):
		case kind.Type == "namespace" && json.Unmarshal(members["tools"], &inner) == nil && onlyInTools(inner):
			delete(members, "tools")
			rest, _ := json.Marshal(members) // they were decoded from JSON
			if strings.Contains(spelled(rest), "CANARY") {
				return false
			}
		case strings.Contains(spelled(raw), "CANARY"):
			return false
		}
	}
	return true
}

// spelled is JSON without escapes of letters.
func spelled(raw json.RawMessage) string {
	var v any
	_ = json.Unmarshal(raw, &v) // it is valid
	out, _ := json.Marshal(v)
	return string(raw) + string(out)
}
