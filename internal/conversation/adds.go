package conversation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/item"
)

// What a segment adds to its conversation follows from how its run has ended. The prompt of the next turn and the
// lists that clients see are made by the same rule:
//
//	the run                                           the segment adds
//	answered, waits, or ended at a limit              what is stored
//	was cut off or cancelled                          what is stored, if the model said or called something
//	was cancelled before that                         what is stored: the question
//	was refused or denied, or failed                  what is stored up to a text of the model that ends the turn
//	any of these, and there is no such text           one line that names the calls it has made; without calls, nothing
//
// A run that is not stored any more counts as failed.

// Ends says how the runs of segments have ended. A [journal.Archive] implements it.
type Ends interface {
	Reasons(ctx context.Context, org string, runIDs []string) (map[string]event.Reason, error)
}

// NotApproved is the result of a call in a segment that ends before somebody has decided about the call.
const NotApproved = "Not run: nobody has approved the call."

// Addition is what a segment adds to its conversation.
type Addition struct {
	Items []item.Item

	// Aside says that the turn is set aside: Items are nothing, or the line that names its calls.
	Aside bool

	// Unanswered says that somebody has cancelled the turn before the model said anything: Items are what was asked.
	Unanswered bool

	superseded bool // a later part of the run has the items
}

// addedBy returns what a segment adds whose run has ended for the reason; "" = it is not known to have ended.
func addedBy(c *journal.Conversation, reason event.Reason) Addition {
	whole := Addition{Items: c.Items}
	last := lastOfModel(c.Items)
	switch {
	case isSettled(c):
		return whole
	case reason == event.Complete, reason == event.ClientCalls, reason == event.OutputCut, reason.Limit():
		return whole
	case last >= 0 && c.Items[last].Kind == item.ToolCall && reason == "": // the client has the call
		return whole
	case last < 0 && reason == event.Cancelled: // a message that interrupts is read beside the one that it follows
		whole.Unanswered = true
		return whole
	case last >= 0 && c.Items[last].Kind != item.ToolCall && (reason == event.Cancelled || reason == event.CallerGone || reason == event.Lost):
		return whole
	case last >= 0 && saysText(&c.Items[last]): // what follows it was not answered
		return Addition{Items: c.Items[:last+1]}
	}
	aside := Addition{Aside: true}
	if calls := callsOf(c.Items); calls != "" {
		aside.Items = []item.Item{item.NewText(item.Developer, "A request that stood here was refused or has failed, and is left out. "+
			"Before that, these tools were called, and what they did remains: "+calls+".")}
	}
	return aside
}

// isSettled reports whether a segment adds what is stored however its run has ended: a client has added it, it ends with
// a text of the model, or it waits for a person.
func isSettled(c *journal.Conversation) bool {
	last := lastOfModel(c.Items)
	switch {
	case c.RunID == "":
		return true
	case last < 0:
		return false
	case c.Items[last].Kind == item.ToolResult:
		return Waits(c)
	}
	return last == len(c.Items)-1 && saysText(&c.Items[last])
}

// Waits reports whether a segment ends before somebody has decided about calls.
func Waits(c *journal.Conversation) bool {
	for _, it := range slices.Backward(c.Items) {
		switch {
		case it.Kind == item.ToolResult && it.IsError && it.Text() == NotApproved:
			return true
		case it.Kind != item.ToolResult && it.Turn != 0:
			return false
		}
	}
	return false
}

// lastOfModel returns the index of the last item that a model has written, or that answers one of its calls; -1 for
// none. Input can follow it.
func lastOfModel(items []item.Item) int {
	for i, it := range slices.Backward(items) {
		if it.Turn != 0 || it.Kind == item.ToolResult {
			return i
		}
	}
	return -1
}

func saysText(it *item.Item) bool {
	return it.Kind == item.Message && it.Turn != 0 && item.PlainText(it.Parts) != ""
}

// callsOf names the calls of the model that may have done something, in their order; "" = there are none.
func callsOf(items []item.Item) string {
	var names []string
	made := map[string]int{}
	add := func(name string) {
		if made[name]++; made[name] == 1 {
			names = append(names, name)
		}
	}
	var open []item.Item // calls without a result so far
	for _, it := range items {
		if it.Kind == item.ToolCall {
			open = append(open, it)
		}
		i := slices.IndexFunc(open, func(c item.Item) bool { return c.CallID == it.CallID })
		if it.Kind != item.ToolResult || i < 0 {
			continue
		}
		name, text := open[i].Name, it.Text()
		open = slices.Delete(open, i, i+1)
		switch {
		case it.IsError && wasNotMade(text):
		case it.IsError:
			add(name + " (with an error)")
		default:
			add(name)
		}
	}
	for _, c := range open {
		add(c.Name + " (without a result)")
	}
	for i, name := range names {
		if n := made[name]; n > 1 {
			names[i] = fmt.Sprintf("%s (%d times)", name, n)
		}
	}
	return strings.Join(names, ", ")
}

// wasNotMade reports whether a result that is an error says that its call was not made. What a tool says begins with
// "Error: " then: only the text of a hook can be taken for it.
func wasNotMade(text string) bool {
	return slices.ContainsFunc([]string{"Not run", "Tool call denied", "Error: Blocked by hook — "}, func(prefix string) bool {
		return strings.HasPrefix(text, prefix)
	})
}

// reasonsOf returns why the runs have ended of those segments for which it matters. ends may be nil.
func reasonsOf(ctx context.Context, ends Ends, org string, found []part) (map[string]event.Reason, error) {
	var runs []string
	for _, c := range found {
		if !isSettled(c.Conversation) && !slices.Contains(runs, c.RunID) {
			runs = append(runs, c.RunID)
		}
	}
	if len(runs) == 0 || ends == nil {
		return nil, nil
	}
	return ends.Reasons(ctx, org, runs)
}

// AdditionOf returns what a part of a named conversation adds to it. For a part of a run that has waited, it follows from
// the last part of the run.
func AdditionOf(ctx context.Context, kept journal.Conversations, ends Ends, org string, c *journal.Conversation) (Addition, error) {
	last := c
	for part := max(c.Part, 1); Waits(last); part++ {
		later, err := FindSegment(ctx, kept, org, Segment{Run: c.RunID, Part: part}.ID())
		if err != nil {
			return Addition{}, err
		}
		if later == nil {
			break
		}
		last = later
	}
	reasons, err := reasonsOf(ctx, ends, org, []part{{Conversation: last}})
	added := addedBy(last, reasons[c.RunID])
	switch {
	case last == c:
	case added.Aside:
		added.Items = nil // the last part has the line
	default:
		added = Addition{Items: c.Items}
	}
	return added, err
}
