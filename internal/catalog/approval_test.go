package catalog

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
)

// A rule that names a tool which the server does not have is logged once. // P60
func TestAMisspeltApprovalRuleIsLoggedAtDiscovery(t *testing.T) {
	c, log := logged(t)
	s := Server{Name: "s", Source: has(named("get-sum"), named("other")), Tools: []string{"get-sum"},
		Approval: policy.Approval{Always: &policy.Tools{Names: []string{"get_sum", "other", "get_sum"}}}}
	for range 2 {
		if set := mustFind(t, c, s); !set.Has("s", "other") || set.Has("s", "get_sum") || set.Has("t", "other") {
			t.Error("the set does not know what its server has")
		}
	}
	if text := log(); strings.Count(text, "mcp_approval_rule_unmatched") != 1 || !strings.Contains(text, "tools=[get_sum]") {
		t.Errorf("logged:\n%s", text)
	}
}

// A name in another setting is logged once, with the setting and the tool that it probably
// means. A tool that is left out has been logged for that. // P61
func TestAMisspeltToolNameIsLoggedAtDiscovery(t *testing.T) {
	c, log := logged(t)
	s := Server{Name: "s", Source: has(named("get-sum"), schemed("broken", `5`)), Tools: []string{"get-sum"},
		Named: []org.ToolList{{Setting: "tools", Names: []string{"get_sum", "get-sum", "broken", "get_sum"}}, {Setting: "reads", Names: []string{"other"}}}}
	for range 2 {
		mustFind(t, c, s)
	}
	text := log()
	if n := strings.Count(text, "mcp_tool_name_unmatched"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, text)
	}
	for _, want := range []string{"server=s tool=get_sum setting=tools nearest=get-sum", `server=s tool=other setting=reads nearest=""`} {
		if !strings.Contains(text, want) {
			t.Errorf("not logged: %s\n%s", want, text)
		}
	}
}
