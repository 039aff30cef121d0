// Package resulttool is the built-in tool read_result: the model reads with it the rest of a tool
// result that was truncated.
//
//	driver keeps the whole results of a run ─► Reader.Of ─► tool.Source ─► the catalogue of the run
//
// The driver offers the tool once a result of the run was truncated. What the model reads stays in
// the memory of the run: the tool sends nothing.
package resulttool

import (
	"context"

	"github.com/turnpike-gateway/turnpike/tool"
)

// name is the name of the tool.
const name = "read_result"

// Reader makes the tool for runs. It implements run.ResultReader.
type Reader struct{}

// Name returns the name of the tool.
func (Reader) Name() string { return name }

// Of returns the source of the tool over the results of a run, whole, by the ids that the model
// knows. An answer has about limit bytes at most.
func (Reader) Of(results map[string]string, limit int) tool.Source {
	return source{readResult{results: results, limit: limit}}
}

// source is a tool.Source of one tool.
type source struct{ tool readResult }

// List implements tool.Source.
func (s source) List(context.Context) ([]tool.Tool, error) { return []tool.Tool{s.tool}, nil }
