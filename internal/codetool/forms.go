package codetool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
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
		elsewhere := builtin.MistralRSPrefix + name
		swapped := named == org.ToolNamesMistralRS
		forms = append(forms, catalog.Form{Tool: form, As: name, Unlisted: swapped}, catalog.Form{Tool: form, As: elsewhere, Unlisted: !swapped})
	}
	for _, l := range languages {
		if l == sandbox.Python {
			add(builtin.ExecutePython, &inLanguage{t, l, false})
			if o.Keep != nil {
				add(builtin.SurfaceOutputs, &surfaceOutputs{t})
			}
			continue
		}
		second := slices.Contains(languages, sandbox.Python) && t.keepsFiles(sandbox.Python)
		forms = append(forms, catalog.Form{Tool: &inLanguage{t, l, second}, As: builtin.ExecuteJavaScript})
	}
	if o.Files != nil && len(forms) > 0 {
		forms = append(forms, catalog.Form{Tool: &listFiles{o: o}, As: builtin.ListFiles})
		forms = append(forms, catalog.Form{Tool: &readFile{o: o}, As: builtin.ReadFile})
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
	javaScriptDescription = "Run JavaScript in a sandbox without network. Variables%s are kept for later calls of this conversation. Print what you need to " +
		"see with console.log. JavaScript has the language, console and timers%s" + missingJavaScript + "A session that reaches its time or " +
		"memory limit, or is idle for an hour, loses its variables; the next result then says state_lost."
)

// inLanguage is the tool for one language.
type inLanguage struct {
	*codeExecute
	language sandbox.Language
	second   bool // another one shows how the files of the conversation begin
}

// Definition implements [tool.Tool].
func (t *inLanguage) Definition() tool.Definition {
	d := t.codeExecute.Definition()
	says, more, kept, functions := pythonDescription, "", "", ""
	if t.o.Keep != nil && (t.language == sandbox.Python || t.keepsFiles(t.language)) {
		says, more = pythonDescription+shownDescription, outputsSchema
	}
	d.InputSchema = json.RawMessage(fmt.Sprintf(codeSchema, more))
	d.Title, d.Description = "Run Python", says
	if t.language == sandbox.JavaScript {
		if t.keepsFiles(t.language) {
			kept, functions = ", and files in the working directory,", fileFunctions
		}
		d.Title, d.Description = "Run JavaScript", fmt.Sprintf(javaScriptDescription, kept, functions)
	}
	return d
}

// Describe implements [toolexec.Describer].
func (t *inLanguage) Describe(raw json.RawMessage) string {
	if !t.keepsFiles(t.language) {
		return ""
	}
	return describeFiles(t.files, "", !t.second) + describeRequired(requiredBy(raw))
}

// WithFiles implements [toolexec.Receiver].
func (t *inLanguage) WithFiles(files *file.Set) tool.Tool {
	return &inLanguage{t.with(files), t.language, t.second}
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
	if err := jsonscan.Decode(c.Arguments, &args); err != nil {
		return refused(err.Error(), ""), nil
	}
	if len(args.Paths) == 0 {
		return refused("paths is empty", ""), nil
	}
	return t.call(ctx, c, arguments{Language: sandbox.Python, Code: "None", Outputs: args.Paths})
}
