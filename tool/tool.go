// Package tool says what a tool is: a definition that the model sees and a way
// to call it. MCP servers, built-ins, HTTP tools and Go functions all become a
// [Tool].
//
//	type clock struct{}
//
//	func (clock) Definition() tool.Definition {
//		return tool.Definition{Name: "now", Description: "The time of day.", InputSchema: json.RawMessage(`{"type":"object"}`)}
//	}
//
//	func (clock) Call(context.Context, tool.Call) (tool.Result, error) {
//		return tool.Text(time.Now().String()), nil
//	}
//
// The gateway executes a call of this tool at most once, because the tool could change
// something. A tool that may be called again says so: it is [Classed].
//
//	func (clock) Class() tool.Class { return tool.Read }
package tool

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/turnpike-gateway/turnpike/item"
)

// ErrNotSent is wrapped by errors of Call after which the call provably never
// left, at any of its tries: it may be repeated whatever its class. After any
// other error the call may have been carried out.
var ErrNotSent = errors.New("not sent")

// Owner says who executes a tool.
type Owner string

// The owners of a tool call.
const (
	Gateway Owner = "gateway"
	Client  Owner = "client"
	Unknown Owner = "unknown" // nobody: the model made the name up, or the tool is not allowed
)

// Class says how often a call may be executed. The zero value is Once. A value that is
// not one of the constants counts as Once, see [ClassOf].
type Class string

// Repeatable reports whether a call may be sent again when nobody knows what
// became of it.
func (c Class) Repeatable() bool { return c == Read || c == Keyed || c == Attach }

// The execution classes, the most careful first.
const (
	Once   Class = "once"   // at most once: the pessimistic default for a tool that may write
	Keyed  Class = "keyed"  // the server honours an idempotency key
	Read   Class = "read"   // repeat freely
	Attach Class = "attach" // starting it twice finds the same work
)

// Tool is something that the gateway can execute for the model. Both methods
// are safe for concurrent use.
type Tool interface {
	// Definition describes the tool. It is constant for the life of the Tool.
	Definition() Definition

	// Call executes the tool once. A Result is the tool's own answer, with
	// IsError where it is a failure. An error says that there is no answer: the
	// call counts as possibly carried out unless the error wraps [ErrNotSent].
	// The model reads the error's text, so it must name no address and no
	// secret. An error that wraps [Blocked] ends the run. Call returns soon after
	// ctx is done.
	Call(ctx context.Context, c Call) (Result, error)
}

// Classed is a [Tool] that declares its execution class. A tool that does not is [Once].
//
// The class decides what happens to a call whose answer is lost, because of a broken
// connection or a crash of the gateway. A call of class Read, Keyed or Attach is sent
// again, with the same IdempotencyKey. A call of class Once is not: the model is told that
// it may have been carried out.
type Classed interface {
	Tool

	// Class is constant for the life of the Tool, and safe for concurrent use.
	Class() Class
}

// ClassOf returns the class that the tool declares. It returns Once for a tool that is
// not [Classed], and for a class that is not one of the constants.
func ClassOf(t Tool) Class {
	if c, ok := t.(Classed); ok {
		switch class := c.Class(); class {
		case Once, Keyed, Read, Attach:
			return class
		}
	}
	return Once
}

// Asker is a [Tool] some of whose calls need the approval of a person.
type Asker interface {
	Tool

	// Asks reports whether a call with these arguments, which are valid, needs an approval. The
	// same arguments always have the same answer. It is safe for concurrent use.
	Asks(arguments json.RawMessage) bool
}

// Priced is a [Tool] whose calls cost money.
type Priced interface {
	Tool

	// Cost returns what a call costs; no amount = nothing. It is constant for the life of the Tool.
	Cost() Money
}

// Source lists tools: an MCP server, a set of Go functions.
type Source interface {
	// List returns the tools in the source's own order. It returns soon after
	// ctx is done.
	List(ctx context.Context) ([]Tool, error)
}

// Tools is a [Source] of tools that never change, such as Go functions.
type Tools []Tool

// List implements [Source].
func (t Tools) List(context.Context) ([]Tool, error) { return t, nil }

// Announcer is a Source that says when its tools have changed.
type Announcer interface {
	Source

	// Changes counts how often the source has said, or may have said, that its tools have
	// changed. A list that was requested before the latest change may be out of date.
	Changes() uint64
}

// Definition is what a tool says about itself.
type Definition struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"` // a JSON Schema object
	Annotations Annotations     `json:"annotations,omitzero"`
}

// Annotations are a source's hints about behaviour, with MCP's names and
// meanings; nil is "not said", read as the pessimistic value. They are used
// only where the operator trusts the source.
type Annotations struct {
	ReadOnly    *bool `json:"read_only,omitempty"`   // absent: may write
	Destructive *bool `json:"destructive,omitempty"` // absent: may destroy
	Idempotent  *bool `json:"idempotent,omitempty"`  // absent: may not be repeated
	OpenWorld   *bool `json:"open_world,omitempty"`  // absent: reaches out
}

// Call is one execution.
type Call struct {
	RunID     string          // "" outside of a run
	Key       string          // round.index, unique in its run
	Attempt   int             // 1 is the first
	Arguments json.RawMessage // a JSON object, validated
	Caller    Caller          // on whose behalf
	Options   json.RawMessage // what the request says of all calls of the tool, and the model cannot change; nil = nothing
	RequestID string          // of the request to a gateway that the call is, at /mcp; "" = none
	EndUser   string          // whom the request names as the client's own user; "" = nobody
	Session   string          // of a client, which the run continues; unique in its org; "" = none

	// Class says how often the call may be executed; the zero value is Once.
	Class Class

	// IdempotencyKey is the same for every attempt of one call and for no
	// other call; empty for calls that only read. A key alone does not make a
	// call repeatable: only a server that honours it does, which is class Keyed.
	IdempotencyKey string

	// Memory is charged with what the call makes the process keep; nil = nothing
	// is counted.
	Memory Memory
}

// Memory bounds how many bytes a call may keep. It is safe for concurrent use.
// What is charged is released when the call has ended and its result is stored.
type Memory interface {
	// Acquire counts n bytes before they are read or made. After an error they
	// must not be kept.
	Acquire(n int) error
	// Release takes n bytes back that were charged.
	Release(n int)
}

// Result is what a tool answered. Parts with binary content carry it as base64 in
// Data. A model whose dialect does not take a part gets a text in its place.
type Result struct {
	Parts   []item.Part
	IsError bool

	// Label says where the content comes from; "" = nothing is said. It is kept in the journal and with
	// the item, and hooks after the call get it.
	Label item.Label

	// Cause is the error of a Go function whose text the Result is; nil = none. Models do not see it.
	Cause error

	// Value is the answer as a typed value, for programs and surfaces; nil = none. Models never see it, and it is complete where the
	// text for the model is cut. It must have a JSON form, which a run that stores its rows stores beside the text, in a row of its own;
	// one without, or of more than 4 MiB, is left out. The event ToolDone has the value: a [json.RawMessage] of that form, but for
	// the built-in tools of the gateway. A hook that replaces the result takes the value away.
	Value any

	// Structured is the answer as a JSON value; nil = none. Models read Parts: a
	// Result without text is given to them as this JSON.
	Structured json.RawMessage
}

// Text returns a successful result that says text.
func Text(text string) Result {
	return Result{Parts: []item.Part{{Kind: item.Text, Text: text}}}
}

// Error returns a failure that the model is told about.
func Error(text string) Result {
	r := Text(text)
	r.IsError = true
	return r
}

// Blocked is the refusal of an address by the outbound policy. The model must not learn of it: it ends the run.
type Blocked interface {
	error
	// Blocked returns why and which address was refused.
	Blocked() (reason, address string)
}
