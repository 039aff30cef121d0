package window

import (
	"cmp"
	"slices"
	"sort"

	"github.com/turnpike-gateway/turnpike/item"
)

// instruction is the last message of a call that writes a summary.
const instruction = "The conversation has become too long for the context window. Write a summary of everything above that replaces it. " +
	"State the goals of the user, what was done and found, decisions with their reasons, open tasks, and exact names, numbers, ids and paths that are " +
	"still needed. Do not call tools, do not answer the user, and do not continue the work. Reply with the summary only."

// OrderBytes is the size of the last message of a call that writes a summary: what its prompt has beyond the prompt that is
// made shorter.
const OrderBytes = int64(len(instruction))

// SummaryPrompt returns the items of the call that writes the summary of a compaction: the part that is summarised, and
// the request for a summary. The begin is the same as that of the run's last call, so that the provider's cache serves it. Turns
// that only repeat earlier calls are left out: otherwise the model learns to repeat them. If the part has more than limit tokens,
// results are replaced by placeholders, and then the oldest turns are left out.
func SummaryPrompt(p Prompt, s Settings, c Compaction, limit int64) []item.Item {
	pl := newPlanner(p, s)
	part := withoutRepeats(p.Items[:c.Until])
	per := func(items []item.Item) int64 { return pl.tokens(Bytes(items) + p.Overhead) }
	limit = max(limit-pl.tokens(int64(len(instruction))), 1)
	if per(part) > limit {
		part = allPruned(part)
	}
	if per(part) > limit {
		part = withoutOldest(part, func(items []item.Item) bool { return per(items) <= limit })
	}
	return append(slices.Clip(part), item.NewText(item.User, instruction))
}

// withoutRepeats leaves out groups of items that have nothing but calls which were made before and are made again later.
func withoutRepeats(items []item.Item) []item.Item {
	type call struct{ name, arguments string }
	left := map[call]int{}
	for i := range items {
		if items[i].Kind == item.ToolCall {
			left[call{items[i].Name, items[i].Arguments}]++
		}
	}
	var out []item.Item
	seen := map[call]bool{}
	skipped := false
	for _, g := range groups(items) {
		calls, repeats, says := 0, true, false
		for i := range g {
			switch g[i].Kind {
			case item.ToolCall:
				c := call{g[i].Name, g[i].Arguments}
				left[c]--
				calls++
				repeats = repeats && seen[c] && left[c] > 0
			case item.Message, item.Other:
				says = true
			case item.ToolResult, item.Reasoning:
			}
		}
		for i := range g {
			if g[i].Kind == item.ToolCall {
				seen[call{g[i].Name, g[i].Arguments}] = true
			}
		}
		if calls > 0 && repeats && !says {
			skipped = true
			continue
		}
		out = append(out, g...)
	}
	if !skipped {
		return items
	}
	return out
}

// groups returns the items in pieces that can be seen without each other.
func groups(items []item.Item) [][]item.Item {
	ok := boundaries(items)
	var out [][]item.Item
	from := 0
	for i := 1; i <= len(items); i++ {
		if ok[i] || i == len(items) {
			out = append(out, items[from:i])
			from = i
		}
	}
	return out
}

// allPruned returns the items with placeholders for all results that are longer.
func allPruned(items []item.Item) []item.Item {
	names, n := callNames(items), sizes(items)
	var c Compaction
	for i := range items {
		if items[i].Kind == item.ToolResult && n[i] > int64(len(placeholder(names[i], n[i]))) {
			c.Results = append(c.Results, i)
		}
	}
	return View(items, c)
}

// withoutOldest leaves out the oldest groups that are no instructions, until the rest fits.
func withoutOldest(items []item.Item, fits func([]item.Item) bool) []item.Item {
	var head []item.Item
	var rest [][]item.Item
	for _, g := range groups(items) {
		if len(g) == 1 && isInstruction(&g[0]) {
			head = append(head, g[0])
			continue
		}
		rest = append(rest, g)
	}
	join := func(from int) []item.Item { return slices.Concat(append([][]item.Item{head}, rest[from:]...)...) }
	from := sort.Search(len(rest), func(from int) bool { return fits(join(from)) })
	return join(from)
}

// Share is a part of a prompt.
type Share struct {
	Name   string `json:"name"` // such as "tool definitions"
	Tokens int64  `json:"tokens"`
}

// Largest returns the largest parts of the prompt, at most n, the largest first.
func Largest(p Prompt, n int) []Share {
	pl := newPlanner(p, Settings{})
	bytes := map[string]int64{"tool definitions": p.Overhead}
	for i := range p.Items {
		bytes[partName(&p.Items[i], pl.names[i])] += pl.bytes[i]
	}
	var out []Share
	for name, b := range bytes {
		if b > 0 {
			out = append(out, Share{name, pl.tokens(b)})
		}
	}
	slices.SortFunc(out, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Name, b.Name)) })
	return out[:min(n, len(out))]
}

func partName(it *item.Item, tool string) string {
	switch {
	case it.Kind == item.ToolResult && tool != "":
		return "results of " + tool
	case it.Kind == item.ToolResult:
		return "tool results"
	case isInstruction(it):
		return "system prompt"
	case isSummary(it):
		return "summary"
	case isUser(it):
		return "user messages"
	}
	return "answers of the model"
}
