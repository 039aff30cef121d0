package demo

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// Schemas may refer to themselves: this is how deep arguments are built, and
// how many values they have at most.
const (
	maxNesting = 8
	maxValues  = 500
)

// arguments makes a call's arguments: the required properties of the schema,
// from what was said where the types fit, else small sensible examples.
func arguments(schema json.RawMessage, said conversation) string {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil || root == nil {
		return "{}"
	}
	m := maker{root: root, facts: factsOf(said)}
	made, ok := m.value("", root, 0).(object)
	if !ok {
		return "{}"
	}
	return string(marshal(made))
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(marshal(m.name))
		b.WriteByte(':')
		b.Write(marshal(m.value))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// maker makes values for one call.
type maker struct {
	root  map[string]any
	facts *facts
	made  int
}

// value makes a value that fits the schema s of the property called name.
func (m *maker) value(name string, s map[string]any, depth int) any {
	if m.made++; depth > maxNesting || m.made > maxValues {
		return nil
	}
	s = m.resolve(s)
	if c, ok := s["const"]; ok {
		return c
	}
	if e, ok := s["enum"].([]any); ok && len(e) > 0 {
		return m.oneOf(e)
	}
	switch typeOf(s) {
	case "object":
		return m.object(s, depth)
	case "array":
		return m.array(name, s, depth)
	case "number", "integer":
		return m.number(s)
	case "boolean":
		return s["default"] == true
	case "null":
		return nil
	}
	return m.text(name, s)
}

// oneOf takes a word of an enum by what was said, and its first value when it
// is not made of words.
func (m *maker) oneOf(values []any) any {
	var words []string
	for _, v := range values {
		if w, ok := v.(string); ok {
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return values[0]
	}
	return m.facts.word(words)
}

func (m *maker) object(s map[string]any, depth int) object {
	made := object{}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, r := range required {
		name, ok := r.(string)
		if !ok {
			continue
		}
		schema, _ := properties[name].(map[string]any)
		made = append(made, member{name, m.value(name, schema, depth+1)})
	}
	return made
}

func (m *maker) array(name string, s map[string]any, depth int) []any {
	least, hasLeast := s["minItems"].(float64)
	if !hasLeast {
		least = 1
	}
	if most, ok := s["maxItems"].(float64); ok {
		least = min(least, most)
	}
	items, _ := s["items"].(map[string]any)
	made := []any{}
	for range int(min(max(least, 0), 16)) {
		made = append(made, m.value(name, items, depth+1))
	}
	return made
}

// number takes a number that was said, if it fits; else the schema's own
// default; else a small one within the limits.
func (m *maker) number(s map[string]any) any {
	limits := limitsOf(s)
	if d, ok := s["default"].(float64); ok && !slices.ContainsFunc(m.facts.numbers, limits.hold) {
		return d
	}
	n := m.facts.number(limits.hold)
	if !limits.hold(n) {
		n = limits.nearest(n)
	}
	return n
}

// text makes a string by the property's format and name.
func (m *maker) text(name string, s map[string]any) string {
	made := m.byFormat(name, s)
	if least, ok := s["minLength"].(float64); ok {
		made += strings.Repeat("x", max(int(min(least, 4096))-utf8.RuneCountInString(made), 0))
	}
	if most, ok := s["maxLength"].(float64); ok && utf8.RuneCountInString(made) > int(max(most, 0)) {
		made = string([]rune(made)[:int(max(most, 0))])
	}
	return made
}

func (m *maker) byFormat(name string, s map[string]any) string {
	format, _ := s["format"].(string)
	its := parts(name)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(its, w) })
	}
	switch {
	case format == "date-time":
		return "2026-01-01T00:00:00Z"
	case format == "date" || has("date", "day"):
		return "2026-01-01"
	case format == "email" || has("email"):
		return "someone@example.com"
	case format == "uri" || has("url", "uri"):
		return "https://example.com/"
	case format == "uuid":
		return "00000000-0000-4000-8000-000000000000"
	case has("city", "location", "place", "town", "region", "where"):
		return m.facts.place()
	}
	if d, ok := s["default"].(string); ok {
		return d
	}
	return m.facts.text()
}
