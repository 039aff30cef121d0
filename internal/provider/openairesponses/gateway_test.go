package openairesponses

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/model"
)

// Items of a provider that look like those of the gateway do not reach a client.
func TestItemsThatLookLikeTheGatewaysDoNotReachAClient(t *testing.T) {
	for _, kind := range []string{"mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"} {
		body := `{"id":"r","status":"completed","output":[{"type":"` + kind + `","id":"x","name":"pay","server_label":"s","arguments":"{}"},` +
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}]}`
		turn, err := decode(strings.NewReader(body), nil, true, func(d model.Delta) error {
			if d.Kind == model.NativeDelta {
				t.Errorf("%s: reported %s", kind, d.Text)
			}
			return nil
		})
		if err != nil || len(turn.Items) != 2 || turn.Items[1].Text() != "a" {
			t.Errorf("%s: %v %+v", kind, err, turn)
		}
	}
}
