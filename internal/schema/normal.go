package schema

import (
	"encoding/json"
	"regexp"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// NormalArguments returns the schema of a tool's arguments in the form of [Normal], with a
// type and with properties, which some providers demand.
func NormalArguments(raw json.RawMessage) json.RawMessage {
	n := normalizer{top: true}
	return n.normal(raw)
}

// Normal returns a schema in the form that all providers read: that of draft 2020-12. It
// allows the same values.
//
//	$schema, required: true                 removed
//	items: [A, B], additionalItems: C       prefixItems: [A, B], items: C
//	minimum: 0, exclusiveMinimum: true      exclusiveMinimum: 0
//	dependencies                            dependentRequired, dependentSchemas
//	[] in place of an object, as PHP has it {}
//	type: array without items               items: {}
//
// It returns raw itself if nothing changes, or if raw is not a JSON object.
func Normal(raw json.RawMessage) json.RawMessage {
	var n normalizer
	return n.normal(raw)
}

// normalizer is the state of one call of Normal.
type normalizer struct {
	top     bool // the next schema is that of the arguments
	changed bool
}

// maxNormalDepth is how deep a schema is read. What is deeper stays as it is.
const maxNormalDepth = 100

func (n *normalizer) normal(raw json.RawMessage) json.RawMessage {
	trimmed := jsonscan.TrimSpace(raw)
	if !jsonscan.IsKind(trimmed, '{') || !jsonscan.Valid(trimmed) {
		return raw
	}
	out := n.schema(make([]byte, 0, len(trimmed)+32), trimmed, 0)
	if !n.changed {
		return raw
	}
	return out
}

// itemOfTuple finds references to an item of a tuple in its older form.
var itemOfTuple = regexp.MustCompile(`/items/([0-9]+)(/|$)`)

// schema appends a schema in the normal form.
func (n *normalizer) schema(dst, v []byte, depth int) []byte {
	v = jsonscan.TrimSpace(v)
	top := n.top
	n.top = false
	switch {
	case isEmptyArray(v):
		n.changed = true
		return append(dst, "{}"...)
	case depth > maxNormalDepth || !jsonscan.IsKind(v, '{'):
		return append(dst, v...)
	}
	var room [6]string // most schemas have fewer keywords
	o := object{dst: dst, begin: len(dst), names: room[:0]}
	array := false
	for raw, m := range jsonscan.Members(v) {
		name, m := string(raw), jsonscan.TrimSpace(m)
		switch name {
		case "$schema":
			n.changed = true
		case "type":
			array = isArray(m)
			o.value(name, m)
		case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
			n.bound(&o, v, name, m)
		case "items", "additionalItems":
			tuple := jsonscan.TrimSpace(jsonscan.Member(v, "items"))
			n.items(&o, name, m, jsonscan.IsKind(tuple, '[') && !isEmptyArray(tuple), depth)
		case "dependencies":
			n.dependencies(&o, m, depth)
		case "required":
			if jsonscan.IsKind(m, '[') {
				o.value(name, m)
			} else {
				n.changed = true
			}
		case "$ref":
			n.reference(&o, m)
		default:
			n.keyword(&o, name, m, depth)
		}
	}
	if array && !slices.Contains(o.names, "items") {
		n.changed = true
		o.value("items", []byte("{}"))
	}
	if top {
		n.complete(&o)
	}
	return o.end()
}

// complete adds what the schema of arguments must have.
func (n *normalizer) complete(o *object) {
	if !slices.Contains(o.names, "type") {
		n.changed = true
		o.value("type", []byte(`"object"`))
	}
	if !slices.Contains(o.names, "properties") {
		n.changed = true
		o.value("properties", []byte("{}"))
	}
}

// keyword appends a keyword whose form is the same in all drafts.
func (n *normalizer) keyword(o *object, name string, v []byte, depth int) {
	switch name {
	case "properties", "$defs", "definitions", "patternProperties", "dependentSchemas":
		o.member(name)
		if !jsonscan.IsKind(v, '{') {
			n.changed = true
			v = []byte("{}")
		}
		inner := object{dst: o.dst, begin: len(o.dst)}
		for key, s := range jsonscan.Members(v) {
			inner.begins(key)
			inner.dst = n.schema(inner.dst, s, depth+1)
		}
		o.dst = inner.end()
	case "prefixItems", "anyOf", "oneOf", "allOf":
		o.member(name)
		o.dst = n.list(o.dst, v, depth)
	case "not", "if", "then", "else", "contains", "propertyNames", "additionalProperties",
		"unevaluatedItems", "unevaluatedProperties", "contentSchema":
		o.member(name)
		o.dst = n.schema(o.dst, v, depth+1)
	default:
		o.value(name, v)
	}
}

// bound appends a bound as a number. In draft 4, exclusiveMinimum says whether minimum is
// itself allowed.
func (n *normalizer) bound(o *object, schema []byte, name string, v []byte) {
	isExclusive := name == "exclusiveMinimum" || name == "exclusiveMaximum"
	other := "exclusiveM" + name[1:] // of minimum and maximum
	if isExclusive {
		other = "m" + name[len("exclusiveM"):]
	}
	beside := jsonscan.TrimSpace(jsonscan.Member(schema, other))
	switch {
	case isExclusive && jsonscan.IsKind(v, 't') && isNumber(beside):
		n.changed = true
		o.value(name, beside)
	case isExclusive && (jsonscan.IsKind(v, 't') || jsonscan.IsKind(v, 'f')):
		n.changed = true
	case !isExclusive && jsonscan.IsKind(beside, 't'):
		n.changed = true
	default:
		o.value(name, v)
	}
}

// items appends the items of an array.
func (n *normalizer) items(o *object, name string, v []byte, isTuple bool, depth int) {
	switch {
	case name == "items" && isTuple:
		n.changed = true
		if !slices.Contains(o.names, "prefixItems") {
			o.member("prefixItems")
			o.dst = n.list(o.dst, v, depth)
		}
		return
	case name == "additionalItems":
		n.changed = true
		if !isTuple {
			return // it has no effect
		}
	}
	o.member("items")
	o.dst = n.schema(o.dst, v, depth+1)
}

// dependencies appends the two keywords that replaced it.
func (n *normalizer) dependencies(o *object, v []byte, depth int) {
	n.changed = true
	var required, schemas object
	for key, s := range jsonscan.Members(v) {
		if s = jsonscan.TrimSpace(s); jsonscan.IsKind(s, '[') {
			required.value(string(key), s)
		} else {
			schemas.member(string(key))
			schemas.dst = n.schema(schemas.dst, s, depth+1)
		}
	}
	if len(required.names) > 0 {
		o.value("dependentRequired", required.end())
	}
	if len(schemas.names) > 0 {
		o.value("dependentSchemas", schemas.end())
	}
}

// reference appends a reference to where its target is now.
func (n *normalizer) reference(o *object, v []byte) {
	to := jsonscan.Text(v)
	if !itemOfTuple.MatchString(to) {
		o.value("$ref", v)
		return
	}
	n.changed = true
	o.member("$ref")
	o.dst = jsonscan.AppendString(o.dst, itemOfTuple.ReplaceAllString(to, "/prefixItems/$1$2"))
}

func (n *normalizer) list(dst, array []byte, depth int) []byte {
	if !jsonscan.IsKind(array, '[') {
		return append(dst, array...)
	}
	begin := len(dst)
	for _, v := range jsonscan.Elements(array) {
		dst = append(dst, "[,"[min(len(dst)-begin, 1)])
		dst = n.schema(dst, v, depth+1)
	}
	if len(dst) == begin {
		dst = append(dst, '[')
	}
	return append(dst, ']')
}

func isNumber(v []byte) bool { return len(v) > 0 && (v[0] == '-' || '0' <= v[0] && v[0] <= '9') }

func isEmptyArray(v []byte) bool {
	return jsonscan.IsKind(v, '[') && len(jsonscan.TrimSpace(v[1:len(v)-1])) == 0
}

// isArray reports whether a type is array, or may be.
func isArray(v []byte) bool {
	if jsonscan.Text(v) == "array" {
		return true
	}
	for _, one := range jsonscan.Elements(v) {
		if jsonscan.Text(one) == "array" {
			return true
		}
	}
	return false
}

// object is a JSON object in the making, at the end of dst.
type object struct {
	dst   []byte
	begin int
	names []string // of its members
}

// member begins a member.
func (o *object) member(name string) {
	o.dst = append(o.dst, "{,"[min(len(o.dst)-o.begin, 1)])
	o.dst = append(jsonscan.AppendString(o.dst, name), ':')
	o.names = append(o.names, name)
}

// begins begins a member of an object whose names do not matter.
func (o *object) begins(name []byte) {
	o.dst = append(o.dst, "{,"[min(len(o.dst)-o.begin, 1)])
	o.dst = append(jsonscan.AppendString(o.dst, name), ':')
}

func (o *object) value(name string, v []byte) {
	o.member(name)
	o.dst = append(o.dst, v...)
}

func (o *object) end() []byte {
	if len(o.dst) == o.begin {
		o.dst = append(o.dst, '{')
	}
	return append(o.dst, '}')
}
