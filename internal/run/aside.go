package run

import (
	"cmp"
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// setAside ends the lease of a run of which something cannot be decoded, and returns the error
// for its callers. No process claims the run until it is cancelled, or until a build starts that
// may be able to decode it. The error is errHandOver if somebody has written to the run since it
// was read, or has its lease.
func (d *driver) setAside(why *journal.Unreadable) error {
	a := journal.Aside{Reason: why.Error(), Build: d.o.Build, At: d.o.Now().UnixMilli()}
	if why.Newer() {
		a.Kind, a.Version = why.Kind, why.Version
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.run.ctx), storeTimeout)
	defer cancel()
	done, err := d.o.Leases.SetAside(ctx, d.run.lease, cmp.Or(why.Last, d.run.state().Seq), a)
	if err != nil {
		d.run.storeFailed(err)
		return journal.Unavailable(fmt.Errorf("run %s: set aside: %w", d.run.lease.RunID, err))
	}
	if !done {
		return errHandOver
	}
	d.aside = true
	d.run.log.Error("run set aside: cancel it, or start the build that has written what cannot be decoded", "reason", a.Reason, "build", a.Build)
	return journal.AsideError(d.run.lease.RunID, a.Reason)
}

// restore makes runs claimable that an earlier build has set aside, and that this build may
// be able to decode.
func (r *Runner) restore(ctx context.Context) error {
	n, err := r.o.Leases.Restore(ctx, func(a journal.Aside) bool { return a.Again(r.o.Build) })
	if err != nil {
		return err
	}
	if n > 0 {
		r.o.Log.Info("runs that were set aside are tried again", "runs", n)
	}
	return nil
}

// cancelled reports whether the facts have a request to end the run.
func cancelled(facts []loop.Fact) bool {
	for _, f := range facts {
		if f.Body.Kind() == loop.KindCancelRequested {
			return true
		}
	}
	return false
}
