package journal

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// The refusal of a key that may not decide names what asks for the approval.
func TestWhatAsksIsNamedToAKeyThatMayNotDecide(t *testing.T) {
	member := org.Principal{ID: "k", Role: org.Member}
	for asker, want := range map[loop.Asker]string{
		loop.AskedByHook: "which a hook asks for;", loop.AskedByServer: "which the settings of the server files ask for;",
	} {
		err := Approval{ID: "appr_1", Principal: "k", Server: "files", Asker: asker}.MayDecide(&org.Org{}, member)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", asker, err)
		}
	}
}
