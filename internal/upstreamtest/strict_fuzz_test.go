package upstreamtest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// Whatever a request says, a strict Upstream judges it, and the refusal is JSON
// that says why.
func FuzzStrict(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":[]}]}`,
		`{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"u","name":"f","input":{}},{"type":"thinking"},3]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"u"}]}],"thinking":{"type":"enabled"}}`,
		`{"model":"m","input":[{"type":"reasoning","summary":[{}],"encrypted_content":"x"},{"type":"function_call","call_id":7},{"role":[]},null],"tools":[{"type":"function","strict":true,"parameters":{"properties":{"a":{"items":{"anyOf":[1]}}}}}],"tool_choice":{}}`,
		`{"tools":[7,null],"tool_choice":[],"response_format":{"type":"json_object"},"stop":[],"text":{"format":[]},"thinking":[],"include":7,"output_config":{"format":1}}`,
		`{"contents":[{"role":"model","parts":[{"functionCall":{"name":7}},{"thoughtSignature":"x","text":""},null]},{"parts":[{"functionResponse":{"parts":[1]}}]}],"tools":[{"functionDeclarations":[{"parametersJsonSchema":{"items":[1],"$ref":"x","a":1}}]}],"generationConfig":[]}`,
		`{"messages":[{"role":"user","content":[{"document":{"name":"a","format":"txt","source":{"bytes":"AA=="}}},{"text":7}]},{"role":"assistant","content":[{"reasoningContent":{"redactedContent":"AA=="}},{"toolUse":{"toolUseId":"c","name":"f","input":[]}}]},{"role":"user","content":[{"toolResult":{"toolUseId":"c","content":[{"json":1}],"status":"error"}}]}],"toolConfig":{"tools":[{"toolSpec":7}],"toolChoice":{"any":{}}},"additionalModelRequestFields":{"tool_choice":{}},"outputConfig":{"textFormat":{"structure":1}}}`,
		`[]`, `null`, `7`,
	} {
		f.Add(seed)
	}
	dialects := []dialect{chatDialect{}, newAnthropic(), newResponses(), newGemini(), newBedrock()}
	script, err := turnpiketest.ParseScript("reasoning Hm.\nreasoning\ntext a\ncall c f {}\nagain")
	if err != nil {
		f.Fatal(err)
	}
	for _, d := range dialects { // something to remember
		number, t, _ := script.Next(nil)
		say := d.answer(number, asked{body: []byte(`{"include":["reasoning.encrypted_content"]}`)}, t)
		for _, s := range t.Steps {
			say.take(s)
		}
		say.end()
	}
	f.Fuzz(func(t *testing.T, body string) {
		if !json.Valid([]byte(body)) {
			return
		}
		for _, d := range dialects {
			why := inspect(d, http.Header{"Anthropic-Version": {"2023-06-01"}, "Content-Type": {"application/json"}}, []byte(body))
			if why == nil {
				_, modelInPath := d.(inPath)
				if !strings.Contains(body, `"model"`) && !strings.Contains(body, `\u`) && d.path() != "/responses" && !modelInPath {
					t.Errorf("%s accepts %s", d.path(), body)
				}
				continue
			}
			if refused := d.refuse(*why); why.message == "" || !json.Valid(refused) {
				t.Errorf("%s refuses %s with %s", d.path(), body, refused)
			}
		}
	})
}
