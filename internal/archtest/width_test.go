package archtest

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is how wide a line of Go may be; a tab is one column.
const maxColumns = 140

// The files in testdata/wide.txt have wider lines from before there was a limit. Their numbers only fall.
func TestLinesAreNotTooWide(t *testing.T) {
	root := filepath.Join("..", "..")
	allowed := map[string]int{}
	list, err := os.ReadFile(filepath.Join("testdata", "wide.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		var n int
		var file string
		if _, err := fmt.Sscan(line, &n, &file); err != nil {
			t.Fatalf("wide.txt: %q: %v", line, err)
		}
		allowed[file] = n
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		wide, err := wideLines(path)
		if err != nil {
			return err
		}
		file := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch n := allowed[file]; {
		case len(wide) > n:
			t.Errorf("%s: %d lines are wider than %d columns, and %d may be: %v", file, len(wide), maxColumns, n, wide)
		case len(wide) < n:
			t.Errorf("%s: fewer lines are too wide now: write %d in testdata/wide.txt, or delete its line", file, len(wide))
		}
		delete(allowed, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for file := range allowed {
		t.Errorf("%s is in testdata/wide.txt, and there is no such file", file)
	}
}

// wideLines returns the numbers of the lines of a file that are too wide.
func wideLines(path string) (numbers []int, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if utf8.RuneCountInString(lines.Text()) > maxColumns {
			numbers = append(numbers, n)
		}
	}
	return numbers, lines.Err()
}
