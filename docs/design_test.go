package docs_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page names every package of the gateway, in the diagram of the packages.
func TestTheDesignNamesEveryPackage(t *testing.T) {
	_, diagram, _ := strings.Cut(read(t, "docs/design.md"), "## Packages")
	_, diagram, _ = strings.Cut(diagram, "```text")
	diagram, _, _ = strings.Cut(diagram, "```")
	names := strings.FieldsFunc(diagram, func(r rune) bool { return strings.ContainsRune(" ·→\n", r) })
	for _, dir := range packages(t) {
		short := strings.TrimPrefix(dir, "internal/")
		if !slices.Contains(names, short) && !slices.Contains(names, dir) {
			t.Errorf("docs/design.md: the diagram of the packages does not name %s", dir)
		}
	}
}

// The page names every fact, every action and every crash point of the code,
// and its table of crash points has no other.
func TestTheDesignNamesFactsActionsAndCrashPoints(t *testing.T) {
	page := read(t, "docs/design.md")
	points := literals(t, "internal/crash/crash.go", `Point = "([^"]+)"`)
	named := append(literals(t, "internal/loop/fact.go", `Kind = "(\w+)"`), literals(t, "internal/loop/action.go", `func \((\w+)\) action\(\)`)...)
	if len(points) < 10 || len(named) < 20 {
		t.Fatalf("%d crash points and %d facts and actions found: has the form of the code changed?", len(points), len(named))
	}
	for _, name := range append(named, points...) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/design.md does not name `%s`", name)
		}
	}
	doc, _, _ := strings.Cut(read(t, "internal/run/doc.go"), "The parts")
	for _, action := range literals(t, "internal/loop/action.go", `func \((\w+)\) action\(\)`) {
		if !strings.Contains(doc, "─ "+action+" ") {
			t.Errorf("internal/run/doc.go does not say which file performs %s", action)
		}
	}
	_, table, _ := strings.Cut(page, "### Crash points")
	table, _, _ = strings.Cut(table, "\n### ")
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
		if !slices.Contains(points, m[1]) {
			t.Errorf("docs/design.md names the crash point %s, and the code has none of that name", m[1])
		}
	}
}

// The table of where to look names files and directories that exist.
func TestTheDesignLeadsToCodeThatExists(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "docs/design.md"), "## Where to look")
	table, _, _ = strings.Cut(table, "\n## ")
	found := 0
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]+) \|`).FindAllStringSubmatch(table, -1) {
		dir := ""
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			name := m[1]
			if !strings.Contains(name, "/") {
				name = path.Join(dir, name) // in the directory of the file before it
			}
			dir = path.Dir(name)
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
				t.Errorf("docs/design.md: %v", err)
			}
			found++
		}
	}
	if found < 20 {
		t.Errorf("%d paths found: has the form of the page changed?", found)
	}
}

// packages returns the directories below internal that have code of their own,
// and the public packages.
func packages(t *testing.T) []string {
	t.Helper()
	dirs := []string{"item", "tool", "model", "event", "turnpiketest", "cmd/turnpike"}
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if dir = filepath.ToSlash(dir); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// literals returns what the pattern's group matches in a file.
func literals(t *testing.T, name, pattern string) (found []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, name), -1) {
		found = append(found, m[1])
	}
	return found
}
