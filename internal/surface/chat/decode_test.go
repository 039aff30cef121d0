package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func jsonUnmarshal(text string, into any) error { return json.Unmarshal([]byte(text), into) }

func decodeText(t testing.TB, body string) (*run.Request, asked, error) {
	t.Helper()
	members, err := surface.Scan(nil, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	req := &run.Request{Input: run.Input{Targets: []route.Target{{Target: loop.Target{Provider: "up"}, Client: chatModel{}}}}}
	a, err := decode(req, members)
	return req, a, err
}

func TestARequestIsDecoded(t *testing.T) {
	req, a, err := decodeText(t, `{"model":"m","temperature":1e400,"stream":true,"stream_options":{"include_usage":true,"x":1},
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}},{"type":"custom","custom":{"name":"c"}}],
		"tool_choice":{"type":"function","function":{"name":"f"}},"n":1,"logprobs":true,"audio":null,"seed":7,"seed":8,
		"messages":[
			{"role":"system","content":"be brief"},
			{"role":"user","name":"ann","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"http://x/i.png","detail":"low"}},{"type":"odd","odd":1}]},
			{"role":"assistant","content":null,"refusal":"no","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{bad"}}]},
			{"role":"tool","tool_call_id":"c1","content":"\ud800"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if !a.stream || !a.includeUsage || !cmp.Equal(a.dropped, []string{"logprobs"}) {
		t.Errorf("%+v", a)
	}
	var params []string
	for _, p := range req.Params {
		params = append(params, p.Name+"="+string(p.Value))
	}
	if want := []string{"temperature=1e400", `stream_options={"include_usage":true,"x":1}`, "audio=null", "seed=8"}; !cmp.Equal(params, want) {
		t.Errorf("parameters %q, want %q", params, want)
	}
	if len(req.ClientTools) != 2 || req.ClientTools[0].Name != "f" || req.ClientTools[1].Name != "c" || !strings.Contains(string(req.ClientTools[0].Native), `"strict":true`) {
		t.Errorf("%+v", req.ClientTools)
	}
	if c := req.ToolChoice; c.Mode != "named" || c.Name != "f" {
		t.Errorf("%+v", c)
	}
	for i := range req.Items {
		if first := item.TurnStart(req.Items, i) == i; first != (req.Items[i].Native.Dialect == model.DialectChat && len(req.Items[i].Native.JSON) > 0) {
			t.Errorf("item %d: the first item of a message has the native form, and no other: %+v", i, req.Items[i].Native)
		}
	}
	for i := range req.Items {
		req.Items[i].Native = item.Native{}
	}
	want := item.List{
		item.NewText(item.System, "be brief"),
		{Kind: item.Message, Role: item.User, Name: "ann", Parts: []item.Part{{Kind: item.Text, Text: "look"}, {Kind: item.Image, URL: "http://x/i.png", Detail: "low"}}},
		{Kind: item.Message, Turn: 1, Role: item.Assistant, Parts: []item.Part{{Kind: item.Refusal, Text: "no"}}},
		{Kind: item.ToolCall, Turn: 1, CallID: "c1", Name: "f", Arguments: "{bad"},
		item.NewResult("c1", "\uFFFD", false),
	}
	if diff := cmp.Diff(want, req.Items); diff != "" {
		t.Error(diff)
	}
}

func TestCacheMarkers(t *testing.T) { // M02
	members, err := surface.Scan(nil, []byte(`{"messages":[{"role":"system","content":"s","cache_control":{"type":"ephemeral","ttl":"1h"}},
		{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b","cache_control":null}]}],
		"tools":[{"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral"}}],"cache_control":{"type":"ephemeral","ttl":"5m"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req := &run.Request{}
	if _, err := decode(req, members); err != nil {
		t.Fatal(err)
	}
	got := []*item.Cache{req.Items[0].Parts[0].Cache, req.Items[1].Parts[0].Cache, req.Items[1].Parts[1].Cache, req.ClientTools[0].Cache, req.Options.Cache}
	if diff := cmp.Diff([]*item.Cache{{TTL: "1h"}, {}, nil, {}, {TTL: "5m"}}, got); diff != "" {
		t.Error(diff)
	}
	if !req.Params[0].Typed {
		t.Errorf("%+v", req.Params)
	}
}

func TestToolChoices(t *testing.T) {
	for text, want := range map[string]model.ToolChoice{
		`null`:     {},
		`"auto"`:   {Mode: "auto", Native: json.RawMessage(`"auto"`)},
		`"none"`:   {Mode: "none", Native: json.RawMessage(`"none"`)},
		`{"a":{}}`: {Mode: "named", Native: json.RawMessage(`{"a":{}}`)},
	} {
		if diff := cmp.Diff(want, new(asked).decodeToolChoice(json.RawMessage(text))); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// A body of very many members must not take very long: it is one client's, and
// the processor is everybody's.
func TestManyMembersAreDecodedInReasonableTime(t *testing.T) {
	const n = 4_000
	for name, member := range map[string]func(i int) string{
		"different": func(i int) string { return fmt.Sprintf(`"k%07d":1,`, i) },
		"the same":  func(int) string { return `"k":1,` },
	} {
		t.Run(name, func(t *testing.T) {
			decode := func(n int) time.Duration {
				var b strings.Builder
				b.WriteString("{")
				for i := range n {
					b.WriteString(member(i))
				}
				b.WriteString(`"messages":[{"role":"user","content":"x"}]}`)
				begin := time.Now()
				_, _, err := decodeText(t, b.String())
				if err != nil && !errors.As(err, new(*fault.Error)) {
					t.Error(err)
				}
				return time.Since(begin)
			}
			// A time that grows with the square is 64 times as long. The shortest of several counts,
			// and a busy machine is given more tries.
			few, many := time.Hour, time.Hour
			for begin := time.Now(); time.Since(begin) < 30*time.Second; {
				few, many = min(few, decode(n)), min(many, decode(8*n))
				if many < 40*few {
					return
				}
			}
			t.Errorf("%d members take %v, and 8 times as many %v", n, few, many)
		})
	}
}

// Whatever a client sends: no panic, and an error is one that it may see.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":"x"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"},null,1]}],"tools":[null],"tool_choice":7}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":null}]}],"n":-1,"stream":null}`,
		`{"files":[{"name":"a/../b.png","format":"png"},{"name":"/work/c"},null],"messages":[{"role":"user","content":"x"}]}`,
		`{"stream_options":null,"messages":[{"role":"tool","tool_call_id":"c","content":null}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		members, err := surface.Scan(nil, body)
		if err != nil {
			return
		}
		req := &run.Request{Input: run.Input{Targets: []route.Target{{Target: loop.Target{Provider: "up"}, Client: chatModel{}}}}}
		if _, err = decode(req, members); err != nil {
			var shown *fault.Error
			if !errors.As(err, &shown) || shown.Code != fault.Invalid {
				t.Fatalf("%v", err)
			}
			return
		}
		if len(req.Items) == 0 {
			t.Fatal("no items and no error")
		}
		for i, it := range req.Items {
			if (it.Kind == item.Message) != (it.Role != "") || it.Kind == "" || item.TurnStart(req.Items, i) == i && !json.Valid(it.Native.JSON) {
				t.Fatalf("%+v", it)
			}
		}
		if _, err := json.Marshal(req.Items); err != nil { // what the journal stores
			t.Fatal(err)
		}
	})
}

// Some clients write the URL of an image without an object around it.
func TestAnImageCanBeABareURL(t *testing.T) {
	req, _, err := decodeText(t, `{"model":"m","messages":[{"role":"user","content":[
		{"type":"image_url","image_url":"https://x/i.png"},{"type":"image_url","image_url":null},{"type":"image_url","image_url":{"url":"https://x/j.png","detail":"low"}}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []item.Part{{Kind: item.Image, URL: "https://x/i.png"}, {Kind: item.Image}, {Kind: item.Image, URL: "https://x/j.png", Detail: "low"}}
	if got := req.Items[0].Parts; !cmp.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if _, _, err := decodeText(t, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":7}]}]}`); err == nil || !strings.Contains(err.Error(), "messages[0].content") {
		t.Errorf("a number: %v", err)
	}
}

// A choice of tools that cannot be read is not one of no tools.
func TestAToolChoiceThatCannotBeReadIsNotTranslated(t *testing.T) {
	for choice, native := range map[string]bool{
		`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}`:  false,
		`{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}`:                                         false,
		`{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}`:                                 true, // of Responses
		`{"type":"allowed_tools","allowed_tools":{"mode":"never","tools":[{"type":"function","function":{"name":"f"}}]}}`: true,
		`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","name":"f"}]}}`:               true,
		`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"custom","custom":{"name":"f"}}]}}`:      false,
		`{"type":"tool","function":{"name":"f"}}`:                                                                         true,
		`{"type":"function","function":{"name":"f"}}`:                                                                     false,
		`{"type":"function","name":"f"}`:                                                                                  true,
		`{"function":{"name":"f"}}`:                                                                                       false,
	} {
		req, a, err := decodeText(t, `{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":`+choice+`,"messages":[{"role":"user","content":"x"}]}`)
		if err != nil || (a.native == "tool_choice") != native {
			t.Errorf("%s: %+v, native %q, %v", choice, req.ToolChoice, a.native, err)
		}
	}
}

// P22
func TestValuesThatSayNothingAreNotDropped(t *testing.T) {
	for member, typed := range map[string]bool{
		`"max_tokens":null`: true, `"max_completion_tokens":null`: true, `"temperature":null`: true, `"top_k":null`: true, `"seed":null`: true,
		`"stop":null`: true, `"stop":[]`: true, `"stop":""`: true, `"response_format":null`: true, `"user":""`: true, `"metadata":{}`: true,
		`"logit_bias":null`: true, `"logit_bias":{}`: true, `"logit_bias":{ }`: true, `"prediction":null`: true, `"service_tier":"auto"`: true,
		`"store":null`: true, `"prompt_cache_key":""`: true, `"presence_penalty":0`: true, `"logprobs":null`: true, `"top_logprobs":0`: true, `"modalities":[]`: true,
		`"logit_bias":{"1":2}`: false, `"max_tokens":0`: false, `"max_tokens":"x"`: false, `"service_tier":"flex"`: false,
		`"web_search_options":{}`: false, `"prompt_cache_key":"k"`: false,
	} {
		req, a, err := decodeText(t, `{"model":"m","messages":[{"role":"user","content":"q"}],`+member+`}`)
		if err != nil || len(req.Params) != 1 || req.Params[0].Typed != typed || len(a.dropped) > 0 {
			t.Errorf("%s: %v, %+v, dropped %q, want typed %v", member, err, req.Params, a.dropped, typed)
		}
	}
}

func TestResultsBelongToCalls(t *testing.T) {
	call := func(ids ...string) string {
		var calls []string
		for _, id := range ids {
			calls = append(calls, `{"id":"`+id+`","type":"function","function":{"name":"f","arguments":"{}"}}`)
		}
		return `{"role":"assistant","tool_calls":[` + strings.Join(calls, ",") + `]}`
	}
	result := func(id, text string) string {
		return `{"role":"tool","tool_call_id":"` + id + `","content":"` + text + `"}`
	}
	const place = "messages[%d].tool_call_id"
	for name, tt := range map[string]struct {
		messages []string
		results  string // of the items
		at       int    // of the message that is refused; 0 = none
	}{
		"twice the same":           {[]string{call("a", "b"), result("a", "1"), result("b", "2"), result("a", "1")}, "1 2", 0},
		"twice, and not the same":  {[]string{call("a"), result("a", "1"), result("a", "2")}, "", 3},
		"two calls with one id":    {[]string{call("a", "a"), result("a", "1"), result("a", "1"), result("a", "1")}, "1 1", 0},
		"a later call with the id": {[]string{call("a"), result("a", "1"), call("a"), result("a", "2")}, "1 2", 0},
		"calls without ids":        {[]string{call(""), result("", "1")}, "1", 0},
		"no call":                  {[]string{call("a"), result("a", "1"), result("x", "1")}, "", 3},
		"no call at all":           {[]string{result("x", "1")}, "", 1},
	} {
		req, _, err := decodeText(t, `{"model":"m","messages":[{"role":"user","content":"q"},`+strings.Join(tt.messages, ",")+`]}`)
		var got []string
		for _, it := range req.Items {
			if it.Kind == item.ToolResult {
				got = append(got, it.Text())
			}
		}
		var f *fault.Error
		want := fmt.Sprintf(place, tt.at)
		switch {
		case tt.at == 0 && (err != nil || strings.Join(got, " ") != tt.results):
			t.Errorf("%s: %v, results %q", name, err, got)
		case tt.at > 0 && (!errors.As(err, &f) || f.Code != fault.Invalid || f.Param != want):
			t.Errorf("%s: %v, want a fault at %s", name, err, want)
		}
	}
}
