// Package codetool is the built-in tool code_execute: the model runs Python or JavaScript with it, in a
// sandbox that the operator has chosen.
//
//	catalogue ──► Source ──► code_execute ── language, code, timeout ──► sandbox.Manager
//	                                      ◄── output, result, exit status, files
//
// Calls of one session share variables. The tool decides nothing about confinement.
package codetool

import (
	"context"
	"io"

	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Sandbox runs code. *sandbox.Manager implements it.
type Sandbox interface {
	Run(context.Context, sandbox.Request) (sandbox.Outcome, error)
	// RunsCommands reports whether Python can run programs of the host, and may.
	RunsCommands() bool
	// KeepsFiles reports whether code in a language has its working directory here, so that it gets and gives files.
	KeepsFiles(sandbox.Language) bool
}

// Options are what the tool needs.
type Options struct {
	// Org is whose sessions the code belongs to.
	Org string
	// Sandbox runs the code; nil = every call is answered with how to configure one.
	Sandbox Sandbox
	// Session returns the session of a call: calls of one session share variables and files. It is called
	// with the context of the call. Nil = the id of the run. "" = the call shares nothing.
	Session func(context.Context, tool.Call) string
	// Keep stores a file that a call names in outputs, for the caller of the call. path is in the working directory. The text
	// of its error is for the model. Nil = calls cannot name outputs.
	Keep func(ctx context.Context, c tool.Call, path string, body io.ReadSeeker) (Kept, error)
	// Open returns the content of a file of a key that the request has put into the working directory. The text of its error is for
	// the model. It is required for calls whose request names such files.
	Open func(ctx context.Context, c tool.Call, in file.Input) (io.ReadCloser, error)
	// Files are for the forms that list and read files; nil = there are no such forms.
	Files Files
}

// Files are those that code has made in the session of a call. Errors are for the model.
type Files interface {
	// List returns the files that are there now, at most MaxListed, the latest first.
	List(context.Context, tool.Call) ([]file.File, error)
	// Open returns the content of one of them. Close it.
	Open(ctx context.Context, c tool.Call, id string) (io.ReadCloser, file.File, error)
}

// Source lists the tools. It implements [tool.Source].
type Source struct{ tools []tool.Tool }

// New returns the source of the tools for an org.
func New(o Options) *Source {
	if o.Session == nil {
		o.Session = func(_ context.Context, c tool.Call) string { return c.RunID }
	}
	return &Source{[]tool.Tool{&codeExecute{o: o}, &shell{&codeExecute{o: o}}}}
}

// List implements [tool.Source].
func (s *Source) List(context.Context) ([]tool.Tool, error) { return s.tools, nil }
