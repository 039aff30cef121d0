package wire

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/sse"
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
			[]string{`{"d":"a\ud83d"}`, `{"d":"b"}`}, []string{`{"d":"a\ufffd"}`, `{"d":"b"}`}},
		"at the end": {
			[]string{`{"d":"a\ud83d"}`, `{"e":"b"}`}, []string{`{"d":"a\ufffd"}`, `{"e":"b"}`}},
		"before the end of all strings": {
			[]string{`{"d":"a\ud83d"}`, `{"end":"\ud83d"}`, `{"d":"\ude00"}`}, []string{`{"d":"a\ufffd"}`, `{"end":"\ufffd"}`, `{"d":"\ude00"}`}},
		"of several strings of an event": {
			[]string{`{"d":"a\ud83d","e":"b\ud83c","f":"c\ud83b"}`, `{"f":"\ude00"}`, `{"d":"\ude01"}`, `{"e":"\ude02"}`},
			[]string{`{"d":"a","e":"b","f":"c"}`, `{"f":"\ud83b\ude00"}`, `{"d":"\ud83d\ude01"}`, `{"e":"\ud83c\ude02"}`}},
		"in the same event": {
			[]string{`{"c":[{"index":1,"d":"a\ud83d"},{"index":1,"d":"\ude00b\ud83d"}]}`, `{"c":[{"index":1,"d":"\ude01"}]}`},
			[]string{`{"c":[{"index":1,"d":"a"},{"index":1,"d":"\ud83d\ude00b"}]}`, `{"c":[{"index":1,"d":"\ud83d\ude01"}]}`}},
		"two high halves": {
			[]string{`{"d":"\ud83d"}`, `{"d":"\ud83d"}`, `{"d":"\ude00"}`}, []string{`{"d":"\ufffd"}`, `{"d":""}`, `{"d":"\ud83d\ude00"}`}},
		"an escaped backslash": {
			[]string{`{"d":"\\ud83d"}`, `{"d":"\ude00"}`}, []string{`{"d":"\\ud83d"}`, `{"d":"\ude00"}`}},
		"what is no JSON": {
			[]string{`{"d":"\ud83d"`, `{"d":"x"}`}, []string{`{"d":"\ud83d"`, `{"d":"x"}`}},
	} {
		if got := joined(new(halves), tt.in...); !slices.Equal(got, tt.want) {
			t.Errorf("%s: the events are %q, want %q", name, got, tt.want)
		}
	}
}

// joined returns events as they are decoded. One with the member "end" ends all strings.
func joined(h *halves, events ...string) (out []string) {
	read := make([]byte, 0, 1<<10) // as a reader does, which uses its buffer again
	keep := func(ready []sse.Event) {
		for _, ev := range ready {
			out = append(out, string(ev.Data))
		}
	}
	for _, ev := range events {
		read = append(read[:0], ev...)
		keep(h.add(sse.Event{Data: read}, func(ev sse.Event) bool { return jsonscan.Member(ev.Data, "end") != nil }))
	}
	keep(h.rest())
	return out
}

// The number of events that wait for the second half of a character is limited.
func TestFewEventsWaitForAHalf(t *testing.T) {
	for name, tt := range map[string]struct {
		next string
		most int
	}{
		"many":  {`{"e":"x"}`, maxWaiting},
		"large": {`{"e":"` + strings.Repeat("x", maxWaitingBytes/4) + `"}`, 4},
	} {
		var h halves
		for i := 0; ; i++ {
			in := tt.next
			if i == 0 {
				in = `{"d":"\ud83d"}`
			}
			if ready := h.add(sse.Event{Data: []byte(in)}, func(sse.Event) bool { return false }); len(ready) > 0 {
				if i != tt.most || len(ready) != i+1 {
					t.Errorf("%s: %d events after %d", name, len(ready), i)
				}
				break
			}
		}
		if h.bytes != 0 || len(h.open)+len(h.waiting) != 0 {
			t.Errorf("%s: something waits: %+v", name, h)
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
		var events []string
		for _, piece := range [][]string{units[:at], nil, units[at:]} {
			events = append(events, `{"x":[{"index":1,"t":"`+strings.Join(piece, "")+`"}]}`)
		}
		got := ""
		for _, event := range joined(&h, events...) {
			if !json.Valid([]byte(event)) {
				t.Fatalf("%s", event)
			}
			for _, e := range jsonscan.Elements(jsonscan.Member([]byte(event), "x")) {
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
