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

// The limits on one call of Coerce. Values beyond them are not changed.
const (
	maxCoercions   = 200
	maxCoercedPath = 256 // bytes
	maxHops        = 64  // references and subschemas in a row for the same value
)

// Coercion is the change of one value to another type.
type Coercion struct {
	Path string `json:"path"` // JSON pointer into the changed value
	From string `json:"from"` // JSON type before
	To   string `json:"to"`   // JSON type after, as the schema names it; "absent" for a member that was removed
}

// Coerce converts the parts of value to the types that the schema requires. It returns
// the converted value and the changes, or value itself and nil if nothing changed. It
// makes only conversions that preserve the meaning:
//
//	"5"     → 5          a string that is a number, to number or integer
//	"true"  → true       also "false", in any case; also 1, 0, "1" and "0"
//	"null"  → null       also the empty string
//	5, true → "5", "true"
//	true    → 1          and false → 0
//	x       → [x]        a value other than null, to array
//	[x]     → x          an array of one, to another type
//	null    → nothing    a member that is not required and may not be null is removed
//
// Null is never converted. The result may still be invalid: callers must validate it. A
// value whose check costs too much is not changed. value must be valid JSON.
func (s *Schema) Coerce(value json.RawMessage) (json.RawMessage, []Coercion) {
	if hugeExponent.Match(value) {
		return value, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return value, nil
	}
	c := coercer{meter: s.meter}
	var changed any
	err = s.meter.run(func() error {
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

// coercer is the state of one call of Coerce. Its methods do not modify their
// arguments: they copy what they change.
type coercer struct {
	meter *meter
	done  []Coercion
}

// value returns v converted to s. hops is the number of schemas applied to the same
// value before s.
func (c *coercer) value(v any, s *jsonschema.Schema, path []string, hops int) any {
	c.meter.spend(c.meter.stepsPerValue)
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

// typed converts v if s requires a type that v does not have.
func (c *coercer) typed(v any, s *jsonschema.Schema, path []string) any {
	if s.Types == nil || s.Types.IsEmpty() {
		return v
	}
	want := typeNames(s.Types.ToStrings())
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

// oneOf handles anyOf and oneOf. It returns v unchanged if it is valid for one of the
// schemas. Else it returns v converted to the first schema for which the result is valid,
// or v if there is none.
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
		subs := memberSchemas(s, name)
		if now == nil && c.removes(s, subs, name, path) {
			if !copied {
				out, copied = maps.Clone(v), true
			}
			delete(out, name)
			continue
		}
		for _, sub := range subs {
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

// removes reports whether a member that is null is removed: it is not required, and one of
// its schemas does not allow null. It records the removal.
func (c *coercer) removes(s *jsonschema.Schema, subs []*jsonschema.Schema, name string, path []string) bool {
	at := pointer(append(slices.Clip(path), name))
	if slices.Contains(s.Required, name) || len(c.done) == maxCoercions || len(at) > maxCoercedPath {
		return false
	}
	if !slices.ContainsFunc(subs, func(sub *jsonschema.Schema) bool { return sub.Validate(nil) != nil }) {
		return false
	}
	c.done = append(c.done, Coercion{Path: at, From: "null", To: "absent"})
	return true
}

// memberSchemas returns the subschemas of s that apply to the member with the name.
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

// itemSchema returns the subschema of s for the item at index i, or nil. It supports the
// keywords of all drafts.
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

// typeNames are the types that a schema allows.
type typeNames []string

// any reports whether one of the names is allowed.
func (t typeNames) any(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(t, name) })
}

// has reports whether v has one of the types.
func (t typeNames) has(v any) bool {
	if n, ok := v.(json.Number); ok && t.any("integer") && isInteger(n) {
		return true
	}
	return t.any(typeOf(v))
}

// nameOf returns the type of v, which must have one of the types. For a number it is
// "number" if that is allowed, else "integer".
func (t typeNames) nameOf(v any) string {
	if name := typeOf(v); t.any(name) {
		return name
	}
	return "integer"
}

// convert converts v to one of the types, or returns false.
func (t typeNames) convert(v any) (any, bool) {
	if now, ok := t.scalar(v); ok {
		return now, true
	}
	list, isList := v.([]any)
	switch {
	case isList && len(list) == 1 && t.has(list[0]):
		return list[0], true
	case isList && len(list) == 1:
		return t.scalar(list[0])
	case !isList && v != nil && t.any("array"):
		return []any{v}, true
	}
	return nil, false
}

// decimal matches JSON numbers that are cheap to compute with.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,63})(\.[0-9]{1,64})?([eE][-+]?[0-9]{1,3})?$`)

// scalar converts a string, number or boolean, or returns false.
func (t typeNames) scalar(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		return t.text(strings.TrimSpace(v))
	case json.Number:
		switch {
		case t.any("string"):
			return v.String(), true
		case t.any("boolean") && (v == "0" || v == "1"):
			return v == "1", true
		}
	case bool:
		switch {
		case t.any("string"):
			return strconv.FormatBool(v), true
		case t.any("integer", "number") && v:
			return json.Number("1"), true
		case t.any("integer", "number"):
			return json.Number("0"), true
		}
	}
	return nil, false
}

// text converts a string, or returns false.
func (t typeNames) text(s string) (any, bool) {
	if n := json.Number(s); decimal.MatchString(s) && t.has(n) {
		return n, true
	}
	switch low := strings.ToLower(s); {
	case t.any("boolean") && (low == "true" || low == "false"):
		return low == "true", true
	case t.any("boolean") && (s == "1" || s == "0"):
		return s == "1", true
	case t.any("null") && (low == "null" || s == ""):
		return nil, true
	}
	return nil, false
}

// isInteger reports whether n is an integer; 5.0 is.
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
