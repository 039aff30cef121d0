package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

// meterTail is how many of the last bytes of a relayed answer are kept, to find its usage there.
// Behind the usage come, at most, the metadata of a response: 16 pairs of 576 characters.
const meterTail = 16 << 10

// The estimate of an answer that does not say its usage: a token has at least three bytes of text,
// and each event of a stream at least one token. An event has about eventBytes bytes beside its text.
const (
	eventBytes    = 160
	bytesPerToken = 3
)

// usageMeter reads the usage of an answer that is relayed unchanged, while it passes.
type usageMeter struct {
	io.ReadCloser
	usageOf func(object []byte) model.Usage
	status  int
	untold  bool // see model.RelayRequest
	tail    []byte
	bytes   int64
	events  int64
	ended   bool // the whole answer was read
	matched int  // bytes of lineStart that the line has; all of them = it is not looked at any more
}

// lineStart begins the data of an event, at the start of a line.
const lineStart = "data:"

// Read implements io.Reader.
func (m *usageMeter) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	m.add(p[:n])
	m.ended = m.ended || errors.Is(err, io.EOF)
	return n, err
}

func (m *usageMeter) add(data []byte) {
	m.bytes += int64(len(data))
	for _, c := range data {
		switch {
		case c == '\n':
			m.matched = 0
		case m.matched < len(lineStart) && c == lineStart[m.matched]:
			if m.matched++; m.matched == len(lineStart) {
				m.events++
			}
		default:
			m.matched = len(lineStart) // the rest of the line
		}
	}
	if over := len(m.tail) + len(data) - meterTail; over > 0 {
		if keep := len(m.tail) - over; keep > 0 {
			m.tail = m.tail[:copy(m.tail, m.tail[over:])]
		} else {
			m.tail = m.tail[:0]
			data = data[max(0, len(data)-meterTail):]
		}
	}
	m.tail = append(m.tail, data...)
}

// usage returns the usage that the answer says, or an estimate of its output.
func (m *usageMeter) usage() model.Usage {
	for rest := m.tail; m.ended; { // in a part of an answer, what looks like the usage may be a text of the client's
		at := bytes.LastIndex(rest, []byte(`"usage"`))
		if at < 0 {
			break
		}
		rest = rest[:at]
		if at > 0 && m.tail[at-1] == '\\' { // inside a text
			continue
		}
		after, colon := bytes.CutPrefix(jsonscan.TrimSpace(m.tail[at+len(`"usage"`):]), []byte(":"))
		var object json.RawMessage
		if !colon || json.NewDecoder(bytes.NewReader(after)).Decode(&object) != nil || !jsonscan.IsKind(object, '{') {
			continue
		}
		if u := m.usageOf(object); u.Input+u.Output > 0 {
			return u
		}
	}
	if m.status >= 400 || m.untold {
		return model.Usage{}
	}
	text := max(0, m.bytes-eventBytes*m.events)
	output := max(m.events, (text+bytesPerToken-1)/bytesPerToken)
	return model.Usage{Output: output, Total: output, Estimated: true}
}
