package run

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// Earlier releases have stored declared servers without a name, and the facts of their runs have
// labels as names. Such a run goes on with these names. // K06
func TestTheNameOfADeclaredServerThatAnEarlierReleaseHasStored(t *testing.T) {
	var s runState
	for _, stored := range []storedRequestServer{{Label: "docs"}, {Label: "docs", Name: "docs"}, {Label: "docs", Name: loop.RequestServer("docs")}} {
		want := stored.Name
		if want == "" {
			want = "docs"
		}
		if got := s.loadRequestServers([]storedRequestServer{stored}); len(got) != 1 || got[0].Server() != want || loop.LabelOf(got[0].Server()) != "docs" {
			t.Errorf("%+v: %+v", stored, got)
		}
	}
}
