package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzSchema checks that validation is deterministic, that a schema gives the same result
// within allOf, anyOf and $ref, and that every violation has a message and a valid path.
// C07 D07
func FuzzSchema(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":1}}}`, `{"a":0}`},
		{`{"type":"object","properties":{"a":{"enum":[1,"x",null]}},"additionalProperties":false}`, `{"a":"x","b/~c":1}`},
		{`{"additionalProperties":false}`, `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1}`}, // map order must not matter
		{`{"oneOf":[{"required":["a"]},{"required":["b"]}]}`, `{"a":1,"b":2}`},
		{`{"patternProperties":{"^(a+)+$":{"type":"string"}}}`, `{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab":1}`},
		{`{"$defs":{"n":{"properties":{"n":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"}`, `{"n":{"n":7}}`},
		{`{"properties":{"a":{"multipleOf":0.01,"const":9007199254740993}}}`, `{"a":9007199254740992}`}, {`{"type":["object"]}`, `[]`}, {`{"additionalProperties":{"type":["integer","array"],"items":{"type":"string"}}}`, `{"a":"5","b":"x","c":[1]}`},
		{"\v{}", `{}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, raw, value string) {
		s, err := Compile(json.RawMessage(raw))
		if err != nil {
			return
		}
		if len(raw) > MaxBytes+64 || !json.Valid([]byte(raw)) {
			t.Fatalf("%q was compiled", raw)
		}
		if !json.Valid([]byte(value)) {
			return
		}
		found := s.Validate(json.RawMessage(value))
		if diff := cmp.Diff(found, s.Validate(json.RawMessage(value))); diff != "" {
			t.Fatalf("first and second time:\n%s", diff)
		}
		for _, v := range found {
			if v.Message == "" || v.Path != "" && !strings.HasPrefix(v.Path, "/") {
				t.Fatalf("%+v", v)
			}
		}
		coerced, changes := s.Coerce(json.RawMessage(value))
		if again, _ := s.Coerce(json.RawMessage(value)); string(again) != string(coerced) || !json.Valid(coerced) {
			t.Fatalf("coerced to %s, and to %s", coerced, again)
		}
		if changes == nil && string(coerced) != value || len(changes) > maxCoercions {
			t.Fatalf("coerced to %s with %d changes", coerced, len(changes))
		}
		if strings.Contains(raw, "$") || len(found) > 100 {
			return // references are relative to the root, which differs here
		}
		for _, as := range []string{`{"allOf":[%s]}`, `{"anyOf":[%s]}`, `{"$defs":{"s":%s},"$ref":"#/$defs/s"}`} {
			inner, err := Compile(json.RawMessage(fmt.Sprintf(as, raw)))
			if err != nil {
				continue // one level deeper
			}
			if again := inner.Validate(json.RawMessage(value)); (again == nil) != (found == nil) {
				t.Fatalf("%s: %v; as %s: %v", raw, found, as, again)
			}
		}
	})
}
