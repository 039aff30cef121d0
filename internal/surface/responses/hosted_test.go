package responses

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// answered decodes a request of an org whose server web answers web_search and
// code_interpreter.
func answered(m model.Model, body string) (*run.Request, surface.Reply, error) {
	members, err := surface.Scan(nil, []byte(body))
	if err != nil {
		return nil, surface.Reply{}, err
	}
	servers := []catalog.Server{{Name: "other"}, {Name: "web", Hosted: map[string]string{"web_search": "find", "code_interpreter": "eval"}}}
	req := &run.Request{Input: run.Input{
		Model: "m", Targets: []route.Target{{Target: loop.Target{Provider: "up", Model: "m"}, Client: m}}, Servers: servers,
	}}
	reply, err := decodeWith(req, members)
	return req, reply, err
}

// A hosted tool that an MCP server answers is neither sent to the provider nor named as
// dropped, whether the provider has hosted tools or not.
func TestAHostedToolThatAnMCPServerAnswers(t *testing.T) {
	search, eval := loop.HostedTool{Type: "web_search", Server: "web", Tool: "find"}, loop.HostedTool{Type: "code_interpreter", Server: "web", Tool: "eval"}
	for name, m := range map[string]model.Model{"of another dialect": translating{}, "of this dialect": relaying{}} {
		for tools, want := range map[string][]loop.HostedTool{
			`{"type":"web_search"}`:         {search},
			`{"type":"web_search_preview"}`: {search},
			`{"type":"web_search_preview_2025_03_11"},{"type":"web_search_2025_08_26"}`:              {search},
			`{"type":"code_interpreter","container":{"type":"auto"}},{"type":"web_search"}`:          {eval, search},
			`{"type":"function","name":"f"},{"type":"web_search"},{"type":"function","name":"find"}`: {search},
		} {
			req, reply, err := answered(m, `{"input":"x","include":[],"tools":[`+tools+`]}`)
			if err != nil || len(req.Hosted) > 0 || len(reply.Dropped) > 0 || reply.Native || !reflect.DeepEqual(reply.Hosted, want) {
				t.Errorf("%s, %s: %v %+v dropped %q, answered %+v", name, tools, err, req.Hosted, reply.Dropped, reply.Hosted)
			}
		}
	}
	req, reply, err := answered(relaying{}, `{"input":"x","tools":[{"type":"web_searches"},{"type":"web_search_call"},{"type":"file_search","vector_store_ids":["v"]}]}`)
	if err != nil || len(req.Hosted) != 3 || reply.Hosted != nil {
		t.Errorf("types that no server answers: %v %+v %+v", err, req.Hosted, reply.Hosted)
	}
	if _, reply, err = answered(translating{}, `{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}`); err != nil || reply.Hosted != nil || !slices.Equal(reply.Dropped, []string{"tools[0].tools[0]"}) {
		t.Errorf("in a namespace: %v %+v %q", err, reply.Hosted, reply.Dropped)
	}
	if _, reply, _ = decoded(`{"input":"x","tools":[{"type":"web_search"}]}`); reply.Hosted != nil || !slices.Equal(reply.Dropped, []string{"tools[0]"}) {
		t.Errorf("without servers: %+v %q", reply.Hosted, reply.Dropped)
	}
}

// What the tool of the server cannot get of a hosted tool, and of earlier items of one, is named.
func TestWhatIsDroppedOfAHostedToolThatAnMCPServerAnswers(t *testing.T) {
	for name, m := range map[string]model.Model{"of another dialect": translating{}, "of this dialect": relaying{}} {
		req, reply, err := answered(m, `{"tools":[{"type":"web_search","filters":{"allowed_domains":["a.example"]},"user_location":null,"search_context_size":"low"}],`+
			`"input":[{"role":"user","content":"x"},{"type":"web_search_call","id":"ws_1","status":"completed"}]}`)
		if slices.Sort(reply.Dropped); err != nil || !slices.Equal(reply.Dropped, []string{"input[1]", "tools[0].filters", "tools[0].search_context_size"}) || len(req.Items) != 1 {
			t.Errorf("%s: %v %q %d items", name, err, reply.Dropped, len(req.Items))
		}
	}
	// Outputs of code are known.
	const include = `{"input":"x","include":["code_interpreter_call.outputs"],"tools":[{"type":%q}]}`
	if _, reply, err := answered(translating{}, fmt.Sprintf(include, "code_interpreter")); err != nil || len(reply.Dropped) > 0 {
		t.Errorf("%v %q", err, reply.Dropped)
	}
	if _, reply, err := answered(translating{}, fmt.Sprintf(include, "web_search")); err != nil || !slices.Equal(reply.Dropped, []string{"include"}) {
		t.Errorf("without the tool: %v %q", err, reply.Dropped)
	}
}

// tool_choice selects the tool that answers a hosted tool.
func TestAChoiceOfAHostedToolThatAnMCPServerAnswers(t *testing.T) {
	const body = `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":%s}`
	find := []run.ServerTool{{Server: "web", Tool: "find"}}
	for _, m := range []model.Model{translating{}, relaying{}} {
		for _, kind := range []string{"web_search", "web_search_preview"} {
			req, reply, err := answered(m, fmt.Sprintf(body, `{"type":"`+kind+`"}`))
			if err != nil || req.ToolChoice.Mode != model.ChooseNamed || req.ToolChoice.Native != nil || !slices.Equal(req.OnlyOf, find) || len(reply.Dropped) > 0 {
				t.Errorf("%s: %v %+v %+v %q", kind, err, req.ToolChoice, req.OnlyOf, reply.Dropped)
			}
		}
		req, reply, err := answered(m, fmt.Sprintf(body, `{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"},{"type":"web_search"}]}`))
		if err != nil || req.ToolChoice.Mode != model.ChooseRequired || !slices.Equal(req.ToolChoice.Only, []string{"f"}) || len(req.ToolChoice.OnlyHosted) > 0 || !slices.Equal(req.OnlyOf, find) || len(reply.Dropped) > 0 {
			t.Errorf("%v %+v %+v %q", err, req.ToolChoice, req.OnlyOf, reply.Dropped)
		}
	}
	// The org's server answers code_interpreter, and the request does not declare it.
	if _, _, err := answered(translating{}, fmt.Sprintf(body, `{"type":"code_interpreter"}`)); fault.From(err).Param != "tool_choice" {
		t.Error(err)
	}
}

// hostedCalls are the events of calls that answer hosted tools, and of one that is hidden.
func hostedCalls() []event.Event {
	started := func(key, kind, arguments string) event.Event {
		return event.ToolStarted{Key: key, Server: "web", Tool: "find", Hosted: kind, Arguments: []byte(arguments)}
	}
	done := func(key, kind string, how event.Outcome, text, arguments string) event.Event {
		return event.ToolDone{Key: key, Server: "web", Tool: "find", Hosted: kind, Outcome: how, Text: text, Arguments: arguments}
	}
	return []event.Event{
		event.ToolStarted{Key: "0.0", Server: "org", Arguments: []byte(`{"query":"hidden"}`)},
		started("0.1", "web_search", `{"query":"go","q":"other"}`),
		started("0.2", "code_interpreter", `{"code":"1+1"}`),
		started("0.1", "web_search", `{"query":"go"}`), // again, by the next owner
		event.ToolDone{Key: "0.0", Server: "org", Outcome: event.CallOK, Text: "hidden"},
		done("0.2", "code_interpreter", event.CallOK, "2", ""),
		done("0.1", "web_search", event.CallError, "no", ""),
		started("1.0", "file_search", `{"q":"notes"}`),
		done("1.0", "file_search", event.CallCached, "found", ""),
		done("1.1", "web_search", event.CallSkipped, "limit", `{"topic":1}`),
		started("2.0", "web_search", `{"q":"late"}`),
		started("2.2", "image_generation", `{"prompt":"a cat"}`),
		event.ToolDone{Key: "2.2", Hosted: "image_generation", Outcome: event.CallOK, Text: "[image]", Image: "iVBO"},
		done("2.3", "image_generation", event.CallOK, "a text only", `{"prompt":"a cat"}`),
		started("2.4", "image_generation", `{"prompt":"a late cat"}`),
		started("2.1", "code_interpreter", `{}`),
		event.ToolStarted{Key: "2.5", Server: "builtin_tools", Tool: "web_scrape", Hosted: "web_search", Arguments: []byte(`{"url":"https://a.example/"}`)},
		event.ToolDone{Key: "2.5", Server: "builtin_tools", Tool: "web_scrape", Hosted: "web_search", Outcome: event.CallOK, Text: "A page."},
		event.ToolDone{Key: "2.6", Server: "builtin_tools", Tool: "code_execute", Hosted: "code_interpreter", Outcome: event.CallError, Arguments: `{"code":"f()"}`,
			Text: `Error: {"exit":1,"stdout":"a\n","stderr":"no f","result":"r","error":""}`},
		event.ToolDone{Key: "2.7", Server: "builtin_tools", Tool: "code_execute", Hosted: "code_interpreter", Outcome: event.CallError, Arguments: `{"code":"g()"}`,
			Text: `Error: {"exit":-1,"stdout":"a","stderr":"","error":"time limit"}`},
		event.ToolDone{Key: "2.8", Server: "builtin_tools", Tool: "code_execute", Hosted: "code_interpreter", Outcome: event.CallError, Arguments: `{"code":"h()"}`, Text: `Error: {"error":"no sandbox"}`},
	}
}

// Each item has its events in order, one index and one id, and a failed call has none that
// says it is completed.
func TestTheItemsOfHostedTools(t *testing.T) {
	l := &ledgerOfItems{}
	o := &hostedOutput{out: l, run: "1", container: "cntr_1", outputs: true}
	for _, ev := range hostedCalls() {
		o.event(ev)
	}
	o.cut()
	o.cut()
	want := strings.Split(strings.TrimSpace(`
added 0 {"id":"ws_1_0_1","type":"web_search_call","status":"in_progress","action":{"type":"search","query":"go"}}
web_search_call.in_progress 0 ws_1_0_1
web_search_call.searching 0 ws_1_0_1
added 1 {"id":"ci_1_0_2","type":"code_interpreter_call","status":"in_progress","container_id":"cntr_1","code":"","outputs":null}
code_interpreter_call.in_progress 1 ci_1_0_2
code_interpreter_call_code.delta 1 ci_1_0_2 delta=1+1
code_interpreter_call_code.done 1 ci_1_0_2 code=1+1
code_interpreter_call.interpreting 1 ci_1_0_2
code_interpreter_call.completed 1 ci_1_0_2
done 1 {"id":"ci_1_0_2","type":"code_interpreter_call","status":"completed","container_id":"cntr_1","code":"1+1","outputs":[{"type":"logs","logs":"2"}]}
done 0 {"id":"ws_1_0_1","type":"web_search_call","status":"failed","action":{"type":"search","query":"go"}}
added 2 {"id":"fs_1_1_0","type":"file_search_call","status":"in_progress","queries":["notes"],"results":null}
file_search_call.in_progress 2 fs_1_1_0
file_search_call.searching 2 fs_1_1_0
file_search_call.completed 2 fs_1_1_0
done 2 {"id":"fs_1_1_0","type":"file_search_call","status":"completed","queries":["notes"],"results":null}
added 3 {"id":"ws_1_1_1","type":"web_search_call","status":"in_progress","action":{"type":"search","query":"{\"topic\":1}"}}
web_search_call.in_progress 3 ws_1_1_1
done 3 {"id":"ws_1_1_1","type":"web_search_call","status":"failed","action":{"type":"search","query":"{\"topic\":1}"}}
added 4 {"id":"ws_1_2_0","type":"web_search_call","status":"in_progress","action":{"type":"search","query":"late"}}
web_search_call.in_progress 4 ws_1_2_0
web_search_call.searching 4 ws_1_2_0
added 5 {"id":"ig_1_2_2","type":"image_generation_call","status":"in_progress","result":null}
image_generation_call.in_progress 5 ig_1_2_2
image_generation_call.generating 5 ig_1_2_2
image_generation_call.completed 5 ig_1_2_2
done 5 {"id":"ig_1_2_2","type":"image_generation_call","status":"completed","result":"iVBO"}
added 6 {"id":"ig_1_2_3","type":"image_generation_call","status":"in_progress","result":null}
image_generation_call.in_progress 6 ig_1_2_3
done 6 {"id":"ig_1_2_3","type":"image_generation_call","status":"failed","result":null}
added 7 {"id":"ig_1_2_4","type":"image_generation_call","status":"in_progress","result":null}
image_generation_call.in_progress 7 ig_1_2_4
image_generation_call.generating 7 ig_1_2_4
added 8 {"id":"ci_1_2_1","type":"code_interpreter_call","status":"in_progress","container_id":"cntr_1","code":"","outputs":null}
code_interpreter_call.in_progress 8 ci_1_2_1
code_interpreter_call_code.delta 8 ci_1_2_1 delta=find({})
code_interpreter_call_code.done 8 ci_1_2_1 code=find({})
code_interpreter_call.interpreting 8 ci_1_2_1
added 9 {"id":"ws_1_2_5","type":"web_search_call","status":"in_progress","action":{"type":"open_page","url":"https://a.example/"}}
web_search_call.in_progress 9 ws_1_2_5
web_search_call.searching 9 ws_1_2_5
web_search_call.completed 9 ws_1_2_5
done 9 {"id":"ws_1_2_5","type":"web_search_call","status":"completed","action":{"type":"open_page","url":"https://a.example/"}}
added 10 {"id":"ci_1_2_6","type":"code_interpreter_call","status":"in_progress","container_id":"cntr_1","code":"","outputs":null}
code_interpreter_call.in_progress 10 ci_1_2_6
code_interpreter_call_code.delta 10 ci_1_2_6 delta=f()
code_interpreter_call_code.done 10 ci_1_2_6 code=f()
code_interpreter_call.completed 10 ci_1_2_6
done 10 {"id":"ci_1_2_6","type":"code_interpreter_call","status":"completed","container_id":"cntr_1","code":"f()","outputs":[{"type":"logs","logs":"a\nno f\nr"}]}
added 11 {"id":"ci_1_2_7","type":"code_interpreter_call","status":"in_progress","container_id":"cntr_1","code":"","outputs":null}
code_interpreter_call.in_progress 11 ci_1_2_7
code_interpreter_call_code.delta 11 ci_1_2_7 delta=g()
code_interpreter_call_code.done 11 ci_1_2_7 code=g()
done 11 {"id":"ci_1_2_7","type":"code_interpreter_call","status":"failed","container_id":"cntr_1","code":"g()","outputs":[{"type":"logs","logs":"a\ntime limit"}]}
added 12 {"id":"ci_1_2_8","type":"code_interpreter_call","status":"in_progress","container_id":"cntr_1","code":"","outputs":null}
code_interpreter_call.in_progress 12 ci_1_2_8
code_interpreter_call_code.delta 12 ci_1_2_8 delta=h()
code_interpreter_call_code.done 12 ci_1_2_8 code=h()
done 12 {"id":"ci_1_2_8","type":"code_interpreter_call","status":"failed","container_id":"cntr_1","code":"h()","outputs":[{"type":"logs","logs":"Error: {\"error\":\"no sandbox\"}"}]}
done 4 {"id":"ws_1_2_0","type":"web_search_call","status":"failed","action":{"type":"search","query":"late"}}
done 7 {"id":"ig_1_2_4","type":"image_generation_call","status":"failed","result":null}
done 8 {"id":"ci_1_2_1","type":"code_interpreter_call","status":"incomplete","container_id":"cntr_1","code":"find({})","outputs":null}
`), "\n")
	if diff := cmp.Diff(want, l.lines); diff != "" {
		t.Error(diff)
	}
}

// A call whose end is not known when the response ends has an item that has ended, whether the
// run has failed or not, and whether its texts come as they arrive or at the end.
func TestAHostedCallWithoutAnEndHasAnItem(t *testing.T) {
	for _, finalOnly := range []bool{false, true} {
		encoded := func() *encoder {
			e := newEncoder(&surface.Answer{FinalOnly: finalOnly}, nil, newEcho(), clientTools{})
			e.Started = event.Started{RunID: "run_1"}
			if err := e.Event(event.ToolStarted{Key: "0.0", Hosted: "web_search", Arguments: []byte(`{"query":"go"}`)}); err != nil {
				t.Fatal(err)
			}
			return e
		}
		want := `[{"id":"ws_1_0_0","type":"web_search_call","status":"failed","action":{"type":"search","query":"go"}}]`
		if got := asJSON(encoded().finished().Output); got != want {
			t.Errorf("finished: %s", got)
		}
		if finalOnly { // a failure leaves out what was held
			want = "[]"
		}
		if got := asJSON(encoded().failed([]byte(`{}`)).Output); got != want {
			t.Errorf("failed: %s", got)
		}
	}
}
