package openai

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// delta is an event with one delta; end one with a finish reason.
func delta(members string) string {
	return `data: {"id":"x","model":"m","choices":[{"index":0,"delta":{` + members + `}}]}` + "\n\n"
}

func end(reason string) string {
	return `data: {"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}` + "\n\n"
}

const done = "data: [DONE]\n\n"

// brief is a turn in one line: text|reasoning|refusal|calls|stop, an
// incomplete call with a question mark.
func brief(o providertest.Outcome) string {
	if o.Turn == nil {
		return "no turn"
	}
	var h providertest.Heard
	for _, d := range o.Deltas {
		_ = h.Emit(d)
	}
	var calls []string
	for _, c := range o.Turn.Calls {
		s := fmt.Sprintf("%s:%s(%s)", c.ID, c.Name, c.Arguments)
		if !c.Complete {
			s += "?"
		}
		calls = append(calls, s)
	}
	return strings.Join([]string{h.Text, h.Reasoning, h.Refusal, strings.Join(calls, " "), string(o.Turn.Stop)}, "|")
}

func callPiece(v string) string { return delta(`"tool_calls":[` + v + `]`) }

func TestDecode(t *testing.T) { // M01
	for _, tt := range []struct{ name, in, want string }{
		{"text in pieces", delta(`"role":"assistant","content":"a"`) + delta(`"content":"b\n"`) + delta(`"content":"\u00e9\""`) + end("stop") + done, "ab\né\"||||stop"},
		{"null and empty content", delta(`"content":null`) + delta(`"content":""`) + delta(`"content":"a"`) + end("stop") + done, "a||||stop"},
		{"the delta before the index", `data: {"choices":[{"delta":{"content":"a"},"index":0},{"delta":{"content":"b"},"index":1}]}` + "\n\n" + end("stop"), "a||||stop"},
		{"a refusal", delta(`"refusal":"no"`) + delta(`"refusal":"pe"`) + end("stop") + done, "||nope||stop"},
		{"reasoning_content", delta(`"reasoning_content":"a"`) + delta(`"reasoning_content":"b"`) + delta(`"content":"c"`) + end("stop"), "c|ab|||stop"},
		{"reasoning and its details are said once", delta(`"reasoning_details":[{"index":0,"text":"a"}],"reasoning":"a"`) + delta(`"reasoning":"b","reasoning_content":"b"`) + end("stop"), "|ab|||stop"},
		{"only details", delta(`"reasoning_details":[{"index":0,"type":"reasoning.text","text":"a"},{"type":"reasoning.summary","summary":"b"}]`) + end("stop"), "|ab|||stop"},
		{"content as parts", delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]},{"type":"text","text":"b"}]`) + delta(`"content":"c"`) + end("stop"), "bc|a|||stop"},
		{"a call in pieces", callPiece(`{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":""}}`) + callPiece(`{"index":0,"function":{"arguments":"{\"a\""}}`) + callPiece(`{"index":0,"function":{"arguments":":1}"}}`) + end("tool_calls") + done, `|||1:f({"a":1})|tool_calls`},
		{"id and name with every piece", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}`) + callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"}"}}`) + end("tool_calls"), `|||1:f({})|tool_calls`},
		{"a name in pieces", callPiece(`{"index":0,"id":"1","function":{"name":"get_"}}`) + callPiece(`{"index":0,"function":{"name":"sum"}}`) + callPiece(`{"index":0,"function":{"arguments":"{}"}}`) + end("tool_calls"), `|||1:get_sum({})|tool_calls`},
		{"no index", callPiece(`{"id":"1","function":{"name":"f","arguments":"{"}}`) + callPiece(`{"function":{"arguments":"}"}}`) + callPiece(`{"id":"2","function":{"name":"f","arguments":"{}"}}`) + end("stop"), `|||1:f({}) 2:f({})|tool_calls`},
		{"no index, no id", callPiece(`{"function":{"name":"f","arguments":"{}"}}`) + callPiece(`{"function":{"name":"f","arguments":"{}"}}`) + end("stop"), `|||:f({}) :f({})|tool_calls`},
		{"several whole calls in one delta without index", callPiece(`{"id":"1","function":{"name":"f","arguments":""}},{"id":"2","function":{"name":"g","arguments":"{}"}}`) + end("stop"), `|||1:f() 2:g({})|tool_calls`},
		{"one index for all calls", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + callPiece(`{"index":0,"id":"2","function":{"name":"g","arguments":"{}"}}`) + end("tool_calls"), `|||1:f({}) 2:g({})|tool_calls`},
		{"one id for two indexes", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + callPiece(`{"index":1,"id":"1","function":{"name":"f","arguments":"{}"}}`) + end("tool_calls"), `|||1:f({}) 1:f({})|tool_calls`},
		{"a call that is sent twice is one", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}`) + callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}`) + end("tool_calls"), `|||1:f({"a":1})|tool_calls`},
		{"a gap in the indexes", callPiece(`{"index":1,"id":"1","function":{"name":"f","arguments":"{}"}}`) + callPiece(`{"index":7,"id":"2","function":{"name":"g","arguments":"{}"}}`) + end("tool_calls"), `|||1:f({}) 2:g({})|tool_calls`},
		{"arguments as an object", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":{"a":1}}}`) + end("stop"), `|||1:f({"a":1})|tool_calls`},
		{"calls that were cut by the length", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + callPiece(`{"index":1,"id":"2","function":{"name":"g","arguments":"{}"}}`) + end("length"), `|||1:f({}) 2:g({})?|length`},
		{"or by the filter", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + end("content_filter"), `|||1:f({})?|content_filter`},
		{"the finish reason twice", delta(`"content":"a"`) + end("stop") + end("stop") + done, "a||||stop"},
		{"no finish reason but [DONE]", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + done, `|||1:f({})|tool_calls`},
		{"[DONE] without its empty line", delta(`"content":"a"`) + "data: [DONE]", "a||||stop"},
		{"a finish reason but no [DONE]", delta(`"content":"a"`) + end("stop"), "a||||stop"},
		{"a finish reason that nobody knows", delta(`"content":"a"`) + end("enough"), "a||||stop"},
		{"calls after the finish reason", delta(`"content":""`) + end("tool_calls") + delta(`"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}]`) + "data: [DONE]\n\n", "|||1:f({})|tool_calls"},
		{"a call of the old form", delta(`"function_call":{"name":"f","arguments":""}`) + delta(`"function_call":{"arguments":"{}"}`) + end("function_call"), "|||:f({})|tool_calls"},
		{"one object", " \n\t" + `{"id":"x","choices":[{"index":0,"message":{"content":"a","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`, "a|||1:f({})|tool_calls"},
		{"one object without a finish reason", `{"choices":[{"message":{"content":"a"}}]}`, "a||||stop"},
		{"one object that was cut by its length", `{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"length"}]}`, "|||1:f({})?|length"},
		{"comments, other fields and CRLF", ": hello\r\n\r\nevent: message\r\nid: 7\r\n" + strings.ReplaceAll(delta(`"content":"a"`)+end("stop"), "\n", "\r\n"), "a||||stop"},
		{"a message beside the last delta", delta(`"content":"a"`) + `data: {"choices":[{"index":0,"message":{"content":"a"},"delta":{},"finish_reason":"stop"}]}` + "\n\n", "a||||stop"},
		{"a message in place of deltas", `data: {"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n", "a||||stop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := decodeAll(strings.NewReader(tt.in))
			if brief(got) != tt.want || got.Err != "<nil>" {
				t.Errorf("%s, %s, want %s", brief(got), got.Err, tt.want)
			}
			providertest.CheckDeltas(t, got)
		})
	}
}

func TestDecodeFailures(t *testing.T) { // G07
	f, g := `{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`, `{"index":1,"id":"2","function":{"name":"g","arguments":"{}"}}`
	for _, tt := range []struct {
		name, in, want string
		class          model.ErrorClass
		message        string
	}{
		{"cut after a call that the next one ended", callPiece(f) + callPiece(g), "|||1:f({}) 2:g({})?|", model.Transient, "ended the stream before the answer was complete"},
		{"cut inside an event", callPiece(f) + callPiece(g)[:40], "|||1:f({})?|", model.Transient, "ended the stream before the answer was complete"},
		{"calls side by side are complete at the end only", callPiece(f) + callPiece(g) + callPiece(`{"index":0,"function":{"arguments":" "}}`), "|||1:f({} )? 2:g({})?|", model.Transient, "ended the stream before the answer was complete"},
		{"nothing at all", "", "no turn", model.Transient, "ended the stream before the answer was complete"},
		{"only white space", "\n\n\n", "no turn", model.Transient, "ended the stream before the answer was complete"},
		{"an error in a chunk", delta(`"content":"a"`) + `data: {"error":{"message":"overloaded","code":503}}` + "\n\n", "a||||", model.Transient, "overloaded"},
		{"an error event", delta(`"content":"a"`) + "event: error\n" + `data: {"message":"bad","type":"invalid_request_error"}` + "\n\n", "a||||", model.Invalid, "bad"},
		{"an error in a choice", delta(`"content":"a"`) + `data: {"choices":[{"index":0,"delta":{},"error":{"message":"gone","code":502},"finish_reason":"error"}]}` + "\n\n", "a||||", model.Transient, "gone"},
		{"finish reason error", delta(`"content":"a"`) + end("error"), "a||||", model.Transient, ""},
		{"garbage", callPiece(f) + callPiece(g) + "data: {oops\n\n", "|||1:f({}) 2:g({})?|", model.Target, `sent a chunk that is not valid: "{oops"`},
		{"a page", "<html>no</html>", "no turn", model.Target, "answered with text/html, not JSON. Is base_url right?"},
		{"a whole answer that was cut", `{"choices":[{"mess`, "no turn", model.Transient, `sent a chunk that is not valid: "{\"choices\":[{\"mess"`},
		{"a whole answer without choices", `{"ok":true}`, "no turn", model.Target, "the answer has no choices"},
		{"a whole answer that is an error", `{"error":{"message":"no","code":"content_filter","status":400}}`, "no turn", model.Filtered, "no"},
		{"an error in a list", `[{"error":{"message":"no","code":429}}]`, "no turn", model.Transient, "no"},
		{"a line that is too long", delta(`"content":"a"`) + "data: " + strings.Repeat("x", 1<<20+1), "a||||", model.Transient, "sent a stream that is too large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h providertest.Heard
			turn, err := decode(strings.NewReader(tt.in), nil, h.Emit)
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.class || e.Message != tt.message || e.Status != 200 {
				t.Errorf("%#v", err)
			}
			if got := brief(providertest.Outcome{Turn: turn, Deltas: h.Deltas}); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestUsageCountsTheLast(t *testing.T) {
	in := `data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}` + "\n\n" +
		`data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":null}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7.0,"prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":1},"completion_tokens_details":{"reasoning_tokens":1}}}` + "\n\n" + done
	want := model.Usage{Input: 5, Output: 2, Total: 7, CachedInput: 3, CacheWrite: 1, Reasoning: 1}
	if diff := cmp.Diff(want, decodeAll(strings.NewReader(in)).Turn.Usage); diff != "" {
		t.Error(diff)
	}
}

func TestStopReasons(t *testing.T) { // M06
	for raw, want := range map[string]model.Stop{
		"stop": model.StopEnd, "end_turn": model.StopEnd, "stop_sequence": model.StopEnd, "eos": model.StopEnd, "": model.StopEnd, "new": model.StopEnd,
		"length": model.StopLength, "max_tokens": model.StopLength, "MAX_TOKENS": model.StopLength, "max_output_tokens": model.StopLength,
		"tool_calls": model.StopCalls, "tool_use": model.StopCalls, "function_call": model.StopCalls,
		"content_filter": model.StopFilter, "refusal": model.StopFilter, "SAFETY": model.StopFilter, "guardrail_intervened": model.StopFilter,
	} {
		if got := stopOf(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}

// The native message is what the provider would have sent whole.
func TestNative(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"text", delta(`"role":"assistant","content":"a"`) + delta(`"content":"b"`) + end("stop"), `{"role":"assistant","content":"ab"}`},
		{"nothing", end("stop"), `{"role":"assistant","content":""}`},
		{"a refusal", delta(`"refusal":"no"`) + end("stop"), `{"role":"assistant","content":null,"refusal":"no"}`},
		{"only complete calls", callPiece(`{"index":0,"id":"1","type":"function","extra_content":{"s":"x"},"function":{"name":"f","arguments":"{}"}}`) + callPiece(`{"index":1,"id":"2","function":{"name":"g","arguments":"{"}}`) + end("length"), `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","extra_content":{"s":"x"},"function":{"name":"f","arguments":"{}"}}]}`},
		{"reasoning and labels", delta(`"reasoning":"ha ","channel":"analysis","mode":"deep"`) + delta(`"reasoning":"ha ","channel":"analysis","mode":"deep"`) + end("stop"), `{"role":"assistant","content":"","reasoning":"ha ha ","mode":"deep"}`},
		{"reasoning details by index and type", delta(`"reasoning_details":[{"index":0,"type":"t","text":"a","signature":""}]`) + delta(`"reasoning_details":[{"index":0,"type":"t","text":"b","signature":"s"},{"index":0,"type":"e","data":"d"},{"type":"x"}]`) + end("stop"), `{"role":"assistant","content":"","reasoning_details":[{"index":0,"type":"t","text":"ab","signature":"s"},{"index":0,"type":"e","data":"d"},{"type":"x"}]}`},
		{"unknown members of parts", delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]}]`) + delta(`"content":[{"type":"thinking","thinking":[],"closed":true}]`) + delta(`"content":[{"type":"text","text":"b","annotations":[1]}]`) + end("stop"), `{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}],"closed":true},{"type":"text","text":"b","annotations":[1]}]}`},
		{"the last of other members", delta(`"annotations":[],"meta":{"a":1},"n":1`) + delta(`"meta":{"a":2},"n":null`) + end("stop"), `{"role":"assistant","content":"","meta":{"a":2},"n":1}`},
		{"content as parts", delta(`"content":"x"`) + delta(`"content":[{"type":"thinking","thinking":"a"},{"type":"text","text":"b"}]`) + delta(`"content":[{"type":"text","text":"c"},{"type":"reference","ids":[1]}]`) + end("stop"), `{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"thinking","thinking":[{"type":"text","text":"a"}]},{"type":"text","text":"bc"},{"type":"reference","ids":[1]}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(decodeAll(strings.NewReader(tt.in)).Turn.Items[0].Native.JSON); got != tt.want {
				t.Errorf("\n%s, want\n%s", got, tt.want)
			}
		})
	}
}

func TestEmitErrorsEndTheCall(t *testing.T) {
	stop := errors.New("enough")
	for _, in := range []string{delta(`"content":"a"`), delta(`"reasoning":"a"`), delta(`"refusal":"a"`), delta(`"content":[{"type":"text","text":"a"}]`)} {
		_, err := decode(strings.NewReader(in+end("stop")), nil, func(model.Delta) error { return stop })
		if !errors.Is(err.(wire.Stopped).Err, stop) {
			t.Error(err)
		}
	}
}

// Each delta names its item. A call is opened when its id and name are settled.
func TestDeltas(t *testing.T) { // M01
	text := func(item int, s string) model.Delta { return model.Delta{Item: item, Text: s} }
	open := func(item int, id, name, args string) model.Delta {
		return model.Delta{Kind: model.CallDelta, Item: item, CallID: id, Name: name, Text: args}
	}
	args := func(item int, s string) model.Delta { return open(item, "", "", s) }
	decoding().Tells(t, []providertest.Told{
		{"reasoning, text and calls", delta(`"reasoning":"a"`) + delta(`"content":"b"`) + callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":""}}`) + callPiece(`{"index":0,"function":{"arguments":"{"}}`) + callPiece(`{"index":0,"function":{"arguments":"}"}}`) + end("tool_calls"),
			[]model.Delta{{Kind: model.ReasoningDelta, Text: "a"}, text(1, "b"), open(2, "1", "f", "{"), args(2, "}")}},
		{"text after a call", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + delta(`"content":"b"`) + end("tool_calls"),
			[]model.Delta{open(0, "1", "f", "{}"), text(1, "b")}},
		{"text after a refusal", delta(`"refusal":"no"`) + delta(`"content":"b"`) + end("stop"),
			[]model.Delta{{Kind: model.RefusalDelta, Text: "no"}, {Part: 1, Text: "b"}}},
		{"calls side by side", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{"}},{"index":1,"id":"2","function":{"name":"g","arguments":"["}}`) + callPiece(`{"index":0,"function":{"arguments":"}"}},{"index":1,"function":{"arguments":"]"}}`) + end("tool_calls"),
			[]model.Delta{open(0, "1", "f", "{"), open(1, "2", "g", "["), args(0, "}"), args(1, "]")}},
		{"one index for all calls", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + callPiece(`{"index":0,"id":"2","function":{"name":"g","arguments":"{"}}`) + callPiece(`{"index":0,"function":{"arguments":"}"}}`) + end("tool_calls"),
			[]model.Delta{open(0, "1", "f", "{}"), open(1, "2", "g", "{"), args(1, "}")}},
		{"a higher index first", callPiece(`{"index":1,"id":"1","function":{"name":"f","arguments":"{}"}}`) + callPiece(`{"index":0,"id":"2","function":{"name":"g","arguments":"{}"}}`) + end("tool_calls"),
			[]model.Delta{open(0, "1", "f", "{}"), open(1, "2", "g", "{}")}},
		{"a name in pieces", callPiece(`{"index":0,"id":"1","function":{"name":"get_"}}`) + callPiece(`{"index":0,"function":{"name":"sum"}}`) + callPiece(`{"index":0,"function":{"arguments":"{}"}}`) + end("tool_calls"),
			[]model.Delta{open(0, "1", "get_sum", "{}")}},
		{"an id that comes late", callPiece(`{"index":0,"function":{"name":"f","arguments":"{"}}`) + callPiece(`{"index":0,"id":"1","function":{"arguments":"}"}}`) + callPiece(`{"index":0,"function":{"arguments":" "}}`) + end("tool_calls"),
			[]model.Delta{open(0, "1", "f", "{}"), args(0, " ")}},
		{"an id that never comes", callPiece(`{"function":{"name":"f","arguments":"{"}}`) + callPiece(`{"function":{"arguments":"}"}}`) + delta(`"content":"b"`) + end("tool_calls"),
			[]model.Delta{text(1, "b"), open(0, "", "f", "{}")}},
		{"a call without arguments", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":""}}`) + end("tool_calls"),
			[]model.Delta{open(0, "1", "f", "")}},
		{"a call that is sent twice", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}`) + callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}`) + end("tool_calls"),
			[]model.Delta{open(0, "1", "f", `{"a":1}`)}},
		{"arguments as an object", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":{"a":1}}}`) + end("stop"),
			[]model.Delta{open(0, "1", "f", `{"a":1}`)}},
		{"a call that was cut off", callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}`) + delta(`"content":"b"`) + end("length"),
			[]model.Delta{open(0, "1", "f", "{"), text(1, "b")}},
	})
}

// Whatever comes, the decoder ends with a turn or an error, and the same ones
// at every split.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		delta(`"content":"a"`) + delta(`"content":"b\u00e9"`) + end("stop") + done,
		delta(`"reasoning":"a","reasoning_details":[{"index":0,"text":"a"}]`) + callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + end("length"),
		delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]},{"type":"text","text":"b"}]`) + done,
		" {\"choices\":[{\"message\":{\"content\":\"a\"}}]}", "event: error\ndata: {\"error\":\"x\"}\n\n", `[{"error":{"code":1}}]`,
		"\xef\xbb\xbf" + callPiece(`{"function":{"name":"f"}},{"function":{"name":"g"}}`) + callPiece(`{"id":"1"}`),
	} {
		f.Add(s, uint16(7))
	}
	f.Fuzz(func(t *testing.T, in string, cut uint16) {
		want := decodeAll(strings.NewReader(in))
		if want.Turn != nil && !jsonscan.Valid(want.Turn.Items[0].Native.JSON) {
			t.Fatalf("native is no JSON: %s", want.Turn.Items[0].Native.JSON)
		}
		providertest.CheckDeltas(t, want)
		at := int(cut) % (len(in) + 1)
		for _, src := range []io.Reader{
			iotest.OneByteReader(strings.NewReader(in)), iotest.DataErrReader(strings.NewReader(in)),
			io.MultiReader(strings.NewReader(in[:at]), strings.NewReader(in[at:])),
		} {
			if diff := cmp.Diff(want, decodeAll(src), cmp.AllowUnexported(providertest.Outcome{})); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// A chunk that is decoded by comparison with the last one means the same as
// one that is decoded alone.
func FuzzTemplate(f *testing.F) {
	f.Add(`{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":"b\n"}}]}`)
	f.Add(`{"choices":[{"message":{"content":"a"}}]}`, `{"choices":[{"message":{"content":"b"}}]}`)
	f.Add(`{"choices":[{"delta":{"reasoning":"a","content":""}}]}`, `{"choices":[{"delta":{"reasoning":"","content":""}}]}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		first, second = strings.TrimSpace(first), strings.TrimSpace(second)
		if first == "" || second == "" {
			return
		}
		var fast, slow providertest.Heard
		a, b := &assembly{Emit: fast.Emit}, &assembly{Emit: slow.Emit}
		if a.chunk([]byte(first)) != nil {
			return
		}
		_ = b.chunk([]byte(first))
		b.last.known = false
		errA, errB := a.chunk([]byte(second)), b.chunk([]byte(second))
		if diff := cmp.Diff(slow.Deltas, fast.Deltas); diff != "" || (errA == nil) != (errB == nil) || string(a.native()) != string(b.native()) {
			t.Fatalf("%v %v\n%s\n%s\n%s", errA, errB, a.native(), b.native(), diff)
		}
	})
}

func benchmarkChunk(b *testing.B, chunks ...string) {
	a := &assembly{Emit: func(model.Delta) error { return nil }}
	data := make([][]byte, len(chunks))
	for i, c := range chunks {
		data[i] = []byte(c)
	}
	b.SetBytes(int64(len(chunks[0])))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := a.chunk(data[i%len(data)]); err != nil {
			b.Fatal(err)
		}
		i++
		a.content.text = a.content.text[:0]
	}
}

func BenchmarkChunkLikeTheLast(b *testing.B) {
	benchmarkChunk(b, `{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1773932885,"model":"gpt-5","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}`)
}

func BenchmarkChunkWithPadding(b *testing.B) {
	benchmarkChunk(b,
		`{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1773932885,"model":"gpt-5","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"obfuscation":"abc"}`,
		`{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1773932885,"model":"gpt-5","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"obfuscation":"defg"}`)
}

func TestATurnHasSoManyCalls(t *testing.T) { // P06
	for _, n := range []int{wire.MaxCalls, wire.MaxCalls + 1} {
		p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			for i := range n {
				_, _ = io.WriteString(w, callPiece(fmt.Sprintf(`{"index":%d,"id":"c%d","function":{"name":"f","arguments":"{}"}}`, i, i)))
			}
			_, _ = io.WriteString(w, end("tool_calls"))
		})
		turn, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit)
		var e *model.Error
		switch {
		case n == wire.MaxCalls && (err != nil || len(turn.Calls) != n):
			t.Errorf("%d calls: %v", n, err)
		case n > wire.MaxCalls && (!errors.As(err, &e) || e.Message != "sent a turn with more than 1024 tool calls"):
			t.Errorf("%d calls: %v", n, err)
		}
	}
}

// A budget is neither refilled by what a provider says nor overflows.
// The output includes reasoning, also of providers that report it apart.
func TestUsageIncludesReasoning(t *testing.T) { // M06
	for said, want := range map[string]model.Usage{
		`"prompt_tokens":470,"completion_tokens":68,"total_tokens":723,"completion_tokens_details":{"reasoning_tokens":185}`:  {Input: 470, Output: 253, Total: 723, Reasoning: 185},
		`"prompt_tokens":470,"completion_tokens":253,"total_tokens":723,"completion_tokens_details":{"reasoning_tokens":185}`: {Input: 470, Output: 253, Total: 723, Reasoning: 185},
		`"prompt_tokens":9,"completion_tokens":52,"total_tokens":61,"completion_tokens_details":{"reasoning_tokens":232}`:     {Input: 9, Output: 284, Total: 293, Reasoning: 232},
		`"prompt_tokens":9,"completion_tokens":52,"completion_tokens_details":{"reasoning_tokens":52}`:                        {Input: 9, Output: 52, Reasoning: 52},
		`"completion_tokens_details":{"reasoning_tokens":5}`:                                                                  {Output: 5, Reasoning: 5},
	} {
		in := end("stop") + `data: {"choices":[],"usage":{` + said + "}}\n\n" + done
		decoding().Counts(t, want, in)
	}
}

func TestUsageIsBelievedWithinBounds(t *testing.T) { // P04
	for said, want := range map[string]int64{
		"-5": 0, "-1e30": 0, "0": 0, "7": 7, "7.9": 7, "1000000000": wire.MaxUsage, "1000000001": wire.MaxUsage,
		"9223372036854775807": wire.MaxUsage, "99999999999999999999": wire.MaxUsage, "1e999": wire.MaxUsage, `"7"`: 0, "null": 0, "[]": 0,
	} {
		in := end("stop") + `data: {"choices":[],"usage":{"prompt_tokens":` + said + `,"completion_tokens":` + said + `,"total_tokens":` + said +
			`,"prompt_tokens_details":{"cached_tokens":` + said + `},"completion_tokens_details":{"reasoning_tokens":` + said + `}}}` + "\n\n" + done
		got := decodeAll(strings.NewReader(in)).Turn.Usage
		if (got != model.Usage{Input: want, Output: want, Total: want, CachedInput: want, Reasoning: want}) {
			t.Errorf("%s tokens: %+v", said, got)
		}
	}
}

func TestAnAnswerThatIsCompressedIsRefusedUnread(t *testing.T) { // P06
	p := serve(t, providertest.Answer(200, map[string]string{"Content-Encoding": "gzip"}, "\x1f\x8b"), func(e *wire.Endpoint) {
		e.Transport.(*http.Transport).DisableCompression = true
	})
	_, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit)
	var e *model.Error
	if !errors.As(err, &e) || e.Message != `answered with the content encoding "gzip"` {
		t.Error(err)
	}
}

// The dialect counts cached and written tokens within the input. Providers have several names for them.
func TestUsageKeepsCachedAndWrittenTokensApart(t *testing.T) { // M06 P41
	for said, want := range map[string]model.Usage{
		`"prompt_tokens":1000,"completion_tokens":5,"total_tokens":1005,"prompt_tokens_details":{"cached_tokens":900}`:                        {Input: 1000, CachedInput: 900, Output: 5, Total: 1005},
		`"prompt_tokens":1000,"completion_tokens":5,"total_tokens":1005,"prompt_tokens_details":{"cached_tokens":0},"cached_tokens":900`:      {Input: 1000, CachedInput: 900, Output: 5, Total: 1005},
		`"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"gpu_ms":750`:                                                             {Input: 10, Output: 5, Total: 15, GPUMS: 750},
		`"prompt_tokens":1000,"completion_tokens":5,"total_tokens":1005,"prompt_cache_hit_tokens":900,"prompt_cache_miss_tokens":100`:         {Input: 1000, CachedInput: 900, Output: 5, Total: 1005},
		`"prompt_tokens":1000,"completion_tokens":5,"total_tokens":1005,"prompt_tokens_details":{"cached_tokens":200,"cache_write_tokens":7}`: {Input: 1000, CachedInput: 200, CacheWrite: 7, Output: 5, Total: 1005},
		`"prompt_tokens":1000,"completion_tokens":5,"total_tokens":1005,"cache_creation_input_tokens":700,"prompt_tokens_details":` +
			`{"cache_creation_tokens":700,"cache_creation_token_details":{"ephemeral_5m_input_tokens":300,"ephemeral_1h_input_tokens":400}}`: {
			Input: 1000, CacheWrite: 700, CacheWrite1h: 400, Output: 5, Total: 1005},
		`"prompt_tokens":1000,"completion_tokens":5,"total_tokens":1005,"prompt_tokens_details":{"cache_creation_token_details":{"ephemeral_1h_input_tokens":400}}`: {
			Input: 1000, CacheWrite: 400, CacheWrite1h: 400, Output: 5, Total: 1005},
	} {
		in := end("stop") + `data: {"choices":[],"usage":{` + said + "}}\n\n" + done
		decoding().Counts(t, want, in)
	}
}

func TestUsageSaysTheServiceTierThatHasPricesOfItsOwn(t *testing.T) { // P41
	for named, want := range map[string]string{"auto": "", "default": "", "flex": model.TierFlex, "priority": model.TierPriority, "scale": "scale", "": ""} {
		in := `data: {"service_tier":"auto","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n" +
			`data: {"service_tier":"` + named + `","choices":[],"usage":{"prompt_tokens":5}}` + "\n\n" + done
		if got := decodeAll(strings.NewReader(in)).Turn.Usage; got.ServiceTier != want || got.Input != 5 {
			t.Errorf("%q: %+v", named, got)
		}
	}
	in := end("stop") + `data: {"service_tier":"priority","choices":[]}` + "\n\n" + done
	if got := decodeAll(strings.NewReader(in)).Turn.Usage; got != (model.Usage{}) {
		t.Errorf("no usage was reported: %+v", got)
	}
}
