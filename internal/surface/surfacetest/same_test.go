package surfacetest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// alike are the settings for which the surfaces have different defaults, as the state of a story.
const alike = "tool_parallelism parallel\nmax_calls 128\nmax_rounds 10\n"

// With the same settings, a story has the same journal on every surface, fact by fact: which
// surface the request came from decides nothing. The one setting that no org has, what happens to
// the calls of an answer that was cut off, is a fact of its own. // A04 A05 G15
func TestTheJournalOfAStoryIsTheSameOnEverySurface(t *testing.T) {
	stories, err := readStories()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, s := range stories {
		on := s.playedOn()
		if len(on) < 2 || s.race != "" && raceDetector {
			continue
		}
		t.Run(s.name(), func(t *testing.T) {
			settled := part{"state", alike + s.get("state")}
			same := &story{archive: s.with([]part{settled}, func(name string) bool { return name == "state" }), path: s.path}
			for _, f := range []form{asJSON, asStream} {
				first := play(t, same, on[0], f)
				for _, a := range on[1:] {
					for i, p := range play(t, same, a, f) {
						if d := cmp.Diff(journalOf(t, first[i].facts), journalOf(t, p.facts)); d != "" {
							t.Errorf("request %d, stream %v: %s (-) and %s (+) have different journals:\n%s", i, f, on[0].name, a.name, d)
						}
						compared += len(p.facts)
					}
				}
			}
		})
	}
	if compared < 1000 {
		t.Errorf("%d facts were compared: the stories are not played", compared)
	}
}

// journalOf are the facts of a journal, one a line, without the name of the surface and the size
// of what the client sent, which the APIs word differently.
func journalOf(t *testing.T, facts []loop.Fact) (lines []string) {
	t.Helper()
	for _, f := range facts {
		body := f.Body
		switch b := body.(type) {
		case loop.Accepted:
			b.Surface, b.EndCut = "", false
			b.ToolWaitMS = 0 // a request of chat stays open meanwhile
			body = b
		case loop.InputAdded:
			b.Bytes = 0
			body = b
		}
		text, err := loop.Encode(body)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(f.Seq, " ", f.Epoch, " ", f.At, " ", body.Kind(), " ", string(text)))
	}
	return lines
}
