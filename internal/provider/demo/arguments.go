package demo

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxNesting is how deep arguments are built; schemas may refer to themselves.
const maxNesting = 8

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
}

// value makes a value that fits the schema s of the property called name.
func (m *maker) value(name string, s map[string]any, depth int) any {
	s = m.resolve(s, depth)
	if depth > maxNesting {
		return nil
	}
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

// resolve follows a reference inside the schema, and takes the first branch of
// a choice.
func (m *maker) resolve(s map[string]any, depth int) map[string]any {
	for range maxNesting - min(depth, maxNesting) + 1 {
		if ref, ok := s["$ref"].(string); ok {
			target := m.find(ref)
			if target == nil {
				return map[string]any{}
			}
			s = target
			continue
		}
		branch := firstBranch(s)
		if branch == nil {
			return s
		}
		s = branch
	}
	return map[string]any{}
}

// find looks a local reference up, such as #/$defs/point.
func (m *maker) find(ref string) map[string]any {
	at := m.root
	path, local := strings.CutPrefix(ref, "#/")
	if !local {
		return nil
	}
	for part := range strings.SplitSeq(path, "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		next, ok := at[part].(map[string]any)
		if !ok {
			return nil
		}
		at = next
	}
	return at
}

func firstBranch(s map[string]any) map[string]any {
	if s["type"] != nil || s["properties"] != nil {
		return nil
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		branches, _ := s[key].([]any)
		for _, b := range branches {
			if b, ok := b.(map[string]any); ok && b["type"] != "null" {
				return b
			}
		}
	}
	return nil
}

// typeOf returns the schema's type, the first that is not null of several.
func typeOf(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		for _, one := range t {
			if one, ok := one.(string); ok && one != "null" {
				return one
			}
		}
	}
	switch {
	case s["properties"] != nil:
		return "object"
	case s["items"] != nil:
		return "array"
	}
	return ""
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

type limits struct {
	least, most, step float64
	open              [2]bool // whether least and most themselves are out
}

func limitsOf(s map[string]any) limits {
	l := limits{least: math.Inf(-1), most: math.Inf(1)}
	if typeOf(s) == "integer" {
		l.step = 1
	}
	read := func(key string, into *float64) bool {
		n, ok := s[key].(float64)
		if ok {
			*into = n
		}
		return ok
	}
	read("minimum", &l.least)
	read("maximum", &l.most)
	read("multipleOf", &l.step)
	l.open = [2]bool{read("exclusiveMinimum", &l.least), read("exclusiveMaximum", &l.most)}
	return l
}

func (l limits) hold(n float64) bool {
	return n >= l.least && n <= l.most && !(l.open[0] && n == l.least) && !(l.open[1] && n == l.most) &&
		(l.step == 0 || math.Mod(n, l.step) == 0)
}

// nearest returns a number within the limits, if there is one, close to n.
func (l limits) nearest(n float64) float64 {
	step := l.step
	if step == 0 {
		step = 0.5
	}
	n = min(max(n, l.least), l.most)
	for _, near := range []float64{math.Ceil(n/step) * step, math.Floor(n/step) * step, math.Ceil(n/step)*step + step, math.Floor(n/step)*step - step, (l.least + l.most) / 2} {
		if l.hold(near) {
			return near
		}
	}
	return n
}

// text makes a string by the property's format and name.
func (m *maker) text(name string, s map[string]any) string {
	made := m.byFormat(name, s)
	if least, ok := s["minLength"].(float64); ok {
		for utf8.RuneCountInString(made) < int(min(least, 4096)) {
			made += "x"
		}
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
