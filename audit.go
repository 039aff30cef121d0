package turnpike

import (
	"context"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
)

// Auditor is the audit log of an org of a gateway that the program contains: gateway.Gateway.Audit returns one.
type Auditor interface {
	// Runs returns the audit log for this package; other packages have no use for it.
	Runs() ledger.Recorder
}

// ready returns an error if what a caller does cannot be recorded.
func (e *engine) ready(caller string) error {
	if e.recorder == nil {
		return nil
	}
	if err := e.recorder.Ready(caller); err != nil {
		return &LostError{Message: "the run cannot be recorded in the audit log", Cause: err}
	}
	return nil
}

// recordedRuns is the journal of an agent whose runs are recorded: what it stores of a run, and then the entries of it.
type recordedRuns struct {
	journal.Journal
	to ledger.Recorder
}

// Append implements journal.Journal.
func (r recordedRuns) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	if err := r.Journal.Append(ctx, lease, after, b); err != nil {
		return err
	}
	for _, e := range b.Audit {
		e.RunID = lease.RunID
		r.to.Record(ctx, e)
	}
	return nil
}

// recordedCalls records model calls without a run.
type recordedCalls struct{ to ledger.Recorder }

// Record implements journal.Recorder.
func (r recordedCalls) Record(ctx context.Context, _ string, e audit.Entry) error {
	r.to.Record(ctx, e)
	return nil
}
