package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Observer is called when something happens in a run. Its methods are called by the goroutines
// of runs: they must return quickly and be safe for concurrent use, and they must neither keep
// nor change their arguments. A method that returns a context and a function reports the begin of
// an operation: its parts get that context, and the function is called exactly once, when it
// ends. Implemented by package telemetry.
type Observer interface {
	// Carry returns to, the context of a run that outlives its request, with the trace
	// context of from, the context of the request.
	Carry(to, from context.Context) context.Context

	// Trace returns the trace context of ctx, which is stored with a durable run for
	// its next owner; nil = none.
	Trace(ctx context.Context) map[string]string
	// WithTrace returns ctx with a stored trace context, so that the next Run belongs to
	// the stored trace. Invalid values are ignored.
	WithTrace(ctx context.Context, stored map[string]string) context.Context

	// Run reports a run that was accepted or taken over, or a relay.
	Run(ctx context.Context, r Begun) (context.Context, func(End))
	// Round reports a round: a model call with all attempts, and the tool calls of its
	// turn. It ends when the next one begins.
	Round(ctx context.Context, n int) (context.Context, func())
	// ModelCall reports one attempt at a model call.
	ModelCall(ctx context.Context, c ModelCall) (context.Context, func(ModelEnd))
	// Compacted reports an attempt to make a prompt shorter.
	Compacted(c loop.Compacted)
	// ToolCall reports one attempt at a call that the gateway answers, executed or not.
	ToolCall(ctx context.Context, c ToolCall) (context.Context, func(ToolEnd))

	// HookRan reports what a hook of the run, or of the tool call, of ctx has decided.
	HookRan(ctx context.Context, kind loop.HookType, ran loop.HookRan)

	// Recorded reports an audit entry that was stored.
	Recorded(org string, e audit.Entry)
}

// Resources finds what a run needs beside its journal. Implemented by package app.
type Resources interface {
	// For returns the models of the run, and the current MCP servers of its org. If
	// the run cannot continue, the error says what is missing.
	//
	// Of the servers that the request of the run brought, For returns those that it
	// can. Calls of tools of the others are answered with an error. A run that has not
	// listed its tools yet ends as lost if one is missing.
	For(ctx context.Context, a *loop.Accepted) ([]route.Target, []catalog.Server, error)
}

// OwnServers connects runs that are turns of sessions with the MCP servers of their agents. Implemented by
// package app.
type OwnServers interface {
	// OwnServers returns the servers of an agent, which belong to the run: nothing of them is
	// shared with another run, and their tools are listed when it begins. The caller must call release when it
	// leaves the run. The agent is that of the snapshot, or that of the turn if snapshot is nil.
	OwnServers(ctx context.Context, orgID, runID string, snapshot json.RawMessage) (servers []catalog.Server, release func(), err error)
}

// Models finds models by their names. Implemented by *route.Router.
type Models interface {
	// Resolve returns the targets of a model as a request names it, the first one first; none = there is no such model.
	Resolve(name string) []route.Target
	// Target returns a provider's model, or false if it is not configured.
	Target(provider, model string) (route.Target, bool)
}

// Router orders the targets of runs and remembers how they answered. Implemented by
// *route.Router.
type Router interface {
	// Order returns the order in which targets are tried.
	Order(a route.Ask) route.Choice
	// Report tells how a target answered a model call, and how long it took to the begin of the
	// answer; 0 = not known. It returns whether the target is not to be tried again for now.
	Report(a route.Ask, target int, o route.Outcome, began time.Duration) (open bool)
}

// Cache stores results of tool calls. Implemented by *toolcache.Cache.
type Cache interface {
	// Get returns a result that Put stored, or false. It returns false for an entry that
	// was changed since.
	Get(ctx context.Context, k CacheKey) (result string, ok bool)

	// Put stores a result for ttl. Failures are logged and not returned, because the
	// result can be computed again.
	Put(ctx context.Context, k CacheKey, result string, ttl time.Duration)
}

// ResultReader is the built-in tool with which the model reads the rest of truncated results.
// Implemented by resulttool.Reader.
type ResultReader interface {
	// Name returns the name of the tool. A tool of the client or of a server with that name
	// replaces it.
	Name() string

	// Of returns the source of the tool for one run. results are the whole results by the ids that
	// the model knows; they do not change. limit is how many bytes an answer may have.
	Of(results map[string]string, limit int) tool.Source
}

// CacheKey is the key of a cached result: a call of a tool by an org.
type CacheKey struct {
	Org       string
	Server    string // origin of the server; differs for another address or credential
	Tool      string // the server's own name for it
	Digest    string // of the tool's definition; differs when the tool was changed
	Arguments string // canonical JSON; integers have all their digits
}
