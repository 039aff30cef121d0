package app

import (
	"github.com/turnpike-gateway/turnpike/internal/run"
	resolve "github.com/turnpike-gateway/turnpike/internal/settings"
)

// allowance returns what the org of a run allows its limits now; false if its key or org is gone.
func (r resources) allowance(orgID, principal, endUser string) (run.Allowance, bool) {
	caller, ok := r.directory.Caller(orgID, principal)
	if !ok {
		return run.Allowance{}, false
	}
	rt := caller.Org.Runtime
	return run.Allowance{
		Ceilings: resolve.Ceilings(r.live.maxRoundsCap(), rt), SwitchedRounds: resolve.SwitchedCeiling(r.live.maxRoundsCap(), rt),
		Budgets: resolve.Budgets(rt, principal, caller.Principal.Access, endUser),
	}, true
}
