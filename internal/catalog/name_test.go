package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
)

func suffixOf(original string) string {
	sum := sha256.Sum256([]byte(original))
	return hex.EncodeToString(sum[:4])
}

func TestNamesThatAModelSees(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server Server
		tool   string
		want   string
	}{
		{"a good name stays", Server{Name: "s"}, "get-sum_2", "get-sum_2"},
		{"64 characters stay", Server{}, strings.Repeat("x", 64), strings.Repeat("x", 64)},
		{"65 are cut and told apart", Server{}, strings.Repeat("x", 65), strings.Repeat("x", 55) + "_" + suffixOf(strings.Repeat("x", 65))},
		{"what is not allowed becomes a line", Server{}, "a/b", "a_b_" + suffixOf("a/b")},
		{"so does each character, not each byte", Server{}, "é😀", "___" + suffixOf("é😀")},
		{"a letter that looks like another is none of ours", Server{}, "seаrch", "se_rch_" + suffixOf("seаrch")}, // Cyrillic а
		{"an empty name gets one", Server{}, "", "_" + suffixOf("")},
		{"a digit at the beginning gets a line before it", Server{}, "21st_builder", "_21st_builder_" + suffixOf("21st_builder")},
		{"so does a hyphen", Server{}, "-find", "_-find_" + suffixOf("-find")},
		{"the front begins well", Server{Name: "s", Naming: Namespaced}, "21st", "mcp__s__21st"},
		{"a front that begins with a digit gets a line", Server{Name: "1", Naming: Prefixed}, "a", "_1_a_" + suffixOf("1_a")},
		{"the front counts", Server{Name: "s", Naming: Namespaced}, strings.Repeat("x", 57), "mcp__s__" + strings.Repeat("x", 47) + "_" + suffixOf("mcp__s__"+strings.Repeat("x", 57))},
		{"a long server is cut too", Server{Name: strings.Repeat("s", 64), Naming: Prefixed}, "a", strings.Repeat("s", 55) + "_" + suffixOf(strings.Repeat("s", 64)+"_a")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.server.name(tt.tool); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// Always a name that every provider takes, and two tools never become one
// by it. // P07
func FuzzName(f *testing.F) {
	f.Add("server", "tool", "tool2", "namespaced")
	f.Add("s", "a.b", "a/b", "bare")
	f.Add("s", strings.Repeat("é", 100), strings.Repeat("é", 99), "prefixed")
	f.Add("", "", "_", "bare")
	good := regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)
	f.Fuzz(func(t *testing.T, server, one, two, naming string) {
		s := Server{Name: server, Naming: Naming(naming)}
		a, b := s.name(one), s.name(two)
		if !good.MatchString(a) || !good.MatchString(b) {
			t.Fatalf("%q and %q", a, b)
		}
		if one != two && a == b {
			t.Fatalf("%q and %q are both %q", one, two, a)
		}
	})
}
