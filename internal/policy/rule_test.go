package policy

import (
	"strings"
	"testing"
)

// H17: CONTAINS, STARTS_WITH, MATCHES and IN, with and without NOT.
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

// H18: a typo is refused when the rule is read, with the words that are wrong.
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

// H19: what cannot be checked is an error, so that the caller denies.
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
