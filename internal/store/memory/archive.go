package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// Runs implements run.Archive.
func (j *Journal) Runs(_ context.Context, orgID, before string, limit int) ([]run.Summary, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []run.Summary
	for key, r := range j.runs {
		if key.org == orgID {
			all = append(all, r.summary)
		}
	}
	slices.SortFunc(all, func(a, b run.Summary) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(b.RunID, a.RunID))
	})
	if before != "" {
		i := slices.IndexFunc(all, func(s run.Summary) bool { return s.RunID == before })
		if i < 0 {
			return nil, fmt.Errorf("run %s: %w", before, org.ErrNotFound)
		}
		all = all[i+1:]
	}
	return all[:min(len(all), max(limit, 0))], nil
}

// Load implements run.Archive.
func (j *Journal) Load(_ context.Context, orgID, runID string) (*run.Story, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{orgID, runID}]
	if !ok {
		return nil, fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	return &run.Story{Summary: r.summary, Facts: slices.Clone(r.facts), Rows: maps.Clone(r.rows)}, nil
}
