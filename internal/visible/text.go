package visible

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s without what is hidden in it, and how many characters that
// were, a whole escape sequence counting as one. Bytes that are no UTF-8 stay,
// unless they would make a hidden character together: then they become U+FFFD.
func Text(s string) (clean string, hidden int) {
	if plain(s) {
		return s, 0
	}
	clean, hidden = takeOut(s)
	if hidden == 0 || utf8.ValidString(s) {
		return clean, hidden
	}
	if _, made := takeOut(clean); made > 0 { // of the bytes on both sides of what was taken out
		return takeOut(strings.ToValidUTF8(s, "\ufffd"))
	}
	return clean, hidden
}

func takeOut(s string) (string, int) {
	s, hidden := cut(s)
	s, more := loosen(s)
	return s, hidden + more
}

// plain reports whether s is ASCII without control characters, as most texts
// are.
func plain(s string) bool {
	for i := range len(s) {
		if b := s[i]; b >= utf8.RuneSelf || b < ' ' && !layout(rune(b)) || b == 0x7f {
			return false
		}
	}
	return true
}

// layout reports the control characters that a text is laid out with.
func layout(r rune) bool { return r == '\t' || r == '\n' || r == '\r' }

// cut removes what is never part of a text. What may be is left for loosen.
func cut(s string) (string, int) {
	var b strings.Builder
	kept, removed := 0, 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if !hides(r) || joins(r) || selects(r) {
			i += size
			continue
		}
		b.WriteString(s[kept:i])
		removed++
		i += size
		switch r {
		case escape:
			i += sequence(s[i:])
		case csi8:
			i += control(s[i:])
		case dcs8, sos8, osc8, pm8, apc8:
			i += command(s[i:])
		}
		kept = i
	}
	if removed == 0 {
		return s, 0
	}
	b.WriteString(s[kept:])
	return b.String(), removed
}

// loosen removes joiners and selectors from where they write nothing.
func loosen(s string) (string, int) {
	var b strings.Builder
	before := rune(-1) // what stands before r in the result
	removed, kept := 0, 0
	for i, r := range s {
		if !joins(r) && !selects(r) {
			before = r
			continue
		}
		end := i + utf8.RuneLen(r)
		if belongs(before, r, s[end:]) {
			before = r
			continue
		}
		b.WriteString(s[kept:i])
		kept = end
		removed++
	}
	if removed == 0 {
		return s, 0
	}
	b.WriteString(s[kept:])
	return b.String(), removed
}

const (
	nonJoiner     = '\u200c'
	joiner        = '\u200d'
	textStyle     = '\ufe0e'
	emojiStyle    = '\ufe0f'
	keycap        = '\u20e3'
	firstSkinTone = '\U0001f3fb'
	lastSkinTone  = '\U0001f3ff'
)

func joins(r rune) bool   { return r == nonJoiner || r == joiner }
func selects(r rune) bool { return r == textStyle || r == emojiStyle }

// belongs reports whether the joiner or selector r between before and the
// beginning of rest does what it is for.
func belongs(before, r rune, rest string) bool {
	after, _ := utf8.DecodeRuneInString(rest)
	switch {
	case selects(r):
		return pictures(before) || after == keycap && (before >= '0' && before <= '9' || before == '#' || before == '*')
	case r == joiner && (pictures(before) || selects(before)):
		return pictures(after)
	}
	return before >= 0 && unicode.In(before, joining()...) && (unicode.In(after, joining()...) || r == joiner)
}

// pictures reports whether r can be an emoji or the skin tone of one.
func pictures(r rune) bool {
	return unicode.In(r, unicode.So, unicode.Sm) && r > 0xff || r == '©' || r == '®' || r >= firstSkinTone && r <= lastSkinTone ||
		r == '‼' || r == '⁉' || r == '〰' || r == '〽'
}

// joining are the scripts that are written with joiners.
func joining() []*unicode.RangeTable {
	return []*unicode.RangeTable{
		unicode.Arabic, unicode.Bengali, unicode.Devanagari, unicode.Gujarati, unicode.Gurmukhi, unicode.Kannada, unicode.Khmer,
		unicode.Malayalam, unicode.Mongolian, unicode.Myanmar, unicode.Oriya, unicode.Sinhala, unicode.Syriac, unicode.Tamil,
		unicode.Telugu, unicode.Tibetan,
	}
}

// hides reports whether nobody sees r, whatever it does.
func hides(r rune) bool {
	switch {
	case r < ' ' || r >= 0x7f && r < 0xa0:
		return !layout(r)
	case r < 0x300:
		return r == '\u00ad'
	case r >= 0x370 && r < 0x600: // Greek, Cyrillic, Hebrew: common, and nothing to look up
		return false
	case r >= 0x2070 && r < 0xfe00: // symbols, Chinese, Japanese, Korean
		return r == '\u3164'
	}
	return unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r) ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}
