package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestSchemasOfArguments(t *testing.T) {
	for _, tt := range []struct{ name, schema, want, rest string }{
		{"an object stays as it is", ` {"type":"object","properties":{"b":{},"a":{"anyOf":[{}]}},"required":["a"],"x":1} `, `{"type":"object","properties":{"b":{},"a":{"anyOf":[{}]}},"required":["a"],"x":1}`, ""},
		{"none", ``, `{"type":"object","properties":{}}`, ""},
		{"no object", `true`, `{"type":"object","properties":{}}`, ""},
		{"a reference at the top", `{"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"a":{}},"required":["a"]}},"properties":{"b":{}}}`,
			`{"$defs":{"A":{"type":"object","properties":{"a":{}},"required":["a"]}},"properties":{"a":{},"b":{}},"type":"object","required":["a"]}`, ""},
		{"a condition at the top", `{"type":"object","properties":{},"not":{"required":["a","b"]}}`, `{"type":"object","properties":{}}`, `{"not":{"required":["a","b"]}}`},
		{"no JSON", `{"a"`, `{"type":"object","properties":{}}`, ""},
		{"empty", `{}`, `{"type":"object","properties":{}}`, ""},
		{"the version and the type", `{"$schema":"s","$defs":{"d":{}},"properties":{"a":{"$ref":"#/$defs/d"}}}`, `{"$defs":{"d":{}},"properties":{"a":{"$ref":"#/$defs/d"}},"type":"object"}`, ""},
		{"an object or null", `{"type":["object","null"],"description":"d"}`, `{"type":"object","description":"d","properties":{}}`, ""},
		{"one of two properties", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["c"],"anyOf":[{"required":["a","d"]},{"required":["d","b"]}]}`,
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["c","d"]}`, `{"anyOf":[{"required":["a","d"]},{"required":["d","b"]}]}`},
		{"two kinds of arguments", `{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"string"}},"required":["kind","x"]},{"properties":{"kind":{"const":"b"}},"required":["kind"]}]}`,
			`{"type":"object","properties":{"kind":{"anyOf":[{"const":"a"},{"const":"b"}]},"x":{"type":"string"}},"required":["kind"]}`,
			`{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"string"}},"required":["kind","x"]},{"properties":{"kind":{"const":"b"}},"required":["kind"]}]}`},
		{"all of them, by reference", `{"type":"object","definitions":{"A/B":{"properties":{"a":{}},"required":["a"]}},"allOf":[{"$ref":"#/definitions/A~1B"},{"properties":{"b":{}},"required":["b","a"]}]}`,
			`{"type":"object","definitions":{"A/B":{"properties":{"a":{}},"required":["a"]}},"properties":{"a":{},"b":{}},"required":["a","b"]}`,
			`{"allOf":[{"$ref":"#/definitions/A~1B"},{"properties":{"b":{}},"required":["b","a"]}]}`},
		{"a branch that demands nothing", `{"anyOf":[{"required":["a"]},{}]}`, `{"type":"object","properties":{}}`, `{"anyOf":[{"required":["a"]},{}]}`},
		{"references without an end", `{"$defs":{"A":{"$ref":"#/$defs/A"}},"anyOf":[{"$ref":"#/$defs/A"}]}`, `{"type":"object","properties":{}}`, `{"$defs":{"A":{"$ref":"#/$defs/A"}},"anyOf":[{"$ref":"#/$defs/A"}],"type":"object","properties":{}}`},
		{"branches without number", `{"$defs":{"A":{"anyOf":[{"$ref":"#/$defs/A"},{"$ref":"#/$defs/A"}]}},"anyOf":[{"$ref":"#/$defs/A"}]}`, `{"type":"object","properties":{}}`,
			`{"$defs":{"A":{"anyOf":[{"$ref":"#/$defs/A"},{"$ref":"#/$defs/A"}]}},"anyOf":[{"$ref":"#/$defs/A"}],"type":"object","properties":{}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, rest := objectArguments([]byte(tt.schema))
			if string(got) != tt.want || string(rest) != tt.rest {
				t.Errorf("%s\nwithout %s", got, rest)
			}
		})
	}
}

// A client's schema can be as large as a request. Reducing it takes time that grows
// with its size alone: each of these took more than half a minute.
func TestALargeSchemaIsReducedSoon(t *testing.T) {
	var required []string
	for i := range 200_000 {
		required = append(required, fmt.Sprintf(`"n%06d"`, i))
	}
	many := func(branch string, n int) string { return strings.TrimSuffix(strings.Repeat(branch+",", n), ",") }
	for name, schema := range map[string]string{
		"required names":     `{"allOf":[],"required":[` + strings.Join(required, ",") + `]}`,
		"a long reference":   `{"$defs":{"A":{"$ref":"#/` + strings.Repeat("/", 500_000) + `"}},"allOf":[` + many(`{"$ref":"#/$defs/A"}`, 900) + `]}`,
		"a large definition": `{"$defs":{"A":{"properties":{"a":{"const":"` + strings.Repeat("x", 9<<20) + `"}}}},"allOf":[` + many(`{"$ref":"#/$defs/A"}`, 900) + `]}`,
		"branches":           `{"$defs":{"A":{"required":[` + strings.Join(required[:20_000], ",") + `]}},"anyOf":[` + many(`{"$ref":"#/$defs/A"}`, 500) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			got, _ := objectArguments([]byte(schema))
			if took := time.Since(start); took > 15*time.Second || !json.Valid(got) {
				t.Errorf("%v for %d bytes: %.80s", took, len(schema), got)
			}
		})
	}
}

// FuzzArguments: whatever a schema is, what is sent is an object schema that no
// dialect refuses for its top level, and reducing it again changes nothing.
func FuzzArguments(f *testing.F) {
	f.Add(`{"$schema":"s","anyOf":[{"properties":{"a":{}},"required":["a"]},{"$ref":"#/$defs/x"}],"$defs":{"x":{"allOf":[{"required":["b"]}]}}}`)
	f.Add(`{"type":"object","type":"string","oneOf":[],"required":{},"properties":[1]}`)
	f.Fuzz(func(t *testing.T, schema string) {
		got, rest := objectArguments([]byte(schema))
		var members map[string]json.RawMessage
		if err := json.Unmarshal(got, &members); err != nil {
			if strings.ToValidUTF8(schema, "") != schema {
				return
			}
			t.Fatalf("%q: %s: %v", schema, got, err)
		}
		for _, name := range []string{"$schema", "anyOf", "oneOf", "allOf"} {
			if _, has := members[name]; has {
				t.Fatalf("%q keeps %s: %s", schema, name, got)
			}
		}
		if string(members["type"]) != `"object"` || rest != nil && !json.Valid(rest) {
			t.Fatalf("%q: %s without %s", schema, got, rest)
		}
		if again, more := objectArguments(got); fmt.Sprint(string(again), more) != fmt.Sprint(string(got), json.RawMessage(nil)) {
			t.Fatalf("%q: %s, then %s", schema, got, again)
		}
	})
}
