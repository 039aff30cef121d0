package surface

import (
	"slices"
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

// A name is listed once, and an array not beside one of its own elements.
func TestOnce(t *testing.T) {
	names := []string{"tools", "input", "tools[1].defer_loading", "input[2]", "seed", "input[0]", "seed", "input[].content[].detail"}
	want := []string{"input[0]", "input[2]", "input[].content[].detail", "seed", "tools", "tools[1].defer_loading"}
	if got := once(names); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
