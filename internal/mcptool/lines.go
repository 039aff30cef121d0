package mcptool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// maxSkipped is how long a line may be that is skipped because it is too long,
// in bytes; beyond it there is no hope for an end.
const maxSkipped = 4 * maxAnswer

// message is what came on a stream: one JSON-RPC message, or the fact that there
// was one beyond the limit.
type message struct {
	data     []byte
	tooLarge bool
	id       json.RawMessage // of a message too large: its id where it has one
}

// lines reads messages that end with a newline.
type lines struct {
	src *bufio.Reader
	max int // bytes of one message
}

func newLines(src io.Reader) *lines {
	return &lines{src: bufio.NewReaderSize(src, 64<<10), max: maxAnswer}
}

// next returns the next line that is not empty. At the end of the stream it
// returns what is left, and then the error of reading.
func (l *lines) next() (message, error) {
	for {
		m, err := l.line()
		if len(m.data) > 0 || m.tooLarge {
			return m, nil
		}
		if err != nil {
			return message{}, err
		}
	}
}

// line reads one line, trimmed.
func (l *lines) line() (message, error) {
	var data []byte
	for {
		part, err := l.src.ReadSlice('\n')
		data = append(data, part...)
		switch {
		case len(data) > l.max+1: // the newline does not count
			return l.skip(data, err)
		case !errors.Is(err, bufio.ErrBufferFull):
			return message{data: bytes.TrimSpace(data)}, err
		}
	}
}

// skip reads a line too long to its end and keeps only its id. err is that of
// the last read of data, the line's beginning.
func (l *lines) skip(data []byte, err error) (message, error) {
	var id idScanner
	id.scan(data)
	for read := len(data); errors.Is(err, bufio.ErrBufferFull); {
		if read > maxSkipped {
			return message{}, errFlood
		}
		var part []byte
		part, err = l.src.ReadSlice('\n')
		id.scan(part)
		read += len(part)
	}
	return message{tooLarge: true, id: id.id}, err
}

// idScanner finds the id of a JSON-RPC message that is too large to be kept. Of
// bytes that are no JSON object it may find anything.
type idScanner struct {
	id json.RawMessage // nil: not seen

	depth           int
	quoted, escaped bool
	word            []byte // what stands at depth 1 since the last { , or :
	isID            bool   // word belongs to the key "id"
}

func (s *idScanner) scan(data []byte) {
	for _, b := range data {
		s.step(b)
	}
}

func (s *idScanner) step(b byte) {
	switch {
	case s.quoted:
		s.quoted = s.escaped || b != '"'
		s.escaped = !s.escaped && b == '\\'
		s.keep(b)
	case b == '"':
		s.quoted = true
		s.keep(b)
	case b == '{', b == '[':
		s.depth++
	case b == '}', b == ']':
		s.endField()
		s.depth--
	case b == ':' && s.depth == 1:
		s.isID = string(s.word) == `"id"`
		s.word = s.word[:0]
	case b == ',':
		s.endField()
	case b > ' ':
		s.keep(b)
	}
}

func (s *idScanner) keep(b byte) {
	if s.depth == 1 && len(s.word) < 128 {
		s.word = append(s.word, b)
	}
}

func (s *idScanner) endField() {
	if s.depth != 1 {
		return
	}
	if s.isID && s.id == nil {
		s.id = bytes.Clone(s.word)
	}
	s.isID, s.word = false, s.word[:0]
}
