package settings

import (
	"cmp"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
)

// Program is what a Go program says of a run of its agent.
type Program struct {
	// OneCall says that the program executes the tool calls. The run is then one model call: of the rest only Limits.NanoUSD,
	// MaxTokens and Streams hold.
	OneCall bool

	Durable bool // the run is in a store
	Streams bool // its events are read while they happen

	Limits    budget.Limits // clamped
	MaxTokens int64         // limit on the output of one model call; 0 = none

	Parallelism    loop.Parallelism // "" = loop.Parallel
	Validation     loop.Validation  // "" = loop.Strict
	AbortOnTool    bool
	ResultMaxBytes int // 0 = 64 KiB

	Context loop.ContextPolicy
	Hooks   []loop.Hook
	Servers []string // names of those whose calls may wait for approval
}

// What all runs of Go programs have: how long lists of tools are reused, and how many calls of one server a run makes at a time.
const (
	ProgramCatalogTTL     = 10 * time.Minute
	programCallsPerServer = 32
)

// Library returns the settings of a run of a Go program. It is for package turnpike what [Resolve] is for the gateway: the only
// place where they are decided.
func Library(p Program) loop.Policy {
	out := loop.Policy{MaxTokens: p.MaxTokens}
	if p.Streams {
		out.Live = []model.DeltaKind{model.TextDelta, model.ReasoningDelta, model.RefusalDelta, model.CallDelta}
	}
	if p.OneCall {
		out.Grade, out.Limits.NanoUSD = loop.Relay, p.Limits.NanoUSD
		return out.WithDefaults()
	}
	out.Grade, out.NoStore = loop.Light, !p.Durable
	if p.Durable {
		out.Grade = loop.Durable
	}
	out.Limits = p.Limits
	out.Parallelism = cmp.Or(p.Parallelism, loop.Parallel)
	out.Validation, out.AbortOnTool = cmp.Or(p.Validation, loop.Strict), p.AbortOnTool
	out.ResultMaxBytes, out.HeadOnly = cmp.Or(p.ResultMaxBytes, 64<<10), true
	out.CatalogTTLNS = ProgramCatalogTTL.Nanoseconds()
	out.Rules.CallsPerServer, out.Guard.Mode = programCallsPerServer, policy.Nudge
	out.Context, out.Hooks = p.Context, p.Hooks
	for _, name := range p.Servers {
		out.Approvals = append(out.Approvals, loop.ServerApproval{Server: name, WaitMS: org.DefaultApprovalTimeout.Milliseconds()})
	}
	return out.WithDefaults()
}
