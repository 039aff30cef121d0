package event_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// encodings has an event of each type that is stored, with every field set, and its
// JSON. Clients and stores hold this JSON: a line changes only with event.Version.
var encodings = []struct {
	event event.Event
	json  string
}{
	{event.Started{RunID: "run_1", Model: "m", At: time.UnixMilli(1700000000123).UTC(), Queued: true},
		`{"v":1,"type":"started","run_id":"run_1","model":"m","at":"2023-11-14T22:13:20.123Z","queued":true}`},
	{event.ToolsListed{Servers: []event.ListedServer{
		{Server: "s", Tools: []tool.Definition{{Name: "look", Description: "<Looks>.", InputSchema: []byte(`{"type":"object"}`)}}}, {Server: "t", Error: "down"},
	}},
		`{"v":1,"type":"tools_listed","servers":[{"server":"s","tools":[{"name":"look","description":"<Looks>.","input_schema":{"type":"object"}}]},` +
			`{"server":"t","tools":null,"error":"down"}]}`},
	{event.RoundStarted{Round: 1, Attempt: 2, Missing: []string{"s"}, Target: event.Target{Provider: "p", Model: "m"}, Continues: 3, NoTools: true, At: time.UnixMilli(1700000000123).UTC()},
		`{"v":1,"type":"round_started","round":1,"attempt":2,"missing_servers":["s"],"target":{"provider":"p","model":"m"},"continues":3,"no_tools":true,"at":"2023-11-14T22:13:20.123Z"}`},
	{event.ModelFallback{
		Round: 1, From: event.Target{Provider: "p", Model: "m"}, To: event.Target{Provider: "q", Model: "n"}, Class: model.Transient,
		Skipped: []event.SkippedTarget{{Target: event.Target{Provider: "r", Model: "o"}, Reason: "breaker_open"}},
		At:      time.UnixMilli(1700000000123).UTC(),
	}, `{"v":1,"type":"model_fallback","round":1,"from":{"provider":"p","model":"m"},"to":{"provider":"q","model":"n"},"class":"transient",` +
		`"skipped":[{"target":{"provider":"r","model":"o"},"reason":"breaker_open"}],"at":"2023-11-14T22:13:20.123Z"}`},
	{event.TextDelta{Round: 1, Item: 2, Part: 3, Text: "<a> & é", Phase: "commentary"}, `{"v":1,"type":"text_delta","round":1,"item":2,"part":3,"text":"<a> & é","phase":"commentary"}`},
	{event.ReasoningDelta{Round: 1, Item: 2, Part: 3, Text: "so"}, `{"v":1,"type":"reasoning_delta","round":1,"item":2,"part":3,"text":"so"}`},
	{event.RefusalDelta{Round: 1, Item: 2, Part: 3, Text: "no", Phase: "final_answer"}, `{"v":1,"type":"refusal_delta","round":1,"item":2,"part":3,"text":"no","phase":"final_answer"}`},
	{event.CallDelta{Round: 1, Item: 2, CallID: "c1", Name: "look", Arguments: `{"a`},
		`{"v":1,"type":"call_delta","round":1,"item":2,"call_id":"c1","name":"look","arguments":"{\"a"}`},
	{event.Citation{Round: 1, Item: 2, Citation: item.Citation{Kind: item.CitesURL, Part: 3, URL: "http://a", Title: "A", FileID: "f", Filename: "n", ContainerID: "c", Start: 4, End: 5, Index: 6}},
		`{"v":1,"type":"citation","round":1,"item":2,"citation":{"kind":"url","part":3,"url":"http://a","title":"A","file_id":"f","filename":"n","container_id":"c","start":4,"end":5,"index":6}}`},
	{event.NativeProgress{Round: 1, Item: 2, JSON: []byte(`{"type":"response.web_search_call.searching"}`)},
		`{"v":1,"type":"native_progress","round":1,"item":2,"json":{"type":"response.web_search_call.searching"}}`},
	{event.ItemDone{Round: 1, Item: 2}, `{"v":1,"type":"item_done","round":1,"item":2}`},
	{event.NativeItem{Round: 1, Item: 2, JSON: []byte(`{"type":"web_search_call"}`)},
		`{"v":1,"type":"native_item","round":1,"item":2,"json":{"type":"web_search_call"}}`},
	{event.RoundDone{Round: 1, Stop: model.StopEnd, Usage: model.Usage{Input: 1, Output: 2, Total: 3, CachedInput: 4, CacheWrite: 5, Reasoning: 6}, At: time.UnixMilli(1700000000123).UTC()},
		`{"v":1,"type":"round_done","round":1,"stop":"stop","usage":{"input":1,"output":2,"total":3,"cached_input":4,"cache_write":5,"reasoning":6},"at":"2023-11-14T22:13:20.123Z"}`},
	{event.ToolStarted{Round: 1, Key: "1.0", Name: "s__look", Server: "s", Arguments: []byte(`{"a":1}`), Shown: true, Tool: "look", Hosted: "web_search", Approval: "a", At: time.UnixMilli(1700000000123).UTC()},
		`{"v":1,"type":"tool_started","round":1,"call_key":"1.0","name":"s__look","server":"s","arguments":{"a":1},"shown":true,"tool":"look","hosted":"web_search","approval":"a","at":"2023-11-14T22:13:20.123Z"}`},
	{event.ToolDone{Round: 1, Key: "1.0", Name: "s__look", Server: "s", Outcome: "ok", Text: "seen", Label: "untrusted", Duration: 1500 * time.Microsecond, At: time.UnixMilli(1700000000123).UTC(), Shown: true, Tool: "look", Hosted: "web_search", Arguments: "{", Approval: "a", Image: "iVBO",
		Files: []event.File{{ID: "file-1", Name: "a.txt", Path: "d/a.txt", MediaType: "text/plain", Bytes: 1, SHA256: "ca", CreatedAt: time.UnixMilli(1700000000123).UTC(), ExpiresAt: time.UnixMilli(1700000001000).UTC(), Preview: "a"}}},
		`{"v":1,"type":"tool_done","round":1,"call_key":"1.0","name":"s__look","server":"s","outcome":"ok","text":"seen","label":"untrusted","duration_ns":1500000,"at":"2023-11-14T22:13:20.123Z","shown":true,"tool":"look","hosted":"web_search","arguments":"{","approval":"a","image":"iVBO",` +
			`"files":[{"id":"file-1","filename":"a.txt","path":"d/a.txt","mime_type":"text/plain","bytes":1,"sha256":"ca","created_at":"2023-11-14T22:13:20.123Z","expires_at":"2023-11-14T22:13:21Z","preview":"a"}]}`},
	{event.Waiting{
		Usage: model.Usage{Input: 1, Output: 2, Total: 3}, Rounds: 1, ToolCalls: 2, SideEffects: true, At: time.UnixMilli(1700000000123).UTC(), Cost: tool.NanoUSD(7),
		Approvals: []event.Approval{{ID: "a", Key: "1.0", Name: "s__look", Server: "s", Tool: "look", Arguments: []byte(`{"a":1}`), ExpiresAt: time.UnixMilli(1700000001000).UTC()}},
	},
		`{"v":1,"type":"waiting","usage":{"input":1,"output":2,"total":3},"rounds":1,"tool_calls":2,"side_effects":true,"at":"2023-11-14T22:13:20.123Z","cost_nano_usd":7,` +
			`"approvals":[{"id":"a","call_key":"1.0","name":"s__look","server":"s","tool":"look","arguments":{"a":1},"expires_at":"2023-11-14T22:13:21Z"}]}`},
	{event.ApprovalDecided{ID: "a", Key: "1.0", Decision: "denied", By: "key_1", Reason: "no", At: time.UnixMilli(1700000000123).UTC()},
		`{"v":1,"type":"approval_decided","id":"a","call_key":"1.0","decision":"denied","by":"key_1","reason":"no","at":"2023-11-14T22:13:20.123Z"}`},
	{event.Paused{
		ID: "p", Reason: event.Tokens, Budget: "org/day", BudgetEndsAt: time.UnixMilli(1700000001000).UTC(), Message: "m", Usage: model.Usage{Input: 1, Output: 2, Total: 3},
		Rounds: 1, ToolCalls: 2, Active: 3 * time.Millisecond, SideEffects: true, Cost: tool.NanoUSD(7), At: time.UnixMilli(1700000000123).UTC(), ExpiresAt: time.UnixMilli(1700000002000).UTC(),
	},
		`{"v":1,"type":"paused","id":"p","reason":"tokens","budget":"org/day","budget_ends_at":"2023-11-14T22:13:21Z","message":"m","usage":{"input":1,"output":2,"total":3},` +
			`"rounds":1,"tool_calls":2,"active_ms":3,"side_effects":true,"cost_nano_usd":7,"at":"2023-11-14T22:13:20.123Z","expires_at":"2023-11-14T22:13:22Z"}`},
	{event.Compacted{Round: 1, Before: 2, After: 1, Summarized: true, NetNanoUSD: new(int64(-3)), Failed: true, At: time.UnixMilli(1700000000123).UTC()},
		`{"v":1,"type":"compacted","round":1,"before":2,"after":1,"summarized":true,"net_nano_usd":-3,"failed":true,"at":"2023-11-14T22:13:20.123Z"}`},
	{event.HookRan{
		ID: "h", Position: 2, Event: "PreToolUse", Key: "0.1", Status: event.HookTimedOut, Modified: true, Blocked: true, Asked: true, Duration: 5, Message: "why",
		At: time.UnixMilli(1700000000123).UTC(),
	},
		`{"v":1,"type":"hook_ran","hook_id":"h","position":2,"hook_event":"PreToolUse","key":"0.1","status":"timed_out","modified":true,"blocked":true,"asked":true,` +
			`"duration_ns":5,"message":"why","at":"2023-11-14T22:13:20.123Z"}`},
	{event.LimitsRaised{ID: "p", By: "key_1", Rounds: 1, Calls: 2, Tokens: 3, USD: tool.NanoUSD(4), Active: 5 * time.Millisecond, At: time.UnixMilli(1700000000123).UTC()},
		`{"v":1,"type":"limits_raised","id":"p","by":"key_1","rounds":1,"calls":2,"tokens":3,"nano_usd":4,"active_ms":5,"at":"2023-11-14T22:13:20.123Z"}`},
	{event.Finished{
		Reason: event.ModelError, Calls: []event.ClientCall{{ID: "c1", Name: "theirs", Arguments: "{}"}}, Limit: event.MaxRounds, Usage: model.Usage{Input: 1, Output: 2, Total: 3},
		Rounds: 1, At: time.UnixMilli(1700000000123).UTC(), ToolCalls: 2, Cost: tool.NanoUSD(7), SideEffects: true, Repeated: "r", GaveUp: true,
		Failure: &event.Failure{
			Code: "model_error", Message: "broken", Param: "p", Address: "10.0.0.1", Server: "s", URL: "http://s", Setting: "k",
			RetryAt: time.UnixMilli(1700000003000).UTC(),
			Upstream: &model.Error{
				Class: model.Transient, Status: 500, Header: map[string][]string{"Retry-After": {"1"}}, Body: []byte("{}"), Dialect: "d",
				Code: "c", Param: "p", Credential: true, Message: "m",
			},
		}},
		`{"v":1,"type":"finished","reason":"model_error","calls":[{"id":"c1","name":"theirs","arguments":"{}"}],"limit":"max_rounds",` +
			`"usage":{"input":1,"output":2,"total":3},"rounds":1,"at":"2023-11-14T22:13:20.123Z","tool_calls":2,"cost_nano_usd":7,"side_effects":true,"repeated":"r","gave_up":true,` +
			`"failure":{"code":"model_error","message":"broken","param":"p","address":"10.0.0.1","server":"s","url":"http://s","setting":"k",` +
			`"retry_at":1700000003000,"upstream":{"class":"transient","status":500,"header":{"Retry-After":["1"]},"body":"e30=","dialect":"d",` +
			`"code":"c","param":"p","credential":true,"message":"m"}}}`},
}

func TestTheJSONOfEvents(t *testing.T) { // L05
	covered := map[string]bool{"RelayHead": true, "RelayBody": true} // never stored
	for _, c := range encodings {
		covered[reflect.TypeOf(c.event).Name()] = true
		v := reflect.ValueOf(c.event)
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Part" && name != "Value" { // which have no JSON
				t.Errorf("%s.%s is not set: its JSON is not tested", v.Type(), name)
			}
		}
		got, err := event.Encode(c.event)
		if err != nil || string(got) != c.json {
			t.Errorf("%T: %v\n got %s\nwant %s", c.event, err, got, c.json)
		}
		back, err := event.Decode([]byte(c.json))
		if err != nil {
			t.Errorf("%s: %v", c.json, err)
		}
		if diff := cmp.Diff(c.event, back); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.json, diff)
		}
	}
	for _, name := range eventTypes(t) {
		if !covered[name] {
			t.Errorf("%s has no JSON here", name)
		}
	}
}

// eventTypes returns the names of the types that implement Event.
func eventTypes(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "Type" {
			names = append(names, f.Recv.List[0].Type.(*ast.Ident).Name)
		}
	}
	if len(names) < 2 {
		t.Fatalf("found only %v", names)
	}
	return names
}

func TestEventsThatCannotBeReadOrStored(t *testing.T) {
	for text, want := range map[string]error{
		`{"v":2,"type":"started"}`:         event.ErrUnknownVersion,
		`{"type":"started"}`:               event.ErrUnknownVersion,
		`{"v":1,"type":"song"}`:            event.ErrUnknownType,
		`{"v":1,"type":"relay_head"}`:      event.ErrUnknownType,
		`{"v":1}`:                          event.ErrUnknownType,
		`{"v":1,"type":"started","at":17}`: nil,
		`{"v":1,"type":"started"`:          nil,
		`[]`:                               nil,
		``:                                 nil,
	} {
		if e, err := event.Decode([]byte(text)); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, %v; want the error %v", text, e, err, want)
		}
	}
	for _, e := range []event.Event{nil, event.RelayHead{}, event.RelayBody{}, event.ToolStarted{Arguments: []byte("{")}} {
		if data, err := event.Encode(e); err == nil {
			t.Errorf("%T was encoded: %s", e, data)
		}
	}
}

// FuzzDecode: what is read is written, and read again as the same event. // L05
func FuzzDecode(f *testing.F) {
	for _, c := range encodings {
		f.Add([]byte(c.json))
	}
	f.Add([]byte(`{"v":1,"type":"tool_started","arguments":  {"a" : 1 } }`))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := event.Decode(data)
		if err != nil {
			return
		}
		written, err := event.Encode(first)
		if err != nil {
			t.Fatalf("%s cannot be written again: %v", data, err)
		}
		second, err := event.Decode(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		again, err := event.Encode(second)
		if err != nil || string(again) != string(written) {
			t.Errorf("%s was written as %s, then as %s: %v", data, written, again, err)
		}
	})
}

func TestPositions(t *testing.T) {
	for _, p := range []event.Position{{}, {Seq: 12, Delta: 3}, {Seq: 1 << 62, Delta: 1 << 40}} {
		if got, err := event.ParsePosition(p.String()); err != nil || got != p {
			t.Errorf("%v was read as %v: %v", p, got, err)
		}
	}
	if s := (event.Position{Seq: 12, Delta: 3}).String(); s != "12.3" {
		t.Error(s)
	}
	for _, s := range []string{"", "12", "12.", ".3", "12.3.4", "-1.0", "1.-1", "+1.0", "01.0", "1.00", " 1.0", "1.0\n", "99999999999999999999.0", "a.b", strings.Repeat("9", 1000)} {
		if p, err := event.ParsePosition(s); err == nil || len(err.Error()) > 200 {
			t.Errorf("%q was read as %v: %v", s, p, err)
		}
	}
	ascending := []event.Position{{}, {Delta: 1}, {Seq: 1}, {Seq: 1, Delta: 2}, {Seq: 1, Delta: 10}, {Seq: 2}, {Seq: 10}}
	for i, p := range ascending {
		for j, q := range ascending {
			if got, want := p.Compare(q) < 0, i < j; got != want {
				t.Errorf("%v before %v: %v", p, q, got)
			}
		}
	}
}
