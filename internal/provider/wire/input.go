package wire

import (
	"encoding/json"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// Input is the arguments of a call.
type Input string

// MarshalJSON returns [Input.Object].
func (arguments Input) MarshalJSON() ([]byte, error) { return arguments.Object(), nil }

// Object returns the arguments as an object. The gateway has answered a call whose
// arguments are not an object with an error: they become the text of a member.
func (arguments Input) Object() json.RawMessage {
	raw := jsonscan.TrimSpace([]byte(arguments))
	switch {
	case len(raw) == 0:
		return json.RawMessage(`{}`)
	case jsonscan.IsKind(raw, '{') && jsonscan.Valid(raw):
		return raw
	}
	return AsJSON(map[string]string{"invalid_json": string(arguments)})
}

// AsJSON returns v as JSON without escapes for HTML.
func AsJSON(v any) json.RawMessage {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return json.RawMessage(`{}`) // strings and raw JSON that was checked: cannot fail
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}
