package turnpike

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Agent is a model with tools. Only Model is required: the zero value of every other field is useful. An
// Agent is safe for concurrent use, and must be neither copied nor changed after its first run.
type Agent struct {
	Name         string // recorded with its runs: RunInfo.Agent, and agent_id in the usage of Audit; "" = agent
	Instructions string // the system message of each run; "" = none
	Model        model.Model

	Tools     []tool.Tool
	Sources   []tool.Source   // MCP servers: see package mcp. One that does not answer is left out, unless it is required
	Resources []tool.Provider // see package resource

	Limits  Limits          // of each run
	Options model.Options   // of each model call, such as Temperature and Effort
	Output  json.RawMessage // JSON Schema that the provider is asked to hold the answer to, which is not checked; nil = text. See [Into]

	Parallelism    Parallelism // of the tool calls of one turn; "" = Parallel
	Validation     Validation  // of the arguments of tool calls; "" = Strict
	ToolErrors     ToolErrors  // what a failed tool call does; "" = Recover
	ResultMaxBytes int         // of a tool result for the model; 0 = 65,536. A longer one is cut, and a marker names its size

	// Compaction is what runs do with prompts that are too long for the context window of the model.
	Compaction Compaction

	// NeedsApproval says which tool calls need the approval of a person, beside those whose tool asks for
	// it: by the name of the tool and its arguments. The same call always has the same answer.
	// Nil = no others.
	NeedsApproval func(tool string, arguments json.RawMessage) bool

	// Hooks are functions that may deny or change tool calls and their results.
	Hooks Hooks

	// Conversation gets the turns of each run, except with Mode(Return); nil = nobody does. See also
	// [Agent.Session] and sqlite.NewSessions.
	Conversation Conversation

	// Store keeps runs on disk, such as sqlite.Open does; nil = runs live in memory.
	Store Store

	// Audit records each model call and each tool call of the runs, and what people decide about them, as a gateway does for runs of
	// its clients: gateway.Gateway.Audit("acme") is the audit log of an org of a gateway in the same program. The rows count in the
	// usage of the org, and spend nothing of its budgets. They have the caller as their key: see [As]. While nothing can be
	// recorded, such as after the gateway was closed, runs fail with a [*LostError] before they begin. Nil = nothing is recorded.
	Audit Auditor

	// Rates are the prices of models by their names, as the provider calls them, or as
	// "provider/model". They come before those that this package knows. A model that is no model.Named, such as a
	// scripted one, has the name "model" of the provider "custom".
	Rates map[string]Rate

	Outbound Outbound     // which addresses MCP servers may have
	Log      *slog.Logger // nil = nothing is logged

	once   sync.Once
	engine *engine
	err    error // of the agent itself
}

// Parallelism is how the tool calls of one turn are executed.
type Parallelism string

// The kinds of parallelism. Results are always in the order of the calls.
const (
	Parallel Parallelism = "parallel" // all at the same time
	Safe     Parallelism = "safe"     // those that only read at the same time, then the others one by one
	Serial   Parallelism = "serial"   // one by one, in their order
)

// Validation is how the arguments of a tool call are validated. The model is told what is wrong.
type Validation string

// The kinds of validation.
const (
	Strict       Validation = "strict"  // against the schema of the tool
	Lenient      Validation = "lenient" // types are converted to those of the schema before
	NoValidation Validation = "none"    // any JSON object
)

// ToolErrors is what a failed tool call does.
type ToolErrors string

// The kinds of handling failed tool calls.
const (
	Recover ToolErrors = "recover" // the model is told, and the run goes on
	Abort   ToolErrors = "abort"   // the run ends with a [*ToolError]
)

// Outbound is the policy for the addresses of MCP servers that are given by URL. The zero value allows
// public addresses only: neither this machine nor private networks. Ports of other protocols, such as 22 or 6379, are
// always refused. Go functions are the program's own business.
type Outbound struct {
	Allow []netip.Prefix // addresses that are allowed, such as 127.0.0.0/8
	Block []netip.Prefix // addresses that are refused in addition
}

// Conversation keeps the turns of runs. Append is called with each turn in order and is awaited; its
// error ends the run. A run that is resumed appends again what its last process may have appended
// already: RunID and Number identify a turn, whose items are the same. The results of a turn's calls
// are appended together, when all are there or the run has ended. With [Compaction], all turns after the input are
// appended when the run has ended, or waits.
type Conversation interface {
	Append(ctx context.Context, turn Turn) error
}

// Turn is a part of a conversation: the input of a run, an answer of the model with its tool calls, or
// the results of these.
type Turn struct {
	Session string // that the run is part of: see [Agent.Session]; "" = none
	RunID   string
	Caller  Caller
	Number  int // from 0, which is the input
	Role    TurnRole
	Items   []item.Item
}

// TurnRole says whose a turn is.
type TurnRole string

// The roles of turns.
const (
	InputTurn     TurnRole = "user"
	AssistantTurn TurnRole = "assistant"
	ToolTurn      TurnRole = "tool"
)

// Store keeps the runs of agents. The stores are in packages of their own, such as sqlite.
type Store interface {
	// Ledger returns the store for this package; other packages have no use for it.
	Ledger() ledger.Ledger

	// Sessions returns what keeps the sessions of agents without a Conversation; nil = they are in memory.
	Sessions() SessionStore

	// Close ends the runs that [Agent.Start] has begun, for whoever resumes them, and then closes
	// the store.
	Close() error
}

// Run runs the agent until it answers. The error is a [Failure].
func (a *Agent) Run(ctx context.Context, in Input, opts ...Option) (*Result, error) {
	return a.Stream(ctx, in, opts...).Result()
}

// Stream returns a run that has not begun. It begins with the first range over its events or its text,
// or with Result.
func (a *Agent) Stream(ctx context.Context, in Input, opts ...Option) *Stream {
	c, err := a.newCall(in, opts)
	if err != nil {
		return failedStream(err)
	}
	return newStream(ctx, c.id, c.perform)
}

// Start begins a run that goes on without its caller, and returns its id once it is stored. It needs a
// Store. [Agent.Follow] reports its events, and [Agent.Cancel] ends it. Store.Close waits for
// nothing: the run can be resumed.
func (a *Agent) Start(ctx context.Context, in Input, opts ...Option) (string, error) {
	c, err := a.newCall(in, append(opts[:len(opts):len(opts)], detached()))
	if err != nil {
		return "", err
	}
	return c.start(ctx)
}
