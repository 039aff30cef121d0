// Package sandboxtest lets test programs be their own child processes, as the gateway is, and finds
// python.wasm for tests.
//
//	func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m)) }
//
//	sandbox.New(ctx, sandbox.Options{Program: sandboxtest.Program(t), …})
package sandboxtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/sandbox/child"
)

// childArgument tells a test program that it is a child.
const childArgument = "sandbox-child"

// Main runs the child that the arguments name, or the tests. It returns the exit status.
func Main(m *testing.M) int {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		return child.Main(os.Args[2:])
	}
	remove, err := ShareCompiled()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	return m.Run()
}

// ShareCompiled gives the tests of this program the directory of Compiled, and returns what removes it.
func ShareCompiled() (remove func(), err error) {
	dir, err := os.MkdirTemp("", "sandboxtest-")
	if err == nil && Compiled() == "" {
		err = os.Setenv(CompiledVariable, filepath.Join(dir, "compiled"))
	}
	return func() { _ = os.RemoveAll(dir) }, err
}

// CompiledVariable is the variable with the directory of Compiled: tests that run as another user get it so.
const CompiledVariable = "TURNPIKE_TEST_COMPILED"

// Compiled returns a directory for the modules that the tests of a program compile, once.
func Compiled() string { return os.Getenv(CompiledVariable) }

// ProgramVariable is the variable with the path of cmd/turnpike, or of another program that can be a child: all tests need not build
// it, and those that run as a user who cannot build get it so.
const ProgramVariable = "TURNPIKE_TEST_PROGRAM"

// Program returns the program that starts children. A program with the race detector takes more address
// space than a child may have, so that then it is the one of ProgramVariable, or another one is built.
func Program(t *testing.T) []string {
	t.Helper()
	if raceDetector {
		path := os.Getenv(ProgramVariable)
		if path == "" {
			path = build(t)
		}
		return []string{path, childArgument}
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{path, childArgument}
}

// build builds the program that is nothing but a child, once for all tests of a program that runs Main.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if Compiled() != "" {
		dir = filepath.Dir(Compiled())
	}
	path := filepath.Join(dir, "child")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest/testdata/child")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the child: %v\n%s", err, out)
	}
	return path
}

// moduleRoot returns the directory of go.mod, in which the test runs or below which.
func moduleRoot() string {
	dir, _ := os.Getwd() // "" has no go.mod
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	return dir
}

// PythonWasm returns the path of python.wasm: that of the variable TURNPIKE_TEST_PYTHON_WASM, or of the
// packages in conformance. A test is skipped without it.
func PythonWasm(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TURNPIKE_TEST_PYTHON_WASM")
	if path == "" {
		path = filepath.Join(moduleRoot(), "conformance", "node_modules", "@antonz", "python-wasi", "dist", "python.wasm")
	}
	if _, err := os.Stat(path); err != nil {
		Skip(t, "there is no python.wasm: run npm ci in conformance, or set TURNPIKE_TEST_PYTHON_WASM (%v)", err)
	}
	return path
}

// Skip skips a test, or fails it where skipping is forbidden.
func Skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("TURNPIKE_TEST_NO_SKIP") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
