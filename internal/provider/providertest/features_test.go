package providertest

import (
	"strings"
	"testing"
)

// The proof of the table is only as good as this comparison.
func TestSends(t *testing.T) {
	const body = `{"a":{"list":[{"n":1,"m":null},{"n":2},"x"],"b":true}}`
	for want, sent := range map[string]bool{
		`{"n":1}`:                    true,
		`{"list":[{"n":1},{"n":2}]}`: true,
		`{"list":[{"n":1},"x"]}`:     true,
		`{"list":[]}`:                true,
		`{"b":null}`:                 true, // any value
		`"x"`:                        true,
		`{"list":[{"n":2},{"n":1}]}`: false, // another order
		`{"list":[{"n":1},{"n":1}]}`: false, // only once
		`{"n":1,"b":true}`:           false, // not in one object
		`{"m":null}`:                 false, // null is no value
		`{"n":"1"}`:                  false,
		`{"list":{}}`:                false,
	} {
		if got := sends(t, []byte(body), want); got != sent {
			t.Errorf("%s: %t", want, got)
		}
	}
}

// Every column has a cell in every row, and the table names no other column.
func TestTheTableIsComplete(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(FeatureTable()), "\n")
	if len(lines) != len(Features())+2 {
		t.Fatalf("%d lines for %d features", len(lines), len(Features()))
	}
	for _, line := range lines {
		if strings.Count(line, "|") != len(Columns())+2 {
			t.Errorf("%q", line)
		}
	}
	for _, f := range Features() {
		for c := range f.Support {
			if !strings.Contains(lines[0], string(c)) {
				t.Errorf("%s has the column %q, which the table has not", f.Name, c)
			}
		}
	}
}
