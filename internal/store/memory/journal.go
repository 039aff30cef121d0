// Package memory keeps runs in memory, for as long as the process lives and
// within fixed bounds: what is oldest goes first.
package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// MaxRuns is how many runs a Journal keeps.
const MaxRuns = 1024

// Journal is a run.Journal. The zero value is ready to use.
type Journal struct {
	mu    sync.Mutex
	runs  map[runKey]*record
	order []runKey
}

type runKey struct{ org, run string }

type record struct {
	epoch int64
	facts []loop.Fact
	rows  map[string]any
}

// ErrFenced is returned to a writer whose lease somebody else has taken over.
var ErrFenced = errors.New("the lease was taken over")

// Append implements run.Journal.
func (j *Journal) Append(_ context.Context, lease run.Lease, after int64, b run.Batch) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.record(runKey{lease.Org, lease.RunID})
	switch last := int64(len(r.facts)); {
	case lease.Epoch != 0 && lease.Epoch < r.epoch:
		return fmt.Errorf("run %s: %w", lease.RunID, ErrFenced)
	case last > after:
		return &run.Behind{Facts: append([]loop.Fact(nil), r.facts[after:]...)}
	case last < after:
		return fmt.Errorf("run %s: the journal ends at %d, not at %d", lease.RunID, last, after)
	}
	r.epoch = max(r.epoch, lease.Epoch)
	r.facts = append(r.facts, b.Facts...)
	for _, row := range b.Rows {
		r.rows[row.Ref] = row.Value
	}
	if n := len(b.Facts); n > 0 && b.Facts[n-1].Body.Kind() == loop.KindFinished {
		r.rows = nil // the facts tell the story; the bodies are what takes room
	}
	return nil
}

// record returns the run's record, making room for it if it is new.
func (j *Journal) record(key runKey) *record {
	if r, ok := j.runs[key]; ok {
		return r
	}
	if j.runs == nil {
		j.runs = map[runKey]*record{}
	}
	if len(j.order) >= MaxRuns {
		delete(j.runs, j.order[0])
		j.order = j.order[1:]
	}
	r := &record{rows: map[string]any{}}
	j.runs[key] = r
	j.order = append(j.order, key)
	return r
}

// Facts returns the facts of a run, or nil.
func (j *Journal) Facts(org, runID string) []loop.Fact {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r, ok := j.runs[runKey{org, runID}]; ok {
		return append([]loop.Fact(nil), r.facts...)
	}
	return nil
}
