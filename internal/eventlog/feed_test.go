package eventlog

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// A feed and its followers count what an event retains, whichever of its members is large. // P40
func TestTheWeightOfAnEventHasItsTexts(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	raw := json.RawMessage(`"` + large + `"`)
	for _, e := range []event.Event{
		event.TextDelta{Text: large}, event.ReasoningDelta{Text: large}, event.RefusalDelta{Text: large}, event.CallDelta{Arguments: large},
		event.NativeItem{JSON: raw}, event.NativeProgress{JSON: raw}, event.ToolStarted{Arguments: raw}, event.ToolDone{Text: large}, event.ToolDone{Arguments: large}, event.ToolDone{Image: large},
		event.Waiting{Approvals: []event.Approval{{Arguments: raw}}}, event.ApprovalDecided{Reason: large},
		event.Finished{Calls: []event.ClientCall{{Arguments: large}}}, event.Finished{Failure: &event.Failure{Message: large}},
		event.Finished{Failure: &event.Failure{Upstream: &model.Error{Body: []byte(large)}}},
	} {
		if n := EventSize(e); n < len(large) || n > 2*len(large) {
			t.Errorf("%s weighs %d bytes", reflect.TypeOf(e), n)
		}
	}
}
