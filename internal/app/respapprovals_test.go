package app_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// twoSteps is a call of the declared server, and an answer.
const twoSteps = "text Looking.\ncall c1 search {\"q\":1}\nusage 20 9\n\ntext Done.\nusage 30 4\n\ntext Later."

// asks sends a request whose response asks for approvals, and returns it with their ids.
func (p *paritySite) asks(members string, fields ...string) (respObject, []string) {
	p.t.Helper()
	o := p.respond(members, fields...).responded(p.t)
	var ids []string
	for _, it := range o.of("mcp_approval_request") {
		ids = append(ids, it.ID)
	}
	if len(ids) == 0 || o.Status != "completed" {
		p.t.Fatalf("no approval request: %+v", o)
	}
	return o, ids
}

func approve(id string) string {
	return fmt.Sprintf(`{"type":"mcp_approval_response","approval_request_id":%q,"approve":true}`, id)
}

func deny(id, reason string) string {
	return fmt.Sprintf(`{"type":"mcp_approval_response","approval_request_id":%q,"approve":false,"reason":%q}`, id, reason)
}

// wants fails the test unless so many calls of the declared server were made.
func (p *paritySite) called(n int) {
	p.t.Helper()
	if got := len(p.docs.Calls()); got != n {
		p.t.Errorf("%d tool calls, want %d", got, n)
	}
}

// Which calls wait, by the forms of require_approval. // H01 D14
func requireApproval(t *testing.T) {
	for more, waits := range map[string]bool{
		"": true, `,"require_approval":"always"`: true, `,"require_approval":null`: true, never: false,
		`,"require_approval":{"always":{"tool_names":["search"]}}`:                                       true,
		`,"require_approval":{"never":{"tool_names":["read"]}}`:                                          true,
		`,"require_approval":{"never":{"tool_names":["search"]}}`:                                        false,
		`,"require_approval":{"never":{"tool_names":["search"]},"always":{"tool_names":["search"]}}`:     true,
		`,"require_approval":{"never":{"read_only":true}}`:                                               true,
		`,"require_approval":{"never":{"read_only":false}}`:                                              false,
		`,"allowed_tools":["search"],"require_approval":{"never":{"tool_names":["search"]},"always":{}}`: true,
	} {
		p := newParitySite(t, "openai", twoSteps, "")
		o := p.respond(`"input":"go","tools":[` + p.docsTool(more) + `]`).responded(t)
		if got := len(o.of("mcp_approval_request")) == 1; got != waits || o.Status != "completed" {
			t.Errorf("%s: %+v", more, o)
		}
		p.called(map[bool]int{true: 0, false: 1}[waits])
	}
	p := newParitySite(t, "openai", twoSteps, "")
	for _, more := range []string{`,"require_approval":"sometimes"`, `,"require_approval":7`, `,"require_approval":{"perhaps":{}}`, `,"require_approval":{"never":{"name":"search"}}`} {
		p.refused(p.respond(`"input":"go","tools":[`+p.docsTool(more)+`]`), "tools[0].require_approval")
	}
}

// The request is in JSON, in the stream and in the stored response, with the arguments of the
// call. // H01
func approvalRequestIsThere(t *testing.T) {
	for _, kind := range []string{"openai", "anthropic", "openai-responses"} {
		p := newParitySite(t, kind, twoSteps, "")
		o, ids := p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
		want := respItem{ID: ids[0], Type: "mcp_approval_request", Name: "search", Label: "docs", Arguments: `{"q":1}`}
		if diff := cmp.Diff(want, o.of("mcp_approval_request")[0]); diff != "" {
			t.Error(diff)
		}
		if fmt.Sprint(o.types()) != "[mcp_list_tools message mcp_approval_request]" {
			t.Errorf("%s: %v", kind, o.types())
		}
		if got := p.got(o.ID).responded(t); cmp.Diff(o, got) != "" {
			t.Error(cmp.Diff(o, got))
		}
		p = newParitySite(t, kind, twoSteps, "")
		all := p.respond(`"input":"go","stream":true,"tools":[` + p.docsTool("") + `]`).events(t)
		wantNumbered(t, all)
		wantEnded(t, all)
		if last(all).Status != "completed" || len(last(all).of("mcp_approval_request")) != 1 {
			t.Errorf("%+v", last(all))
		}
		p.called(0)
	}
}

// The call is made first, once, and then the model goes on. // H02 H12 P02
func approvedContinuation(t *testing.T) {
	for _, kind := range []string{"openai", "anthropic", "openai-responses"} {
		for _, how := range []string{"JSON", "stream"} {
			t.Run(kind+", "+how, func(t *testing.T) {
				p := newParitySite(t, kind, twoSteps, "")
				first, ids := p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
				members := `"previous_response_id":"` + first.ID + `","input":[` + approve(ids[0]) + `],"tools":[` + p.docsTool("") + `]`
				var second respObject
				if how == "stream" {
					all := p.respond(members + `,"stream":true`).events(t)
					wantNumbered(t, all)
					wantEnded(t, all)
					second = last(all)
				} else {
					second = p.respond(members).responded(t)
				}
				if fmt.Sprint(second.types()) != "[mcp_call message]" || second.text() != "Done." || second.ID == first.ID || second.Status != "completed" {
					t.Fatalf("%+v", second)
				}
				call := second.of("mcp_call")[0]
				if call.Request != ids[0] || call.Arguments != `{"q":1}` || call.Output == nil || *call.Output != "found" {
					t.Errorf("%+v", call)
				}
				p.called(1)
				if got := p.got(second.ID).responded(t); cmp.Diff(second, got) != "" {
					t.Error(cmp.Diff(second, got))
				}
				if got := p.got(first.ID).responded(t); cmp.Diff(first, got) != "" {
					t.Error(cmp.Diff(first, got))
				}
				if strings.Contains(p.asked(), "approval") {
					t.Errorf("the provider got %s", p.asked()) // D22
				}
				var usage struct {
					Total int `json:"total_tokens"`
				}
				if err := json.Unmarshal(second.Usage, &usage); err != nil || usage.Total != 34 {
					t.Errorf("the usage of the second response is %s", second.Usage)
				}
			})
		}
	}
}

// A denial reaches the model with its reason, and no call is made. // H02
func TestADenialReachesTheModel(t *testing.T) {
	noLeaks(t)
	p := newParitySite(t, "openai", twoSteps, "")
	first, ids := p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
	second := p.respond(`"previous_response_id":"` + first.ID + `","input":[` + deny(ids[0], "not today") + `]`).responded(t)
	if fmt.Sprint(second.types()) != "[message]" || !strings.Contains(p.asked(), "Tool call denied by user: not today") {
		t.Errorf("%+v; the provider got %s", second, p.asked())
	}
	p.called(0)
	third := p.respond(`"previous_response_id":"` + second.ID + `","input":"and now?"`).responded(t)
	if third.Status != "completed" || !strings.Contains(p.asked(), "not today") {
		t.Errorf("%+v; the provider got %s", third, p.asked())
	}
	p.called(0)
}

// An approval has one decision, of the principal that was asked, for the call as it was asked.
// // P02
func approvalIsUsedOnce(t *testing.T) {
	p := newParitySite(t, "openai", twoSteps, "")
	first, ids := p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
	previous := `"previous_response_id":"` + first.ID + `",`
	for name, members := range map[string]string{
		"unknown":           previous + `"input":[` + approve("mcpr_0") + `]`,
		"no id":             previous + `"input":[{"type":"mcp_approval_response","approve":true}]`,
		"no decision":       previous + `"input":[{"type":"mcp_approval_response","approval_request_id":"` + ids[0] + `"}]`,
		"without a request": `"input":[{"role":"user","content":"go"},` + approve(ids[0]) + `]`,
		"another model":     previous + `"model":"g-2","input":[` + approve(ids[0]) + `]`,
		"other tools":       previous + `"tools":[],"input":[` + approve(ids[0]) + `]`,
		"other settings":    previous + `"temperature":0.5,"input":[` + approve(ids[0]) + `]`,
	} {
		if a := p.respond(members); a.status != 400 {
			t.Errorf("%s: status %d: %s", name, a.status, a.body)
		}
	}
	for _, key := range []string{"admin-key", "member-key"} {
		if a := p.respond(previous+`"input":[`+approve(ids[0])+`]`, "Authorization", "Bearer "+key); a.status != 400 || !strings.Contains(string(a.body), "approval_not_found") {
			t.Errorf("another principal gets %d: %s", a.status, a.body)
		}
	}
	p.called(0)
	second := p.respond(previous + `"input":[` + approve(ids[0]) + `]`).responded(t)
	again := p.respond(previous + `"input":[` + approve(ids[0]) + `]`).responded(t)
	if second.ID != again.ID || second.text() != "Done." || again.text() != "Done." {
		t.Errorf("the same answer again: %+v, before %+v", again, second)
	}
	other := p.respond(previous + `"input":[` + deny(ids[0], "no") + `]`).responded(t)
	if other.ID != second.ID {
		t.Errorf("another answer again: %+v", other)
	}
	p.called(1)
}

// A client that stores nothing at the gateway sends its items back. What it makes of the approval
// request changes nothing. // H02 P02
func TestAStatelessClientContinuesWithItsOwnItems(t *testing.T) {
	noLeaks(t)
	p := newParitySite(t, "openai", twoSteps, "")
	tools := `"store":false,"tools":[` + p.docsTool("") + `]`
	var history []json.RawMessage
	send := func(items ...string) respObject {
		t.Helper()
		for _, it := range items {
			history = append(history, json.RawMessage(it))
		}
		input, _ := json.Marshal(history)
		a := p.respond(tools + `,"input":` + string(input))
		o := a.responded(t)
		var w struct{ Output []json.RawMessage }
		if err := json.Unmarshal(a.body, &w); err != nil {
			t.Fatal(err)
		}
		history = append(history, w.Output...)
		return o
	}
	first := send(`{"role":"user","content":"go"}`)
	request := first.of("mcp_approval_request")
	if len(request) != 1 {
		t.Fatalf("%+v", first)
	}
	for i, raw := range history {
		history[i] = json.RawMessage(strings.ReplaceAll(string(raw), `"arguments":"{\"q\":1}","id":"mcpr`, `"arguments":"{\"q\":666}","id":"mcpr`))
	}
	second := send(approve(request[0].ID))
	if fmt.Sprint(second.types()) != "[mcp_call message]" || second.text() != "Done." {
		t.Fatalf("%+v", second)
	}
	if calls := p.docs.Calls(); len(calls) != 1 || string(calls[0].Arguments) != `{"q":1}` {
		t.Errorf("%+v", calls)
	}
	third := send(`{"role":"user","content":"thanks"}`)
	if third.text() != "Later." || strings.Contains(p.asked(), "mcpr_") {
		t.Errorf("%+v; the provider got %s", third, p.asked())
	}
	p.called(1)
}

// Two calls of a turn are asked for together and decided one after the other; the client adds a
// message to the last decision. // B11
func TestApprovalsAreDecidedInParts(t *testing.T) {
	noLeaks(t)
	p := newParitySite(t, "openai", "call c1 search {\"q\":1}\ncall c2 read {\"n\":2}\ncall c3 customer {}\nusage 20 9\n\ntext Done.\nusage 30 4\n\ntext Later.", "")
	first, ids := p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
	if len(ids) != 2 || len(p.hidden.Calls()) != 1 { // the free call has run
		t.Fatalf("%v, %d calls of the org's server", ids, len(p.hidden.Calls()))
	}
	second, rest := p.asks(`"previous_response_id":"` + first.ID + `","input":[` + deny(ids[1], "") + `]`)
	if len(rest) != 1 || rest[0] != ids[0] || second.ID == first.ID {
		t.Fatalf("%+v", second)
	}
	p.called(0)
	if got := p.got(second.ID).responded(t); cmp.Diff(second, got) != "" {
		t.Error(cmp.Diff(second, got))
	}
	third := p.respond(`"previous_response_id":"` + second.ID + `","input":[` + approve(ids[0]) + `,{"role":"user","content":"be quick"}]`).responded(t)
	if fmt.Sprint(third.types()) != "[mcp_call message]" {
		t.Fatalf("%+v", third)
	}
	p.called(1)
	asked := p.asked()
	if at := strings.Index(asked, "be quick"); at < strings.Index(asked, "found") || !strings.Contains(asked, "Tool call denied by user.") {
		t.Errorf("the provider got %s", asked)
	}
	fourth := p.respond(`"previous_response_id":"` + third.ID + `","input":"more"`).responded(t)
	if fourth.Status != "completed" || strings.Count(p.asked(), "be quick") != 1 || strings.Count(p.asked(), `"go"`) != 1 {
		t.Errorf("%+v; the provider got %s", fourth, p.asked())
	}
}

// A conversation is continued by its id, and lists what was asked and answered.
func TestAConversationIsContinuedWithAnApproval(t *testing.T) {
	noLeaks(t)
	p := newParitySite(t, "openai", twoSteps, "")
	var c struct{ ID string }
	if err := json.Unmarshal(p.send("POST", "/v1/conversations", strings.NewReader(`{}`)).body, &c); err != nil {
		t.Fatal(err)
	}
	member := `"conversation":"` + c.ID + `",`
	_, ids := p.asks(member + `"input":"go","tools":[` + p.docsTool("") + `]`)
	second := p.respond(member + `"input":[` + approve(ids[0]) + `],"tools":[` + p.docsTool("") + `]`).responded(t)
	if second.text() != "Done." {
		t.Fatalf("%+v", second)
	}
	p.called(1)
	third := p.respond(member + `"input":"more"`).responded(t)
	if third.Status != "completed" || strings.Count(p.asked(), `"go"`) != 1 || strings.Contains(p.asked(), "approval") {
		t.Errorf("%+v; the provider got %s", third, p.asked())
	}
	var list struct{ Data []respItem }
	if err := json.Unmarshal(p.send("GET", "/v1/conversations/"+c.ID+"/items?order=asc", strings.NewReader("")).body, &list); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, it := range list.Data {
		types = append(types, it.Type)
	}
	if want := "[message mcp_list_tools message mcp_approval_request mcp_approval_response mcp_call message message message]"; fmt.Sprint(types) != want {
		t.Errorf("the conversation has %v, want %s", types, want)
	}
}

// What waited counts: with a limit of one call, the call after the approved one is not made. // B11
func TestAnApprovedContinuationObeysTheSameBudget(t *testing.T) {
	noLeaks(t)
	p := newParitySite(t, "openai", "call c1 search {\"q\":1}\n\ncall c2 read {\"n\":2}\n\ntext Done.", "")
	first, ids := p.asks(`"max_tool_calls":1,"input":"go","tools":[` + p.docsTool(`,"require_approval":{"never":{"tool_names":["read"]}}`) + `]`)
	second := p.respond(`"previous_response_id":"` + first.ID + `","input":[` + approve(ids[0]) + `]`).responded(t)
	if second.Incomplete == nil || second.Incomplete.Reason != "max_tool_calls" {
		t.Errorf("%+v", second)
	}
	p.called(1)
}

// A server of the org that asks is stricter than a request that does not. Its approvals are for
// those who may decide. // P02
func TestTheRuleOfTheOrgCannotBeLoosened(t *testing.T) {
	noLeaks(t)
	p := newParitySite(t, "openai", "call c1 customer {}\n\ntext Done.", "")
	gated := MustRun(t, strings.Replace(site{upstream: strings.TrimSuffix(p.up.URL, "/v1"), servers: []string{server("crm", p.hidden.URL, "require_approval: always")}}.yaml(), "{name: up,", "{name: up, kind: openai,", 1))
	p.gateway = gated
	tools := `"tools":[{"type":"mcp","server_label":"crm","require_approval":"never"}],`
	first, ids := p.asks(tools+`"input":"go"`, "Authorization", "Bearer member-key")
	previous := `"previous_response_id":"` + first.ID + `",`
	if a := p.respond(previous+`"input":[`+approve(ids[0])+`]`, "Authorization", "Bearer member-key"); a.status != 403 || !strings.Contains(string(a.body), "approver_required") {
		t.Errorf("a member decides what the org asks for: %d %s", a.status, a.body)
	}
	if n := len(p.hidden.Calls()); n != 0 {
		t.Fatalf("%d calls", n)
	}
}

// What clients send again, and in other orders: nothing is lost, made twice, or waited for in
// vain.
func TestAnswersThatAreSentAgainOrInAnotherOrder(t *testing.T) {
	noLeaks(t)
	const twice = "call c1 search {\"q\":1}\n\ncall c2 search {\"q\":2}\n\ntext Done."
	p := newParitySite(t, "openai", twice, "") // a stateless client: a denial, and what is asked then
	tools := `"store":false,"tools":[` + p.docsTool("") + `],`
	request := func(o respObject) string {
		it := o.of("mcp_approval_request")[0]
		return fmt.Sprintf(`{"type":"mcp_approval_request","id":%q,"server_label":"docs","name":"search","arguments":%q}`, it.ID, it.Arguments)
	}
	first, a := p.asks(tools + `"input":[{"role":"user","content":"go"}]`)
	history := `{"role":"user","content":"go"},` + request(first) + `,` + deny(a[0], "")
	second, b := p.asks(tools + `"input":[` + history + `]`)
	third := p.respond(tools + `"input":[` + history + `,` + request(second) + `,` + approve(b[0]) + `]`).responded(t)
	if third.text() != "Done." {
		t.Fatalf("%+v", third)
	}
	p.called(1)

	p = newParitySite(t, "openai", twoSteps, "") // a request item without a name, and input around it
	first, a = p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
	bare := fmt.Sprintf(`{"type":"mcp_approval_request","id":%q}`, a[0])
	second = p.respond(`"previous_response_id":"` + first.ID + `","input":[{"role":"user","content":"MARKER"},` + bare + `,` + deny(a[0], "") + `]`).responded(t)
	if second.text() != "Done." || !strings.Contains(p.asked(), "MARKER") {
		t.Errorf("%+v; the provider got %s", second, p.asked())
	}
	p = newParitySite(t, "openai", twoSteps, "")
	first, a = p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
	again := `"previous_response_id":"` + first.ID + `","input":[{"role":"user","content":"MARKER"},` + request(first) + `,` + deny(a[0], "") + `]`
	second = p.respond(again).responded(t)
	if second.text() != "Done." || strings.Count(p.asked(), "MARKER") != 1 {
		t.Errorf("%+v; the provider got %s", second, p.asked())
	}
	if o := p.respond(again).responded(t); o.ID != second.ID { // the answer was lost: the same again
		t.Errorf("sent again: %+v", o)
	}

	p = newParitySite(t, "openai", "call c1 search {\"q\":1}\ncall c2 read {\"n\":2}\n\ntext Done.", "") // one of two, twice
	first, a = p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
	one := `"previous_response_id":"` + first.ID + `","input":[` + approve(a[0]) + `]`
	second, b = p.asks(one)
	if o, c := p.asks(one); o.ID != second.ID || fmt.Sprint(b) != fmt.Sprint(c) {
		t.Errorf("sent again: %+v", o)
	}
	p.called(0)
}

// A response whose run waits is stored, and can be deleted. It is gone then, although its run
// has not ended.
func TestAResponseThatWaitsIsDeleted(t *testing.T) {
	p := newParitySite(t, "openai", twoSteps, "")
	o, _ := p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
	path := "/v1/responses/" + o.ID
	if a := p.send("DELETE", path, nil, "Authorization", "Bearer owner-key"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, request := range []string{"GET " + path, "GET " + path + "?stream=true", "DELETE " + path} {
		method, path, _ := strings.Cut(request, " ")
		if a := p.send(method, path, nil, "Authorization", "Bearer owner-key"); a.status != 404 {
			t.Errorf("%s: %d %s", request, a.status, a.body)
		}
	}
}
