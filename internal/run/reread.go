package run

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/tool"
)

// rereadName is the name of the tool with which the model reads truncated results. It is
// offered once a result was truncated.
const rereadName = "read_result"

// maxFull is how many bytes of one result are kept for reading: as many as an answer of an
// MCP server may have. The run's account limits all results together; later ones are not
// kept.
const maxFull = 16 << 20

// reread is the tool that reads the truncated results of a run.
type reread struct {
	full  map[string]string
	limit int // bytes of one answer
}

var rereadSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"id":{"type":"string","description":"the id that the truncated result names"},` +
	`"offset":{"type":"integer","minimum":0,"description":"byte to begin at, 0 by default"},` +
	`"length":{"type":"integer","minimum":1,"description":"how many bytes; as many as fit by default"}},` +
	`"required":["id"],"additionalProperties":false}`)

// Definition implements tool.Tool.
func (r reread) Definition() tool.Definition {
	return tool.Definition{
		Name:        rereadName,
		Description: "Read a range of an earlier tool result that was truncated.",
		InputSchema: rereadSchema,
	}
}

// Class implements tool.Classed.
func (r reread) Class() tool.Class { return tool.Read }

// Call implements tool.Tool.
func (r reread) Call(_ context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		ID             string
		Offset, Length int
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return tool.Error(err.Error()), nil
	}
	text, ok := r.full[args.ID]
	if !ok {
		ids := slices.Sorted(maps.Keys(r.full))
		return tool.Error(fmt.Sprintf("there is no truncated result %q; there are %v", args.ID, ids)), nil
	}
	if args.Offset < 0 || args.Offset >= len(text) { // with arg_validation none they were not validated
		return tool.Error(fmt.Sprintf("offset %d is outside; the result has %d bytes", args.Offset, len(text))), nil
	}
	const room = 128 // for the line that names the range
	length := max(r.limit-room, room)
	if args.Length > 0 {
		length = min(args.Length, length)
	}
	from, to := whole(text, args.Offset, args.Offset+length)
	return tool.Text(fmt.Sprintf("[bytes %d to %d of %d]\n%s", from, to, len(text), text[from:to])), nil
}

// whole widens from and narrows to, so that text[from:to] has whole characters
// and is not empty.
func whole(text string, from, to int) (int, int) {
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	to = min(to, len(text))
	for to < len(text) && to > from && !utf8.RuneStart(text[to]) {
		to--
	}
	if to == from {
		_, size := utf8.DecodeRuneInString(text[from:])
		to = from + size
	}
	return from, to
}

// rereadID returns the id under which the model reads a result. It differs from those of
// earlier runs in the same transcript.
func rereadID(runID string, key loop.CallKey) string {
	run := strings.TrimPrefix(runID, "run_")
	return run[:min(len(run), 6)] + "." + string(key)
}

// results are the truncated results of a run, whole.
type results struct {
	account *memlimit.Account // charged with them
	full    map[string]string // by the id that the model knows
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

// recall keeps the results to which a fact refers.
func (r *results) recall(runID string, body loop.Body, rows map[string]json.RawMessage) error {
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
		r.keep(map[string]string{rereadID(runID, done.Key): text})
	}
	return nil
}
