package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestACheckNamesWhatAServerDoesNotHave(t *testing.T) {
	var out strings.Builder
	printTools(&out, org.MCPServer{Reads: []string{"find", "fnid"}, Keyed: []string{"order", "broken"}, Polling: []string{"state"}}, mcptool.Report{
		Tools:   []tool.Definition{{Name: "find", InputSchema: json.RawMessage(`{"type":"object"}`)}},
		LeftOut: []mcptool.LeftOut{{Name: "broken", Reason: "it is"}},
	})
	const want = `  offered   find  
  left out  broken: it is
  missing   state: polling names it, and the server has no such tool
  missing   fnid: reads names it, and the server has no such tool (did you mean find?)
  missing   order: keyed names it, and the server has no such tool
1 tools offered
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

// A misspelt name in a rule is named, and each tool says whether its calls wait. // P60
func TestACheckSaysWhichCallsNeedApproval(t *testing.T) {
	reads, object := true, json.RawMessage(`{"type":"object"}`)
	report := mcptool.Report{Tools: []tool.Definition{
		{Name: "get-sum", InputSchema: object}, {Name: "look", InputSchema: object, Annotations: tool.Annotations{ReadOnly: &reads}},
	}}
	for name, c := range map[string]struct {
		approval org.Approval
		want     string
	}{
		"misspelt": {org.Approval{Mode: org.ApproveRules, Always: &org.ToolFilter{ToolNames: []string{"get_sum"}}}, `  offered   get-sum  needs approval  
  offered   look  no approval     
  missing   get_sum: require_approval.always names it, and the server has no such tool (did you mean get-sum?)
2 tools offered
`},
		"right": {org.Approval{Mode: org.ApproveRules, Always: &org.ToolFilter{ToolNames: []string{"look"}}}, `  offered   get-sum  no approval     
  offered   look  needs approval  
2 tools offered
`},
		"writes": {org.Approval{Mode: org.ApproveWrites}, `  offered   get-sum  needs approval  
  offered   look  no approval     
2 tools offered
`},
	} {
		var out strings.Builder
		if printTools(&out, org.MCPServer{Trust: true, RequireApproval: c.approval}, report); out.String() != c.want {
			t.Errorf("%s: got\n%swant\n%s", name, &out, c.want)
		}
	}
}
