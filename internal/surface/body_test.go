package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

func TestScanReturnsTheMembersAsTheyStand(t *testing.T) {
	body := " { \"model\" : \"a\" , \"mod\\u0065l\":\"b\",\"x\":[1e400,-0.5E+3,{\"\\\"\":null}],\"s\":\"\\ud800 \u00e9\",\"e\":{},\"a\":[ ] }\n"
	members, err := Scan(nil, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`model="a"`, `model="b"`, `x=[1e400,-0.5E+3,{"\"":null}]`, `s="\ud800 é"`, `e={}`, `a=[ ]`}
	for i, m := range members {
		if got := m.Name + "=" + string(m.Value); got != want[i] {
			t.Errorf("member %d is %s, want %s", i, got, want[i])
		}
	}
	if len(members) != len(want) {
		t.Errorf("%d members, want %d", len(members), len(want))
	}
}

// A byte order mark before the JSON of a request means nothing, and no provider gets it.
func TestAByteOrderMarkIsSkipped(t *testing.T) {
	for body, want := range map[string]string{
		"\ufeff{\"model\":\"m\"}": `{"model":"m"}`,
		"{\"model\":\"\ufeffm\"}": "{\"model\":\"\ufeffm\"}",
		"\ufeff":                  "",
		"{}":                      "{}",
		"\xef\xbb":                "\xef\xbb",
		"":                        "",
	} {
		got, err := readBody(httptest.NewRequest("POST", "/", strings.NewReader(body)))
		if err != nil || string(got) != want {
			t.Errorf("%q is read as %q, %v", body, got, err)
		}
		from, err := skipMark(iotest.OneByteReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(from); err != nil || string(got) != want {
			t.Errorf("%q is relayed as %q, %v", body, got, err)
		}
	}
	if _, err := skipMark(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a body that cannot be read: %v", err)
	}
}

func TestScanSaysWhereTheJSONIsBroken(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"nothing", "", "unexpected end where an object should be at byte 0"},
		{"an array", "[]", "at byte 0 (line 1, column 1)"},
		{"a missing comma", "{\"a\":1\n \"b\":2}", "at byte 8 (line 2, column 2)"},
		{"a missing value", `{"a":}`, "where a value should be at byte 5"},
		{"a cut body", `{"a":[1,`, "unexpected end"},
		{"crossed brackets", `{"a":[}`, "where a value should be"},
		{"brackets closed by the wrong one", `{"a":[1}`, "closing bracket"},
		{"something after the end", `{} x`, "where the end should be at byte 3"},
		{"a trailing comma", `{"a":1,}`, "a string"},
		{"a bare word", `{"a":nul}`, "a value"},
		{"a number that begins with zero", `{"a":01}`, "a comma"},
		{"a number without digits", `{"a":-}`, "a digit"},
		{"a bad escape", `{"a":"\x"}`, "an escape sequence"},
		{"half a unicode escape", `{"a":"\u12g4"}`, "four hexadecimal digits"},
		{"a newline in a string", "{\"a\":\"\n\"}", "control character 0x0a"},
		{"an open string", `{"a":"xxxxxxxxxxxxxxxxxxx`, "end of a string"},
		{"a single quote", `{'a':1}`, "a string"},
		{"nesting without end", `{"a":` + strings.Repeat("[", 513), "levels"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Scan(nil, []byte(tt.body))
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.Invalid || !strings.Contains(f.Message, tt.want) {
				t.Errorf("error %v does not say %q", err, tt.want)
			}
		})
	}
}

// FuzzScan compares with the standard library, which is stricter about nothing
// that we refuse and laxer about nothing that we accept.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"a":{"b":[1,2,{"c":"\u00e9\\"}]},"d":"xxxxxxxxxxxxxxxx\"yyyy"}`, `{"a":1e400}`, "{\"a\":\"\x1f\"}", `{"a":"` + strings.Repeat("é", 9) + `"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		members, err := Scan(nil, body)
		valid := json.Valid(body) && bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
		if valid != (err == nil) && !strings.Contains(errText(err), "levels") {
			t.Fatalf("scan says %v, the standard library says valid = %v", err, valid)
		}
		for _, m := range members {
			if err == nil && !json.Valid(m.Value) {
				t.Fatalf("member %q has the value %q", m.Name, m.Value)
			}
		}
	})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func BenchmarkScan100KB(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("words and words ", 6400) + `"}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Scan(nil, body); err != nil {
			b.Fatal(err)
		}
	}
}

// The same amount of JSON in many messages, with escapes and tool calls.
func BenchmarkScan100KBOfMessages(b *testing.B) {
	message := `{"role":"user","content":"A line of text.\nAnother \"quoted\" one, of a few dozen words or so, as they come."},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1.5}"}}]}`
	body := []byte(`{"model":"m","messages":[` + strings.Repeat(message+",", 400) + message + `]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Scan(nil, body); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTextsAreReadAsTheStandardLibraryReadsThem(t *testing.T) {
	for object, want := range map[string]string{
		`{"type":"a","id":"b"}`:                            "a b",
		`{ "TYPE":"a", "x":{"id":"no"}, "Id":"b\u00e9\n"}`: "a bé\n",
		`{"type":"a","type":"c","id":7}`:                   "c ",
		`{"id":null}`:                                      " ",
		`[{"id":"b"}]`:                                     " ",
		`"id"`:                                             " ",
		`{}`:                                               " ",
	} {
		if got := strings.Join(Texts([]byte(object), "type", "id"), " "); got != want {
			t.Errorf("%s: %q, want %q", object, got, want)
		}
	}
}

func TestTheNameOfAModelIsBounded(t *testing.T) {
	for n, ok := range map[int]bool{maxModel: true, maxModel + 1: false} {
		members, err := Scan(nil, []byte(`{"model":"`+strings.Repeat("m", n)+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := modelName(members); (err == nil) != ok || !ok && fault.From(err).Param != "model" {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
