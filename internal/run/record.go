package run

import (
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/budget"
)

// Hold sets the most that a model call may cost aside in a budget of the org,
// before the call is sent. It stays until it is settled: by a batch of the run,
// or at its full amount when the run ends or gets a new owner first.
type Hold struct {
	ID     string // names the model call in its run: round.attempt
	Budget budget.Shared
	Amount budget.Amount
}

// Settled says what a model call has cost. It settles the holds of that ID in
// every budget.
type Settled struct {
	ID     string
	Amount budget.Amount
}

// OverBudget says that a budget has no room for a hold. Nothing was stored.
type OverBudget struct{ Scope string }

func (o *OverBudget) Error() string { return fmt.Sprintf("budget %s has no room", o.Scope) }

// Used is what a budget of an org has been charged with.
type Used struct {
	Spent budget.Amount // settled
	Held  budget.Amount // set aside
}
