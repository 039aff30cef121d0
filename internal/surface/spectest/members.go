package spectest

import (
	"maps"
	"slices"
	"strings"
)

// membersOf are the schemas and paths of a document, as they are written.
type membersOf struct {
	schemas map[string]map[string]any
	paths   map[string]map[string]any
}

// Members returns the names of what the document of OpenAI has in the API, by what they are. They
// are sorted.
func (d *Documents) Members() map[string][]string {
	n := d.openAI.names
	const item = "item_reference" // of InputItem, whose type is optional
	return map[string][]string{
		"members of a request":              n.properties("CreateResponse"),
		"members of a response":             n.properties("Response"),
		"members of a compaction's request": n.properties("CompactResponseMethodPublicBody"),
		"members of a new conversation":     n.properties("CreateConversationBody"),
		"parameters of a stored response":   n.parameters("/responses/{response_id}"),
		"parameters of a list of items":     n.parameters("/responses/{response_id}/input_items"),
		"types of input items":              once(append(n.types("InputItem"), item)),
		"types of tools":                    once(n.types("Tool")),
		"events":                            once(n.types("ResponseStreamEvent")),
	}
}

func once(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// properties returns the members of an object, with those of the schemas that it consists of.
func (n membersOf) properties(name string) []string {
	all := map[string]bool{}
	var walk func(schema map[string]any)
	walk = func(schema map[string]any) {
		schema = n.resolved(schema)
		members, _ := schema["properties"].(map[string]any)
		for name := range members {
			all[name] = true
		}
		for _, part := range parts(schema, "allOf") {
			walk(part)
		}
	}
	walk(n.schemas[name])
	return slices.Sorted(maps.Keys(all))
}

// types returns what the member type can be in a union.
func (n membersOf) types(name string) (list []string) {
	var walk func(schema map[string]any)
	walk = func(schema map[string]any) {
		schema = n.resolved(schema)
		for _, part := range parts(schema, "oneOf", "anyOf", "allOf") {
			walk(part)
		}
		members, _ := schema["properties"].(map[string]any)
		kind, _ := members["type"].(map[string]any)
		values, _ := kind["enum"].([]any)
		for _, v := range append(values, kind["const"]) {
			if text, is := v.(string); is {
				list = append(list, text)
			}
		}
	}
	walk(n.schemas[name])
	return list
}

// parameters returns the parameters of the query of GET.
func (n membersOf) parameters(path string) (list []string) {
	get, _ := n.paths[path]["get"].(map[string]any)
	for _, p := range parts(get, "parameters") {
		if name, _ := p["name"].(string); p["in"] == "query" {
			list = append(list, name)
		}
	}
	return slices.Sorted(slices.Values(list))
}

func (n membersOf) resolved(schema map[string]any) map[string]any {
	for {
		ref, is := schema["$ref"].(string)
		if !is {
			return schema
		}
		schema = n.schemas[ref[strings.LastIndexByte(ref, '/')+1:]]
	}
}

// parts returns the objects in lists of an object.
func parts(object map[string]any, lists ...string) (all []map[string]any) {
	for _, name := range lists {
		list, _ := object[name].([]any)
		for _, v := range list {
			if part, is := v.(map[string]any); is {
				all = append(all, part)
			}
		}
	}
	return all
}
