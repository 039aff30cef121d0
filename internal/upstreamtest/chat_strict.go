package upstreamtest

import (
	"math"
	"net/http"
	"slices"
	"strings"
)

// check refuses what OpenAI's Chat Completions API refuses. Its members are those
// of the official API description; reasoning_content, which the Upstream sends
// itself, is accepted on messages of the assistant, and so are annotations, which
// clients send back with them.
func (chatDialect) check(_ http.Header, n node) {
	n.known("messages", "model", "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
		"max_completion_tokens", "max_tokens", "metadata", "modalities", "moderation", "n", "parallel_tool_calls", "prediction",
		"presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort",
		"response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options",
		"temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options")
	n.need("model").text()
	chatSampling(n)
	tools := chatTools(n)
	chatChoice(n, tools)
	chatFormat(n)
	messages := n.need("messages").list()
	if n.get("messages").found && len(messages) == 0 {
		n.reject(n.style.empty("messages"))
	}
	chatMessages(messages)
}

func chatSampling(n node) {
	openAISampling(n)
	n.get("frequency_penalty").between(-2, 2)
	n.get("presence_penalty").between(-2, 2)
	n.get("n").integer(1)
	n.get("seed").integer(math.MinInt64)
	n.get("user").text()
	n.get("logprobs").boolean()
	n.get("logit_bias").object()
	n.get("max_tokens").integer(1)
	n.get("max_completion_tokens").integer(1)
	n.get("reasoning_effort").oneOf("none", "minimal", "low", "medium", "high", "xhigh", "max")
	n.get("verbosity").oneOf("low", "medium", "high")
	if n.get("max_tokens").found && n.get("max_completion_tokens").found {
		n.refuse("invalid_parameter_combination", "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	}
	if stop := n.get("stop"); stop.found {
		if _, one := stop.value.(string); !one && len(stop.strings()) > 4 {
			stop.refuse("array_above_max_length", "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length %d instead.", len(stop.list()))
		}
	}
	options := n.get("stream_options")
	options.known("include_usage", "include_obfuscation")
	options.get("include_usage").boolean()
	if options.found && !n.get("stream").boolean() {
		options.refuse("", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
}

// openAISampling checks what Chat Completions and Responses share.
func openAISampling(n node) {
	n.get("temperature").between(0, 2)
	n.get("top_p").between(0, 1)
	n.get("top_logprobs").between(0, 20)
	n.get("stream").boolean()
	n.get("store").boolean()
	n.get("parallel_tool_calls").boolean()
	n.get("metadata").stringMap()
	n.get("service_tier").text()
	n.get("safety_identifier").text()
}

// chatTools returns the names of the tools.
func chatTools(n node) []string {
	tools := n.get("tools")
	var names []string
	for _, t := range tools.list() {
		t.object()
		kind := t.need("type").oneOf("function", "custom")
		t.known("type", kind)
		f := t.need(kind)
		if kind == "function" {
			f.known("name", "description", "parameters", "strict")
			functionSchema(f, f.get("name").text(), schemaRulesOf("chat"))
		}
		names = append(names, toolName(f.need("name"), names))
	}
	if tools.found && len(names) == 0 {
		n.reject(n.style.empty(tools.path))
	}
	return names
}

// functionSchema checks the description and parameters of a function.
func functionSchema(f node, name string, rules schemaRules) {
	f.get("description").text()
	parameters := f.get("parameters")
	schema, _ := typed[object](parameters, "object")
	if !parameters.found {
		return
	}
	if kind, ok := schema["type"]; ok && kind != "object" {
		parameters.refuse("invalid_function_parameters", "Invalid schema for function '%s': schema must be a JSON Schema of 'type: \"object\"', got 'type: %q'.", name, kind)
	}
	if why := rules.fault(schema); why != "" {
		parameters.refuse("invalid_function_parameters", "Invalid schema for function '%s': %s", name, why)
	}
	if f.get("strict").boolean() {
		if why := strictSchema(schema, nil); why != "" {
			parameters.refuse("invalid_function_parameters", "Invalid schema for function '%s': %s", name, why)
		}
	}
}

// toolName checks the name of a tool against those before it.
func toolName(n node, before []string) string {
	name := n.named(64)
	if slices.Contains(before, name) {
		n.refuse("invalid_value", "Invalid value: '%s'. Tool names must be unique.", name)
	}
	return name
}

func chatChoice(n node, tools []string) {
	if len(tools) == 0 {
		for _, name := range []string{"tool_choice", "parallel_tool_calls"} {
			if m := n.get(name); m.found {
				m.refuse("", "'%s' is only allowed when 'tools' are specified.", name)
			}
		}
		return
	}
	choice := n.get("tool_choice")
	if _, ok := choice.value.(string); ok || !choice.found {
		choice.oneOf("none", "auto", "required")
		return
	}
	choice.object()
	kind := choice.need("type").oneOf("function", "custom", "allowed_tools")
	choice.known("type", kind)
	if kind != "allowed_tools" {
		choiceNames(choice.need(kind).need("name"), tools)
		return
	}
	allowed := choice.need(kind)
	allowed.known("mode", "tools")
	allowed.need("mode").oneOf("auto", "required")
	for _, t := range allowed.need("tools").list() {
		choiceNames(t.need(t.need("type").text()).need("name"), tools)
	}
}

// choiceNames refuses a choice of a tool that is not offered.
func choiceNames(n node, tools []string) {
	if name := n.text(); n.found && !slices.Contains(tools, name) {
		n.refuse("invalid_value", "Invalid value for 'tool_choice': the tool '%s' is not found in the 'tools' parameter.", name)
	}
}

func chatFormat(n node) {
	format := n.get("response_format")
	if !format.found {
		return
	}
	format.object()
	switch format.need("type").oneOf("text", "json_object", "json_schema") {
	case "json_schema":
		schema := format.need("json_schema")
		schema.object()
		schema.known("name", "description", "schema", "strict")
		formatSchema(schema)
	case "json_object":
		if !mentions(n.get("messages").value, "json") {
			n.get("messages").refuse("", "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.")
		}
	}
}

// formatSchema checks the description of a structured answer.
func formatSchema(n node) {
	name := n.need("name").named(64)
	n.get("description").text()
	schema := n.get("schema")
	schema.object()
	if n.get("strict").boolean() {
		if why := strictSchema(schema.value, nil); why != "" {
			schema.refuse("", "Invalid schema for response_format '%s': %s", name, why)
		}
	}
}

// chatMessages checks messages and that every call is answered at once.
func chatMessages(messages []node) {
	var open []string // calls that have no answer yet
	calls := false    // the last message that is not an answer made calls
	for _, m := range messages {
		m.object()
		role := m.need("role").oneOf("system", "developer", "user", "assistant", "tool", "function")
		if role != "tool" {
			unanswered(m, open)
			open, calls = nil, false
		}
		switch role {
		case "assistant":
			open = chatAssistant(m)
			calls = len(open) > 0
		case "tool":
			m.known("role", "content", "tool_call_id")
			chatContent(m.need("content"), role)
			id := m.need("tool_call_id").text()
			at := slices.Index(open, id)
			switch {
			case !calls:
				m.refuse("", "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
			case at < 0:
				m.refuse("", "Invalid parameter: 'tool_call_id' of '%s' not found in 'tool_calls' of previous message.", id)
			default:
				open = slices.Delete(open, at, at+1)
			}
		default:
			m.known("role", "content", "name")
			chatContent(m.need("content"), role)
			m.get("name").named(64)
		}
	}
	if len(messages) > 0 {
		unanswered(messages[len(messages)-1], open)
	}
}

func unanswered(m node, open []string) {
	if len(open) > 0 {
		m.refuse("", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "+
			"The following tool_call_ids did not have response messages: %s", strings.Join(open, ", "))
	}
}

// chatAssistant returns the ids of the message's calls.
func chatAssistant(m node) []string {
	m.known("role", "content", "name", "refusal", "annotations", "audio", "tool_calls", "function_call", "reasoning_content")
	m.get("refusal").text()
	m.get("reasoning_content").text()
	content, calls := m.get("content"), m.get("tool_calls")
	if !content.found && !calls.found && !m.get("function_call").found && !m.get("refusal").found && !m.get("audio").found {
		content.refuse("", "Invalid value for 'content': expected a string, got null.")
	}
	chatContent(content, "assistant")
	var ids []string
	for _, c := range calls.list() {
		c.object()
		c.known("id", "type", "function", "custom")
		id := c.need("id")
		if s := id.text(); len(s) > 40 {
			id.reject(id.style.tooLong(id.path, 40, len(s)))
		}
		if c.need("type").oneOf("function", "custom") == "function" {
			f := c.need("function")
			f.known("name", "arguments")
			f.need("name").named(64)
			f.need("arguments").text()
		}
		ids = append(ids, id.text())
	}
	if calls.found && len(ids) == 0 {
		calls.reject(calls.style.empty(calls.path))
	}
	return ids
}

// chatContent checks content: a text or parts. Only users send other than text.
func chatContent(n node, role string) {
	if _, ok := n.value.(string); ok || !n.found {
		return
	}
	parts := n.list()
	if len(parts) == 0 {
		n.reject(n.style.empty(n.path))
	}
	for _, p := range parts {
		p.object()
		switch kind := p.need("type").text(); {
		case kind == "text":
			p.known("type", "text", "prompt_cache_breakpoint")
			p.need("text").text()
		case kind == "refusal" && role == "assistant":
			p.need("refusal").text()
		case kind == "image_url" && role != "user":
			p.refuse("", "Invalid '%s'. Image URLs are only allowed for messages with role 'user', but this message with role '%s' contains an image URL.", p.path, role)
		case role != "user":
			p.get("type").oneOf("text")
		default:
			chatPart(p, kind)
		}
	}
}

func chatPart(p node, kind string) {
	p.get("type").oneOf("text", "image_url", "input_audio", "file")
	p.known("type", kind, "prompt_cache_breakpoint")
	switch kind {
	case "image_url":
		image := p.need("image_url")
		image.object()
		image.known("url", "detail")
		image.get("detail").oneOf("auto", "low", "high")
		openAIImage(image.need("url"))
	case "input_audio":
		audio := p.need("input_audio")
		audio.known("data", "format")
		audio.need("format").oneOf("wav", "mp3")
		if data := audio.need("data"); data.found && !isBase64(data.text()) {
			data.refuse("invalid_value", "Invalid '%s': it is not base64.", data.path)
		}
	case "file":
		file := p.need("file")
		file.known("file_id", "file_data", "filename")
		openAIFile(file)
	}
}

// openAIImage checks the address of an image.
func openAIImage(url node) {
	s := url.text()
	if !url.found || strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") {
		return
	}
	media, data, ok := dataURL(s)
	switch {
	case !ok:
		url.refuse("invalid_image_url", "Invalid '%s': it is neither an http(s) URL nor a base64 data URL.", url.path)
	case !isImage(media):
		url.refuse("invalid_image_format", "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].")
	case !isBase64(data):
		url.refuse("invalid_base64", "Invalid base64 image_url in '%s'.", url.path)
	}
}

// openAIFile checks an object with file_id, or with file_data and filename.
func openAIFile(n node) {
	n.object()
	n.get("file_id").text()
	n.get("filename").text()
	data := n.get("file_data")
	switch {
	case !data.found && !n.get("file_id").found && !n.get("file_url").found:
		n.reject(n.style.missing(n.style.child(n.path, "file_id")))
	case data.found:
		if _, bytes, ok := dataURL(data.text()); !ok || !isBase64(bytes) {
			data.refuse("invalid_value", "Invalid '%s': expected a base64-encoded data URL with a MIME type.", data.path)
		}
	}
}
