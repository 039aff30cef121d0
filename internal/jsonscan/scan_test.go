package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestObjectReturnsTheMembersInPlace(t *testing.T) {
	text := []byte(" { \"a\" : 1 ,\"\\u0061\":\"x\",\"b\":[{\"a\":2},\"\\\"]\"] , \"\":null}\n")
	var got []string
	err := Object(text, func(name string, value []byte, at int) error {
		if &text[at] != &value[0] || cap(value) != len(value) {
			t.Errorf("%s is a copy, or can grow into the text", name)
		}
		got = append(got, fmt.Sprintf("%s=%s", name, value))
		return nil
	})
	if want := []string{`a=1`, `a="x"`, `b=[{"a":2},"\"]"]`, `=null`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	stop := errors.New("stop")
	if err := Object(text, func(string, []byte, int) error { return stop }); err != stop {
		t.Errorf("error %v, want that of the function", err)
	}
}

func TestSyntaxErrorsNameThePosition(t *testing.T) {
	for text, want := range map[string]string{
		"":             "unexpected end where an object should be at byte 0",
		`[]`:           `unexpected '[' where an object should be at byte 0`,
		`{"a":1 "b"}`:  `unexpected '"' where a comma or the end of the object should be at byte 7`,
		"{\"a\":\"\t":  "control character 0x09 in a string at byte 6",
		`{"a":[1]} x`:  `unexpected 'x' where the end should be at byte 10`,
		`{"a":"\u00g"`: `unexpected 'g' where four hexadecimal digits should be at byte 10`,
	} {
		err := Object([]byte(text), func(string, []byte, int) error { return nil })
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestNestingHasALimit(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if !Valid(nested(maxNesting)) || Valid(nested(maxNesting+1)) {
		t.Errorf("the limit is not %d levels", maxNesting)
	}
	if got := Depth(nested(9)); got != 9 {
		t.Errorf("depth %d, want 9", got)
	}
}

// FuzzScan compares the checks with those of the standard library.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":{"b":[1,2,{"c":"\u00e9\\"}]},"d":"xxxxxxxxxxxxxxxx\"yyyy"}`, ` 1e400 `, "{\"a\":\"\x1f\"}", `{"a":"` + strings.Repeat("é", 9) + `"}`, `-0.5E+3`, `nul`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		valid := json.Valid(text)
		if got := Valid(text); got != valid && Depth(text) <= maxNesting {
			t.Fatalf("Valid(%q) = %v, the standard library says %v", text, got, valid)
		}
		err := Object(text, func(name string, value []byte, at int) error {
			if !json.Valid(value) || !bytes.Equal(text[at:at+len(value)], value) {
				t.Fatalf("member %q has the value %q at %d", name, value, at)
			}
			return nil
		})
		if (err == nil) != (valid && TrimSpace(text)[0] == '{') && Depth(text) <= maxNesting {
			t.Fatalf("Object(%q): %v, the standard library says valid = %v", text, err, valid)
		}
	})
}

// FuzzWalk compares what is found in a text with what the standard library finds:
// members, elements and texts.
func FuzzWalk(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":[{"c":"\u00e9\\"},"]"],"a":{"x":"}"}}`, ` [ { "a" : [ "}" ] , "\u0062" : 1 } , [ {"c":2} ] , {} , null , -1 , { "d" : { } } ] `, `[ 1 , "a,b" , [2] ]`, `{"\u0061" : null , "" : -1.5e3 }`, `"\ud83d\ude00\ud800"`, "{\"a\":\"\xff\"}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		data := TrimSpace([]byte(text))
		if !Valid(data) || !utf8.Valid(data) {
			return
		}
		var want map[string]json.RawMessage
		if data[0] == '{' && json.Unmarshal(data, &want) == nil {
			for name, v := range want {
				if !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError) {
					continue // several names become one
				}
				checkValue(t, Member(data, name), v)
			}
			for name := range Members(data) {
				if _, ok := want[string(name)]; !ok {
					t.Fatalf("%s has no member %q", data, name)
				}
			}
		}
		var list []json.RawMessage
		if data[0] == '[' && json.Unmarshal(data, &list) == nil {
			n := 0
			for i, v := range Elements(data) {
				checkValue(t, v, list[i])
				n++
			}
			if n != len(list) {
				t.Fatalf("%s has %d elements, %d were found", data, len(list), n)
			}
			checkMembersOfElements(t, data)
		}
	})
}

// checkMembersOfElements compares one walk with one for each element.
func checkMembersOfElements(t *testing.T, array []byte) {
	t.Helper()
	var got, want []string
	err := MembersOfElements(array, func(i int, name, value []byte) error {
		got = append(got, fmt.Sprintf("%d %q %s", i, name, value))
		return nil
	})
	for i, v := range Elements(array) {
		for name, value := range Members(v) {
			want = append(want, fmt.Sprintf("%d %q %s", i, name, value))
		}
	}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%s has the members %q, %v; want %q", array, got, err, want)
	}
	if len(want) == 0 {
		return
	}
	calls, refused := 0, errors.New("refused")
	if err := MembersOfElements(array, func(int, []byte, []byte) error { calls++; return refused }); err != refused || calls != 1 {
		t.Fatalf("%s: %v after %d calls, want the error of the first call", array, err, calls)
	}
}

// checkValue compares a value that was found with that of the standard library.
func checkValue(t *testing.T, got []byte, want json.RawMessage) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s, want %s", got, want)
	}
	var s string
	if want[0] == '"' && json.Unmarshal(want, &s) == nil && (Text(got) != s || string(AppendText([]byte("x"), got)) != "x"+s) {
		t.Fatalf("%s is read as %q, want %q", got, Text(got), s)
	}
}

// Names are the same as a known one in other letters, also with letters that only fold to ASCII.
func TestRespelled(t *testing.T) {
	names := []string{"status", "type", "token"}
	for name, want := range map[string]string{"type": "", "Type": "type", "tYPE": "type", "types": "", "": "", "ſtatus": "status", "to\u212aen": "token", "tüpe": ""} {
		if got := Respelled(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestMembersAreAppendedToAnObject(t *testing.T) {
	inside := AppendMember(nil, "a", []byte(`{}`))
	inside = AppendMember(inside, []byte(`"`), []byte(`1`))
	if got := string(append(AppendMember([]byte(`[{`), "b", append(inside, '}')), `}]`...)); got != `[{"b":{"a":{},"\"":1}}]` {
		t.Error(got)
	}
}
