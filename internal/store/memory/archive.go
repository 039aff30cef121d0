package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// Runs implements run.Archive.
func (j *Journal) Runs(_ context.Context, orgID string, q run.Query) ([]run.Summary, error) {
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
	if q.Before != "" {
		i := slices.IndexFunc(all, func(s run.Summary) bool { return s.RunID == q.Before })
		if i < 0 {
			return nil, fmt.Errorf("run %s: %w", q.Before, org.ErrNotFound)
		}
		all = all[i+1:]
	}
	all = slices.DeleteFunc(all, func(s run.Summary) bool { return !q.Chooses(s) })
	return all[:min(len(all), max(q.Limit, 0))], nil
}

// Head implements run.Archive. Facts are stored decoded and do not count as bytes.
func (j *Journal) Head(_ context.Context, orgID, runID string) (run.Head, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{orgID, runID}]
	if !ok {
		return run.Head{}, fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	h := run.Head{Summary: r.summary, Seq: int64(len(r.facts)), Bytes: int64(r.bytes)}
	for _, f := range r.facts {
		h.At = max(h.At, f.At)
	}
	return h, nil
}

// Load implements run.Archive.
func (j *Journal) Load(_ context.Context, orgID, runID string) (*run.Story, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{orgID, runID}]
	if !ok {
		return nil, fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	story := &run.Story{Summary: r.summary, Rows: maps.Clone(r.rows)}
	var bad *run.Unreadable
	for _, f := range r.facts {
		if err := loop.CanDecode(f.Version, f.Body.Kind()); err == nil {
			story.Facts = append(story.Facts, f)
		} else if bad == nil {
			bad = &run.Unreadable{Seq: f.Seq, Kind: f.Body.Kind(), Version: f.Version, Err: err, Story: story, Last: int64(len(r.facts))}
		}
	}
	if bad != nil {
		return nil, fmt.Errorf("run %s: %w", runID, bad)
	}
	return story, nil
}
