package codetool

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Forms returns the forms in which the switches of an org offer the tool: one for each language that the sandbox has, and those that hand over
// and read files. named says how an org names them: org.ToolNamesMistralRS, or "".
func Forms(o Options, languages []sandbox.Language, named string) []catalog.Form {
	t := New(o).tools[0].(*codeExecute)
	var forms []catalog.Form
	add := func(name string, form tool.Tool) {
		elsewhere := org.MistralRSPrefix + name
		swapped := named == org.ToolNamesMistralRS
		forms = append(forms, catalog.Form{Tool: form, As: name, Unlisted: swapped}, catalog.Form{Tool: form, As: elsewhere, Unlisted: !swapped})
	}
	for _, l := range languages {
		if l == sandbox.Python {
			add(org.ExecutePython, &inLanguage{t, l})
			if o.Keep != nil {
				add(org.SurfaceOutputs, &surfaceOutputs{t})
			}
			continue
		}
		forms = append(forms, catalog.Form{Tool: &inLanguage{t, l}, As: org.ExecuteJavaScript})
	}
	if o.Files != nil && len(forms) > 0 {
		forms = append(forms, catalog.Form{Tool: &listFiles{o}, As: org.ListFiles}, catalog.Form{Tool: &readFile{o}, As: org.ReadFile})
	}
	return forms
}

// codeSchema is the schema of the arguments of code in one language.
const codeSchema = `{"type":"object","properties":{` +
	`"code":{"type":"string","minLength":1,"maxLength":262144,"description":"The program. The value of its last expression is the result."},` +
	`"timeout":{"type":"number","exclusiveMinimum":0,"maximum":600,"description":"Time limit in seconds, 30 by default."}%s},` +
	`"required":["code"],"additionalProperties":false}`

const (
	pythonDescription = "Run Python in a sandbox without network. Variables, and files in the working directory, are kept for later calls of this " +
		"conversation. Print what you need to see. The standard library is there; other packages may be missing. A session that reaches its time " +
		"or memory limit, or is idle for an hour, loses its variables; the next result then says state_lost."
	javaScriptDescription = "Run JavaScript in a sandbox without network. Variables are kept for later calls of this conversation. Print what you need to " +
		"see with console.log. There are the language, console and timers, and no modules and no fetch. A session that reaches its time or " +
		"memory limit, or is idle for an hour, loses its variables; the next result then says state_lost."
)

// inLanguage is the tool for one language.
type inLanguage struct {
	*codeExecute
	language sandbox.Language
}

// Definition implements [tool.Tool].
func (t *inLanguage) Definition() tool.Definition {
	d := t.codeExecute.Definition()
	more, says := "", pythonDescription
	if t.language == sandbox.Python && t.o.Keep != nil {
		more, says = outputsSchema, pythonDescription+shownDescription
	}
	d.InputSchema = json.RawMessage(fmt.Sprintf(codeSchema, more))
	d.Title, d.Description = "Run Python", says
	if t.language == sandbox.JavaScript {
		d.Title, d.Description = "Run JavaScript", javaScriptDescription
	}
	return d
}

// Describe implements [toolexec.Describer]: Python makes the files that the request requires.
func (t *inLanguage) Describe(raw json.RawMessage) string {
	if t.language != sandbox.Python {
		return ""
	}
	return t.codeExecute.Describe(raw)
}

// WithFiles implements [toolexec.Receiver]: Python gets the files of the conversation.
func (t *inLanguage) WithFiles(files *file.Set) tool.Tool {
	if t.language != sandbox.Python {
		return t
	}
	return &inLanguage{t.with(files), t.language}
}

// Call implements [tool.Tool].
func (t *inLanguage) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	args, err := readArguments(c)
	if err != nil {
		return refused(err.Error(), ""), nil
	}
	args.Language = t.language
	return t.call(ctx, c, args)
}

// surfaceOutputs hands over files that earlier calls have made in the working directory.
type surfaceOutputs struct{ *codeExecute }

const pathsSchema = `{"type":"object","properties":{"paths":{"type":"array","minItems":1,"maxItems":10,` +
	`"items":{"type":"string","minLength":1,"maxLength":1000},"description":"Paths in the working directory."}},"required":["paths"],"additionalProperties":false}`

// Definition implements [tool.Tool].
func (t *surfaceOutputs) Definition() tool.Definition {
	d := t.codeExecute.Definition()
	d.InputSchema = json.RawMessage(pathsSchema)
	d.Title = "Hand over files"
	d.Description = "Give the user files that Python has made in the working directory in earlier calls."
	return d
}

// WithFiles implements [toolexec.Receiver].
func (t *surfaceOutputs) WithFiles(files *file.Set) tool.Tool { return &surfaceOutputs{t.with(files)} }

// Describe implements [toolexec.Describer]: what is required is said once.
func (t *surfaceOutputs) Describe(json.RawMessage) string { return "" }

// Call implements [tool.Tool]. It runs code that does nothing, after which the files are read.
func (t *surfaceOutputs) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		Paths []string `json:"paths"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return refused(err.Error(), ""), nil
	}
	if len(args.Paths) == 0 {
		return refused("paths is empty", ""), nil
	}
	return t.call(ctx, c, arguments{Language: sandbox.Python, Code: "None", Outputs: args.Paths})
}
