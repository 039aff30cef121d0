package rates

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/money"
)

// MaxList is the size in bytes of the largest price list that is read.
const MaxList = 64 << 20

// Imported is a public price list.
type Imported struct {
	Form     string // the list's name: LiteLLM or models.dev
	Rows     []money.Row
	Unpriced int // models without a price of tokens that can be used
}

// Import reads a public price list: LiteLLM's model_prices_and_context_window.json or the
// api.json of models.dev. Members that it does not know are ignored. Providers get the
// names of their kinds here, where they have one; others keep the list's name. All rows
// hold from the date. They are in the order of provider and model.
func Import(data []byte, from money.Date) (Imported, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return Imported{}, fmt.Errorf("price list: not a JSON object: %w", err)
	}
	form, read := "LiteLLM", readLiteLLM
	for _, name := range slices.Sorted(maps.Keys(top)) {
		var provider struct{ Models map[string]json.RawMessage }
		if json.Unmarshal(top[name], &provider) == nil && provider.Models != nil {
			form, read = "models.dev", readModelsDev
			break
		}
	}
	list := Imported{Form: form}
	for _, name := range slices.Sorted(maps.Keys(top)) {
		rows, unpriced := read(name, top[name])
		list.Rows = append(list.Rows, rows...)
		list.Unpriced += unpriced
	}
	if len(list.Rows) == 0 {
		return Imported{}, errors.New("price list: no prices found; want LiteLLM's model_prices_and_context_window.json or the api.json of models.dev")
	}
	for i := range list.Rows {
		list.Rows[i].From = from
	}
	slices.SortStableFunc(list.Rows, func(a, b money.Row) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	list.Rows = slices.CompactFunc(list.Rows, func(a, b money.Row) bool { return a.Provider == b.Provider && a.Model == b.Model })
	return list, nil
}

// above is the end of LiteLLM's names of rates for long prompts.
var above = regexp.MustCompile(`^(.+)_above_([0-9]{1,6})k_tokens$`)

// readLiteLLM reads a model of LiteLLM's list, whose prices are in USD per token.
func readLiteLLM(name string, data json.RawMessage) (rows []money.Row, unpriced int) {
	var members map[string]json.RawMessage
	if name == "sample_spec" || json.Unmarshal(data, &members) != nil {
		return nil, 0
	}
	var provider string
	_ = json.Unmarshal(members["litellm_provider"], &provider)
	r := money.Row{Model: strings.TrimPrefix(name, provider+"/"), Provider: kindOf(provider)}
	if strings.ContainsAny(r.Model, "*?[]") {
		return nil, 1
	}
	r.AboveTokens = lowestThreshold(members)
	for member, value := range members {
		into := &r.Listed
		base, flex := strings.CutSuffix(member, "_flex")
		base, priority := strings.CutSuffix(base, "_priority")
		switch long := above.FindStringSubmatch(base); {
		case long != nil && (flex || priority || thresholdOf(long) != r.AboveTokens):
			continue // the price has one threshold, and none in a service tier
		case long != nil:
			base, into = long[1], &r.Above
		case flex:
			into = &r.Flex
		case priority:
			into = &r.Priority
		}
		if rate := liteLLMRate(into, base); rate != nil {
			*rate = rateOf(value, 1_000_000)
		}
	}
	return checked(r)
}

// liteLLMRate returns where a member of LiteLLM's list belongs; nil = nowhere.
func liteLLMRate(l *money.Listed, member string) **money.Rate {
	switch member {
	case "input_cost_per_token":
		return &l.Input
	case "cache_read_input_token_cost":
		return &l.CachedInput
	case "cache_creation_input_token_cost":
		return &l.CacheWrite
	case "cache_creation_input_token_cost_above_1hr":
		return &l.CacheWrite1h
	case "output_cost_per_token":
		return &l.Output
	}
	return nil
}

// lowestThreshold returns the lowest number of tokens above which the input has another
// price; 0 = none.
func lowestThreshold(members map[string]json.RawMessage) (lowest int64) {
	for member := range members {
		long := above.FindStringSubmatch(member)
		if len(long) == 0 || long[1] != "input_cost_per_token" {
			continue
		}
		if n := thresholdOf(long); lowest == 0 || n < lowest {
			lowest = n
		}
	}
	return lowest
}

func thresholdOf(match []string) int64 {
	n, _ := strconv.ParseInt(match[2], 10, 64) // it has at most 6 digits
	return n * 1000
}

// readModelsDev reads a provider of the list of models.dev, whose prices are in USD per
// million tokens.
func readModelsDev(name string, data json.RawMessage) (rows []money.Row, unpriced int) {
	type cost struct {
		Input, Output json.RawMessage
		CacheRead     json.RawMessage `json:"cache_read"`
		CacheWrite    json.RawMessage `json:"cache_write"`
	}
	var provider struct {
		Models map[string]struct {
			Cost struct {
				cost
				Long cost `json:"context_over_200k"`
			}
		}
	}
	if json.Unmarshal(data, &provider) != nil {
		return nil, 0
	}
	listed := func(c cost) money.Listed {
		return money.Listed{Input: rateOf(c.Input, 1), CachedInput: rateOf(c.CacheRead, 1), CacheWrite: rateOf(c.CacheWrite, 1), Output: rateOf(c.Output, 1)}
	}
	for _, id := range slices.Sorted(maps.Keys(provider.Models)) {
		c := provider.Models[id].Cost
		r := money.Row{Model: id, Provider: kindOf(name), Listed: listed(c.cost), Above: listed(c.Long)}
		if !r.Above.IsZero() {
			r.AboveTokens = 200_000
		}
		row, none := checked(r)
		rows, unpriced = append(rows, row...), unpriced+none
	}
	return rows, unpriced
}

// checked returns a row that can be used: with a price, and without parts of prices.
func checked(r money.Row) (rows []money.Row, unpriced int) {
	if r.Model == "" || r.Input == nil {
		return nil, 1
	}
	if r.Output == nil {
		if r.Output = new(money.Rate); *r.Input == 0 { // an embedding model, if its input costs something
			return nil, 1
		}
	}
	for _, part := range []*money.Listed{&r.Above, &r.Flex, &r.Priority} {
		switch {
		case part.Input == nil:
			*part = money.Listed{}
		case part.Output == nil:
			part.Output = r.Output
		}
	}
	if r.Above.IsZero() {
		r.AboveTokens = 0
	}
	return []money.Row{r}, 0
}

// rateOf returns the rate of a JSON number of USD per 1/times million tokens, with twelve
// digits, rounded up; nil for anything else and for negative numbers.
func rateOf(data json.RawMessage, times int64) *money.Rate {
	var f *float64
	if json.Unmarshal(data, &f) != nil || f == nil || *f < 0 {
		return nil
	}
	exact, ok := new(big.Rat).SetString(strconv.FormatFloat(*f, 'e', 11, 64))
	if !ok {
		return nil
	}
	exact.Mul(exact, big.NewRat(times*int64(money.PerMillion), 1))
	n := new(big.Int).Add(exact.Num(), new(big.Int).Sub(exact.Denom(), big.NewInt(1)))
	if n.Quo(n, exact.Denom()); !n.IsInt64() || n.Int64() > int64(money.MaxRate) {
		return nil
	}
	r := money.Rate(n.Int64())
	return &r
}

// kindOf returns the kind of a provider that the lists know by another name.
func kindOf(provider string) string {
	switch provider {
	case "google":
		return "gemini"
	case "amazon-bedrock", "bedrock_converse":
		return "bedrock"
	case "text-completion-openai":
		return "openai"
	}
	return provider
}

// Change is a row of a price list whose price is not the one in effect.
type Change struct {
	Was money.Price // not known = the model is new
	Row money.Row
}

// Changes returns the rows whose prices differ from those in effect on the date from
// which they hold.
func Changes(card *money.Card, rows []money.Row) (changes []Change) {
	for _, r := range rows {
		was, now := card.Price(money.Serves{Provider: r.Provider, Kind: r.Provider, Model: r.Model}, r.From), r.Price()
		same := was
		same.From = now.From
		if !was.Known() || same != now {
			changes = append(changes, Change{was, r})
		}
	}
	return changes
}
