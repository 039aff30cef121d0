package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Runs implements journal.Archive.
func (j *Journal) Runs(_ context.Context, orgID string, q journal.Query) ([]journal.Summary, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []journal.Summary
	for key, r := range j.runs {
		if key.org == orgID {
			all = append(all, r.head.Summary)
		}
	}
	slices.SortFunc(all, func(a, b journal.Summary) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(b.RunID, a.RunID))
	})
	if q.Before != "" {
		i := slices.IndexFunc(all, func(s journal.Summary) bool { return s.RunID == q.Before })
		if i < 0 {
			return nil, fmt.Errorf("run %s: %w", q.Before, org.ErrNotFound)
		}
		all = all[i+1:]
	}
	all = slices.DeleteFunc(all, func(s journal.Summary) bool { return !q.Chooses(s) })
	return all[:min(len(all), max(q.Limit, 0))], nil
}

// Head implements journal.Archive. Facts are stored decoded and do not count as bytes.
func (j *Journal) Head(_ context.Context, orgID, runID string) (journal.Head, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{orgID, runID}]
	if !ok {
		return journal.Head{}, fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	return r.head, nil
}

// Reasons implements journal.Archive.
func (j *Journal) Reasons(_ context.Context, orgID string, runIDs []string) (map[string]event.Reason, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string]event.Reason{}
	for _, id := range runIDs {
		if r, ok := j.runs[runKey{orgID, id}]; ok && r.head.Summary.Reason != "" {
			out[id] = r.head.Summary.Reason
		}
	}
	return out, nil
}

// Load implements journal.Archive.
func (j *Journal) Load(_ context.Context, orgID, runID string) (*journal.Story, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{orgID, runID}]
	if !ok {
		return nil, fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	story := &journal.Story{Summary: r.head.Summary, Rows: maps.Clone(r.rows)}
	var bad *journal.Unreadable
	for _, f := range r.facts {
		if err := loop.CheckKnown(f); err == nil {
			story.Facts = append(story.Facts, f)
		} else if bad == nil {
			bad = &journal.Unreadable{Seq: f.Seq, Kind: f.Body.Kind(), Version: f.Version, Err: err, Story: story, Last: int64(len(r.facts))}
		}
	}
	if bad != nil {
		return nil, fmt.Errorf("run %s: %w", runID, bad)
	}
	return story, nil
}

// Facts implements journal.Archive.
func (j *Journal) Facts(_ context.Context, orgID, runID string, after int64, limit int) ([]loop.Fact, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{orgID, runID}]
	if !ok {
		return nil, fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	var out []loop.Fact
	size := 0
	for _, f := range r.facts[min(max(after, 0), int64(len(r.facts))):] {
		body, err := json.Marshal(f.Body) // as sqlite stores it
		if err != nil {
			return nil, err
		}
		size += len(body)
		err = loop.CheckKnown(f)
		switch {
		case len(out) > 0 && (size > limit || err != nil):
			return out, nil
		case size > limit:
			return nil, fmt.Errorf("run %s: fact %d: %w", runID, f.Seq, &journal.TooLarge{Bytes: size})
		case err != nil:
			return nil, fmt.Errorf("run %s: %w", runID, &journal.Unreadable{Seq: f.Seq, Kind: f.Body.Kind(), Version: f.Version, Err: err, Last: int64(len(r.facts))})
		}
		out = append(out, f)
	}
	return out, nil
}

// Rows implements journal.Archive.
func (j *Journal) Rows(_ context.Context, orgID, runID string, refs []string, limit int) ([]json.RawMessage, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{orgID, runID}]
	if !ok {
		return nil, fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	var out []json.RawMessage
	size := 0
	for _, ref := range refs {
		row, ok := r.rows[ref]
		size += len(row)
		switch {
		case !ok, len(out) > 0 && size > limit:
			return out, nil
		case size > limit:
			return nil, fmt.Errorf("run %s: row %s: %w", runID, ref, &journal.TooLarge{Bytes: size})
		}
		out = append(out, slices.Clone(row))
	}
	return out, nil
}
