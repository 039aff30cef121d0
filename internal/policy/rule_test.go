package policy

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
)

// CONTAINS, STARTS_WITH, MATCHES and IN, with and without NOT. // H17
func TestRulesHold(t *testing.T) {
	const object = `{"sql":"DROP TABLE orders","n":12,"on":true,"filter":{"owner":"ann"},"files":[{"name":"a.txt"}],"none":null,"tags":["x","y"],"empty":"","html":"<b>"}`
	for rule, want := range map[string]bool{
		`sql CONTAINS DROP TABLE`:                true,
		`sql CONTAINS "DROP TABLE"`:              true,
		`sql CONTAINS drop`:                      false, // with its case
		`sql NOT CONTAINS DROP`:                  false,
		`sql STARTS_WITH DROP`:                   true,
		`sql STARTS_WITH TABLE`:                  false,
		`sql NOT STARTS_WITH SELECT`:             true,
		`sql MATCHES (?i)drop\s+table`:           true,
		`sql MATCHES ^TABLE`:                     false,
		`sql NOT MATCHES ^SELECT`:                true,
		`n IN [11, 12]`:                          true,
		`n IN ["12"]`:                            true,
		`n NOT IN [1,2]`:                         true,
		`on IN [true]`:                           true,
		`filter.owner IN ["ann","bob"]`:          true,
		`files.0.name STARTS_WITH a.`:            true,
		`files.1.name STARTS_WITH a.`:            false,
		`files.-1.name STARTS_WITH a.`:           false,
		`filter CONTAINS "owner\":\"ann"`:        true,
		`tags CONTAINS ["x",`:                    true,
		`html CONTAINS <b>`:                      true,
		`missing CONTAINS x`:                     false,
		`missing NOT CONTAINS x`:                 true,
		`none MATCHES .*`:                        false,
		`none NOT MATCHES .*`:                    true,
		`empty MATCHES ^$`:                       true,
		"\t sql   CONTAINS   DROP  TABLE \n":     false, // the spaces inside the value count
		`sql  NOT  IN ["DROP TABLE orders","x"]`: false,
	} {
		r, err := ParseRule(rule)
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		if got, err := r.Holds([]byte(object)); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", rule, got, err, want)
		}
	}
}

// A number is the same number in every form, and only then. // H17
func TestRulesCompareNumbersByTheirValue(t *testing.T) {
	for _, c := range []struct {
		rule, number string
		want         bool
	}{
		{`n IN [1, 2]`, `1.0`, true},
		{`n IN [1, 2]`, `2.00`, true},
		{`n IN [1, 2]`, `10e-1`, true},
		{`n IN [1, 2]`, `0.1E+1`, true},
		{`n IN [1e0]`, `1`, true},
		{`n IN [0]`, `-0.0e5`, true},
		{`n IN [100]`, `1e2`, true},
		{`n IN [0.05]`, `5e-2`, true},
		{`n IN [-12.5]`, `-1250e-2`, true},
		{`n IN ["1"]`, `1.0`, true},
		{`n IN [9007199254740993]`, `9007199254740992`, false},
		{`n IN [1]`, `1.0000000000000000000000001`, false},
		{`n IN [1]`, `-1`, false},
		{`n MATCHES ^100$`, `1e2`, true},
		{`n MATCHES ^100$`, `100.0`, true},
		{`n CONTAINS e`, `1e2`, false},
		{`n CONTAINS [100,`, `[1e2, 5]`, true},
		{`n.a.0 STARTS_WITH 0.00`, `{"a": [1.5e-3]}`, true},
	} {
		r, err := ParseRule(c.rule)
		if err != nil {
			t.Fatalf("%s: %v", c.rule, err)
		}
		if got, err := r.Holds([]byte(`{"n":` + c.number + `}`)); got != c.want || err != nil {
			t.Errorf("%s on %s: %v, %v; want %v", c.rule, c.number, got, err, c.want)
		}
	}
}

// FuzzDecimal compares the one form of numbers with exact rational numbers.
func FuzzDecimal(f *testing.F) {
	for _, seed := range []string{"0", "-0.0", "1e2", "100.50", "1e-3", "-12.5E+3", "1e999999999", "1e9999999999999999999", "9007199254740993", "0.000e7"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, number string) {
		if !regexp.MustCompile(`^-?(0|[1-9][0-9]{0,400})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?$`).MatchString(number) {
			_, _ = decimal(number)
			return
		}
		text, err := decimal(number)
		if err != nil {
			return // longer than a rule may have
		}
		want, _ := new(big.Rat).SetString(number)
		if got, ok := new(big.Rat).SetString(text); !ok || got.Cmp(want) != 0 {
			t.Errorf("%s became %s", number, text)
		}
		if again, err := decimal(text); again != text || err != nil {
			t.Errorf("%s became %s, then %s, %v", number, text, again, err)
		}
	})
}

// A typo is refused when the rule is read, with the words that are wrong. // H18
func TestRulesThatAreRefused(t *testing.T) {
	for rule, want := range map[string]string{
		``:                       `"" is not a field`,
		`sql`:                    `"" is not an operator`,
		`sql contains x`:         `"contains" is not an operator`,
		`sql CONTAIN x`:          `"CONTAIN" is not an operator`,
		`sql NOT`:                `"" is not an operator`,
		`sql NOT NOT CONTAINS x`: `"NOT" is not an operator`,
		`sql CONTAINS`:           `the value after CONTAINS is missing`,
		`sql CONTAINS ""`:        `is empty`,
		`sql CONTAINS "x`:        `not a JSON string`,
		`sql CONTAINS "x" y`:     `not a JSON string`,
		`sql MATCHES (`:          `not a regular expression`,
		`sql MATCHES ` + strings.Repeat("é", 501): `more than 500 characters`,
		`sql IN x`:         `must be a JSON list`,
		`sql IN []`:        `must be a JSON list`,
		`sql IN ["a"] x`:   `must be a JSON list`,
		`sql IN [null]`:    `only strings, numbers and booleans`,
		`sql IN [1e2000]`:  `more than 1000 digits`,
		`$.sql CONTAINS x`: `is not a field`,
		`a..b CONTAINS x`:  `is not a field`,
		`sql CONTAINS ` + strings.Repeat("x", 4_100): `more than 4096 bytes`,
	} {
		if _, err := ParseRule(rule); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", rule, err, want)
		}
	}
	if _, err := ParseRule(`sql MATCHES ` + strings.Repeat("é", 500)); err != nil {
		t.Error(err)
	}
}

// What cannot be checked is an error, so that the caller denies. // H19
func TestWhatARuleCannotCheck(t *testing.T) {
	r, err := ParseRule(`a NOT MATCHES x`)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("é", MaxRuleInput)
	for object, bad := range map[string]bool{
		`{"a":"` + long + `"}`:  false,
		`{"a":"` + long + `é"}`: true,
		`{"a":`:                 true,
		`[]`:                    true,
		`"a"`:                   true,
		`{}`:                    false,
		`{"a":1e999999999}`:     true,
	} {
		if held, err := r.Holds([]byte(object)); (err != nil) != bad || held != (err == nil) {
			t.Errorf("%.20s: %v, %v", object, held, err)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	f.Add(`sql NOT CONTAINS "DROP"`, `{"sql":"DROP"}`)
	f.Add(`a.0.b IN [1,"x",true]`, `{"a":[{"b":1}]}`)
	f.Add(`a MATCHES (a*)*$`, `{"a":"aaaa"}`)
	f.Fuzz(func(t *testing.T, rule, object string) {
		r, err := ParseRule(rule)
		if err != nil {
			return
		}
		held, err := r.Holds([]byte(object))
		r.not = !r.not
		other, again := r.Holds([]byte(object))
		if (err == nil) != (again == nil) || err == nil && held == other {
			t.Errorf("%q on %q: %v, %v, and with NOT %v, %v", rule, object, held, err, other, again)
		}
	})
}
