package schema

import (
	"encoding/json"
	"testing"
)

// Schemas of any draft, as servers list them, get one form that all providers read.
func TestNormalArguments(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"as it is", `{"type":"object","properties":{"a":{"type":"array","items":{}}}}`, `{"type":"object","properties":{"a":{"type":"array","items":{}}}}`},
		{"no properties", `{"type":"object"}`, `{"type":"object","properties":{}}`},
		{"a list without items", `{"type":"object","properties":{"a":{"type":["null","array"]}}}`, `{"type":"object","properties":{"a":{"type":["null","array"],"items":{}}}}`},
		{"empty objects of PHP", `{"type":"object","properties":[],"required":[],"$defs":{"a":[]}}`, `{"type":"object","properties":{},"required":[],"$defs":{"a":{}}}`},
		{"a tuple", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"p":{"type":"array","items":[{"type":"number"},{"$ref":"#/properties/p/items/0"}],"additionalItems":false}}}`,
			`{"type":"object","properties":{"p":{"type":"array","prefixItems":[{"type":"number"},{"$ref":"#/properties/p/prefixItems/0"}],"items":false}}}`},
		{"bounds of draft 4", `{"type":"object","properties":{"a":{"minimum":0,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false}}}`,
			`{"type":"object","properties":{"a":{"exclusiveMinimum":0,"maximum":9}}}`},
		{"dependencies", `{"type":"object","properties":{},"dependencies":{"a":["b"],"c":{"properties":[]}}}`,
			`{"type":"object","properties":{},"dependentRequired":{"a":["b"]},"dependentSchemas":{"c":{"properties":{}}}}`},
		{"values are no schemas", `{"type":"object","properties":{"a":{"default":{"properties":[]},"enum":[{"items":[1]}]}}}`,
			`{"type":"object","properties":{"a":{"default":{"properties":[]},"enum":[{"items":[1]}]}}}`},
		{"properties with names of keywords", `{"type":"object","properties":{"items":{"type":"string"},"$schema":{"type":"string"},"required":{"type":"boolean"}}}`,
			`{"type":"object","properties":{"items":{"type":"string"},"$schema":{"type":"string"},"required":{"type":"boolean"}}}`},
		{"no object", `true`, `true`},
	} {
		if got := string(NormalArguments(json.RawMessage(tt.in))); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
		if again := string(NormalArguments(json.RawMessage(tt.want))); again != tt.want {
			t.Errorf("%s: again %s", tt.name, again)
		}
	}
}

// Schemas that are valid only in their normal form compile, and hold what they say.
func TestSchemasOfOtherDraftsCompile(t *testing.T) {
	for _, tt := range []struct{ schema, good, bad string }{
		{`{"type":"object","properties":[],"required":[]}`, `{}`, `[]`},
		{`{"type":"object","properties":{"a":{"minimum":0,"exclusiveMinimum":true}}}`, `{"a":1}`, `{"a":0}`},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"a":{"minimum":0,"exclusiveMinimum":true}}}`, `{"a":1}`, `{"a":0}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"p":{"items":[{"type":"number"},{"type":"string"}]}}}`, `{"p":[1,"a"]}`, `{"p":["a",1]}`},
	} {
		s, err := Compile(json.RawMessage(tt.schema))
		if err != nil {
			t.Errorf("%s: %v", tt.schema, err)
			continue
		}
		if v := s.Validate(json.RawMessage(tt.good)); v != nil {
			t.Errorf("%s refuses %s: %v", tt.schema, tt.good, v)
		}
		if v := s.Validate(json.RawMessage(tt.bad)); v == nil {
			t.Errorf("%s allows %s", tt.schema, tt.bad)
		}
	}
}

// A format describes values; it refuses none, in any draft.
func TestFormatsRefuseNothing(t *testing.T) {
	for _, draft := range []string{"", `"$schema":"http://json-schema.org/draft-04/schema#",`, `"$schema":"http://json-schema.org/draft-07/schema#",`, `"$schema":"https://json-schema.org/draft/2020-12/schema",`} {
		for format, value := range map[string]string{"date-time": "2026-01-01T10:00:00", "hostname": "my_host", "email": "nobody", "uri": "a b", "regex": "("} {
			s, err := Compile(json.RawMessage(`{` + draft + `"type":"object","properties":{"v":{"type":"string","format":"` + format + `"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			if v := s.Validate(json.RawMessage(`{"v":"` + value + `"}`)); v != nil {
				t.Errorf("%s %s: %v", draft, format, v)
			}
		}
	}
}

// FuzzNormal: the normal form of any JSON is JSON, and its own normal form.
func FuzzNormal(f *testing.F) {
	f.Add(`{"items":[],"additionalItems":{},"properties":[ ],"type":"array","exclusiveMinimum":true,"minimum":true}`)
	f.Add(`{"dependencies":{"a":["b"]},"dependentRequired":{},"$ref":"#/items/0","required":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		got := NormalArguments(json.RawMessage(text))
		if !json.Valid(got) {
			t.Fatalf("%s becomes %s", text, got)
		}
		if again := NormalArguments(got); string(again) != string(got) {
			t.Fatalf("%s becomes %s, then %s", text, got, again)
		}
	})
}
