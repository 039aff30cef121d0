package surface

import (
	"strings"
	"testing"
	"unsafe"
)

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
