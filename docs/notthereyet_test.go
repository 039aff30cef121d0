package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// The page names every key and word that the configuration refuses as not built, and nothing else of the configuration or of the
// routes that exists.
func TestThePageOfWhatIsNotThereYet(t *testing.T) {
	var named, unbuilt []string
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]*) \|`).FindAllStringSubmatch(read(t, "docs/not-there-yet.md"), -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			named = append(named, m[1])
		}
	}
	for _, k := range config.Keys() {
		for _, word := range k.Unbuilt {
			if word == "*" {
				word = k.Path
			}
			if !slices.Contains(unbuilt, word) {
				unbuilt = append(unbuilt, word)
			}
		}
	}
	for _, word := range unbuilt {
		if !slices.Contains(named, word) {
			t.Errorf("docs/not-there-yet.md does not name %s, which the configuration refuses", word)
		}
	}
	served := regexp.MustCompile("(?m)^\\| `([A-Z]+)` \\| `([^`]+)`").FindAllStringSubmatch(read(t, "docs/managing.md"), -1)
	if len(served) < 50 || len(unbuilt) < 3 {
		t.Fatalf("%d routes and %d unbuilt words found: has the form of the code changed?", len(served), len(unbuilt))
	}
	for _, name := range named {
		method, prefix, exact := strings.Cut(name, " ")
		if !exact && !strings.HasPrefix(name, "/") {
			if !slices.Contains(unbuilt, name) {
				t.Errorf("docs/not-there-yet.md names %s, which the configuration takes", name)
			}
			continue
		}
		for _, route := range served {
			if exact && route[1] == method && route[2] == prefix || !exact && strings.HasPrefix(route[2]+"/", name+"/") {
				t.Errorf("docs/not-there-yet.md names %s, which the gateway serves: %s %s", name, route[1], route[2])
			}
		}
	}
	for _, page := range []string{"README.md", "SECURITY.md", "docs/design.md"} {
		if !strings.Contains(read(t, page), "not-there-yet.md") {
			t.Errorf("%s does not lead to docs/not-there-yet.md", page)
		}
	}
}
