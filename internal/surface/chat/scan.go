package chat

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
)

// maxDepth bounds how deep a body nests.
const maxDepth = 512

// member is one member of the top-level object, as it stands in the body.
type member struct {
	name  string
	value json.RawMessage
	at    int // where the value begins in the body
}

// scan reads a body once: it checks that it is one JSON object and returns the
// top-level members in order, repeated names included. Nothing is decoded but
// the names, so that bytes can be passed on as they are. The error says where
// the JSON is broken, or is that of the account, which is charged with the list of
// members before it grows.
func scan(account *ledger.Account, body []byte) ([]member, error) {
	s := scanner{data: body, account: account}
	members, err := s.object()
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		return nil, refused
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "invalid_json", "the request body is not valid JSON: %s", s.where(err))
	}
	return members, nil
}

// scanner walks over JSON without decoding it.
type scanner struct {
	data    []byte
	pos     int
	account *ledger.Account
}

// memberBytes is what a member takes in a list, with its name.
const memberBytes = 64

type scanError string

func (e scanError) Error() string { return string(e) }

func (s *scanner) where(err error) string {
	line := 1 + bytes.Count(s.data[:min(s.pos, len(s.data))], []byte{'\n'})
	column := s.pos - bytes.LastIndexByte(s.data[:min(s.pos, len(s.data))], '\n')
	return fmt.Sprintf("%v at byte %d (line %d, column %d)", err, s.pos, line, column)
}

func (s *scanner) object() ([]member, error) {
	s.space()
	if !s.take('{') {
		return nil, s.unexpected("an object")
	}
	members := make([]member, 0, 12)
	s.space()
	if s.take('}') {
		return members, s.end()
	}
	for {
		name, err := s.name()
		if err != nil {
			return nil, err
		}
		start := s.pos
		if err := s.value(); err != nil {
			return nil, err
		}
		if len(members) == cap(members) {
			if err := s.account.Charge(2 * memberBytes * cap(members)); err != nil {
				return nil, err
			}
		}
		members = append(members, member{name, s.data[start:s.pos:s.pos], start})
		s.space()
		if s.take('}') {
			return members, s.end()
		}
		if !s.take(',') {
			return nil, s.unexpected("a comma or the end of the object")
		}
	}
}

// name reads `"name" :` and the space around it.
func (s *scanner) name() (string, error) {
	s.space()
	start := s.pos
	if err := s.text(); err != nil {
		return "", err
	}
	raw := s.data[start:s.pos]
	s.space()
	if !s.take(':') {
		return "", s.unexpected("a colon")
	}
	s.space()
	return unquote(raw), nil
}

// unquote returns the text of a JSON string, which is valid.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var text string
	_ = json.Unmarshal(raw, &text)
	return text
}

func (s *scanner) end() error {
	s.space()
	if s.pos < len(s.data) {
		return s.unexpected("the end")
	}
	return nil
}

// value walks over one value with a stack of open brackets.
func (s *scanner) value() error {
	var stack [maxDepth]byte
	depth := 0
	for {
		s.space()
		if s.pos >= len(s.data) {
			return s.unexpected("a value")
		}
		opened := s.data[s.pos]
		if opened == '{' || opened == '[' {
			if depth == maxDepth {
				return scanError(fmt.Sprintf("more than %d levels", maxDepth))
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

// number walks over a number, however large.
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

// text walks over a string: eight bytes at a time up to the next quote,
// backslash or control character.
func (s *scanner) text() error {
	if !s.take('"') {
		return s.unexpected("a string")
	}
	for {
		s.plain()
		if s.pos >= len(s.data) {
			return s.unexpected("the end of a string")
		}
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c != '\\':
			return scanError(fmt.Sprintf("control character %#02x in a string", c))
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

// plain moves to the next byte that is '"', '\\' or below 0x20. The arithmetic
// sets the high bit of each byte that is one of them; it may also mark bytes
// after a true hit, never before one.
func (s *scanner) plain() {
	for s.pos+8 <= len(s.data) {
		w := binary.LittleEndian.Uint64(s.data[s.pos:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		hit := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((w - ones*0x20) &^ w)
		if hit &= highs; hit != 0 {
			s.pos += bits.TrailingZeros64(hit) / 8
			return
		}
		s.pos += 8
	}
	for s.pos < len(s.data) && s.data[s.pos] != '"' && s.data[s.pos] != '\\' && s.data[s.pos] >= 0x20 {
		s.pos++
	}
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

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) unexpected(wanted string) error {
	if s.pos >= len(s.data) {
		return scanError("unexpected end where " + wanted + " should be")
	}
	return scanError(fmt.Sprintf("unexpected %q where %s should be", s.data[s.pos], wanted))
}
