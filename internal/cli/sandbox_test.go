package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// sandboxes runs a command of sandbox in an empty directory.
func sandboxes(t *testing.T, env map[string]string, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr strings.Builder
	status = cli.Main(t.Context(), cli.Process{
		Args: append([]string{"sandbox"}, args...), Stdout: &stdout, Stderr: &stderr,
		Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	return status, stdout.String(), stderr.String()
}

func TestSandboxCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("other.wasm", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := sandboxes(t, nil, "add", "other.wasm"); status != 1 || !strings.Contains(errs, "its SHA-256 is 2d711642") || !strings.Contains(errs, "--sha256") {
		t.Errorf("%d, %s", status, errs)
	}
	if _, err := os.Stat(filepath.Join("turnpike-data", "sandbox", "python.wasm")); !os.IsNotExist(err) {
		t.Errorf("a file with another digest was stored: %v", err)
	}
	status, out, errs := sandboxes(t, nil, "list")
	for _, want := range []string{"quickjs   javascript          works here\n", "turnpike sandbox add FILE", "set TURNPIKE_CODE_SANDBOX_URL", "none is configured: set sandbox.drivers"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, no %q in\n%s%s", status, want, out, errs)
		}
	}
	remote := map[string]string{"TURNPIKE_CODE_SANDBOX_URL": "http://127.0.0.1:1/"}
	if _, out, errs := sandboxes(t, remote, "list"); !strings.Contains(out, "configured: javascript: remote, python: remote") {
		t.Errorf("%s%s", out, errs)
	}
	if status, _, errs := sandboxes(t, nil, "test"); status != 1 || !strings.Contains(errs, "no sandbox is configured") {
		t.Errorf("%d, %s", status, errs)
	}
}
