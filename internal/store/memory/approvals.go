package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Approval implements journal.Archive.
func (j *Journal) Approval(_ context.Context, orgID, id string) (journal.Approval, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, r := range j.runs {
		if key.org != orgID {
			continue
		}
		for _, a := range r.approvals {
			if a.ID == id && !a.IsPause() {
				return a, nil
			}
		}
	}
	return journal.Approval{}, fmt.Errorf("approval %s: %w", id, org.ErrNotFound)
}

// Approvals implements journal.Archive.
func (j *Journal) Approvals(_ context.Context, orgID string, q journal.ApprovalQuery) ([]journal.Approval, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []journal.Approval
	for key, r := range j.runs {
		if key.org == orgID {
			all = append(all, r.approvals...)
		}
	}
	if !q.Pauses {
		all = slices.DeleteFunc(all, journal.Approval.IsPause)
	}
	slices.SortFunc(all, func(a, b journal.Approval) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(b.ID, a.ID))
	})
	if q.Before != "" {
		i := slices.IndexFunc(all, func(a journal.Approval) bool { return a.ID == q.Before })
		if i < 0 {
			return nil, fmt.Errorf("approval %s: %w", q.Before, org.ErrNotFound)
		}
		all = all[i+1:]
	}
	all = slices.DeleteFunc(all, func(a journal.Approval) bool { return !q.Chooses(a) })
	return all[:min(len(all), max(q.Limit, 0))], nil
}

// DueApprovals implements journal.Archive.
func (j *Journal) DueApprovals(_ context.Context, now int64, limit int) ([]journal.Approval, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var due []journal.Approval
	for _, r := range j.runs {
		for _, a := range r.approvals {
			if a.Status == journal.ApprovalWaiting && a.ExpiresAt > 0 && a.ExpiresAt <= now {
				due = append(due, a)
			}
		}
	}
	slices.SortFunc(due, func(a, b journal.Approval) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	return due[:min(len(due), max(limit, 0))], nil
}

// QueuedRuns implements journal.Archive.
func (j *Journal) QueuedRuns(context.Context) ([]journal.QueuedRuns, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	count := map[journal.QueuedRuns]int{}
	for _, r := range j.runs {
		if s := r.head.Summary; s.Status == journal.Queued {
			count[journal.QueuedRuns{Org: s.Org, Principal: s.Principal}]++
		}
	}
	out := make([]journal.QueuedRuns, 0, len(count))
	for q, n := range count {
		out = append(out, journal.QueuedRuns{Org: q.Org, Principal: q.Principal, Runs: n})
	}
	slices.SortFunc(out, func(a, b journal.QueuedRuns) int {
		return cmp.Or(strings.Compare(a.Org, b.Org), strings.Compare(a.Principal, b.Principal))
	})
	return out, nil
}

// WaitingRuns implements journal.Archive.
func (j *Journal) WaitingRuns(context.Context) ([]journal.WaitingRun, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []journal.WaitingRun
	for _, r := range j.runs {
		if i := slices.IndexFunc(r.approvals, func(a journal.Approval) bool { return a.Status == journal.ApprovalWaiting }); i >= 0 {
			a := r.approvals[i]
			out = append(out, journal.WaitingRun{Org: a.Org, RunID: a.RunID, Principal: a.Principal, CallerAt: a.CallerAt})
		}
	}
	slices.SortFunc(out, func(a, b journal.WaitingRun) int {
		return cmp.Or(strings.Compare(a.Org, b.Org), strings.Compare(a.RunID, b.RunID))
	})
	return out, nil
}

// change applies what a batch changes in the approvals of the run.
func (r *runRecord) change(changes []journal.ApprovalChange) {
	for _, c := range changes {
		if c.Asked != nil {
			r.approvals = append(r.approvals, *c.Asked)
		}
		for i, a := range r.approvals {
			if next, ok := a.After(c); ok {
				r.approvals[i] = next
			}
		}
	}
}

// checkApprovals returns an error if a batch asks for an approval that the org, or the key whose run
// asks, cannot have.
func (j *Journal) checkApprovals(orgID string, changes []journal.ApprovalChange) error {
	asked, principal := 0, ""
	for _, c := range changes {
		if c.Asked == nil {
			continue
		}
		asked++
		principal = c.Asked.Principal // of all: a batch is of one run
		for key, r := range j.runs {
			if key.org == orgID && slices.ContainsFunc(r.approvals, func(a journal.Approval) bool { return a.ID == c.Asked.ID }) {
				return fmt.Errorf("approval %s: %w", c.Asked.ID, org.ErrExists)
			}
		}
	}
	if asked == 0 || j.Caps.Approvals == 0 {
		return nil
	}
	ofKey := asked
	for key, r := range j.runs {
		if key.org != orgID {
			continue
		}
		for _, a := range r.approvals {
			if a.Status == journal.ApprovalWaiting {
				asked++
				if a.Principal == principal {
					ofKey++
				}
			}
		}
	}
	switch {
	case asked > j.Caps.Approvals:
		return j.Caps.ApprovalsError()
	case ofKey > j.Caps.KeyApprovals():
		return j.Caps.KeyApprovalsError()
	}
	return nil
}
