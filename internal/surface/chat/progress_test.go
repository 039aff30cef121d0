package chat

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// A stream with the extension progress says once that a call waits, also if it is not live. The
// event has no id and no choices, and is not the first one of the stream.
func TestProgressNamesEachApprovalOnce(t *testing.T) { // H03
	a := event.Approval{ID: "appr_1", Key: "0.0", Name: "pay", Server: "bank", Tool: "pay", Arguments: []byte(`{"to":7}`), ExpiresAt: time.UnixMilli(1700000000000)}
	b := event.Approval{ID: "appr_2", Key: "0.1", Name: "pay", Server: "bank", Tool: "pay", Arguments: []byte(`{}`)}
	r := &teller{events: []event.Event{
		begun(), event.Waiting{Approvals: []event.Approval{a, b}}, event.Waiting{Approvals: []event.Approval{b}}, event.Finished{Reason: event.Complete},
	}}
	const want = "event: agentic_tool_approval_required\n" + `data: {"type":"agentic_tool_approval_required","choices":[],"run_id":"run_1","approval_id":"appr_1",` +
		`"call_key":"0.0","round":0,"server":"bank","tool_name":"pay","tool":{"source":"external","kind":"external","label":"pay"},"arguments":"{\"to\":7}","expires_at":"2023-11-14T22:13:20.000Z"}`
	for _, mode := range []org.StreamMode{org.Live, org.FinalOnly} {
		if out := serve(r, mode, askStream, nil).Body.String(); strings.Contains(out, "event: ") {
			t.Errorf("%s: not asked for: %s", mode, out)
		}
		out := serve(r, mode, askStream, nil, "progress").Body.String()
		if !strings.HasPrefix(out, `data: {"id":"chatcmpl-run_1"`) || strings.Count(out, want) != 1 || strings.Count(out, "event: ") != 2 || !strings.Contains(out, `"approval_id":"appr_2"`) {
			t.Errorf("%s: %s", mode, out)
		}
	}
}

// The person who decides sees what the tool does. // H03
func TestWhatACallThatWaitsIs(t *testing.T) {
	for _, c := range []struct {
		server, tool string
		want         asking
	}{
		{"bank", "code_execute", asking{"external", "external", "code_execute"}},
		{org.BuiltinTools, "code_execute", asking{"built_in", "code_execution", "code_execute"}},
		{org.BuiltinTools, "web_search", asking{"built_in", "web_search", "web_search"}},
		{org.BuiltinTools, "database_write", asking{"built_in", "custom", "database_write"}},
	} {
		if got := askingOf(event.Approval{Server: c.server, Tool: c.tool}); got != c.want {
			t.Errorf("%s of %s: %v", c.tool, c.server, got)
		}
	}
	if got := roundOf("12.3"); got != 12 {
		t.Errorf("the round is %d", got)
	}
}
