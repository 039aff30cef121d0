package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// SandboxDirectory is the directory in the data directory for what code sessions need.
const SandboxDirectory = "sandbox"

// SandboxOptions returns what the configuration says of sandboxes. program starts the gateway's own
// program as a child; nil = it cannot. The caller adds the client, the key and the log.
func SandboxOptions(c *config.Config, program []string) sandbox.Options {
	s, dir := c.Sandbox, filepath.Join(c.Data, SandboxDirectory)
	o := sandbox.Options{
		Drivers: s.Drivers, Program: program, Dir: dir, Compiled: filepath.Join(dir, "compiled"),
		PythonWasm: s.PythonWasm, PythonWasmSHA256: s.PythonWasmSHA256, URL: s.URL,
		MaxSessions: s.MaxSessions, MaxSessionsPerOrg: s.MaxSessionsPerOrg,
	}
	if s.URL != "" && len(s.Drivers) == 0 {
		o.Drivers = []string{sandbox.Remote}
	}
	if o.PythonWasm == "" {
		o.PythonWasm = ownPython(PythonWasmFile(c), s.PythonWasmSHA256)
	}
	return o
}

// PythonWasmFile returns where "turnpike sandbox add" stores python.wasm.
func PythonWasmFile(c *config.Config) string {
	if c.Sandbox.PythonWasm != "" {
		return c.Sandbox.PythonWasm
	}
	return filepath.Join(c.Data, SandboxDirectory, "python.wasm")
}

// ownPython returns the file that was added, or "" for the one in this program if none was added. Another digest
// means another file.
func ownPython(added, digest string) string {
	if digest != "" && digest != sandbox.PythonWasmSHA256 || len(sandbox.Embedded()) == 0 {
		return added
	}
	if _, err := os.Stat(added); err == nil {
		return added
	}
	return ""
}

// newSandbox returns what runs code for the tools of all orgs.
func (a *App) newSandbox(ctx context.Context, program []string) (*sandbox.Manager, error) {
	o := SandboxOptions(a.config, program)
	o.Client, o.Key, o.Log = a.out.Operator(), a.keys.Sandbox.Reveal(), a.log
	if a.storage.server != nil {
		place, err := placeOf(o.Dir)
		if err != nil {
			return nil, fmt.Errorf("the name of the directory of code sessions: %w", err)
		}
		o.Places, o.Place, o.Shared = postgres.NewPlaces(a.storage.server.DB()), place, a.keys.shared.URLs
	}
	return sandbox.New(ctx, o)
}

// placeOf returns the name of a directory, which its file "place" has. It is created.
func placeOf(dir string) (string, error) {
	path := filepath.Join(dir, "place")
	text, err := os.ReadFile(path)
	if err == nil && len(text) > 0 {
		return string(text), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	place := rand.Text()
	return place, os.WriteFile(path, []byte(place), 0o600)
}
