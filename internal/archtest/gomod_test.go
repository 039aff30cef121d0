package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestGoModIsTidy(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "tidy", "-diff")
	cmd.Dir = moduleRoot(t)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	diff, err := cmd.Output()
	switch {
	case err == nil:
	case len(diff) > 0:
		mod, _, _ := strings.Cut(string(diff), "diff current/go.sum")
		t.Errorf("go.mod or go.sum is not tidy: run go mod tidy\n%s", mod)
	default: // tidy reads modules that a build does not need, and has to fetch them
		skip(t, "go mod tidy could not look at all modules: %s", strings.TrimSpace(stderr.String()))
	}
}

// The SQLite of modernc.org is C code, translated for one version of its libc.
// With another it builds, and may break in ways that no build shows.
func TestTheLibcIsTheOneThatSQLiteWasTranslatedFor(t *testing.T) {
	text := read(t, "go.mod")
	libc := required(text, "modernc.org/libc")
	if required(text, "modernc.org/sqlite") == "" {
		return // there is no SQLite here
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.GoMod}}", "modernc.org/sqlite")
	cmd.Dir = moduleRoot(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -m modernc.org/sqlite: %v", err)
	}
	theirs, err := os.ReadFile(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	if want := required(string(theirs), "modernc.org/libc"); libc != want {
		t.Errorf("go.mod has modernc.org/libc %s, and modernc.org/sqlite was translated for %s: go get modernc.org/libc@%s", libc, want, want)
	}
}

// required returns the version of a module in the text of a go.mod, "" for
// none.
func required(mod, module string) string {
	found := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(mod)
	if found == nil {
		return ""
	}
	return found[1]
}

// skip leaves a test out, or fails it where skipping is forbidden.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("TURNPIKE_TEST_NO_SKIP") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func TestTheDocumentationTellsTheStoryInTheSameNineFiles(t *testing.T) {
	for _, name := range []string{"docs/how-a-request-flows.md", "internal/run/doc.go"} {
		text := read(t, name)
		for _, file := range story() {
			short := strings.TrimPrefix(file, "internal/")
			if !strings.Contains(text, short) && !strings.Contains(text, filepath.Base(file)) {
				t.Errorf("%s does not name %s, which is one of the nine files of the story", name, short)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
