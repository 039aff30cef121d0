package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompileRefuses(t *testing.T) { // D07
	tests := []struct{ name, schema, want string }{
		{"nothing", ``, "missing"},
		{"null", `null`, "not a JSON object"},
		{"an array", `[]`, "not a JSON object"},
		{"a boolean", `true`, "not a JSON object"},
		{"broken JSON", `{"type":`, "not valid JSON"},
		{"a type that does not exist", `{"type":"strnig"}`, "not a usable"},
		{"one for strings", `{"type":"string"}`, "for a string"},
		{"a file reference", `{"$ref":"file:///etc/passwd"}`, "not allowed"},
		{"a remote reference", `{"properties":{"a":{"$ref":"http://169.254.169.254/"}}}`, "not allowed"},
		{"a reference to nowhere", `{"$ref":"#/$defs/x"}`, "not a usable"},
		{"one that is too deep", strings.Repeat(`{"not":`, 33) + "{}" + strings.Repeat("}", 33), "deeper"},
		{"one that is too large", `{"description":"` + strings.Repeat("x", MaxBytes) + `"}`, "larger"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile(json.RawMessage(tt.schema))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not contain %q", err, tt.want)
			}
		})
	}
}

func TestValidateNamesEveryViolation(t *testing.T) { // C07
	s, err := Compile(json.RawMessage(`{"type":"object","required":["a","b"],"additionalProperties":false,
		"properties":{"a":{"type":"number"},"b":{"type":"string"},"tags":{"type":"array","items":{"pattern":"^[a-z]+$"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := s.Validate(json.RawMessage(`{"a":"x","tags":["ok","BAD"],"more":1}`))
	want := []Violation{
		{"", "additional properties 'more' not allowed"},
		{"", "missing property 'b'"},
		{"/a", "got string, want number"},
		{"/tags/1", "'BAD' does not match pattern '^[a-z]+$'"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	if got := s.Validate(json.RawMessage(`{"a":1,"b":"x"}`)); got != nil {
		t.Errorf("a valid value has violations: %v", got)
	}
}

func TestNumbersKeepTheirDigits(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"properties":{"id":{"const":12345678901234567890}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Validate(json.RawMessage(`{"id":12345678901234567890}`)); got != nil {
		t.Errorf("the same number is refused: %v", got)
	}
	if got := s.Validate(json.RawMessage(`{"id":12345678901234567891}`)); got == nil {
		t.Error("another number is accepted")
	}
}

func TestPatternUnsupportedByRE2IsIgnored(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"properties":{"a":{"type":"string","pattern":"^(?!x)"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Validate(json.RawMessage(`{"a":"x"}`)); got != nil {
		t.Errorf("violations: %v", got)
	}
	if got := s.Validate(json.RawMessage(`{"a":1}`)); got == nil {
		t.Error("the rest of the schema is not checked")
	}
}

func TestHugeExponentIsRejected(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"properties":{"a":{"type":"number","multipleOf":2}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Validate(json.RawMessage(`{"a":1e1000000000}`)); len(got) != 1 {
		t.Errorf("violations: %v", got)
	}
	if got := s.Validate(json.RawMessage(`{"a":[2e300, 4]}`)); len(got) != 1 || got[0].Path != "/a" {
		t.Errorf("violations: %v", got)
	}
}

func TestRecursiveSchemas(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"type":"object","properties":{"next":{"$ref":"#"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Validate(json.RawMessage(`{"next":{"next":{"next":1}}}`)); len(got) != 1 || got[0].Path != "/next/next/next" {
		t.Errorf("violations: %v", got)
	}
	if s, err := Compile(json.RawMessage(`{"$ref":"#"}`)); err == nil {
		s.Validate(json.RawMessage(`{}`)) // must return
	}
}

func FuzzCompile(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"number"}}}`), []byte(`{"a":1}`))
	f.Fuzz(func(t *testing.T, raw, value []byte) {
		if s, err := Compile(raw); err == nil && json.Valid(value) {
			s.Validate(value)
		}
	})
}
