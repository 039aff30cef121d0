package openai

import (
	"bytes"
	"iter"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The functions of this file walk over JSON that valid has accepted and that
// has no white space around it, without copying it. They leave every member as
// the provider wrote it.

// valid reports whether data is one JSON value. Repeated names and bad UTF-8
// are a provider's sloppiness, not garbage.
func valid(data []byte) bool {
	return jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func trimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// members yields the names and values of a JSON object in order, nothing for
// any other value. Names are without quotes.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if !isKind(object, '{') {
			return
		}
		rest := trimSpace(object[1 : len(object)-1])
		for len(rest) > 0 {
			n := valueEnd(rest)
			name := rest[1 : n-1]
			if bytes.IndexByte(name, '\\') >= 0 {
				name = appendText(nil, rest[:n])
			}
			rest = afterSpace(afterSpace(rest[n:])[1:]) // the colon
			n = valueEnd(rest)
			if !yield(name, rest[:n]) {
				return
			}
			rest = afterComma(rest[n:])
		}
	}
}

// elements yields the elements of a JSON array with their positions, nothing
// for any other value.
func elements(array []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if !isKind(array, '[') {
			return
		}
		rest := trimSpace(array[1 : len(array)-1])
		for i := 0; len(rest) > 0; i++ {
			n := valueEnd(rest)
			if !yield(i, rest[:n]) {
				return
			}
			rest = afterComma(rest[n:])
		}
	}
}

// member returns the last member of the given name, nil without one.
func member(object []byte, name string) []byte {
	var found []byte
	for n, v := range members(object) {
		if string(n) == name {
			found = v
		}
	}
	return found
}

func afterSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	return b
}

func afterComma(b []byte) []byte {
	b = afterSpace(b)
	if len(b) > 0 && b[0] == ',' {
		b = b[1:]
	}
	return afterSpace(b)
}

// valueEnd returns the length of the value that b begins with.
func valueEnd(b []byte) int {
	switch b[0] {
	case '"':
		return stringEnd(b)
	case '{', '[':
		return nestedEnd(b)
	}
	for i, c := range b {
		if c == ',' || c == '}' || c == ']' || isSpace(c) {
			return i
		}
	}
	return len(b)
}

func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

func nestedEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringEnd(b[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

// isKind reports whether the value begins with c: { [ " t f n.
func isKind(v []byte, c byte) bool { return len(v) > 0 && v[0] == c }

func isNull(v []byte) bool { return len(v) == 0 || v[0] == 'n' }

// appendText appends the text of a JSON string, nothing for any other value.
func appendText(dst, v []byte) []byte {
	if !isKind(v, '"') {
		return dst
	}
	if plain(v[1 : len(v)-1]) {
		return append(dst, v[1:len(v)-1]...)
	}
	dst, _ = jsontext.AppendUnquote(dst, v) // bad UTF-8 becomes U+FFFD
	return dst
}

// plain reports whether the inside of a JSON string means itself.
func plain(b []byte) bool {
	return bytes.IndexByte(b, '\\') < 0 && utf8.Valid(b)
}

// text returns the text of a JSON string, "" for any other value.
func text(v []byte) string { return string(appendText(nil, v)) }

// hasText reports whether v is a string and not empty.
func hasText(v []byte) bool { return isKind(v, '"') && len(v) > 2 }

// number returns the integer v, or otherwise for any other value.
func number(v []byte, otherwise int64) int64 {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(string(v), 64); err == nil && f >= -1e15 && f <= 1e15 {
		return int64(f)
	}
	return otherwise
}

// appendString appends s as a JSON string.
func appendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // bad UTF-8 becomes U+FFFD
	return dst
}
