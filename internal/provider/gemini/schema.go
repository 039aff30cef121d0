package gemini

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
)

// subset returns a schema with what the provider takes of JSON Schema, as the
// documentation of responseJsonSchema lists it:
// https://ai.google.dev/api/generate-content#v1beta.GenerationConfig. What else limits
// the values, such as a pattern, becomes a part of the description, and is returned in
// lost by name.
func subset(schema json.RawMessage) (reduced json.RawMessage, lost []string) {
	r := reducer{lost: map[string]bool{}}
	reduced = r.schema(nil, jsonscan.TrimSpace(schema), 0)
	for name := range r.lost {
		lost = append(lost, name)
	}
	slices.Sort(lost)
	return reduced, lost
}

// maxDepth is how deep a schema is read. What is deeper allows anything.
const maxDepth = 100

// formats are the formats of strings that the provider knows.
var formats = []string{"date-time", "date", "time"}

type reducer struct{ lost map[string]bool }

// schema appends a schema as the provider takes it.
func (r reducer) schema(dst, schema []byte, depth int) []byte {
	switch {
	case depth > maxDepth:
		r.lost["depth"] = true
		return append(dst, "{}"...)
	case !jsonscan.IsKind(schema, '{'):
		if jsonscan.IsKind(schema, 'f') { // false allows nothing
			r.lost["not"] = true
		}
		return append(dst, "{}"...)
	}
	if only := onlyBranch(schema); only != nil {
		return r.schema(dst, only, depth+1)
	}
	if ref := jsonscan.Member(schema, "$ref"); jsonscan.HasText(ref) {
		return r.reference(dst, ref)
	}
	o := object{dst: dst, begin: len(dst)}
	var told []byte // what is not enforced
	for raw, v := range jsonscan.Members(schema) {
		name, v := string(raw), jsonscan.TrimSpace(v)
		if name == "description" || r.keyword(&o, name, v, depth) {
			continue
		}
		if isConstraint(name) {
			r.lost[name] = true
		}
		if isConstraint(name) || name == "default" || name == "examples" || name == "const" {
			told = append(told, ", "[:2*min(len(told), 1)]...)
			told = append(append(append(told, name...), ": "...), v...)
		}
	}
	description := jsonscan.Text(jsonscan.Member(schema, "description"))
	if told != nil {
		description = wire.Joined(description, "{"+string(told)+"}")
	}
	if description != "" {
		o.member("description")
		o.dst = jsonscan.AppendString(o.dst, description)
	}
	return o.end()
}

// onlyBranch returns the one schema of an allOf that says all of the type; nil = there is
// none. Generators of schemas write a reference with a description like this.
func onlyBranch(schema []byte) []byte {
	var only []byte
	for i, v := range jsonscan.Elements(jsonscan.TrimSpace(jsonscan.Member(schema, "allOf"))) {
		if i > 0 {
			return nil
		}
		only = jsonscan.TrimSpace(v)
	}
	for _, name := range []string{"type", "properties", "anyOf", "oneOf", "enum", "const"} {
		if jsonscan.Member(schema, name) != nil {
			return nil
		}
	}
	return only
}

// reference appends a reference. It may have no other members beside it.
func (r reducer) reference(dst, ref []byte) []byte {
	to := jsonscan.Text(ref)
	if rest, ok := strings.CutPrefix(to, "#/definitions/"); ok {
		to = "#/$defs/" + rest
	}
	return append(jsonscan.AppendString(append(dst, `{"$ref":`...), to), '}')
}

// sentAs are the keywords that are sent by another name.
var sentAs = map[string]string{"const": "enum", "definitions": "$defs", "oneOf": "anyOf"} // the provider reads oneOf as anyOf

// keyword appends a keyword that the provider takes, and reports whether it does. Of two
// keywords that are sent by one name it takes the first.
func (r reducer) keyword(o *object, name string, v []byte, depth int) bool {
	as := name
	if other := sentAs[name]; other != "" {
		as = other
	}
	if slices.Contains(o.names, as) {
		return false
	}
	begun := len(o.names)
	switch name {
	case "type", "title", "required", "minItems", "maxItems", "minimum", "maximum", "$id", "$anchor", "propertyOrdering":
		o.member(name)
		o.dst = append(o.dst, v...)
	case "format":
		if !slices.Contains(formats, jsonscan.Text(v)) {
			return false
		}
		o.member(name)
		o.dst = append(o.dst, v...)
	case "enum":
		if !isSimpleEnum(v) {
			return false
		}
		o.member(name)
		o.dst = append(o.dst, v...)
	case "const":
		if !isSimpleEnum(slices.Concat([]byte("["), v, []byte("]"))) {
			return false
		}
		o.member(as)
		o.dst = append(append(append(o.dst, '['), v...), ']')
	case "properties":
		o.member(name)
		o.dst = r.each(o.dst, v, depth)
	case "$defs", "definitions":
		o.member(as)
		o.dst = r.each(o.dst, v, depth)
	case "items":
		if jsonscan.IsKind(v, '[') { // an older form of prefixItems
			o.member("prefixItems")
			o.dst = r.list(o.dst, v, depth)
			break
		}
		o.member(name)
		o.dst = r.schema(o.dst, v, depth+1)
	case "prefixItems", "anyOf", "oneOf":
		if !jsonscan.IsKind(v, '[') {
			return false
		}
		o.member(as)
		o.dst = r.list(o.dst, v, depth)
	case "additionalProperties":
		o.member(name)
		if jsonscan.IsKind(v, '{') {
			o.dst = r.schema(o.dst, v, depth+1)
		} else {
			o.dst = append(o.dst, v...)
		}
	}
	return len(o.names) > begun
}

// isSimpleEnum reports whether all values are strings or numbers.
func isSimpleEnum(v []byte) bool {
	for _, e := range jsonscan.Elements(v) {
		if e = jsonscan.TrimSpace(e); !jsonscan.IsKind(e, '"') && (len(e) == 0 || e[0] != '-' && (e[0] < '0' || e[0] > '9')) {
			return false
		}
	}
	return jsonscan.IsKind(v, '[')
}

// isConstraint reports whether a keyword of JSON Schema limits what is valid. Others
// only describe.
func isConstraint(name string) bool {
	switch name {
	case "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "format", "enum", "const",
		"uniqueItems", "contains", "minContains", "maxContains", "additionalItems", "unevaluatedItems",
		"patternProperties", "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties",
		"dependentRequired", "dependentSchemas", "dependencies", "allOf", "oneOf", "anyOf", "definitions", "$defs", "not", "if", "then", "else", "$dynamicRef":
		return true
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

func (o *object) end() []byte {
	if len(o.dst) == o.begin {
		o.dst = append(o.dst, '{')
	}
	return append(o.dst, '}')
}

func (r reducer) each(dst, schemas []byte, depth int) []byte {
	o := object{dst: dst, begin: len(dst)}
	for name, v := range jsonscan.Members(schemas) {
		o.member(string(name))
		o.dst = r.schema(o.dst, jsonscan.TrimSpace(v), depth+1)
	}
	return o.end()
}

func (r reducer) list(dst, array []byte, depth int) []byte {
	begin := len(dst)
	for _, v := range jsonscan.Elements(array) {
		dst = append(dst, "[,"[min(len(dst)-begin, 1)])
		dst = r.schema(dst, jsonscan.TrimSpace(v), depth+1)
	}
	if len(dst) == begin {
		dst = append(dst, '[')
	}
	return append(dst, ']')
}
