package gateway

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	orgs "github.com/turnpike-gateway/turnpike/internal/org"
)

// Runs implements turnpike.Auditor.
func (a Auditor) Runs() ledger.Recorder { return runs(a) }

// runs records runs of the program's agents.
type runs Auditor

// Ready implements ledger.Recorder.
func (r runs) Ready(caller string) error {
	if caller == orgs.Operator {
		return fmt.Errorf("a caller of an agent cannot have the ID %s, which stands for the operator", orgs.Operator)
	}
	return r.g.app.Recordable(r.org)
}

// Record implements ledger.Recorder.
func (r runs) Record(ctx context.Context, e audit.Entry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := r.g.app.Record(ctx, r.org, e, false); err != nil {
		r.g.log.Error("an audit row of a run of the program may be missing", "org", r.org, "request", e.RequestID, "kind", e.Kind, "error", err)
	}
}
