package schema

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The bounds on what one call of Coerce changes. What is beyond them stays as it
// is, and does not fit.
const (
	maxCoercions   = 200
	maxCoercedPath = 256 // bytes
	maxHops        = 64  // from a schema to others about the same value
)

// Coercion is one value whose type was changed.
type Coercion struct {
	Path string `json:"path"` // JSON pointer to the value as it is now
	From string `json:"from"` // the JSON type that it had
	To   string `json:"to"`   // the type that the schema wants
}

// Coerce returns the value with its parts changed to the types that the schema
// wants, and what was changed; the value itself and nil when nothing was. The
// rules are those that keep what a value says:
//
//	"5"     → 5          a text that is a number, where a number or an integer is wanted
//	"true"  → true       also "false", in any case; 1 and 0, too
//	"null"  → null       also the empty text
//	5, true → "5", "true"
//	true    → 1          and false → 0
//	x       → [x]        a single value, but null, where an array is wanted
//	[x]     → x          a list of one, where none is wanted
//
// Null becomes nothing else. The result may still not fit: validate it. A value
// that costs too much to check is not changed. The value is valid JSON.
func (s *Schema) Coerce(value json.RawMessage) (json.RawMessage, []Coercion) {
	if hugeNumber.Match(value) {
		return value, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return value, nil
	}
	c := coercer{effort: s.effort}
	var changed any
	err = s.effort.during(func() error {
		changed = c.value(doc, s.compiled, nil, 0)
		return nil
	})
	if err != nil || len(c.done) == 0 {
		return value, nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(changed); err != nil {
		return value, nil
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), c.done
}

// coercer is one call of Coerce. It changes no value that it was given: parts
// that change are copied.
type coercer struct {
	effort *effort
	done   []Coercion
}

// value returns v as s wants it. hops counts the schemas that led to s and are
// about the same value.
func (c *coercer) value(v any, s *jsonschema.Schema, path []string, hops int) any {
	c.effort.spend(c.effort.weight)
	if hops > maxHops {
		return v
	}
	if s.Ref != nil {
		v = c.value(v, s.Ref, path, hops+1)
	}
	for _, sub := range s.AllOf {
		v = c.value(v, sub, path, hops+1)
	}
	v = c.typed(v, s, path)
	v = c.oneOf(v, s.AnyOf, path, hops)
	v = c.oneOf(v, s.OneOf, path, hops)
	switch v := v.(type) {
	case map[string]any:
		return c.members(v, s, path)
	case []any:
		return c.items(v, s, path)
	}
	return v
}

// typed converts v if s names types and v has none of them.
func (c *coercer) typed(v any, s *jsonschema.Schema, path []string) any {
	if s.Types == nil || s.Types.IsEmpty() {
		return v
	}
	want := wanted(s.Types.ToStrings())
	at := pointer(path)
	if want.has(v) || len(c.done) == maxCoercions || len(at) > maxCoercedPath {
		return v
	}
	converted, ok := want.convert(v)
	if !ok {
		return v
	}
	c.done = append(c.done, Coercion{Path: at, From: typeOf(v), To: want.nameOf(converted)})
	return converted
}

// oneOf tries schemas of which one is to fit, in their order: the first that
// fits v as it is leaves it so, else the first that fits it changed.
func (c *coercer) oneOf(v any, schemas []*jsonschema.Schema, path []string, hops int) any {
	for _, s := range schemas {
		if s.Validate(v) == nil {
			return v
		}
	}
	before := len(c.done)
	for _, s := range schemas {
		changed := c.value(v, s, path, hops+1)
		if s.Validate(changed) == nil {
			return changed
		}
		c.done = c.done[:before]
	}
	return v
}

func (c *coercer) members(v map[string]any, s *jsonschema.Schema, path []string) map[string]any {
	out, copied := v, false
	for _, name := range slices.Sorted(maps.Keys(v)) {
		before, now := len(c.done), v[name]
		for _, sub := range memberSchemas(s, name) {
			now = c.value(now, sub, append(slices.Clip(path), name), 0)
		}
		if len(c.done) == before {
			continue
		}
		if !copied {
			out, copied = maps.Clone(v), true
		}
		out[name] = now
	}
	return out
}

// memberSchemas returns what a schema wants of the member with the name.
func memberSchemas(s *jsonschema.Schema, name string) (out []*jsonschema.Schema) {
	if sub := s.Properties[name]; sub != nil {
		out = append(out, sub)
	}
	patterns := slices.SortedFunc(maps.Keys(s.PatternProperties), func(a, b jsonschema.Regexp) int { return strings.Compare(a.String(), b.String()) })
	for _, pattern := range patterns {
		if pattern.MatchString(name) {
			out = append(out, s.PatternProperties[pattern])
		}
	}
	if sub, ok := s.AdditionalProperties.(*jsonschema.Schema); ok && len(out) == 0 {
		out = append(out, sub)
	}
	return out
}

func (c *coercer) items(v []any, s *jsonschema.Schema, path []string) []any {
	out, copied := v, false
	for i := range v {
		sub := itemSchema(s, i)
		if sub == nil {
			continue
		}
		before := len(c.done)
		now := c.value(v[i], sub, append(slices.Clip(path), strconv.Itoa(i)), 0)
		if len(c.done) == before {
			continue
		}
		if !copied {
			out, copied = slices.Clone(v), true
		}
		out[i] = now
	}
	return out
}

// itemSchema returns what a schema wants of the item at i, in the words of any
// draft; nil for nothing.
func itemSchema(s *jsonschema.Schema, i int) *jsonschema.Schema {
	if i < len(s.PrefixItems) {
		return s.PrefixItems[i]
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		return items
	case []*jsonschema.Schema:
		if i < len(items) {
			return items[i]
		}
		rest, _ := s.AdditionalItems.(*jsonschema.Schema)
		return rest
	}
	return s.Items2020
}

// wanted are the names of types of which a schema wants one.
type wanted []string

func (w wanted) any(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(w, name) })
}

// has reports whether v is of one of the types.
func (w wanted) has(v any) bool {
	if n, ok := v.(json.Number); ok && w.any("integer") && isInteger(n) {
		return true
	}
	return w.any(typeOf(v))
}

// nameOf returns the name by which the schema wants v, which has.
func (w wanted) nameOf(v any) string {
	if name := typeOf(v); w.any(name) {
		return name
	}
	return "integer"
}

// convert returns v as one of the types, or false.
func (w wanted) convert(v any) (any, bool) {
	if now, ok := w.scalar(v); ok {
		return now, true
	}
	list, isList := v.([]any)
	switch {
	case isList && len(list) == 1 && w.has(list[0]):
		return list[0], true
	case isList && len(list) == 1:
		return w.scalar(list[0])
	case !isList && v != nil && w.any("array"):
		return []any{v}, true
	}
	return nil, false
}

// decimal is a number as JSON writes it, of a size that is no trouble.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,63})(\.[0-9]{1,64})?([eE][-+]?[0-9]{1,3})?$`)

func (w wanted) scalar(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		return w.text(strings.TrimSpace(v))
	case json.Number:
		switch {
		case w.any("string"):
			return v.String(), true
		case w.any("boolean") && (v == "0" || v == "1"):
			return v == "1", true
		}
	case bool:
		switch {
		case w.any("string"):
			return strconv.FormatBool(v), true
		case w.any("integer", "number") && v:
			return json.Number("1"), true
		case w.any("integer", "number"):
			return json.Number("0"), true
		}
	}
	return nil, false
}

func (w wanted) text(s string) (any, bool) {
	if n := json.Number(s); decimal.MatchString(s) && w.has(n) {
		return n, true
	}
	switch low := strings.ToLower(s); {
	case w.any("boolean") && (low == "true" || low == "false"):
		return low == "true", true
	case w.any("boolean") && (s == "1" || s == "0"):
		return s == "1", true
	case w.any("null") && (low == "null" || s == ""):
		return nil, true
	}
	return nil, false
}

// isInteger reports whether n has no fraction; 5.0 has none.
func isInteger(n json.Number) bool {
	r, ok := new(big.Rat).SetString(n.String())
	return ok && r.IsInt()
}

// typeOf returns the JSON type of v.
func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}
