package upstreamtest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// check refuses what OpenAI's Chat Completions API refuses. Its members are those
// of the official API description; reasoning_content, which the Upstream sends
// itself, is accepted on messages of the assistant, and so are annotations, which
// clients send back with them.
func (chatDialect) check(_ http.Header, n node) {
	openAIStream(n)
	var tools []string
	for _, t := range n.get("tools").list() {
		f := t.get(t.get("type").text())
		if t.get("type").is("function") {
			functionSchema(f)
		}
		tools = append(tools, toolName(f.get("name"), tools))
	}
	chatChoice(n, tools)
	switch format := n.get("response_format"); format.get("type").text() {
	case "json_schema":
		formatSchema(format.get("json_schema"))
	case "json_object":
		if !mentions(n.get("messages").value, "json") {
			n.get("messages").refuse("", "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.")
		}
	}
	chatMessages(n.get("messages").list())
}

func openAIStream(n node) {
	if options := n.get("stream_options"); options.found && !n.get("stream").boolean() {
		options.refuse("", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
}

const badSchema = "invalid_function_parameters"

// functionSchema checks the parameters of a function.
func functionSchema(f node) {
	parameters := f.get("parameters")
	schema, _ := parameters.value.(object)
	if kind, given := schema["type"]; given && kind == nil {
		parameters.refuse(badSchema, "Invalid schema for function '%s': its type is null", f.get("name").text())
	}
	if !f.get("strict").boolean() {
		return
	}
	if why := strictSchema(parameters.value, nil); why != "" {
		parameters.refuse(badSchema, "Invalid schema for function '%s': %s", f.get("name").text(), why)
	}
}

// toolName checks the name of a tool against those before it.
func toolName(n node, before []string) string {
	name := n.text()
	if slices.Contains(before, name) {
		n.refuse("invalid_value", "Invalid value: '%s'. Tool names must be unique.", name)
	}
	return name
}

func chatChoice(n node, tools []string) {
	choice := n.get("tool_choice")
	if len(tools) == 0 {
		for _, m := range []node{choice, n.get("parallel_tool_calls")} {
			if m.found {
				m.refuse("", "'%s' is only allowed when 'tools' are specified.", m.path)
			}
		}
		return
	}
	chosen := []node{choice}
	if choice.text() != "" || !choice.found {
		return
	}
	if choice.get("type").is("allowed_tools") {
		chosen = choice.get("allowed_tools").get("tools").list()
	}
	for _, t := range chosen {
		if name := t.get(t.get("type").text()).get("name"); !slices.Contains(tools, name.text()) {
			name.refuse("invalid_value", "Invalid value for 'tool_choice': the tool '%s' is not found in the 'tools' parameter.", name.text())
		}
	}
}

// formatSchema checks the schema of an answer that must follow it exactly.
func formatSchema(n node) {
	if !n.get("strict").boolean() {
		return
	}
	schema := n.get("schema")
	if why := strictSchema(schema.value, nil); why != "" {
		schema.refuse("", "Invalid schema for response_format '%s': %s", n.get("name").text(), why)
	}
}

// chatMessages checks that every call is answered at once.
func chatMessages(messages []node) {
	var open []string // calls that have no answer yet
	calls := false    // the last message that is not an answer made calls
	for _, m := range messages {
		role := m.get("role").text()
		if role != "tool" {
			unanswered(m, open)
			open = nil
			for _, c := range m.get("tool_calls").list() {
				open = append(open, c.get("id").text())
			}
			calls = len(open) > 0
			continue
		}
		id := m.get("tool_call_id").text()
		at := slices.Index(open, id)
		switch {
		case !calls:
			m.refuse("", "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
		case at < 0:
			m.refuse("", "Invalid parameter: 'tool_call_id' of '%s' not found in 'tool_calls' of previous message.", id)
		default:
			open = slices.Delete(open, at, at+1)
		}
	}
	unanswered(messages[len(messages)-1], open)
}

func unanswered(m node, open []string) {
	if len(open) > 0 {
		m.refuse("", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "+
			"The following tool_call_ids did not have response messages: %s", strings.Join(open, ", "))
	}
}

// strictSchema returns what OpenAI refuses about a schema that must be followed
// exactly: every object lists all of its properties as required and allows no
// others. "" = nothing.
func strictSchema(v any, context []string) string {
	o, _ := v.(object)
	if o == nil {
		return ""
	}
	if properties, isObject := o["properties"].(object); isObject || o["type"] == "object" {
		where := "In context=(" + strings.Join(context, ", ") + "), "
		if o["additionalProperties"] != false {
			return where + "'additionalProperties' is required to be supplied and to be false."
		}
		required, _ := o["required"].([]any)
		for _, name := range sortedKeys(properties) {
			if !slices.Contains(required, any(name)) {
				return where + "'required' is required to be supplied and to be an array including every key in properties. Missing '" + name + "'."
			}
			if why := strictSchema(properties[name], append(slices.Clone(context), "'properties'", "'"+name+"'")); why != "" {
				return why
			}
		}
	}
	if why := strictSchema(o["items"], append(slices.Clone(context), "'items'")); why != "" {
		return why
	}
	for _, name := range []string{"anyOf", "$defs"} {
		inner := append(slices.Clone(context), "'"+name+"'")
		switch of := o[name].(type) {
		case []any:
			for i, e := range of {
				if why := strictSchema(e, append(inner, "'"+strconv.Itoa(i)+"'")); why != "" {
					return why
				}
			}
		case object:
			for _, key := range sortedKeys(of) {
				if why := strictSchema(of[key], append(inner, "'"+key+"'")); why != "" {
					return why
				}
			}
		}
	}
	return ""
}
