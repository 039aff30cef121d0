package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// budgets is a list of budgets, which the management API reads and writes as a whole.
type budgets struct{ objects[org.Budget] }

func budgetList(into *[]org.Budget, keys func(*org.Budget) []key) budgets {
	return budgets{objects[org.Budget]{into, keys}}
}

// budgetKeys are the settings of a budget of an org.
func budgetKeys(b *org.Budget) []key {
	return append([]key{
		{name: "scope", value: word(&b.Scope, "org", "org", "key", "end_user"),
			doc: "org: all model calls of the org. key: those of each key, which has a budget of its own. end_user: those of each end user, whom a request names in safety_identifier, or else in user."},
	}, periodKeys(b)...)
}

// periodKeys are the settings of a budget whose scope is known.
func periodKeys(b *org.Budget) []key {
	return []key{
		{name: "period", value: word(&b.Period, "", "day", "month", "total"), required: true, doc: "Period after which the budget begins anew, in UTC. total: never."},
		{name: "usd", value: dollars(&b.NanoUSD), doc: "Maximum cost in US dollars. Models without a price are refused."},
		{name: "tokens", value: tokenCount(&b.Tokens), doc: "Maximum tokens: input and output."},
	}
}

func (b budgets) json() any {
	all := make([]Settings, len(*b.into))
	for i := range *b.into {
		all[i] = settingsOf(b.keys(&(*b.into)[i]))
	}
	return all
}

func (b budgets) shown() string {
	var all []string
	for _, one := range *b.into {
		text := strings.TrimSpace(one.Scope + " " + one.Period)
		if one.NanoUSD > 0 {
			text += " " + money.Nano(one.NanoUSD).String() + " USD"
		}
		if one.Tokens > 0 {
			text += fmt.Sprintf(" %d tokens", one.Tokens)
		}
		all = append(all, text)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// checkBudgets reports budgets without a limit, and a second one for the same calls.
func (d *decoder) checkBudgets(path string, all []org.Budget) {
	seen := map[string]bool{}
	for i, b := range all {
		at := fmt.Sprintf("%s[%d]", path, i)
		if b.NanoUSD == 0 && b.Tokens == 0 {
			d.failPath(at, "limits nothing; set usd, tokens or both")
		}
		if name := b.Scope + " " + b.Period; seen[name] {
			d.failPath(join(at, "period"), "is that of another budget of the same scope; put both limits in one")
		} else {
			seen[name] = true
		}
	}
}

// dollars is an amount of US dollars that is kept in 10⁻⁹ US dollars; 0 = none is given.
func dollars(into *int64) scalar[int64] {
	const want = "US dollars above 0, with at most 9 decimals"
	show := func(n int64) string {
		if n == 0 {
			return "unset"
		}
		return money.Nano(n).String()
	}
	return scalar[int64]{
		into: into, typ: want, show: show, said: "no limit",
		wire: func(n int64) any {
			if n == 0 {
				return unset{}
			}
			return number(money.Nano(n).String())
		},
		parse: func(r raw) (int64, error) {
			text := r.text
			switch r.kind {
			case isNumber: // YAML has read it already, perhaps as a number with an exponent
				f, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return 0, wrongType(r, want)
				}
				text = strconv.FormatFloat(f, 'f', -1, 64)
			case isText, isLoose:
			case isBool, isNull, isList, isMap, isAlias, isOther:
				return 0, wrongType(r, want)
			}
			n, err := money.ParseUSD(text)
			if err != nil || n <= 0 {
				return 0, fmt.Errorf("found %s, want %s", r, want)
			}
			return int64(n), nil
		},
	}
}

// price is an amount of US dollars, 0 included; nil = none is given.
func price(into **int64) scalar[*int64] {
	return scalar[*int64]{
		into: into, typ: wantPrice, said: "free",
		show: func(n *int64) string {
			if n == nil {
				return "unset"
			}
			return money.Nano(*n).String()
		},
		wire: func(n *int64) any {
			if n == nil {
				return unset{}
			}
			return number(money.Nano(*n).String())
		},
		parse: func(r raw) (*int64, error) {
			n, err := parsePrice(r)
			return &n, err
		},
	}
}

const wantPrice = "US dollars from 0, with at most 9 decimals"

func parsePrice(r raw) (int64, error) {
	text := r.text
	switch r.kind {
	case isNumber: // YAML has read it already, perhaps as a number with an exponent
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, wrongType(r, wantPrice)
		}
		text = strconv.FormatFloat(f, 'f', -1, 64)
	case isText, isLoose:
	case isBool, isNull, isList, isMap, isAlias, isOther:
		return 0, wrongType(r, wantPrice)
	}
	n, err := money.ParseUSD(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("found %s, want %s", r, wantPrice)
	}
	return int64(n), nil
}

// prices are amounts of US dollars by the names of tools.
type prices struct{ into *map[string]int64 }

func (p prices) reset()              { *p.into = nil }
func (p prices) typeName() string    { return "map of tool names to " + wantPrice }
func (p prices) defaultText() string { return "{}" }
func (p prices) shown() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(*p.into)) {
		all = append(all, name+": "+money.Nano((*p.into)[name]).String())
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func (p prices) json() any {
	out := make(map[string]number, len(*p.into))
	for name, n := range *p.into {
		out[name] = number(money.Nano(n).String())
	}
	return out
}

func (p prices) decode(d *decoder, path string, n ast.Node) {
	found := map[string]int64{}
	d.entriesAnyName(path, n, "a "+p.typeName(), func(at string, e entry) {
		price, err := parsePrice(rawOf(e.value))
		switch nameErr := checkWord(e.name); {
		case nameErr != nil:
			d.failNode(e.key, at, "%v", nameErr)
		case err != nil:
			d.failNode(e.value, at, "%v", err)
		default:
			found[e.name] = price
			d.where[join(path, e.name)] = originOf(e.value)
		}
	})
	if len(found) > 0 {
		*p.into = found
	}
}

// number is a JSON number that is written as it is.
type number string

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) { return []byte(n), nil }

// tokenCount is a number of tokens; 0 = none is given.
func tokenCount(into *int64) scalar[int64] {
	const most = math.MaxInt32
	s := numberOf(into, 1, 0, 1, most)
	s.said = "no limit"
	s.show = func(n int64) string {
		if n == 0 {
			return "unset"
		}
		return strconv.FormatInt(n, 10)
	}
	s.wire = func(n int64) any {
		if n == 0 {
			return unset{}
		}
		return n
	}
	return s
}
