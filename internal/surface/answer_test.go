package surface

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/item"
)

// The place of a citation is that in the text that the caller gets: of the last round, or of all
// rounds if a limit ended the run. It is counted in characters.
func TestThePlacesOfCitations(t *testing.T) {
	for reason, want := range map[event.Reason][]item.Citation{
		event.Complete:  {{URL: "b", Start: 2, End: 3}},
		event.MaxRounds: {{URL: "a", Start: 1, End: 2}, {URL: "b", Start: 7, End: 8}},
	} {
		var a Answer
		for _, e := range []event.Event{
			event.RoundStarted{Round: 0}, event.TextDelta{Round: 0, Text: "é"}, event.TextDelta{Round: 0, Text: "éé"},
			event.Citation{Round: 0, Citation: item.Citation{URL: "a", Start: 1, End: 2}},
			event.RoundStarted{Round: 1}, event.TextDelta{Round: 1, Text: "void"}, event.Citation{Round: 1, Citation: item.Citation{URL: "void"}},
			event.RoundStarted{Round: 1}, event.TextDelta{Round: 1, Text: "öx"}, event.TextDelta{Round: 1, Item: 2, Part: 1, Text: "yz"},
			event.Citation{Round: 1, Item: 2, Citation: item.Citation{URL: "b", Part: 1, Start: 0, End: 1}},
			event.Finished{Reason: reason, Rounds: 2},
		} {
			if err := a.add(e); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.FinalCitations(); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v in %q", reason, got, want, a.FinalText())
		}
	}
}

// A text is what its pieces were, in whichever sizes they came, and long pieces are not
// copied before it is told.
func TestATextIsItsPieces(t *testing.T) {
	long := strings.Repeat("l", pieceBytes)
	for name, list := range map[string][]string{
		"nothing":             nil,
		"short pieces":        {"a", "", "b", "c"},
		"a long piece":        {long},
		"short before long":   {"a", "b", long, "c", long, long, "d"},
		"many short pieces":   strings.Split(strings.Repeat("word ", 3*pieceBytes), " "),
		"just below the size": {long[1:], "a", long[1:], "b"},
	} {
		t.Run(name, func(t *testing.T) {
			var p Text
			for _, text := range list {
				p.Add(text)
			}
			want := strings.Join(list, "")
			if got := p.String(); got != want || p.String() != want || p.size != len(want) {
				t.Errorf("%d bytes, counted as %d, want %d", len(got), p.size, len(want))
			}
		})
	}
	var p Text
	p.Add("a")
	p.Add(long)
	if len(p.joined) != 2 || unsafe.StringData(p.joined[1]) != unsafe.StringData(long) {
		t.Error("a long piece was copied")
	}
}
