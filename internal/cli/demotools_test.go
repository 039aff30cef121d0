package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// demoWithTools runs the demo of the built-in tools and returns what it prints.
func demoWithTools(t *testing.T, env map[string]string) string {
	t.Helper()
	noLeaks(t)
	program := sandboxtest.Program(t) // may be built, in the module
	t.Chdir(t.TempDir())
	var out, errs bytes.Buffer
	status := Main(t.Context(), Process{
		Args: []string{"demo", "--tools", "--once", "--listen", "127.0.0.1:0"}, Stdout: &out, Stderr: &errs, Program: program,
		Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	if status != 0 || errs.Len() > 0 {
		t.Fatalf("exit status %d: %s\n%s", status, errs.String(), out.String())
	}
	return out.String()
}

// The demo reads a page of its own web server and runs JavaScript, with nothing but the program.
func TestTheDemoOfTheToolsReadsAPageAndRunsJavaScript(t *testing.T) {
	out := demoWithTools(t, nil)
	for _, want := range []string{
		withoutPython, "\ntools      builtin_tools 2 tools", `0.0      web_scrape({"url":"http://127.0.0.1:`, "| lamp | 24.50 |",
		`1.0      code_execute({"language":"javascript"`, `"driver":"quickjs","exit":0,"result":"\"the sum of 3 numbers is 151.75\""`, "\nfinished            complete ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, `"python"`) {
		t.Errorf("Python was not added, and runs:\n%s", out)
	}
}

// Python runs too once it has been added. The compiled module is used again.
func TestTheDemoOfTheToolsRunsPythonThatWasAdded(t *testing.T) {
	out := demoWithTools(t, map[string]string{"TURNPIKE_SANDBOX_PYTHON_WASM": sandboxtest.PythonWasm(t)})
	for _, want := range []string{`"driver":"quickjs"`, `2.0      code_execute({"language":"python"`, `"driver":"wasm","exit":0,"result":"'the sum of 3 numbers is 151.75'"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, withoutPython) {
		t.Errorf("Python is said to be missing:\n%s", out)
	}
}

func TestCompiledModulesAreCopied(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "compiled"), filepath.Join(t.TempDir(), "sandbox", "compiled")
	if err := copyCompiled(to, from); err != nil {
		t.Errorf("there are none: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(from, "wazero-v1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "wazero-v1", "m"), []byte("code"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copyCompiled(to, from); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(to, "wazero-v1", "m")); err != nil || string(data) != "code" {
		t.Errorf("%q, %v", data, err)
	}
}
