//go:build unix

package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// Not even what something else has put into the directory leads out of it or blocks: links, pipes and files that are
// too large. What code writes there does not change what a link shows.
func TestJavaScriptOpensRegularFilesOfItsDirectoryOnly(t *testing.T) {
	t.Setenv("TURNPIKE_TEST_SECRET", secret)
	o := options(t, sandbox.QuickJS)
	m := newManager(t, o)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, m, js("acme", "other", `writeFile("theirs", "`+secret+`")`))
	prepare := func(_ context.Context, dir *os.Root) {
		for _, err := range []error{
			dir.WriteFile("plain", []byte("plain"), 0o600), dir.Symlink(outside, "file"), dir.Symlink(filepath.Dir(outside), "above"),
			dir.Symlink("../../..", "up"), dir.Symlink("/proc/self/environ", "environ"), dir.Symlink("plain", "within"), dir.Symlink(".", "self"),
			dir.Symlink("loop", "loop"), dir.Symlink("/dev/zero", "zero"), makePipe(dir, "pipe"), sparse(dir, "huge", 100<<20),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	}
	first := js("acme", "s", "1")
	first.Prepare = prepare
	run(t, m, first)
	for path, cause := range map[string]string{
		"file": "it is not a regular file", "above/outside": "path escapes", "up/x": "path escapes", "environ": "it is not a regular file",
		"within": "it is not a regular file", "loop": "it is not a regular file", "loop/x": "", "zero": "it is not a regular file",
		"pipe": "it is not a regular file", "huge": "it has 104857600 bytes, and the interpreter has memory for 67108864",
	} {
		for _, code := range []string{`readFile("` + path + `")`, `readFile("` + path + `", "bytes")`} {
			got := run(t, m, js("acme", "s", code))
			if got.Exit != 1 || got.Ended != "" || !strings.Contains(got.Stderr, cause) || strings.Contains(got.Stderr+got.Result, secret) {
				t.Errorf("%s: %+v", code, got)
			}
		}
		if path == "huge" {
			continue
		}
		if got := run(t, m, js("acme", "s", `writeFile("`+path+`", "broken")`)); got.Exit != 1 {
			t.Errorf("writing %s: %+v", path, got)
		}
	}
	if got := run(t, m, js("acme", "s", `[readFile("self/plain"), listFiles()]`)); got.Result != `["plain",["huge","plain"]]` {
		t.Errorf("%+v", got)
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != secret {
		t.Errorf("%q, %v", data, err)
	}
}

// makePipe makes a pipe that nobody writes to.
func makePipe(dir *os.Root, name string) error {
	return syscall.Mkfifo(filepath.Join(dir.Name(), name), 0o600)
}
