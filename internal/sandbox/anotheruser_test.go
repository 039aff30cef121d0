//go:build unix

package sandbox_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// The same attacks, of a gateway that is not root.
func TestAttacksAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this user is not root: the other tests are these already")
	}
	dir, err := os.MkdirTemp("", "another-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if program := sandboxtest.Program(t); program[0] != test {
		env = append(env, sandboxtest.ProgramVariable+"="+copyOf(t, dir, program[0]))
	}
	env = append(env, "TURNPIKE_TEST_PYTHON_WASM="+copyOf(t, dir, sandboxtest.PythonWasm(t)))
	cache := filepath.Join(dir, "compiled")
	if _, err := os.Stat(sandboxtest.Compiled()); err == nil { // tests before this one have compiled Python
		if err := os.CopyFS(cache, os.DirFS(sandboxtest.Compiled())); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(cache, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			mode := os.FileMode(0o600)
			if e.IsDir() {
				mode = 0o700
			}
			return errors.Join(os.Chmod(path, mode), os.Chown(path, nobody, nobody))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	env = append(env, sandboxtest.CompiledVariable+"="+cache)
	args := []string{"-test.v", "-test.run", "^(TestAttacksOn|TestPython|TestJavaScript|TestFilesStay|TestClosedDirectories)"}
	if soak.Depth(t) < soak.Soak { // one of each kind, without those that take most of the time and are the same for every user
		env = append(env, soak.DepthVariable+"=")
		args = append(args, "-test.skip", "TestAttacksOnPython/./20,000_files|TestAttacksOnQuickJS/20,000_files")
	}
	cmd := exec.CommandContext(t.Context(), copyOf(t, dir, test), args...)
	cmd.Env, cmd.Dir = env, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// copyOf copies a file to where another user can read it.
func copyOf(t *testing.T, dir, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}
