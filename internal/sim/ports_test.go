package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
)

// none is what a port returns that has only an error.
type none struct{}

// Append implements journal.Journal.
func (p *process) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	about, what := lease.Org+"/"+lease.RunID, "appends "+kinds(b)+" to"
	wr := writing{lease, after, p.dated(b)}
	if p.w.mutation == checkThenAct && len(b.Reservations) > 0 {
		_, err := ask(ctx, p, "looks at the budgets for", about, faults{}, func(*rand.Rand) (none, error) { return none{}, p.w.store.room(wr) })
		if err != nil {
			return err
		}
		wr.batch = unlimited(b)
	}
	_, err := ask(ctx, p, what, about, p.w.swarm.dying(p.w.swarm.store), func(*rand.Rand) (none, error) { return none{}, p.w.store.append(p, wr) })
	switch {
	case errors.Is(err, errUnanswered) && after == 0:
		p.w.saw("nobody knew whether a run was accepted")
	case errors.Is(err, errUnanswered):
		p.w.saw("nobody knew whether an append was stored")
	}
	return err
}

// Claim implements journal.Leases.
func (p *process) Claim(ctx context.Context, owner string, limit int) ([]journal.Lease, error) {
	return ask(ctx, p, "claims", "runs", p.w.swarm.store, func(*rand.Rand) ([]journal.Lease, error) { return p.w.store.claim(owner, limit) })
}

// Renew implements journal.Leases.
func (p *process) Renew(ctx context.Context, owner string) ([]journal.Lease, error) {
	return ask(ctx, p, "renews", "its leases", p.w.swarm.store, func(*rand.Rand) ([]journal.Lease, error) {
		leases, err := p.w.store.journal.Renew(ctx, owner)
		slices.SortFunc(leases, func(a, b journal.Lease) int { return cmp.Compare(a.RunID, b.RunID) })
		for _, l := range leases {
			p.w.book.extended(l)
		}
		return leases, err
	})
}

// Release implements journal.Leases.
func (p *process) Release(ctx context.Context, lease journal.Lease) error {
	_, err := ask(ctx, p, "releases", lease.Org+"/"+lease.RunID, p.w.swarm.store, func(*rand.Rand) (none, error) {
		p.w.store.uncount(p, writing{lease: lease})
		p.w.book.released(lease)
		return none{}, p.w.store.journal.Release(ctx, lease)
	})
	return err
}

// SetAside implements journal.Leases.
func (p *process) SetAside(ctx context.Context, lease journal.Lease, last int64, why journal.Aside) (bool, error) {
	return ask(ctx, p, "sets aside", lease.Org+"/"+lease.RunID, p.w.swarm.store, func(*rand.Rand) (bool, error) {
		p.w.violate("I7: run %s is set aside: %s", lease.RunID, why.Reason)
		return p.w.store.journal.SetAside(ctx, lease, last, why)
	})
}

// Restore implements journal.Leases.
func (p *process) Restore(ctx context.Context, again func(journal.Aside) bool) (int, error) {
	return ask(ctx, p, "restores", "runs", p.w.swarm.store, func(*rand.Rand) (int, error) { return p.w.store.journal.Restore(ctx, again) })
}

// Alive implements journal.Leases.
func (p *process) Alive(ctx context.Context, owner string) (bool, error) {
	return ask(ctx, p, "asks for", owner, p.w.swarm.store, func(*rand.Rand) (bool, error) { return p.w.store.journal.Alive(ctx, owner) })
}

// Probe implements journal.Leases.
func (p *process) Probe(ctx context.Context) error {
	_, err := ask(ctx, p, "probes", "the store", p.w.swarm.store, func(*rand.Rand) (none, error) {
		p.w.saw("a store in trouble was probed")
		return none{}, p.w.store.journal.Probe(ctx)
	})
	return err
}

// Head implements journal.Archive.
func (p *process) Head(ctx context.Context, org, runID string) (journal.Head, error) {
	return ask(ctx, p, "reads the head of", org+"/"+runID, p.w.swarm.store, func(*rand.Rand) (journal.Head, error) {
		h, err := p.w.store.head(runKey{org, runID})
		if err == nil && h.Summary.Org != org {
			p.w.violate("I11: org %s read the head of run %s of org %s", org, runID, h.Summary.Org)
		}
		return h, err
	})
}

// Load implements journal.Archive.
func (p *process) Load(ctx context.Context, org, runID string) (*journal.Story, error) {
	return ask(ctx, p, "loads", org+"/"+runID, p.w.swarm.store, func(*rand.Rand) (*journal.Story, error) {
		story, err := p.w.store.load(runKey{org, runID})
		if err == nil && (story.Summary.Org != org || story.Facts[0].Body.(loop.Accepted).Org != org) {
			p.w.violate("I11: org %s read run %s of org %s", org, runID, story.Summary.Org)
		}
		if err == nil {
			p.rule(story)
		}
		return story, err
	})
}

// Facts implements journal.Archive.
func (p *process) Facts(ctx context.Context, org, runID string, after int64, limit int) ([]loop.Fact, error) {
	return ask(ctx, p, "reads facts of", org+"/"+runID, p.w.swarm.store, func(*rand.Rand) ([]loop.Fact, error) {
		return p.w.store.journal.Facts(ctx, org, runID, after, limit)
	})
}

// Rows implements journal.Archive.
func (p *process) Rows(ctx context.Context, org, runID string, refs []string, limit int) ([]json.RawMessage, error) {
	return ask(ctx, p, "reads rows of", org+"/"+runID, p.w.swarm.store, func(*rand.Rand) ([]json.RawMessage, error) {
		return p.w.store.journal.Rows(ctx, org, runID, refs, limit)
	})
}

// Runs implements journal.Archive.
func (p *process) Runs(ctx context.Context, org string, q journal.Query) ([]journal.Summary, error) {
	return ask(ctx, p, "lists", org, p.w.swarm.store, func(*rand.Rand) ([]journal.Summary, error) {
		return p.w.store.journal.Runs(ctx, org, q)
	})
}

// AuditRows implements journal.Archive.
func (p *process) AuditRows(ctx context.Context, org string, q audit.Query) ([]audit.Row, error) {
	return ask(ctx, p, "reads the audit of", org+"/"+q.RunID, p.w.swarm.store, func(*rand.Rand) ([]audit.Row, error) {
		return p.w.store.journal.AuditRows(ctx, org, q)
	})
}

// Used implements journal.Archive.
func (p *process) Used(ctx context.Context, org, scope string) (journal.Used, error) {
	return ask(ctx, p, "reads budget", org+"/"+scope, p.w.swarm.store, func(*rand.Rand) (journal.Used, error) {
		return p.w.store.journal.Used(ctx, org, scope)
	})
}

// UsedAll implements journal.Archive.
func (p *process) UsedAll(ctx context.Context, org, prefix, after string, limit int) ([]journal.Used, error) {
	return ask(ctx, p, "lists budgets", org+"/"+prefix, p.w.swarm.store, func(*rand.Rand) ([]journal.Used, error) {
		return p.w.store.journal.UsedAll(ctx, org, prefix, after, limit)
	})
}

// Reasons implements journal.Archive.
func (p *process) Reasons(ctx context.Context, org string, runIDs []string) (map[string]event.Reason, error) {
	return ask(ctx, p, "reads the ends of runs", org, p.w.swarm.store, func(*rand.Rand) (map[string]event.Reason, error) {
		reasons, err := p.w.store.journal.Reasons(ctx, org, runIDs)
		for run := range reasons {
			if p.w.mutation == allComplete {
				reasons[run] = event.Complete
			}
		}
		return reasons, err
	})
}

// Approval implements journal.Archive.
func (p *process) Approval(ctx context.Context, org, id string) (journal.Approval, error) {
	return ask(ctx, p, "reads approval", org+"/"+id, p.w.swarm.store, func(*rand.Rand) (journal.Approval, error) {
		return p.w.store.journal.Approval(ctx, org, id)
	})
}

// Approvals implements journal.Archive.
func (p *process) Approvals(ctx context.Context, org string, q journal.ApprovalQuery) ([]journal.Approval, error) {
	return ask(ctx, p, "lists approvals of", org, p.w.swarm.store, func(*rand.Rand) ([]journal.Approval, error) {
		return p.w.store.journal.Approvals(ctx, org, q)
	})
}

// DueApprovals implements journal.Archive.
func (p *process) DueApprovals(ctx context.Context, now int64, limit int) ([]journal.Approval, error) {
	return ask(ctx, p, "looks for expired approvals", "", p.w.swarm.store, func(*rand.Rand) ([]journal.Approval, error) {
		return p.w.store.journal.DueApprovals(ctx, now, limit)
	})
}

// WaitingRuns implements journal.Archive.
func (p *process) WaitingRuns(ctx context.Context) ([]journal.WaitingRun, error) {
	return ask(ctx, p, "lists what waits", "", p.w.swarm.store, func(*rand.Rand) ([]journal.WaitingRun, error) {
		return p.w.store.journal.WaitingRuns(ctx)
	})
}

// InterruptedRuns implements journal.Archive.
func (p *process) InterruptedRuns(ctx context.Context, limit int) ([]journal.WaitingRun, error) {
	return ask(ctx, p, "lists what is interrupted", "", p.w.swarm.store, func(*rand.Rand) ([]journal.WaitingRun, error) {
		return p.w.store.journal.InterruptedRuns(ctx, limit)
	})
}

// OrphanedRuns implements journal.Archive.
func (p *process) OrphanedRuns(ctx context.Context, limit int) ([]journal.WaitingRun, error) {
	return ask(ctx, p, "lists what is orphaned", "", p.w.swarm.store, func(*rand.Rand) ([]journal.WaitingRun, error) {
		return p.w.store.journal.OrphanedRuns(ctx, limit)
	})
}

// QueuedRuns implements journal.Archive.
func (p *process) QueuedRuns(ctx context.Context) ([]journal.QueuedRuns, error) {
	return ask(ctx, p, "counts what is queued", "", p.w.swarm.store, func(*rand.Rand) ([]journal.QueuedRuns, error) {
		return p.w.store.journal.QueuedRuns(ctx)
	})
}

// resources are what a process finds for runs that it takes over.
type resources struct{ p *process }

// For implements run.Resources.
func (r resources) For(_ context.Context, a *loop.Accepted) ([]route.Target, []catalog.Server, error) {
	for _, c := range r.p.w.everybody() {
		if c.model() == a.Model {
			return c.targets(r.p), c.servers(r.p), nil
		}
	}
	return nil, nil, fmt.Errorf("nobody knows model %s", a.Model)
}
