package conversation

import (
	"context"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// Entry is an item of a conversation, and where it comes from.
type Entry struct {
	item.Item
	RunID string // that has added it; "" = a client has
	At    int64  // when it was added, in Unix milliseconds; 0 = not known

	// Call names a call of the gateway or of a client, and its result, as the events of the run do; "" = not known.
	Call string

	round int
}

// SameAnswer reports whether the model said both in one answer.
func (e Entry) SameAnswer(other Entry) bool {
	return e.Turn != 0 && other.Turn != 0 && e.RunID == other.RunID && e.At == other.At && e.round == other.round
}

// Entries returns all items of the named conversation that the request continues, the oldest first. A compaction does not
// change them. memory is charged with them. The error is that of [Begin].
func Entries(ctx context.Context, kept journal.Conversations, ends Ends, req Request, memory *memlimit.Share) (out []Entry, err error) {
	_, found, err := readNamed(ctx, kept, req, memory)
	if err != nil {
		return nil, err
	}
	reasons, err := reasonsOf(ctx, ends, req.Org, found)
	if err != nil {
		return nil, err
	}
	for i, added := range additions(found, reasons) {
		out = append(out, entriesOf(found[i].Conversation, added.Items)...)
	}
	return out, nil
}

// entriesOf returns the items that a part adds, with their origins.
func entriesOf(c *journal.Conversation, items []item.Item) (out []Entry) {
	origins, left := c.Origins, 0
	var from journal.Origin
	calls := map[string]string{} // the latest, by the id of the provider
	index := 0
	for i, it := range items {
		for left == 0 && len(origins) > 0 {
			from, origins = origins[0], origins[1:]
			left, index = from.Items, 0
		}
		left = max(left-1, 0)
		e := Entry{Item: items[i], RunID: c.RunID, At: from.At, round: from.Round}
		switch {
		case it.Kind == item.ToolCall && from.Items > 0:
			e.Call = strconv.Itoa(from.Round) + "." + strconv.Itoa(index)
			calls[it.CallID] = e.Call
			index++
		case it.Kind == item.ToolResult:
			e.Call = calls[it.CallID]
		}
		out = append(out, e)
	}
	return out
}
