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
  missing   fnid: reads names it, and the server has no such tool
  missing   order: keyed names it, and the server has no such tool
1 tools offered
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}
