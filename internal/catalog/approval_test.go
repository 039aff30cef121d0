package catalog

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/policy"
)

// P60: a rule that names a tool which the server does not have is logged once.
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
