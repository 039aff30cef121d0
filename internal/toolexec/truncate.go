package toolexec

import (
	"fmt"
	"unicode/utf8"
)

// Cap is the limit on a result for the model. The zero value is no limit.
type Cap struct {
	Bytes int    // 0 = no limit
	Chars int    // 0 = no limit; otherwise only the first of them are kept, with a note of their number
	Hint  string // how to read the rest, for the model; may be empty

	// HeadOnly keeps nothing of the end of the text: the marker comes last.
	HeadOnly bool
}

// cuts reports whether a text is longer than the limit.
func (c Cap) cuts(text string) bool {
	return c.Bytes > 0 && len(text) > c.Bytes || c.Chars > 0 && len(text) > c.Chars && utf8.RuneCountInString(text) > c.Chars
}

// Truncate cuts text to at most cap.Bytes: the head, a marker that names the
// true size and how to read the rest, and the tail, each of whole characters; with
// HeadOnly without the tail. Of more than cap.Chars characters the first are kept, with a note of their number.
// Where not even the marker fits, the head alone is kept.
func Truncate(text string, cap Cap) string {
	if n := utf8.RuneCountInString(text); cap.Chars > 0 && n > cap.Chars {
		text = firstChars(text, cap.Chars) + fmt.Sprintf("\n\n[Truncated: %d chars total]%s", n, cap.Hint)
	}
	limit := cap.Bytes
	if limit <= 0 || len(text) <= limit {
		return text
	}
	marker := fmt.Sprintf("\n…[truncated; full result is %d bytes]%s\n", len(text), cap.Hint)
	room := limit - len(marker)
	if room <= 0 {
		return head(text, limit)
	}
	if cap.HeadOnly {
		marker = marker[:len(marker)-1]
		return head(text, limit-len(marker)) + marker
	}
	tail := room / 4
	return head(text, room-tail) + marker + tailOf(text, tail)
}

// firstChars returns the first n characters of text, which has more.
func firstChars(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// head returns at most n bytes of text, ending at a whole character.
func head(text string, n int) string {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// tailOf returns at most n bytes from the end, beginning at a whole character.
func tailOf(text string, n int) string {
	i := len(text) - n
	for i < len(text) && !utf8.RuneStart(text[i]) {
		i++
	}
	return text[i:]
}
