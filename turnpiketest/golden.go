package turnpiketest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// updateFlag is the name of the flag that rewrites golden files.
const updateFlag = "update"

// UpdateFlag makes the flag -update known to the test binary, unless somebody
// else has. Call it in TestMain, before the tests run:
//
//	func TestMain(m *testing.M) {
//		turnpiketest.UpdateFlag()
//		os.Exit(m.Run())
//	}
func UpdateFlag() {
	if flag.Lookup(updateFlag) == nil {
		flag.Bool(updateFlag, false, "rewrite golden files with what the tests got")
	}
}

// Updating reports whether the test binary runs with -update.
func Updating() bool {
	f := flag.Lookup(updateFlag)
	return f != nil && f.Value.String() == "true"
}

// Golden compares got with the file at path, byte for byte, and fails the test
// with the first line that differs. With -update (see [UpdateFlag]) it writes
// got to the file instead, making its directory where needed.
func Golden(t testing.TB, path string, got []byte) {
	t.Helper()
	if Updating() {
		if err := rewrite(path, got); err != nil {
			t.Fatalf("golden file: %v", err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("golden file: %v (run the test with -%s to write it)", err, updateFlag)
	}
	if d := Diff(string(want), string(got)); d != "" {
		t.Errorf("%s: %s", path, d)
	}
}

func rewrite(path string, got []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, got) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, got, 0o644)
}

// Diff names the first line in which two texts differ, with the lines around
// it; it is empty if they are equal.
func Diff(want, got string) string {
	if want == got {
		return ""
	}
	w, g := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	at := 0
	for at < len(w) && at < len(g) && w[at] == g[at] {
		at++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "line %d differs\n", at+1)
	for _, l := range w[max(at-2, 0):at] {
		fmt.Fprintf(&b, "      %q\n", l)
	}
	excerpt(&b, "want", w, at)
	excerpt(&b, " got", g, at)
	return b.String()
}

// excerpt writes the lines from the first difference on.
func excerpt(b *strings.Builder, label string, lines []string, at int) {
	const most = 3
	if at >= len(lines) {
		fmt.Fprintf(b, "%s: nothing more\n", label)
		return
	}
	for _, l := range lines[at:min(at+most, len(lines))] {
		fmt.Fprintf(b, "%s: %q\n", label, l)
	}
}
