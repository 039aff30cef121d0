package jsonscan

import (
	"bytes"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// TrimSpace returns b without JSON white space around it.
func TrimSpace(b []byte) []byte {
	b = AfterSpace(b)
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// AfterSpace returns b from its first byte that is not JSON white space.
func AfterSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	return b
}

// Members yields the names and values of an object in order, nothing for any
// other value. Names are without quotes and escapes.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if IsKind(object, '{') {
			walkMembers(object, yield)
		}
	}
}

// MembersOfElements calls member for each member of each object in an array, in order. i is the
// position of the object, from 0 on. An element that is not an object has no members, nor has any
// other value than an array. An error of member ends the walk and is returned.
func MembersOfElements(array []byte, member func(i int, name, value []byte) error) error {
	if !IsKind(array, '[') {
		return nil
	}
	rest := AfterSpace(array[1:])
	for i := 0; rest[0] != ']'; i++ {
		if rest[0] != '{' {
			rest = afterComma(rest[valueLen(rest):])
			continue
		}
		var err error
		rest = walkMembers(rest, func(name, value []byte) bool {
			err = member(i, name, value)
			return err == nil
		})
		if err != nil {
			return err
		}
		rest = afterComma(rest)
	}
	return nil
}

// walkMembers yields the members of the object that b begins with, and returns what follows the
// object.
func walkMembers(b []byte, yield func(name, value []byte) bool) (rest []byte) {
	b = AfterSpace(b[1:])
	for b[0] != '}' {
		n := StringLen(b)
		name := b[1 : n-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = AppendText(nil, b[:n])
		}
		b = AfterSpace(AfterSpace(b[n:])[1:]) // the colon
		n = valueLen(b)
		if !yield(name, b[:n]) {
			return nil
		}
		b = afterComma(b[n:])
	}
	return b[1:]
}

// Elements yields the elements of an array with their positions from 0 on,
// nothing for any other value.
func Elements(array []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if !IsKind(array, '[') {
			return
		}
		rest := TrimSpace(array[1 : len(array)-1])
		for i := 0; len(rest) > 0; i++ {
			n := valueLen(rest)
			if !yield(i, rest[:n]) {
				return
			}
			rest = afterComma(rest[n:])
		}
	}
}

// Member returns the value of the last member of that name, nil without one.
func Member(object []byte, name string) []byte {
	var found []byte
	for n, v := range Members(object) {
		if string(n) == name {
			found = v
		}
	}
	return found
}

func afterComma(b []byte) []byte {
	b = AfterSpace(b)
	if len(b) > 0 && b[0] == ',' {
		b = b[1:]
	}
	return AfterSpace(b)
}

// valueLen returns the length of the value that b begins with.
func valueLen(b []byte) int {
	switch b[0] {
	case '"':
		return StringLen(b)
	case '{', '[':
		return nestedLen(b)
	}
	for i, c := range b {
		if c == ',' || c == '}' || c == ']' || isSpace(c) {
			return i
		}
	}
	return len(b)
}

// StringLen returns the length of the string that b begins with, including its
// quotes; len(b) if the string does not end.
func StringLen(b []byte) int {
	for i := plainEnd(b, 1); i < len(b); i = plainEnd(b, i) {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
		i++
	}
	return len(b)
}

// nestedLen returns the length of the object or array that b begins with.
func nestedLen(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += StringLen(b[i:]) - 1
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

// HasText reports whether v is a string and not empty.
func HasText(v []byte) bool { return IsKind(v, '"') && len(v) > 2 }

// Text returns the text of a string, "" for any other value. Invalid UTF-8
// becomes U+FFFD.
func Text(v []byte) string {
	if IsKind(v, '"') && isPlain(v[1:len(v)-1]) {
		return string(v[1 : len(v)-1])
	}
	return string(AppendText(nil, v))
}

// AppendText appends the text of a string, nothing for any other value. Invalid
// UTF-8 becomes U+FFFD.
func AppendText(dst, v []byte) []byte {
	if !IsKind(v, '"') {
		return dst
	}
	if inside := v[1 : len(v)-1]; isPlain(inside) {
		return append(dst, inside...)
	}
	dst, _ = jsontext.AppendUnquote(dst, v) // the error is about invalid UTF-8
	return dst
}

// isPlain reports whether the inside of a string is its text.
func isPlain(inside []byte) bool {
	return bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside)
}

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error is about invalid UTF-8
	return dst
}

// AppendMember appends a member to an object that has no end yet. If dst is empty, the object begins.
func AppendMember[S ~string | ~[]byte](dst []byte, name S, value []byte) []byte {
	switch n := len(dst); {
	case n == 0:
		dst = append(dst, '{')
	case dst[n-1] != '{':
		dst = append(dst, ',')
	}
	return append(append(AppendString(dst, name), ':'), value...)
}

// Number returns the integer v, rounded towards zero, or otherwise for any other
// value.
func Number(v []byte, otherwise int64) int64 {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(string(v), 64); err == nil && f >= -1e15 && f <= 1e15 {
		return int64(f)
	}
	return otherwise
}

// Respelled returns the one of names that name differs from only by case, "" if there is
// none or if name is one of names. Readers disagree about such names: some ignore case.
func Respelled[S ~string | ~[]byte](name S, names []string) string {
	found, plain := "", true // ASCII: both spellings have the same length
	for i := range len(name) {
		plain = plain && name[i] < utf8.RuneSelf
	}
	for _, known := range names {
		switch {
		case plain && len(name) != len(known):
		case string(name) == known:
			return ""
		case strings.EqualFold(string(name), known):
			found = known
		}
	}
	return found
}
