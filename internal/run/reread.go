package run

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// rereadName is the tool with which the model reads what was cut from a result.
// It is offered from the first cut on.
const rereadName = "read_result"

// maxFull is how many bytes of one result are kept for reading: as many as an
// answer of an MCP server may have. All results together are bounded by the run's
// account: what comes later cannot be read.
const maxFull = 16 << 20

// reread reads results that were cut in this run.
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

// Class implements catalog.Classed.
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
	if args.Offset < 0 || args.Offset >= len(text) { // arguments that nobody validated may be anything
		return tool.Error(fmt.Sprintf("offset %d is outside; the result has %d bytes", args.Offset, len(text))), nil
	}
	const room = 128 // for the line that says where the piece is from
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

// rereadID names a result of this run among those that a caller's transcript
// may hold of earlier ones.
func (d *drive) rereadID(key loop.CallKey) string {
	run := strings.TrimPrefix(d.lease.RunID, "run_")
	return run[:min(len(run), 6)] + "." + string(key)
}

// keepAll keeps cut results for reading. The owner of the run calls it between
// executions, so that no tool reads while it writes.
func (d *drive) keepAll(results map[string]string) {
	if len(results) == 0 {
		return
	}
	next := maps.Clone(d.full)
	if next == nil {
		next = map[string]string{}
	}
	for id, text := range results {
		if len(text) > maxFull {
			text = strings.ToValidUTF8(text[:maxFull], "")
		}
		if d.account.Charge(len(text)) != nil {
			break
		}
		next[id] = text
	}
	d.full = next
}

// rereadHint tells the model how to read the rest of a result, unless the
// caller or a server has a tool of that name.
func (d *drive) rereadHint(key loop.CallKey) string {
	if d.clientNames()[rereadName] || d.tools.Lookup(rereadName) != nil {
		return ""
	}
	return fmt.Sprintf(" Read the rest with %s, id %q.", rereadName, d.rereadID(key))
}

// visible returns the tools of the run: those that were found, and the one that
// reads cut results once there is one.
func (d *drive) visible() *catalog.Set {
	if !d.state.Truncated || d.clientNames()[rereadName] {
		return d.tools
	}
	entry, err := catalog.NewEntry(reread{d.full, d.req.ResultMaxBytes})
	if err != nil {
		panic(err) // our own schema, a constant
	}
	return d.tools.With(entry)
}
