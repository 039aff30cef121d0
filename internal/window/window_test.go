package window

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/item"
)

func TestEstimateOfTokens(t *testing.T) { // I01
	var none Calibration
	for bytes, want := range map[int64]int64{0: 0, 1: 1, 4: 1, 5: 2, 4000: 1000, -5: 0} {
		if got := none.Estimate(bytes); got != want {
			t.Errorf("%d bytes: %d tokens, want %d", bytes, got, want)
		}
	}
	learnt := none.Learn(3_000, 1_000)
	if got := learnt.Estimate(300); got != 100 {
		t.Errorf("at three bytes a token: %d", got)
	}
	for _, c := range []Calibration{none.Learn(100, 50), none.Learn(3_000, 0), none.Learn(-1, 1), none.Learn(1<<62, 1<<62)} {
		if c != none {
			t.Errorf("it has learnt %+v from a sample that says nothing", c)
		}
	}
	if got := none.Learn(1_000, 1<<30).Estimate(1_000); got != 1_000 {
		t.Errorf("more than a token per byte: %d", got)
	}
	if got := none.Learn(1<<30, 1).Estimate(8_000); got != 1_000 {
		t.Errorf("fewer than a token per eight bytes: %d", got)
	}
	c := none
	for range 100 {
		c = c.Learn(1<<39, 1<<37)
	}
	if got := c.Estimate(4_000); got < 990 || got > 1_010 {
		t.Errorf("after many samples: %d", got)
	}
}

func TestSizeOfItems(t *testing.T) {
	items := []item.Item{
		item.NewText(item.User, "12345"),
		{Kind: item.Reasoning, Turn: 1, Parts: []item.Part{{Kind: item.Text, Text: "12"}}, Native: item.Native{JSON: json.RawMessage(`{"a":1}`)}},
		{Kind: item.ToolCall, Turn: 1, CallID: "c", Name: "f", Arguments: "{}"},
		item.NewResult("c", "123", false),
		{Kind: item.ToolResult, Parts: []item.Part{{Kind: item.Image, MIMEType: "image/png", Data: strings.Repeat("A", 1<<20)}}},
	}
	if got := Bytes(items); got != 5+7+3+maxImageBytes {
		t.Errorf("%d bytes", got)
	}
}

func TestThreshold(t *testing.T) { // I10
	for _, c := range []struct {
		size  Size
		asked int64
		want  int64
	}{
		{Size{}, 0, 0},
		{Size{Window: 200_000}, 0, 182_218},
		{Size{Window: 200_000}, 64_000, 129_200},
		{Size{Window: 8_192}, 0, 5_837},
		{Size{Window: 8_192}, 8_192, 3_892},
		{Size{Window: 8_192}, 1 << 40, 3_892},
		{Size{Window: 400_000, Input: 272_000}, 1_000, 258_400},
		{Size{Input: 1_000}, 0, 713},
		{Size{Window: 1}, 0, 1},
	} {
		if got := c.size.Threshold(c.asked); got != c.want {
			t.Errorf("%+v, asked %d: %d, want %d", c.size, c.asked, got, c.want)
		}
	}
	for window := int64(1); window < 2_000_000; window += window/3 + 1 {
		for _, asked := range []int64{0, 1, window / 2, window, 10 * window} {
			if got := (Size{Window: window}).Threshold(asked); got <= 0 || got > window {
				t.Errorf("window %d, asked %d: %d", window, asked, got)
			}
		}
	}
}

func TestBuiltInWindows(t *testing.T) {
	for model, want := range map[string]Size{
		"gpt-6-sol":                      {1_050_000, 922_000},
		"gpt-6-sol-2026-09-05":           {1_050_000, 922_000},
		"gpt-5.1":                        {400_000, 272_000},
		"claude-opus-5":                  {Window: 1_000_000},
		"claude-opus-4-5-20251101":       {Window: 200_000},
		"claude-sonnet-4-5@20250929":     {Window: 200_000},
		"gemini-2.5-pro":                 {Window: 1_048_576},
		"us.amazon.nova-pro-v1:0":        {},
		"anthropic/claude-opus-5":        {Window: 1_000_000},
		"eu.anthropic.claude-sonnet-5":   {Window: 1_000_000},
		"gpt-5-chat-latest":              {},
		"gpt-7":                          {},
		"claude-opus-5-thinking-preview": {},
		"llama":                          {},
		"":                               {},
		"arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-sonnet-4-5-20250929-v1:0": {Window: 200_000},
	} {
		if got := Of(model); got != want {
			t.Errorf("%s: %+v, want %+v", model, got, want)
		}
	}
	seen := map[string]bool{}
	for _, row := range table {
		for _, name := range row.names {
			if seen[name] || Of(name) != row.size || row.size.Input > row.size.Window {
				t.Errorf("%s: %+v", name, Of(name))
			}
			seen[name] = true
		}
	}
}

// Images go only to models that are known to take them.
func TestModelsThatTakeImages(t *testing.T) {
	for model, want := range map[string]bool{
		"gpt-4o":              true,
		"gpt-4o-2024-08-06":   true,
		"gpt-5.1-codex":       true,
		"openai/gpt-4.1-mini": true,
		"o3":                  true,
		"o3-2025-04-16":       true,
		"o4-mini":             true,
		"claude-opus-5-5":     true,
		"us.anthropic.claude-3-5-sonnet-20241022-v2:0": true,
		"gemini-2.5-flash":            true,
		"google/gemini-3-pro-preview": true,
		"us.amazon.nova-pro-v1:0":     true,
		"o3-mini":                     false,
		"o1-mini":                     false,
		"gpt-3.5-turbo":               false,
		"gpt-4":                       false,
		"gpt-4o-audio-preview":        false,
		"gpt-oss-120b":                false,
		"claude-2.1":                  false,
		"claude-3-5-haiku-20241022":   false,
		"amazon.nova-micro-v1:0":      false,
		"gemini-embedding-001":        false,
		"llama":                       false,
		"my-gpt-4o":                   false,
		"":                            false,
	} {
		if got := TakesImages(model); got != want {
			t.Errorf("%s: %t", model, got)
		}
	}
}

// The messages are those of the providers, as recorded or documented.
func TestLimitInARefusal(t *testing.T) { // I04
	for message, want := range map[string]int64{
		"This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.":                         128_000,
		"This model's maximum context length is 131,072 tokens.":                                                                          131_072,
		"prompt is too long: 213462 tokens > 200000 maximum":                                                                              200_000,
		"input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length or `max_tokens` and try again": 200_000,
		"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).":                                         1_048_576,
		"the request exceeds the available context size (4096 tokens), try increasing it":                                                 4_096,
		"Too many input tokens. Max input tokens: 128000, request input token count: 130000":                                              128_000,
		"Your input exceeds the context window of this model. Please adjust your input and try again.":                                    0,
		"Input is too long for requested model.":                                                                                          0,
		"maximum context length is 12 tokens":                                                                                             0,
		"maximum context length is 99999999999999999999 tokens":                                                                           0,
		"": 0,
	} {
		if got := FromError(message); got != want {
			t.Errorf("%q: %d, want %d", message, got, want)
		}
	}
}

func FuzzFromError(f *testing.F) {
	f.Add("maximum context length is 128000 tokens")
	f.Add("prompt is too long: 213462 tokens > 200000 maximum")
	f.Add("context limit: 1 + 2 > 4096")
	f.Fuzz(func(t *testing.T, message string) {
		if n := FromError(message); n != 0 && (n < minLimit || n > maxLimit) {
			t.Errorf("%d", n)
		}
	})
}

// text returns about so many tokens of text.
func text(tokens int) string { return strings.Repeat("abc ", tokens) }

// ask, call and result make a conversation.
func ask(s string) []item.Item { return []item.Item{item.NewText(item.User, s)} }

func round(turn int, name, arguments, result string) []item.Item {
	id := fmt.Sprintf("c%d", turn)
	c := item.NewCall(id, name, arguments)
	c.Turn = turn
	return []item.Item{c, item.NewResult(id, result, false)}
}

func promptOf(items []item.Item) Prompt {
	n := Calibration{}.Estimate(Bytes(items))
	return Prompt{Items: items, Tokens: n, Cached: n}
}

func TestOneRequestWithManyCallsIsPruned(t *testing.T) { // I02
	items := ask("count the lines of fifty files")
	for n := range 50 {
		items = append(items, round(n+1, "read", fmt.Sprintf(`{"n":%d}`, n), text(200))...)
	}
	p, s := promptOf(items), Settings{Size: Size{Window: 10_000}}
	c := Plan(p, s)
	if c.Summarises() || !c.Changes() || c.Before != p.Tokens || c.After > s.Size.Threshold(0) || c.Before-c.After < 2_500 {
		t.Fatalf("%+v", c)
	}
	seen := View(items, c)
	if len(seen) != len(items) {
		t.Fatalf("%d items of %d", len(seen), len(items))
	}
	for i := range items {
		pruned := slices.Contains(c.Results, i)
		if pruned == reflect.DeepEqual(seen[i], items[i]) {
			t.Errorf("item %d: pruned %t", i, pruned)
		}
		if pruned && (seen[i].CallID != items[i].CallID || !strings.Contains(seen[i].Text(), "Call read again")) {
			t.Errorf("item %d: %+v", i, seen[i])
		}
		if pruned && i >= len(items)-2*keepResults {
			t.Errorf("item %d is one of the last results", i)
		}
	}
	if s.ExcludeTools = []string{"read"}; slices.ContainsFunc([]Compaction{Plan(p, s)}, func(c Compaction) bool { return len(c.Results) > 0 }) {
		t.Error("results of an excluded tool are pruned")
	}
}

func TestResultsOfTheLastUserTurnsStay(t *testing.T) { // I02
	var items []item.Item
	for n := range 6 {
		items = append(items, ask(fmt.Sprint("question ", n))...)
		items = append(items, round(2*n+1, "read", "{}", text(1_000))...)
		items = append(items, item.Item{Kind: item.Message, Role: item.Assistant, Turn: 2*n + 2, Parts: []item.Part{{Kind: item.Text, Text: "done"}}})
	}
	items = append(items, ask("one more")...)
	c := Plan(promptOf(items), Settings{Size: Size{Window: 6_600}})
	if want := []int{2, 6, 10, 14}; c.Summarises() || len(c.Results) == 0 || len(c.Results) > len(want) || !slices.Equal(c.Results, want[:len(c.Results)]) {
		t.Errorf("%+v", c)
	}
}

func TestPruningPaysForThePrefix(t *testing.T) { // I02
	items := ask("go")
	for n := range 100 {
		items = append(items, round(n+1, "read", fmt.Sprintf(`{"n":%d}`, n), text(100))...)
	}
	usd := func(s string) *money.Rate { r, err := money.ParseRate(s); return must(t, &r, err) }
	row := money.Row{Model: "m", From: "2026-01-01", Listed: money.Listed{Input: usd("1"), CachedInput: usd("0.1"), Output: usd("5")}}
	s := Settings{Size: Size{Window: 11_000}}
	plain := Plan(promptOf(items), s)
	s.Price = row.Price()
	cached := Plan(promptOf(items), s)
	moved := func(c Compaction) int64 { return c.After - c.Prefix }
	if freed := cached.Before - cached.After; freed < s.Least(moved(cached)) || freed <= plain.Before-plain.After {
		t.Errorf("%d of %d tokens are freed, without a cache %d; least %d", freed, cached.Before, plain.Before-plain.After, s.Least(moved(cached)))
	}
	if free := (Settings{Size: s.Size, Price: money.Row{Model: "m", From: "2026-01-01"}.Price()}); free.Least(1<<30) != 2_750 {
		t.Errorf("for a free model: %d", free.Least(1<<30))
	}
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTheOlderPartIsSummarised(t *testing.T) { // I03
	items := append([]item.Item{item.NewText(item.System, "be kind")}, ask("first "+text(3_000))...)
	for n := range 10 {
		items = append(items, item.Item{Kind: item.Message, Role: item.Assistant, Turn: n + 1, Parts: []item.Part{{Kind: item.Text, Text: text(500)}}})
		items = append(items, ask(fmt.Sprint("and ", n))...)
	}
	p, s := promptOf(items), Settings{Size: Size{Window: 8_000}}
	c := Plan(p, s)
	if !c.Summarises() || len(c.Results) > 0 || c.After > s.Size.Threshold(0) {
		t.Fatalf("%+v", c)
	}
	c = c.WithSummary("they talked", 10)
	seen := View(items, c)
	if seen[0].Text() != "be kind" || !isSummary(&seen[1]) || !strings.HasSuffix(seen[1].Text(), "they talked") {
		t.Errorf("%+v", seen[:2])
	}
	if !reflect.DeepEqual(seen[2:], items[c.Until:]) {
		t.Error("the tail has changed")
	}
	if after := promptOf(seen).Tokens; after > c.After+50 {
		t.Errorf("%d tokens, %d were planned", after, c.After)
	}
	if s.PruneOnly = true; Plan(p, s).Changes() {
		t.Error("there is nothing to prune, and a summary is not wanted")
	}
}

func TestTheRequestStaysBesideItsSummary(t *testing.T) {
	items := append([]item.Item{item.NewText(item.Developer, "rules")}, ask("the task")...)
	for n := range 20 {
		c := item.NewCall("x", "write", text(200))
		c.Turn = n + 1
		items = append(items, c, item.NewResult("x", "ok", false))
	}
	c := Plan(promptOf(items), Settings{Size: Size{Window: 4_000}}).WithSummary("nineteen files", 5)
	seen := View(items, c)
	if !c.Summarises() || seen[0].Text() != "rules" || seen[1].Text() != "the task" || !isSummary(&seen[2]) || seen[3].Kind != item.ToolCall {
		t.Errorf("%+v: %+v", c, seen[:min(4, len(seen))])
	}
}

func TestRepeatedCallsAreNotSummarised(t *testing.T) {
	items := ask("go")
	for n := range 8 {
		items = append(items, round(n+1, "poll", "{}", "not yet")...)
	}
	items = append(items, round(9, "read", "{}", "yes")...)
	p := promptOf(append(items, ask("and?")...))
	got := SummaryPrompt(p, Settings{}, Compaction{Until: len(items)}, 1<<30)
	polls := 0
	for _, it := range got {
		if it.Kind == item.ToolCall && it.Name == "poll" {
			polls++
		}
	}
	if last := got[len(got)-1]; polls != 2 || last.Role != item.User || last.Text() != instruction {
		t.Errorf("%d calls are told, the last item is %+v", polls, last)
	}
	whole := SummaryPrompt(p, Settings{}, Compaction{Until: 3}, 1<<30)
	if !reflect.DeepEqual(whole[:3], items[:3]) {
		t.Error("without repetitions the begin is not the same as that of the run")
	}
}

func TestASummaryPromptFits(t *testing.T) {
	items := append([]item.Item{item.NewText(item.System, "be kind")}, ask("go")...)
	for n := range 50 {
		items = append(items, round(n+1, "read", fmt.Sprintf(`{"n":%d,"x":%q}`, n, text(50)), text(200))...)
	}
	p := promptOf(items)
	for _, limit := range []int64{20_000, 6_000, 2_000, 200} {
		got := SummaryPrompt(p, Settings{}, Compaction{Until: len(items)}, limit)
		if n := promptOf(got).Tokens; n > limit+1 || got[0].Text() != "be kind" {
			t.Errorf("limit %d: %d tokens, %d items", limit, n, len(got))
		}
		checkPairs(t, got)
	}
}

func TestLargestParts(t *testing.T) { // P51
	items := append([]item.Item{item.NewText(item.System, text(1_000))}, ask("hi")...)
	items = append(items, round(1, "read", "{}", text(300))...)
	p := promptOf(items)
	p.Overhead, p.Tokens = 8_000, p.Tokens+2_000
	got := Largest(p, 3)
	if len(got) != 3 || got[0].Name != "tool definitions" || got[1].Name != "system prompt" || got[2].Name != "results of read" || got[1].Tokens < 1_000 || got[1].Tokens > 1_010 {
		t.Errorf("%+v", got)
	}
}

func TestNetCost(t *testing.T) {
	usd := func(s string) *money.Rate { r, err := money.ParseRate(s); return must(t, &r, err) }
	price := money.Row{Model: "m", From: "2026-01-01", Listed: money.Listed{Input: usd("1"), CachedInput: usd("0.1"), Output: usd("5")}}.Price()
	c := Compaction{Before: 100_000, After: 50_000, Prefix: 10_000}
	// without it: 100,000 cached tokens, 0.01 USD; with it 10,000 cached and 40,000 fresh ones, 0.041 USD
	if got := c.NetCost(price, 100_000, 5_000_000); got != 36_000_000 {
		t.Errorf("%s USD", got)
	}
	if got := c.NetCost(money.Price{}, 100_000, 0); got != 0 {
		t.Errorf("without a price: %s USD", got)
	}
}

// checkPairs fails if a call has no result although one is somewhere, a result no call, or reasoning no turn after it.
func checkPairs(t *testing.T, items []item.Item) {
	t.Helper()
	open := map[string]int{}
	halves := map[string]int{}
	for i, it := range items {
		switch it.Kind {
		case item.ToolCall:
			open[it.CallID]++
		case item.ToolResult:
			if open[it.CallID]--; open[it.CallID] < 0 {
				t.Fatalf("item %d: a result of %s without its call", i, it.CallID)
			}
		case item.Reasoning:
			if i+1 == len(items) || it.Turn != 0 && items[i+1].Turn != it.Turn {
				t.Fatalf("item %d: reasoning without what follows it", i)
			}
		case item.Other:
			for _, id := range nativeIDs(it.Native.JSON) {
				halves[id]++
			}
		case item.Message:
		}
	}
	for id, n := range open {
		if n > 0 && !strings.HasPrefix(id, "open") {
			t.Fatalf("a call of %s has no result", id)
		}
	}
	for id, n := range halves {
		if n == 1 && strings.HasPrefix(id, "pair") {
			t.Fatalf("half of %s", id)
		}
	}
}

// randomItems returns a conversation: requests, turns with reasoning, parallel calls, calls of the provider's
// own tools, items that only a dialect knows, and ids that repeat.
func randomItems(r *rand.Rand, scale int) []item.Item {
	words := func(n int) string { return text(r.IntN(max(n, 1)) + 1) }
	native := func(format string, a ...any) item.Native {
		return item.Native{Dialect: "d", Provider: "p", JSON: json.RawMessage(fmt.Sprintf(format, a...)), Opaque: true}
	}
	var items []item.Item
	if r.IntN(3) > 0 {
		items = append(items, item.NewText(item.System, words(scale)))
	}
	turn, pair := 0, 0
	for range r.IntN(8) + 1 {
		items = append(items, item.NewText(item.User, words(scale)))
		if r.IntN(5) == 0 {
			items = append(items, item.NewText(item.Developer, words(10)))
		}
		if r.IntN(5) == 0 {
			pair++
			items = append(items, item.Item{Kind: item.Other, Native: native(`{"type":"computer_call","call_id":"pair%d"}`, pair)},
				item.Item{Kind: item.Other, Native: native(`{"type":"computer_call_output","call_id":"pair%d"}`, pair)})
		}
		if r.IntN(6) == 0 {
			items = append(items, item.Item{Kind: item.Other, Native: native(`{"type":"additional_tools","tools":[%d]}`, r.IntN(9))})
		}
		for range r.IntN(12) {
			turn++
			if r.IntN(2) == 0 {
				items = append(items, item.Item{Kind: item.Reasoning, Turn: turn, Native: native(`{"type":"reasoning","signature":"s%d%s"}`, turn, words(20))})
			}
			if r.IntN(4) == 0 {
				pair++
				items = append(items, item.Item{Kind: item.Other, Turn: turn, Native: native(`{"type":"server_tool_use","id":"pair%d"}`, pair)},
					item.Item{Kind: item.Other, Turn: turn, Native: native(`{"type":"web_search_tool_result","tool_use_id":"pair%d"}`, pair)})
			}
			if r.IntN(3) == 0 {
				items = append(items, item.Item{Kind: item.Message, Role: item.Assistant, Turn: turn, Parts: []item.Part{{Kind: item.Text, Text: words(scale)}}})
			}
			var ids []string
			for n := range r.IntN(4) {
				id := []string{"", "call_0", fmt.Sprintf("c%d.%d", turn, n)}[r.IntN(3)]
				c := item.NewCall(id, []string{"read", "write", "list"}[r.IntN(3)], fmt.Sprintf(`{"a":%q}`, words(scale/4)))
				c.Turn = turn
				items, ids = append(items, c), append(ids, id)
			}
			if len(ids) == 0 {
				items = append(items, item.Item{Kind: item.Message, Role: item.Assistant, Turn: turn, Parts: []item.Part{{Kind: item.Text, Text: words(scale)}}})
			}
			for _, id := range ids {
				res := item.NewResult(id, words(2*scale), r.IntN(9) == 0)
				if r.IntN(3) == 0 {
					res.Native = item.Native{Dialect: "d", JSON: json.RawMessage(`{"content":"x"}`)}
				}
				items = append(items, res)
			}
		}
	}
	if r.IntN(3) == 0 {
		items = append(items, item.NewText(item.User, words(scale)))
	}
	return items
}

// A compaction ends, splits nothing, and keeps every turn that is seen as it is. Below the threshold nothing changes.
func TestCompactionsOfRandomConversations(t *testing.T) { // I02 I10 I12 P51
	compactions, summaries := 0, 0
	for seed := range uint64(2_000) {
		r := rand.New(rand.NewPCG(seed, 7))
		window := int64(1_000) << r.IntN(11)
		items := randomItems(r, int(min(window, 20_000)/20)+1)
		s := Settings{Size: Size{Window: window}, Output: []int64{0, 100, window}[r.IntN(3)], PruneOnly: r.IntN(4) == 0}
		if r.IntN(4) == 0 {
			s.ExcludeTools = []string{"read"}
		}
		overhead := r.Int64N(window)
		prompt := func(items []item.Item) Prompt {
			n := Calibration{}.Estimate(Bytes(items) + overhead)
			return Prompt{Items: items, Overhead: overhead, Tokens: n, Cached: n}
		}
		limit := s.Size.Threshold(s.Output)
		checkPairs(t, items)
		for step := 0; ; step++ {
			p := prompt(items)
			before := slices.Clone(items)
			c := Plan(p, s)
			if c.Changes() && p.Tokens <= limit {
				t.Fatalf("seed %d: %d tokens are not above %d, and it plans %+v", seed, p.Tokens, limit, c)
			}
			if !c.Changes() {
				break
			}
			if step > 20 {
				t.Fatalf("seed %d: no end with %d tokens and a threshold of %d", seed, p.Tokens, limit)
			}
			compactions++
			if !Effective(c.Before, c.After) {
				t.Fatalf("seed %d: %+v frees less than a tenth", seed, c)
			}
			if c.Summarises() {
				summaries++
				asked := SummaryPrompt(p, s, c, limit)
				checkPairs(t, asked)
				c = c.WithSummary("summary", 2)
			}
			seen := View(items, c)
			checkView(t, seed, items, seen, c, s)
			if !reflect.DeepEqual(items, before) {
				t.Fatalf("seed %d: the items themselves have changed", seed)
			}
			items = seen
		}
	}
	if compactions < 500 || summaries < 100 {
		t.Errorf("only %d compactions, %d of them summaries, were tried", compactions, summaries)
	}
	t.Logf("%d compactions, %d summaries", compactions, summaries)
}

func checkView(t *testing.T, seed uint64, items, seen []item.Item, c Compaction, s Settings) {
	t.Helper()
	checkPairs(t, seen)
	names := callNames(items)
	shift := len(seen) - (len(items) - c.Until)
	for i := range items {
		kept := slices.Contains(c.Keep, i)
		switch {
		case i < c.Until && isInstruction(&items[i]) && !kept:
			t.Fatalf("seed %d: instruction %d is summarised", seed, i)
		case i < c.Until:
		case slices.Contains(c.Results, i):
			if items[i].Kind != item.ToolResult || slices.Contains(s.ExcludeTools, names[i]) || seen[i].IsError != items[i].IsError || seen[i].CallID != items[i].CallID {
				t.Fatalf("seed %d: item %d is pruned: %+v", seed, i, items[i])
			}
		case !reflect.DeepEqual(items[i], seen[i-c.Until+shift]):
			t.Fatalf("seed %d: item %d has changed", seed, i)
		}
	}
	if first := firstChange(items, c); first > 0 && !reflect.DeepEqual(items[:first], seen[:first]) {
		t.Fatalf("seed %d: the prefix has changed", seed)
	}
}

func firstChange(items []item.Item, c Compaction) int {
	if !c.Summarises() {
		return c.Results[0]
	}
	for i := range items[:c.Until] {
		if i >= len(c.Keep) || c.Keep[i] != i {
			return i
		}
	}
	return c.Until
}
