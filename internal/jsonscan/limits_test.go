package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLimitsAreExact(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"a":[`, n/2) + strings.Repeat("]}", n/2) }
	members := func(n int) string { return "[{" + strings.TrimSuffix(strings.Repeat(`"a":0,`, n), ",") + "}]" }
	for _, tt := range []struct {
		name, text, over string // part of the error; "" = within the limits
	}{
		{"at the depth", nested(maxDepth), ""},
		{"one level more", "[" + nested(maxDepth) + "]", "deeper"},
		{"at the members", members(maxNames), ""},
		{"one member more", members(maxNames + 1), "members"},
		{"at the digits", "[" + strings.Repeat("9", maxDigits) + ",1]", ""},
		{"one digit more", "[" + strings.Repeat("9", maxDigits+1) + "]", "number"},
		{"a long fraction", "-0." + strings.Repeat("1", maxDigits-3) + "1", "number"},
		{"a long exponent", "1e+" + strings.Repeat("0", maxDigits-3), ""},
		{"many short numbers", "[" + strings.Repeat("1,", 500) + "1]", ""},
		{"strings are not limited", `"` + strings.Repeat(`\"{[:1`, 200_000) + `\\"`, ""},
		{"a string that ends in an escaped backslash", `["\\",` + nested(maxDepth) + `]`, "deeper"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !json.Valid([]byte(tt.text)) {
				t.Fatal("the text of the test is not JSON")
			}
			err := Check([]byte(tt.text))
			if (err == nil) != (tt.over == "") || err != nil && !strings.Contains(err.Error(), tt.over) {
				t.Errorf("got %v, want %q", err, tt.over)
			}
		})
	}
}

// FuzzCheck checks that Check returns for any text, and accepts short valid JSON.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":"\u0022"}`, `"\`, `"`, `]]`, `{"a":1e9}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := Check(text)
		if err != nil && json.Valid(text) && len(text) <= maxDepth {
			t.Errorf("Check(%q) = %v", text, err)
		}
	})
}
