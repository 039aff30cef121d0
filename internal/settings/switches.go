package settings

import (
	"cmp"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
)

// Switches is what a request says of the agentic runtime. The zero value is nothing.
type Switches struct {
	Code   bool // it may run code
	Rounds int  // limit on its rounds of tool calls, in place of that of the org; 0 = that of the org

	Permission policy.Permission // that it allows; "" = it says nothing

	// Hosted says that its API has hosted tools, and always the agent loop: the switches offer the tools that answer those
	// of the request, which are Code and Search, and change nothing else of its run.
	Hosted bool
	Search bool
	Shell  bool // its hosted tool that runs commands
}

// Engaged reports whether the switches of the org and of the request run the agent loop.
func (s Switches) Engaged(rt org.Runtime) bool {
	return !s.Hosted && (rt.EnableSearch || rt.EnableCode && s.Code || rt.MaxToolRounds != nil || s.Rounds > 0)
}

// Offered returns the names of the built-in tools that the switches offer to the request.
func (s Switches) Offered(rt org.Runtime) (names []string) {
	if rt.EnableSearch && (s.Search || !s.Hosted) && !rt.BuiltinTool(builtin.WebSearch).Disabled {
		for _, name := range builtin.SwitchedBy(builtin.EnableSearch) {
			if !rt.BuiltinTool(name).Disabled {
				names = append(names, name)
			}
		}
	}
	switch {
	case !rt.EnableCode:
	case s.Code && !s.Hosted:
		names = append(names, builtin.SwitchedBy(builtin.EnableCode)...)
	default:
		if s.Code {
			names = append(names, builtin.CodeExecute)
		}
		if s.Shell {
			names = append(names, builtin.Shell)
		}
	}
	return names
}

// toolRounds returns the limit on the rounds of tool calls of a request; 0 = only the limits of the org and of the
// surface hold.
func (s Switches) toolRounds(rt org.Runtime) int {
	switch {
	case s.Hosted:
		return 0
	case s.Rounds > 0:
		return s.Rounds
	case rt.MaxToolRounds != nil:
		return given(rt.MaxToolRounds, 0)
	case given(rt.MaxRounds, 0) == 0 && s.Engaged(rt):
		return org.MaxToolRounds
	}
	return 0
}

// MaxToolRounds returns the most rounds of tool calls that a request can have. roundsCap is the operator's, 0 = not set.
func MaxToolRounds(roundsCap int) int { return cmp.Or(roundsCap, org.MaxToolRounds) }

// SwitchedCeiling is how far the rounds of a run that the switches have engaged may be raised; 0 = as far as those of
// others.
func SwitchedCeiling(roundsCap int, rt org.Runtime) int {
	if given(rt.MaxRounds, 0) > 0 {
		return 0
	}
	return MaxToolRounds(roundsCap) + 1
}

// limitRounds sets the limit on rounds of a request that the switches have engaged. After the last round of tool
// calls the model is called once more, and the calls of that turn go to the caller. A lower max_rounds of the org
// ends the run as it does otherwise. l is clamped already; roundsCap is the operator's, 0 = not set.
func (s Switches) limitRounds(l *budget.Limits, rt org.Runtime, roundsCap int) {
	if s.Engaged(rt) && given(rt.MaxCalls, 0) == 0 {
		l.Calls = max(l.Calls, org.MaxToolRounds) // one in each round
	}
	n := min(s.toolRounds(rt), MaxToolRounds(roundsCap))
	if n == 0 || given(rt.MaxRounds, 0) > 0 && l.Rounds <= n {
		return
	}
	l.Rounds = n + 1
	if l.OnLimit == "" || l.OnLimit == budget.Stop {
		l.OnLimit = budget.HandOver
	}
}

// setPermission sets the stricter one of the permissions of the org and of the request. Calls that wait for it wait at
// most so long; 0 = the default.
func setPermission(p *loop.Policy, rt org.Runtime, r Request, most time.Duration) {
	own, by := policy.Permission(rt.AgentPermission), loop.AskedByServer
	if r.Switches != nil && r.Switches.Permission.StricterThan(own) {
		own, by = r.Switches.Permission, loop.AskedByRequest
	}
	if !own.StricterThan(policy.Auto) {
		return
	}
	if p.Permission = own; own == policy.Ask {
		p.PermissionBy, p.PermissionWaitMS = by, waitWithin(most).Milliseconds()
	}
}
