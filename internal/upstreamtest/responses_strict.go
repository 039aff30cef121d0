package upstreamtest

import (
	"net/http"
	"slices"
)

// check refuses what the Responses API refuses. Its members are those of the
// official API description, and client_metadata, which OpenAI's Codex sends.
func (d *responsesDialect) check(_ http.Header, n node) {
	openAIStream(n)
	switch format := n.get("text").get("format"); format.get("type").text() {
	case "json_schema":
		formatSchema(format)
	case "json_object":
		if !mentions(n.get("input").value, "json") && !mentions(n.get("instructions").value, "json") {
			n.get("input").refuse("", "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.")
		}
	}
	responsesChoice(n.get("tool_choice"), responsesTools(n.get("tools")))
	d.input(n)
}

// responsesTool is what a choice can name.
type responsesTool struct{ kind, name string }

func responsesTools(n node) []responsesTool {
	var tools []responsesTool
	var names []string
	for _, t := range n.list() {
		kind, name := t.get("type").text(), ""
		if kind == "function" || kind == "custom" {
			name = toolName(t.get("name"), names)
			names = append(names, name)
		}
		if kind == "function" {
			functionSchema(t)
		}
		tools = append(tools, responsesTool{kind, name})
	}
	return tools
}

func responsesChoice(n node, tools []responsesTool) {
	if n.is("required") && len(tools) == 0 {
		n.refuse("", "Tool choice 'required' must be specified with 'tools' parameter.")
	}
	chosen := []node{n}
	if n.get("type").is("allowed_tools") {
		chosen = n.get("tools").list()
	}
	for _, t := range chosen {
		kind, name := t.get("type").text(), t.get("name").text()
		if (kind == "function" || kind == "custom") && !slices.Contains(tools, responsesTool{kind, name}) {
			t.refuse("", "Tool choice '%s' not found in 'tools' parameter.", name)
		}
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
	items := input.list()
	if _, is := input.value.([]any); !is {
		return
	}
	if len(items) == 0 && !previous.found {
		input.refuse("empty_array", "Invalid 'input': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	store := n.get("store")
	stores := !store.found || store.boolean()
	for _, it := range items {
		switch id := it.get("id").text(); responsesType(it) {
		case "reasoning":
			d.reasoned(it, stores)
		case "item_reference":
			if !d.issued[id].stored {
				responsesLost(it, id, stores)
			}
		}
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

// responsesLost refuses an item that was not stored.
func responsesLost(it node, id string, stores bool) {
	if stores {
		it.reject(refusal{message: "Item with id '" + id + "' not found.", param: "input"})
		return
	}
	it.reject(refusal{message: "Item with id '" + id + "' not found. Items are not persisted when `store` is set to false. " +
		"Try again with `store` set to true, or remove this item from your input.", param: "input"})
}

// reasoned refuses reasoning that was not sent like this. Called with mu held.
func (d *responsesDialect) reasoned(it node, stores bool) {
	var summary []string
	for _, part := range it.get("summary").list() {
		summary = append(summary, part.get("text").text())
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
