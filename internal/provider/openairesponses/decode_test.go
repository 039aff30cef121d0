package openairesponses

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

const (
	created = `{"type":"response.created","response":{"id":"resp_1","model":"gpt","status":"in_progress","output":[],"usage":null}}`

	callBegan = `{"type":"response.output_item.added","output_index":0,"item":{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"c1","name":"f"}}`
	callArgs  = `{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":0,"arguments":"{\"a\":1}"}`
	call      = `{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"a\":1}","call_id":"c1","name":"f"}`
	message   = `{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"hi"}]}`
	textDelta = `{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"h"}`
)

// events returns a stream of events.
func events(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n"
}

func done(index string, it string) string {
	return `{"type":"response.output_item.done","output_index":` + index + `,"item":` + it + `}`
}

// ends returns the last event of a stream, with the items in it.
func ends(kind, more string, items ...string) string {
	return `{"type":"response.` + kind + `","response":{"id":"resp_1","model":"gpt","status":"` + kind + `","output":[` + strings.Join(items, ",") + `]` + more + `}}`
}

func TestHowATurnEnds(t *testing.T) { // M06 G07
	incomplete := func(reason string) string {
		return ends("incomplete", `,"incomplete_details":{"reason":"`+reason+`"}`)
	}
	cutCall := strings.Replace(strings.Replace(call, "completed", "incomplete", 1), `1}"`, `"`, 1)
	for _, tt := range []struct {
		name, body string
		stop       model.Stop
		raw        string
		calls      int // that are complete
		all        int
	}{
		{"a text", events(created, done("0", message), ends("completed", "", message)), model.StopEnd, "completed", 0, 0},
		{"a call", events(created, callBegan, callArgs, done("0", call), ends("completed", "", call)), model.StopCalls, "completed", 1, 1},
		{"a call whose item has no end", events(created, callBegan, callArgs, ends("completed", "")), model.StopCalls, "completed", 1, 1},
		{"a call that only the last event has", events(ends("completed", "", call)), model.StopCalls, "completed", 1, 1},
		{"a call of which the stream had only the begin", events(created, callBegan, ends("completed", "", call)), model.StopCalls, "completed", 1, 1},
		{"a call cut off by the length", events(created, callBegan, done("0", cutCall), incomplete("max_output_tokens")), model.StopLength, "max_output_tokens", 0, 1},
		{"a call whose item was closed when the length ran out", events(created, callBegan, done("0", strings.Replace(call, `1}"`, `"`, 1)), incomplete("max_output_tokens")), model.StopLength, "max_output_tokens", 0, 1},
		{"a call that had only begun", events(created, callBegan, incomplete("max_output_tokens")), model.StopLength, "max_output_tokens", 0, 1},
		{"the filter", events(created, done("0", message), incomplete("content_filter")), model.StopFilter, "content_filter", 0, 0},
		{"incomplete for another reason", events(created, done("0", message), incomplete("new")), model.StopLength, "new", 0, 0},
		{"incomplete for no reason", events(created, ends("incomplete", "")), model.StopLength, "incomplete", 0, 0},
		{"incomplete under another name", events(created, strings.Replace(ends("incomplete", ""), "response.incomplete", "response.completed", 1)), model.StopLength, "incomplete", 0, 0},
		{"one object", `{"id":"r","object":"response","status":"completed","output":[` + message + `,` + call + `]}`, model.StopCalls, "completed", 1, 1},
		{"one object without a status", ` {"id":"r","output":[]}`, model.StopEnd, "completed", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := decodeAll(strings.NewReader(tt.body))
			if got.Err != "<nil>" || got.Turn.Stop != tt.stop || got.Turn.RawStop != tt.raw || len(got.Turn.Calls) != tt.all {
				t.Fatalf("%+v of %+v", got.Turn, got)
			}
			calls := providertest.OfKind(got.Turn.Items, item.ToolCall)
			if len(calls) != tt.calls {
				t.Fatalf("%d complete calls of %+v", len(calls), got.Turn.Calls)
			}
			for _, c := range calls {
				if c.CallID != "c1" || c.Name != "f" || c.Arguments != `{"a":1}` || c.Native.JSON != nil && string(c.Native.JSON) != call {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// An answer is read from the ends of its items, whatever else a server sends.
func TestServersThatStreamOtherwise(t *testing.T) { // M02
	call2 := strings.NewReplacer("fc_1", "fc_2", "c1", "c2").Replace(call)
	reasoning := `{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"e"}`
	for _, tt := range []struct {
		name, body string
		want       string // kinds of the items
		text       string // of the deltas
		reasoning  string
	}{
		{"without deltas", events(created, done("0", reasoning), done("1", message), ends("completed", "")), "reasoning message", "hi", "Hm."},
		{"with some of the deltas", events(created, textDelta, done("0", message), ends("completed", "")), "message", "hi", ""},
		{"with nothing but deltas", events(textDelta, strings.Replace(textDelta, `"h"`, `"i"`, 1), ends("completed", "")), "message", "hi", ""},
		{"with nothing but the last event", events(ends("completed", "", reasoning, message, call)), "reasoning message tool_call", "hi", "Hm."},
		{"ends of items in another order", events(created, done("1", message), done("0", reasoning), ends("completed", "", reasoning, message)), "reasoning message", "hi", "Hm."},
		{"other ids at the end", events(created, done("0", reasoning), done("1", message), ends("completed", "", strings.Replace(reasoning, "rs_1", "rs_2", 1), strings.Replace(message, "msg_1", "msg_2", 1))), "reasoning message", "hi", "Hm."},
		{"all calls with the index 0", events(created, done("0", call), done("0", call2), ends("completed", "", call, call2)), "tool_call tool_call", "", ""},
		{"no index and no id", events(created, `{"type":"response.output_text.delta","delta":"h"}`, `{"type":"response.output_text.delta","delta":"i"}`, ends("completed", "")), "message", "hi", ""},
		{"pieces after the end", events(created, done("0", message), textDelta, ends("completed", "", message)), "message", "hi", ""},
		{"an end that is repeated", events(created, done("0", message), done("0", message), ends("completed", "", message)), "message", "hi", ""},
		{"reasoning of Open Responses", events(created, `{"type":"response.reasoning.delta","item_id":"rs_1","output_index":0,"delta":"Hm."}`, done("0", reasoning), ends("completed", "")), "reasoning", "", "Hm."},
		{"tools of its own and later kinds", events(created, `{"type":"response.mcp_call.in_progress"}`, done("0", `{"type":"custom_tool_call","call_id":"c","name":"n","input":"x"}`), done("1", `{"type":"acme:x"}`), ends("completed", "")), "other other", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := heard{}
			turn, err := decode(strings.NewReader(tt.body), nil, false, h.emit)
			if err != nil {
				t.Fatal(err)
			}
			providertest.CheckDeltas(t, decodeAll(strings.NewReader(tt.body)))
			var kinds []string
			for _, it := range turn.Items {
				kinds = append(kinds, string(it.Kind))
			}
			if got := strings.Join(kinds, " "); got != tt.want || h[model.TextDelta] != tt.text || turn.Text() != tt.text || h[model.ReasoningDelta] != tt.reasoning {
				t.Errorf("%s, %v, %q; want %s", got, h, turn.Text(), tt.want)
			}
		})
	}
}

// Each delta names its item and part; what the ends of items add is told then, and that they end.
func TestDeltas(t *testing.T) { // M02
	piece := func(kind string, index int, part, text string) string {
		return fmt.Sprintf(`{"type":"response.%s.delta","item_id":"","output_index":%d,%s,"delta":%q}`, kind, index, part, text)
	}
	args := func(text string) string {
		return fmt.Sprintf(`{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":%q}`, text)
	}
	open := func(item int, id, name, text string) model.Delta {
		return model.Delta{Kind: model.CallDelta, Item: item, CallID: id, Name: name, Text: text}
	}
	end := func(item int) model.Delta { return model.Delta{Kind: model.DoneDelta, Item: item} }
	reasoning := `{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."},{"type":"summary_text","text":"So."}]}`
	mixed := `{"id":"msg_2","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"b"}]}`
	call2 := strings.NewReplacer("fc_1", "fc_2", "c1", "c2").Replace(call)
	decoding().Tells(t, []providertest.Told{
		{"parts of a summary", events(created, piece("reasoning_summary_text", 0, `"summary_index":0`, "H"), piece("reasoning_summary_text", 0, `"summary_index":1`, "So."), done("0", reasoning), ends("completed", "")),
			[]model.Delta{{Kind: model.ReasoningDelta, Text: "H"}, {Kind: model.ReasoningDelta, Part: 1, Text: "So."}, {Kind: model.ReasoningDelta, Text: "m."}, end(0)}},
		{"a text and a refusal after another item", events(created, done("0", `{"id":"x","type":"web_search_call"}`), done("1", mixed), ends("completed", "")),
			[]model.Delta{{Item: 1, Text: "a"}, {Kind: model.RefusalDelta, Item: 1, Part: 1, Text: "b"}, end(1)}},
		{"a call in pieces", events(created, callBegan, args(`{"a"`), args(`:1}`), callArgs, done("0", call), ends("completed", "", call)),
			[]model.Delta{open(0, "c1", "f", ""), open(0, "", "", `{"a"`), open(0, "", "", `:1}`), end(0)}},
		{"a call whose pieces do not come", events(created, callBegan, done("0", call), ends("completed", "")),
			[]model.Delta{open(0, "c1", "f", ""), open(0, "", "", `{"a":1}`), end(0)}},
		{"a call whose name comes with its end", events(created, args(`{"a"`), args(`:1}`), done("0", call), ends("completed", "")),
			[]model.Delta{open(0, "c1", "f", `{"a":1}`), end(0)}},
		{"calls that all have the index 0", events(created, done("0", call), done("0", call2), ends("completed", "")),
			[]model.Delta{open(0, "c1", "f", `{"a":1}`), end(0), open(1, "c2", "f", `{"a":1}`), end(1)}},
		{"items that end in another order", events(created, done("1", message), done("0", call), ends("completed", "")),
			[]model.Delta{{Item: 1, Text: "hi"}, end(1), open(0, "c1", "f", `{"a":1}`), end(0)}},
		{"one object", `{"id":"r","status":"completed","output":[` + message + `,` + call + `]}`,
			[]model.Delta{{Text: "hi"}, end(0), open(1, "c1", "f", `{"a":1}`), end(1)}},
	})
}

// A whole turn, with items whose content the client never sees.
func TestDeltasOfAllKinds(t *testing.T) { // M02
	twoParts := `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":""},{"type":"refusal","refusal":"no"}]}`
	reasoning := `{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"A."},{"type":"summary_text","text":"B."}],"encrypted_content":"e"}`
	search := `{"id":"ws_1","type":"web_search_call","status":"completed"}`
	summary := func(index, text string) string {
		return `{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":` + index + `,"delta":"` + text + `"}`
	}
	args := func(text string) string {
		return `{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":3,"delta":"` + text + `"}`
	}
	began := strings.Replace(callBegan, `x":0`, `x":3`, 1)
	want := []model.Delta{
		{Kind: model.ReasoningDelta, Text: "A"}, {Kind: model.ReasoningDelta, Text: "."}, {Kind: model.ReasoningDelta, Part: 1, Text: "B."}, {Kind: model.DoneDelta},
		{Item: 2, Text: "a"}, {Kind: model.RefusalDelta, Item: 2, Part: 1, Text: "n"}, {Kind: model.RefusalDelta, Item: 2, Part: 1, Text: "o"}, {Kind: model.DoneDelta, Item: 2},
		{Kind: model.CallDelta, Item: 3, CallID: "c1", Name: "f"}, {Kind: model.CallDelta, Item: 3, Text: `{"a"`}, {Kind: model.CallDelta, Item: 3, Text: `:1}`}, {Kind: model.DoneDelta, Item: 3},
	}
	joined := []model.Delta{
		{Kind: model.ReasoningDelta, Text: "A."}, {Kind: model.ReasoningDelta, Part: 1, Text: "B."}, {Kind: model.DoneDelta}, {Item: 2, Text: "a"},
		{Kind: model.RefusalDelta, Item: 2, Part: 1, Text: "no"}, {Kind: model.DoneDelta, Item: 2},
		{Kind: model.CallDelta, Item: 3, CallID: "c1", Name: "f", Text: `{"a":1}`}, {Kind: model.DoneDelta, Item: 3},
	}
	decoding().Tells(t, []providertest.Told{
		{"a stream", events(created, summary("0", "A"), summary("0", "."), summary("1", "B."), done("0", reasoning), done("1", search),
			`{"type":"response.output_text.delta","item_id":"msg_1","output_index":2,"content_index":0,"delta":"a"}`, `{"type":"response.refusal.delta","item_id":"msg_1","output_index":2,"content_index":2,"delta":"n"}`, done("2", twoParts),
			began, args(`{\"a\"`), args(`:1}`), done("3", call), ends("completed", "")), want},
		{"only the ends of items", events(created, done("0", reasoning), done("1", search), done("2", twoParts), done("3", call), ends("completed", "")), joined},
		{"a whole answer", `{"id":"r","output":[` + reasoning + `,` + search + `,` + twoParts + `,` + call + `]}`, joined},
	})
}

// What a client of the gateway does not get of an item: then its calls get ids by which the
// gateway finds the whole turn.
func TestItemsOfWhichAClientDoesNotGetAll(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"A."}],"encrypted_content":"e"}`:                                true,
		`{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"A."}],"encrypted_content":null}`:                               false,
		`{"id":"ws_1","type":"web_search_call","status":"completed"}`:                                                                             true,
		`{"id":"msg_1","type":"message","role":"assistant","phase":"commentary","content":[{"type":"output_text","annotations":[],"text":"hi"}]}`: true,
		message: false,
		call:    false,
	} {
		got := decodeAll(strings.NewReader(events(created, done("0", raw), ends("completed", ""))))
		if got.Turn == nil || len(got.Turn.Items) != 1 || got.Turn.Items[0].Native.Opaque != want {
			t.Errorf("%s: %+v", raw, got.Turn)
		}
	}
}

// The pieces of a call count where its end has them in another form. What cannot
// be both is refused: nobody knows which arguments the model meant.
func TestArgumentsThatDifferAtTheEnd(t *testing.T) { // G07
	piece := func(text string) string {
		return `{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":"` + text + `"}`
	}
	got := decodeAll(strings.NewReader(events(created, callBegan, piece(`{\"a\": 1}`), done("0", call), ends("completed", "", call))))
	if got.Err != "<nil>" || len(got.Turn.Calls) != 1 || got.Turn.Calls[0].Arguments != `{"a": 1}` {
		t.Errorf("%+v", got)
	}
	providertest.CheckDeltas(t, got)
	got = decodeAll(strings.NewReader(events(created, callBegan, piece(`{\"b`), done("0", call), ends("completed", "", call))))
	if !strings.Contains(got.Err, "arguments are not what their pieces were") || got.Turn.Stop != "" || got.Turn.Calls[0].Complete {
		t.Errorf("%+v", got)
	}
	got = decodeAll(strings.NewReader(events(created, callBegan, piece(`{\"b`), callArgs)))
	if !strings.Contains(got.Err, "arguments are not what their pieces were") || got.Turn.Calls[0].Complete {
		t.Errorf("%+v", got)
	}
	other := strings.Replace(call, `"c1"`, `"c9"`, 1)
	got = decodeAll(strings.NewReader(events(created, callBegan, done("0", other), ends("completed", "", other))))
	if c := got.Turn.Items[0]; c.CallID != "c1" || c.Native.JSON != nil {
		t.Errorf("another id at the end: %+v", c)
	}
	providertest.CheckDeltas(t, got)
}

func TestARefusal(t *testing.T) { // M06
	refused := `{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"refusal","refusal":"I cannot."}]}`
	h := heard{}
	turn, err := decode(strings.NewReader(events(created, `{"type":"response.refusal.delta","item_id":"msg_1","output_index":0,"delta":"I can"}`, done("0", refused), ends("completed", ""))), nil, false, h.emit)
	if err != nil || h[model.RefusalDelta] != "I cannot." || turn.Stop != model.StopEnd {
		t.Fatalf("%v %v %+v", err, h, turn)
	}
	if diff := cmp.Diff([]item.Part{{Kind: item.Refusal, Text: "I cannot."}}, turn.Items[0].Parts); diff != "" {
		t.Error(diff)
	}
}

// Calls whose end had come are complete although the stream broke after them.
func TestAStreamThatBreaks(t *testing.T) { // G07
	got := decodeAll(strings.NewReader(events(created, callBegan, done("0", call), strings.NewReplacer("fc_1", "fc_2", "c1", "c2", `x":0`, `x":1`).Replace(callBegan))))
	if got.Turn == nil || got.Turn.Stop != "" || len(got.Turn.Calls) != 2 || !got.Turn.Calls[0].Complete || got.Turn.Calls[1].Complete || len(got.Turn.Items) != 1 {
		t.Errorf("%+v", got.Turn)
	}
	if !strings.Contains(got.Err, "ended the stream before the answer was complete") {
		t.Error(got.Err)
	}
}

func TestUsage(t *testing.T) { // M06
	for body, want := range map[string]model.Usage{
		`{"input_tokens":10,"output_tokens":7,"total_tokens":17,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"output_tokens_details":{"reasoning_tokens":3}}`: {Input: 10, Output: 7, Total: 17, CachedInput: 4, CacheWrite: 2, Reasoning: 3},
		`{"input_tokens":10,"output_tokens":7,"total_tokens":20,"output_tokens_details":{"reasoning_tokens":3}}`:                                                                   {Input: 10, Output: 10, Total: 20, Reasoning: 3},
		`{"input_tokens":9,"output_tokens":52,"total_tokens":61,"output_tokens_details":{"reasoning_tokens":232}}`:                                                                 {Input: 9, Output: 284, Total: 293, Reasoning: 232},
		`{"input_tokens":-1,"output_tokens":7,"input_tokens_details":null}`:                                                                                                        {Output: 7, Total: 7},
		`{"input_tokens":1e15}`: {Input: wire.MaxUsage, Total: wire.MaxUsage},
	} {
		if diff := cmp.Diff(want, usageOf([]byte(body))); diff != "" {
			t.Error(body, diff)
		}
	}
}

func TestFailures(t *testing.T) { // G07
	failed := func(code, message string) string {
		return events(created, ends("failed", `,"error":{"code":"`+code+`","message":"`+message+`"}`))
	}
	open := func(e wire.Endpoint) model.Model { return New(e) }
	providertest.Fails(t, model.DialectResponses, open, []providertest.Failure{
		{"overload", 503, `{"error":{"message":"Overloaded","type":"server_error","param":null,"code":null}}`, model.Transient, "Overloaded"},
		{"a wrong key", 401, `{"error":{"message":"Incorrect API key","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, model.Target, "Incorrect API key"},
		{"a prompt that is too long", 400, `{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`, model.TooLong, "Your input exceeds the context window of this model."},
		{"a broken request", 400, `{"error":{"message":"Missing","type":"invalid_request_error","param":"input","code":null}}`, model.Invalid, "Missing"},
		{"a failure of the server in the stream", 200, failed("server_error", "Oops"), model.Transient, "Oops"},
		{"a rate limit in the stream", 200, failed("rate_limit_exceeded", "Slow down"), model.Transient, "Slow down"},
		{"a prompt that the provider's policy refuses", 200, failed("bio_policy", "No"), model.Filtered, "No"},
		{"a prompt that is not valid", 200, failed("invalid_prompt", "No"), model.Invalid, "No"},
		{"an image that is not valid", 200, failed("image_file_not_found", "No"), model.Invalid, "No"},
		{"a key of a quota that is used up", 200, failed("insufficient_quota", "Pay"), model.Target, "Pay"},
		{"a context that is full, in the stream", 200, failed("context_length_exceeded", "Long"), model.TooLong, "Long"},
		{"an event of an error", 200, events(created, textDelta, `{"type":"error","code":"server_error","message":"Oops","param":null,"sequence_number":3}`), model.Transient, "Oops"},
		{"an event of an error in another form", 200, events(created, `{"type":"error","error":{"type":"invalid_request_error","code":"x","message":"Oops","param":null}}`), model.Invalid, "Oops"},
		{"an error without a type", 200, events(`{"error":{"message":"Oops"}}`), model.Transient, "Oops"},
		{"failed for no reason", 200, events(created, ends("failed", "")), model.Transient, "ended the response with the status failed"},
		{"one object that failed", 200, `{"id":"r","status":"failed","error":{"code":"server_error","message":"Oops"},"output":[]}`, model.Transient, "Oops"},
		{"one object that has not ended", 200, `{"id":"r","status":"queued","output":[]}`, model.Transient, "sent a response that is not complete: its status is queued"},
		{"a page", 200, "<html>", model.Target, "answered with text/html, not JSON. Is base_url right?"},
		{"no end", 200, events(created), model.Transient, "ended the stream before the answer was complete"},
		{"no end but a mark", 200, events(created, "[DONE]"), model.Transient, "ended the stream before the answer was complete"},
		{"another object", 200, `{"choices":[]}`, model.Target, "the answer is not a response"},
		{"no JSON", 200, events("{"), model.Target, `sent a chunk that is not valid: "{"`},
		{"too many calls", 200, events(ends("completed", "", strings.Split(strings.Repeat(`{"type":"function_call"} `, wire.MaxCalls+1), " ")[:wire.MaxCalls+1]...)), model.Transient, "sent a turn with more than 1024 tool calls"},
		{"too many items", 200, events(ends("completed", "", strings.Split(strings.Repeat(`{"type":"x"} `, maxItems+1), " ")[:maxItems+1]...)), model.Transient, "sent a turn with more than 4096 items"},
	})
}

// An error inside an answer has the body that it would have with a status.
func TestTheBodyOfAFailure(t *testing.T) {
	p := serve(t, providertest.Answer(200, nil, events(created, ends("failed", `,"error":{"code":"server_error","message":"Oops"}`))))
	_, err := p.Stream(t.Context(), &model.Request{}, heard{}.emit)
	var e *model.Error
	if !errors.As(err, &e) || string(e.Body) != `{"error":{"code":"server_error","message":"Oops"}}` || e.Dialect != model.DialectResponses {
		t.Errorf("%#v", err)
	}
}

// A turn is refused where it is larger than a model writes, in deltas or at once.
func TestATurnThatIsTooLarge(t *testing.T) {
	large := strings.Repeat("x", wire.MaxTurn/2)
	for name, body := range map[string]string{
		"deltas": events(textDelta, `{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"delta":"`+large+`"}`, `{"type":"response.function_call_arguments.delta","output_index":1,"delta":"`+large+`"}`),
		"items":  events(done("0", `{"type":"x","y":"`+large+`"}`), done("1", `{"type":"x","y":"`+large+`"}`)),
		"whole":  `{"output":[{"type":"x","y":"` + large + large + `"}]}`,
	} {
		if got := decodeAll(strings.NewReader(body)); !strings.Contains(got.Err, "sent a turn larger than 8 MiB") {
			t.Errorf("%s: %s", name, got.Err)
		}
	}
	body := events(textDelta, done("0", strings.Replace(message, `"hi"`, `"h`+large+`"`, 1)), ends("completed", "", strings.Replace(message, `"hi"`, `"h`+large+`"`, 1)))
	if got := decodeAll(strings.NewReader(body)); got.Err != "<nil>" || len(got.Turn.Text()) != len(large)+1 {
		t.Errorf("a turn of half the size: %s", got.Err)
	}
}

// bound is a memory of so many bytes.
type bound struct{ left int }

var errFull = errors.New("full")

func (b *bound) Acquire(n int) error {
	if b.left -= n; b.left < 0 {
		return errFull
	}
	return nil
}

func (b *bound) Release(n int) { b.left += n }

// What a turn takes is charged while it comes: in pieces, at the end of an item or
// of the stream, and as one object.
func TestATurnIsCharged(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	large := strings.Replace(message, `"hi"`, `"`+text+`"`, 1)
	for name, body := range map[string]string{
		"pieces":        events(created, strings.Replace(textDelta, `"h"`, `"`+text+`"`, 1), ends("completed", "")),
		"an item":       events(created, done("0", large), ends("completed", "")),
		"the last item": events(created, ends("completed", "", large)),
		"one object":    `{"output":[` + large + `]}`,
	} {
		if _, err := decode(strings.NewReader(body), &bound{2 * len(text)}, false, heard{}.emit); !errors.Is(err, errFull) {
			t.Errorf("%s: %v with memory for less than the turn", name, err)
		}
		if _, err := decode(strings.NewReader(body), &bound{8 * len(text)}, false, heard{}.emit); err != nil {
			t.Errorf("%s: %v with memory for the turn", name, err)
		}
	}
}

// A member that the gateway adds by itself and that the provider refuses is left
// out, at once and from then on.
func TestRefusedMembersAreLeftOut(t *testing.T) { // M05
	refuse := func(w http.ResponseWriter, param, message string) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"`+message+`","type":"invalid_request_error","param":"`+param+`","code":null}}`)
	}
	var bodies []string
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		switch {
		case bytes.Contains(body, []byte("summary")):
			refuse(w, "reasoning.summary", "Your organization must be verified to generate reasoning summaries.")
		case bytes.Contains(body, []byte("include")):
			refuse(w, "include", "Encrypted content is not supported with this model.")
		default:
			_, _ = io.WriteString(w, events(created, ends("completed", "", message)))
		}
	})
	req := &model.Request{Model: "prod", Options: model.Options{Effort: "low"}, Items: []item.Item{item.NewText(item.User, "x")}}
	for range 2 {
		turn, err := p.Stream(t.Context(), req, heard{}.emit)
		if err != nil || turn.Text() != "hi" {
			t.Fatal(turn, err)
		}
	}
	if len(bodies) != 4 || bodies[2] != bodies[3] || !strings.Contains(bodies[3], `"reasoning":{"effort":"low"},"store"`) {
		t.Errorf("%q", bodies)
	}
	req.Model = "other"
	if _, err := p.Stream(t.Context(), req, heard{}.emit); err != nil || len(bodies) != 7 {
		t.Errorf("another model: %v after %d requests", err, len(bodies))
	}
}

// Any other refusal is the client's to see.
func TestOtherRefusalsAreReturned(t *testing.T) {
	asked := 0
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		providertest.Answer(400, nil, `{"error":{"message":"Unsupported parameter","type":"invalid_request_error","param":"temperature","code":"unsupported_parameter"}}`)(w, r)
	})
	_, err := p.Stream(t.Context(), &model.Request{Model: "m", Options: model.Options{Effort: "low"}}, heard{}.emit)
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.Invalid || asked != 1 {
		t.Errorf("%v after %d requests", err, asked)
	}
}

// FuzzDecode: whatever a provider sends, the turn can be stored and sent
// back, and the deltas tell it.
func FuzzDecode(f *testing.F) {
	f.Add(events(created, callBegan, callArgs, done("0", call), ends("completed", "", call)))
	f.Add(events(created, textDelta, done("0", message), ends("incomplete", `,"incomplete_details":{"reason":"x"},"usage":{"input_tokens":-1}`)))
	f.Add(`{"id":"r","output":[{"type":"reasoning","id":"x","summary":[{"type":"summary_text","text":"a"}],"content":null},` + message + `,{"type":"x"}]}`)
	f.Add(events(done("9", `{"type":"message","content":[7,null,{"type":"output_text"}]}`), done("-1", `{}`), `{"type":"error","message":"x"}`))
	f.Add(`{"output":[{"content":[{"type":"output_text","text":"0"}]}]}`) // an item without a type
	f.Fuzz(func(t *testing.T, body string) { dialect().CheckAnyAnswer(t, body) })
}

// The last response says which tier served the request; before it there is what the request asked for.
func TestUsageSaysTheServiceTierThatHasPricesOfItsOwn(t *testing.T) { // P41
	for named, want := range map[string]string{"default": "", "flex": model.TierFlex, "priority": model.TierPriority, "scale": "scale", "unknown": ""} {
		first := strings.Replace(created, `"usage":null`, `"usage":null,"service_tier":"auto"`, 1)
		in := events(first, ends("completed", `,"service_tier":"`+named+`","usage":{"input_tokens":5,"output_tokens":1,"total_tokens":6}`, message))
		if got := decodeAll(strings.NewReader(in)).Turn.Usage; (got != model.Usage{Input: 5, Output: 1, Total: 6, ServiceTier: want}) {
			t.Errorf("%q: %+v", named, got)
		}
	}
}
