package visible

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzText: nothing hidden is left, nothing else is missing, and there is nothing
// to do the second time.
func FuzzText(f *testing.F) {
	for _, seed := range []string{
		"delete\u200b all \x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\", "\U000e0041\U000e0042", "a\u202eb\u2066c", "👩\u200d👩\u200d👧\ufe0f\u200d", "क\u094d\u200dष",
		"\xe2\u200b\x80\x8b", "1\ufe0f\u20e3", "\x9b31m\u009b31m", "\x1b[\x1b[31m", "\x1b]\x1b\x1b]x\a", "\ufe0f\u200d\ufe0f", "\x1b", "\u0604\u06dd",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		clean, hidden := Text(s)
		if (clean == s) != (hidden == 0) {
			t.Fatalf("%q → %q, %d hidden", s, clean, hidden)
		}
		checkClean(t, clean)
		if !remains(clean, s) && !remains(clean, strings.ToValidUTF8(s, "\ufffd")) {
			t.Fatalf("%q → %q, which is not what remains of it", s, clean)
		}
		if utf8.ValidString(s) && !utf8.ValidString(clean) {
			t.Fatalf("%q → %q", s, clean)
		}
	})
}

// checkClean fails the test if a text hides something. Joiners and selectors stay
// where they write something, and never two together without a letter or a
// picture before them.
func checkClean(t *testing.T, s string) {
	t.Helper()
	if again, hidden := Text(s); again != s || hidden != 0 {
		t.Fatalf("%q → %q, %d hidden", s, again, hidden)
	}
	bare := 0 // joiners and selectors since the last other character
	for _, r := range s {
		switch {
		case joins(r) || selects(r):
			if bare++; bare > 2 {
				t.Fatalf("%q holds a message in joiners", s)
			}
			continue
		case unicode.Is(unicode.Cc, r) && !layout(r), r >= 0xe0000 && r < 0xe1000, unicode.Is(unicode.Bidi_Control, r), r == '\u200b', r == '\ufeff', r == '\u2060':
			t.Fatalf("%q hides %U", s, r)
		}
		bare = 0
	}
}

// remains reports whether clean is s with characters left out.
func remains(clean, s string) bool {
	for i := range len(s) {
		if clean != "" && clean[0] == s[i] {
			clean = clean[1:]
		}
	}
	return clean == ""
}

// FuzzJSON: valid JSON stays valid, keeps all that is not text, and has nothing
// hidden in any of its strings and names, however they were escaped.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a\u200b":"\u001b[31mred","n":[1e3,true,null," x "]}`, `{"a":1,"a\u200d":2}`, `"\ud83d\ude00\ufe0f\udb40\udc41"`, `{"\ud800":"\u202e"}`, "{\"\xff\":\"\xe2\u200b\x80\x8b\"}", ` [ "\\u200b" ] `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		clean, hidden, err := JSON(raw)
		if err != nil {
			if clean != nil || hidden == 0 {
				t.Fatalf("%s: %v", raw, err)
			}
			return
		}
		if (string(clean) == string(raw)) != (hidden == 0) || !json.Valid(clean) {
			t.Fatalf("%s → %s, %d hidden", raw, clean, hidden)
		}
		if again, more, err := JSON(clean); err != nil || more != 0 || string(again) != string(clean) {
			t.Fatalf("%s → %s → %s, %d hidden, %v", raw, clean, again, more, err)
		}
		var v any
		if err := json.Unmarshal(clean, &v); err == nil {
			checkStrings(t, v)
		}
	})
}

func checkStrings(t *testing.T, v any) {
	t.Helper()
	switch v := v.(type) {
	case string:
		checkClean(t, v)
	case []any:
		for _, e := range v {
			checkStrings(t, e)
		}
	case map[string]any:
		for name, e := range v {
			checkClean(t, name)
			checkStrings(t, e)
		}
	}
}
