package app_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// sameLabel boots a gateway whose org has a hidden server docs with the tools customer and
// search, and whose provider plays the story. The requests declare another server docs, with the
// tools search and read. more are the settings of the org's server.
func sameLabel(t *testing.T, kind, story string, more ...string) *paritySite {
	t.Helper()
	p := newParitySite(t, kind, story, "")
	p.hidden = turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "customer", Result: "Ada"}, turnpiketest.Tool{Name: "search", Result: "hidden"})
	t.Cleanup(p.hidden.Close)
	yaml := site{upstream: strings.TrimSuffix(p.up.URL, "/v1"), servers: []string{server("docs", p.hidden.URL, more...)}}.yaml()
	yaml, _ = ofKind(yaml, kind)
	p.gateway = MustRun(t, yaml)
	return p
}

// toolsCalled are the names of the tools that were called, in order.
func toolsCalled(s *turnpiketest.MCPServer) (names []string) {
	for _, c := range s.Calls() {
		names = append(names, c.Tool)
	}
	return names
}

// A server that a request declares may have the label of a hidden server of the org: both are
// used, and the client sees only its own. // D19
func TestTheLabelOfADeclaredServerIsThatOfAHiddenOne(t *testing.T) {
	noLeaks(t)
	const story = "call c1 read {}\ncall c2 customer {}\ncall c3 search {}\ncall c4 mcp__docs__search {\"q\":1}\n\ntext Done."
	for _, kind := range []string{"openai", "anthropic", "openai-responses"} {
		for _, how := range []string{"", `,"stream":true`} {
			p := sameLabel(t, kind, story)
			a := p.respond(`"input":"go","tools":[` + p.docsTool(never) + `]` + how)
			var o respObject
			if how == "" {
				o = a.responded(t)
			} else {
				all := a.events(t)
				wantNumbered(t, all)
				wantEnded(t, all)
				o = last(all)
			}
			if fmt.Sprint(o.types()) != "[mcp_list_tools mcp_call mcp_call message]" || o.text() != "Done." {
				t.Fatalf("%s: %+v", kind, o)
			}
			list := o.of("mcp_list_tools")[0]
			if list.Label != "docs" || len(list.Tools) != 2 {
				t.Errorf("listed %+v", list)
			}
			for _, c := range o.of("mcp_call") {
				if c.Label != "docs" || c.Output == nil || *c.Output != map[string]string{"read": "a page", "search": "found"}[c.Name] {
					t.Errorf("%+v", c)
				}
			}
			if own, org := toolsCalled(p.docs), toolsCalled(p.hidden); len(own) != 2 || !slices.Contains(org, "customer") || !slices.Contains(org, "search") {
				t.Errorf("called %q of the declared server, %q of the org's", own, org)
			}
			for _, hidden := range []string{"customer", "Ada", "hidden", "request:"} {
				if strings.Contains(string(a.body), hidden) {
					t.Errorf("the client reads %q: %s", hidden, a.body)
				}
			}
		}
	}
}

// A choice of the tools under the label is one of the declared server. // B09
func TestAChoiceOfALabelIsNoChoiceOfAHiddenServer(t *testing.T) {
	noLeaks(t)
	p := sameLabel(t, "openai", "call c1 customer {}\n\ntext Done.")
	o := p.respond(`"input":"go","tools":[` + p.docsTool(never) + `],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"docs"}]}`).responded(t)
	if len(p.hidden.Calls()) != 0 || o.text() != "Done." {
		t.Errorf("%d calls of the hidden server: %+v", len(p.hidden.Calls()), o)
	}
	a := p.respond(`"input":"go","tools":[` + p.docsTool(never) + `],"tool_choice":{"type":"mcp","server_label":"docs","name":"customer"}`)
	if e := a.fault(t).Error; a.status != 400 || !strings.Contains(e.Message, "docs/customer") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The rules of both servers hold each for its own calls. The approver sees whose server it
// is. // H01 H02
func TestApprovalsOfServersWithOneLabel(t *testing.T) {
	noLeaks(t)
	const story = "call c1 read {}\ncall c2 customer {}\n\ntext Done.\n\ntext Later."
	for name, tt := range map[string]struct{ org, own, waits string }{
		"of the request": {"require_approval: never", "", "request:docs read"},
		"of the org":     {"require_approval: always", never, "docs customer"},
	} {
		t.Run(name, func(t *testing.T) {
			p := sameLabel(t, "openai", story, tt.org)
			tools := `"tools":[` + p.docsTool(tt.own) + `]`
			first, ids := p.asks(`"input":"go",` + tools)
			var list struct {
				Data []struct{ ID, Server, Tool string }
			}
			if err := json.Unmarshal(p.send("GET", "/v1/approvals?status=waiting", nil).body, &list); err != nil || len(list.Data) != 1 || list.Data[0].Server+" "+list.Data[0].Tool != tt.waits {
				t.Errorf("%v %+v, want %s", err, list, tt.waits)
			}
			if n := len(p.docs.Calls()) + len(p.hidden.Calls()); n != 1 || len(ids) != 1 {
				t.Fatalf("%d calls before the approval of %q", n, ids)
			}
			if l := first.of("mcp_approval_request")[0].Label; l != "docs" {
				t.Errorf("the client reads the label %q", l)
			}
			second := p.respond(`"previous_response_id":"` + first.ID + `","input":[` + approve(ids[0]) + `],` + tools).responded(t)
			if second.text() != "Done." || fmt.Sprint(toolsCalled(p.docs), toolsCalled(p.hidden)) != "[read] [customer]" {
				t.Errorf("%+v; called %q, %q", second, toolsCalled(p.docs), toolsCalled(p.hidden))
			}
			for _, c := range append(first.of("mcp_call"), second.of("mcp_call")...) {
				if c.Label != "docs" {
					t.Errorf("the client reads the label %q", c.Label)
				}
			}
			third := p.respond(`"previous_response_id":"` + second.ID + `","input":"more",` + tools).responded(t)
			if third.text() != "Later." || len(third.of("mcp_list_tools")) != 0 {
				t.Errorf("%+v", third)
			}
		})
	}
}
