package rates

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/money"
)

func card(t testing.TB, own ...money.Row) *money.Card {
	t.Helper()
	c, err := Card(own)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each row can be found: none is hidden by another one.
func TestTheBuiltInCard(t *testing.T) { // P41
	c := card(t)
	for _, r := range c.Under.Rows {
		name := strings.NewReplacer("*", "").Replace(r.Model)
		got, ok := c.Find(money.Serves{Kind: r.Provider, Model: name}, BuiltinDate)
		if !ok || got.Model != r.Model || got.From.Compare(r.From) < 0 {
			t.Errorf("%s of %s finds %+v", name, r.Provider, got)
		}
		p := r.Price()
		if r.From.Compare(BuiltinDate) > 0 || (p.Input == 0) != strings.HasPrefix(r.Model, "omni-moderation") || p.CachedInput > p.Input || p.CacheWrite < p.Input || p.CacheWrite1h < p.CacheWrite {
			t.Errorf("%s of %s: implausible price %+v", r.Model, r.Provider, p)
		}
		if r.AboveTokens > 0 && (p.Above.Input <= p.Input || p.Above.Output <= p.Output) || p.Flex.Input > p.Input {
			t.Errorf("%s of %s: implausible price %+v", r.Model, r.Provider, p)
		}
	}
	for _, kind := range []string{"openai", "anthropic", "gemini", "bedrock"} {
		if !strings.Contains(string(builtin), "provider: "+kind) {
			t.Errorf("no model of %s", kind)
		}
	}
	if !strings.Contains(string(builtin), "last compared on "+string(BuiltinDate)+".") {
		t.Error("the file and BuiltinDate have different dates")
	}
}

func imported(t *testing.T, file string) Imported {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	list, err := Import(data, "2026-12-01")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestImport(t *testing.T) {
	for _, c := range []struct {
		file, form, want string
		unpriced         int
	}{
		{"litellm.json", "LiteLLM", `- {model: "claude-sonnet-4-5", provider: "anthropic", from: 2026-12-01, input: 3, cached_input: 0.3, cache_write: 3.75, cache_write_1h: 6, output: 15, above: {tokens: 200000, input: 6, cache_write_1h: 12, output: 22.5}}
- {model: "us.amazon.nova-pro-v1:0", provider: "bedrock", from: 2026-12-01, input: 0.8, output: 3.2}
- {model: "gemini-2.5-flash", provider: "gemini", from: 2026-12-01, input: 0.4, output: 2.5}
- {model: "tiny", provider: "groq", from: 2026-12-01, input: 0.000013, output: 0.000001}
- {model: "fireworks-ai-default", provider: "fireworks_ai", from: 2026-12-01, input: 0, output: 0}
- {model: "gpt-5.4", provider: "openai", from: 2026-12-01, input: 2.5, cached_input: 0.25, output: 15, above: {tokens: 272000, input: 5, cached_input: 0.5, output: 22.5}, flex: {input: 1.25, cached_input: 0.13, output: 7.5}, priority: {input: 5, output: 30}}
- {model: "text-embedding-3-small", provider: "openai", from: 2026-12-01, input: 0.02, output: 0}
`, 3},
		{"modelsdev.json", "models.dev", `- {model: "global.anthropic.claude-opus-4-6-v1", provider: "bedrock", from: 2026-12-01, input: 5, cached_input: 0.5, cache_write: 6.25, output: 25}
- {model: "gemini-2.5-flash", provider: "gemini", from: 2026-12-01, input: 0.3, cached_input: 0.03, output: 2.5}
- {model: "gpt-5.4", provider: "openai", from: 2026-12-01, input: 2.5, cached_input: 0.25, output: 15, above: {tokens: 200000, input: 5, cached_input: 0.5, output: 22.5}}
- {model: "new", provider: "openai", from: 2026-12-01, input: 0.07, output: 0.3}
`, 1},
	} {
		list := imported(t, c.file)
		rows := strings.Split(string(config.FormatRates(list.Rows)), "\n")
		want := strings.Split(c.want, "\n")
		if diff := cmp.Diff(sorted(want), sorted(rows)); diff != "" {
			t.Error(c.file, diff)
		}
		if list.Form != c.form || list.Unpriced != c.unpriced {
			t.Errorf("%s: form %q, %d without a price", c.file, list.Form, list.Unpriced)
		}
	}
	for _, bad := range []string{"", "[]", "7", "{}", `{"a":{"b":1}}`, `{"a":{"models":{}}}`} {
		if list, err := Import([]byte(bad), "2026-12-01"); err == nil {
			t.Errorf("%q is read as %+v", bad, list)
		}
	}
}

func sorted(lines []string) map[string]bool {
	set := map[string]bool{}
	for _, l := range lines {
		set[l] = true
	}
	return set
}

func TestChanges(t *testing.T) {
	var got []string
	list := imported(t, "litellm.json")
	for _, c := range Changes(card(t), list.Rows) {
		got = append(got, c.Row.Model+" "+c.Was.Input.String()+" "+c.Row.Input.String())
	}
	want := []string{"us.amazon.nova-pro-v1:0 0.8 0.8", "gemini-2.5-flash 0.3 0.4", "tiny 0 0.000013", "fireworks-ai-default 0 0", "gpt-5.4 2.5 2.5"}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" { // gpt-5.4 and nova-pro: cached input
		t.Error(diff)
	}
	if again := Changes(card(t, list.Rows...), list.Rows); len(again) != 0 {
		t.Errorf("an imported list differs from itself: %+v", again)
	}
}

func FuzzImport(f *testing.F) {
	for _, name := range []string{"litellm.json", "modelsdev.json"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Import(data, "2026-12-01")
		if err != nil {
			return
		}
		if _, err := config.ReadRates("rates.yaml", config.FormatRates(list.Rows)); err != nil {
			t.Error(err)
		}
	})
}
