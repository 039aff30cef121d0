package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// maxHeldEvent is how many bytes of an event are held until it has ended. A longer one is passed on as it comes: the
// chunk with the usage is short.
const maxHeldEvent = 64 << 10

// withoutUsage is an event stream without the chunk that has the usage and no choices. All other bytes are unchanged.
type withoutUsage struct {
	*usageMeter
	held   []byte
	passed int   // bytes of held that are read
	ready  int   // bytes of held, from its beginning, that may be read
	line   int   // where in held the line begins that has not ended
	long   bool  // the event that has not ended is passed on
	err    error // of the answer
}

// Read implements io.Reader.
func (w *withoutUsage) Read(p []byte) (int, error) {
	for w.passed == w.ready {
		if w.err != nil {
			return 0, w.err
		}
		w.fill()
	}
	n := copy(p, w.held[w.passed:w.ready])
	w.passed += n
	return n, nil
}

// fill reads a part of the answer, when all that is ready was read.
func (w *withoutUsage) fill() {
	w.held = w.held[:copy(w.held, w.held[w.ready:])]
	w.line = max(0, w.line-w.ready) // of a long event the beginning of the line is read
	w.passed, w.ready = 0, 0
	w.held = slices.Grow(w.held, smallBody)
	n, err := w.usageMeter.Read(w.held[len(w.held):cap(w.held)])
	w.held = w.held[:len(w.held)+n]
	for {
		end := bytes.IndexByte(w.held[w.line:], '\n')
		if end < 0 {
			break
		}
		empty := end == 0 || end == 1 && w.held[w.line] == '\r'
		if w.line += end + 1; empty {
			w.endEvent()
		}
	}
	if w.err = err; err != nil {
		if w.line = len(w.held); errors.Is(err, io.EOF) {
			w.endEvent()
		}
		w.ready = len(w.held)
	}
	if w.long = w.long || len(w.held)-w.ready > maxHeldEvent; w.long {
		w.ready = len(w.held)
	}
}

// endEvent takes the event that ends at line.
func (w *withoutUsage) endEvent() {
	if event := w.held[w.ready:w.line]; !w.long && isUsageChunk(event) {
		w.held = slices.Delete(w.held, w.ready, w.line)
		w.line = w.ready
	}
	w.ready, w.long = w.line, false
}

// isUsageChunk reports whether an event has the usage of a stream and nothing else.
func isUsageChunk(event []byte) bool {
	if !bytes.Contains(event, []byte(`"usage"`)) {
		return false
	}
	var data []byte
	for line := range bytes.Lines(event) {
		if text, ok := bytes.CutPrefix(line, []byte(lineStart)); ok {
			data = append(data, text...)
		}
	}
	data = jsonscan.TrimSpace(data)
	if !jsonscan.Valid(data) || !jsonscan.IsKind(data, '{') || !jsonscan.IsKind(jsonscan.Member(data, "usage"), '{') {
		return false
	}
	choices := jsonscan.Member(data, "choices")
	for range jsonscan.Elements(choices) {
		return false
	}
	return jsonscan.IsNull(choices) || jsonscan.IsKind(choices, '[')
}
