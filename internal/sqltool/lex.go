package sqltool

import (
	"errors"
	"slices"
	"strings"
)

// tokenKind is what a token of a statement is.
type tokenKind int

const (
	word   tokenKind = iota // an identifier or a keyword without quotes, in lower case
	quoted                  // an identifier in quotes
	other                   // a string, a number or one character
)

type token struct {
	kind tokenKind
	text string
}

// is reports whether the token is the character or the keyword.
func (t token) is(text string) bool { return t.kind != quoted && t.text == text }

// errUnreadable is a statement whose tokens are not known for certain: it is refused.
var errUnreadable = errors.New("the query cannot be read: a string, a quoted name or a comment does not end")

// lex returns the tokens of a PostgreSQL statement, as the server reads it with standard_conforming_strings. What the
// server may read differently is an error.
func lex(s string) ([]token, error) {
	var out []token
	for i := 0; i < len(s); {
		t, n, err := next(s[i:])
		if err != nil {
			return nil, err
		}
		if t.text != "" {
			out = append(out, t)
		}
		i += n
	}
	return out, nil
}

// next returns the first token of s and its length; a token without text is none.
func next(s string) (token, int, error) {
	lower := strings.ToLower(s[:min(len(s), 3)])
	switch c := s[0]; {
	case strings.HasPrefix(lower, `u&"`), strings.HasPrefix(lower, `u&'`):
		return token{}, 0, errors.New(`names and strings with U& are not supported; write the characters themselves`)
	case strings.HasPrefix(lower, "e'"):
		return literal(s, 1, '\'', true)
	case strings.HasPrefix(lower, "b'"), strings.HasPrefix(lower, "x'"), strings.HasPrefix(lower, "n'"):
		return literal(s, 1, '\'', false)
	case c == '\'':
		return literal(s, 0, '\'', false)
	case c == '"':
		_, n, err := literal(s, 0, '"', false)
		if err != nil {
			return token{}, 0, err
		}
		return token{quoted, strings.ReplaceAll(s[1:n-1], `""`, `"`)}, n, nil
	case strings.HasPrefix(s, "--"):
		return token{}, lineLength(s), nil
	case strings.HasPrefix(s, "/*"):
		n, err := commentLength(s)
		return token{}, n, err
	case c == '$':
		return dollar(s)
	case isLetter(c):
		n := 1
		for n < len(s) && (isLetter(s[n]) || isDigit(s[n]) || s[n] == '$') {
			n++
		}
		return token{word, foldASCII(s[:n])}, n, nil
	case isDigit(c):
		n := 1
		for n < len(s) && (isDigit(s[n]) || s[n] == '.') {
			n++
		}
		return token{other, "0"}, n, nil
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
		return token{}, 1, nil
	case c < ' ' || c == 0x7f:
		return token{}, 0, errors.New("the query contains a control character")
	default:
		return token{other, s[:1]}, 1, nil
	}
}

// literal returns what is in quotes after start bytes.
func literal(s string, start int, quote byte, escapes bool) (token, int, error) {
	for i := start + 1; i < len(s); i++ {
		switch {
		case escapes && s[i] == '\\':
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return token{other, "''"}, i + 1, nil
		}
	}
	return token{}, 0, errUnreadable
}

func lineLength(s string) int {
	if end := strings.IndexAny(s, "\r\n"); end >= 0 {
		return end
	}
	return len(s)
}

// commentLength returns the length of a comment. Comments contain comments.
func commentLength(s string) (int, error) {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
		}
		if depth == 0 {
			return i + 1, nil
		}
	}
	return 0, errUnreadable
}

// dollar returns a string in dollar quotes.
func dollar(s string) (token, int, error) {
	n := 1
	for n < len(s) && (isLetter(s[n]) || n > 1 && isDigit(s[n])) {
		n++
	}
	if n == len(s) || s[n] != '$' {
		return token{}, 0, errors.New("parameters such as $1 are not supported; write the values")
	}
	end := strings.Index(s[n+1:], s[:n+1])
	if end < 0 {
		return token{}, 0, errUnreadable
	}
	return token{other, "''"}, n + 1 + end + n + 1, nil
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// foldASCII returns a name as the server reads it without quotes.
func foldASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// oneStatement returns the tokens without a semicolon at the end. It returns an error if there is another one.
func oneStatement(all []token) ([]token, error) {
	for len(all) > 0 && all[len(all)-1].is(";") {
		all = all[:len(all)-1]
	}
	if len(all) == 0 {
		return nil, errors.New("the query is empty")
	}
	if slices.ContainsFunc(all, func(t token) bool { return t.is(";") }) {
		return nil, errors.New("the query must be one statement, without a semicolon in it")
	}
	return all, nil
}

// begins reports whether the statement begins with one of the words, after opening parentheses.
func begins(all []token, words ...string) bool {
	for _, t := range all {
		if !t.is("(") {
			return t.kind == word && slices.Contains(words, t.text)
		}
	}
	return false
}
