package codetool

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/tool"
)

// schema is the schema of the arguments.
const schema = `{"type":"object","properties":{` +
	`"language":{"type":"string","enum":["python","javascript"]},` +
	`"code":{"type":"string","minLength":1,"maxLength":262144,"description":"The program. The value of its last expression is the result."},` +
	`"timeout":{"type":"number","exclusiveMinimum":0,"maximum":600,"description":"Time limit in seconds, 30 by default."}%s},` +
	`"required":["language","code"],"additionalProperties":false}`

// outputsSchema is the part of it for outputs.
const outputsSchema = `,"outputs":{"type":"array","maxItems":10,"items":{"type":"string","minLength":1,"maxLength":1000},` +
	`"description":"Files that the code makes in the working directory and that the user is to get."}`

const description = "Run Python or JavaScript in a sandbox without network. Variables, and files in the working directory, " +
	"are kept for later calls of this conversation, separately for each language. Print what you need to see. " +
	"Python has its standard library; other packages may be missing. JavaScript has the language, console and timers%s" +
	missingJavaScript + "A session that reaches its time or memory limit, or is idle for an hour, loses its variables; " +
	"the next result then says state_lost."

// missingJavaScript is what models use first and do not find.
const missingJavaScript = ". It has no Intl, URL, TextEncoder, structuredClone, atob, crypto, process, modules or fetch. "

// shownDescription is the part of it for images.
const shownDescription = " Images that Python shows become files that the user gets, without being in outputs: matplotlib figures that are shown, or " +
	"still open at the end of the call, which closes them, and images of display() or of the last expression."

// fileFunctions is the part of descriptions for JavaScript whose working directory is here.
const fileFunctions = ", readFile(path), which returns text, readFile(path, \"bytes\"), which returns a Uint8Array, " +
	"writeFile(path, data) for text or bytes, and listFiles(), all without await"

// codeExecute is the tool.
type codeExecute struct {
	o     Options
	files *file.Set // of the conversation; nil = none
}

// Definition implements [tool.Tool].
func (t *codeExecute) Definition() tool.Definition {
	no, more, functions, shown := false, "", "", ""
	if t.o.Keep != nil {
		more, shown = outputsSchema, shownDescription
	}
	if t.keepsFiles(sandbox.JavaScript) {
		functions = fileFunctions
	}
	return tool.Definition{
		Name: builtin.CodeExecute, Title: "Run code", Description: fmt.Sprintf(description, functions) + shown,
		InputSchema: json.RawMessage(fmt.Sprintf(schema, more)), Annotations: tool.Annotations{ReadOnly: &no, OpenWorld: &no},
	}
}

// keepsFiles reports whether code in a language gets and gives files.
func (t *codeExecute) keepsFiles(l sandbox.Language) bool {
	return t.o.Sandbox != nil && t.o.Sandbox.KeepsFiles(l)
}

// Class implements [tool.Classed]. Code may change variables and files.
func (t *codeExecute) Class() tool.Class { return tool.Once }

// Describe implements [toolexec.Describer]: the model reads which files there are, and which files the request requires.
func (t *codeExecute) Describe(raw json.RawMessage) string {
	where := ""
	switch python, javaScript := t.keepsFiles(sandbox.Python), t.keepsFiles(sandbox.JavaScript); {
	case !python && !javaScript:
		return ""
	case python && !javaScript:
		where = " of Python"
	case !python:
		where = " of JavaScript"
	}
	return describeFiles(t.files, where, true) + describeRequired(requiredBy(raw))
}

// describeRequired says which files the user requires.
func describeRequired(required []file.Required) string {
	if len(required) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(" The user requires these files. Make them in the working directory, under exactly these names; they are kept as if outputs named them:")
	for _, r := range required {
		fmt.Fprintf(&b, "\n- %q", r.Path())
		if r.Format != "" {
			fmt.Fprintf(&b, ", format %q", r.Format)
		}
		if r.Description != "" {
			fmt.Fprintf(&b, ": %q", r.Description)
		}
	}
	return b.String()
}

// arguments are those of a call.
type arguments struct {
	Language sandbox.Language `json:"language"`
	Code     string           `json:"code"`
	Timeout  float64          `json:"timeout"` // seconds; 0 = the default
	Outputs  []string         `json:"outputs"` // paths of files
}

// check returns what is wrong: with arg_validation none, arguments are not checked before.
func (a arguments) check() error {
	switch {
	case a.Language != sandbox.Python && a.Language != sandbox.JavaScript:
		return fmt.Errorf("language is %q; use python or javascript", a.Language)
	case a.Code == "":
		return errors.New("code is empty")
	case len(a.Code) > sandbox.MaxCode:
		return fmt.Errorf("code has %d bytes; at most %d are allowed", len(a.Code), sandbox.MaxCode)
	case math.IsNaN(a.Timeout) || a.Timeout < 0 || a.Timeout > sandbox.MaxTimeout.Seconds():
		return fmt.Errorf("timeout is %v; use at most %v seconds", a.Timeout, sandbox.MaxTimeout.Seconds())
	}
	return checkOutputs(a.Outputs)
}

// mostKept bounds what a call makes the process keep: output, result, and the JSON that they become.
const mostKept = 4 << 20

// Call implements [tool.Tool].
func (t *codeExecute) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	args, err := readArguments(c)
	if err != nil {
		return refused(err.Error(), ""), nil
	}
	return t.call(ctx, c, args)
}

func readArguments(c tool.Call) (args arguments, err error) {
	err = jsonscan.Decode(c.Arguments, &args)
	return args, err
}

// call runs code.
func (t *codeExecute) call(ctx context.Context, c tool.Call, args arguments) (tool.Result, error) {
	return t.perform(ctx, c, args, resultOf)
}

// perform runs code, and returns what told makes of it.
func (t *codeExecute) perform(ctx context.Context, c tool.Call, args arguments, told func(arguments, sandbox.Outcome, *outputs) tool.Result) (tool.Result, error) {
	if err := args.check(); err != nil {
		return refused(err.Error(), ""), nil
	}
	if t.o.Sandbox == nil {
		return t.failed(args, sandbox.ErrNotConfigured), nil
	}
	if c.Memory != nil {
		if err := c.Memory.Acquire(mostKept); err != nil {
			return tool.Result{}, fmt.Errorf("%w: its output needs more memory than the run may retain: %w", tool.ErrNotSent, err)
		}
	}
	session := t.o.Session(ctx, c)
	if session == "" {
		session = "call " + rand.Text()
	}
	request := sandbox.Request{
		Org: t.o.Org, Session: session, Language: args.Language, Code: args.Code,
		Timeout: time.Duration(args.Timeout * float64(time.Second)),
	}
	if len(args.Outputs) > 0 && t.o.Keep == nil {
		return refused("outputs: files cannot be kept here; leave it out", ""), nil
	}
	out := &outputs{paths: args.Outputs, begun: time.Now()}
	if t.files != nil && len(t.files.Files) > 0 && t.keepsFiles(args.Language) {
		out.inputs = &inputs{files: t.files, open: func(ctx context.Context, in file.Input) (io.ReadCloser, error) { return t.o.Open(ctx, c, in) }}
		request.Prepare = out.inputs.write
	}
	if t.keepsFiles(args.Language) {
		out.required = requiredBy(c.Options)
	}
	if (args.Language == sandbox.Python || len(args.Outputs)+len(out.required) > 0) && t.o.Keep != nil {
		out.keep, request.Collect = t.keeper(ctx, c), out.collect
	}
	o, err := t.o.Sandbox.Run(ctx, request)
	var r tool.Result
	if err == nil {
		r = told(args, o, out)
	} else {
		r, err = t.notRun(ctx, args, err)
	}
	if c.Memory != nil && err == nil {
		// It is kept as text, as JSON, and as a value with its JSON; images are a part of the value, and of the parts.
		c.Memory.Release(max(0, mostKept-4*len(r.Structured)-3*out.seen()))
	}
	return r, err
}

// notRun returns what the model is told of code that was not run to its end.
func (t *codeExecute) notRun(ctx context.Context, args arguments, err error) (tool.Result, error) {
	if ctx.Err() != nil {
		return tool.Result{}, context.Cause(ctx)
	}
	return t.failed(args, err), nil
}

// failed returns the result of a call whose code was not run.
func (t *codeExecute) failed(args arguments, err error) tool.Result {
	var unavailable *sandbox.UnavailableError
	switch {
	case errors.Is(err, sandbox.ErrNotConfigured):
		which := "wasm, bwrap, landlock, remote or auto"
		if args.Language == sandbox.JavaScript {
			which = "quickjs, remote or auto"
		}
		return refused(fmt.Sprintf("Code sandbox is not configured for %s. The operator sets sandbox.drivers of the configuration file to %s, or TURNPIKE_CODE_SANDBOX_URL.",
			args.Language, which), "sandbox.drivers")
	case errors.As(err, &unavailable):
		return refused(fmt.Sprintf("the code sandbox (driver %s) does not work; the operator can run: turnpike sandbox test", unavailable.Driver), "sandbox.drivers")
	case errors.Is(err, sandbox.ErrBusy):
		return refused(err.Error(), "sandbox.max_sessions_per_org")
	}
	return refused(err.Error(), "")
}

// refused returns an error as JSON, with the setting that mends it.
func refused(text, setting string) tool.Result {
	r := builtin.Refusal{Error: text, Setting: setting}.Result()
	r.Structured = json.RawMessage(r.Parts[0].Text)
	return r
}
