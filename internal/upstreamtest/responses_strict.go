package upstreamtest

import (
	"net/http"
	"slices"
	"strings"
)

// check refuses what the Responses API refuses. Its members are those of the
// official API description, and client_metadata, which OpenAI's Codex sends.
func (d *responsesDialect) check(_ http.Header, n node) {
	n.known("background", "client_metadata", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens",
		"max_tool_calls", "metadata", "model", "moderation", "parallel_tool_calls", "previous_response_id", "prompt",
		"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier",
		"store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
		"truncation", "user")
	openAISampling(n)
	if !n.get("prompt").found {
		n.need("model")
	}
	n.get("model").text()
	n.get("instructions").text()
	n.get("background").boolean()
	n.get("max_output_tokens").integer(16)
	n.get("max_tool_calls").integer(1)
	n.get("truncation").oneOf("auto", "disabled")
	n.get("user").text()
	for _, i := range n.get("include").list() {
		i.oneOf("file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
			"message.input_image.image_url", "computer_call_output.output.image_url", "code_interpreter_call.outputs",
			"reasoning.encrypted_content", "message.output_text.logprobs")
	}
	options := n.get("stream_options")
	options.known("include_obfuscation")
	if options.found && !n.get("stream").boolean() {
		options.refuse("", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	reasoning := n.get("reasoning")
	reasoning.object()
	reasoning.known("effort", "summary", "generate_summary", "mode", "context")
	reasoning.get("effort").oneOf("none", "minimal", "low", "medium", "high", "xhigh", "max")
	reasoning.get("summary").oneOf("auto", "concise", "detailed")
	responsesText(n)
	responsesChoice(n.get("tool_choice"), responsesTools(n.get("tools")))
	d.input(n)
}

func responsesText(n node) {
	text := n.get("text")
	text.object()
	text.known("format", "verbosity")
	text.get("verbosity").oneOf("low", "medium", "high")
	format := text.get("format")
	if !format.found {
		return
	}
	format.object()
	switch format.need("type").oneOf("text", "json_object", "json_schema") {
	case "json_schema":
		format.known("type", "name", "description", "schema", "strict")
		format.need("schema")
		formatSchema(format)
	case "json_object":
		format.known("type")
		if !mentions(n.get("input").value, "json") && !mentions(n.get("instructions").value, "json") {
			n.get("input").refuse("", "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.")
		}
	}
}

// responsesTool is what a choice can name.
type responsesTool struct{ kind, name string }

func responsesTools(n node) []responsesTool {
	var tools []responsesTool
	var names []string
	for _, t := range n.list() {
		t.object()
		kind := t.need("type").oneOf("function", "custom", "file_search", "computer", "computer_use_preview", "web_search",
			"web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "mcp", "code_interpreter",
			"programmatic_tool_calling", "image_generation", "local_shell", "shell", "namespace", "tool_search", "apply_patch")
		name := ""
		switch kind {
		case "function":
			name = toolName(t.need("name"), names)
			t.known("type", "name", "description", "parameters", "strict", "output_schema", "defer_loading", "allowed_callers")
			functionSchema(t, name, schemaRulesOf("responses"))
		case "custom":
			name = toolName(t.need("name"), names)
		case "mcp":
			t.need("server_label").text()
		}
		if name != "" {
			names = append(names, name)
		}
		tools = append(tools, responsesTool{kind, name})
	}
	return tools
}

func responsesChoice(n node, tools []responsesTool) {
	if mode, ok := n.value.(string); ok || !n.found {
		n.oneOf("none", "auto", "required")
		if mode == "required" && len(tools) == 0 {
			n.refuse("", "Tool choice 'required' must be specified with 'tools' parameter.")
		}
		return
	}
	n.object()
	kind := n.need("type").oneOf("function", "custom", "allowed_tools", "mcp", "file_search", "web_search_preview",
		"web_search_preview_2025_03_11", "computer", "computer_use", "computer_use_preview", "code_interpreter",
		"image_generation", "programmatic_tool_calling", "apply_patch", "shell")
	switch kind {
	case "function", "custom":
		n.known("type", "name")
		responsesChosen(n, kind, n.need("name").text(), tools)
	case "allowed_tools":
		n.known("type", "mode", "tools")
		n.need("mode").oneOf("auto", "required")
		for _, t := range n.need("tools").list() {
			if kind := t.need("type").text(); kind == "function" || kind == "custom" {
				responsesChosen(t, kind, t.need("name").text(), tools)
			}
		}
	}
}

func responsesChosen(n node, kind, name string, tools []responsesTool) {
	if !slices.Contains(tools, responsesTool{kind, name}) {
		n.refuse("", "Tool choice '%s' not found in 'tools' parameter.", name)
	}
}

// input checks the items, together with those of the response that they continue.
func (d *responsesDialect) input(n node) {
	input, previous := n.get("input"), n.get("previous_response_id")
	if !input.found && !previous.found && !n.get("prompt").found && !n.get("conversation").found {
		n.refuse("missing_required_parameter", "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := previous.text()
	before, known := d.stored[id]
	if previous.found && !known {
		previous.refuse("previous_response_not_found", "Previous response with id '%s' not found.", id)
	}
	if _, ok := input.value.(string); ok || !input.found {
		return
	}
	items := input.list()
	if len(items) == 0 && !previous.found {
		input.reject(input.style.empty("input"))
	}
	store := n.get("store")
	stores := !store.found || store.boolean()
	for _, it := range items {
		d.item(it, stores)
	}
	d.reasoning(items)
	responsesPaired(input, before, items, d.issued)
}

func responsesType(it node) string {
	if kind := it.get("type").text(); kind != "" {
		return kind
	}
	if it.get("role").found {
		return "message"
	}
	return "item_reference"
}

func (d *responsesDialect) item(it node, stores bool) {
	it.object()
	switch kind := responsesType(it); kind {
	case "message":
		responsesMessage(it)
	case "function_call":
		it.known("type", "id", "call_id", "name", "namespace", "arguments", "status", "caller")
		responsesID(it, "fc")
		it.need("call_id").text()
		it.need("name").text()
		it.need("arguments").text()
		responsesStatus(it)
	case "function_call_output":
		it.known("type", "id", "call_id", "output", "status", "name", "namespace", "caller")
		it.need("call_id").text()
		responsesStatus(it)
		responsesOutput(it.need("output"))
	case "reasoning":
		d.reasoned(it, stores)
	case "item_reference":
		it.known("type", "id")
		id := it.need("id").text()
		if !d.issued[id].stored {
			responsesLost(it, id, stores)
		}
	default:
		it.get("type").oneOf("message", "file_search_call", "computer_call", "computer_call_output", "web_search_call",
			"function_call", "function_call_output", "tool_search_call", "tool_search_output", "additional_tools", "reasoning",
			"compaction", "compaction_trigger", "image_generation_call", "code_interpreter_call", "local_shell_call",
			"local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
			"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call", "custom_tool_call_output",
			"custom_tool_call", "program", "program_output", "item_reference")
	}
}

// responsesLost refuses an item that was not stored.
func responsesLost(it node, id string, stores bool) {
	if stores {
		it.reject(refusal{message: "Item with id '" + id + "' not found.", param: "input"})
		return
	}
	it.reject(refusal{message: "Item with id '" + id + "' not found. Items are not persisted when `store` is set to false. " +
		"Try again with `store` set to true, or remove this item from your input.", param: "input"})
}

// responsesID checks the prefix of an id.
func responsesID(it node, prefix string) {
	if id := it.get("id"); id.found && !strings.HasPrefix(id.text(), prefix) {
		id.refuse("invalid_value", "Invalid '%s': '%s'. Expected an ID that begins with '%s'.", id.path, id.text(), prefix)
	}
}

func responsesStatus(it node) { it.get("status").oneOf("in_progress", "completed", "incomplete") }

func responsesMessage(it node) {
	it.known("type", "role", "content", "id", "status", "phase")
	role := it.need("role").oneOf("user", "assistant", "system", "developer")
	responsesID(it, "msg")
	responsesStatus(it)
	content := it.need("content")
	if _, ok := content.value.(string); ok || !content.found {
		return
	}
	for _, p := range content.list() {
		p.object()
		if role != "assistant" {
			responsesPart(p, "input_text", "input_image", "input_file")
			continue
		}
		switch p.need("type").oneOf("output_text", "refusal") {
		case "output_text":
			p.known("type", "text", "annotations", "logprobs")
			p.need("text").text()
		case "refusal":
			p.known("type", "refusal")
			p.need("refusal").text()
		}
	}
}

func responsesPart(p node, kinds ...string) {
	switch p.need("type").oneOf(kinds...) {
	case "input_text":
		p.known("type", "text", "prompt_cache_breakpoint")
		p.need("text").text()
	case "input_image":
		p.known("type", "detail", "image_url", "file_id", "prompt_cache_breakpoint")
		p.get("detail").oneOf("low", "high", "auto", "original")
		if !p.get("image_url").found && !p.get("file_id").found {
			p.reject(p.style.missing(p.style.child(p.path, "image_url")))
		}
		openAIImage(p.get("image_url"))
	case "input_file":
		p.known("type", "file_id", "filename", "file_data", "file_url", "detail", "prompt_cache_breakpoint")
		openAIFile(p)
	}
}

// responsesOutput checks the result of a call: a text, or parts.
func responsesOutput(n node) {
	if _, ok := n.value.(string); ok || !n.found {
		return
	}
	for _, p := range n.list() {
		p.object()
		responsesPart(p, "input_text", "input_image", "input_file")
	}
}

// reasoned refuses reasoning that was not sent like this. Called with mu held.
func (d *responsesDialect) reasoned(it node, stores bool) {
	it.known("type", "id", "summary", "content", "encrypted_content", "status")
	responsesID(it, "rs")
	responsesStatus(it)
	var summary []string
	for _, part := range it.need("summary").list() {
		part.need("type").oneOf("summary_text")
		summary = append(summary, part.need("text").text())
	}
	id, content := it.get("id").text(), it.get("encrypted_content")
	if !content.found {
		if sent := d.issued[id]; !sent.stored || !stores {
			responsesLost(it, id, stores)
		}
		return
	}
	sealed, known := d.sealed[content.text()]
	var sent []string
	if known {
		for _, part := range d.issued[sealed].item["summary"].([]object) {
			sent = append(sent, part["text"].(string))
		}
	}
	if !known || id != "" && id != sealed || !slices.Equal(sent, summary) {
		it.refuse("invalid_encrypted_content", "The encrypted content for item %s could not be verified. Reason: Encrypted content could not be decrypted or parsed.", id)
	}
}

// reasoning checks that reasoning stands before the item that it led to, and that
// items that were sent with reasoning are not sent back without it. An item is
// known by its id. Called with mu held.
func (d *responsesDialect) reasoning(items []node) {
	for i, it := range items {
		kind, id := responsesType(it), it.get("id").text()
		if kind == "reasoning" {
			if id == "" {
				id = d.sealed[it.get("encrypted_content").text()]
			}
			if i+1 == len(items) || !follows(d.issued[id].after, items[i+1]) {
				it.reject(refusal{message: "Item '" + id + "' of type 'reasoning' was provided without its required following item.", param: "input"})
			}
			continue
		}
		if before := d.issued[id].before; before != nil && before["type"] == "reasoning" && kind != "item_reference" {
			if i == 0 || !isReasoning(items[i-1], before) {
				it.reject(refusal{message: "Item '" + id + "' of type '" + kind + "' was provided without its required 'reasoning' item: '" + before["id"].(string) + "'.", param: "input"})
			}
		}
	}
}

// follows reports whether an item is the one that followed reasoning when it was
// sent; nil = any item of a model may.
func follows(sent object, it node) bool {
	kind := responsesType(it)
	if sent == nil {
		return kind != "function_call_output" && (kind != "message" || it.get("role").value == "assistant")
	}
	return kind == "item_reference" && it.get("id").value == sent["id"] ||
		kind == sent["type"] && (kind != "function_call" || it.get("call_id").value == sent["call_id"])
}

func isReasoning(it node, sent object) bool {
	if it.get("id").found {
		return it.get("id").value == sent["id"]
	}
	return it.get("encrypted_content").found && it.get("encrypted_content").value == sent["encrypted_content"]
}

// responsesPaired checks that every call has its output and the other way round.
// before are the items of the response that the request continues.
func responsesPaired(input node, before []any, items []node, issued map[string]issuedItem) {
	called, answered := map[string]bool{}, map[string]bool{}
	var order []string
	take := func(o object, refuse func(string)) {
		id, _ := o["call_id"].(string)
		switch o["type"] {
		case "function_call":
			order = append(order, id)
			called[id] = true
		case "function_call_output":
			if !called[id] {
				refuse(id)
			}
			answered[id] = true
		}
	}
	for _, v := range before {
		o, _ := v.(object)
		take(o, func(string) {})
	}
	for _, it := range items {
		o, _ := it.value.(object)
		if responsesType(it) == "item_reference" {
			o = issued[it.get("id").text()].item
		}
		take(o, func(id string) {
			it.reject(refusal{message: "No tool call found for function call output with call_id " + id + ".", param: "input"})
		})
	}
	for _, id := range order {
		if !answered[id] {
			input.refuse("", "No tool output found for function call %s.", id)
		}
	}
}
