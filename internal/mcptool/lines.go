package mcptool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// maxSkipped is the maximum size of a line that is skipped because it is too long, in bytes.
// A longer line ends the stream.
const maxSkipped = 4 * maxAnswer

// message is one JSON-RPC message of a stream. If it was too large, only its id is kept.
type message struct {
	data     []byte
	tooLarge bool
	id       json.RawMessage // of a message that is too large; nil = it has none
}

// lines reads messages that end with a newline.
type lines struct {
	src *bufio.Reader
	max int // bytes of one message
}

func newLines(src io.Reader) *lines {
	return &lines{src: bufio.NewReaderSize(src, 64<<10), max: maxAnswer}
}

// next returns the next line that is not empty. The last line may lack its newline; after it
// next returns the error of reading.
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

// skip reads a line that is too long to its end and returns its id. data is the beginning of
// the line, and err the error of the read that returned it.
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

// idScanner finds the id of a JSON-RPC message that is too large to be kept. If the input is
// not a JSON object, the id is undefined.
type idScanner struct {
	id json.RawMessage // nil = not found

	depth           int
	quoted, escaped bool
	word            []byte // at depth 1, since the last { , or :
	isID            bool   // word is the value of the key "id"
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

// A server may send maxNoise bytes of unrequested messages in noiseTime.
const (
	maxNoise  = maxAnswer // bytes
	noiseTime = 10 * time.Second
)

// errFlood ends a stream with too many unrequested messages.
var errFlood = errors.New("server floods its stream")

// noise limits the rate of unrequested messages on a stream that lasts as long as a session.
// Their total is not limited.
type noise struct {
	bytes int
	since time.Time
}

// add counts n bytes that came at the time now. It returns errFlood if they are too many.
func (s *noise) add(n int, now time.Time) error {
	if now.Sub(s.since) > noiseTime {
		s.bytes, s.since = 0, now
	}
	if s.bytes += n; s.bytes > maxNoise {
		return errFlood
	}
	return nil
}
