package upstreamtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/gemini"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

const (
	generatePath = "/models/gemini-3-flash-preview:generateContent"
	streamPath   = "/models/gemini-3-flash-preview:streamGenerateContent?alt=sse"
	geminiBody   = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
)

// partsOf returns the parts of a chunk, and why it ends.
func partsOf(t *testing.T, chunk object) (parts []any, reason any) {
	t.Helper()
	candidate := chunk["candidates"].([]any)[0].(object)
	parts, _ = candidate["content"].(object)["parts"].([]any)
	return parts, candidate["finishReason"]
}

func TestAGeminiAnswerIsTheSameAsOneObjectAndAsAStream(t *testing.T) { // M03
	for _, piece := range []int{0, 1, 7} {
		u := upstreamtest.New(turnpiketest.NewScript(t, inEveryKind), upstreamtest.Options{Strict: true, Piece: piece})
		t.Cleanup(u.Close)
		_, _, body := send(t, u, generatePath, geminiBody)
		whole, reason := partsOf(t, parse(t, body))
		_, _, stream := send(t, u, streamPath, geminiBody)
		var streamed []any
		var last any
		for _, e := range events(t, stream) {
			parts, why := partsOf(t, e)
			streamed, last = append(streamed, parts...), why
		}
		if reason != "STOP" || last != "STOP" || len(whole) != 5 {
			t.Fatalf("%v %v %v", reason, last, whole)
		}
		var joined []any // adjacent texts of the stream
		for _, p := range streamed {
			o := p.(object)
			if o["thoughtSignature"] != nil { // which depends on the number of the answer
				o["thoughtSignature"] = "s"
			} else if n := len(joined) - 1; n >= 0 && o["text"] != nil {
				if before := joined[n].(object); before["text"] != nil && before["thoughtSignature"] == nil && before["thought"] == o["thought"] {
					before["text"] = before["text"].(string) + o["text"].(string)
					continue
				}
			}
			joined = append(joined, o)
		}
		for _, p := range whole {
			if o := p.(object); o["thoughtSignature"] != nil {
				o["thoughtSignature"] = "s"
			}
		}
		if diff := cmp.Diff(whole, joined); diff != "" {
			t.Error(diff)
		}
	}
}

const geminiValid = `{"systemInstruction":{"parts":[{"text":"s"}]},` +
	`"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object","properties":{"a":{"type":"string","enum":["x"]}}}},{"name":"g","parameters":{"type":"OBJECT","properties":{"a":{"type":"STRING"}}}}]},{"googleSearch":{}}],` +
	`"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["g"]}},` +
	`"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"fileData":{"fileUri":"https://x/i.png"}}]},` +
	`{"role":"model","parts":[{"text":"a"},{"functionCall":{"id":"u1","name":"f","args":{}},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"name":"g","args":{"a":1}}}]},` +
	`{"role":"user","parts":[{"functionResponse":{"id":"u1","name":"f","response":{"output":"1"},"parts":[{"inlineData":{"mimeType":"image/png","data":"BBBB"}}]}},{"functionResponse":{"name":"g","response":{"error":"2"}}}]}],` +
	`"generationConfig":{"temperature":1,"topP":0.5,"topK":3,"maxOutputTokens":9,"seed":7,"stopSequences":["x"],"presencePenalty":1,"responseMimeType":"application/json","responseJsonSchema":{"type":"object"},"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"low"}}}`

func TestAStrictGeminiRefusesWhatTheProviderRefuses(t *testing.T) { // M03 P08
	u := upstreamtest.New(turnpiketest.NewScript(t, "text a\nagain"), upstreamtest.Options{Strict: true})
	defer u.Close()
	refused := func(path, body, why string) {
		t.Helper()
		status, _, answer := send(t, u, path, body)
		details, _ := parse(t, answer)["error"].(object)
		if message, _ := details["message"].(string); status != http.StatusBadRequest || message == "" || !strings.Contains(message, why) || details["status"] != "INVALID_ARGUMENT" || details["code"] != 400.0 {
			t.Errorf("%s\nwant %s\nhave %d %s", body, why, status, answer)
		}
	}
	if status, _, body := send(t, u, generatePath, geminiValid); status != http.StatusOK {
		t.Fatalf("the valid request: %d %s", status, body)
	}
	response := `{"functionResponse":{"name":"g","response":{"error":"2"}}}`
	for _, row := range []struct{ old, new, why string }{
		{`"systemInstruction":{"parts":[{"text":"s"}]},`, `"system":"s",`, `Unknown name "system"`},
		{`"parts":[{"text":"s"}]`, `"parts":[{"text":""}]`, "must not be empty"},
		{`{"name":"f","description"`, `{"name":"1f","description"`, "Invalid function name"},
		{`{"name":"g","parameters"`, `{"name":"f","parameters"`, "Duplicate function declaration found: f"},
		{`{"name":"g","parameters":{`, `{"name":"g","parametersJsonSchema":{"type":"object"},"parameters":{`, "mutually exclusive"},
		{`"parametersJsonSchema":{"type":"object",`, `"parametersJsonSchema":{"type":"object","$schema":"x",`, `Unknown name "$schema"`},
		{`"parametersJsonSchema":{"type":"object",`, `"parametersJsonSchema":{`, "must describe an object"},
		{`"a":{"type":"string","enum":["x"]}`, `"a":{"pattern":"x"}`, `Unknown name "pattern"`},
		{`"a":{"type":"string","enum":["x"]}`, `"a":{"enum":[null]}`, "enum takes strings and numbers"},
		{`"a":{"type":"string","enum":["x"]}`, `"a":{"$ref":"#/$defs/a","type":"string"}`, "$ref must not have other members"},
		{`"parameters":{"type":"OBJECT",`, `"parameters":{"type":"OBJECT","additionalProperties":false,`, `Unknown name "additionalProperties"`},
		{`"mode":"ANY"`, `"mode":"SOME"`, "function_calling_config.mode"},
		{`"mode":"ANY"`, `"mode":"AUTO"`, "Allowed function names can only be set"},
		{`"allowedFunctionNames":["g"]`, `"allowedFunctionNames":["h"]`, "h is not in function_declarations"},
		{`{"role":"user","parts":[{"inlineData"`, `{"role":"system","parts":[{"inlineData"`, "Please use a valid role"},
		{`{"text":"a"}`, `{"text":""}`, "empty text parameter"},
		{`{"text":"a"}`, `{}`, "required oneof field 'data'"},
		{`{"text":"a"}`, `{"text":"a","fileData":{"fileUri":"https://x"}}`, "required oneof field 'data'"},
		{`{"text":"a"}`, `{"text":"a","x":1}`, `Unknown name "x"`},
		{`{"text":"a"}`, `{"text":"a","thoughtSignature":"eHh4"}`, "Corrupted thought signature"},
		{`"mimeType":"image/png","data":"AAAA"`, `"mimeType":"image/gif","data":"AAAA"`, "Unsupported MIME type"},
		{`"mimeType":"image/png","data":"AAAA"`, `"mimeType":"image/png","data":"A*"`, "Base64 decoding failed"},
		{`"fileUri":"https://x/i.png"`, `"fileUri":"file:///x"`, "unsupported file uri"},
		{`,"thoughtSignature":"skip_thought_signature_validator"`, ``, "Function call is missing a thought_signature in functionCall parts."},
		{`"args":{"a":1}`, `"args":"{}"`, "want object"},
		{`,` + response, ``, "number of function response parts is equal to"},
		{response, `{"functionResponse":{"name":"f","response":{}}}`, "is not a response of"},
		{`"functionResponse":{"id":"u1",`, `"functionResponse":{`, "is not a response of"},
		{`{"role":"user","parts":[{"functionResponse"`, `{"role":"model","parts":[{"functionResponse"`, "has the role user"},
		{`"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"fileData":{"fileUri":"https://x/i.png"}}]},`, `"contents":[`, "immediately after a user turn"},
		{`"temperature":1`, `"temperature":3`, "range [0, 2]"},
		{`"topK":3`, `"topK":0`, "at least 1"},
		{`"seed":7`, `"seed":3000000000`, "range"},
		{`"stopSequences":["x"]`, `"stopSequences":["1","2","3","4","5","6"]`, "at most 5"},
		{`"responseMimeType":"application/json",`, ``, "only allowed if the response_mime_type"},
		{`"responseJsonSchema":{`, `"responseSchema":{},"responseJsonSchema":{`, "cannot both be set"},
		{`"thinkingLevel":"low"`, `"thinkingLevel":"low","thinkingBudget":5`, "only one of thinking budget and thinking level"},
		{`"thinkingLevel":"low"`, `"thinkingLevel":"much"`, "thinking_level"},
	} {
		if n := strings.Count(geminiValid, row.old); n != 1 {
			t.Errorf("%s stands %d times in the valid request", row.old, n)
			continue
		}
		refused(generatePath, strings.Replace(geminiValid, row.old, row.new, 1), row.why)
	}
	refused(generatePath, `{`, "not valid JSON")
	refused(generatePath, `{"contents":[]}`, "contents is not specified")
	refused(generatePath, `[]`, "")
	old := "/models/gemini-2.5-pro:generateContent"
	refused(old, geminiValid, "Function calling with a response mime type")
	refused(old, `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"thinkingConfig":{"thinkingBudget":0}}}`, "only works in thinking mode")
	refused(old, `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"thinkingConfig":{"thinkingLevel":"low"}}}`, "not supported for this model")
}

// An Upstream knows the thoughts and the signatures that it sent. A second request
// repeats them; the rows change them.
func TestGeminiThoughtsThatWereChangedAreRefused(t *testing.T) { // P08
	u := upstreamtest.New(turnpiketest.NewScript(t, "reasoning Hm.\nreasoning\ntext Look.\ncall c1 f {}\n\ntext Done.\nagain"), upstreamtest.Options{Strict: true})
	defer u.Close()
	_, _, body := send(t, u, generatePath, geminiBody)
	all, _ := partsOf(t, parse(t, body))
	if len(all) != 4 {
		t.Fatalf("%s", body)
	}
	var p []string
	for _, part := range all {
		p = append(p, string(encode(t, part)))
	}
	signature := all[3].(object)["thoughtSignature"].(string)
	other := strings.Replace(p[3], signature, signature[:10]+string("AB"[strings.Count(signature[10:11], "A")])+signature[11:], 1)
	for _, row := range []struct {
		name  string
		parts []string
		why   string // "" = accepted
	}{
		{"unchanged", p, ""},
		{"another thought", []string{strings.Replace(p[0], "Hm.", "Hm!", 1), p[1], p[2], p[3]}, "differ from those that were sent"},
		{"a thought is left out", p[1:], "differ from those that were sent"},
		{"another signature", []string{p[0], p[1], p[2], other}, "Corrupted thought signature."},
		{"the signature on another part", []string{p[0], p[1], p[2], strings.Replace(p[3], `"args":{}`, `"args":{"x":1}`, 1)}, "Corrupted thought signature."},
		{"an empty text with a signature is left out", []string{p[0], p[2], p[3]}, "differ from those that were sent"},
		{"in another order", []string{p[1], p[0], p[2], p[3]}, "differ from those that were sent"},
		{"no signature", []string{p[2], strings.Replace(p[3], `"thoughtSignature":"`+signature+`"`, `"thought":false`, 1)}, "missing a thought_signature"},
	} {
		body := fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[%s]},{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"1"}}}]}]}`, strings.Join(row.parts, ","))
		status, _, answer := send(t, u, generatePath, body)
		if (status == http.StatusOK) != (row.why == "") || !strings.Contains(string(answer), row.why) {
			t.Errorf("%s: %d %s", row.name, status, answer)
		}
	}
}

// Ten rounds with thoughts, every byte of them checked.
func TestGeminiThoughtsComeBackUnchanged(t *testing.T) { // P08
	var story strings.Builder
	for i := range 10 {
		fmt.Fprintf(&story, "reasoning Thought %d.\nreasoning\ntext Look.\ncall c%d f {\"n\":%d}\ncall - f {}\n\n", i, i, i)
	}
	story.WriteString("reasoning Last.\ntext Done.\n\ntext Yes.")
	u := upstreamtest.New(turnpiketest.NewScript(t, story.String()), upstreamtest.Options{Strict: true, Piece: 3})
	t.Cleanup(u.Close)
	m := gemini.New(wire.Endpoint{BaseURL: u.URL, Transport: u.Transport()}, gemini.Options{})
	items := []item.Item{item.NewText(item.User, "go")}
	req := model.Request{Model: "gemini-3-flash-preview", Options: model.Options{Effort: "low"},
		Tools: []model.Tool{{Definition: tool.Definition{Name: "f", InputSchema: json.RawMessage(`{"type":"object"}`)}}}}
	for n := range 12 {
		if n == 11 {
			items = append(items, item.NewText(item.User, "sure?"))
		}
		req.Items = items
		turn, err := m.Stream(t.Context(), &req, func(model.Delta) error { return nil })
		if err != nil {
			t.Fatal(n, err)
		}
		items = append(items, turn.Items...)
		for _, c := range turn.Calls {
			items = append(items, item.NewResult(c.ID, "ok", false))
		}
	}
	last := string(u.Requests()[11].Body)
	if strings.Count(last, `"thoughtSignature":"Eg`) != 21 || strings.Count(last, `"thought":true`) != 11 || strings.Contains(last, "skip_") {
		t.Error(last)
	}
}

// What the real API accepted in recorded exchanges, a strict Upstream accepts, but for
// signatures that it has not sent itself.
func TestRecordedGeminiRequestsAreJudgedAsTheyWere(t *testing.T) { // M03
	u := upstreamtest.New(turnpiketest.NewScript(t, "text a\nagain"), upstreamtest.Options{Strict: true})
	defer u.Close()
	accepted := 0
	for _, r := range providertest.Recordings(t, "gemini") {
		if r.Response.Status != http.StatusOK {
			continue // a wrong key, and a quota
		}
		path := r.Request.Path[strings.LastIndex(r.Request.Path, "/models/"):]
		status, _, answer := send(t, u, path, string(r.Request.Body))
		switch requests := u.Requests(); {
		case status == http.StatusOK:
			accepted++
		case requests[len(requests)-1].Refused != "Corrupted thought signature.":
			t.Errorf("%s: %s", r.Name, answer)
		}
	}
	if accepted < 14 {
		t.Errorf("only %d recorded requests were accepted", accepted)
	}
}

func TestGeminiErrorsHaveTheirForm(t *testing.T) {
	u := upstreamtest.New(turnpiketest.NewScript(t, "fail 429 retry-after 2 busy\n\ntext a\nfail 500 broken"), upstreamtest.Options{})
	defer u.Close()
	status, header, body := send(t, u, streamPath, geminiBody)
	const want = `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}],"message":"busy","status":"RESOURCE_EXHAUSTED"}}`
	if status != 429 || string(body) != want || header.Get("Retry-After") != "" {
		t.Errorf("%d %v %s", status, header, body)
	}
	if _, _, stream := send(t, u, streamPath, geminiBody); !strings.HasSuffix(string(stream), `data: {"error":{"code":500,"message":"broken","status":"INTERNAL"}}`+"\n\n") {
		t.Errorf("%s", stream)
	}
}
