package responses_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func deny(id, reason string) string {
	return fmt.Sprintf(`{"type":"mcp_approval_response","approval_request_id":%q,"approve":false,"reason":%q}`, id, reason)
}

// Which calls wait, by the forms of require_approval. // H01 D14
func requireApproval(t *testing.T) {
	for more, waits := range map[string]bool{
		"": true, `,"require_approval":"always"`: true, `,"require_approval":null`: true, Never: false,
		`,"require_approval":{"always":{"tool_names":["search"]}}`:                                       true,
		`,"require_approval":{"never":{"tool_names":["read"]}}`:                                          true,
		`,"require_approval":{"never":{"tool_names":["search"]}}`:                                        false,
		`,"require_approval":{"never":{"tool_names":["search"]},"always":{"tool_names":["search"]}}`:     true,
		`,"require_approval":{"never":{"read_only":true}}`:                                               true,
		`,"require_approval":{"never":{"read_only":false}}`:                                              false,
		`,"allowed_tools":["search"],"require_approval":{"never":{"tool_names":["search"]},"always":{}}`: true,
	} {
		p := NewParitySite(t, "openai", TwoSteps, "")
		o := p.Respond(`"input":"go","tools":[` + p.DocsTool(more) + `]`).Responded(t)
		if got := len(o.Of("mcp_approval_request")) == 1; got != waits || o.Status != "completed" {
			t.Errorf("%s: %+v", more, o)
		}
		p.Called(map[bool]int{true: 0, false: 1}[waits])
	}
	p := NewParitySite(t, "openai", TwoSteps, "")
	for _, more := range []string{`,"require_approval":"sometimes"`, `,"require_approval":7`, `,"require_approval":{"perhaps":{}}`, `,"require_approval":{"never":{"name":"search"}}`} {
		p.Refused(p.Respond(`"input":"go","tools":[`+p.DocsTool(more)+`]`), "tools[0].require_approval")
	}
}

// The request is in JSON, in the stream and in the stored response, with the arguments of the
// call. // H01
func approvalRequestIsThere(t *testing.T) {
	for _, kind := range []string{"openai", "anthropic", "openai-responses"} {
		p := NewParitySite(t, kind, TwoSteps, "")
		o, ids := p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
		want := RespItem{ID: ids[0], Type: "mcp_approval_request", Name: "search", Label: "docs", Arguments: `{"q":1}`}
		if diff := cmp.Diff(want, o.Of("mcp_approval_request")[0]); diff != "" {
			t.Error(diff)
		}
		if fmt.Sprint(o.Types()) != "[mcp_list_tools message mcp_approval_request]" {
			t.Errorf("%s: %v", kind, o.Types())
		}
		if got := p.Got(o.ID).Responded(t); cmp.Diff(o, got) != "" {
			t.Error(cmp.Diff(o, got))
		}
		p = NewParitySite(t, kind, TwoSteps, "")
		all := p.Respond(`"input":"go","stream":true,"tools":[` + p.DocsTool("") + `]`).Events(t)
		WantNumbered(t, all)
		wantEnded(t, all)
		if last(all).Status != "completed" || len(last(all).Of("mcp_approval_request")) != 1 {
			t.Errorf("%+v", last(all))
		}
		p.Called(0)
	}
}

// The call is made first, once, and then the model goes on. // H02 H12 P02
func approvedContinuation(t *testing.T) {
	for _, kind := range []string{"openai", "anthropic", "openai-responses"} {
		for _, how := range []string{"JSON", "stream"} {
			t.Run(kind+", "+how, func(t *testing.T) {
				p := NewParitySite(t, kind, TwoSteps, "")
				first, ids := p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
				members := `"previous_response_id":"` + first.ID + `","input":[` + Approve(ids[0]) + `],"tools":[` + p.DocsTool("") + `]`
				var second RespObject
				if how == "stream" {
					all := p.Respond(members + `,"stream":true`).Events(t)
					WantNumbered(t, all)
					wantEnded(t, all)
					second = last(all)
				} else {
					second = p.Respond(members).Responded(t)
				}
				if fmt.Sprint(second.Types()) != "[mcp_call message]" || second.Text() != "Done." || second.ID == first.ID || second.Status != "completed" {
					t.Fatalf("%+v", second)
				}
				call := second.Of("mcp_call")[0]
				if call.Request != ids[0] || call.Arguments != `{"q":1}` || call.Output == nil || *call.Output != "found" {
					t.Errorf("%+v", call)
				}
				p.Called(1)
				if got := p.Got(second.ID).Responded(t); cmp.Diff(second, got) != "" {
					t.Error(cmp.Diff(second, got))
				}
				if got := p.Got(first.ID).Responded(t); cmp.Diff(first, got) != "" {
					t.Error(cmp.Diff(first, got))
				}
				if strings.Contains(p.Asked(), "approval") {
					t.Errorf("the provider got %s", p.Asked()) // D22
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
	NoLeaks(t)
	p := NewParitySite(t, "openai", TwoSteps, "")
	first, ids := p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
	second := p.Respond(`"previous_response_id":"` + first.ID + `","input":[` + deny(ids[0], "not today") + `]`).Responded(t)
	if fmt.Sprint(second.Types()) != "[message]" || !strings.Contains(p.Asked(), "Tool call denied by user: not today") {
		t.Errorf("%+v; the provider got %s", second, p.Asked())
	}
	p.Called(0)
	third := p.Respond(`"previous_response_id":"` + second.ID + `","input":"and now?"`).Responded(t)
	if third.Status != "completed" || !strings.Contains(p.Asked(), "not today") {
		t.Errorf("%+v; the provider got %s", third, p.Asked())
	}
	p.Called(0)
}

// An approval has one decision, of the principal that was asked, for the call as it was asked.
// // P02
func approvalIsUsedOnce(t *testing.T) {
	p := NewParitySite(t, "openai", TwoSteps, "")
	first, ids := p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
	previous := `"previous_response_id":"` + first.ID + `",`
	for name, members := range map[string]string{
		"unknown":           previous + `"input":[` + Approve("mcpr_0") + `]`,
		"no id":             previous + `"input":[{"type":"mcp_approval_response","approve":true}]`,
		"no decision":       previous + `"input":[{"type":"mcp_approval_response","approval_request_id":"` + ids[0] + `"}]`,
		"without a request": `"input":[{"role":"user","content":"go"},` + Approve(ids[0]) + `]`,
		"another model":     previous + `"model":"g-2","input":[` + Approve(ids[0]) + `]`,
		"other tools":       previous + `"tools":[],"input":[` + Approve(ids[0]) + `]`,
		"other settings":    previous + `"temperature":0.5,"input":[` + Approve(ids[0]) + `]`,
	} {
		if a := p.Respond(members); a.Status != 400 {
			t.Errorf("%s: status %d: %s", name, a.Status, a.Body)
		}
	}
	for _, key := range []string{"admin-key", "member-key"} {
		if a := p.Respond(previous+`"input":[`+Approve(ids[0])+`]`, "Authorization", "Bearer "+key); a.Status != 400 || !strings.Contains(string(a.Body), "approval_not_found") {
			t.Errorf("another principal gets %d: %s", a.Status, a.Body)
		}
	}
	p.Called(0)
	second := p.Respond(previous + `"input":[` + Approve(ids[0]) + `]`).Responded(t)
	again := p.Respond(previous + `"input":[` + Approve(ids[0]) + `]`).Responded(t)
	if second.ID != again.ID || second.Text() != "Done." || again.Text() != "Done." {
		t.Errorf("the same answer again: %+v, before %+v", again, second)
	}
	other := p.Respond(previous + `"input":[` + deny(ids[0], "no") + `]`).Responded(t)
	if other.ID != second.ID {
		t.Errorf("another answer again: %+v", other)
	}
	p.Called(1)
}

// A client that stores nothing at the gateway sends its items back. What it makes of the approval
// request changes nothing. // H02 P02
func TestAStatelessClientContinuesWithItsOwnItems(t *testing.T) {
	NoLeaks(t)
	p := NewParitySite(t, "openai", TwoSteps, "")
	tools := `"store":false,"tools":[` + p.DocsTool("") + `]`
	var history []json.RawMessage
	send := func(items ...string) RespObject {
		t.Helper()
		for _, it := range items {
			history = append(history, json.RawMessage(it))
		}
		input, _ := json.Marshal(history)
		a := p.Respond(tools + `,"input":` + string(input))
		o := a.Responded(t)
		var w struct{ Output []json.RawMessage }
		if err := json.Unmarshal(a.Body, &w); err != nil {
			t.Fatal(err)
		}
		history = append(history, w.Output...)
		return o
	}
	first := send(`{"role":"user","content":"go"}`)
	request := first.Of("mcp_approval_request")
	if len(request) != 1 {
		t.Fatalf("%+v", first)
	}
	for i, raw := range history {
		history[i] = json.RawMessage(strings.ReplaceAll(string(raw), `"arguments":"{\"q\":1}","id":"mcpr`, `"arguments":"{\"q\":666}","id":"mcpr`))
	}
	second := send(Approve(request[0].ID))
	if fmt.Sprint(second.Types()) != "[mcp_call message]" || second.Text() != "Done." {
		t.Fatalf("%+v", second)
	}
	if calls := p.Docs.Calls(); len(calls) != 1 || string(calls[0].Arguments) != `{"q":1}` {
		t.Errorf("%+v", calls)
	}
	third := send(`{"role":"user","content":"thanks"}`)
	if third.Text() != "Later." || strings.Contains(p.Asked(), "mcpr_") {
		t.Errorf("%+v; the provider got %s", third, p.Asked())
	}
	p.Called(1)
}

// Two calls of a turn are asked for together and decided one after the other; the client adds a
// message to the last decision. // B11
func TestApprovalsAreDecidedInParts(t *testing.T) {
	NoLeaks(t)
	p := NewParitySite(t, "openai", "call c1 search {\"q\":1}\ncall c2 read {\"n\":2}\ncall c3 customer {}\nusage 20 9\n\ntext Done.\nusage 30 4\n\ntext Later.", "")
	first, ids := p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
	if len(ids) != 2 || len(p.Hidden.Calls()) != 1 { // the free call has run
		t.Fatalf("%v, %d calls of the org's server", ids, len(p.Hidden.Calls()))
	}
	second, rest := p.Asks(`"previous_response_id":"` + first.ID + `","input":[` + deny(ids[1], "") + `]`)
	if len(rest) != 1 || rest[0] != ids[0] || second.ID == first.ID {
		t.Fatalf("%+v", second)
	}
	p.Called(0)
	if got := p.Got(second.ID).Responded(t); cmp.Diff(second, got) != "" {
		t.Error(cmp.Diff(second, got))
	}
	third := p.Respond(`"previous_response_id":"` + second.ID + `","input":[` + Approve(ids[0]) + `,{"role":"user","content":"be quick"}]`).Responded(t)
	if fmt.Sprint(third.Types()) != "[mcp_call message]" {
		t.Fatalf("%+v", third)
	}
	p.Called(1)
	asked := p.Asked()
	if at := strings.Index(asked, "be quick"); at < strings.Index(asked, "found") || !strings.Contains(asked, "Tool call denied by user.") {
		t.Errorf("the provider got %s", asked)
	}
	fourth := p.Respond(`"previous_response_id":"` + third.ID + `","input":"more"`).Responded(t)
	if fourth.Status != "completed" || strings.Count(p.Asked(), "be quick") != 1 || strings.Count(p.Asked(), `"go"`) != 1 {
		t.Errorf("%+v; the provider got %s", fourth, p.Asked())
	}
}

// A conversation is continued by its id, and lists what was asked and answered.
func TestAConversationIsContinuedWithAnApproval(t *testing.T) {
	NoLeaks(t)
	p := NewParitySite(t, "openai", TwoSteps, "")
	var c struct{ ID string }
	if err := json.Unmarshal(p.Send("POST", "/v1/conversations", strings.NewReader(`{}`)).Body, &c); err != nil {
		t.Fatal(err)
	}
	member := `"conversation":"` + c.ID + `",`
	_, ids := p.Asks(member + `"input":"go","tools":[` + p.DocsTool("") + `]`)
	second := p.Respond(member + `"input":[` + Approve(ids[0]) + `],"tools":[` + p.DocsTool("") + `]`).Responded(t)
	if second.Text() != "Done." {
		t.Fatalf("%+v", second)
	}
	p.Called(1)
	third := p.Respond(member + `"input":"more"`).Responded(t)
	if third.Status != "completed" || strings.Count(p.Asked(), `"go"`) != 1 || strings.Contains(p.Asked(), "approval") {
		t.Errorf("%+v; the provider got %s", third, p.Asked())
	}
	var list struct{ Data []RespItem }
	if err := json.Unmarshal(p.Send("GET", "/v1/conversations/"+c.ID+"/items?order=asc", strings.NewReader("")).Body, &list); err != nil {
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
	NoLeaks(t)
	p := NewParitySite(t, "openai", "call c1 search {\"q\":1}\n\ncall c2 read {\"n\":2}\n\ntext Done.", "")
	first, ids := p.Asks(`"max_tool_calls":1,"input":"go","tools":[` + p.DocsTool(`,"require_approval":{"never":{"tool_names":["read"]}}`) + `]`)
	second := p.Respond(`"previous_response_id":"` + first.ID + `","input":[` + Approve(ids[0]) + `]`).Responded(t)
	if second.Incomplete == nil || second.Incomplete.Reason != "max_tool_calls" {
		t.Errorf("%+v", second)
	}
	p.Called(1)
}

// A server of the org that asks is stricter than a request that does not. Its approvals are for
// those who may decide. // P02
func TestTheRuleOfTheOrgCannotBeLoosened(t *testing.T) {
	NoLeaks(t)
	p := NewParitySite(t, "openai", "call c1 customer {}\n\ntext Done.", "")
	gated := MustRun(t, strings.Replace(Site{Upstream: strings.TrimSuffix(p.Up.URL, "/v1"), Servers: []string{Server("crm", p.Hidden.URL, "require_approval: always")}}.Yaml(), "{name: up,", "{name: up, kind: openai,", 1))
	p.Gateway = gated
	tools := `"tools":[{"type":"mcp","server_label":"crm","require_approval":"never"}],`
	first, ids := p.Asks(tools+`"input":"go"`, "Authorization", "Bearer member-key")
	previous := `"previous_response_id":"` + first.ID + `",`
	if a := p.Respond(previous+`"input":[`+Approve(ids[0])+`]`, "Authorization", "Bearer member-key"); a.Status != 403 || !strings.Contains(string(a.Body), "approver_required") {
		t.Errorf("a member decides what the org asks for: %d %s", a.Status, a.Body)
	}
	if n := len(p.Hidden.Calls()); n != 0 {
		t.Fatalf("%d calls", n)
	}
}

// What clients send again, and in other orders: nothing is lost, made twice, or waited for in
// vain.
func TestAnswersThatAreSentAgainOrInAnotherOrder(t *testing.T) {
	NoLeaks(t)
	const twice = "call c1 search {\"q\":1}\n\ncall c2 search {\"q\":2}\n\ntext Done."
	p := NewParitySite(t, "openai", twice, "") // a stateless client: a denial, and what is asked then
	tools := `"store":false,"tools":[` + p.DocsTool("") + `],`
	request := func(o RespObject) string {
		it := o.Of("mcp_approval_request")[0]
		return fmt.Sprintf(`{"type":"mcp_approval_request","id":%q,"server_label":"docs","name":"search","arguments":%q}`, it.ID, it.Arguments)
	}
	first, a := p.Asks(tools + `"input":[{"role":"user","content":"go"}]`)
	history := `{"role":"user","content":"go"},` + request(first) + `,` + deny(a[0], "")
	second, b := p.Asks(tools + `"input":[` + history + `]`)
	third := p.Respond(tools + `"input":[` + history + `,` + request(second) + `,` + Approve(b[0]) + `]`).Responded(t)
	if third.Text() != "Done." {
		t.Fatalf("%+v", third)
	}
	p.Called(1)

	p = NewParitySite(t, "openai", TwoSteps, "") // a request item without a name, and input around it
	first, a = p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
	bare := fmt.Sprintf(`{"type":"mcp_approval_request","id":%q}`, a[0])
	second = p.Respond(`"previous_response_id":"` + first.ID + `","input":[{"role":"user","content":"MARKER"},` + bare + `,` + deny(a[0], "") + `]`).Responded(t)
	if second.Text() != "Done." || !strings.Contains(p.Asked(), "MARKER") {
		t.Errorf("%+v; the provider got %s", second, p.Asked())
	}
	p = NewParitySite(t, "openai", TwoSteps, "")
	first, a = p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
	again := `"previous_response_id":"` + first.ID + `","input":[{"role":"user","content":"MARKER"},` + request(first) + `,` + deny(a[0], "") + `]`
	second = p.Respond(again).Responded(t)
	if second.Text() != "Done." || strings.Count(p.Asked(), "MARKER") != 1 {
		t.Errorf("%+v; the provider got %s", second, p.Asked())
	}
	if o := p.Respond(again).Responded(t); o.ID != second.ID { // the answer was lost: the same again
		t.Errorf("sent again: %+v", o)
	}

	p = NewParitySite(t, "openai", "call c1 search {\"q\":1}\ncall c2 read {\"n\":2}\n\ntext Done.", "") // one of two, twice
	first, a = p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
	one := `"previous_response_id":"` + first.ID + `","input":[` + Approve(a[0]) + `]`
	second, b = p.Asks(one)
	if o, c := p.Asks(one); o.ID != second.ID || fmt.Sprint(b) != fmt.Sprint(c) {
		t.Errorf("sent again: %+v", o)
	}
	p.Called(0)
}

// A response whose run waits is stored, and can be deleted. It is gone then, although its run
// has not ended.
func TestAResponseThatWaitsIsDeleted(t *testing.T) {
	p := NewParitySite(t, "openai", TwoSteps, "")
	o, _ := p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
	path := "/v1/responses/" + o.ID
	if a := p.Send("DELETE", path, nil, "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	for _, request := range []string{"GET " + path, "GET " + path + "?stream=true", "DELETE " + path} {
		method, path, _ := strings.Cut(request, " ")
		if a := p.Send(method, path, nil, "Authorization", "Bearer owner-key"); a.Status != 404 {
			t.Errorf("%s: %d %s", request, a.Status, a.Body)
		}
	}
}
