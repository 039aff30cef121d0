package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// said1 is an event with parts; a reason ends the answer.
func said1(parts, reason string) string {
	if reason != "" {
		reason = `,"finishReason":"` + reason + `"`
	}
	return `data: {"candidates":[{"content":{"role":"model","parts":[` + parts + `]}` + reason + `,"index":0}],"responseId":"r-1","modelVersion":"gemini"}` + "\r\n\r\n"
}

const aCall = `{"functionCall":{"name":"f","args":{"a":1}}}`

// The name of the model is a client's, and part of the path.
func TestNamesThatAreNoModels(t *testing.T) {
	asked := false
	p := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	for _, name := range []string{"", "../../v1/x", "a/../b", "m?key=x", "m#x", "m:embedContent", "a b", "%2e%2e", "/m", "m/", "a//b"} {
		var e *model.Error
		if _, err := p.Stream(t.Context(), &model.Request{Model: name}, (&providertest.Heard{}).Emit); !errors.As(err, &e) || e.Class != model.Target || asked {
			t.Errorf("%q: %v, asked %v", name, err, asked)
		}
	}
}

func TestHowATurnEnds(t *testing.T) { // M03 M06 G07
	for _, tt := range []struct {
		name, body string
		stop       model.Stop
		failed     string // the error, by code and class
	}{
		{"a text", said1(`{"text":"x"}`, "STOP"), model.StopEnd, ""},
		{"a call", said1(aCall, "STOP"), model.StopCalls, ""},
		{"the limit", said1(`{"text":"x"}`, "MAX_TOKENS"), model.StopLength, ""},
		{"the limit within a call", said1(`{"functionCall":{"name":"f","willContinue":true}}`, "MAX_TOKENS"), model.StopLength, ""},
		{"a filter without text", said1(``, "SAFETY"), model.StopFilter, ""},
		{"a copied text", said1(`{"text":"x"}`, "RECITATION"), model.StopFilter, ""},
		{"a forbidden text", said1(`{"text":"x"}`, "PROHIBITED_CONTENT"), model.StopFilter, ""},
		{"a forbidden word", said1(`{"text":"x"}`, "BLOCKLIST"), model.StopFilter, ""},
		{"personal data", said1(`{"text":"x"}`, "SPII"), model.StopFilter, ""},
		{"a forbidden image", said1(``, "IMAGE_SAFETY"), model.StopFilter, ""},
		{"a reason that is not known", said1(`{"text":"x"}`, "NEW"), model.StopEnd, ""},
		{"another reason, after a text", said1(`{"text":"x"}`, "OTHER"), model.StopEnd, ""},
		{"another reason, without a text", said1(``, "OTHER"), "", "OTHER transient"},
		{"a call that is not valid", said1(``, "MALFORMED_FUNCTION_CALL"), "", "MALFORMED_FUNCTION_CALL transient"},
		{"a call that was not allowed", said1(`{"text":"x"}`, "UNEXPECTED_TOOL_CALL"), "", "UNEXPECTED_TOOL_CALL transient"},
		{"a prompt that is blocked", `data: {"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":4}}` + "\n\n", "", "PROHIBITED_CONTENT filtered"},
		{"no reason", said1(`{"text":"x"}`, ""), "", " transient"},
		{"no reason, and a last event", said1(`{"text":"x"}`, "") + "data: [DONE]\n\n", model.StopEnd, ""},
		{"a whole answer without a reason", `{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}`, model.StopEnd, ""},
		{"a whole answer with an empty reason", `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":""}]}`, model.StopEnd, ""},
		{"a whole call without a reason", `{"candidates":[{"content":{"parts":[` + aCall + `]}}]}`, model.StopCalls, ""},
		{"an array of chunks without a reason", `[{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}]`, model.StopEnd, ""},
		{"a whole answer without a reason that ends within a call", `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}`, "", " transient"},
		{"an array of chunks", `[{"candidates":[{"content":{"parts":[{"text":"x"}]}}]},{"candidates":[{"finishReason":"STOP"}]}]`, model.StopEnd, ""},
		{"a last event of compatible providers", said1(`{"text":"x"}`, "STOP") + "data: [DONE]\n\n", model.StopEnd, ""},
		{"usage after the end", said1(`{"text":"x"}`, "STOP") + `data: {"usageMetadata":{"promptTokenCount":4}}` + "\n\n", model.StopEnd, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, providertest.Answer(200, nil, tt.body))
			turn, err := p.Stream(t.Context(), &model.Request{Model: "m"}, (&providertest.Heard{}).Emit)
			if tt.failed != "" {
				var e *model.Error
				if !errors.As(err, &e) || e.Code+" "+string(e.Class) != tt.failed || e.Message == "" || turn != nil && turn.Stop != "" {
					t.Errorf("%+v, %#v", turn, err)
				}
				return
			}
			if err != nil || turn.Stop != tt.stop {
				t.Errorf("%+v, %v", turn, err)
			}
		})
	}
}

// Parts become items: adjacent texts one, adjacent thoughts one, each call one. What has
// more than its text goes back as it came.
func TestPartsBecomeItems(t *testing.T) { // M03 P08
	native := func(parts string, opaque bool) item.Native {
		return item.Native{Dialect: model.DialectGemini, JSON: json.RawMessage("[" + parts + "]"), Opaque: opaque}
	}
	message := func(text string, n item.Native) item.Item {
		it := item.NewText(item.Assistant, text)
		it.Native = n
		return it
	}
	thought := func(text string, n item.Native) item.Item {
		it := item.Item{Kind: item.Reasoning, Native: n}
		if text != "" {
			it.Parts = []item.Part{{Kind: item.Text, Text: text}}
		}
		return it
	}
	call := func(id, args string, n item.Native) item.Item {
		it := item.NewCall(id, "f", args)
		it.Native = n
		return it
	}
	const signature = `{"text":"","thoughtSignature":"s=="}`
	const picture = "iVBORw0KGgo="
	for _, tt := range []struct {
		name  string
		parts []string // each in a chunk of its own
		want  []item.Item
	}{
		{"texts", []string{`{"text":"a"}`, `{"text":"b"}`}, []item.Item{message("ab", item.Native{})}},
		{"an empty text", []string{`{"text":"a"}`, `{"text":""}`}, []item.Item{message("a", item.Native{})}},
		{"a signature after a text", []string{`{"text":"a"}`, `{"text":"b"}`, signature},
			[]item.Item{message("ab", native(`{"text":"ab"},`+signature, true))}},
		{"a signature on a text", []string{`{"text":"a"}`, `{"text":"b","thoughtSignature":"s=="}`, `{"text":"c"}`},
			[]item.Item{message("abc", native(`{"text":"a"},{"text":"b","thoughtSignature":"s=="},{"text":"c"}`, true))}},
		{"a signature alone", []string{signature}, []item.Item{thought("", native(signature, true))}},
		{"a signature after a call", []string{aCall, signature},
			[]item.Item{call("call_r-1_0", `{"a":1}`, native(aCall, false)), thought("", native(signature, true))}},
		{"a signature without anything", []string{`{"thoughtSignature":"s=="}`}, []item.Item{thought("", native(`{"thoughtSignature":"s=="}`, true))}},
		{"thoughts", []string{`{"text":"a","thought":true}`, `{"thought":true,"text":"b"}`, `{"text":"c"}`},
			[]item.Item{thought("ab", native(`{"thought":true,"text":"ab"}`, false)), message("c", item.Native{})}},
		{"calls", []string{`{"functionCall":{"name":"f"},"thoughtSignature":"s=="}`, `{"functionCall":{"id":"x","name":"f","args":{}}}`},
			[]item.Item{call("call_r-1_0", "{}", native(`{"functionCall":{"name":"f"},"thoughtSignature":"s=="}`, true)), call("x", "{}", native(`{"functionCall":{"id":"x","name":"f","args":{}}}`, false))}},
		{"arguments that are no object", []string{`{"functionCall":{"name":"f","args":"{broken"}}`},
			[]item.Item{call("call_r-1_0", "{broken", native(`{"functionCall":{"name":"f","args":{"invalid_json":"{broken"}}}`, false))}},
		{"a call in two pieces", []string{`{"functionCall":{"name":"f","willContinue":true},"thoughtSignature":"s=="}`, `{"functionCall":{"args":{"a":1}}}`},
			[]item.Item{call("call_r-1_0", `{"a":1}`, native(`{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"s=="}`, true))}},
		{"the provider's own tool", []string{`{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"s=="}`},
			[]item.Item{{Kind: item.Other, Native: native(`{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"s=="}`, true)}}},
		{"an image", []string{`{"text":"Here:"}`, `{"inlineData":{"mimeType":"image/png","data":"` + picture + `"}}`},
			[]item.Item{message("Here:\n\n![image](data:image/png;base64,"+picture+")", native(`{"text":"Here:"},{"inlineData":{"mimeType":"image/png","data":"`+picture+`"}}`, false))}},
		{"sound", []string{`{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}}`},
			[]item.Item{message("[audio; type: audio/wav; 3 bytes, not shown]", native(`{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}}`, false))}},
		{"an image that is a thought", []string{`{"thought":true,"inlineData":{"mimeType":"image/png","data":"` + picture + `"}}`},
			[]item.Item{thought("[image; type: image/png; 8 bytes, not shown]", native(`{"thought":true,"inlineData":{"mimeType":"image/png","data":"`+picture+`"}}`, false))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := ""
			for _, p := range tt.parts {
				body += said1(p, "")
			}
			got := decodeAll(strings.NewReader(body + said1("", "STOP")))
			if got.Err != "<nil>" {
				t.Fatal(got.Err)
			}
			if diff := cmp.Diff(tt.want, got.Turn.Items); diff != "" {
				t.Error(diff)
			}
			providertest.CheckDeltas(t, got)
		})
	}
}

func TestFailures(t *testing.T) { // G07
	googleError := func(code int, status, message, details string) string {
		return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q,"details":[%s]}}`, code, message, status, details)
	}
	retry := `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"48s"}`
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   model.Error
	}{
		{"a wrong key", 400, googleError(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", `{"reason":"API_KEY_INVALID"}`),
			model.Error{Class: model.Target, Code: "INVALID_ARGUMENT", Message: "API key not valid. Please pass a valid API key.", Credential: true}},
		{"an expired key", 400, googleError(400, "INVALID_ARGUMENT", "API key expired.", `{"reason":"API_KEY_INVALID"}`),
			model.Error{Class: model.Target, Code: "INVALID_ARGUMENT", Message: "API key expired.", Credential: true}},
		{"another country", 400, googleError(400, "FAILED_PRECONDITION", "User location is not supported for the API use.", ""),
			model.Error{Class: model.Target, Code: "FAILED_PRECONDITION", Message: "User location is not supported for the API use."}},
		{"no such model", 404, googleError(404, "NOT_FOUND", "models/x is not found", ""), model.Error{Class: model.Target, Code: "NOT_FOUND", Message: "models/x is not found"}},
		{"not allowed", 403, googleError(403, "PERMISSION_DENIED", "no", ""), model.Error{Class: model.Target, Code: "PERMISSION_DENIED", Message: "no"}},
		{"too much", 429, googleError(429, "RESOURCE_EXHAUSTED", "slow down", retry), model.Error{Class: model.Transient, Code: "RESOURCE_EXHAUSTED", Message: "slow down", RetryAfter: 48 * time.Second}},
		{"a prompt that is too long", 400, googleError(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8).", ""),
			model.Error{Class: model.TooLong, Code: "INVALID_ARGUMENT", Message: "The input token count (9) exceeds the maximum number of tokens allowed (8)."}},
		{"a broken request", 400, googleError(400, "INVALID_ARGUMENT", "contents is not specified", ""), model.Error{Class: model.Invalid, Code: "INVALID_ARGUMENT", Message: "contents is not specified"}},
		{"overload", 503, googleError(503, "UNAVAILABLE", "The model is overloaded.", ""), model.Error{Class: model.Transient, Code: "UNAVAILABLE", Message: "The model is overloaded."}},
		{"in an array", 500, "[" + googleError(500, "INTERNAL", "broken", "") + "]", model.Error{Class: model.Transient, Code: "INTERNAL", Message: "broken"}},
		{"in mid-stream", 200, said1(`{"text":"x"}`, "") + "data: " + googleError(429, "RESOURCE_EXHAUSTED", "slow down", retry) + "\n\n",
			model.Error{Class: model.Transient, Code: "RESOURCE_EXHAUSTED", Message: "slow down", RetryAfter: 48 * time.Second}},
		{"with status 200", 200, googleError(503, "UNAVAILABLE", "later", ""), model.Error{Class: model.Transient, Code: "UNAVAILABLE", Message: "later"}},
		{"a page", 200, "<html>", model.Error{Class: model.Target, Message: "answered with text/html, not JSON. Is base_url right?"}},
		{"arguments in pieces", 200, said1(`{"functionCall":{"name":"f","partialArgs":[{}],"willContinue":true}}`, ""), model.Error{Class: model.Transient, Message: "sent the arguments of a call in pieces, which the request does not ask for"}},
		{"no end", 200, said1(`{"text":"x"}`, ""), model.Error{Class: model.Transient, Message: "ended the stream before the answer was complete"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, providertest.Answer(tt.status, nil, tt.body))
			_, err := p.Stream(t.Context(), &model.Request{Model: "m"}, (&providertest.Heard{}).Emit)
			var e *model.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			got := model.Error{Class: e.Class, Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter, Credential: e.Credential}
			if diff := cmp.Diff(tt.want, got); diff != "" || e.Status != tt.status {
				t.Error(e.Status, diff)
			}
			if (e.Dialect == model.DialectGemini) != (len(e.Body) > 0) {
				t.Errorf("the dialect of the body %q is %q", e.Body, e.Dialect)
			}
		})
	}
}

// FuzzDecode: whatever a provider sends, the turn can be stored and sent back,
// and it does not depend on where the network cuts.
func FuzzDecode(f *testing.F) {
	f.Add(said1(`{"text":"a","thought":true}`, "") + said1(aCall, "STOP"))
	f.Add(said1(`{"text":"","thoughtSignature":"s"}`, "") + said1(`{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"text":"x"}`, "MAX_TOKENS"))
	f.Add(said1(`{"functionCall":{"name":"f","willContinue":true}},{"functionCall":{"args":"{x"}},{"functionCall":{"args":7}}`, "STOP"))
	f.Add(`[{"candidates":[{"content":{"parts":[{"fileData":{"fileUri":"x"}},{"executableCode":{}},{}]},"finishReason":"OTHER"}],"usageMetadata":{"promptTokenCount":-1}}]`)
	f.Add(said1(`null`, "STOP"))
	f.Fuzz(func(t *testing.T, body string) { dialect().CheckAnyAnswer(t, body) })
}

// A provider decides how many parts come, and in which order.
func TestPartsAreLimited(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"as many as there may be", strings.Repeat(said1(`{"text":"","thoughtSignature":"s"}`, ""), maxParts), ""},
		{"one more", strings.Repeat(said1(`{"text":"","thoughtSignature":"s"}`, ""), maxParts+1), "more than 4096 parts"},
		{"pieces of one text", strings.Repeat(said1(`{"text":"x"}`, ""), maxParts+1), ""},
		{"calls", strings.Repeat(said1(aCall, ""), wire.MaxCalls+1), "more than 1024 tool calls"},
		{"null", said1("null", ""), "sent a chunk that is not valid"},
		{"a chunk that is no object", "data: 7\n\n", "sent a chunk that is not valid"},
	} {
		_, err := decode(strings.NewReader(tt.body+said1("", "STOP")), 1, nil, nil, func(model.Delta) error { return nil })
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// Ids that the gateway makes differ between the turns of a conversation, and do not
// reach the provider. // M03
func TestIDsThatTheGatewayMakes(t *testing.T) {
	const answer = `{"candidates":[{"content":{"parts":[` + aCall + `,` + aCall + `]},"finishReason":"STOP"}]}`
	var sent []string
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&body)
		sent = append(sent, string(body))
		_, _ = w.Write([]byte(answer))
	})
	req := &model.Request{Model: "gemini-2.5-flash", Items: []item.Item{item.NewText(item.User, "go")}}
	seen := map[string]bool{}
	for range 3 {
		turn, err := p.Stream(t.Context(), req, (&providertest.Heard{}).Emit)
		if err != nil {
			t.Fatal(err)
		}
		req.Items = append(req.Items, turn.Items...)
		for _, c := range turn.Calls {
			if c.ID == "" || seen[c.ID] {
				t.Errorf("id %q of %v", c.ID, seen)
			}
			seen[c.ID] = true
			req.Items = append(req.Items, item.NewResult(c.ID, "ok", false))
		}
	}
	for _, body := range sent {
		if strings.Contains(body, `"id"`) || strings.Contains(body, "call_") {
			t.Error(body)
		}
	}
}

// The dialect counts cached tokens within the prompt, and thoughts beside the output.
func TestUsage(t *testing.T) { // M03 M06 P41
	for said, want := range map[string]model.Usage{
		`"promptTokenCount":1000,"cachedContentTokenCount":900,"candidatesTokenCount":5,"thoughtsTokenCount":7,"totalTokenCount":1012,"trafficType":"ON_DEMAND"`: {
			Input: 1000, CachedInput: 900, Output: 12, Reasoning: 7, Total: 1012},
		`"promptTokenCount":10,"toolUsePromptTokenCount":20,"candidatesTokenCount":5,"serviceTier":"standard"`: {Input: 30, Output: 5, Total: 35},
		`"promptTokenCount":10,"candidatesTokenCount":5,"serviceTier":"flex"`:                                  {Input: 10, Output: 5, Total: 15, ServiceTier: model.TierFlex},
		`"promptTokenCount":10,"candidatesTokenCount":5,"serviceTier":"PRIORITY"`:                              {Input: 10, Output: 5, Total: 15, ServiceTier: model.TierPriority},
		`"promptTokenCount":10,"candidatesTokenCount":5,"trafficType":"ON_DEMAND_PRIORITY"`:                    {Input: 10, Output: 5, Total: 15, ServiceTier: model.TierPriority},
		`"promptTokenCount":10,"candidatesTokenCount":5,"trafficType":"ON_DEMAND_FLEX"`:                        {Input: 10, Output: 5, Total: 15, ServiceTier: model.TierFlex},
	} {
		decoding().Counts(t, want, said1(`{"text":"x"}`, "STOP")+`data: {"usageMetadata":{`+said+"}}\n\n")
	}
}
