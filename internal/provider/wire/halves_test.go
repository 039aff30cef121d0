package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// A character that a stream cuts at UTF-16 units is whole again, in the string that it is of.
func TestHalvesOfCharacters(t *testing.T) {
	for name, tt := range map[string]struct{ in, want []string }{
		"in the next piece": {
			[]string{`{"d":"a\ud83d"}`, `{"d":"\ude00b"}`}, []string{`{"d":"a"}`, `{"d":"\ud83d\ude00b"}`}},
		"after other pieces": {
			[]string{`{"d":"\uD83D"}`, `{"ping":1}`, `{"d":""}`, `{"d":"\uDE00"}`}, []string{`{"d":""}`, `{"ping":1}`, `{"d":""}`, `{"d":"\uD83D\uDE00"}`}},
		"of several strings at a time": {
			[]string{`{"index":0,"p":"\ud83d"}`, `{"index":1,"p":"\ud83c"}`, `{"p":"\ude00","index":0}`, `{"index":1,"p":"\udf00"}`},
			[]string{`{"index":0,"p":""}`, `{"index":1,"p":""}`, `{"p":"\ud83d\ude00","index":0}`, `{"index":1,"p":"\ud83c\udf00"}`}},
		"in lists, by the index of the element": {
			[]string{`{"c":[{"index":2,"f":{"a":"{\"s\":\"\ud83d"}}]}`, `{"c":[{"index":1,"f":{"a":"x"}},{"index":2,"f":{"a":"\ude00\"}"}}]}`},
			[]string{`{"c":[{"index":2,"f":{"a":"{\"s\":\""}}]}`, `{"c":[{"index":1,"f":{"a":"x"}},{"index":2,"f":{"a":"\ud83d\ude00\"}"}}]}`}},
		"without the other half": {
			[]string{`{"d":"a\ud83d"}`, `{"d":"b"}`}, []string{`{"d":"a"}`, `{"d":"\ud83db"}`}},
		"two high halves": {
			[]string{`{"d":"\ud83d"}`, `{"d":"\ud83d"}`, `{"d":"\ude00"}`}, []string{`{"d":""}`, `{"d":"\ud83d"}`, `{"d":"\ud83d\ude00"}`}},
		"an escaped backslash": {
			[]string{`{"d":"\\ud83d"}`, `{"d":"\ude00"}`}, []string{`{"d":"\\ud83d"}`, `{"d":"\ude00"}`}},
		"what is no JSON": {
			[]string{`{"d":"\ud83d"`, `{"d":"x"}`}, []string{`{"d":"\ud83d"`, `{"d":"x"}`}},
	} {
		var h halves
		for i, in := range tt.in {
			if got := string(h.join([]byte(in))); got != tt.want[i] {
				t.Errorf("%s: event %d is %s, want %s", name, i, got, tt.want[i])
			}
		}
	}
}

// FuzzHalves: a text that is cut into two pieces anywhere between its UTF-16 units is the same
// text, and an event without halves stays as it is.
func FuzzHalves(f *testing.F) {
	f.Add("a😀b", 2)
	f.Add("😀", 1)
	f.Add(`\😀"`, 3)
	f.Fuzz(func(t *testing.T, text string, at int) {
		text = strings.ToValidUTF8(text, "")
		var units []string
		for _, r := range text {
			if r > 0xffff {
				r -= 0x10000
				units = append(units, escaped(0xd800+r>>10), escaped(0xdc00+r&0x3ff))
				continue
			}
			quoted := jsonscan.AppendString(nil, string(r))
			units = append(units, string(quoted[1:len(quoted)-1]))
		}
		at = min(max(at, 0), len(units))
		var h halves
		got := ""
		for _, piece := range [][]string{units[:at], nil, units[at:]} {
			event := h.join([]byte(`{"x":[{"index":1,"t":"` + strings.Join(piece, "") + `"}]}`))
			if !json.Valid(event) {
				t.Fatalf("%s", event)
			}
			for _, e := range jsonscan.Elements(jsonscan.Member(event, "x")) {
				got += jsonscan.Text(jsonscan.Member(e, "t"))
			}
		}
		if got != text {
			t.Errorf("%q at %d is %q", text, at, got)
		}
	})
}

func escaped(unit rune) string {
	const digits = "0123456789abcdef"
	return `\u` + string([]byte{digits[unit>>12&15], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15]})
}
