package toolexec

import (
	"fmt"
	"unicode/utf8"
)

// Cap is the limit on a result for the model. The zero value is no limit.
type Cap struct {
	Bytes int    // 0 = no limit
	Hint  string // how to read the rest, for the model; may be empty

	// HeadOnly keeps nothing of the end of the text: the marker comes last.
	HeadOnly bool
}

// Truncate cuts text to at most cap.Bytes: the head, a marker that names the
// true size and how to read the rest, and the tail, each of whole characters; with
// HeadOnly without the tail.
// Where not even the marker fits, the head alone is kept.
func Truncate(text string, cap Cap) string {
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
