package responses_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// sameLabel boots a gateway whose org has a hidden server docs with the tools customer and
// search, and whose provider plays the story. The requests declare another server docs, with the
// tools search and read. more are the settings of the org's server.
func sameLabel(t *testing.T, kind, story string, more ...string) *ParitySite {
	t.Helper()
	p := NewParitySite(t, kind, story, "")
	p.Hidden = turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "customer", Result: "Ada"}, turnpiketest.Tool{Name: "search", Result: "hidden"})
	t.Cleanup(p.Hidden.Close)
	yaml := Site{Upstream: strings.TrimSuffix(p.Up.URL, "/v1"), Servers: []string{Server("docs", p.Hidden.URL, more...)}}.Yaml()
	yaml, _ = OfKind(yaml, kind)
	p.Gateway = MustRun(t, yaml)
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
	NoLeaks(t)
	const story = "call c1 read {}\ncall c2 customer {}\ncall c3 search {}\ncall c4 mcp__docs__search {\"q\":1}\n\ntext Done."
	for _, kind := range []string{"openai", "anthropic", "openai-responses"} {
		for _, how := range []string{"", `,"stream":true`} {
			p := sameLabel(t, kind, story)
			a := p.Respond(`"input":"go","tools":[` + p.DocsTool(Never) + `]` + how)
			var o RespObject
			if how == "" {
				o = a.Responded(t)
			} else {
				all := a.Events(t)
				WantNumbered(t, all)
				wantEnded(t, all)
				o = last(all)
			}
			if fmt.Sprint(o.Types()) != "[mcp_list_tools mcp_call mcp_call message]" || o.Text() != "Done." {
				t.Fatalf("%s: %+v", kind, o)
			}
			list := o.Of("mcp_list_tools")[0]
			if list.Label != "docs" || len(list.Tools) != 2 {
				t.Errorf("listed %+v", list)
			}
			for _, c := range o.Of("mcp_call") {
				if c.Label != "docs" || c.Output == nil || *c.Output != map[string]string{"read": "a page", "search": "found"}[c.Name] {
					t.Errorf("%+v", c)
				}
			}
			if own, org := toolsCalled(p.Docs), toolsCalled(p.Hidden); len(own) != 2 || !slices.Contains(org, "customer") || !slices.Contains(org, "search") {
				t.Errorf("called %q of the declared server, %q of the org's", own, org)
			}
			for _, hidden := range []string{"customer", "Ada", "hidden", "request:"} {
				if strings.Contains(string(a.Body), hidden) {
					t.Errorf("the client reads %q: %s", hidden, a.Body)
				}
			}
		}
	}
}

// A choice of the tools under the label is one of the declared server. // B09
func TestAChoiceOfALabelIsNoChoiceOfAHiddenServer(t *testing.T) {
	NoLeaks(t)
	p := sameLabel(t, "openai", "call c1 customer {}\n\ntext Done.")
	o := p.Respond(`"input":"go","tools":[` + p.DocsTool(Never) + `],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"docs"}]}`).Responded(t)
	if len(p.Hidden.Calls()) != 0 || o.Text() != "Done." {
		t.Errorf("%d calls of the hidden server: %+v", len(p.Hidden.Calls()), o)
	}
	a := p.Respond(`"input":"go","tools":[` + p.DocsTool(Never) + `],"tool_choice":{"type":"mcp","server_label":"docs","name":"customer"}`)
	if e := a.Fault(t).Error; a.Status != 400 || !strings.Contains(e.Message, "docs/customer") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// The rules of both servers hold each for its own calls. The approver sees whose server it
// is. // H01 H02
func TestApprovalsOfServersWithOneLabel(t *testing.T) {
	NoLeaks(t)
	const story = "call c1 read {}\ncall c2 customer {}\n\ntext Done.\n\ntext Later."
	for name, tt := range map[string]struct{ org, own, waits string }{
		"of the request": {"require_approval: never", "", "request:docs read"},
		"of the org":     {"require_approval: always", Never, "docs customer"},
	} {
		t.Run(name, func(t *testing.T) {
			p := sameLabel(t, "openai", story, tt.org)
			tools := `"tools":[` + p.DocsTool(tt.own) + `]`
			first, ids := p.Asks(`"input":"go",` + tools)
			var list struct {
				Data []struct{ ID, Server, Tool string }
			}
			if err := json.Unmarshal(p.Send("GET", "/v1/approvals?status=waiting", nil).Body, &list); err != nil || len(list.Data) != 1 || list.Data[0].Server+" "+list.Data[0].Tool != tt.waits {
				t.Errorf("%v %+v, want %s", err, list, tt.waits)
			}
			if n := len(p.Docs.Calls()) + len(p.Hidden.Calls()); n != 1 || len(ids) != 1 {
				t.Fatalf("%d calls before the approval of %q", n, ids)
			}
			if l := first.Of("mcp_approval_request")[0].Label; l != "docs" {
				t.Errorf("the client reads the label %q", l)
			}
			second := p.Respond(`"previous_response_id":"` + first.ID + `","input":[` + Approve(ids[0]) + `],` + tools).Responded(t)
			if second.Text() != "Done." || fmt.Sprint(toolsCalled(p.Docs), toolsCalled(p.Hidden)) != "[read] [customer]" {
				t.Errorf("%+v; called %q, %q", second, toolsCalled(p.Docs), toolsCalled(p.Hidden))
			}
			for _, c := range append(first.Of("mcp_call"), second.Of("mcp_call")...) {
				if c.Label != "docs" {
					t.Errorf("the client reads the label %q", c.Label)
				}
			}
			third := p.Respond(`"previous_response_id":"` + second.ID + `","input":"more",` + tools).Responded(t)
			if third.Text() != "Later." || len(third.Of("mcp_list_tools")) != 0 {
				t.Errorf("%+v", third)
			}
		})
	}
}
