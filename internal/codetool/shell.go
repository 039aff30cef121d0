package codetool

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The bounds of the tool shell.
const (
	maxCommands      = 20
	maxCommand       = 64 << 10 // bytes of one
	maxShellOutput   = 32 << 10 // bytes of each output of a command that are kept
	maxShellOutputs  = 48 << 10 // bytes of all outputs of a call that are kept: with them the result is within tool_result_max_bytes
	shellGrace       = 5 * time.Second
	maxShellTimeout  = sandbox.MaxTimeout - shellGrace
	usualShellOutput = 16 << 10
)

// shell runs commands with /bin/sh in the session of Python of the same container: they share the working directory.
type shell struct{ *codeExecute }

const shellSchema = `{"type":"object","properties":{` +
	`"commands":{"type":"array","minItems":1,"maxItems":20,"items":{"type":"string","minLength":1,"maxLength":65536},"description":"Commands for /bin/sh, run one after the other in the working directory. Each has its own shell."},` +
	`"timeout_ms":{"type":"integer","minimum":1,"maximum":595000,"description":"Time limit of all commands in milliseconds, 30000 by default."},` +
	`"max_output_length":{"type":"integer","minimum":1,"maximum":32768,"description":"Bytes of each output that are kept, 16384 by default."}%s},` +
	`"required":["commands"],"additionalProperties":false}`

// Definition implements [tool.Tool].
func (t *shell) Definition() tool.Definition {
	d := t.codeExecute.Definition()
	more := ""
	if t.o.Keep != nil {
		more = outputsSchema
	}
	d.Name, d.Title, d.InputSchema = builtin.Shell, "Run commands", json.RawMessage(fmt.Sprintf(shellSchema, more))
	d.Description = "Run commands with /bin/sh in a sandbox without network. Files in the working directory are kept for later calls of this conversation, " +
		"and are those of Python. What a command starts ends with it."
	return d
}

// WithFiles implements [toolexec.Receiver].
func (t *shell) WithFiles(files *file.Set) tool.Tool { return &shell{t.with(files)} }

// Describe implements [toolexec.Describer]: the tool that runs Python says what is required.
func (t *shell) Describe(json.RawMessage) string { return "" }

// shellArguments are those of a call.
type shellArguments struct {
	Commands  []string `json:"commands"`
	TimeoutMS int64    `json:"timeout_ms"`        // 0 = the default
	Most      int      `json:"max_output_length"` // 0 = the default
	Outputs   []string `json:"outputs"`
}

func (a shellArguments) check() error {
	if len(a.Commands) == 0 || len(a.Commands) > maxCommands {
		return fmt.Errorf("commands has %d commands; use 1 to %d", len(a.Commands), maxCommands)
	}
	for _, c := range a.Commands {
		if c == "" || len(c) > maxCommand {
			return fmt.Errorf("a command has %d bytes; use 1 to %d", len(c), maxCommand)
		}
	}
	switch {
	case a.TimeoutMS < 0 || a.TimeoutMS > maxShellTimeout.Milliseconds():
		return fmt.Errorf("timeout_ms is %d; use at most %d", a.TimeoutMS, maxShellTimeout.Milliseconds())
	case a.Most < 0 || a.Most > maxShellOutput:
		return fmt.Errorf("max_output_length is %d; use at most %d", a.Most, maxShellOutput)
	}
	return checkOutputs(a.Outputs)
}

// shellScript runs the commands.
//
//go:embed shell.py
var shellScript string

// Call implements [tool.Tool].
func (t *shell) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	var a shellArguments
	if err := jsonscan.Decode(c.Arguments, &a); err != nil {
		return refused(err.Error(), ""), nil
	}
	if err := a.check(); err != nil {
		return refused(err.Error(), ""), nil
	}
	if t.o.Sandbox == nil || !t.o.Sandbox.RunsCommands() {
		return refused("Commands cannot be run here. The operator sets sandbox.shell: true, and bwrap in sandbox.drivers, in the configuration file.", "sandbox.shell"), nil
	}
	limit, most := sandbox.DefaultTimeout, usualShellOutput
	if a.TimeoutMS > 0 {
		limit = time.Duration(a.TimeoutMS) * time.Millisecond
	}
	if a.Most > 0 {
		most = a.Most
	}
	asked, err := json.Marshal(map[string]any{"seconds": limit.Seconds(), "bytes": most, "together": maxShellOutputs, "commands": a.Commands})
	if err != nil {
		return refused(err.Error(), ""), nil
	}
	source, err := json.Marshal(shellScript) // what is JSON is a string of Python as well
	if err != nil {
		return refused(err.Error(), ""), nil
	}
	text, err := json.Marshal(string(asked))
	if err != nil {
		return refused(err.Error(), ""), nil
	}
	// The script has names of its own, and leaves none behind. Code of the session can spoil its own results by changing modules.
	code := fmt.Sprintf("(lambda n: (exec(%s, n), print(n['commands'](__import__('json').loads(%s))))[1])({})", source, text)
	return t.perform(ctx, c, arguments{Language: sandbox.Python, Code: code, Timeout: (limit + shellGrace).Seconds(), Outputs: a.Outputs}, shellResult)
}

// ReadHostedShell is [ReadHosted] for a hosted tool shell.
func ReadHostedShell(raw json.RawMessage) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, &catalog.OptionError{Reason: "must be an object"}
	}
	const at = "environment"
	if have := members["container"]; have != nil && string(have) != "null" {
		return nil, &catalog.OptionError{Member: "container", Reason: "name the container of commands in environment"}
	}
	var environment struct {
		Type      string `json:"type"`
		Container string `json:"container_id"`
		Files     []any  `json:"file_ids"`
	}
	value := members[at]
	_ = json.Unmarshal(value, &environment) // another form has no type
	switch delete(members, at); {
	case value == nil || string(value) == "null":
	case environment.Type == "container_reference" && environment.Container != "":
		if name := besideReference(value); name != "" {
			return nil, &catalog.OptionError{Member: at + "." + name, Reason: "the container exists, and the gateway does not change it; leave the member out"}
		}
		container, err := json.Marshal(environment.Container)
		if err != nil {
			return nil, err
		}
		members["container"] = container
	case len(environment.Files) > 0:
		return nil, &catalog.OptionError{Member: at + ".file_ids", Reason: "commands share the container of code_interpreter; name the files in container.file_ids of that tool"}
	case environment.Type == "container_auto":
		members["container"] = bytes.Replace(value, []byte(`"container_auto"`), []byte(`"auto"`), 1)
	default:
		return nil, &catalog.OptionError{Member: at + ".type", Reason: "the gateway runs the commands; use container_auto or container_reference, or leave environment out"}
	}
	read, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	options, err := ReadHosted(read)
	if wrong := (*catalog.OptionError)(nil); errors.As(err, &wrong) {
		wrong.Member = strings.Replace(wrong.Member, "container", at, 1)
	}
	return options, err
}

// besideReference returns a member of an environment that says more than which container it is; "" = there is none.
func besideReference(environment json.RawMessage) string {
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(environment, &members) // it was read before
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if value := string(members[name]); name != "type" && name != "container_id" && value != "null" && value != "[]" {
			return name
		}
	}
	return ""
}

// shellResult returns the result of commands that were run.
func shellResult(args arguments, o sandbox.Outcome, out *outputs) tool.Result {
	var ran []struct {
		TimedOut      bool   `json:"timed_out"`
		Exit          int    `json:"exit_code"`
		Stdout        string `json:"stdout"`
		Stderr        string `json:"stderr"`
		StdoutDropped int64  `json:"stdout_dropped"`
		StderrDropped int64  `json:"stderr_dropped"`
	}
	if o.Ended != "" || json.Unmarshal([]byte(o.Stdout), &ran) != nil {
		return resultOf(args, o, out) // the session has ended, or Python could not start the shell
	}
	told := builtin.ShellResult{Output: []builtin.ShellOutput{}, Driver: o.Driver}
	told.Files, told.NotProduced = out.told(o.Driver)
	told.Note = strings.Join(out.notes(o), " ")
	for _, r := range ran {
		one := builtin.ShellOutput{
			Stdout: output(r.Stdout, r.StdoutDropped), Stderr: output(r.Stderr, r.StderrDropped), Outcome: builtin.ShellOutcome{Type: "timeout"},
		}
		if !r.TimedOut {
			one.Outcome = builtin.ShellOutcome{Type: "exit", Exit: &r.Exit}
		}
		told.Output = append(told.Output, one)
	}
	r := asJSON(told)
	r.Value = told
	return r
}
