package upstreamtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// check refuses what Converse refuses, and then what the Messages API refuses of the
// request that Bedrock would make of it. The rules are those of the API's description and
// of the messages of its errors. The model is a Claude model of which everything is known
// that all have; rules that depend on the version are left out.
func (d *bedrockDialect) check(header http.Header, n node) {
	if header.Get("Content-Type") != "application/json" {
		n.refuse("", "Content-Type: must be application/json")
	}
	n.known("messages", "system", "inferenceConfig", "toolConfig", "guardrailConfig", "additionalModelRequestFields",
		"additionalModelResponseFieldPaths", "promptVariables", "requestMetadata", "performanceConfig", "serviceTier", "outputConfig")
	inference := n.get("inferenceConfig")
	inference.object()
	inference.known("maxTokens", "stopSequences", "temperature", "topP")
	limit := inference.get("maxTokens").integer(1)
	if !inference.get("maxTokens").found {
		limit = 1 << 20 // that of the model
	}
	inference.get("temperature").between(0, 1)
	inference.get("topP").between(0, 1)
	for _, s := range inference.get("stopSequences").list() {
		if strings.TrimSpace(s.text()) == "" {
			s.refuse("", "%s: each stop sequence must contain non-whitespace", s.path)
		}
	}
	converseMetadata(n.get("requestMetadata"))
	for _, b := range n.get("system").list() {
		switch b.only("text", "cachePoint", "guardContent") {
		case "text":
			converseText(b.get("text"))
		case "cachePoint":
			converseCachePoint(b.get("cachePoint"))
		}
	}
	converseOutput(n.get("outputConfig"))
	config := n.get("toolConfig")
	forced := converseTools(config)
	own := n.get("additionalModelRequestFields")
	own.object()
	own.known("thinking", "tool_choice", "top_k", "anthropic_beta")
	forced = converseOwnChoice(own.get("tool_choice"), config) || forced

	claude := node{n.style, n.why, "", object{}, true} // what the model gets
	for name, v := range map[string]node{"thinking": own.get("thinking"), "top_k": own.get("top_k"), "temperature": inference.get("temperature"), "top_p": inference.get("topP")} {
		if v.found {
			claude.value.(object)[name] = v.value
		}
	}
	thinking := anthropicThinking(claude, limit, forced)
	messages := n.need("messages")
	c := converse{names: map[string]bool{}}
	claude.path = "messages"
	claude.value = c.messages(messages)
	if c.calls && !config.found {
		n.refuse("", "The toolConfig field must be defined when using toolUse and toolResult content blocks.")
	}
	if *n.why == nil {
		d.claude.messages(claude, thinking)
	}
}

// only refuses an object that has not exactly one of the members, and returns its name.
func (n node) only(names ...string) string {
	n.object()
	n.known(names...)
	o, _ := n.value.(object)
	if len(o) != 1 {
		n.refuse("", "%s: must set exactly one of the members %s", n.path, strings.Join(names, ", "))
	}
	for name := range o {
		return name
	}
	return ""
}

func converseText(n node) {
	if strings.TrimSpace(n.text()) == "" {
		n.refuse("", "The text field in the ContentBlock object at %s is blank. Add text to the text field, and try again.", n.path)
	}
}

var converseWord = regexp.MustCompile(`^[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}$`)

func converseMetadata(n node) {
	n.stringMap()
	o, _ := n.value.(object)
	if len(o) > 16 {
		n.refuse("", "requestMetadata: must have at most 16 members")
	}
	for name, v := range o {
		if text, _ := v.(string); !converseWord.MatchString(text) || !converseWord.MatchString(name) {
			n.refuse("", "requestMetadata: must match %s", converseWord)
		}
	}
}

func converseOutput(n node) {
	n.object()
	n.known("effort", "textFormat")
	n.get("effort").oneOf("low", "medium", "high", "xhigh", "max")
	format := n.get("textFormat")
	if !format.found {
		return
	}
	format.known("type", "structure")
	format.need("type").oneOf("json_schema")
	structure := format.need("structure")
	structure.only("jsonSchema")
	schema := structure.get("jsonSchema")
	schema.known("schema", "name", "description")
	v, err := decode([]byte(schema.need("schema").text()))
	if _, ok := v.(object); err != nil || !ok {
		schema.refuse("", "%s: the schema is not valid JSON", schema.path)
	}
}

// converseTools reports whether the model must call a tool.
func converseTools(n node) bool {
	if !n.found {
		return false
	}
	n.object()
	n.known("tools", "toolChoice")
	var names []string
	tools := 0
	for _, t := range n.need("tools").list() {
		if !t.get("cachePoint").found {
			tools++
		}
		if t.only("toolSpec", "cachePoint", "systemTool") != "toolSpec" {
			continue
		}
		spec := t.get("toolSpec")
		spec.object()
		spec.known("name", "description", "inputSchema", "strict")
		if description := spec.get("description"); description.found && description.text() == "" {
			description.refuse("", "%s: must have length greater than or equal to 1", description.path)
		}
		name := spec.need("name").named(64)
		if slices.Contains(names, name) {
			spec.refuse("", "The tool name %s is used more than once", name)
		}
		names = append(names, name)
		spec.need("inputSchema").only("json")
		schema := spec.get("inputSchema").get("json")
		schema.object()
		schema.need("type").oneOf("object")
		for _, name := range []string{"oneOf", "allOf", "anyOf"} {
			if schema.get(name).found {
				schema.refuse("", "%s: input_schema does not support oneOf, allOf, or anyOf at the top level", schema.path)
			}
		}
		if o, _ := schema.value.(object); o != nil {
			if why := schemaRulesOf("bedrock").fault(o); why != "" {
				schema.refuse("", "%s: %s", schema.path, why)
			}
		}
	}
	if tools == 0 {
		n.refuse("", "toolConfig.tools: must have length greater than or equal to 1")
	}
	choice := n.get("toolChoice")
	if !choice.found {
		return false
	}
	kind := choice.only("auto", "any", "tool")
	if kind == "tool" {
		if name := choice.get("tool").need("name").text(); !slices.Contains(names, name) {
			choice.refuse("", "Tool '%s' not found in provided tools", name)
		}
	}
	return kind != "auto"
}

// converseOwnChoice checks a choice in the form of the model's own API, and reports
// whether the model must call a tool.
func converseOwnChoice(n, config node) bool {
	switch {
	case !n.found:
		return false
	case !config.found:
		n.refuse("", "tool_choice: tool_choice may only be specified while providing tools")
	case config.get("toolChoice").found:
		n.refuse("", "The additional field tool_choice conflicts with an existing field.")
	}
	var tools []string
	for _, t := range config.get("tools").list() {
		tools = append(tools, t.get("toolSpec").get("name").text())
	}
	return anthropicChoice(n, tools)
}

// converse makes the messages of a Converse request to those of the Messages API.
type converse struct {
	names map[string]bool // of documents
	calls bool            // there are calls or results
}

func (c *converse) messages(n node) []any {
	var out []any
	last := ""
	for _, m := range n.list() {
		m.object()
		m.known("role", "content")
		role := m.need("role").oneOf("user", "assistant")
		if role == last {
			m.refuse("", "A conversation must alternate between user and assistant roles. Make sure the conversation alternates between user and assistant roles and try again.")
		}
		last = role
		var blocks []any
		texts, documents := 0, 0
		for _, b := range m.need("content").list() {
			kind := b.only("text", "image", "document", "toolUse", "toolResult", "reasoningContent", "cachePoint", "citationsContent", "guardContent")
			switch kind {
			case "text":
				texts++
			case "document":
				documents++
			}
			if block := c.block(b, kind); block != nil {
				blocks = append(blocks, block)
			}
		}
		if documents > 0 && texts == 0 {
			m.refuse("", "%s: add a text block to the content field: a message with a document must have one", m.path)
		}
		out = append(out, object{"role": role, "content": blocks})
	}
	return out
}

// block returns a block as the Messages API has it; nil for one that it has not, or that
// was refused.
func (c *converse) block(b node, kind string) any {
	v := b.get(kind)
	switch kind {
	case "text":
		converseText(v)
		return object{"type": "text", "text": v.value}
	case "guardContent":
		return object{"type": "text", "text": v.get("text").get("text").text()}
	case "image", "document":
		return c.media(v, kind)
	case "toolUse":
		c.calls = true
		v.known("toolUseId", "name", "input", "type")
		if kind := v.get("type"); kind.found { // a tool that the provider ran itself is not looked into
			kind.oneOf("server_tool_use")
			return nil
		}
		input := v.need("input")
		input.object()
		return object{"type": "tool_use", "id": v.need("toolUseId").named(64), "name": v.need("name").named(64), "input": input.value}
	case "toolResult":
		c.calls = true
		return c.result(v)
	case "reasoningContent":
		return converseReasoning(v)
	case "cachePoint":
		converseCachePoint(v)
	}
	return nil
}

func converseCachePoint(n node) {
	n.known("type", "ttl")
	n.need("type").oneOf("default")
	n.get("ttl").oneOf("5m", "1h")
}

// converseReasoning returns reasoning as the Messages API has it.
func converseReasoning(v node) any {
	if v.only("reasoningText", "redactedContent") == "redactedContent" {
		data, err := base64.StdEncoding.DecodeString(v.get("redactedContent").text())
		if err != nil {
			v.refuse("", "%s: Invalid base64 data", v.path)
		}
		return object{"type": "redacted_thinking", "data": string(data)}
	}
	said := v.get("reasoningText")
	said.known("text", "signature")
	return object{"type": "thinking", "thinking": said.need("text").text(), "signature": said.get("signature").text()}
}

func (c *converse) result(v node) any {
	if v.get("type").found {
		return nil
	}
	v.known("toolUseId", "content", "status")
	failed := v.get("status").oneOf("success", "error") == "error"
	content := v.need("content").list()
	if len(content) == 0 {
		v.refuse("", "%s.content: must have length greater than or equal to 1", v.path)
	}
	var blocks []any
	for _, p := range content {
		switch kind := p.only("text", "json", "image", "document"); kind {
		case "text":
			converseText(p.get("text"))
			blocks = append(blocks, object{"type": "text", "text": p.get("text").value})
		case "json":
			blocks = append(blocks, object{"type": "text", "text": string(encode(p.get("json").value))})
		default:
			if block := c.media(p.get(kind), kind); block != nil {
				blocks = append(blocks, block)
			}
			if failed {
				p.refuse("", "%s: all content must be type `text` if `status` is `error`", p.path)
			}
		}
	}
	return object{"type": "tool_result", "tool_use_id": v.need("toolUseId").named(64), "content": blocks, "is_error": failed}
}

var (
	documentName    = regexp.MustCompile(`^[a-zA-Z0-9()\[\]-]+(\s[a-zA-Z0-9()\[\]-]+)*$`)
	documentFormats = []string{"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"}
)

// media checks an image or a document.
func (c *converse) media(v node, kind string) any {
	v.object()
	source := v.need("source")
	source.only("bytes")
	data := source.get("bytes")
	if !isBase64(data.text()) {
		data.refuse("", "%s: Invalid base64 data", data.path)
	}
	if kind == "image" {
		v.known("format", "source")
		format := v.need("format").oneOf("png", "jpeg", "gif", "webp")
		return object{"type": "image", "source": object{"type": "base64", "media_type": "image/" + format, "data": data.value}}
	}
	v.known("format", "name", "source", "citations", "context")
	v.need("format").oneOf(documentFormats...)
	name := v.need("name").text()
	switch {
	case !documentName.MatchString(name) || len(name) > 200:
		v.refuse("", "The document file name can only contain alphanumeric characters, whitespace characters, hyphens, parentheses, and square brackets. The name can't contain more than one consecutive whitespace character. Edit the file name %s, and try again.", fmt.Sprintf("%.40q", name))
	case c.names[name]:
		v.refuse("", "The request has duplicate document names: %s", name)
	}
	c.names[name] = true
	return object{"type": "document", "source": object{"type": "base64", "media_type": "application/pdf", "data": data.value}}
}
