package docs_test

import (
	"strings"
	"testing"
)

// The code of the page is that of examples, which the tests run.
func TestTheCodeOfTheLibraryPageIsThatOfExamples(t *testing.T) {
	examples := map[string]bool{}
	for _, file := range []string{"example_test.go", "gateway/gateway_test.go", "resource/example_test.go"} {
		for line := range strings.Lines(read(t, file)) {
			examples[strings.TrimSpace(line)] = true
		}
	}
	n := 0
	for _, b := range blocks(t, "docs/library.md") {
		if b.lang != "go" {
			continue
		}
		n++
		for line := range strings.Lines(b.text) {
			if line = strings.TrimSpace(line); line != "" && !examples[line] {
				t.Errorf("line %d: no example has %q", b.line, line)
			}
		}
	}
	if n == 0 {
		t.Error("the page has no code")
	}
}
