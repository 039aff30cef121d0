package upstreamtest

import (
	"encoding/base64"
	"net/http"
	"slices"
)

// check refuses what Converse refuses, and then what the Messages API refuses of the
// request that Bedrock would make of it. The rules are those of the API's description and
// of the messages of its errors. The model is a Claude model of which everything is known
// that all have; rules that depend on the version are left out.
func (d *bedrockDialect) check(header http.Header, n node) {
	if header.Get("Content-Type") != "application/json" {
		n.refuse("", "Content-Type: must be application/json")
	}
	inference, config, own := n.get("inferenceConfig"), n.get("toolConfig"), n.get("additionalModelRequestFields")
	limit := inference.get("maxTokens").number(1 << 20) // that of the model
	forced := converseTools(config, own.get("tool_choice"))

	claude := node{n.dots, n.why, "", object{ // what the model gets
		"thinking": own.get("thinking").value, "top_k": own.get("top_k").value,
		"temperature": inference.get("temperature").value, "top_p": inference.get("topP").value,
	}, true}
	thinking := anthropicThinking(claude, limit, forced)
	c := converse{names: map[string]bool{}}
	messages, _ := decode(encode(c.messages(n.get("messages"))))
	if c.calls && !config.found {
		n.refuse("", "The toolConfig field must be defined when using toolUse and toolResult content blocks.")
	}
	if *n.why == nil {
		*n.why = rulesOf("messages").fault("messages", messages)
	}
	if *n.why == nil {
		d.claude.messages(node{n.dots, n.why, "messages", messages, true}, thinking)
	}
}

// converseTools reports whether the model must call a tool. own is a choice in the form of
// the model's own API.
func converseTools(config, own node) bool {
	var names []string
	for _, t := range config.get("tools").list() {
		spec := t.get("toolSpec")
		if !spec.found {
			continue
		}
		name := spec.get("name").text()
		if slices.Contains(names, name) {
			spec.refuse("", "The tool name %s is used more than once", name)
		}
		names = append(names, name)
	}
	choice := config.get("toolChoice")
	if name := choice.get("tool").get("name"); name.found && !slices.Contains(names, name.text()) {
		choice.refuse("", "Tool '%s' not found in provided tools", name.text())
	}
	if own.found && choice.found {
		own.refuse("", "The additional field tool_choice conflicts with an existing field.")
	}
	if own.found && !config.found {
		own.refuse("", "tool_choice: tool_choice may only be specified while providing tools")
	}
	if own.found {
		return anthropicChoice(own, names)
	}
	return choice.get("any").found || choice.get("tool").found
}

// converse makes the messages of a Converse request to those of the Messages API.
type converse struct {
	names map[string]bool // of documents
	calls bool            // there are calls or results
}

func (c *converse) messages(n node) []object {
	var out []object
	last := ""
	for _, m := range n.list() {
		role := m.get("role").text()
		if role == last {
			m.refuse("", "A conversation must alternate between user and assistant roles. "+
				"Make sure the conversation alternates between user and assistant roles and try again.")
		}
		last = role
		content := m.get("content")
		has := func(kind string) bool {
			return slices.ContainsFunc(content.list(), func(b node) bool { return b.get(kind).found })
		}
		if has("document") && !has("text") {
			m.refuse("", "%s: add a text block to the content field: a message with a document must have one", m.path)
		}
		out = append(out, object{"role": role, "content": c.blocks(content)})
	}
	return out
}

// blocks returns blocks as the Messages API has them, without those that it has not.
func (c *converse) blocks(n node) []object {
	blocks := []object{}
	for _, b := range n.list() {
		for kind := range b.value.(object) {
			if block := c.block(b.get(kind), kind); block != nil {
				blocks = append(blocks, block)
			}
		}
	}
	return blocks
}

func (c *converse) block(v node, kind string) object {
	c.calls = c.calls || kind == "toolUse" || kind == "toolResult"
	switch kind {
	case "text":
		return object{"type": "text", "text": v.value}
	case "guardContent":
		return object{"type": "text", "text": v.get("text").get("text").text()}
	case "json":
		return object{"type": "text", "text": string(encode(v.value))}
	case "image", "document":
		return c.media(v, kind)
	case "toolUse":
		if !v.get("type").found { // a tool that the provider ran itself is not looked into
			return object{"type": "tool_use", "id": v.get("toolUseId").text(), "name": v.get("name").text(), "input": v.get("input").value}
		}
	case "toolResult":
		if !v.get("type").found {
			return object{"type": "tool_result", "tool_use_id": v.get("toolUseId").text(), "content": c.blocks(v.get("content")),
				"is_error": v.get("status").is("error")}
		}
	case "reasoningContent":
		if data := v.get("redactedContent"); data.found {
			seal, _ := base64.StdEncoding.DecodeString(data.text()) // the schema has seen it
			return object{"type": "redacted_thinking", "data": string(seal)}
		}
		said := v.get("reasoningText")
		return object{"type": "thinking", "thinking": said.get("text").text(), "signature": said.get("signature").text()}
	}
	return nil
}

// media returns an image or a document. Names of documents are unique.
func (c *converse) media(v node, kind string) object {
	source := object{"type": "base64", "media_type": "application/pdf", "data": v.get("source").get("bytes").text()}
	name := v.get("name").text()
	switch {
	case kind == "image":
		source["media_type"] = "image/" + v.get("format").text()
	case c.names[name]:
		v.refuse("", "The request has duplicate document names: %s", name)
	default:
		c.names[name] = true
	}
	return object{"type": kind, "source": source}
}
