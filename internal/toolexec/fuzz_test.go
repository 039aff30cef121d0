package toolexec

import (
	"encoding/json"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// FuzzCanonical: the canonical form is its own canonical form and has the meaning of the
// arguments. Two arguments have the same one only if they have the same meaning, so that
// approvals and cached results can be found by its digest.
func FuzzCanonical(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":1,"b":[2,{"c":null}]}`, ` { "b" : [2,{"c":null}], "\u0061":1 } `}, {`{"n":9007199254740993}`, `{"n":9007199254740992}`},
		{`{"n":1.0}`, `{"n":1}`}, {`{"n":1e2}`, `{"n":100}`}, {`{"n":-0}`, `{"n":0}`}, {`{"n":0E0}`, `{"n":-0e000}`}, {`{"n":1e21}`, `{"n":1000000000000000000000}`},
		{`{"a":"\ud83d\ude00"}`, `{"a":"😀"}`}, {`{"a":"\u2028<>&\/"}`, `{"a":"` + "\u2028" + `\u003c>&/"}`}, {`{"a":1,"a":1}`, `{"a":1}`}, {``, `{}`},
		{`{"n":9E400}`, `{"n":-9e0401}`}, {`{"n":1.7976931348623157e308}`, `{"n":1e400,"t":"1.7976931348623157e+308"}`},
		{`{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3}`, `{"€":3,"😀":2,"דּ":1}`},
	} {
		f.Add(seed[0], seed[1])
	}
	set := newSet(f, nil)
	f.Fuzz(func(t *testing.T, one, two string) {
		a, ok := Canonical(json.RawMessage(one))
		if !ok {
			return
		}
		if again, ok := Canonical(json.RawMessage(a)); !ok || again != a {
			t.Fatalf("%q → %q → %q", one, a, again)
		}
		if !reflect.DeepEqual(meaning(t, a), meaning(t, one)) {
			t.Fatalf("%q and %q do not mean the same", one, a)
		}
		spread, err := json.MarshalIndent(meaning(t, one), " ", "\t") // other order, other escapes, more space
		if err != nil {
			t.Fatal(err)
		}
		if b, ok := Canonical(spread); !ok || b != a {
			t.Fatalf("%q is %q, and as %s it is %q", one, a, spread, b)
		}
		b, ok := Canonical(json.RawMessage(two))
		if !ok {
			return
		}
		same := reflect.DeepEqual(meaning(t, one), meaning(t, two))
		if (a == b) != same {
			t.Fatalf("%q is %q, %q is %q; they mean the same: %v", one, a, two, b, same)
		}
		left, right := Prepare(set, Rules{}, "0.0", "free", one), Prepare(set, Rules{}, "0.0", "free", two)
		if left.Verdict == loop.Run && right.Verdict == loop.Run && (left.ArgsDigest == right.ArgsDigest) != same {
			t.Fatalf("%q and %q: digests %s and %s", one, two, left.ArgsDigest, right.ArgsDigest)
		}
	})
}

// meaning decodes arguments by the standard library. A number that is written as
// an integer is that integer, digit by digit; any other is the nearest float, as
// JCS has it.
func meaning(t *testing.T, arguments string) any {
	t.Helper()
	if strings.TrimSpace(arguments) == "" {
		arguments = "{}"
	}
	d := json.NewDecoder(strings.NewReader(arguments))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q has a canonical form: %v", arguments, err)
	}
	return numbered(v)
}

func numbered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = numbered(member)
		}
	case []any:
		for i, element := range v {
			v[i] = numbered(element)
		}
	case json.Number:
		if n, ok := new(big.Int).SetString(string(v), 10); ok {
			return json.Number(n.String())
		}
		x, _ := strconv.ParseFloat(string(v), 64)
		if x == 0 {
			x = 0 // JCS has no -0
		}
		text, _ := json.Marshal(x)
		return json.Number(text)
	}
	return v
}
