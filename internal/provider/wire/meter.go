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
	untold  bool // see relay.Request
	depth   int  // how many objects have the usage in them, where an answer repeats what its request says; 0 = it does not
	tail    []byte
	bytes   int64
	events  int64
	line    []byte // the beginning of the line that has not ended
	last    bool   // the event that has not ended is the last
	ended   bool   // the whole answer was read, or the last event of a stream
}

// maxLine is how many bytes of a line are kept: more than any of endings has.
const maxLine = 64

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
	for rest := data; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		m.line = append(m.line, line[:min(len(line), maxLine-len(m.line))]...)
		if rest = after; whole {
			m.endLine()
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

// endLine takes the line that has ended. A client may leave after the last event, before the answer ends.
func (m *usageMeter) endLine() {
	line := bytes.TrimSuffix(m.line, []byte("\r"))
	switch data, isData := bytes.CutPrefix(line, []byte(lineStart)); {
	case isData:
		m.events++
		data = bytes.TrimPrefix(data, []byte(" "))
		m.last = m.last || string(data) == "[DONE]" || endsResponse(bytes.TrimPrefix(data, []byte(`{"type":"`)))
	case len(line) == 0:
		m.ended = m.ended || m.last
	default:
		name, isName := bytes.CutPrefix(line, []byte("event:"))
		m.last = m.last || isName && endsResponse(bytes.TrimPrefix(name, []byte(" ")))
	}
	m.line = m.line[:0]
}

// endsResponse reports whether a text begins with the type of the last event of a stream of the Responses API.
func endsResponse(text []byte) bool {
	for _, end := range []string{"response.completed", "response.incomplete", "response.failed"} {
		if bytes.HasPrefix(text, []byte(end)) {
			return true
		}
	}
	return false
}

// open returns how many objects and arrays are open at the beginning of the rest of a JSON text, which may have other
// texts after it.
func open(rest []byte) (most int) {
	closed, inText := 0, false
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{', c == '[':
			closed--
		case c == '}', c == ']':
			closed++
			most = max(most, closed)
		}
	}
	return most
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
		decoder := json.NewDecoder(bytes.NewReader(after))
		if !colon || decoder.Decode(&object) != nil || !jsonscan.IsKind(object, '{') || m.depth > 0 && open(after[decoder.InputOffset():]) > m.depth {
			continue
		}
		if u := m.usageOf(object); u.Input+u.Output > 0 {
			return u
		}
	}
	if m.status >= 400 || m.untold {
		return model.Usage{}
	}
	events := m.events
	if bytes.HasPrefix(m.line, []byte(lineStart)) {
		events++
	}
	text := max(0, m.bytes-eventBytes*events)
	output := max(events, (text+bytesPerToken-1)/bytesPerToken)
	return model.Usage{Output: output, Total: output, Estimated: true}
}
