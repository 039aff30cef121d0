package window

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Settings are those of a run.
type Settings struct {
	Size   Size
	Output int64 // the caller's limit on the output of a call, in tokens; 0 = none

	// Threshold is the size above which a prompt is compacted, in tokens; 0 = that of Size for Output.
	Threshold int64

	// PruneOnly says that nothing is summarised.
	PruneOnly bool

	// ExcludeTools are tools whose results always stay.
	ExcludeTools []string

	// Price is that of the model that gets the prompt; without a known one the provider's cache is not taken
	// into account.
	Price money.Price
}

// The constants of a plan.
const (
	keepTurns   = 3 // user turns whose results stay
	keepResults = 3 // results of the turn in progress that stay

	// paybackCalls is the number of model calls after which a compaction has paid for the prefix that it takes
	// from the provider's cache.
	paybackCalls = 10

	maxSummary = 4_096 // tokens
	minSummary = 64    // tokens
)

// window returns the tokens that prompt and output have together. Where the size of the model is not known, it is the
// threshold.
func (s Settings) window() int64 {
	switch {
	case s.Size.Window > 0:
		return s.Size.Window
	case s.Size.Input > 0:
		return s.Size.Input
	}
	return s.Threshold
}

// limit returns the size above which a prompt is compacted; 0 = no prompt is.
func (s Settings) limit() int64 {
	if s.Threshold > 0 {
		return s.Threshold
	}
	return s.Size.Threshold(s.Output)
}

// Least returns how many tokens a compaction frees at least: a quarter of the window, or what pays for the
// broken prefix, whichever is more. moved is how many tokens follow the first change and stay: the provider
// has them in its cache and charges them in full once more.
func (s Settings) Least(moved int64) int64 {
	least := max(s.window()/4, 1)
	cached, fresh := int64(s.Price.CachedInput), int64(s.Price.Input)
	if !s.Price.Known() || cached <= 0 || fresh <= cached {
		return least
	}
	return max(least, share(moved, fresh-cached, cached)/paybackCalls)
}

// SummaryTokens returns the limit on the output of a call that writes a summary.
func (s Settings) SummaryTokens() int64 { return min(max(s.window()/8, minSummary), maxSummary) }

// Prompt is what the model would see next.
type Prompt struct {
	Items    []item.Item
	Overhead int64 // bytes beside the items: the definitions of the tools
	Tokens   int64 // of all: what the provider has counted, and an estimate of the rest
	Cached   int64 // of these, how many the provider has probably in its cache: those that it has counted
}

// Compaction is a change of what the model sees. The zero value changes nothing. It refers to the items of
// the prompt that it was planned for.
type Compaction struct {
	Results []int  // tool results that are seen as placeholders, in ascending order
	Until   int    // the items before it are seen as Summary; 0 = there is none
	Keep    []int  // of the items before Until: those that are seen nevertheless
	Summary string // see SummaryPrompt

	Before int64 // tokens of the prompt
	After  int64 // the same after it; an estimate, with room for the longest summary until there is one
	Prefix int64 // tokens before the first change

	reserve int64 // what After has for the summary
}

// Changes reports whether the compaction changes anything.
func (c Compaction) Changes() bool { return c.Summarises() || len(c.Results) > 0 }

// Summarises reports whether the compaction needs a Summary.
func (c Compaction) Summarises() bool { return c.Until > 0 }

// WithSummary returns the compaction with its summary, and After as it is with it.
func (c Compaction) WithSummary(text string, tokens int64) Compaction {
	c.Summary = text
	c.After = max(c.After-c.reserve+max(tokens, 0), 1)
	c.reserve = max(tokens, 0)
	return c
}

// Effective reports whether a compaction has freed at least a tenth of the prompt.
func Effective(before, after int64) bool { return before-after >= ceil(before, 10) }

// NetCost returns by how much the compaction makes the run more expensive until the end of its next model
// call: what the summary has cost, and what the next call costs more or less. A negative amount is saved.
func (c Compaction) NetCost(price money.Price, cached int64, summary money.Nano) money.Nano {
	without := money.Cost(price, model.Usage{Input: c.Before, CachedInput: min(cached, c.Before)})
	with := money.Cost(price, model.Usage{Input: c.After, CachedInput: min(c.Prefix, cached, c.After)})
	return summary.Add(with).Sub(without)
}

// planner plans for one prompt.
type planner struct {
	p     Prompt
	s     Settings
	bytes []int64 // of each item
	total int64   // bytes of the prompt, at least 1
	limit int64   // the threshold
	names map[int]string
}

func newPlanner(p Prompt, s Settings) *planner {
	pl := &planner{p: p, s: s, bytes: sizes(p.Items), total: max(p.Overhead, 0), limit: s.limit(), names: callNames(p.Items)}
	for _, n := range pl.bytes {
		pl.total += n
	}
	pl.total = max(pl.total, 1)
	return pl
}

// tokens returns the share of so many bytes in the tokens of the prompt.
func (pl *planner) tokens(bytes int64) int64 { return share(bytes, pl.p.Tokens, pl.total) }

func (pl *planner) bytesOf(from, to int) int64 {
	n := int64(0)
	for _, b := range pl.bytes[from:to] {
		n += b
	}
	return n
}

// Plan returns how to make the prompt shorter, or a Compaction that changes nothing: the prompt is not above the
// threshold, or less than a tenth of it can be freed. It prefers placeholders for old results of tools. If these do
// not free what [Settings.Least] says, it plans a summary.
func Plan(p Prompt, s Settings) Compaction {
	nothing := Compaction{Before: p.Tokens, After: p.Tokens, Prefix: p.Tokens}
	pl := newPlanner(p, s)
	if pl.limit <= 0 || p.Tokens <= pl.limit {
		return nothing
	}
	pruned, enough := pl.prune()
	if enough {
		return pruned
	}
	if !s.PruneOnly {
		if c := pl.summarise(); c.Summarises() && Effective(c.Before, c.After) {
			return c
		}
	}
	if pruned.Changes() && Effective(pruned.Before, pruned.After) {
		return pruned
	}
	return nothing
}

// prune plans placeholders, from the oldest result on, until they are enough.
func (pl *planner) prune() (c Compaction, enough bool) {
	c = Compaction{Before: pl.p.Tokens, After: pl.p.Tokens, Prefix: pl.p.Tokens}
	freed, rest := int64(0), int64(0)
	for _, i := range pl.prunable() {
		saved := pl.bytes[i] - int64(len(placeholder(pl.names[i], pl.bytes[i])))
		if saved <= 0 {
			continue
		}
		if len(c.Results) == 0 {
			rest = pl.tokens(pl.bytesOf(i, len(pl.bytes)))
			c.Prefix = pl.tokens(pl.bytesOf(0, i) + pl.p.Overhead)
		}
		c.Results = append(c.Results, i)
		freed += saved
		c.After = max(pl.p.Tokens-pl.tokens(freed), 1)
		gain := c.Before - c.After
		if c.After <= pl.limit && gain >= pl.s.Least(max(rest-gain, 0)) {
			return c, true
		}
	}
	return c, false
}

// prunable returns the results that may become placeholders, the oldest first. Those of the last user turns stay, except
// in the turn in progress: of it the last results stay, and all that the model has not seen.
func (pl *planner) prunable() []int {
	items := pl.p.Items
	var users, results []int
	unseen := 0 // the results from here on follow the last answer of the model
	for i := range items {
		switch {
		case isUser(&items[i]):
			users = append(users, i)
		case items[i].Kind == item.ToolResult:
			results = append(results, i)
		case items[i].Turn != 0:
			unseen = i
		}
	}
	older, current := 0, 0
	if len(users) > 0 {
		older, current = users[max(len(users)-keepTurns, 0)], users[len(users)-1]
	}
	keepFrom := len(items)
	if len(results) > 0 {
		keepFrom = results[max(len(results)-keepResults, 0)]
	}
	var out []int
	for _, i := range results {
		old := i < older || i > current && i < keepFrom && i < unseen
		if old && !isPlaceholder(&items[i]) && !slices.Contains(pl.s.ExcludeTools, pl.names[i]) {
			out = append(out, i)
		}
	}
	return out
}

// summarise plans a summary of the older part. The tail after it is not changed.
func (pl *planner) summarise() Compaction {
	none := Compaction{Before: pl.p.Tokens, After: pl.p.Tokens, Prefix: pl.p.Tokens}
	items := pl.p.Items
	cut := pl.cut()
	if cut == 0 {
		return none
	}
	c := Compaction{Until: cut, Keep: pl.keep(cut), Before: pl.p.Tokens, reserve: pl.s.SummaryTokens()}
	kept, first := int64(0), -1
	for i := range items[:cut] {
		switch {
		case slices.Contains(c.Keep, i):
			kept += pl.bytes[i]
		case first < 0:
			first = i
		}
	}
	if first < 0 { // all of it stays
		return none
	}
	c.Prefix = pl.tokens(pl.bytesOf(0, first) + pl.p.Overhead)
	c.After = max(pl.tokens(kept+pl.bytesOf(cut, len(items))+pl.p.Overhead)+c.reserve, 1)
	return c
}

// cut returns where the tail begins that is not summarised: the longest that has at most a quarter of the threshold,
// or else the shortest that there is. It is 0 if there is no place to cut.
func (pl *planner) cut() int {
	items := pl.p.Items
	ok := boundaries(items)
	shortest, longest := 0, 0
	tail := int64(0)
	for i := len(items) - 1; i > 0; i-- {
		tail += pl.bytes[i]
		if !ok[i] {
			continue
		}
		if shortest == 0 {
			shortest = i
		}
		if pl.tokens(tail) > pl.limit/4 {
			break
		}
		longest = i
	}
	if longest > 0 {
		return longest
	}
	return shortest
}

// keep returns the items before the cut that are seen nevertheless: instructions, control items, and the last request
// of the user if it is not in the tail and not very long.
func (pl *planner) keep(cut int) []int {
	items := pl.p.Items
	spans := nativeSpans(items)
	request := -1
	for i := range items {
		if isUser(&items[i]) {
			request = i
		}
	}
	if request >= cut || request >= 0 && pl.tokens(pl.bytes[request]) > pl.limit/4 {
		request = -1
	}
	var out []int
	covered := -1
	for i := range items[:cut] {
		alone := i > covered && spans[i] < 0
		covered = max(covered, spans[i])
		control := items[i].Kind == item.Other && items[i].Turn == 0 && alone
		if isInstruction(&items[i]) || control || i == request {
			out = append(out, i)
		}
	}
	return out
}

// View returns what the model sees of the items after the compactions, in the order in which they were made. Each
// refers to what the ones before it have left. The items themselves are not changed.
func View(items []item.Item, compactions ...Compaction) []item.Item {
	for _, c := range compactions {
		items = c.view(items)
	}
	return items
}

func (c Compaction) view(items []item.Item) []item.Item {
	if !c.Changes() {
		return items
	}
	var out []item.Item
	if c.Summarises() {
		for _, i := range c.Keep {
			out = append(out, items[i])
		}
		out = append(out, item.NewText(item.User, summaryPrefix+c.Summary))
	}
	names := callNames(items)
	for i := c.Until; i < len(items); i++ {
		it := items[i]
		if _, pruned := slices.BinarySearch(c.Results, i); pruned {
			it = prunedResult(it, names[i], Bytes(items[i:i+1]))
		}
		out = append(out, it)
	}
	return out
}

// prunedResult returns a result with a placeholder instead of its content.
func prunedResult(it item.Item, name string, bytes int64) item.Item {
	text := item.Part{Kind: item.Text, Text: placeholder(name, bytes)}
	for _, p := range it.Parts { // the provider caches the prompt up to the same places
		if p.Cache != nil {
			text.Cache = p.Cache
		}
	}
	it.Parts, it.Structured, it.Native = []item.Part{text}, nil, item.Native{}
	return it
}

const placeholderPrefix = "[Old result removed to save space: "

// isPlaceholder reports whether an earlier compaction has removed the result.
func isPlaceholder(it *item.Item) bool {
	return len(it.Parts) == 1 && strings.HasPrefix(it.Parts[0].Text, placeholderPrefix)
}

// placeholder is the text of a result that was removed.
func placeholder(name string, bytes int64) string {
	text, _ := json.Marshal(bytes) // a number: cannot fail
	if name == "" {
		name = "the tool"
	}
	return placeholderPrefix + string(text) + " bytes. Call " + name + " again if you need it.]"
}
