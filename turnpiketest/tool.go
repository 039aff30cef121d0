package turnpiketest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Trouble is what somebody does instead of answering. The zero value is none.
type Trouble string

// The kinds of trouble.
const (
	// Hang never answers: the caller has to give up.
	Hang Trouble = "hang"

	// Die breaks the connection off after the request has come. In the
	// process it is an error of Call that wraps [io.ErrUnexpectedEOF].
	Die Trouble = "die"
)

// NoSchema as a Tool's Schema leaves it out of the list of an [MCPServer].
const NoSchema = "none"

// Tool is a tool by script. It does what its fields say, in their order: it
// waits for After and Gate, then makes Trouble, fails with Err, or answers. The
// zero value of everything but Name is a tool that answers with nothing.
//
// The same Tool serves in the process, in a [Source], and over the wire, in an
// [MCPServer].
type Tool struct {
	Name        string
	Title       string
	Description string

	// Schema is the JSON Schema of the arguments; empty = any object. What is
	// no object stands in the list as it is, for tests of what drops it.
	Schema      string
	Annotations tool.Annotations

	// Class is the execution class in the process; empty = tool.Once. Over the
	// wire annotations are all that a client gets.
	Class tool.Class

	After   time.Duration   // how long the call takes
	Gate    <-chan struct{} // answers once something comes from it, or it is closed; nil = at once
	Trouble Trouble

	// Err is a failure of the transport: the error of Call in the process, a
	// JSON-RPC error over the wire.
	Err error

	// Answer computes the answer, of parts of any kind and structured content.
	// Without it, the answer is Result.
	Answer  func(ctx context.Context, arguments json.RawMessage) (tool.Result, error)
	Result  string // the answer's text
	IsError bool   // Result reports a failure
}

// definition is what the tool says about itself.
func (t Tool) definition() tool.Definition {
	return tool.Definition{
		Name: t.Name, Title: t.Title, Description: t.Description,
		InputSchema: json.RawMessage(t.schema()), Annotations: t.Annotations,
	}
}

func (t Tool) schema() string {
	switch t.Schema {
	case "":
		return `{"type":"object"}`
	case NoSchema:
		return ""
	}
	return t.Schema
}

// serve performs one call.
func (t Tool) serve(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	if t.After > 0 && !sleep(ctx, t.After) {
		return tool.Result{}, context.Cause(ctx)
	}
	if t.Gate != nil {
		select {
		case <-t.Gate:
		case <-ctx.Done():
			return tool.Result{}, context.Cause(ctx)
		}
	}
	switch {
	case t.Trouble == Hang:
		<-ctx.Done()
		return tool.Result{}, context.Cause(ctx)
	case t.Trouble == Die:
		return tool.Result{}, fmt.Errorf("tool %s died: %w", t.Name, io.ErrUnexpectedEOF)
	case t.Err != nil:
		return tool.Result{}, t.Err
	case t.Answer != nil:
		return t.Answer(ctx, arguments)
	case t.IsError:
		return tool.Error(t.Result), nil
	}
	return tool.Text(t.Result), nil
}
