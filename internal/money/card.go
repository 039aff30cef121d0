package money

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
)

// Listed are rates as a price list states them. Nil = the list does not say.
type Listed struct {
	Input, CachedInput, CacheWrite, CacheWrite1h, Output *Rate
}

// IsZero reports whether the list says nothing.
func (l Listed) IsZero() bool { return l == Listed{} }

// full returns all rates. Cached and written input costs as much as other input where
// the list does not say, and writes for an hour as much as other writes.
func (l Listed) full() Rates {
	input := stated(l.Input, 0)
	write := stated(l.CacheWrite, input)
	return Rates{
		Input: input, CachedInput: stated(l.CachedInput, input), Output: stated(l.Output, 0),
		CacheWrite: write, CacheWrite1h: stated(l.CacheWrite1h, write),
	}
}

// beside returns all rates of calls that have other rates than base: with a long prompt,
// or in a service tier. Rates for cached and written input that the list does not state
// have the same relation to the input as in base.
func (l Listed) beside(base Rates) Rates {
	if l.IsZero() {
		return Rates{}
	}
	input := stated(l.Input, base.Input)
	in := func(rate *Rate, of Rate) Rate { return stated(rate, inProportion(of, input, base.Input)) }
	return Rates{
		Input: input, CachedInput: in(l.CachedInput, base.CachedInput), Output: stated(l.Output, base.Output),
		CacheWrite: in(l.CacheWrite, base.CacheWrite), CacheWrite1h: in(l.CacheWrite1h, base.CacheWrite1h),
	}
}

func stated(r *Rate, otherwise Rate) Rate {
	if r == nil {
		return otherwise
	}
	return *r
}

// inProportion returns rate × to ÷ from, rounded up, at most MaxRate.
func inProportion(rate, to, from Rate) Rate {
	if from <= 0 || rate <= 0 || to <= 0 {
		return max(rate, to, 0)
	}
	hi, lo := bits.Mul64(uint64(rate), uint64(to))
	lo, carry := bits.Add64(lo, uint64(from)-1, 0)
	if hi += carry; hi >= uint64(from) {
		return MaxRate
	}
	q, _ := bits.Div64(hi, lo, uint64(from))
	return Rate(min(q, uint64(MaxRate)))
}

// Row is one line of a rate card: the price of the models that it matches, from a date on.
type Row struct {
	Model    string // a name, also for dated versions of the model, or a pattern with * and ?: see [Match]
	Provider string // the name or the kind of a provider; "" = any
	From     Date

	Listed
	Above       Listed // with a prompt of more than AboveTokens
	AboveTokens int64
	Flex        Listed // with the service tier flex
	Priority    Listed // with the service tier priority
	GPUSecond   Nano
}

// Price returns the price of the row, with all rates.
func (r Row) Price() Price {
	base := r.full()
	p := Price{From: r.From, Rates: base, Flex: r.Flex.beside(base), Priority: r.Priority.beside(base), GPUSecond: r.GPUSecond}
	if r.AboveTokens > 0 {
		p.Above = LongPrompt{r.AboveTokens, r.Above.beside(base)}
	}
	return p
}

// Serves is a model that a provider serves.
type Serves struct {
	Provider string // its name
	Kind     string // the kind of its API, such as "anthropic"
	Model    string // the provider's name of the model
}

// Card is a list of prices. The zero value has none. A Card must not be changed after
// it is in use.
type Card struct {
	Rows []Row

	// Under is the card that is asked for a model that no row of this one matches; nil = none.
	Under *Card
}

// Find returns the row for a model on a date. Of the rows that match and hold on that
// date, the most specific counts:
//
//  1. the row with the longest name or pattern, without * and ?; a name before a pattern
//  2. a row with the provider's name, then one with its kind, then one without a provider
//  3. the row with the latest date
//  4. the last row
//
// A card is asked before the one under it.
func (c *Card) Find(s Serves, on Date) (Row, bool) {
	for ; c != nil; c = c.Under {
		best := -1
		for i, r := range c.Rows {
			if r.From.Compare(on) <= 0 && r.matches(s) && (best < 0 || r.compare(c.Rows[best], s) >= 0) {
				best = i
			}
		}
		if best >= 0 {
			return c.Rows[best], true
		}
	}
	return Row{}, false
}

// Price returns the price of a model on a date, or none.
func (c *Card) Price(s Serves, on Date) Price {
	row, ok := c.Find(s, on)
	if !ok {
		return Price{}
	}
	return row.Price()
}

func (r Row) matches(s Serves) bool {
	return r.rank(s) > 0 && (Match(r.Model, s.Model) || r.Model == undated(s.Model))
}

// undated returns a model's name without the date at its end: -2026-03-01, -20260301 or
// @20260301.
func undated(name string) string {
	for _, layout := range []string{"-2026-03-01", "-20260301", "@20260301"} {
		base, end := name[:max(len(name)-len(layout), 0)], name[max(len(name)-len(layout), 0):]
		if base == "" || end[0] != layout[0] {
			continue
		}
		day := end[1:]
		if len(day) == len("20260301") {
			day = day[:4] + "-" + day[4:6] + "-" + day[6:]
		}
		if Date(day).valid() {
			return base
		}
	}
	return name
}

// rank says how well the row names the provider: 3 by its name, 2 by its kind, 1 without
// naming one, 0 = it names another. A provider of the kind openai-responses serves the
// models of OpenAI too.
func (r Row) rank(s Serves) int {
	switch {
	case r.Provider == "":
		return 1
	case r.Provider == s.Provider:
		return 3
	case r.Provider == s.Kind, r.Provider == "openai" && s.Kind == "openai-responses":
		return 2
	}
	return 0
}

// compare returns whether r is less specific than, as specific as, or more specific than
// other. Both match.
func (r Row) compare(other Row, s Serves) int {
	return cmp.Or(
		cmp.Compare(specificity(r.Model), specificity(other.Model)),
		cmp.Compare(r.rank(s), other.rank(s)),
		r.From.Compare(other.From),
	)
}

// specificity of a name or pattern: the number of its characters that stand for
// themselves, and one more for a name.
func specificity(pattern string) int {
	n := len(pattern) - strings.Count(pattern, "*") - strings.Count(pattern, "?")
	if n == len(pattern) {
		n++
	}
	return n
}

// Match reports whether a name matches a pattern, in which * stands for any characters
// and ? for one.
func Match(pattern, name string) bool {
	star, from := -1, 0 // the last * of the pattern, and where what it stands for ends
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p, n = p+1, n+1
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// InEffect returns the rows that can be found on a date, those of this card before those
// of the card under it. A row of the other card with the same model and provider is left
// out, and so is a row with an earlier date than another.
func (c *Card) InEffect(on Date) []Row {
	var rows []Row
	for ; c != nil; c = c.Under {
		own := len(rows)
		for _, r := range c.Rows {
			if r.From.Compare(on) > 0 {
				continue
			}
			i := slices.IndexFunc(rows, func(o Row) bool { return o.Model == r.Model && o.Provider == r.Provider })
			switch {
			case i < 0:
				rows = append(rows, r)
			case i >= own && r.From.Compare(rows[i].From) >= 0:
				rows[i] = r
			}
		}
	}
	return rows
}
