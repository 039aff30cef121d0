package jsonscan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// ObjectFrom is [Object] for a text that is read to its end from r and not held. A value of more
// than keep bytes is nil, and a name of more than keep bytes, as written, is "". The value is valid
// until member returns. Its text is from at to end, in bytes from the beginning.
//
// The error is a *[SyntaxError], that of r, or that of member, which ends the reading.
func ObjectFrom(r io.Reader, keep int, member func(name string, value []byte, at, end int64) error) error {
	s := streamScanner{r: bufio.NewReader(r), keep: keep}
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
		s.begin()
		if err := s.text(); err != nil {
			return err
		}
		name := Text(s.kept())
		if err := s.colon(); err != nil {
			return err
		}
		s.space()
		at := s.pos
		s.begin()
		if err := s.value(); err != nil {
			return err
		}
		if err := member(name, s.kept(), at, s.pos); err != nil {
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

// streamScanner is a position in a text that is read only once.
type streamScanner struct {
	r    *bufio.Reader
	pos  int64
	err  error // of r; io.EOF at the end
	keep int

	token   []byte // of the value or name that began last, at most keep bytes
	began   int64
	keeping bool // the rest of it, too
}

// begin begins a value or name, without space before it.
func (s *streamScanner) begin() { s.token, s.began, s.keeping = s.token[:0], s.pos, true }

// kept ends it, and returns its text; nil if it is too long.
func (s *streamScanner) kept() []byte {
	s.keeping = false
	if s.pos-s.began > int64(s.keep) {
		return nil
	}
	return s.token
}

// peek returns the next byte, false at the end.
func (s *streamScanner) peek() (byte, bool) {
	if s.err != nil {
		return 0, false
	}
	b, err := s.r.ReadByte()
	if err != nil {
		s.err = err
		return 0, false
	}
	_ = s.r.UnreadByte() // a byte was read
	return b, true
}

// skip moves behind the byte that peek has returned.
func (s *streamScanner) skip(c byte) {
	_, _ = s.r.Discard(1)
	s.pos++
	if s.keeping && len(s.token) < s.keep {
		s.token = append(s.token, c)
	}
}

func (s *streamScanner) take(c byte) bool {
	next, ok := s.peek()
	if !ok || next != c {
		return false
	}
	s.skip(c)
	return true
}

func (s *streamScanner) space() {
	for {
		c, ok := s.peek()
		if !ok || !isSpace(c) {
			return
		}
		s.skip(c)
	}
}

func (s *streamScanner) end() error {
	s.space()
	if _, ok := s.peek(); ok {
		return s.unexpected("the end")
	}
	if !errors.Is(s.err, io.EOF) {
		return s.err
	}
	return nil
}

func (s *streamScanner) unexpected(wanted string) error {
	c, ok := s.peek()
	switch {
	case ok:
		return s.fail("unexpected %q where %s should be", c, wanted)
	case errors.Is(s.err, io.EOF):
		return s.fail("unexpected end where %s should be", wanted)
	}
	return s.err
}

func (s *streamScanner) fail(format string, args ...any) error {
	return &SyntaxError{int(s.pos), fmt.Sprintf(format, args...)}
}

func (s *streamScanner) colon() error {
	s.space()
	if !s.take(':') {
		return s.unexpected("a colon")
	}
	return nil
}

// name moves behind the name of a member and its colon.
func (s *streamScanner) name() error {
	s.space()
	if err := s.text(); err != nil {
		return err
	}
	return s.colon()
}

// value moves behind one value, with a stack of open brackets.
func (s *streamScanner) value() error {
	var stack [maxNesting]byte
	depth := 0
	for {
		s.space()
		opened, _ := s.peek()
		if opened == '{' || opened == '[' {
			if depth == maxNesting {
				return s.fail("more than %d levels", maxNesting)
			}
			s.skip(opened)
			s.space()
			if !s.take(opened + 2) { // ] and } follow their opening bracket by two
				stack[depth] = opened
				depth++
				if opened == '{' {
					if err := s.name(); err != nil {
						return err
					}
				}
				continue
			}
		} else if err := s.scalar(opened); err != nil {
			return err
		}
		var err error
		if depth, err = s.close(&stack, depth); err != nil || depth == 0 {
			return err
		}
	}
}

// close moves from the end of a value to the next one of its array or object, and behind the
// brackets that are closed before it. It returns how many are still open.
func (s *streamScanner) close(stack *[maxNesting]byte, depth int) (int, error) {
	for depth > 0 {
		s.space()
		if s.take(stack[depth-1] + 2) {
			depth--
			continue
		}
		if !s.take(',') {
			return depth, s.unexpected("a comma or a closing bracket")
		}
		if stack[depth-1] == '{' {
			return depth, s.name()
		}
		return depth, nil
	}
	return 0, nil
}

func (s *streamScanner) scalar(c byte) error {
	switch {
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

func (s *streamScanner) word(w string) error {
	for i := range len(w) {
		if !s.take(w[i]) {
			return s.unexpected("a value")
		}
	}
	return nil
}

// number moves behind a number of any size.
func (s *streamScanner) number() error {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.take('.') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.take('e') || s.take('E') {
		if !s.take('-') {
			s.take('+')
		}
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	return nil
}

func (s *streamScanner) digits() (some bool) {
	for {
		c, ok := s.peek()
		if !ok || c < '0' || c > '9' {
			return some
		}
		s.skip(c)
		some = true
	}
}

// text moves behind a string.
func (s *streamScanner) text() error {
	if !s.take('"') {
		return s.unexpected("a string")
	}
	for {
		c, ok := s.peek()
		switch {
		case !ok:
			return s.unexpected("the end of a string")
		case c < ' ':
			return s.fail("control character %#02x in a string", c)
		}
		s.skip(c)
		if c == '"' {
			return nil
		}
		if c == '\\' {
			if err := s.escape(); err != nil {
				return err
			}
		}
	}
}

func (s *streamScanner) escape() error {
	c, _ := s.peek()
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.skip(c)
		return nil
	case 'u':
		s.skip(c)
		for range 4 {
			digit, _ := s.peek()
			if !hex(digit) {
				return s.unexpected("four hexadecimal digits")
			}
			s.skip(digit)
		}
		return nil
	}
	return s.unexpected("an escape sequence")
}
