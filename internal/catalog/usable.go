package catalog

import (
	"fmt"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/internal/visible"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The limits on descriptions of tools, which are part of each model request.
// docs/limits.md has all limits; those of a schema are in package schema.
const (
	MaxName        = 128     // characters of a tool's own name; a tool with a longer one is left out
	MaxDescription = 4 << 10 // bytes; the rest of a longer one is cut off
)

// Refusal says why a tool is not offered.
type Refusal struct {
	Code   string // mcp_tool_invalid_name or mcp_tool_invalid_schema
	Reason string // continues "its name" or "its input schema", as in "missing"
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Code == invalidName {
		return "its name " + r.Reason
	}
	return "its input schema is " + r.Reason
}

const (
	invalidName   = "mcp_tool_invalid_name"
	invalidSchema = "mcp_tool_invalid_schema"
)

// Usable returns a definition as it is offered, apart from its name: without
// hidden characters and with a description of bounded length. The error is a
// *[Refusal].
func Usable(d tool.Definition) (tool.Definition, error) {
	u, err := examine(d)
	return u.definition, err
}

// usable is a tool that has been examined.
type usable struct {
	tool       tool.Tool
	name       string          // of which digest is
	digest     string          // of the definition with that name
	definition tool.Definition // with the tool's own name
	schema     *schema.Schema
	form       *Form
	hidden     int // characters that were taken out
	cut        int // bytes of the description that were
}

func examine(d tool.Definition) (u usable, err error) {
	if reason := badName(d.Name); reason != "" {
		return u, &Refusal{invalidName, reason}
	}
	var inTitle, inDescription, inSchema int
	full := d.Description
	d.Title, inTitle = visible.Text(d.Title)
	full, inDescription = visible.Text(full)
	d.Description = shorten(full, MaxDescription)
	if len(d.InputSchema) <= schema.MaxBytes { // a larger one is refused unread
		if d.InputSchema, inSchema, err = visible.JSON(d.InputSchema); err != nil {
			return u, &Refusal{invalidSchema, "ambiguous: it " + err.Error()}
		}
	}
	compiled, err := schema.Compile(d.InputSchema)
	if err != nil {
		return u, &Refusal{invalidSchema, err.Error()}
	}
	return usable{definition: d, schema: compiled, hidden: inTitle + inDescription + inSchema, cut: len(full) - len(d.Description)}, nil
}

// badName returns what is wrong with a tool's own name, or "". Hidden characters are not
// removed: the server does not know the remaining name, and it could be that of another
// tool.
func badName(name string) string {
	switch _, hidden := visible.Text(name); {
	case utf8.RuneCountInString(name) > MaxName:
		return fmt.Sprintf("is longer than %d characters", MaxName)
	case hidden > 0:
		return "has hidden characters"
	case name == "__proto__":
		return "means something else to programs in JavaScript"
	}
	return ""
}

// shorten cuts text to at most n bytes of whole characters. A text that was cut ends
// with an ellipsis.
func shorten(text string, n int) string {
	const more = "…"
	if len(text) <= n {
		return text
	}
	n -= len(more)
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + more
}
