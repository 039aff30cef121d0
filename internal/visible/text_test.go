package visible

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
)

func TestWhatIsHiddenIsTakenOut(t *testing.T) {
	tags := "\U000e0001"
	for _, r := range "ignore all" {
		tags += string(0xe0000 + r)
	}
	for name, row := range map[string]struct{ in, want string }{
		"plain text":                         {"a b\tc\r\nd", "a b\tc\r\nd"},
		"zero width":                         {"de\u200bl\u2060e\ufeffte", "delete"},
		"joiners between Latin letters":      {"a\u200cb\u200dc", "abc"},
		"bidirectional controls":             {"a\u202eb\u202cc\u2066d\u2069e\u061cf", "abcdef"},
		"the tag block":                      {"weather" + tags + "\U000e007f", "weather"},
		"variation selectors":                {"a\ufe0f\ufe00b\U000e0100\U000e01ef", "ab"},
		"a run of selectors after a picture": {"❤\ufe0f\ufe0f\ufe0f!", "❤\ufe0f!"},
		"soft hyphen and fillers":            {"a\u00adb\u3164c\u115fd\u034fe", "abcde"},
		"control characters":                 {"a\x00b\x07c\bd\x7fe\u0085f", "abcdef"},
		"colours":                            {"\x1b[1;31mred\x1b[0m", "red"},
		"colours in eight bits":              {"\u009b31mred", "red"},
		"a link":                             {"\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\.", "here."},
		"a link that a bell ends":            {"\x1b]8;;http://evil.example\ahere\x1b]8;;\a.", "here."},
		"a window title":                     {"\x1b]0;root@host\ax", "x"},
		"a device control string":            {"a\x1bPq#0\x1b\\b", "ab"},
		"a character set":                    {"\x1b(Bx\x1b7y", "xy"},
		"an unfinished sequence":             {"a\x1b[31", "a[31"},
		"an unfinished link":                 {"a\x1b]8;;x\nb", "a]8;;x\nb"},
		"a sequence in a sequence":           {"a\x1b\x1b[31mb\x1b]x\x1b[0mc", "abc"},
		"a sequence put together":            {"\x1b\u200b[31mx", "[31mx"},
		"a link without end":                 {"\x1b]" + strings.Repeat("x", longest), "]" + strings.Repeat("x", longest)},
		"bytes that are no UTF-8":            {"a\xff\u200bb\x9b", "a\xffb\x9b"},
		"Persian":                            {"می\u200cخواهم", "می\u200cخواهم"},
		"Hindi":                              {"क्\u200dष", "क्\u200dष"},
		"joiners in a row":                   {"ا\u200c\u200c\u200cب", "ا\u200cب"},
		"a family":                           {"👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"},
		"a flag of a rainbow":                {"🏳\ufe0f\u200d🌈", "🏳\ufe0f\u200d🌈"},
		"a key":                              {"1\ufe0f\u20e3 2\ufe0f", "1\ufe0f\u20e3 2"},
		"a red heart":                        {"❤\ufe0f", "❤\ufe0f"},
		"marks that are seen":                {"\u0600٣ e\u0301 한글 漢字", "\u0600٣ e\u0301 한글 漢字"},
	} {
		t.Run(name, func(t *testing.T) {
			got, hidden := Text(row.in)
			if got != row.want || (hidden > 0) != (row.in != row.want) {
				t.Errorf("%+.99q, %d hidden, want %+.99q", got, hidden, row.want)
			}
			if again, n := Text(got); again != got || n != 0 {
				t.Errorf("once more: %+q, %d hidden", again, n)
			}
		})
	}
}

// Every character that Unicode calls a control, a format character, a variation
// selector or ignorable is gone from between Latin letters.
func TestNothingHiddenIsForgotten(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		hidden := unicode.In(r, unicode.Cc, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) &&
			!unicode.Is(unicode.Prepended_Concatenation_Mark, r) && !layout(r)
		if surrogate := r >= 0xd800 && r < 0xe000; surrogate {
			continue
		}
		if got, _ := Text("a" + string(r) + "é"); (got == "aé") != hidden {
			t.Fatalf("%U: %+q", r, got)
		}
	}
}

func TestJSONKeepsEveryByteThatHidesNothing(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{`{"a": 1.0e2 , "b":12345678901234567890,"c":"é\n\u00e9"}`, `{"a": 1.0e2 , "b":12345678901234567890,"c":"é\n\u00e9"}`},
		{`{"a": "x\u200by", "n": 1.0e2}`, `{"a": "xy", "n": 1.0e2}`},
		{`{"a\u001b[31m":["x` + "\u200b" + `","\\\"\u202e"]}`, `{"a":["x","\\\""]}`},
		{`{"half":"\ud800\u200b"}`, "{\"half\":\"\ufffd\"}"},
	} {
		got, _, err := JSON(json.RawMessage(row.in))
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %s, %v, want %s", row.in, got, err, row.want)
		}
		if again, n, err := JSON(got); string(again) != string(got) || n != 0 || err != nil {
			t.Errorf("once more: %s, %d hidden, %v", again, n, err)
		}
	}
	if _, _, err := JSON(json.RawMessage(`{"a":1,"a\u200b":2}`)); !errors.Is(err, ErrSame) {
		t.Errorf("two names that look the same: %v", err)
	}
}
