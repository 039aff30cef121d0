package surface

import (
	"strings"
	"testing"
)

// A client decides how many names an answer lists, and how long they are. They are
// printable and short.
func TestTheNamesOfAListArePrintable(t *testing.T) {
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{[]string{"a", "messages[].name"}, `a,messages[].name`},
		{[]string{"", "a,b", "a b", "\r\nx: y", `"`, "\u00fc\xff"}, `"","a,b","a b","\r\nx: y","\"","\u00fc\xff"`},
		{[]string{strings.Repeat("x", 129)}, `"` + strings.Repeat("x", 128) + `..."`},
	} {
		if got := listOf(tt.names); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.names, got, tt.want)
		}
	}
}
