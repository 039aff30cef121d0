package cli

import (
	"fmt"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// Doctor finds the hooks of an org and of its agents that run for no call, and models and tools of agents that do not exist. A hook of an
// org may select tools of agents, too.
func TestDoctorFindsWhatAgentsNameAndDoesNotExist(t *testing.T) {
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
          - {event: PreToolUse, type: approval, matcher: status}
      - {name: lost, model: dmo, tools: [{name: storage_wite}, {name: gone}]}
    http_tools: [{name: status, description: d, url: "http://127.0.0.1:9/status"}]
`, server.URL), nil)
	mustSay(t, out,
		`wrong      hook default/misspelt: matcher "refund_odrer" matches no tool, so the hook runs for no call`,
		`well       hook default/ofagent: matcher "lookup" matches a tool`,
		`well       hook default/builtin: matcher "web_*" matches a tool`,
		`well       hook default/clerk.hooks[0]: matcher "mcp__shop__lookup" matches a tool`,
		`wrong      hook default/clerk.hooks[1]: matcher "lookpu" matches no tool of the agent, so the hook runs for no call`,
		`well       hook default/clerk.hooks[2]: matcher "status" matches a tool`,
		`well       agent default/clerk: its model is served, and its tools exist`,
		`wrong      agent default/lost: model: no provider of this gateway`+
			` serves the model "dmo", so runs of the agent are refused until one does`,
		`wrong      agent default/lost: tools[0].tool_name: "storage_wite" is not a built-in tool; `+
			`runs of the agent are refused unless the org has a custom tool of that name`,
		`           to do: did you mean the built-in tool storage_write?`,
		`wrong      agent default/lost: tools[1].tool_name: "gone" is not a built-in tool; `+
			`runs of the agent are refused unless the org has a custom tool of that name`,
		`           to do: create it with POST /api/tools`)
}
