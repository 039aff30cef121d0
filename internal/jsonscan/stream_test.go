package jsonscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// found is a member of an object.
type found struct {
	name, value string
	at          int64
}

// FuzzStream compares what is found in a text that is read with what is found in one in memory.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		`{"a":{"b":[1,2,{"c":"\u00e9\\"}]},"d":"xxxxxxxxxxxxxxxx\"yyyy"}`, ` 1e400 `, "{\"a\":\"\x1f\"}", `{"a":-0.5E+3,"b":nul}`, `{"a":[[],{}],"a":true} x`,
		`{"\u006dodel" : "m" , "b":[] }`, `{"a":1,}`, `{}`, `{`, `{"a":{"b":1}`, `{"a":"\ud83d"}`, `{"a":"\x"}`, `{"a":01}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want, got []found
		wantErr := Object(text, func(name string, value []byte, at int) error {
			want = append(want, found{name, string(value), int64(at)})
			return nil
		})
		err := ObjectFrom(iotest.OneByteReader(bytes.NewReader(text)), len(text), func(name string, value []byte, at, end int64) error {
			got = append(got, found{name, string(value), at})
			if int(end-at) != len(value) {
				t.Errorf("the value %q is said to be from %d to %d", value, at, end)
			}
			return nil
		})
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v in memory, %v read", text, wantErr, err)
		}
		if err == nil {
			for i := range want {
				if want[i] != got[i] || len(want) != len(got) {
					t.Fatalf("%q: %q in memory, %q read", text, fmt.Sprint(want), fmt.Sprint(got))
				}
			}
		}
	})
}

func TestObjectFromKeepsShortValuesOnly(t *testing.T) {
	text := `{"long":"` + strings.Repeat("x", 1000) + `","` + strings.Repeat("n", 1000) + `":1,"model":"m"}`
	var got []found
	err := ObjectFrom(strings.NewReader(text), 10, func(name string, value []byte, at, end int64) error {
		if value == nil && end-at <= 10 || text[at] == ' ' {
			t.Errorf("%q from %d to %d", name, at, end)
		}
		got = append(got, found{name, string(value), at})
		return nil
	})
	if err != nil || len(got) != 3 || got[0].value != "" || got[1] != (found{"", "1", got[1].at}) || got[2].name != "model" || got[2].value != `"m"` {
		t.Errorf("%v %v", got, err)
	}
}

func TestObjectFromReturnsTheErrorOfItsReader(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{"", `{`, `{"a`, `{"a":`, `{"a":1`, `{"a":[1,`, `{"a":tr`, `{"a":1.`, `{"a":1} `} {
		err := ObjectFrom(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), 10, func(string, []byte, int64, int64) error { return nil })
		if !errors.Is(err, broken) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
