package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Sandbox says what runs code that models write.
type Sandbox struct {
	Drivers           []string    // names of package sandbox, in order of preference; none = remote if there is a URL, else no code runs
	PythonWasm        string      // file of the driver wasm; "" = sandbox/python.wasm in Config.Data
	PythonWasmSHA256  string      // its digest; "" = that of the file that is known to work
	URL               string      // of the service of the driver remote
	APIKey            secret.Text // for the service
	Shell             bool        // models may run commands
	MaxSessions       int
	MaxSessionsPerOrg int
}

func (s *Sandbox) keys() []key {
	const env = "TURNPIKE_SANDBOX_"
	return []key{
		{name: "drivers", value: texts(&s.Drivers, nil, "driver", checkDriver), env: env + "DRIVERS",
			doc: "Sandboxes for the tool code_execute, in order of preference: quickjs (JavaScript), wasm, bwrap, landlock (Python), remote (both). [auto]: what works here, except remote. Empty: no code runs, unless url is set. See sandbox.md."},
		{name: "python_wasm", value: pathKey{text(&s.PythonWasm, "", "file", anyText)}, env: env + "PYTHON_WASM",
			doc: "Python for WASI, for wasm. Empty: the file that turnpike sandbox add has stored in data."},
		{name: "python_wasm_sha256", value: text(&s.PythonWasmSHA256, "", "SHA-256", orEmpty(checkSHA256)), env: env + "PYTHON_WASM_SHA256",
			doc: "SHA-256 of python_wasm in hexadecimal. Empty: that of the file that is known to work. Another file is refused."},
		{name: "url", value: address(&s.URL, orEmpty(checkURL)), env: "TURNPIKE_CODE_SANDBOX_URL",
			doc: "URL of a sandbox service, for remote. If drivers is empty, it counts as [remote]. Private addresses are allowed."},
		{name: "api_key", value: credentialKey(&s.APIKey), env: "TURNPIKE_CODE_SANDBOX_API_KEY",
			doc: "Credential for the sandbox service. Empty: none is sent."},
		{name: "shell", value: boolean(&s.Shell, false), env: env + "SHELL",
			doc: "true: the tool shell lets models run commands with /bin/sh in the sandbox, where code may run. Only bwrap can. See tool-code-execute.md."},
		{name: "max_sessions", value: integer(&s.MaxSessions, 16, 1, 1000), env: env + "MAX_SESSIONS",
			doc: "Maximum code sessions at a time. Each is a process; a new one ends the one that was used least recently."},
		{name: "max_sessions_per_org", value: integer(&s.MaxSessionsPerOrg, 4, 1, 1000), env: env + "MAX_SESSIONS_PER_ORG",
			doc: "Maximum code sessions of one org at a time."},
	}
}

// checkDriver returns an error for a text that is not the name of a driver.
func checkDriver(s string) error { return oneOf(s, append(sandbox.Names(), sandbox.Auto)) }

// checkSHA256 returns an error for a text that is not a digest in hexadecimal.
func checkSHA256(s string) error {
	if len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "" {
		return fmt.Errorf("%s is not 64 lower-case hexadecimal digits", quote(s))
	}
	return nil
}

// checkSandbox compares the keys of the sandbox.
func (d *decoder) checkSandbox(s *Sandbox) {
	if slices.Contains(s.Drivers, sandbox.Auto) && len(s.Drivers) > 1 {
		d.failPath("sandbox.drivers", "has auto beside other drivers; list auto alone, or the drivers that you want")
	}
	python := slices.IndexFunc(s.Drivers, func(name string) bool { return name != sandbox.QuickJS })
	if s.Shell && (python < 0 || s.Drivers[python] != sandbox.Bwrap) {
		d.failPath("sandbox.shell", "needs bwrap as the first of sandbox.drivers that runs Python: no other runs commands; add it, or remove shell")
	}
	if slices.Contains(s.Drivers, sandbox.Remote) && s.URL == "" {
		d.failPath("sandbox.drivers", "has remote without sandbox.url; set it, or remove remote")
	}
}
