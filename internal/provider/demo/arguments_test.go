package demo

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestArgumentsFitTheSchema validates what is made with a real validator.
func TestArgumentsFitTheSchema(t *testing.T) {
	asked := conversation{question: `Compare gpt-5 and the 3 sizes of 12.5 and -4 in Oslo, "quickly"`}
	later := conversation{question: asked.question, results: []result{{"get-sum", "", "The sum of 2 and 3 is 5."}}}
	properties := func(s string, required ...string) string {
		names, _ := json.Marshal(append([]string{}, required...))
		return `{"type":"object","properties":{` + s + `},"required":` + string(names) + `,"additionalProperties":false}`
	}
	for name, c := range map[string]struct {
		schema string
		said   conversation
		want   string
	}{
		"nothing required":            {properties(`"a":{"type":"string"}`), asked, `{}`},
		"numbers in turn":             {properties(`"a":{"type":"number"},"b":{"type":"number"},"c":{"type":"number"},"d":{"type":"number"}`, "a", "b", "c", "d"), asked, `{"a":3,"b":12.5,"c":-4,"d":1}`},
		"integers skip fractions":     {properties(`"a":{"type":"integer"},"b":{"type":"integer"}`, "a", "b"), asked, `{"a":3,"b":-4}`},
		"limits":                      {properties(`"a":{"type":"integer","minimum":100},"b":{"type":"number","exclusiveMinimum":0,"maximum":0.25},"c":{"type":"integer","multipleOf":7}`, "a", "b", "c"), asked, `{"a":100,"b":0.125,"c":7}`},
		"a default before an example": {properties(`"a":{"type":"integer","minimum":50,"default":80},"b":{"type":"string","default":"x"}`, "a", "b"), asked, `{"a":80,"b":"x"}`},
		"what the result states":      {properties(`"n":{"type":"number"},"m":{"type":"number"}`, "n", "m"), later, `{"n":5,"m":2}`},
		"text from the result":        {properties(`"message":{"type":"string","maxLength":7}`, "message"), later, `{"message":"The sum"}`},
		"a place":                     {properties(`"location":{"type":"string"}`, "location"), later, `{"location":"Oslo"}`},
		"words of an enum":            {properties(`"how":{"enum":["slowly","quickly"]},"n":{"enum":[7,8]},"c":{"const":"k"}`, "how", "n", "c"), asked, `{"how":"quickly","n":7,"c":"k"}`},
		"formats":                     {properties(`"d":{"type":"string","format":"date"},"u":{"type":"string","format":"uri"},"i":{"type":"string","format":"uuid"},"t":{"type":"string","format":"date-time"},"e":{"type":"string","format":"email"}`, "d", "u", "i", "t", "e"), asked, ``},
		"lengths":                     {properties(`"s":{"type":"string","minLength":100,"maxLength":100},"t":{"type":"string","maxLength":0}`, "s", "t"), asked, ``},
		"nesting":                     {properties(`"o":{"type":"object","properties":{"xs":{"type":"array","items":{"type":"integer"},"minItems":2}},"required":["xs"]},"b":{"type":"boolean"},"z":{"type":"null"}`, "o", "b", "z"), asked, `{"o":{"xs":[3,-4]},"b":false,"z":null}`},
		"an empty list":               {properties(`"xs":{"type":"array","maxItems":0}`, "xs"), asked, `{"xs":[]}`},
		"choices and references":      {`{"$defs":{"p":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}},` + properties(`"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/p"}]},"b":{"type":["null","integer"]}`, "a", "b")[1:], asked, `{"a":{"x":3},"b":-4}`},
		"anything goes":               {properties(`"a":true,"b":{}`, "a", "b"), conversation{}, `{"a":"hello","b":"hello"}`},
		"no schema":                   {`{}`, asked, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := arguments(json.RawMessage(c.schema), c.said)
			if c.want != "" && got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			validate(t, c.schema, got)
		})
	}
}

func validate(t *testing.T, schema, value string) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("tool.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("tool.json")
	if err != nil {
		t.Fatal(err)
	}
	made, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiled.Validate(made); err != nil {
		t.Errorf("%s: %v", value, err)
	}
}

func TestASchemaWithoutEndIsCutShort(t *testing.T) {
	const loop = `{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"},"d":{"$ref":"#"}},"required":["a","b","c","d"]}`
	if got := arguments(json.RawMessage(loop), conversation{}); len(got) > 100_000 || !json.Valid([]byte(got)) {
		t.Errorf("%d bytes", len(got))
	}
	const circle = `{"$defs":{"x":{"$ref":"#/$defs/x"}},"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"]}`
	if got := arguments(json.RawMessage(circle), conversation{}); got != `{"a":"hello"}` {
		t.Error(got)
	}
}

func TestPlaces(t *testing.T) {
	for question, want := range map[string]string{
		"How warm is it in Lisbon, in Fahrenheit?": "Lisbon",
		"weather in new delhi":                     "new",
		"What is it like in New York today?":       "New York",
		"Is it hot? Paris or London?":              "London", // Paris might be just the beginning of a sentence
		"I wonder, may I go to São Paulo.":         "São Paulo",
		"hello":                                    "Lisbon",
		"":                                         "Lisbon",
	} {
		f := factsOf(conversation{question: question})
		if got := f.place(); got != want {
			t.Errorf("%q: got %s, want %s", question, got, want)
		}
	}
}

func FuzzArguments(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"number","multipleOf":1e-320,"minimum":1}},"required":["a"]}`, "1 and 2")
	f.Add(`{"properties":{"x":{"anyOf":[{"$ref":"#/properties/x"}]}},"required":["x"]}`, "")
	f.Add(`{"required":["city"],"properties":{"city":{"minLength":3,"maxLength":-1}}}`, "In Oslo.")
	f.Fuzz(func(t *testing.T, schema, question string) {
		said := conversation{question: question, results: []result{{"t", "", question}}}
		if got := arguments(json.RawMessage(schema), said); !json.Valid([]byte(got)) {
			t.Errorf("no JSON: %s", got)
		}
	})
}

// FuzzDecode: no body makes the model panic, and what is accepted is answered.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"tools":[{"type":"function","function":{"name":"getSum","parameters":{}}}],"tool_choice":{"type":"allowed_tools"}}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":null}],"tools":[{"type":"custom"}],"tool_choice":"required","max_tokens":-1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := decode(body)
		if err != nil {
			return
		}
		p := play(r, body)
		if p.usage.Total != p.usage.Prompt+p.usage.Completion {
			t.Errorf("usage %+v", p.usage)
		}
		a := answer{reply: p, request: r}
		if text := strings.Join(pieces(p.text), ""); text != p.text || len(a.deltas()) == 0 || len(marshal(a.whole())) == 0 {
			t.Errorf("%q became %q", p.text, text)
		}
	})
}
