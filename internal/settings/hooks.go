package settings

import (
	"cmp"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// DefaultHookWait is how long a call waits for the approval that a hook asks for.
const DefaultHookWait = 300 * time.Second

// Hooks returns the hooks of the runs of a key, with those of its makers, in the order in which they run. Their
// approvals wait no longer than most; 0 = as long as they say.
func Hooks(rt org.Runtime, key string, makers []org.Maker, most time.Duration) (out []loop.Hook) {
	names := func(h org.Hook) bool {
		return slices.Contains(h.Keys, key) || slices.ContainsFunc(makers, func(m org.Maker) bool { return slices.Contains(h.Keys, m.Key) })
	}
	all := slices.DeleteFunc(slices.Clone(rt.Hooks), func(h org.Hook) bool { return h.Disabled || h.Keys != nil && !names(h) })
	slices.SortStableFunc(all, func(a, b org.Hook) int {
		if a.Agent != b.Agent {
			return map[bool]int{true: 1, false: -1}[a.Agent]
		}
		return cmp.Compare(a.Position, b.Position)
	})
	named := len(rt.SwitchedBuiltins()) > 0 // only runs that switches engage have tools with several names, and turns of agents are none
	for _, h := range all {
		one := loop.Hook{ID: h.ID, Position: h.Position, Agent: h.Agent, Point: points()[h.Event], Type: loop.HookType(h.Type), Matcher: h.Matcher, Offered: h.Offered, DenyOnError: h.Config.OnError == "deny"}
		if h.Matcher != "" && named && !h.Agent {
			one.Also = builtin.AlsoSelected(h.Matcher)
		}
		switch one.Type {
		case loop.HookRules:
			if h.Config.Condition != "" {
				one.Rules = append(one.Rules, loop.HookRule{Condition: h.Config.Condition, Message: h.Config.Message})
			}
			for _, r := range h.Config.Rules {
				one.Rules = append(one.Rules, loop.HookRule(r))
			}
		case loop.HookApproval:
			one.Message = h.Config.Message
			wait := cmp.Or(h.Config.Timeout, DefaultHookWait)
			if most > 0 {
				wait = min(wait, most)
			}
			one.WaitMS = wait.Milliseconds()
		case loop.HookHTTP, loop.HookFunction: // nothing of theirs is sealed
		}
		out = append(out, one)
	}
	return out
}

func points() map[string]loop.HookPoint {
	return map[string]loop.HookPoint{
		"OnRunStart": loop.OnRunStart, "PreToolUse": loop.PreToolUse, "PostToolUse": loop.PostToolUse,
		"OnDelegation": loop.OnDelegation, "PreResponse": loop.PreResponse, "OnRunComplete": loop.OnRunComplete,
	}
}
