package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// The bounds of a Journal. A run that is running is never dropped.
const (
	MaxRuns     = 1024     // runs
	MaxRowBytes = 64 << 20 // bytes of the bodies of all runs together
)

// Journal is a run.Journal and a run.Archive. The zero value is ready to use.
type Journal struct {
	mu    sync.Mutex
	runs  map[runKey]*record
	order []runKey // oldest first
	bytes int      // of all rows
}

type runKey struct{ org, run string }

type record struct {
	epoch   int64
	facts   []loop.Fact
	calls   map[callFact]bool
	rows    map[string]json.RawMessage
	bytes   int // of rows
	running bool
}

// callFact is what a journal holds once.
type callFact struct {
	kind    loop.Kind
	key     loop.CallKey
	attempt int
}

// Append implements run.Journal.
func (j *Journal) Append(_ context.Context, lease run.Lease, after int64, b run.Batch) error {
	if err := b.Check(lease, after); err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	rows, err := encode(b.Rows)
	if err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	key := runKey{lease.Org, lease.RunID}
	r, known := j.runs[key]
	if !known {
		r = &record{calls: map[callFact]bool{}, rows: map[string]json.RawMessage{}}
	}
	switch last := int64(len(r.facts)); {
	case lease.Epoch != 0 && lease.Epoch < r.epoch:
		return fmt.Errorf("run %s: %w", lease.RunID, run.ErrFenced)
	case last > after:
		return &run.Behind{Facts: slices.Clone(r.facts[after:])}
	case last < after:
		return fmt.Errorf("run %s: the journal ends at %d, not at %d", lease.RunID, last, after)
	}
	calls, err := r.news(b)
	if err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	if !known {
		j.add(key, r)
	}
	r.add(lease.Epoch, b.Facts, calls, rows)
	j.makeRoom(size(rows))
	return nil
}

// news returns the calls that the facts of the batch are about, if neither they
// nor the rows are there already.
func (r *record) news(b run.Batch) (map[callFact]bool, error) {
	calls := map[callFact]bool{}
	for _, f := range b.Facts {
		key, attempt := run.CallOf(f.Body)
		c := callFact{f.Body.Kind(), key, attempt}
		if key == "" {
			continue
		}
		if r.calls[c] || calls[c] {
			return nil, fmt.Errorf("fact %s of call %s, attempt %d: %w", c.kind, key, attempt, org.ErrExists)
		}
		calls[c] = true
	}
	refs := map[string]bool{}
	for _, row := range b.Rows {
		if _, taken := r.rows[row.Ref]; taken || refs[row.Ref] {
			return nil, fmt.Errorf("row %s: %w", row.Ref, org.ErrExists)
		}
		refs[row.Ref] = true
	}
	return calls, nil
}

// add stores what was checked.
func (r *record) add(epoch int64, facts []loop.Fact, calls map[callFact]bool, rows map[string]json.RawMessage) {
	r.epoch = max(r.epoch, epoch)
	r.facts = append(r.facts, facts...)
	maps.Copy(r.calls, calls)
	maps.Copy(r.rows, rows)
	r.bytes += size(rows)
	for _, f := range facts {
		switch f.Body.(type) {
		case loop.Accepted, loop.Resumed:
			r.running = true
		case loop.Parked, loop.Finished:
			r.running = false
		}
	}
}

func (j *Journal) add(key runKey, r *record) {
	if j.runs == nil {
		j.runs = map[runKey]*record{}
	}
	j.runs[key] = r
	j.order = append(j.order, key)
}

// makeRoom drops the oldest runs that are not running until the bounds hold,
// after rows have grown by the given number of bytes.
func (j *Journal) makeRoom(grown int) {
	j.bytes += grown
	if len(j.order) <= MaxRuns && j.bytes <= MaxRowBytes {
		return
	}
	j.order = slices.DeleteFunc(j.order, func(key runKey) bool {
		r := j.runs[key]
		if r.running || len(j.runs) <= MaxRuns && j.bytes <= MaxRowBytes {
			return false
		}
		delete(j.runs, key)
		j.bytes -= r.bytes
		return true
	})
}

func encode(rows []run.Row) (map[string]json.RawMessage, error) {
	out := make(map[string]json.RawMessage, len(rows))
	for _, row := range rows {
		data, err := row.JSON()
		if err != nil {
			return nil, err
		}
		out[row.Ref] = data
	}
	return out, nil
}

func size(rows map[string]json.RawMessage) int {
	n := 0
	for _, data := range rows {
		n += len(data)
	}
	return n
}
