package mcptool

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/tool"
)

// decodeDefinition reads one tool of a list. Each field is read by itself, so
// that a server's mistake in one does not cost the others; ok is false only for
// a tool without a name. The schema keeps the server's bytes.
func decodeDefinition(raw json.RawMessage) (d tool.Definition, ok bool) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return tool.Definition{}, false
	}
	d = tool.Definition{
		Name:        read[string](fields["name"]),
		Title:       read[string](fields["title"]),
		Description: read[string](fields["description"]),
		InputSchema: fields["inputSchema"],
	}
	hints := read[map[string]json.RawMessage](fields["annotations"])
	if d.Title == "" {
		d.Title = read[string](hints["title"])
	}
	d.Annotations = tool.Annotations{
		ReadOnly:    read[*bool](hints["readOnlyHint"]),
		Destructive: read[*bool](hints["destructiveHint"]),
		Idempotent:  read[*bool](hints["idempotentHint"]),
		OpenWorld:   read[*bool](hints["openWorldHint"]),
	}
	return d, d.Name != ""
}

// read decodes a value, or returns the zero value where it is of another kind.
func read[T any](raw json.RawMessage) T {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		var zero T
		return zero
	}
	return v
}
