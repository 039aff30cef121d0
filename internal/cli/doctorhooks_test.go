package cli

import (
	"fmt"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// Doctor finds the hooks of an org and of its agents that run for no call. A hook may select tools of agents, too.
func TestDoctorFindsHooksWithoutATool(t *testing.T) {
	server := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "lookup", Result: "x"})
	defer server.Close()
	out := examined(t, fmt.Sprintf(`orgs:
  - id: default
    features: [mcp_outbound]
    runtime:
      hooks:
        - {id: misspelt, event: PreToolUse, type: approval, matcher: refund_odrer}
        - {id: ofagent, event: PreToolUse, type: approval, matcher: lookup}
        - {id: builtin, event: PreToolUse, type: approval, matcher: "web_*"}
    agents:
      - name: clerk
        model: demo
        mcp_servers: [{name: shop, url: %q}]
        hooks:
          - {event: PreToolUse, type: approval, matcher: mcp__shop__lookup}
          - {event: PreToolUse, type: approval, matcher: lookpu}
`, server.URL), nil)
	mustSay(t, out,
		`wrong      hook default/misspelt: matcher "refund_odrer" matches no tool, so the hook runs for no call`,
		`well       hook default/ofagent: matcher "lookup" matches a tool`,
		`well       hook default/builtin: matcher "web_*" matches a tool`,
		`well       hook default/clerk.hooks[0]: matcher "mcp__shop__lookup" matches a tool`,
		`wrong      hook default/clerk.hooks[1]: matcher "lookpu" matches no tool, so the hook runs for no call`)
}
