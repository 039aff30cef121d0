package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// Whoever adds a dependency says why; whoever removes one strikes the reason.
func TestEveryDirectDependencyHasAReason(t *testing.T) {
	needed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\s*(\S+) v\S+$`).FindAllStringSubmatch(read(t, "go.mod"), -1) {
		needed[m[1]] = true
	}
	if len(needed) == 0 {
		t.Fatal("no dependency found in go.mod: has its form changed?")
	}
	page := read(t, "docs/dependencies.md")
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\S+)` \\| (.*) \\|$").FindAllStringSubmatch(page, -1) {
		switch {
		case !needed[m[1]]:
			t.Errorf("%s stands in docs/dependencies.md and is no direct dependency: strike it", m[1])
		case len(strings.Fields(m[2])) < 5:
			t.Errorf("%s: docs/dependencies.md does not say why it was chosen", m[1])
		}
		delete(needed, m[1])
	}
	for module := range needed {
		t.Errorf("%s is a direct dependency: say in docs/dependencies.md why it was chosen", module)
	}
}
