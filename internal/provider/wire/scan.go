package wire

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

// Valid reports whether data is one JSON value. Repeated names and bad UTF-8
// are a provider's sloppiness, not garbage.
func Valid(data []byte) bool {
	return jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// TrimSpace returns b without JSON white space around it.
func TrimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// Members yields the names and values of a JSON object in order, nothing for
// any other value. Names are without quotes.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if !IsKind(object, '{') {
			return
		}
		rest := TrimSpace(object[1 : len(object)-1])
		for len(rest) > 0 {
			n := valueEnd(rest)
			name := rest[1 : n-1]
			if bytes.IndexByte(name, '\\') >= 0 {
				name = AppendText(nil, rest[:n])
			}
			rest = AfterSpace(AfterSpace(rest[n:])[1:]) // the colon
			n = valueEnd(rest)
			if !yield(name, rest[:n]) {
				return
			}
			rest = afterComma(rest[n:])
		}
	}
}

// Elements yields the elements of a JSON array with their positions, nothing
// for any other value.
func Elements(array []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if !IsKind(array, '[') {
			return
		}
		rest := TrimSpace(array[1 : len(array)-1])
		for i := 0; len(rest) > 0; i++ {
			n := valueEnd(rest)
			if !yield(i, rest[:n]) {
				return
			}
			rest = afterComma(rest[n:])
		}
	}
}

// Member returns the last member of the given name, nil without one.
func Member(object []byte, name string) []byte {
	var found []byte
	for n, v := range Members(object) {
		if string(n) == name {
			found = v
		}
	}
	return found
}

// AfterSpace returns b from its first byte that is not JSON white space.
func AfterSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	return b
}

func afterComma(b []byte) []byte {
	b = AfterSpace(b)
	if len(b) > 0 && b[0] == ',' {
		b = b[1:]
	}
	return AfterSpace(b)
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

// IsKind reports whether the value begins with c: { [ " t f n.
func IsKind(v []byte, c byte) bool { return len(v) > 0 && v[0] == c }

// IsNull reports whether v is null or missing.
func IsNull(v []byte) bool { return len(v) == 0 || v[0] == 'n' }

// AppendText appends the text of a JSON string, nothing for any other value.
func AppendText(dst, v []byte) []byte {
	if !IsKind(v, '"') {
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

// Text returns the text of a JSON string, "" for any other value.
func Text(v []byte) string { return string(AppendText(nil, v)) }

// HasText reports whether v is a string and not empty.
func HasText(v []byte) bool { return IsKind(v, '"') && len(v) > 2 }

// Number returns the integer v, or otherwise for any other value.
func Number(v []byte, otherwise int64) int64 {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(string(v), 64); err == nil && f >= -1e15 && f <= 1e15 {
		return int64(f)
	}
	return otherwise
}

// AppendString appends s as a JSON string.
func AppendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // bad UTF-8 becomes U+FFFD
	return dst
}
