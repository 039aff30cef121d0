package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// CallIDs gives the tool calls of a transcript ids that a dialect accepts: not empty,
// not too long, of the characters that it allows, and each only once in a request. It
// is for dialects that join calls and results over the whole request. The nth result
// with an id of the transcript belongs to the nth call with that id. Equal transcripts
// get equal ids. The zero value accepts any id that is not empty.
type CallIDs struct {
	// MaxLength is how many bytes an id may have; a longer one is replaced. 0 = any
	// number.
	MaxLength int
	// Length is how many bytes every id has. One of another length, or with a character
	// that may not be in it, is replaced. 0 = any number.
	Length int
	// Allowed reports whether a character may be in an id; "_" replaces one that may
	// not. nil allows all.
	Allowed func(rune) bool

	used map[string]bool
	next int                 // the lowest number that was not tried for an id
	open map[string][]string // ids in the request of calls without a result, by the transcript's id
}

// IsWord reports whether a character is a letter or a digit of ASCII, "_" or "-".
func IsWord(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// Word returns a text with "_" in place of the characters that are not of a word.
func Word(s string) string { return replaced(s, IsWord) }

func replaced(s string, allowed func(rune) bool) string {
	return strings.Map(func(r rune) rune {
		if allowed(r) {
			return r
		}
		return '_'
	}, s)
}

// Call returns the id of the next call in the request.
func (c *CallIDs) Call(id string) string {
	if c.used == nil {
		c.used, c.open = map[string]bool{}, map[string][]string{}
	}
	sent := id
	if c.Allowed != nil {
		sent = replaced(id, c.Allowed)
	}
	if c.Length > 0 && (len(sent) != c.Length || sent != id) {
		sent = ""
	}
	for sent == "" || c.MaxLength > 0 && len(sent) > c.MaxLength || c.used[sent] {
		n := max(c.next, len(c.used)) // no number is tried twice: a transcript can have thousands of calls
		sent, c.next = c.numbered(n), n+1
	}
	c.used[sent] = true
	c.open[id] = append(c.open[id], sent)
	return sent
}

// Result returns the id of the call that the next result belongs to: the first with
// that id that has no result. Without one it returns id.
func (c *CallIDs) Result(id string) string {
	sent := c.open[id]
	if len(sent) == 0 {
		return id
	}
	c.open[id] = sent[1:]
	return sent[0]
}

// numbered returns a new id.
func (c *CallIDs) numbered(n int) string {
	if c.Length == 0 {
		return fmt.Sprintf("call_%d", n)
	}
	digits := strconv.FormatInt(int64(n), 36) // few enough for the calls of any request
	return "call" + strings.Repeat("0", max(0, c.Length-len("call")-len(digits))) + digits
}
