package window

import (
	"encoding/json"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
)

// boundaries reports for each index whether the items before it and the items from it on can be
// seen without each other. The last element is about the end.
func boundaries(items []item.Item) []bool {
	out := make([]bool, len(items)+1)
	out[0] = true
	open := map[string]int{} // calls without result, by id
	left := 0
	spans := nativeSpans(items)
	until := 0 // the end of the furthest span that has begun
	for i := range items {
		it := &items[i]
		until = max(until, spans[i])
		switch it.Kind {
		case item.ToolCall:
			open[it.CallID]++
			left++
		case item.ToolResult:
			if open[it.CallID] > 0 {
				open[it.CallID]--
				left--
			}
		case item.Message, item.Reasoning, item.Other:
		}
		next := i + 1
		inTurn := it.Turn != 0 && next < len(items) && items[next].Turn == it.Turn
		out[next] = left == 0 && !inTurn && until <= i && it.Kind != item.Reasoning
		// A result whose call comes later, or never, belongs to what is before it.
		if next < len(items) && items[next].Kind == item.ToolResult {
			out[next] = false
		}
	}
	return out
}

// nativeSpans returns for each item the last index of an item that belongs to it, by the ids in native
// items: those of a tool that the provider executes, or of a call that only its dialect knows.
func nativeSpans(items []item.Item) []int {
	out := make([]int, len(items))
	first := map[string]int{}
	for i := range items {
		out[i] = -1
		if items[i].Kind != item.Other {
			continue
		}
		for _, id := range nativeIDs(items[i].Native.JSON) {
			at, seen := first[id]
			if !seen {
				first[id] = i
				continue
			}
			out[at] = i
		}
	}
	return out
}

// nativeIDs returns the ids that join native items.
func nativeIDs(raw []byte) []string {
	var w struct {
		ID        any `json:"id"`
		CallID    any `json:"call_id"`
		ToolUseID any `json:"tool_use_id"`
		Request   any `json:"approval_request_id"`
	}
	if json.Unmarshal(raw, &w) != nil {
		return nil
	}
	var ids []string
	for _, v := range []any{w.ID, w.CallID, w.ToolUseID, w.Request} {
		if id, _ := v.(string); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// isUser reports whether the item begins a user turn. A summary does not.
func isUser(it *item.Item) bool {
	return it.Kind == item.Message && it.Role == item.User && it.Turn == 0 && !isSummary(it)
}

// isInstruction reports whether the item steers the model for the rest of the conversation: it is never
// summarised.
func isInstruction(it *item.Item) bool {
	return it.Kind == item.Message && it.Turn == 0 && (it.Role == item.System || it.Role == item.Developer)
}

// callNames returns for each result the name of the tool that was called; "" = its call is not among the items.
func callNames(items []item.Item) map[int]string {
	names := map[int]string{}
	open := map[string][]string{}
	for i := range items {
		switch it := &items[i]; it.Kind {
		case item.ToolCall:
			open[it.CallID] = append(open[it.CallID], it.Name)
		case item.ToolResult:
			if queue := open[it.CallID]; len(queue) > 0 {
				names[i], open[it.CallID] = queue[0], queue[1:]
			}
		case item.Message, item.Reasoning, item.Other:
		}
	}
	return names
}

const summaryPrefix = "[Summary of the earlier conversation, which was shortened to fit the context window]\n"

// isSummary reports whether the item is a summary of an earlier compaction.
func isSummary(it *item.Item) bool {
	return it.Kind == item.Message && it.Role == item.User && it.Turn == 0 && len(it.Parts) == 1 &&
		it.Native.JSON == nil && strings.HasPrefix(it.Parts[0].Text, summaryPrefix)
}
