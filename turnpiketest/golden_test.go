package turnpiketest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// recorder is a test whose failures are looked at.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.said += format
	for _, a := range args {
		if s, ok := a.(string); ok {
			r.said += s
		}
	}
}

func TestGoldenComparesByteForByte(t *testing.T) {
	if turnpiketest.Updating() {
		t.Skip("with -update nothing is compared")
	}
	path := filepath.Join(t.TempDir(), "x.golden")
	if err := os.WriteFile(path, []byte("a\nb\nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &recorder{TB: t}
	turnpiketest.Golden(r, path, []byte("a\nb\nc\n"))
	if r.said != "" {
		t.Errorf("equal files differ: %s", r.said)
	}
	turnpiketest.Golden(r, path, []byte("a\nB\nc\n"))
	if !strings.Contains(r.said, "line 2 differs") || !strings.Contains(r.said, `want: "b\n"`) || !strings.Contains(r.said, ` got: "B\n"`) {
		t.Errorf("said %q", r.said)
	}
}

func TestDiffNamesTheFirstLine(t *testing.T) {
	for name, row := range map[string]struct{ want, got, says string }{
		"nothing":      {"a\n", "a\n", ""},
		"a line more":  {"a\n", "a\nb\n", "line 2 differs\n      \"a\\n\"\nwant: \"\"\n got: \"b\\n\"\n got: \"\"\n"},
		"a line end":   {"a", "a\n", "line 1 differs\nwant: \"a\"\n got: \"a\\n\"\n got: \"\"\n"},
		"other starts": {"x", "", "line 1 differs\nwant: \"x\"\n got: \"\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := turnpiketest.Diff(row.want, row.got); got != row.says {
				t.Errorf("%q, want %q", got, row.says)
			}
		})
	}
}
