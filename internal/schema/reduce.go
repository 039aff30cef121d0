package schema

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// Dialect says which keywords of JSON Schema a provider takes.
type Dialect struct {
	Keywords map[string]Keyword

	// Closed says that all objects have additionalProperties: false.
	Closed bool

	// Plain says that a schema is always an object, and that a reference has no other
	// members beside it.
	Plain bool
}

// Keyword says how a keyword is sent.
type Keyword struct {
	Holds Holds
	As    string                // its name in the dialect; "" = the same
	Takes func(v []byte) bool   // reports whether the dialect takes a value; nil = any
	Write func(v []byte) []byte // the value in the dialect; nil = as it is. Only for HoldsValue
}

// Holds is what a keyword contains.
type Holds int

// What keywords contain.
const (
	HoldsValue        Holds = iota // no schema
	HoldsSchema                    // a schema
	HoldsSchemas                   // an array of schemas
	HoldsNamedSchemas              // schemas by name
	HoldsFlag                      // a schema, or true or false, which stay as they are
)

// Reduce returns a schema as a provider takes it. What the provider does not enforce, such
// as a minimum, becomes a part of the description, and is returned in lost by name.
func (d *Dialect) Reduce(schema json.RawMessage) (reduced json.RawMessage, lost []string) {
	r := reducer{d, map[string]bool{}}
	reduced = r.schema(nil, jsonscan.TrimSpace(Normal(schema)), 0)
	for name := range r.lost {
		lost = append(lost, name)
	}
	slices.Sort(lost)
	return reduced, lost
}

type reducer struct {
	*Dialect
	lost map[string]bool
}

// schema appends a schema as the provider takes it.
func (r reducer) schema(dst, schema []byte, depth int) []byte {
	schema = jsonscan.TrimSpace(schema)
	if depth > maxNormalDepth || !jsonscan.IsKind(schema, '{') {
		return r.noObject(dst, schema, depth)
	}
	if r.Plain {
		if only := onlyBranch(schema); only != nil {
			return r.schema(dst, only, depth+1)
		}
		if ref := jsonscan.Member(schema, "$ref"); jsonscan.HasText(ref) {
			return reference(dst, ref)
		}
	}
	o := object{dst: dst, begin: len(dst)}
	var told []byte // what is not enforced
	closed := r.Closed && (jsonscan.Text(jsonscan.Member(schema, "type")) == "object" || jsonscan.Member(schema, "properties") != nil)
	for raw, v := range jsonscan.Members(schema) {
		name, v := string(raw), jsonscan.TrimSpace(v)
		switch {
		case name == "description":
			continue
		case name == "additionalProperties" && closed:
			if string(v) != "false" {
				r.lost[name] = true
			}
			continue
		case r.keyword(&o, name, v, depth):
			continue
		case isConstraint(name):
			r.lost[name] = true
		case name != "default" && name != "examples":
			continue
		}
		told = append(told, ", "[:2*min(len(told), 1)]...)
		told = append(append(append(told, name...), ": "...), v...)
	}
	if closed {
		o.value("additionalProperties", []byte("false"))
	}
	if description := describe(jsonscan.Text(jsonscan.Member(schema, "description")), told); description != "" {
		o.member("description")
		o.dst = jsonscan.AppendString(o.dst, description)
	}
	return o.end()
}

// noObject appends a schema that is true or false, no schema at all, or nested too deep.
func (r reducer) noObject(dst, schema []byte, depth int) []byte {
	switch {
	case !r.Plain:
		return append(dst, schema...)
	case depth > maxNormalDepth:
		r.lost["depth"] = true
	case jsonscan.IsKind(schema, 'f'): // allows nothing
		r.lost["not"] = true
	}
	return append(dst, "{}"...)
}

// describe adds what is not enforced to a description.
func describe(description string, told []byte) string {
	switch {
	case told == nil:
		return description
	case description != "":
		description += "\n\n"
	}
	return description + "{" + string(told) + "}"
}

// keyword appends a keyword that the provider takes, and reports whether it does. Of two
// keywords that are sent by one name it takes the first.
func (r reducer) keyword(o *object, name string, v []byte, depth int) bool {
	k, known := r.Keywords[name]
	as := name
	if k.As != "" {
		as = k.As
	}
	if !known || slices.Contains(o.names, as) || k.Takes != nil && !k.Takes(v) || k.Holds == HoldsSchemas && !jsonscan.IsKind(v, '[') {
		return false
	}
	o.member(as)
	switch {
	case k.Holds == HoldsSchema, k.Holds == HoldsFlag && jsonscan.IsKind(v, '{'):
		o.dst = r.schema(o.dst, v, depth+1)
	case k.Holds == HoldsSchemas:
		begin := len(o.dst)
		for _, one := range jsonscan.Elements(v) {
			o.dst = append(o.dst, "[,"[min(len(o.dst)-begin, 1)])
			o.dst = r.schema(o.dst, one, depth+1)
		}
		if len(o.dst) == begin {
			o.dst = append(o.dst, '[')
		}
		o.dst = append(o.dst, ']')
	case k.Holds == HoldsNamedSchemas:
		inner := object{dst: o.dst, begin: len(o.dst)}
		for key, one := range jsonscan.Members(v) {
			inner.member(string(key))
			inner.dst = r.schema(inner.dst, one, depth+1)
		}
		o.dst = inner.end()
	case k.Write != nil:
		o.dst = append(o.dst, k.Write(v)...)
	default:
		o.dst = append(o.dst, v...)
	}
	return true
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

// reference appends a reference to where definitions are sent.
func reference(dst, ref []byte) []byte {
	to := jsonscan.Text(ref)
	if rest, ok := strings.CutPrefix(to, "#/definitions/"); ok {
		to = "#/$defs/" + rest
	}
	return append(jsonscan.AppendString(append(dst, `{"$ref":`...), to), '}')
}

// isConstraint reports whether a keyword limits what is valid. Others only describe.
func isConstraint(name string) bool {
	switch name {
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minLength", "maxLength", "pattern", "format", "enum", "const",
		"minItems", "maxItems", "uniqueItems", "items", "contains", "minContains", "maxContains", "prefixItems", "unevaluatedItems",
		"patternProperties", "propertyNames", "minProperties", "maxProperties", "additionalProperties", "unevaluatedProperties",
		"dependentRequired", "dependentSchemas", "allOf", "oneOf", "anyOf", "definitions", "$defs",
		"not", "if", "then", "else", "$dynamicRef":
		return true
	}
	return false
}
