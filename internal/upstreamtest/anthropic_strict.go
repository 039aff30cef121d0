package upstreamtest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// check refuses what the Messages API refuses. The rules are those of the
// documentation at https://platform.claude.com/docs and of the messages of the
// provider's errors. Rules that depend on the model are left out.
func (d *anthropicDialect) check(header http.Header, n node) {
	if header.Get("Anthropic-Version") == "" {
		n.refuse("", "anthropic-version: header is required")
	}
	n.known("model", "max_tokens", "messages", "cache_control", "container", "context_management", "inference_geo", "mcp_servers",
		"metadata", "output_config", "output_format", "service_tier", "speed", "stop_sequences", "stream", "system",
		"temperature", "thinking", "tool_choice", "tools", "top_k", "top_p")
	n.need("model").text()
	limit := n.need("max_tokens").integer(1)
	n.get("stream").boolean()
	n.get("temperature").between(0, 1)
	n.get("top_p").between(0, 1)
	n.get("top_k").integer(0)
	n.get("service_tier").oneOf("auto", "standard_only")
	metadata := n.get("metadata")
	metadata.object()
	metadata.known("user_id")
	metadata.get("user_id").text()
	for _, s := range n.get("stop_sequences").list() {
		if strings.TrimSpace(s.text()) == "" {
			s.refuse("", "stop_sequences: each stop sequence must contain non-whitespace")
		}
	}
	anthropicSystem(n.get("system"))
	anthropicOutput(n.get("output_config"))
	tools := anthropicTools(n.get("tools"))
	forced := anthropicChoice(n.get("tool_choice"), tools)
	thinking := anthropicThinking(n, limit, forced)
	d.messages(n.need("messages"), thinking)
}

func anthropicSystem(n node) {
	if _, ok := n.value.(string); ok || !n.found {
		return
	}
	for _, b := range n.list() {
		b.object()
		b.need("type").oneOf("text")
		b.known("type", "text", "cache_control", "citations")
		if text := b.need("text"); text.text() == "" {
			text.refuse("", "system: text content blocks must be non-empty")
		}
	}
}

func anthropicOutput(n node) {
	n.object()
	n.known("effort", "format", "task_budget")
	n.get("effort").oneOf("low", "medium", "high", "xhigh", "max")
	format := n.get("format")
	if format.found {
		format.need("type").oneOf("json_schema")
		format.need("schema").object()
		format.known("type", "schema")
	}
}

// anthropicTools returns the names of the tools. Those that the provider runs
// itself have a type of their own and are not looked into.
func anthropicTools(n node) []string {
	var names []string
	for _, t := range n.list() {
		t.object()
		if kind := t.get("type").text(); kind == "" || kind == "custom" {
			t.known("name", "description", "input_schema", "type", "cache_control", "strict", "defer_loading",
				"allowed_callers", "input_examples", "eager_input_streaming")
			t.need("name").named(128)
			t.get("description").text()
			schema := t.need("input_schema")
			schema.object()
			schema.need("type").oneOf("object")
			for _, name := range []string{"oneOf", "allOf", "anyOf"} {
				if schema.get(name).found {
					schema.refuse("", "%s: input_schema does not support oneOf, allOf, or anyOf at the top level", schema.path)
				}
			}
			if o, _ := schema.value.(object); o != nil {
				if why := schemaRulesOf("anthropic").fault(o); why != "" {
					schema.refuse("", "%s: %s", schema.path, why)
				}
			}
		}
		name := t.get("name").text()
		if slices.Contains(names, name) {
			t.refuse("", "tools: Tool names must be unique.")
		}
		names = append(names, name)
	}
	return names
}

// anthropicChoice reports whether the model must call a tool.
func anthropicChoice(n node, tools []string) bool {
	if !n.found {
		return false
	}
	if len(tools) == 0 {
		n.refuse("", "tool_choice: tool_choice may only be specified while providing tools")
	}
	n.object()
	kind := n.need("type").oneOf("auto", "any", "tool", "none")
	switch kind {
	case "tool":
		n.known("type", "name", "disable_parallel_tool_use")
		if name := n.need("name"); name.found && !slices.Contains(tools, name.text()) {
			n.refuse("", "Tool '%s' not found in provided tools", name.text())
		}
	case "none":
		n.known("type")
	default:
		n.known("type", "disable_parallel_tool_use")
	}
	n.get("disable_parallel_tool_use").boolean()
	return kind == "any" || kind == "tool"
}

// anthropicThinking reports whether thinking with a number of tokens is enabled.
func anthropicThinking(n node, limit int64, forced bool) bool {
	t := n.get("thinking")
	if !t.found {
		return false
	}
	t.object()
	kind := t.need("type").oneOf("adaptive", "between_tools", "disabled", "enabled")
	switch kind {
	case "disabled":
		t.known("type")
		return false
	case "between_tools": // of Claude Sonnet 5.5
		return false
	}
	t.get("display").text()
	if temperature := n.get("temperature"); temperature.found && temperature.between(0, 1) != 1 {
		temperature.refuse("", "`temperature` may only be set to 1 when thinking is enabled. Please consult our documentation on extended thinking.")
	}
	if n.get("top_k").found {
		n.refuse("", "`top_k` must be unset when thinking is enabled. Please consult our documentation on extended thinking.")
	}
	if topP := n.get("top_p"); topP.found && topP.between(0, 1) < 0.95 {
		topP.refuse("", "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled. Please consult our documentation on extended thinking.")
	}
	if kind == "adaptive" {
		t.known("type", "display")
		return false
	}
	t.known("type", "budget_tokens", "display")
	budget := t.need("budget_tokens").integer(0)
	switch {
	case budget < 1024:
		t.refuse("", "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	case budget >= limit:
		t.refuse("", "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation on extended thinking.")
	case forced:
		t.refuse("", "Thinking may not be enabled when tool_choice forces tool use.")
	}
	return true
}

// anthropicMessage is a message, or several of one role that follow each other:
// the provider joins them.
type anthropicMessage struct {
	node
	role   string
	blocks []node
}

func (d *anthropicDialect) messages(n node, thinking bool) {
	all := anthropicJoin(n)
	if n.found && len(all) == 0 {
		n.refuse("", "messages: at least one message is required")
		return
	}
	used := map[string]bool{}
	for i, m := range all {
		last := i == len(all)-1
		if i == 0 && m.role != "user" {
			m.refuse("", "messages: first message must use the \"user\" role")
		}
		if len(m.blocks) == 0 && !(last && m.role == "assistant") {
			m.refuse("", "%s: all messages must have non-empty content except for the optional final assistant message", m.path)
		}
		for _, b := range m.blocks {
			d.block(b, m.role)
		}
		for _, id := range anthropicIDs(m, "tool_use", "id") {
			if used[id] {
				m.refuse("", "messages: `tool_use` ids must be unique")
			}
			used[id] = true
		}
		var next anthropicMessage
		if !last {
			next = all[i+1]
		}
		anthropicPaired(m, next, last)
	}
	for i, m := range all {
		if m.role != "assistant" && (i == 0 || all[i-1].role != "assistant") && len(anthropicIDs(m, "tool_result", "tool_use_id")) > 0 {
			anthropicUnexpected(m, nil)
		}
	}
	if len(all) > 0 {
		anthropicEnd(all[len(all)-1])
		d.loop(all, thinking)
	}
}

// anthropicJoin reads messages and joins those of one role.
func anthropicJoin(n node) []anthropicMessage {
	var all []anthropicMessage
	for _, m := range n.list() {
		m.object()
		m.known("role", "content")
		role := m.need("role").text()
		switch role {
		case "user", "assistant":
		case "system": // models from Claude Opus 4.8 on take it
			if k := len(all); k > 0 && all[k-1].role == "assistant" {
				m.refuse("", "%s: a message of the role \"system\" must follow one of the role \"user\"", m.path)
			}
		default:
			m.refuse("", "messages: Unexpected role \"%s\". Allowed roles are \"user\", \"assistant\" and \"system\"", role)
		}
		content := m.need("content")
		var blocks []node
		if text, ok := content.value.(string); ok {
			if text != "" {
				blocks = []node{{content.style, content.why, content.path, object{"type": "text", "text": text}, true}}
			}
		} else {
			blocks = content.list()
		}
		if k := len(all); k > 0 && all[k-1].role == role {
			all[k-1].blocks = append(all[k-1].blocks, blocks...)
			continue
		}
		all = append(all, anthropicMessage{m, role, blocks})
	}
	return all
}

// anthropicIDs returns a member of all blocks of a type.
func anthropicIDs(m anthropicMessage, kind, name string) []string {
	var ids []string
	for _, b := range m.blocks {
		if b.get("type").value == kind {
			ids = append(ids, b.get(name).text())
		}
	}
	return ids
}

// anthropicPaired checks that the calls of a message are answered at the
// beginning of the next one, and that nothing else is answered there.
func anthropicPaired(m, next anthropicMessage, last bool) {
	if m.role != "assistant" {
		return
	}
	calls := anthropicIDs(m, "tool_use", "id")
	results := anthropicIDs(next, "tool_result", "tool_use_id")
	var missing []string
	for _, id := range calls {
		if !slices.Contains(results, id) {
			missing = append(missing, id)
		}
	}
	switch {
	case len(missing) > 0:
		m.refuse("", "%s: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
			m.path, strings.Join(missing, ", "))
	case !last:
		anthropicUnexpected(next, calls)
		anthropicFirst(m, next, len(calls))
	}
}

// anthropicUnexpected refuses a result that answers no call.
func anthropicUnexpected(m anthropicMessage, calls []string) {
	answered := map[string]bool{}
	for _, b := range m.blocks {
		if b.get("type").value != "tool_result" {
			continue
		}
		id := b.get("tool_use_id").text()
		switch {
		case !slices.Contains(calls, id):
			b.refuse("", "%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", b.path, id)
		case answered[id]:
			b.refuse("", "%s: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", b.path, id)
		}
		answered[id] = true
	}
}

// anthropicFirst refuses results that do not begin their message.
func anthropicFirst(m, next anthropicMessage, calls int) {
	for i, b := range next.blocks {
		if i < calls && b.get("type").value != "tool_result" {
			m.refuse("", "%s: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
				m.path, strings.Join(anthropicIDs(m, "tool_use", "id"), ", "))
		}
	}
}

// anthropicEnd refuses white space at the end of an answer that the model would
// go on with.
func anthropicEnd(last anthropicMessage) {
	if last.role != "assistant" || len(last.blocks) == 0 {
		return
	}
	b := last.blocks[len(last.blocks)-1]
	if text := b.get("text").text(); b.get("type").value == "text" && text != strings.TrimRight(text, " \t\r\n") {
		last.refuse("", "messages: final assistant content cannot end with trailing whitespace")
	}
}

// block checks a block of content. Types that only the provider writes, such as
// those of its own tools, are not looked into.
func (d *anthropicDialect) block(b node, role string) {
	b.object()
	kind := b.need("type").text()
	assistant := role == "assistant"
	switch {
	case kind == "text":
		b.known("type", "text", "cache_control", "citations")
		switch text := b.need("text").text(); {
		case text == "":
			b.refuse("", "messages: text content blocks must be non-empty")
		case strings.TrimSpace(text) == "":
			b.refuse("", "messages: text content blocks must contain non-whitespace text")
		}
	case kind == "image" && !assistant:
		anthropicImage(b)
	case kind == "document" && !assistant:
		anthropicDocument(b)
	case kind == "tool_use" && assistant:
		b.known("type", "id", "name", "input", "cache_control", "caller")
		b.need("id").named(1 << 10)
		b.need("name").named(200)
		b.need("input").object()
	case kind == "tool_result" && !assistant:
		d.result(b)
	case kind == "thinking" && assistant:
		b.known("type", "thinking", "signature")
		d.thought(b, b.need("thinking").text(), b.need("signature").text())
	case kind == "redacted_thinking" && assistant:
		b.known("type", "data")
		if data := b.need("data").text(); d.issued(data) == nil {
			b.refuse("", "%s: Invalid `data` in `redacted_thinking` block", b.path)
		}
	case slices.Contains([]string{"image", "tool_use", "tool_result", "thinking", "redacted_thinking"}, kind):
		b.refuse("", "%s: `%s` blocks are not permitted in messages of role `%s`", b.path, kind, role)
	case !anthropicOther(kind):
		b.refuse("", "%s: Input tag '%s' found using 'type' does not match any of the expected tags", b.path, kind)
	}
}

// anthropicOther reports whether a type is one of blocks that are not looked into.
func anthropicOther(kind string) bool {
	return kind == "document" || kind == "search_result" || kind == "server_tool_use" || kind == "container_upload" ||
		kind == "compaction" || strings.HasSuffix(kind, "_tool_result") || kind == "mcp_tool_use" || kind == "tool_reference"
}

func (d *anthropicDialect) result(b node) {
	b.known("type", "tool_use_id", "content", "is_error", "cache_control")
	b.need("tool_use_id").text()
	b.get("is_error").boolean()
	content := b.get("content")
	if _, ok := content.value.(string); ok || !content.found {
		return
	}
	for _, p := range content.list() {
		switch p.object(); p.need("type").oneOf("text", "image", "search_result", "document", "tool_reference") {
		case "text":
			p.known("type", "text", "cache_control", "citations")
			p.need("text").text()
		case "image":
			anthropicImage(p)
		case "document":
			anthropicDocument(p)
		}
	}
}

func anthropicImage(b node) {
	b.known("type", "source", "cache_control")
	source := b.need("source")
	source.object()
	switch source.need("type").oneOf("base64", "url", "file") {
	case "base64":
		source.known("type", "media_type", "data")
		media := source.need("media_type")
		if media.found && !isImage(media.text()) {
			media.refuse("", "%s.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'", b.path)
		}
		anthropicData(source, b.path+".image.source.base64.data")
	case "url":
		anthropicURL(source)
	case "file":
		source.need("file_id").text()
	}
}

func anthropicURL(source node) {
	source.known("type", "url")
	if url := source.need("url"); url.found && !strings.HasPrefix(url.text(), "https://") && !strings.HasPrefix(url.text(), "http://") {
		url.refuse("", "%s: Only HTTP and HTTPS URLs are supported.", url.path)
	}
}

func anthropicData(source node, path string) {
	if data := source.need("data"); data.found && !isBase64(data.text()) {
		data.refuse("", "%s: Invalid base64 data", path)
	}
}

func anthropicDocument(b node) {
	b.known("type", "source", "cache_control", "title", "context", "citations")
	b.get("title").text()
	source := b.need("source")
	source.object()
	switch source.need("type").oneOf("base64", "text", "url", "content", "file") {
	case "base64":
		source.known("type", "media_type", "data")
		source.need("media_type").oneOf("application/pdf")
		anthropicData(source, source.get("data").path)
	case "text":
		source.known("type", "media_type", "data")
		source.need("media_type").oneOf("text/plain")
		source.need("data").text()
	case "url":
		anthropicURL(source)
	case "file":
		source.need("file_id").text()
	}
}

// issued returns the turn whose thinking has the signature or data.
func (d *anthropicDialect) issued(seal string) *anthropicTurn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.thinking[seal]
}

// thought refuses thinking that was not sent like this.
func (d *anthropicDialect) thought(b node, text, signature string) {
	turn := d.issued(signature)
	if turn != nil {
		for _, sent := range d.sent(turn) {
			if sent["signature"] == signature && sent["thinking"] == text {
				return
			}
		}
	}
	b.refuse("", "%s: Invalid `signature` in `thinking` block", b.path)
}

// sent returns the blocks of a turn.
func (d *anthropicDialect) sent(t *anthropicTurn) []object {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(t.blocks)
}

// loop checks the thinking of the answers since the user last said something:
// the tool loop that the request continues. In it, thinking has its place.
func (d *anthropicDialect) loop(all []anthropicMessage, enabled bool) {
	start := len(all)
	for start > 0 && (all[start-1].role != "user" || len(anthropicIDs(all[start-1], "tool_result", "tool_use_id")) > 0) {
		start--
	}
	first := true
	for _, m := range all[start:] {
		if m.role != "assistant" || len(m.blocks) == 0 {
			continue
		}
		turns := d.turnsOf(m)
		if want, got := d.thinkingOf(turns), thinkingIn(m); len(turns) > 0 && len(got) > 0 && !slices.Equal(want, got) {
			m.refuse("", "%s.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.", m.path)
		}
		kind := fmt.Sprint(m.blocks[0].get("type").value)
		missing := len(d.thinkingOf(turns)) > 0 && len(thinkingIn(m)) == 0
		unthought := first && len(turns) == 0 && kind != "thinking" && kind != "redacted_thinking"
		if enabled && (missing || unthought) {
			m.refuse("", "%s.content.0.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceding the lastmost set of `tool_use` and `tool_result` blocks).", m.path, kind)
		}
		first = false
	}
}

// turnsOf returns the turns that a message repeats, in their order. Calls whose
// ids several turns used say nothing.
func (d *anthropicDialect) turnsOf(m anthropicMessage) []*anthropicTurn {
	d.mu.Lock()
	defer d.mu.Unlock()
	var turns []*anthropicTurn
	add := func(t *anthropicTurn) {
		if t != nil && !slices.Contains(turns, t) {
			turns = append(turns, t)
		}
	}
	for _, b := range m.blocks {
		o, _ := b.value.(object)
		if seal, ok := sealOf(o); ok {
			add(d.thinking[seal])
		} else if of := d.calls[b.get("id").text()]; b.get("type").value == "tool_use" && len(of) == 1 {
			add(of[0])
		}
	}
	return turns
}

// sealOf returns the opaque bytes of a block of thinking.
func sealOf(block object) (string, bool) {
	switch block["type"] {
	case "thinking":
		s, _ := block["signature"].(string)
		return s, true
	case "redacted_thinking":
		s, _ := block["data"].(string)
		return s, true
	}
	return "", false
}

// thinkingOf returns the thinking of turns, each with the number of calls before
// it.
func (d *anthropicDialect) thinkingOf(turns []*anthropicTurn) []string {
	var places []string
	calls := 0
	for _, t := range turns {
		places, calls = placesOf(d.sent(t), places, calls)
	}
	return places
}

func thinkingIn(m anthropicMessage) []string {
	var blocks []object
	for _, b := range m.blocks {
		o, _ := b.value.(object)
		blocks = append(blocks, o)
	}
	places, _ := placesOf(blocks, nil, 0)
	return places
}

func placesOf(blocks []object, places []string, calls int) ([]string, int) {
	for _, b := range blocks {
		if seal, ok := sealOf(b); ok {
			places = append(places, fmt.Sprintf("%d %s", calls, seal))
		} else if b["type"] == "tool_use" {
			calls++
		}
	}
	return places, calls
}
