package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestCoercePreservesMeaning(t *testing.T) { // C07
	const n, s, b, null, ints = `{"type":"integer"}`, `{"type":"string"}`, `{"type":"boolean"}`, `{"type":["integer","null"]}`, `{"type":"array","items":{"type":"integer"}}`
	for _, c := range []struct{ schema, value, want, changes string }{
		{n, `"5"`, `5`, "/v string integer"},
		{n, `" -7 "`, `-7`, "/v string integer"},
		{n, `"5.0"`, `5.0`, "/v string integer"},
		{n, `"12345678901234567890"`, `12345678901234567890`, "/v string integer"},
		{n, `"5.5"`, `"5.5"`, ""},
		{n, `"five"`, `"five"`, ""},
		{n, `"0x5"`, `"0x5"`, ""},
		{n, `"1e999999999"`, `"1e999999999"`, ""},
		{n, `""`, `""`, ""},
		{n, `5`, `5`, ""},
		{n, `true`, `1`, "/v boolean integer"},
		{n, `[5]`, `5`, "/v array integer"},
		{n, `["5"]`, `5`, "/v array integer"},
		{n, `[5,6]`, `[5,6]`, ""},
		{n, `{"a":1}`, `{"a":1}`, ""},
		{`{"type":"number"}`, `"5.5"`, `5.5`, "/v string number"},
		{`{"type":"number"}`, `"1e3"`, `1e3`, "/v string number"},
		{s, `5`, `"5"`, "/v number string"},
		{s, `12345678901234567890`, `"12345678901234567890"`, "/v number string"},
		{s, `false`, `"false"`, "/v boolean string"},
		{s, `["a"]`, `"a"`, "/v array string"},
		{s, `"<5>"`, `"<5>"`, ""},
		{b, `"true"`, `true`, "/v string boolean"},
		{b, `"False"`, `false`, "/v string boolean"},
		{b, `1`, `true`, "/v number boolean"},
		{b, `"0"`, `false`, "/v string boolean"},
		{b, `2`, `2`, ""},
		{b, `"yes"`, `"yes"`, ""},
		{null, `"null"`, `null`, "/v string null"},
		{null, `""`, `null`, "/v string null"},
		{null, `"5"`, `5`, "/v string integer"},
		{ints, `5`, `[5]`, "/v number array"},
		{ints, `"5"`, `[5]`, "/v string array, /v/0 string integer"},
		{ints, `["5",6,"x"]`, `[5,6,"x"]`, "/v/0 string integer"},
		{`{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"}}}}`, `{"a":"1"}`, `[{"a":1}]`, "/v object array, /v/0/a string integer"},
		{`{"type":["string","integer"]}`, `5`, `5`, ""},
		{`{"type":["string","integer"]}`, `"5"`, `"5"`, ""},
		{`{"type":["string","boolean"]}`, `1`, `"1"`, "/v number string"},
		{`{"anyOf":[{"type":"integer"},{"type":"null"}]}`, `"5"`, `5`, "/v string integer"},
		{`{"anyOf":[{"type":"integer"},{"type":"string"}]}`, `"5"`, `"5"`, ""},
		{`{"anyOf":[{"type":"integer","minimum":9},{"type":"boolean"}]}`, `"1"`, `true`, "/v string boolean"},
		{`{"oneOf":[{"type":"integer"},{"type":"null"}]}`, `"x"`, `"x"`, ""},
		{`{"allOf":[{"type":"integer"},{"minimum":1}]}`, `"5"`, `5`, "/v string integer"},
		{`{"$ref":"#/$defs/n"}`, `"5"`, `5`, "/v string integer"},
		{`{"additionalProperties":{"type":"integer"}}`, `{"a":"1","b":2}`, `{"a":1,"b":2}`, "/v/a string integer"},
		{`{"patternProperties":{"^n":{"type":"integer"}},"additionalProperties":{"type":"string"}}`, `{"n":"1","s":2}`, `{"n":1,"s":"2"}`, "/v/n string integer, /v/s number string"},
		{`{"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"boolean"}}`, `["1",2,"true"]`, `[1,"2",true]`, "/v/0 string integer, /v/1 number string, /v/2 string boolean"},
		{`{}`, `"5"`, `"5"`, ""},
		{`{"enum":[5]}`, `"5"`, `"5"`, ""},
	} {
		compiled, err := Compile(json.RawMessage(`{"type":"object","$defs":{"n":{"type":"integer"}},"properties":{"v":` + c.schema + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		got, changes := compiled.Coerce(json.RawMessage(`{"v":` + c.value + `}`))
		var told []string
		for _, ch := range changes {
			told = append(told, fmt.Sprintf("%s %s %s", ch.Path, ch.From, ch.To))
		}
		if want := `{"v":` + c.want + `}`; string(got) != want || strings.Join(told, ", ") != c.changes {
			t.Errorf("%s with %s: got %s (%v), want %s (%s)", c.schema, c.value, got, told, want, c.changes)
		}
		if again, more := compiled.Coerce(got); more != nil || string(again) != string(got) {
			t.Errorf("%s: coercing %s again changed it: %s %v", c.schema, got, again, more)
		}
	}
}

func TestCoerceIsBounded(t *testing.T) { // P03
	many, err := Compile(json.RawMessage(`{"type":"object","additionalProperties":{"type":"integer"}}`))
	if err != nil {
		t.Fatal(err)
	}
	value := map[string]string{strings.Repeat("long", 100): "1"}
	for i := range 3 * maxCoercions {
		value[fmt.Sprint("n", i)] = "1"
	}
	text, _ := json.Marshal(value)
	got, changes := many.Coerce(text)
	if len(changes) != maxCoercions || len(many.Validate(got)) == 0 {
		t.Errorf("%d changes, %d violations", len(changes), len(many.Validate(got)))
	}
	for _, ch := range changes {
		if len(ch.Path) > maxCoercedPath {
			t.Errorf("a path of %d bytes", len(ch.Path))
		}
	}

	for what, hostile := range map[string]string{
		"a reference to itself":  `{"type":"object","$ref":"#"}`,
		"references that double": `{"type":"object","properties":{"v":{"$ref":"#/$defs/a0"}},"$defs":{` + double(30) + `"a30":{"type":"integer"}}}`,
		"choices that double":    `{"type":"object","properties":{"v":{"$ref":"#/$defs/a0"}},"$defs":{` + strings.ReplaceAll(double(30), "allOf", "anyOf") + `"a30":{"type":"boolean"}}}`,
	} {
		s, err := Compile(json.RawMessage(hostile))
		if err != nil {
			continue // refused before it costs anything
		}
		if got, changes := s.Coerce(json.RawMessage(`{"v":"5"}`)); changes != nil && len(s.Validate(got)) != 0 {
			t.Errorf("%s: %s, %v", what, got, changes)
		}
	}
}

func double(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	return b.String()
}

// A null that stands for an optional argument is removed. Others stay.
func TestNullsOfOptionalMembersAreRemoved(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":["string","null"]},"c":{"type":"string"},
		"d":{"type":"object","properties":{"e":{"type":"integer"}}}},"required":["c"]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, changes := s.Coerce(json.RawMessage(`{"a":null,"b":null,"c":null,"d":{"e":null},"f":null}`))
	if want := `{"b":null,"c":null,"d":{},"f":null}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if want := "[{/a null absent} {/d/e null absent}]"; fmt.Sprint(changes) != want {
		t.Errorf("got %v, want %s", changes, want)
	}
}
