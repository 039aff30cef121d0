package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/turnpike-gateway/turnpike/internal/money"
)

// ReadRates reads the rows of a rate card; name stands for its file in messages. The
// *[Error] holds every mistake. An empty file has no rows.
func ReadRates(name string, data []byte) ([]money.Row, error) {
	d := &decoder{file: name, where: map[string]origin{}}
	var rows []money.Row
	root := d.tree(data)
	if _, ok := root.(*ast.SequenceNode); root != nil && !ok {
		d.failNode(root, "", "found %s, want a list of maps with %s", rawOf(root), strings.Join(names(rateKeys(new(money.Row))), ", "))
	} else if root != nil {
		objects[money.Row]{&rows, rateKeys}.decode(d, "", root)
		for i := range rows {
			d.checkRate(fmt.Sprintf("[%d]", i), &rows[i])
		}
	}
	if len(rows) == 0 {
		rows = nil
	}
	return rows, newError(d.mistakes)
}

// rateKeys are the keys of a row of a rate card.
func rateKeys(r *money.Row) []key {
	return append([]key{
		{name: "model", required: true, value: text(&r.Model, "", "model name or pattern with * and ?", checkRateModel)},
		{name: "provider", value: text(&r.Provider, "", "name or kind of a provider", anyText)},
		{name: "from", required: true, value: date(&r.From)},
		{name: "above", value: object{append([]key{
			{name: "tokens", required: true, value: numberOf(&r.AboveTokens, 1, 0, 1, 1_000_000_000)},
		}, listedKeys(&r.Above)...)}},
		{name: "flex", value: object{listedKeys(&r.Flex)}},
		{name: "priority", value: object{listedKeys(&r.Priority)}},
		{name: "gpu_second", value: usdPerSecond(&r.GPUSecond)},
	}, listedKeys(&r.Listed)...)
}

func listedKeys(l *money.Listed) []key {
	return []key{
		{name: "input", value: rate(&l.Input)}, {name: "cached_input", value: rate(&l.CachedInput)},
		{name: "cache_write", value: rate(&l.CacheWrite)}, {name: "cache_write_1h", value: rate(&l.CacheWrite1h)},
		{name: "output", value: rate(&l.Output)},
	}
}

func checkRateModel(s string) error {
	switch {
	case s == "":
		return errors.New("is empty; want a model name, or a pattern with * and ?")
	case strings.ContainsAny(s, "[]"):
		return fmt.Errorf("%s: patterns may contain * and ?, not brackets", quote(s))
	}
	return nil
}

// checkRate compares the keys of a row.
func (d *decoder) checkRate(path string, r *money.Row) {
	switch {
	case r.Input == nil && r.Output == nil && r.GPUSecond == 0:
		d.failPath(path, "has no price: want input and output, or gpu_second; a model that is free has input: 0 and output: 0")
	case r.Input == nil && (r.Output != nil || !r.Listed.IsZero()):
		d.failPath(path+".input", "is missing beside the other rates")
	case r.Input != nil && r.Output == nil:
		d.failPath(path+".output", "is missing beside input; a model without output has output: 0")
	}
	for _, part := range []struct {
		name string
		l    money.Listed
	}{{"above", r.Above}, {"flex", r.Flex}, {"priority", r.Priority}} {
		at := path + "." + part.name
		if _, given := d.where[at]; !given {
			continue
		}
		switch {
		case r.Input == nil:
			d.failPath(at, "needs input and output beside it")
		case part.l.Input == nil || part.l.Output == nil:
			d.failPath(at, "want input and output")
		}
	}
}

// rate is a key with a price of tokens.
func rate(into **money.Rate) scalar[*money.Rate] {
	const want = "a number of USD per million tokens such as 1.25"
	return scalar[*money.Rate]{
		into: into, typ: "USD per million tokens", show: func(r *money.Rate) string {
			if r == nil {
				return "unset"
			}
			return r.String()
		},
		parse: func(r raw) (*money.Rate, error) {
			text, err := decimalOf(r, want)
			if err != nil {
				return nil, err
			}
			parsed, err := money.ParseRate(text)
			return &parsed, err
		},
	}
}

// usdPerSecond is a key with a price of time.
func usdPerSecond(into *money.Nano) scalar[money.Nano] {
	return scalar[money.Nano]{into: into, typ: "USD per second", show: money.Nano.String, parse: func(r raw) (money.Nano, error) {
		text, err := decimalOf(r, "a number of USD per second such as 0.0004")
		if err != nil {
			return 0, err
		}
		n, err := money.ParseUSD(text)
		if err == nil && (n <= 0 || n > 1000*money.USD) {
			err = fmt.Errorf("%s is out of range (above 0, at most 1000)", text)
		}
		return n, err
	}}
}

// decimalOf returns a number without an exponent.
func decimalOf(r raw, want string) (string, error) {
	if r.kind != isNumber {
		return "", wrongType(r, want)
	}
	if !strings.ContainsAny(r.text, "eE") {
		return r.text, nil
	}
	f, err := strconv.ParseFloat(r.text, 64)
	if err != nil {
		return "", wrongType(r, want)
	}
	return strconv.FormatFloat(f, 'f', -1, 64), nil
}

// date is a key with a day.
func date(into *money.Date) scalar[money.Date] {
	return text(into, "", "day such as 2026-03-01", func(s string) error {
		_, err := money.ParseDate(s)
		return err
	})
}

// FormatRates writes rows as ReadRates reads them, one in a line.
func FormatRates(rows []money.Row) []byte {
	var b strings.Builder
	for _, r := range rows {
		fields := []string{"model: " + yamlText(r.Model)}
		if r.Provider != "" {
			fields = append(fields, "provider: "+yamlText(r.Provider))
		}
		fields = append(append(fields, "from: "+string(r.From)), listedFields(r.Listed)...)
		if r.AboveTokens > 0 {
			fields = append(fields, fmt.Sprintf("above: {tokens: %d, %s}", r.AboveTokens, strings.Join(listedFields(r.Above), ", ")))
		}
		if !r.Flex.IsZero() {
			fields = append(fields, "flex: {"+strings.Join(listedFields(r.Flex), ", ")+"}")
		}
		if !r.Priority.IsZero() {
			fields = append(fields, "priority: {"+strings.Join(listedFields(r.Priority), ", ")+"}")
		}
		if r.GPUSecond > 0 {
			fields = append(fields, "gpu_second: "+r.GPUSecond.String())
		}
		b.WriteString("- {" + strings.Join(fields, ", ") + "}\n")
	}
	return []byte(b.String())
}

func listedFields(l money.Listed) (fields []string) {
	for _, f := range []struct {
		name string
		rate *money.Rate
	}{{"input", l.Input}, {"cached_input", l.CachedInput}, {"cache_write", l.CacheWrite}, {"cache_write_1h", l.CacheWrite1h}, {"output", l.Output}} {
		if f.rate != nil {
			fields = append(fields, f.name+": "+f.rate.String())
		}
	}
	return fields
}

// yamlText quotes a text. Every text that is quoted for JSON is YAML.
func yamlText(s string) string { return strconv.Quote(s) }
