// Package jsonscan reads JSON text in place: it checks it, finds members and
// elements in it, and leaves every byte as it is. Values are slices of the text.
//
//	err := jsonscan.Object(body, func(name string, value []byte, at int) error { … })
//	model := jsonscan.Text(jsonscan.Member(body, "model"))
//	for i, v := range jsonscan.Elements(jsonscan.Member(body, "messages")) { … }
//
// [Object], [Valid], [Check] and [Depth] take any text. All other functions take
// text that Object or Valid has accepted, without white space around it; for
// other text they may panic.
//
// Repeated names and invalid UTF-8 are accepted: clients and providers send both.
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// maxNesting is how many levels of objects and arrays a text may have.
const maxNesting = 512

// SyntaxError says where a text is not JSON.
type SyntaxError struct {
	Offset  int // in bytes, from 0
	Message string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.Message, e.Offset) }

// Valid reports whether data is one JSON value.
func Valid(data []byte) bool {
	s := scanner{data: data}
	return s.value() == nil && s.end() == nil
}

// Object reads data, which must be one JSON object, and calls member for each
// member in order, repeated names included. The position of a value is in bytes
// from the beginning of data. A value has no spare capacity. The rest of data is
// not yet checked when member is called.
//
// The error is a *[SyntaxError], or that of member, which ends the reading.
func Object(data []byte, member func(name string, value []byte, at int) error) error {
	s := scanner{data: data}
	s.space()
	if !s.take('{') {
		return s.unexpected("an object")
	}
	s.space()
	if s.take('}') {
		return s.end()
	}
	for {
		s.space()
		start := s.pos
		if err := s.skipName(); err != nil {
			return err
		}
		name := Text(data[start : start+StringLen(data[start:])])
		s.space()
		start = s.pos
		if err := s.value(); err != nil {
			return err
		}
		if err := member(name, data[start:s.pos:s.pos], start); err != nil {
			return err
		}
		s.space()
		if s.take('}') {
			return s.end()
		}
		if !s.take(',') {
			return s.unexpected("a comma or the end of the object")
		}
	}
}

// scanner is a position in a text.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) unexpected(wanted string) error {
	if s.pos >= len(s.data) {
		return s.fail("unexpected end where %s should be", wanted)
	}
	return s.fail("unexpected %q where %s should be", s.data[s.pos], wanted)
}

func (s *scanner) fail(format string, args ...any) error {
	return &SyntaxError{s.pos, fmt.Sprintf(format, args...)}
}

// end moves to the end of the text.
func (s *scanner) end() error {
	s.space()
	if s.pos < len(s.data) {
		return s.unexpected("the end")
	}
	return nil
}

// value moves behind one value, with a stack of open brackets.
func (s *scanner) value() error {
	var stack [maxNesting]byte
	depth := 0
	for {
		s.space()
		if s.pos >= len(s.data) {
			return s.unexpected("a value")
		}
		opened := s.data[s.pos]
		if opened == '{' || opened == '[' {
			if depth == maxNesting {
				return s.fail("more than %d levels", maxNesting)
			}
			s.pos++
			s.space()
			if s.take(opened + 2) { // ] and } follow their opening bracket by two
				goto closed
			}
			stack[depth] = opened
			depth++
			if opened == '{' {
				if err := s.skipName(); err != nil {
					return err
				}
			}
			continue
		}
		if err := s.scalar(); err != nil {
			return err
		}
	closed:
		for {
			if depth == 0 {
				return nil
			}
			s.space()
			if s.take(stack[depth-1] + 2) {
				depth--
				continue
			}
			if !s.take(',') {
				return s.unexpected("a comma or a closing bracket")
			}
			if stack[depth-1] == '{' {
				if err := s.skipName(); err != nil {
					return err
				}
			}
			break
		}
	}
}

// skipName moves behind the name of a member and its colon.
func (s *scanner) skipName() error {
	s.space()
	if err := s.text(); err != nil {
		return err
	}
	s.space()
	if !s.take(':') {
		return s.unexpected("a colon")
	}
	return nil
}

func (s *scanner) scalar() error {
	switch c := s.data[s.pos]; {
	case c == '"':
		return s.text()
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.unexpected("a value")
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(w)) {
		return s.unexpected("a value")
	}
	s.pos += len(w)
	return nil
}

// number moves behind a number of any size.
func (s *scanner) number() error {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.take('.') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

// text moves behind a string.
func (s *scanner) text() error {
	if !s.take('"') {
		return s.unexpected("a string")
	}
	for {
		s.pos = plainEnd(s.data, s.pos)
		if s.pos >= len(s.data) {
			return s.unexpected("the end of a string")
		}
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c != '\\':
			return s.fail("control character %#02x in a string", c)
		}
		if err := s.escape(); err != nil {
			return err
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainEnd returns the position of the next byte from pos on that is '"', '\\' or
// below 0x20; len(data) without one. It looks at eight bytes at a time. The
// arithmetic sets the high bit of each byte that is one of them; it may also mark
// bytes after such a byte, never before the first.
func plainEnd(data []byte, pos int) int {
	for pos+8 <= len(data) {
		w := binary.LittleEndian.Uint64(data[pos:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		hit := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((w - ones*0x20) &^ w)
		if hit &= highs; hit != 0 {
			return pos + bits.TrailingZeros64(hit)/8
		}
		pos += 8
	}
	for pos < len(data) && data[pos] != '"' && data[pos] != '\\' && data[pos] >= 0x20 {
		pos++
	}
	return pos
}

func (s *scanner) escape() error {
	s.pos++
	if s.pos >= len(s.data) {
		return s.unexpected("the end of a string")
	}
	c := s.data[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			if s.pos >= len(s.data) || !hex(s.data[s.pos]) {
				return s.unexpected("four hexadecimal digits")
			}
			s.pos++
		}
		return nil
	}
	s.pos--
	return s.unexpected("an escape sequence")
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// space moves behind white space. It is small enough to be inlined.
func (s *scanner) space() {
	if s.pos < len(s.data) && s.data[s.pos] <= ' ' {
		s.spaces()
	}
}

func (s *scanner) spaces() {
	for s.pos < len(s.data) && isSpace(s.data[s.pos]) {
		s.pos++
	}
}

func (s *scanner) take(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}
