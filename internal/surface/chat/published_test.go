package chat_test

import (
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/provider/anthropic"
	"github.com/turnpike-gateway/turnpike/internal/provider/bedrock"
	"github.com/turnpike-gateway/turnpike/internal/provider/gemini"
	"github.com/turnpike-gateway/turnpike/internal/provider/openai"
	"github.com/turnpike-gateway/turnpike/internal/provider/openairesponses"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/rates"
	"github.com/turnpike-gateway/turnpike/model"
)

// published are prices per million tokens as the providers publish them: input, cached
// input, writes to the cache for 5 minutes, output.
var published = map[string][4]string{
	"gpt-5": {"1.25", "0.125", "0", "10"}, "gpt-5-mini": {"0.25", "0.025", "0", "2"}, "gpt-5-nano": {"0.05", "0.005", "0", "0.4"},
	"gpt-5.5": {"5", "0.5", "0", "30"}, "gpt-4o": {"2.5", "1.25", "0", "10"}, "gpt-4o-mini": {"0.15", "0.075", "0", "0.6"},
	"gpt-4.1-nano": {"0.1", "0.025", "0", "0.4"}, "o4-mini": {"1.1", "0.275", "0", "4.4"},
	"claude-opus-4-6": {"5", "0.5", "6.25", "25"}, "claude-sonnet-5": {"2", "0.2", "2.5", "10"}, "claude-sonnet-4-6": {"3", "0.3", "3.75", "15"},
	"claude-sonnet-4-5": {"3", "0.3", "3.75", "15"}, "claude-sonnet-4-5-20250929": {"3", "0.3", "3.75", "15"}, "claude-sonnet-4-0": {"3", "0.3", "3.75", "15"},
	"claude-sonnet-4-20250514": {"3", "0.3", "3.75", "15"}, "claude-3-7-sonnet@20250219": {"3", "0.3", "3.75", "15"},
	"claude-3-5-sonnet-20240620": {"3", "0.3", "3.75", "15"}, "claude-haiku-4-5-20251001": {"1", "0.1", "1.25", "5"},
	"gemini-2.5-flash": {"0.3", "0.03", "0", "2.5"}, "gemini-2.5-pro": {"1.25", "0.125", "0", "10"}, "gemini-3-flash-preview": {"0.5", "0.05", "0", "3"},
	"gemini-3-pro-preview": {"2", "0.2", "0", "12"}, "gemini-2.0-flash": {"0.1", "0.025", "0", "0.4"}, "gemini-1.5-flash": {"0.075", "0.01875", "0", "0.3"},
	"us.amazon.nova-2-lite-v1:0": {"0.3", "0.075", "0", "2.5"}, "us.amazon.nova-micro-v1:0": {"0.035", "0.00875", "0", "0.14"}, "amazon.titan-text-express-v1": {"0.2", "0", "0", "0.6"},
	"us.anthropic.claude-sonnet-4-5-20250929-v1:0": {"3.3", "0.33", "4.125", "16.5"}, "us.anthropic.claude-haiku-4-5-20251001-v1:0": {"1.1", "0.11", "1.375", "5.5"},
	"us.anthropic.claude-3-7-sonnet-20250219-v1:0": {"3", "0.3", "3.75", "15"}, "us.anthropic.claude-sonnet-4-20250514-v1:0": {"3", "0.3", "3.75", "15"},
	"anthropic.claude-3-sonnet-20240229-v1:0": {"3", "0", "0", "15"},
}

// billed returns the tokens that a provider bills at each of the published prices, by the
// rules of its dialect, from the usage as it is on the wire.
func billed(dialect string, usage map[string]any) [4]int64 {
	n := func(path string) int64 {
		at := any(usage)
		for name := range strings.SplitSeq(path, ".") {
			inside, _ := at.(map[string]any)
			at = inside[name]
		}
		f, _ := at.(float64)
		return int64(f)
	}
	switch dialect {
	case "anthropic": // cached and written tokens are beside the input
		return [4]int64{n("input_tokens"), n("cache_read_input_tokens"), n("cache_creation_input_tokens"), n("output_tokens")}
	case "bedrock-converse": // as in anthropic
		return [4]int64{n("inputTokens"), n("cacheReadInputTokens"), n("cacheWriteInputTokens"), n("outputTokens")}
	case "gemini": // cached tokens are in the prompt, thoughts are beside the answer
		return [4]int64{n("promptTokenCount") - n("cachedContentTokenCount") + n("toolUsePromptTokenCount"), n("cachedContentTokenCount"), 0, n("candidatesTokenCount") + n("thoughtsTokenCount")}
	case "openai-chat": // cached tokens are in the prompt, reasoning in the answer
		return [4]int64{n("prompt_tokens") - n("prompt_tokens_details.cached_tokens"), n("prompt_tokens_details.cached_tokens"), 0, n("completion_tokens")}
	}
	return [4]int64{n("input_tokens") - n("input_tokens_details.cached_tokens"), n("input_tokens_details.cached_tokens"), 0, n("output_tokens")}
}

// What a recorded answer costs is what the provider's published rules say. The table and the rules
// here share no code with the rate card and with package money.
func TestTheCostOfEveryRecordingIsWhatTheProviderPublishes(t *testing.T) { // P41
	card, err := rates.Card(nil)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"anthropic": "anthropic", "bedrock-converse": "bedrock", "gemini": "gemini", "openai-chat": "openai", "openai-responses": "openai-responses"}
	priced := 0
	for dialect, kind := range kinds {
		for _, r := range providertest.Recordings(t, dialect) {
			var meta struct{ Provider, Model string }
			var expected struct{ Usage struct{ Raw map[string]any } }
			dir := filepath.Join(providertest.Root(t), dialect, r.Name)
			for name, into := range map[string]any{"meta.json": &meta, "expected.json": &expected} {
				data, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil || json.Unmarshal(data, into) != nil {
					t.Fatal(r.Name, err)
				}
			}
			prices, known := published[meta.Model]
			if r.Expected.Error != nil || expected.Usage.Raw == nil || !known {
				if r.Expected.Error == nil && expected.Usage.Raw != nil {
					t.Logf("%s/%s: no published price for %s of %s", dialect, r.Name, meta.Model, meta.Provider)
				}
				continue
			}
			e := providertest.Serve(t, providertest.Answer(r.Response.Status, r.Response.Headers, string(r.Body)))
			client := map[string]model.Model{
				"anthropic": anthropic.New(e, anthropic.Options{}), "bedrock-converse": bedrock.New(e, bedrock.Options{Region: "us-east-1"}),
				"gemini": gemini.New(e, gemini.Options{}), "openai-chat": openai.New(e, openai.Options{}), "openai-responses": openairesponses.New(e),
			}[dialect]
			turn, err := client.Stream(t.Context(), &model.Request{Model: meta.Model}, func(model.Delta) error { return nil })
			if err != nil {
				t.Errorf("%s/%s: %v", dialect, r.Name, err)
				continue
			}
			want := new(big.Rat)
			for i, tokens := range billed(dialect, expected.Usage.Raw) {
				price, _ := new(big.Rat).SetString(prices[i])
				want.Add(want, price.Mul(price, big.NewRat(tokens*1000, 1))) // USD per million tokens are 1,000 nano-USD per token
			}
			got := money.Cost(card.Price(money.Serves{Provider: "up", Kind: kind, Model: meta.Model}, rates.BuiltinDate), turn.Usage)
			if over := new(big.Rat).Sub(big.NewRat(int64(got), 1), want); over.Sign() < 0 || over.Cmp(big.NewRat(1, 1)) >= 0 || got == 0 {
				t.Errorf("%s/%s: %s costs %s USD, published %s nano-USD: %+v", dialect, r.Name, meta.Model, got, want.FloatString(3), turn.Usage)
			}
			priced++
		}
	}
	t.Logf("%d recordings", priced)
	if priced < 80 {
		t.Errorf("only %d recordings have a published price", priced)
	}
}
