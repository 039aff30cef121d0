package wire

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// halves joins characters that a stream cuts in two. An upstream in JavaScript cuts strings at
// UTF-16 units: one event ends a string with "\ud83d", and the next one with the same string
// begins it with "\ude00". An event with a high half at the end of a string waits for the next
// piece of the string. If that begins with the low half, the whole character is put there;
// otherwise the half becomes U+FFFD. Later events wait behind it, so that their order stays. The
// zero value is usable.
type halves struct {
	open    map[string]place // the high halves that wait, by the place of their strings
	waiting []*waiting
	bytes   int // of the data of the waiting events
	ready   []sse.Event
}

// waiting is an event that has halves, or is behind one that has.
type waiting struct {
	sse.Event
	open int // how many of its halves wait
}

// place is where a high half begins in the data of an event.
type place struct {
	event *waiting
	at    int
}

// How much may wait for low halves. If there is more, none is waited for any longer.
const (
	maxWaiting      = 16
	maxWaitingBytes = 256 << 10
)

// add takes an event and returns those that can be decoded: most events at once, as they are.
// ends reports whether nothing that waits continues after an event; what is not JSON is such an
// event. The result is valid until the next call.
func (h *halves) add(ev sse.Event, ends func(sse.Event) bool) []sse.Event {
	if len(h.waiting) == 0 && !hasHalf(ev.Data) {
		return append(h.ready[:0], ev)
	}
	w := &waiting{Event: ev}
	w.Name = bytes.Clone(ev.Name)
	h.waiting = append(h.waiting, w)
	if !jsonscan.Valid(ev.Data) {
		w.Data = bytes.Clone(ev.Data)
		return h.rest()
	}
	w.Data = h.value(make([]byte, 0, len(ev.Data)+16), w, nil, ev.Data)
	h.bytes += len(w.Data)
	if len(h.waiting) > maxWaiting || h.bytes > maxWaitingBytes || ends(w.Event) {
		return h.rest()
	}
	h.ready = h.ready[:0]
	for len(h.waiting) > 0 && h.waiting[0].open == 0 {
		h.bytes -= len(h.waiting[0].Data)
		h.ready = append(h.ready, h.waiting[0].Event)
		h.waiting = h.waiting[1:]
	}
	return h.ready
}

// rest returns all events that wait.
func (h *halves) rest() []sse.Event {
	for _, half := range h.open {
		half.replace()
	}
	h.ready = h.ready[:0]
	for _, w := range h.waiting {
		h.ready = append(h.ready, w.Event)
	}
	h.open, h.waiting, h.bytes = nil, nil, 0
	return h.ready
}

// hasHalf reports whether a string of data may end with a high half.
func hasHalf(data []byte) bool {
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 {
			return false
		}
		if data = data[i:]; isHalf(data, 'b') && len(data) > len(escape) && data[len(escape)] == '"' {
			return true
		}
		data = data[min(2, len(data)):]
	}
}

// escape is what a half looks like.
const escape = `\ud83d`

// isHalf reports whether data begins with the escape of a half: 'b' asks for a high one, which
// has a third digit of 8 to b, and 'f' for a low one, from c to f.
func isHalf(data []byte, upTo byte) bool {
	if len(data) < len(escape) || data[0] != '\\' || data[1] != 'u' || data[2]|0x20 != 'd' {
		return false
	}
	c := data[3] | 0x20 // a digit stays as it is
	if upTo == 'b' {
		return c == '8' || c == '9' || c == 'a' || c == 'b'
	}
	return 'c' <= c && c <= 'f'
}

// value appends a value of an event that is at a path.
func (h *halves) value(dst []byte, of *waiting, path, v []byte) []byte {
	switch {
	case jsonscan.IsKind(v, '"'):
		return h.text(dst, of, path, v)
	case jsonscan.IsKind(v, '{'):
		path = identified(path, v)
		dst = append(dst, '{')
		for name, member := range jsonscan.Members(v) {
			dst = jsonscan.AppendMember(dst, name, nil)
			dst = h.value(dst, of, append(append(path[:len(path):len(path)], '.'), name...), member)
		}
		return append(dst, '}')
	case jsonscan.IsKind(v, '['):
		dst = append(dst, '[')
		for i, element := range jsonscan.Elements(v) {
			if i > 0 {
				dst = append(dst, ',')
			}
			at := slices.Concat(path, []byte{'['})
			if !jsonscan.IsKind(element, '{') || jsonscan.Member(element, "index") == nil {
				at = strconv.AppendInt(at, int64(i), 10)
			}
			dst = h.value(dst, of, at, element)
		}
		return append(dst, ']')
	}
	return append(dst, v...)
}

// identified returns a path with the members that say which string of several a piece of an
// object belongs to, in all dialects.
func identified(path, object []byte) []byte {
	path = path[:len(path):len(path)]
	for name, v := range jsonscan.Members(object) {
		switch string(name) {
		case "index", "output_index", "content_index", "summary_index", "contentBlockIndex", "item_id", "thought", "jsonPath":
			path = append(append(append(append(path, '('), name...), v...), ')')
		}
	}
	return path
}

// text appends a string.
func (h *halves) text(dst []byte, of *waiting, path, v []byte) []byte {
	dst = append(dst, '"')
	inside := v[1 : len(v)-1]
	if half, is := h.open[string(path)]; is && len(inside) > 0 {
		delete(h.open, string(path))
		half.event.open--
		switch {
		case isHalf(inside, 'f'):
			dst = h.move(half, of, dst)
		case half.event == of:
			copy(dst[half.at:], replacement)
		default:
			half.replace()
		}
	}
	dst = append(dst, inside...)
	if at := len(inside) - len(escape); at >= 0 && isHalf(inside[at:], 'b') && !isEscaped(inside, at) {
		if h.open == nil {
			h.open = map[string]place{}
		}
		h.open[string(path)] = place{of, len(dst) - len(escape)}
		of.open++
	}
	return append(dst, '"')
}

// replacement is the escape of U+FFFD. It is as long as that of a half.
const replacement = `\ufffd`

// replace puts U+FFFD in the place of a half whose event is whole.
func (p place) replace() { copy(p.event.Data[p.at:], replacement) }

// move moves a half from where it waits to the end of dst, which are the data of an event so far.
func (h *halves) move(half place, of *waiting, dst []byte) []byte {
	for path, other := range h.open {
		if other.event == half.event && other.at > half.at {
			h.open[path] = place{other.event, other.at - len(escape)}
		}
	}
	end := half.at + len(escape)
	if half.event == of {
		text := bytes.Clone(dst[half.at:end])
		return append(slices.Delete(dst, half.at, end), text...)
	}
	dst = append(dst, half.event.Data[half.at:end]...)
	half.event.Data = slices.Delete(half.event.Data, half.at, end)
	h.bytes -= len(escape)
	return dst
}

// isEscaped reports whether the backslash at a position is itself escaped.
func isEscaped(inside []byte, at int) bool {
	n := 0
	for at-1-n >= 0 && inside[at-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}
