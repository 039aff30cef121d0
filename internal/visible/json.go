package visible

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// ErrSame says that two names of a JSON object are one when nothing is hidden.
var ErrSame = errors.New("has names that differ in hidden characters only")

// JSON returns valid JSON with all strings and names of it as [Text] returns
// them, and how many characters were hidden. Everything else keeps its bytes.
// The error is [ErrSame].
func JSON(raw json.RawMessage) (clean json.RawMessage, hidden int, err error) {
	var out []byte
	kept := 0
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			i++
			continue
		}
		end := i + jsonscan.StringLen(raw[i:])
		if literal, n := text(raw[i:end]); n > 0 {
			out = append(append(out, raw[kept:i]...), literal...)
			hidden += n
			kept = end
		}
		i = end
	}
	if hidden == 0 {
		return raw, 0, nil
	}
	out = append(out, raw[kept:]...)
	if !jsontext.Value(out).IsValid(jsontext.AllowInvalidUTF8(true)) {
		return nil, hidden, ErrSame
	}
	return out, hidden, nil
}

// text returns a string literal without what is hidden in it, and how many
// characters that were.
func text(literal []byte) (clean []byte, hidden int) {
	if bytes.IndexByte(literal, '\\') < 0 && plain(string(literal)) {
		return literal, 0
	}
	said, err := jsontext.AppendUnquote(nil, literal)
	if err != nil && said == nil {
		return literal, 0
	}
	s, hidden := Text(string(said))
	if hidden == 0 {
		return literal, 0
	}
	clean, _ = jsontext.AppendQuote(nil, s) // bad UTF-8 becomes U+FFFD
	return clean, hidden
}
