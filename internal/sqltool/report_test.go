package sqltool

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// recorded returns the reports in testdata, by their names.
func recorded(t testing.TB) map[string]string {
	t.Helper()
	data, err := os.ReadFile("testdata/reports.txtar")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, part := range strings.Split(string(data), "\n-- ")[1:] {
		name, text, _ := strings.Cut(part, " --\n")
		out[name] = text
	}
	return out
}

// What a report names is found, whatever the names in the statement look like.
func TestReportsAreRead(t *testing.T) {
	all := recorded(t)
	for name, want := range map[string]string{
		"attribute": "[{call 3689}]",
		"hostile":   "[{call 870}]",
		"names":     "[]",
		"words":     "[]",
		"newline":   "[]",
		"window":    "[{sample 3313} {cast 318} {cast 669} {operator 664} {function 740} {call 2118} {operator 96} {operator 97} {range 4128}]",
		"compare":   "[{call 1067} {operator 97} {operator 97} {operator 96} {function 65}]",
	} {
		uses, err := readReport(all[name])
		got := map[use]int{}
		for _, u := range uses {
			got[u]++
		}
		for _, u := range strings.Split(strings.Trim(want, "[]{}"), "} {") {
			var one use
			if _, err := fmt.Sscan(u, &one.kind, &one.id); err == nil {
				got[one]--
			}
		}
		for u, n := range got {
			if n != 0 {
				t.Errorf("%s: %v, want %s: %v", name, uses, want, u)
				break
			}
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"broken":   "a name is too long",
		"user":     "current_user",
		"registry": "regclass",
	} {
		if uses, err := readReport(all[name]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", name, uses, err)
		}
	}
}

// A form that is not known is an error, which the model can understand.
func TestUnknownReportsAreRefused(t *testing.T) {
	attribute := recorded(t)["attribute"]
	for name, change := range map[string][2]string{
		"a node":                       {"{FUNCEXPR", "{NEWCALLEXPR"},
		"a field":                      {":funcid", ":callid"},
		"a field with a list":          {":funcvariadic false", ":calls (o 3689)"},
		"a field with a node":          {":funcvariadic false", ":call {CONST :consttype 23}"},
		"the kind of a call":           {":funcformat 0", ":funcformat 7"},
		"an id that is a name":         {":funcid 3689", ":funcid ts_stat"},
		"an id that is missing":        {":funcid 3689", ":funcid"},
		"a statement that writes":      {":query {QUERY\n:commandType 1", ":query {QUERY\n:commandType 3"},
		"a statement that is left out": {":utilityStmt\n{DECLARECURSORSTMT", ":utilityStmt ? :other {DECLARECURSORSTMT"},
		"a constant":                   {" [ ", " { "},
		"an end that is missing":       {"}", ""},
		"a bracket that is missing":    {")", ""},
		"a name that does not end":     {":stmt_len", "\\"},
	} {
		text := strings.Replace(attribute, change[0], change[1], 1)
		if name == "a name that does not end" {
			text = attribute[:strings.LastIndex(attribute, change[0])] + change[1]
		}
		uses, err := readReport(text)
		var refused *refusedError
		if text == attribute || !errors.As(err, &refused) {
			t.Errorf("%s: %v, %v", name, uses, err)
		}
	}
	for _, text := range []string{
		"", "{}", "?", attribute + "{QUERY :commandType 1}", strings.ReplaceAll(attribute, "DECLARECURSORSTMT", "QUERY"),
		"{QUERY :rtable " + strings.Repeat("(\n", 1_000_000), strings.Repeat("{QUERY :jointree\n", 1_000_000),
	} {
		if uses, err := readReport(text); err == nil {
			t.Errorf("%.40q: %v", text, uses)
		}
	}
}

func FuzzReadReport(f *testing.F) {
	for _, text := range recorded(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if uses, err := readReport(text); err == nil && !strings.Contains(text, "DECLARECURSORSTMT") {
			t.Errorf("read as %v", uses)
		}
	})
}
