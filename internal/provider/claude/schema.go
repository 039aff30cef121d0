package claude

import (
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
)

// stringFormats are the formats of strings that the provider enforces.
var stringFormats = []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}

// AnswerSchema returns a schema of answers as the provider takes it:
// https://platform.claude.com/docs/en/build-with-claude/structured-outputs. Objects
// are closed, which allows no answer that the client's schema does not allow. What
// the provider cannot enforce, such as a minimum, becomes a part of the description,
// and is returned in lost by name.
func AnswerSchema(schema json.RawMessage) (reduced json.RawMessage, lost []string) {
	r := reducer{lost: map[string]bool{}}
	reduced = r.schema(nil, jsonscan.TrimSpace(schema), 0)
	for name := range r.lost {
		lost = append(lost, name)
	}
	slices.Sort(lost)
	return reduced, lost
}

// maxDepth is how deep a schema is read. The provider refuses what is deeper.
const maxDepth = 100

type reducer struct{ lost map[string]bool }

// schema appends a schema as the provider takes it.
func (r reducer) schema(dst, schema []byte, depth int) []byte {
	if !jsonscan.IsKind(schema, '{') || depth > maxDepth {
		return append(dst, schema...)
	}
	begin := len(dst)
	member := func(name string) []byte {
		dst = append(dst, "{,"[min(len(dst)-begin, 1)])
		return append(jsonscan.AppendString(dst, name), ':')
	}
	description := jsonscan.Text(jsonscan.Member(schema, "description"))
	var told []byte // what is not enforced
	closed := jsonscan.Text(jsonscan.Member(schema, "type")) == "object" || jsonscan.Member(schema, "properties") != nil
	for raw, v := range jsonscan.Members(schema) {
		name := string(raw)
		switch {
		case name == "description", name == "$schema", name == "additionalProperties" && closed:
			if name == "additionalProperties" && string(v) != "false" {
				r.lost[name] = true
			}
		case name == "properties" || name == "$defs" || name == "definitions":
			dst = r.each(member(name), v, depth)
		case name == "items" && !jsonscan.IsKind(v, '['):
			dst = r.schema(member(name), v, depth+1)
		case name == "anyOf" || name == "allOf":
			dst = r.list(member(name), v, depth)
		case name == "oneOf": // an answer that matches one of them mostly matches no other
			dst = r.list(member("anyOf"), v, depth)
		case r.enforced(name, v):
			dst = append(member(name), v...)
		case isConstraint(name), name == "default", name == "examples":
			if isConstraint(name) {
				r.lost[name] = true
			}
			told = append(told, ", "[:2*min(len(told), 1)]...)
			told = append(append(append(told, name...), ": "...), v...)
		}
	}
	if closed {
		dst = append(member("additionalProperties"), "false"...)
	}
	if told != nil {
		description = wire.Joined(description, "{"+string(told)+"}")
	}
	if description != "" {
		dst = jsonscan.AppendString(member("description"), description)
	}
	if len(dst) == begin {
		dst = append(dst, '{')
	}
	return append(dst, '}')
}

// enforced reports whether the provider takes a member that holds no schemas.
func (r reducer) enforced(name string, v []byte) bool {
	switch name {
	case "type", "enum", "const", "required", "title", "$ref":
		return true
	case "format":
		return slices.Contains(stringFormats, jsonscan.Text(v))
	case "minItems":
		return string(v) == "0" || string(v) == "1"
	}
	return false
}

// isConstraint reports whether a keyword of JSON Schema limits what is valid. Others
// only describe.
func isConstraint(name string) bool {
	switch name {
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "format",
		"minItems", "maxItems", "uniqueItems", "items", "contains", "minContains", "maxContains", "prefixItems", "additionalItems", "unevaluatedItems",
		"patternProperties", "propertyNames", "minProperties", "maxProperties", "additionalProperties", "unevaluatedProperties",
		"dependentRequired", "dependentSchemas", "dependencies", "not", "if", "then", "else", "$dynamicRef":
		return true
	}
	return false
}

func (r reducer) each(dst, object []byte, depth int) []byte {
	begin := len(dst)
	for name, v := range jsonscan.Members(object) {
		dst = append(jsonscan.AppendString(append(dst, "{,"[min(len(dst)-begin, 1)]), name), ':')
		dst = r.schema(dst, v, depth+1)
	}
	if len(dst) == begin {
		dst = append(dst, '{')
	}
	return append(dst, '}')
}

func (r reducer) list(dst, array []byte, depth int) []byte {
	begin := len(dst)
	for _, v := range jsonscan.Elements(array) {
		dst = append(dst, "[,"[min(len(dst)-begin, 1)])
		dst = r.schema(dst, v, depth+1)
	}
	if len(dst) == begin {
		dst = append(dst, '[')
	}
	return append(dst, ']')
}
