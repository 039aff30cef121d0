package wire

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// halves joins characters that a stream cuts in two. An upstream in JavaScript cuts strings at
// UTF-16 units: one event ends a string with "\ud83d", and the next one with the same string
// begins it with "\ude00". A high half at the end of a string is taken out and put in front of
// the next piece of the string. There it makes a character with a low half; before anything else
// it becomes U+FFFD when it is decoded. The zero value is usable.
type halves struct {
	open map[string]string // the escape of a high half, by the place of its string
}

// maxOpenHalves is how many strings can wait for a low half at a time.
const maxOpenHalves = 1024

// join returns an event with the characters that it completes, and without the halves that are
// still open. Most events are returned as they are.
func (h *halves) join(data []byte) []byte {
	if len(h.open) == 0 && !hasHalf(data) || !jsonscan.Valid(data) {
		return data
	}
	return h.value(make([]byte, 0, len(data)+16), nil, data)
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

// value appends a value that is at a place.
func (h *halves) value(dst, place, v []byte) []byte {
	switch {
	case jsonscan.IsKind(v, '"'):
		return h.text(dst, place, v)
	case jsonscan.IsKind(v, '{'):
		place = identified(place, v)
		begin := len(dst)
		dst = append(dst, '{')
		for name, member := range jsonscan.Members(v) {
			if len(dst) > begin+1 {
				dst = append(dst, ',')
			}
			dst = append(jsonscan.AppendString(dst, name), ':')
			dst = h.value(dst, append(append(place[:len(place):len(place)], '.'), name...), member)
		}
		return append(dst, '}')
	case jsonscan.IsKind(v, '['):
		dst = append(dst, '[')
		for i, element := range jsonscan.Elements(v) {
			if i > 0 {
				dst = append(dst, ',')
			}
			at := slices.Concat(place, []byte{'['})
			if !jsonscan.IsKind(element, '{') || jsonscan.Member(element, "index") == nil {
				at = strconv.AppendInt(at, int64(i), 10)
			}
			dst = h.value(dst, at, element)
		}
		return append(dst, ']')
	}
	return append(dst, v...)
}

// identified returns a place with the members that say which string of several a piece of an
// object belongs to, in all dialects.
func identified(place, object []byte) []byte {
	place = place[:len(place):len(place)]
	for name, v := range jsonscan.Members(object) {
		switch string(name) {
		case "index", "output_index", "content_index", "summary_index", "contentBlockIndex", "item_id", "thought", "jsonPath":
			place = append(append(append(append(place, '('), name...), v...), ')')
		}
	}
	return place
}

// text appends a string.
func (h *halves) text(dst, place, v []byte) []byte {
	dst = append(dst, '"')
	if half, is := h.open[string(place)]; is && len(v) > len(`""`) {
		delete(h.open, string(place))
		dst = append(dst, half...)
	}
	inside := v[1 : len(v)-1]
	at := len(inside) - len(escape)
	if at < 0 || !isHalf(inside[at:], 'b') || isEscaped(inside, at) || len(h.open) == maxOpenHalves {
		return append(append(dst, inside...), '"')
	}
	if h.open == nil {
		h.open = map[string]string{}
	}
	h.open[string(place)] = string(inside[at:])
	return append(append(dst, inside[:at]...), '"')
}

// isEscaped reports whether the backslash at a position is itself escaped.
func isEscaped(inside []byte, at int) bool {
	n := 0
	for at-1-n >= 0 && inside[at-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}
