package run

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// A run keeps so much of its results for reading and no more, however many
// large ones its servers send.
func TestWhatIsKeptForReadingIsBounded(t *testing.T) {
	l := memlimit.New(memlimit.Options{})
	d := &results{account: l.Open("o")}
	const maxFullAll = memlimit.DefaultRun // P40
	text := strings.Repeat("x", maxFull)
	for i := range 2 * maxFullAll / maxFull {
		d.keep(map[string]string{fmt.Sprint(i): text + "more"})
	}
	total := 0
	for id, kept := range d.full {
		total += len(kept)
		if len(kept) != maxFull {
			t.Errorf("of result %s %d bytes are kept", id, len(kept))
		}
	}
	if total != maxFullAll || d.full["0"] == "" {
		t.Errorf("%d bytes are kept, want %d, the first results among them", total, maxFullAll)
	}
}
