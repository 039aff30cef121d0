package resulttool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/tool"
)

// readResult is the tool over the results of one run.
type readResult struct {
	results map[string]string // by id
	limit   int               // bytes of one answer
}

var schema = json.RawMessage(`{"type":"object","properties":{` +
	`"id":{"type":"string","description":"the id that the truncated result names"},` +
	`"offset":{"type":"integer","minimum":0,"description":"byte to begin at, 0 by default"},` +
	`"length":{"type":"integer","minimum":1,"description":"how many bytes; as many as fit by default"}},` +
	`"required":["id"],"additionalProperties":false}`)

// Definition implements tool.Tool.
func (r readResult) Definition() tool.Definition {
	return tool.Definition{
		Name:        name,
		Description: "Read a range of an earlier tool result that was truncated.",
		InputSchema: schema,
	}
}

// Class implements tool.Classed.
func (r readResult) Class() tool.Class { return tool.Read }

// Call implements tool.Tool.
func (r readResult) Call(_ context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		ID     string `json:"id"`
		Offset int    `json:"offset"`
		Length int    `json:"length"`
	}
	if err := jsonscan.Decode(c.Arguments, &args); err != nil {
		return tool.Error(err.Error()), nil
	}
	text, ok := r.results[args.ID]
	if !ok {
		ids := slices.Sorted(maps.Keys(r.results))
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
