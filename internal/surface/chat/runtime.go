package chat

import (
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
)

// resultMaxBytes is how much of a tool's result the model gets on this surface.
const resultMaxBytes = 64 << 10

// applyRuntime puts what the org wants of its runs into the request. What the
// org leaves open is decided here: these are the defaults of this surface.
func applyRuntime(req *run.Request, caller run.Caller, maxRoundsCap int) {
	rt := caller.Org.Runtime
	req.Grade = loop.Light
	if req.Key != nil || rt.Durable == "always" {
		req.Grade = loop.Durable
	}
	req.Servers, req.CatalogTTL = caller.Servers, rt.CatalogTTL
	req.CacheTTL = rt.ToolCacheTTL
	req.Concurrency = rt.Concurrency
	req.Limits = limits(rt).Clamp(maxRoundsCap)
	req.Parallelism = loop.Parallelism(rt.ToolParallelism)
	if rt.ToolParallelism == "" || rt.ToolParallelism == "auto" {
		req.Parallelism = loop.Parallel
	}
	req.AbortOnTool = rt.ToolErrorMode == "abort"
	req.Guard = policy.Guard{Mode: policy.Mode(rt.DoomLoop), Threshold: rt.DoomThreshold}
	if rt.DoomLoop == "" {
		req.Guard.Mode = policy.Nudge
	}
	req.ArgValidation = toolexec.Validation(rt.ToolArgValidation)
	req.ResultMaxBytes = valueOr(rt.ToolResultMaxBytes, resultMaxBytes)
}

func limits(rt org.Runtime) budget.Limits {
	return budget.Limits{
		Rounds: valueOr(rt.MaxRounds, 0), Calls: valueOr(rt.MaxCalls, 0),
		ActiveMS: rt.Deadline.Milliseconds(), OnLimit: rt.OnLimit, Tokens: int64(valueOr(rt.MaxRunTokens, 0)),
	}
}

func valueOr(v *int, otherwise int) int {
	if v == nil {
		return otherwise
	}
	return *v
}
