package eventlog

import (
	"encoding/json"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/model"
)

// storedDeltas is a group as it is stored.
type storedDeltas struct {
	Version int           `json:"v"`
	Deltas  []storedDelta `json:"deltas"`
}

// storedDelta is a model.Delta as JSON.
type storedDelta struct {
	Kind   model.DeltaKind `json:"kind"`
	Item   int             `json:"item,omitempty"`
	Part   int             `json:"part,omitempty"`
	CallID string          `json:"call_id,omitempty"`
	Name   string          `json:"name,omitempty"`
	Phase  string          `json:"phase,omitempty"`
	Text   string          `json:"text,omitempty"`
}

// deltasRef returns the ref of group n, from 1, of the model call that began with fact seq.
func deltasRef(seq int64, n int) string { return fmt.Sprintf("deltas:%d:%d", seq, n) }

// DeltasRow returns the row with group n, from 1, of the deltas of the model call that began with
// fact seq.
func DeltasRow(seq int64, n int, deltas []model.Delta) journal.Row {
	value := storedDeltas{Version: 1, Deltas: make([]storedDelta, len(deltas))}
	for i, d := range deltas {
		value.Deltas[i] = storedDelta(d)
	}
	return journal.Row{Ref: deltasRef(seq, n), Value: value}
}

// recallDeltas reads a group of stored deltas.
func recallDeltas(ref string, row json.RawMessage) ([]model.Delta, error) {
	var group storedDeltas
	if err := json.Unmarshal(row, &group); err != nil {
		return nil, journal.Damaged(ref, err)
	}
	if group.Version != 1 {
		return nil, journal.Damaged(ref, fmt.Errorf("version %d, this build reads 1", group.Version))
	}
	out := make([]model.Delta, len(group.Deltas))
	for i, s := range group.Deltas {
		out[i] = model.Delta(s)
	}
	return out, nil
}
