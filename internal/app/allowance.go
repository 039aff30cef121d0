package app

import (
	"github.com/turnpike-gateway/turnpike/internal/run"
	resolve "github.com/turnpike-gateway/turnpike/internal/settings"
)

// allowance returns what the org of a run allows its limits now; false if its key or org is gone.
func (a *App) allowance(orgID, principal, endUser string) (run.Allowance, bool) {
	caller, ok := a.directory.Caller(orgID, principal)
	if !ok {
		return run.Allowance{}, false
	}
	rt := caller.Org.Runtime
	return run.Allowance{
		Ceilings: resolve.Ceilings(a.maxRoundsCap(), rt), SwitchedRounds: resolve.SwitchedCeiling(a.maxRoundsCap(), rt),
		Budgets: resolve.Budgets(rt, principal, caller.Principal.Access, endUser),
	}, true
}
