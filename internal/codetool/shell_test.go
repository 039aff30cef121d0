package codetool_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Commands run one after the other in the working directory, which is that of Python. A command that takes too long ends with
// what it has started, and outputs are bounded. // E14
func TestCommandsRun(t *testing.T) {
	const driver = sandbox.Bwrap
	o := sandbox.Options{Drivers: []string{driver}, Program: sandboxtest.Program(t), Dir: filepath.Join(t.TempDir(), "sandbox")}
	m, err := sandbox.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, s := range sandbox.Check(t.Context(), o) {
		if s.Driver == driver && s.Err != nil {
			sandboxtest.Skip(t, "%s does not work here: %v", driver, s.Err)
		}
	}
	if !m.RunsCommands() {
		t.Error("the driver runs no commands")
	}
	all, err := codetool.New(codetool.Options{Org: "acme", Sandbox: m}).List(t.Context())
	if err != nil || len(all) != 2 || all[1].Definition().Name != "shell" || tool.ClassOf(all[1]) != tool.Once {
		t.Fatal(all, err)
	}
	for _, c := range []struct{ tool, args, want string }{
		{"python", `{"language":"python","code":"open('a.txt','w').write('hi'); json = subprocess = None"}`, `"exit":0`},
		{"shell", `{"commands":["cat a.txt; echo '\"é\"' >&2; exit 3","pwd; ls"]}`, `{"output":[{"stdout":"hi","stderr":"\"é\"\n","outcome":{"type":"exit","exit_code":3}},{"stdout":"/work\na.txt\n"`},
		{"shell", `{"commands":["sleep 60 & echo begun; sleep 60","echo never"],"timeout_ms":700}`, `{"output":[{"stdout":"begun\n","stderr":"","outcome":{"type":"timeout"}}],`},
		{"shell", `{"commands":["head -c 300000 /dev/zero | tr '\\0' x"],"max_output_length":10}`, `{"output":[{"stdout":"xxxxxxxxxx\n[299990 more bytes were dropped]","stderr":"","outcome":{"type":"exit","exit_code":0}}],`},
		{"shell", `{"commands":["head -c 20000 /dev/zero | tr '\\0' x","head -c 20000 /dev/zero | tr '\\0' x >&2","head -c 20000 /dev/zero | tr '\\0' x","head -c 20000 /dev/zero | tr '\\0' x; exit 4"]}`, `{"stdout":"\n[20000 more bytes were dropped]","stderr":"","outcome":{"type":"exit","exit_code":4}}],`},
		{"shell", `{"commands":[]}`, `commands has 0 commands`},
		{"shell", `{"commands":["true"],"timeout_ms":600000}`, `timeout_ms is 600000`},
		{"python", `{"language":"python","code":"'commands' in globals()"}`, `"result":"False"`},
	} {
		one := all[0]
		if c.tool == "shell" {
			one = all[1]
		}
		r, err := one.Call(t.Context(), tool.Call{RunID: "run_1", Arguments: json.RawMessage(c.args)})
		if err != nil || !strings.Contains(r.Parts[0].Text, c.want) {
			t.Errorf("%s\n got %s, %v\nwant %s", c.args, r.Parts[0].Text, err, c.want)
		}
	}
}

// What an environment of the hosted tool shell has is honoured or refused by name. // E14
func TestEnvironmentsOfTheShellThatAreRefused(t *testing.T) {
	for asked, want := range map[string]string{
		`{"container":{"type":"auto","file_ids":["file-1"]}}`: "container",
		`{"container":"cntr_1"}`:                              "container",
		`{"environment":{"type":"container_reference","container_id":"cntr_1","file_ids":["file-1"]}}`:             "environment.file_ids",
		`{"environment":{"type":"container_reference","container_id":"cntr_1","memory_limit":"4g"}}`:               "environment.memory_limit",
		`{"environment":{"type":"container_reference","container_id":"cntr_1","file_ids":[],"memory_limit":null}}`: "",
	} {
		_, err := codetool.ReadHostedShell([]byte(asked))
		var wrong *catalog.OptionError
		if errors.As(err, &wrong); want == "" && err != nil || want != "" && (wrong == nil || wrong.Member != want) {
			t.Errorf("%s: %v", asked, err)
		}
	}
}
