package config

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/money"
)

const exampleRates = `# ours
- {model: "gpt-5.4*", provider: openai, from: 2026-03-01, input: 1.25, cached_input: 0.125, output: 10}
- model: "claude-*"
  provider: anthropic
  from: 2026-01-01
  input: 3
  cached_input: 0.30
  cache_write: 3.75
  cache_write_1h: 6
  output: 15
  above: {tokens: 200000, input: 6, output: 22.5}
- {model: local, provider: vllm, from: "2026-01-01", gpu_second: 0.0004}
- {model: tiny, from: 2026-01-01, input: 0.00001, output: 0, flex: {input: 0.000005, output: 0}, priority: {input: 1, output: 2}}
`

func TestReadRates(t *testing.T) {
	rows, err := ReadRates("rates.yaml", []byte(exampleRates))
	if err != nil {
		t.Fatal(err)
	}
	per := func(s string) *money.Rate {
		r, err := money.ParseRate(s)
		if err != nil {
			t.Fatal(err)
		}
		return &r
	}
	want := []money.Row{
		{Model: "gpt-5.4*", Provider: "openai", From: "2026-03-01", Listed: money.Listed{Input: per("1.25"), CachedInput: per("0.125"), Output: per("10")}},
		{Model: "claude-*", Provider: "anthropic", From: "2026-01-01",
			Listed:      money.Listed{Input: per("3"), CachedInput: per("0.3"), CacheWrite: per("3.75"), CacheWrite1h: per("6"), Output: per("15")},
			AboveTokens: 200_000, Above: money.Listed{Input: per("6"), Output: per("22.5")}},
		{Model: "local", Provider: "vllm", From: "2026-01-01", GPUSecond: 400_000},
		{Model: "tiny", From: "2026-01-01", Listed: money.Listed{Input: per("0.00001"), Output: per("0")},
			Flex: money.Listed{Input: per("0.000005"), Output: per("0")}, Priority: money.Listed{Input: per("1"), Output: per("2")}},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
	for _, nothing := range []string{"", "# no rows\n", "[]"} {
		if rows, err := ReadRates("rates.yaml", []byte(nothing)); err != nil || len(rows) != 0 {
			t.Errorf("%q: %v, %v", nothing, rows, err)
		}
	}
}

func TestMistakesInRates(t *testing.T) {
	const row = "- {model: m, from: 2026-01-01, "
	for text, want := range map[string]string{
		"a: 1":                              "r.yaml:1:1: found a map, want a list of maps with model, provider, from, above, flex, priority, gpu_second, input, cached_input, cache_write, cache_write_1h, output",
		"- 7":                               "r.yaml:1:3: [0]: found the number 7, want a map with model, provider,",
		"- {model: m, input: 1, output: 2}": "r.yaml:1:3: [0].from: is missing; want day such as 2026-03-01",
		"- {from: 2026-01-01, input: 1, output: 2}":                        "r.yaml:1:3: [0].model: is missing; want model name or pattern with * and ?",
		row + "input: 1, output: 2, prize: 3}":                             "r.yaml:1:53: [0].prize: unknown key; known here: model, provider, from",
		row + "inptu: 1, output: 2}":                                       "[0].inptu: unknown key; did you mean input?",
		row + "input: -1, output: 2}":                                      `r.yaml:1:39: [0].input: rate "-1": out of range: 0 to 1000000`,
		row + `input: "1", output: 2}`:                                     `r.yaml:1:39: [0].input: found text "1", want a number of USD per million tokens such as 1.25`,
		row + "input: 0.0000001, output: 2}":                               `[0].input: rate "0.0000001": too many decimals: at most 6`,
		row + "input: 1}":                                                  "[0].output: is missing beside input; a model without output has output: 0",
		row + "output: 1}":                                                 "[0].input: is missing beside the other rates",
		row + "provider: x}":                                               "r.yaml:1:3: [0]: has no price: want input and output, or gpu_second; a model that is free has input: 0 and output: 0",
		row + "gpu_second: 0}":                                             "[0].gpu_second: 0 is out of range (above 0, at most 1000)",
		row + "gpu_second: 1, above: {tokens: 1, input: 1}}":               "[0].above: needs input and output beside it",
		row + "input: 1, output: 2, above: {input: 2, output: 3}}":         "[0].above.tokens: is missing; want whole number (1..1000000000)",
		row + "input: 1, output: 2, above: {tokens: 0, input: 2}}":         "[0].above.tokens: 0 is out of range (1..1000000000)",
		row + "input: 1, output: 2, flex: {input: 2}}":                     "[0].flex: want input and output",
		row + "input: 1, output: 2, priority: {}}":                         "[0].priority: want input and output",
		"- {model: m, from: 2026-02-30, input: 1, output: 2}":              `r.yaml:1:20: [0].from: date "2026-02-30": not a day such as 2026-03-01`,
		"- {model: '', from: 2026-01-01, input: 1, output: 2}":             "[0].model: is empty; want a model name, or a pattern with * and ?",
		"- {model: 'gpt-[45]', from: 2026-01-01, input: 1, output: 2}":     `[0].model: "gpt-[45]": patterns may contain * and ?, not brackets`,
		"- {model: m, model: n, from: 2026-01-01, input: 1, output: 2}":    "[0].model: is given twice",
		row + "input: 1, output: 2}\n- {from: 2026-01-01}\n- {model: 1.5}": "r.yaml:2:3: [1].model: is missing",
	} {
		_, err := ReadRates("r.yaml", []byte(text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v\nwant %s", text, err, want)
		}
	}
}

func TestFormatRatesIsReadBack(t *testing.T) {
	rows, err := ReadRates("rates.yaml", []byte(exampleRates))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	some := func() *money.Rate {
		if r.IntN(3) == 0 {
			return nil
		}
		n := money.Rate(r.Int64N(int64(money.MaxRate)))
		return &n
	}
	all := func() money.Listed {
		in, out := money.Rate(r.Int64N(1000)), money.Rate(r.Int64N(1000))
		return money.Listed{Input: &in, CachedInput: some(), CacheWrite: some(), CacheWrite1h: some(), Output: &out}
	}
	for i := range 200 {
		row := money.Row{Model: strings.Repeat(`a"\*`, i%3+1), Provider: []string{"", "openai", "my provider: #1"}[i%3], From: "2026-12-31", Listed: all(), GPUSecond: money.Nano(r.Int64N(5))}
		if i%2 == 0 {
			row.AboveTokens, row.Above, row.Flex = 1+r.Int64N(1000), all(), all()
		}
		rows = append(rows, row)
	}
	back, err := ReadRates("rates.yaml", FormatRates(rows))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rows, back); diff != "" {
		t.Error(diff)
	}
}

func FuzzReadRates(f *testing.F) {
	f.Add([]byte(exampleRates))
	f.Add([]byte(`[{"model":"m","from":"2026-01-01","input":1e-5,"output":0}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := ReadRates("rates.yaml", data)
		if err != nil {
			return
		}
		for _, r := range rows {
			if !r.Price().Known() {
				t.Errorf("%+v is no price", r)
			}
		}
		back, err := ReadRates("rates.yaml", FormatRates(rows))
		if diff := cmp.Diff(rows, back); err != nil || diff != "" {
			t.Errorf("%v, %s", err, diff)
		}
	})
}
