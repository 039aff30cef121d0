package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// toolsHeading is the first line of the demo with tools.
const toolsHeading = "Turnpike demo: a scripted model, a web page, and code in a sandbox. All of them are on this machine."

// withoutPython says why the demo runs no Python.
const withoutPython = "Python is not shown. Once \"turnpike sandbox add FILE\" has added python.wasm, it is (docs/sandbox.md).\n\n"

// toolsQuestion is what the demo asks about a page, and about languages.
func toolsQuestion(page string, python bool) string {
	question := "Read " + page + demo.PricesPath + ". Then add up the prices with JavaScript"
	if python {
		question += ", and with Python"
	}
	return question + "."
}

// addTools lets the org of the demo read web pages and run code, and reports whether it can run Python.
func (p Process) addTools(c *config.Config) (python bool, err error) {
	tools, err := config.Part{Name: "demo", Data: []byte("builtin_tools: [{name: web_scrape}, {name: code_execute}]")}.Runtime(c.MaxRoundsCap)
	if err != nil {
		return false, err
	}
	c.Orgs[0].Runtime.BuiltinTools = tools.BuiltinTools
	c.Sandbox.Drivers = []string{sandbox.QuickJS}
	added, ok := p.addedPython()
	if !ok {
		return false, nil
	}
	c.Sandbox.Drivers = append(c.Sandbox.Drivers, sandbox.Wasm)
	c.Sandbox.PythonWasm, c.Sandbox.PythonWasmSHA256 = added.PythonWasm, added.PythonWasmSHA256
	compiled := filepath.Join(c.Data, app.SandboxDirectory, "compiled")
	return true, copyCompiled(compiled, added.Compiled)
}

// addedPython returns where "turnpike sandbox add" has stored Python; false = it has not, and none is in this program.
func (p Process) addedPython() (sandbox.Options, bool) {
	_, o, err := sandboxOptions(p, "", "")
	if err != nil {
		return o, false // of a configuration that the demo does not use
	}
	if o.PythonWasm == "" {
		return o, true
	}
	if o.PythonWasm, err = filepath.Abs(o.PythonWasm); err != nil {
		return o, false
	}
	info, err := os.Stat(o.PythonWasm)
	return o, err == nil && info.Mode().IsRegular()
}

// copyCompiled copies compiled modules, so that the demo need not compile Python again.
func copyCompiled(to, from string) error {
	if to == from { // TURNPIKE_DATA names the directory of both
		return nil
	}
	root, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o700)
		}
		data, err := root.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), data, 0o600)
	})
}
