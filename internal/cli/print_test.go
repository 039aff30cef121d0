package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The cells of a table hold neither lines nor columns of their own.
func TestACellIsOneCell(t *testing.T) {
	var out bytes.Buffer
	table := newTable(&out, "A", "B")
	table.row("a\nb\tc\vd\x1b[31m\xff", 5)
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	if want := "A              B\na\ufffdb\ufffdc\ufffdd\ufffd[31m\ufffd  5\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestTablesAreWrittenInOnePlace(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name != "print.go" && !strings.HasSuffix(name, "_test.go") && bytes.Contains(text, []byte(`"text/tabwriter"`)) {
			t.Errorf("%s writes a table of its own: use newTable", name)
		}
	}
}
