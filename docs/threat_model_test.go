package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A defence that names a test is only as good as the test: each is there, and
// each attack has one.
func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	there := testsOfTheTree(t)
	page := read(t, "docs/threat-model.md")
	_, defended, found := strings.Cut(page, "\n## What is defended")
	defended, _, end := strings.Cut(defended, "\n## What is not defended")
	if !found || !end {
		t.Fatal("the page has lost its headings")
	}
	rows := 0
	for line := range strings.Lines(defended) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attack") {
			continue
		}
		rows++
		names := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`").FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			t.Errorf("no test proves this: %s", line)
		}
		for _, name := range names {
			if !there[name[1]] {
				t.Errorf("there is no test called %s: %s", name[1], line)
			}
		}
	}
	if rows < 20 {
		t.Errorf("the page has only %d defences", rows)
	}
}

// testsOfTheTree returns the names of all tests and fuzz targets.
func testsOfTheTree(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
