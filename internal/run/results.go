package run

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// maxFull is how many bytes of one result are kept for reading: as many as an answer of an
// MCP server may have. The run's account limits all results together; later ones are not
// kept.
const maxFull = 16 << 20

// results are the truncated results of a run, whole.
type results struct {
	account *memlimit.Account // charged with them
	full    map[string]string // by the id that the model knows
}

// forget drops what keep has kept. The run's goroutine calls it while no tool of the run reads it.
func (r *results) forget() {
	for _, text := range r.full {
		r.account.Release(len(text))
	}
	r.full = nil
}

// keep keeps the full text of truncated results, by id. The run's goroutine calls it while
// no tool of the run reads them.
func (r *results) keep(full map[string]string) {
	if len(full) == 0 {
		return
	}
	next := maps.Clone(r.full)
	if next == nil {
		next = map[string]string{}
	}
	for id, text := range full {
		if len(text) > maxFull {
			text = strings.ToValidUTF8(text[:maxFull], "")
		}
		if r.account.Acquire(len(text)) != nil {
			break
		}
		next[id] = text
	}
	r.full = next
}

// load keeps the results to which a fact refers.
func (r *results) load(runID string, body loop.Body, rows map[string]json.RawMessage) error {
	if _, ok := body.(loop.InputAdded); ok && rows[inputFull] != nil {
		var full map[string]string
		if err := json.Unmarshal(rows[inputFull], &full); err != nil {
			return journal.Damaged(inputFull, err)
		}
		r.keep(full)
	}
	if done, ok := body.(loop.CallDone); ok && done.FullRef != "" {
		var text string
		if err := json.Unmarshal(rows[done.FullRef], &text); err != nil {
			return journal.Damaged(done.FullRef, err)
		}
		r.keep(map[string]string{resultID(runID, done.Key): text})
	}
	return nil
}

// resultID returns the id under which the model reads a result. It differs from those of
// earlier runs in the same transcript.
func resultID(runID string, key loop.CallKey) string {
	run := strings.TrimPrefix(runID, "run_")
	return run[:min(len(run), 6)] + "." + string(key)
}
