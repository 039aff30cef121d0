package turnpike

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Caller is on whose behalf a run is: see [As].
type Caller = tool.Caller

// CallerKey identifies a caller.
type CallerKey = tool.CallerKey

// Option changes one call of an agent.
type Option func(*options)

type options struct {
	caller    Caller
	only      []string // nil = all
	narrowed  bool
	limits    Limits
	trace     bool
	mode      ToolMode
	tools     []tool.Tool
	format    model.Format
	skipInput bool
	detached  bool // see [Agent.Start]
	session   *Session

	compaction *Compaction // nil = that of the agent
}

// As runs on behalf of a caller: the model sees the tools that the caller has the permission for,
// and each call is checked again. Without it the program itself is the caller, who may do everything.
func As(c Caller) Option {
	return func(o *options) { o.caller = copied(c) }
}

// Program returns the caller that the program itself is, who may do everything: that of runs without [As]. Its ID is
// reserved: the runs and sessions of another caller with this ID would be those of the program.
func Program() Caller { return everything() }

// copied returns the caller with permissions of its own.
func copied(c Caller) Caller {
	return Caller{ID: c.ID, Org: c.Org, Permissions: slices.Clone(c.Permissions)}
}

// Only offers the model no other tools than those named. A name that no tool has is an error.
func Only(names ...string) Option {
	return func(o *options) { o.only, o.narrowed = append(o.only, names...), true }
}

// Within limits the call beyond the limits of the agent: it can only tighten them.
func Within(l Limits) Option { return func(o *options) { o.limits = o.limits.within(l) } }

// ShowTrace puts the Steps into the Result of a run that succeeds. Results of errors always have them.
func ShowTrace() Option { return func(o *options) { o.trace = true } }

// Tools adds tools for the call.
func Tools(tools ...tool.Tool) Option {
	return func(o *options) { o.tools = append(o.tools, tools...) }
}

// SkipInput leaves the input out of what the agent's Conversation gets.
func SkipInput() Option { return func(o *options) { o.skipInput = true } }

// ToolMode says who executes the tool calls of a model: see [Mode].
type ToolMode string

// The tool modes.
const (
	Auto   ToolMode = "auto"   // the agent does, until the model answers
	Return ToolMode = "return" // the caller does: one model call is made, and its tool calls come back
)

// Mode sets who executes tool calls. It is Auto for runs of an agent and Return for [Generate].
func Mode(m ToolMode) Option { return func(o *options) { o.mode = m } }
