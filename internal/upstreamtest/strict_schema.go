package upstreamtest

import "slices"

// schemaRules are what a provider demands of the schema of a tool's arguments. All of them take
// draft 2020-12, in which the items of a tuple are prefixItems.
type schemaRules struct {
	properties bool     // the top has properties
	items      bool     // arrays have items
	bounds     bool     // exclusive bounds are numbers
	top        []string // keywords that the top must not have
}

// schemaRulesOf returns the rules by the name of a dialect.
func schemaRulesOf(name string) schemaRules {
	switch name {
	case "chat":
		return schemaRules{properties: true, items: true, top: []string{"anyOf", "oneOf", "allOf", "not", "enum"}}
	case "responses":
		return schemaRules{properties: true, items: true, bounds: true, top: []string{"anyOf", "oneOf", "allOf", "not", "enum"}}
	case "anthropic":
		return schemaRules{bounds: true, top: []string{"anyOf", "oneOf", "allOf"}}
	}
	return schemaRules{top: []string{"anyOf", "oneOf", "allOf"}} // bedrock
}

// fault returns what the provider refuses about the schema of a tool's arguments; "" = nothing.
func (r schemaRules) fault(schema object) string {
	for _, name := range r.top {
		if schema[name] != nil {
			return "schema must have type 'object' and not have '" + name + "' at the top level"
		}
	}
	if _, is := schema["properties"].(object); r.properties && !is {
		return "In context=(), object schema missing properties."
	}
	return r.within(schema, "()")
}

// within is fault for a schema in another one.
func (r schemaRules) within(v any, context string) string {
	o, _ := v.(object)
	if o == nil {
		return ""
	}
	_, isTuple := o["items"].([]any)
	switch _, isObject := o["properties"].(object); {
	case o["properties"] != nil && !isObject:
		return "In context=" + context + ", properties is not of type 'object'"
	case isTuple:
		return "In context=" + context + ", items is not of type 'object', 'boolean'; JSON schema is invalid, it must match draft 2020-12"
	case r.items && o["type"] == "array" && o["items"] == nil:
		return "In context=" + context + ", array schema missing items."
	}
	for _, name := range []string{"exclusiveMinimum", "exclusiveMaximum"} {
		if _, isFlag := o[name].(bool); isFlag && r.bounds {
			return "In context=" + context + ", " + name + " is not of type 'number'; JSON schema is invalid, it must match draft 2020-12"
		}
	}
	for _, name := range sortedKeys(o) {
		if why := r.inside(name, o[name], context+"."+name); why != "" {
			return why
		}
	}
	return ""
}

// inside is within for the value of a keyword.
func (r schemaRules) inside(keyword string, v any, context string) string {
	switch of := v.(type) {
	case []any:
		if slices.Contains([]string{"anyOf", "oneOf", "allOf", "prefixItems"}, keyword) {
			for _, e := range of {
				if why := r.within(e, context); why != "" {
					return why
				}
			}
		}
	case object:
		switch keyword {
		case "items", "not", "additionalProperties", "contains":
			return r.within(of, context)
		case "properties", "$defs", "definitions", "patternProperties":
			for _, name := range sortedKeys(of) {
				if why := r.within(of[name], context+"."+name); why != "" {
					return why
				}
			}
		}
	}
	return ""
}
