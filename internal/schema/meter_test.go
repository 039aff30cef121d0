package schema

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// doubling returns a schema in which each of the levels references the next one twice.
// The last is end.
func doubling(levels int, end string) string {
	var b strings.Builder
	b.WriteString(`{"type":"object","$ref":"#/$defs/a0","$defs":{`)
	for i := range levels {
		fmt.Fprintf(&b, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"a%d":%s}}`, levels, end)
	return b.String()
}

// A validation that takes too much time or memory is stopped, and the arguments
// are refused. // P06 P07
func TestCostlyValidationIsStopped(t *testing.T) {
	names := make([]string, 8000)
	for i := range names {
		names[i] = fmt.Sprintf("%x", i)
	}
	required, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	object := func(x string) string { return `{"type":"object","properties":{"x":` + x + `}}` }
	list := func(v string, n int) string { return `{"x":[` + strings.Repeat(v+",", n) + v + `]}` }
	for _, tt := range []struct{ name, schema, value string }{
		{"references that double", doubling(60, `{}`), `{}`},
		{"references that double, to a failure", doubling(60, `{"not":{}}`), `{}`},
		{"references that double in the oldest draft", `{"$schema":"http://json-schema.org/draft-04/schema#",` + doubling(60, `{}`)[1:], `{}`},
		{"references that double in alternatives", strings.ReplaceAll(doubling(60, `false`), "allOf", "anyOf"), `{}`},
		{"references that double at every level of the value", `{"type":"object","allOf":[{"properties":{"x":{"$ref":"#"}}},{"properties":{"x":{"$ref":"#"}}}]}`,
			strings.Repeat(`{"x":`, 60) + `{}` + strings.Repeat(`}`, 60)},
		{"many values to choose from", object(`{"items":{"enum":[` + strings.Repeat("1,", 30_000) + `1]}}`), list("2", 10_000)},
		{"many names that must be there", object(`{"items":{"required":` + string(required) + `}}`), list("{}", 100_000)},
		{"a pattern that is slow", object(`{"pattern":"^(` + strings.Repeat("(a?b?){0,20}", 20) + `)$"}`), `{"x":"` + strings.Repeat("ab", 100_000) + `!"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Compile(json.RawMessage(tt.schema))
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			got := s.Validate(json.RawMessage(tt.value))
			took := time.Since(begin)
			runtime.ReadMemStats(&after)
			if len(got) != 1 || got[0].Message != errTooCostly.Error() {
				t.Errorf("%d violations: %.300v", len(got), got)
			}
			made := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%v, %d MB", took.Round(time.Millisecond), made)
			if made > 500 || took > 20*time.Second {
				t.Errorf("it took %v and allocated %d MB", took, made)
			}
		})
	}
}

func TestLargeArgumentsAreChecked(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"type":"object","properties":{"rows":{"items":{"items":{"type":["number","string"]}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	row := `[` + strings.Repeat(`1,"two",`, 10) + `3]`
	if got := s.Validate(json.RawMessage(`{"rows":[` + strings.Repeat(row+",", 9000) + row + `]}`)); got != nil {
		t.Errorf("%.300v", got)
	}
}

// A pattern with nested counts has a long program and is ignored.
func TestPatternWithTooLongProgramIsIgnored(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"type":"object","properties":{"x":{"pattern":"^(` + strings.Repeat("(a{0,100}){0,10}", 50) + `)$"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Validate(json.RawMessage(`{"x":"b"}`)); got != nil {
		t.Errorf("%.300v", got)
	}
}

func TestUnmeterableReferencesAreRejected(t *testing.T) {
	for _, schema := range []string{
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","$dynamicAnchor":"n","properties":{"x":{"$dynamicRef":"#n"}}}`,
		`{"properties":{"x":{"$ref":"http://json-schema.org/draft-07/schema#"}}}`,
	} {
		if _, err := Compile(json.RawMessage(schema)); err == nil {
			t.Errorf("%s was accepted", schema)
		}
	}
	if _, err := Compile(json.RawMessage(`{"$id":"https://example.com/tool","$defs":{"a":{"type":"integer"}},"properties":{"x":{"$ref":"#/$defs/a"}}}`)); err != nil {
		t.Errorf("a schema with $id: %v", err)
	}
}

func TestViolationMessagesAreTruncated(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"type":"object","properties":{"x":{"enum":["` + strings.Repeat("é", 1000) + `"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Validate(json.RawMessage(`{"x":1}`)); len(got) != 1 || len(got[0].Message) > maxMessage+3 {
		t.Errorf("%v", got)
	}
}
