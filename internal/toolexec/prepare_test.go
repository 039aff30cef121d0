package toolexec

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// A call of a tool outside the request's allowed tools is refused. That includes
// tools of the gateway and tools of the client. // C25
func TestACallOutsideTheAllowedToolsIsRefused(t *testing.T) {
	set := newSet(t, nil)
	rules := Rules{ClientTools: map[string]bool{"mine": true, "yours": true}, Only: []string{"free", "mine"}}
	for _, tt := range []struct {
		call    string
		owner   tool.Owner
		verdict loop.Verdict
	}{
		{"free", tool.Gateway, loop.Run},
		{"mine", tool.Client, ""},
		{"add", tool.Gateway, loop.Answer},
		{"yours", tool.Unknown, loop.Answer},
	} {
		p := Prepare(set, rules, "0.0", tt.call, `{}`)
		if p.Owner != tt.owner || p.Verdict != tt.verdict || tt.verdict == loop.Answer && !strings.Contains(p.Answer, "not among the allowed tools") {
			t.Errorf("%s: %+v", tt.call, p.CallPrepared)
		}
	}
}

func TestWhatBecomesOfACall(t *testing.T) {
	set := newSet(t, nil)
	for _, tt := range []struct {
		name       string
		call       string
		arguments  string
		validation loop.Validation

		owner   tool.Owner
		verdict loop.Verdict
		sent    string   // the arguments of a call that runs
		answer  []string // what the model reads otherwise
	}{
		{"arguments that fit", "add", `{"n":1}`, loop.Strict, tool.Gateway, loop.Run, `{"n":1}`, nil},
		{"space around them", "add", " {\"n\" : 1}\n", loop.Strict, tool.Gateway, loop.Run, " {\"n\" : 1}\n", nil},
		{"a client's tool", "mine", `{bad`, loop.Strict, tool.Client, "", "", nil},
		{"a client's tool that the gateway has too", "free", `{}`, loop.Strict, tool.Gateway, loop.Run, `{}`, nil},
		{"nobody's tool", "nosuch", `{}`, loop.Strict, tool.Unknown, loop.Answer, "", []string{`unknown tool \"nosuch\"`, "add, free"}}, // C14
		{"a tool without a name", "", `{}`, loop.Strict, tool.Unknown, loop.Answer, "", []string{"unknown tool"}},
		{"a name in other letters", "ADD", `{"n":1}`, loop.Strict, tool.Unknown, loop.Answer, "", []string{"unknown tool"}},
		{"a tool that is not on the list", "hidden", `{}`, loop.Strict, tool.Unknown, loop.Answer, "", []string{"hidden", "server s", "not allowed"}}, // C06
		{"no arguments", "free", "", loop.Strict, tool.Gateway, loop.Run, `{}`, nil},
		{"nothing but space", "free", " \n", loop.Strict, tool.Gateway, loop.Run, `{}`, nil},
		{"no arguments where some are needed", "add", "", loop.Strict, tool.Gateway, loop.Answer, "", []string{"invalid arguments", "n"}},
		{"broken JSON", "add", `{"n":1`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"not valid JSON"}}, // C16
		{"no JSON at all", "free", `hello`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"not a JSON object"}},
		{"null", "free", `null`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"not a JSON object"}},
		{"a list", "free", `[{}]`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"not a JSON object"}},
		{"a number that no float holds", "free", `{"n":9E400}`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"the largest number is 1.79"}},
		{"two objects", "free", `{}{}`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"not valid JSON"}},
		{"a repeated member", "free", `{"a":1,"a":2}`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"duplicate"}},
		{"bytes that are no text", "free", "{\"a\":\"\xff\"}", loop.Strict, tool.Gateway, loop.Answer, "", []string{"UTF-8"}},
		{"half a surrogate", "free", `{"a":"\ud800"}`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"surrogate"}},
		{"a wrong type", "add", `{"n":"1"}`, loop.Strict, tool.Gateway, loop.Answer, "", []string{`"path":"/n"`, "integer"}}, // C07
		{"all errors at once", "add", `{"n":"1","tags":[1,"a",2],"x":1}`, loop.Strict, tool.Gateway, loop.Answer, "", []string{`"/n"`, `"/tags/0"`, `"/tags/2"`, "x"}},
		{"a wrong type that nobody checks", "add", `{"n":"1"}`, loop.NoValidation, tool.Gateway, loop.Run, `{"n":"1"}`, nil},
		{"broken JSON is refused also where nobody checks", "add", `{"n":`, loop.NoValidation, tool.Gateway, loop.Answer, "", []string{"not valid JSON"}},
		{"no validation named is the strict one", "add", `{"n":"1"}`, "", tool.Gateway, loop.Answer, "", []string{"/n"}},
		{"a wrong type that is changed", "add", `{"n":"1","tags":"a"}`, loop.Lenient, tool.Gateway, loop.Run, `{"n":1,"tags":["a"]}`, nil},
		{"what fits is not changed", "add", " {\"n\" : 1e0}", loop.Lenient, tool.Gateway, loop.Run, " {\"n\" : 1e0}", nil},
		{"only what is left is told", "add", `{"n":"1","tags":[{}],"x":1}`, loop.Lenient, tool.Gateway, loop.Answer, "", []string{`"/tags/0"`, "x"}},
		{"a text that is no number", "add", `{"n":"one"}`, loop.Lenient, tool.Gateway, loop.Answer, "", []string{`"path":"/n"`, "integer"}},
		{"broken JSON is not mended", "add", `{"n":"1"`, loop.Lenient, tool.Gateway, loop.Answer, "", []string{"not valid JSON"}},
		{"a long integer in a text stays exact", "add", `{"n":"12345678901234567890"}`, loop.Lenient, tool.Gateway, loop.Run, `{"n":12345678901234567890}`, nil},
		{"a long integer stays exact", "add", `{"n":12345678901234567890}`, loop.Strict, tool.Gateway, loop.Run, `{"n":12345678901234567890}`, nil},
		{"a number beyond all bounds", "free", `{"n":1e1000000}`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"exponent"}},
		{"arguments at the limit", "free", `{"a":"` + strings.Repeat("x", maxArguments-8) + `"}`, loop.Strict, tool.Gateway, loop.Run, `{"a":"` + strings.Repeat("x", maxArguments-8) + `"}`, nil},
		{"arguments over the limit", "free", `{"a":"` + strings.Repeat("x", maxArguments-7) + `"}`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"larger than 1048576 bytes"}},
		{"arguments as deep as allowed", "free", nested(maxNesting), loop.Strict, tool.Gateway, loop.Run, nested(maxNesting), nil},
		{"deeper arguments", "free", nested(maxNesting + 1), loop.Strict, tool.Gateway, loop.Answer, "", []string{"nested deeper than 512 levels"}},
		{"very deep arguments", "free", `{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, loop.Strict, tool.Gateway, loop.Answer, "", []string{"not valid JSON"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Prepare(set, Rules{ClientTools: map[string]bool{"mine": true}, Validation: tt.validation}, "0.0", tt.call, tt.arguments)
			if p.Owner != tt.owner || p.Verdict != tt.verdict || p.Key != "0.0" || p.ArgsDigest == "" {
				t.Fatalf("%+v", p.CallPrepared)
			}
			if string(p.Arguments) != tt.sent {
				t.Errorf("arguments %.200s, want %.200s", p.Arguments, tt.sent)
			}
			if (p.Entry != nil) != (tt.owner == tool.Gateway) {
				t.Errorf("entry %v", p.Entry)
			}
			if tt.verdict == loop.Answer && !json.Valid([]byte(p.Answer)) {
				t.Errorf("the answer is no JSON: %s", p.Answer)
			}
			for _, word := range tt.answer {
				if !strings.Contains(p.Answer, word) {
					t.Errorf("%.500s does not say %s", p.Answer, word)
				}
			}
		})
	}
}

func TestAClientsToolIsTheClientsWhateverTheGatewayHas(t *testing.T) {
	p := Prepare(newSet(t, nil), Rules{ClientTools: map[string]bool{"add": true}}, "0.0", "add", `{"n":"no number"}`)
	if p.Owner != tool.Client || p.Verdict != "" || p.Entry != nil {
		t.Errorf("%+v", p)
	}
}

func TestAPreparedCallSaysWhatItIs(t *testing.T) {
	p := Prepare(newSet(t, nil), Rules{}, "2.1", "free", `{}`)
	if p.Server != "s" || p.Tool != "free" || p.Class != tool.Read || !p.Polling || p.ToolDigest != p.Entry.Digest {
		t.Errorf("%+v", p.CallPrepared)
	}
}

// The progress guard compares digests: they are equal for the same arguments in another
// notation, and differ for others.
func TestTheDigestNamesTheArgumentsAndNotTheirWriting(t *testing.T) {
	set := newSet(t, nil)
	digest := func(arguments string) string {
		return Prepare(set, Rules{Validation: loop.NoValidation}, "0.0", "free", arguments).ArgsDigest
	}
	for _, same := range [][2]string{
		{`{"a":1,"b":"é"}`, " {\"b\":\"\\u00e9\", \"a\":1 }"},
		{``, `{}`},
		{`{"a":1.0}`, `{"a":1}`},
		{`{"a":{"y":1,"x":2}}`, `{"a":{"x":2,"y":1}}`},
	} {
		if digest(same[0]) != digest(same[1]) {
			t.Errorf("%s and %s differ", same[0], same[1])
		}
	}
	for _, other := range [][2]string{
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`}, // the same as floating point
		{`{"a":1}`, `{"a":"1"}`},
		{`{"a":[1,2]}`, `{"a":[2,1]}`},
		{`{"a":null}`, `{}`},
		{`{bad`, `{}`},
	} {
		if digest(other[0]) == digest(other[1]) {
			t.Errorf("%s and %s are the same", other[0], other[1])
		}
	}
}

// The digest is that of the executed arguments, and the journal has the difference to the
// arguments of the model.
func TestAChangedCallSaysWhatWasChanged(t *testing.T) { // C07
	set := newSet(t, nil)
	p := Prepare(set, Rules{Validation: loop.Lenient}, "0.0", "add", `{"n":"1","tags":"a"}`)
	want := []loop.Coerced{{Path: "/n", From: "string", To: "integer"}, {Path: "/tags", From: "string", To: "array"}}
	if diff := cmp.Diff(want, p.Coerced); diff != "" {
		t.Error(diff)
	}
	plain := Prepare(set, Rules{}, "0.0", "add", `{"tags":["a"],"n":1}`)
	if p.ArgsDigest != plain.ArgsDigest || plain.Coerced != nil {
		t.Errorf("digest %s, want that of what is executed, %s; changes %v", p.ArgsDigest, plain.ArgsDigest, plain.Coerced)
	}
	refused := Prepare(set, Rules{Validation: loop.Lenient}, "0.0", "add", `{"n":"1","x":1}`)
	if refused.Coerced != nil || refused.Arguments != nil {
		t.Errorf("a call that is not made was changed: %+v", refused.CallPrepared)
	}
}

func TestTheModelReadsNoMoreThanTwentyViolations(t *testing.T) {
	tags := strings.TrimSuffix(strings.Repeat("1,", 500), ",")
	p := Prepare(newSet(t, nil), Rules{}, "0.0", "add", `{"n":1,"tags":[`+tags+`]}`)
	if n := strings.Count(p.Answer, `"path"`); n != 20 || !strings.Contains(p.Answer, "500 violations") {
		t.Errorf("%d violations: %s", n, p.Answer)
	}
}

// For every text of the model there is no panic, and what is executed is one valid object
// that fits the schema.
func FuzzPrepare(f *testing.F) {
	for _, seed := range []string{`{"n":1}`, `{"n":1e5}`, `{bad`, ``, `null`, "{\"n\":1,\"x\":\"\xff\"}", `{"n":1,"n":2}`, `{"n":-0,"tags":["\ud83d\ude00"]}`, `{"n":1e99999}`} {
		f.Add("add", seed)
		f.Add("free", seed)
	}
	set := newSet(f, nil)
	f.Fuzz(func(t *testing.T, name, raw string) {
		p := Prepare(set, Rules{ClientTools: map[string]bool{"mine": true}}, "0.0", name, raw)
		again := Prepare(set, Rules{ClientTools: map[string]bool{"mine": true}}, "0.0", name, raw)
		if diff := cmp.Diff(p.CallPrepared, again.CallPrepared); diff != "" {
			t.Fatalf("first and second time:\n%s", diff)
		}
		lenient := Prepare(set, Rules{ClientTools: map[string]bool{"mine": true}, Validation: loop.Lenient}, "0.0", name, raw)
		if p.Verdict == loop.Run && cmp.Diff(p, lenient, cmpopts.IgnoreFields(Prepared{}, "Entry")) != "" {
			t.Fatalf("what fits was changed: %+v", lenient.CallPrepared)
		}
		if lenient.Verdict == loop.Run && (lenient.Entry.Schema.Validate(lenient.Arguments) != nil || (p.Verdict != loop.Run) != (lenient.Coerced != nil)) {
			t.Fatalf("%q runs with %q, changed by %v", raw, lenient.Arguments, lenient.Coerced)
		}
		switch p.Verdict {
		case loop.Run:
			var object map[string]any
			d := json.NewDecoder(bytes.NewReader(p.Arguments))
			d.UseNumber() // 1e700 is a number, though no float64
			if err := d.Decode(&object); err != nil || object == nil {
				t.Fatalf("%q runs with %q: %v", raw, p.Arguments, err)
			}
			if v := p.Entry.Schema.Validate(p.Arguments); v != nil {
				t.Fatalf("%q runs with violations %v", raw, v)
			}
		case loop.Answer:
			if p.Arguments != nil || !json.Valid([]byte(p.Answer)) || !utf8.ValidString(p.Answer) {
				t.Fatalf("%q is answered with %q", raw, p.Answer)
			}
		default:
			if p.Owner != tool.Client {
				t.Fatalf("%+v", p.CallPrepared)
			}
		}
	})
}

// nested returns an object with so many levels.
func nested(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}
