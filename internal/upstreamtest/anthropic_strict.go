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
	var tools []string
	for _, t := range n.get("tools").list() {
		name := t.get("name").text()
		if slices.Contains(tools, name) {
			t.refuse("", "tools: Tool names must be unique.")
		}
		tools = append(tools, name)
	}
	forced := anthropicChoice(n.get("tool_choice"), tools)
	thinking := anthropicThinking(n, n.get("max_tokens").number(0), forced)
	d.messages(n.get("messages"), thinking)
}

// anthropicChoice reports whether the model must call a tool.
func anthropicChoice(n node, tools []string) bool {
	if n.found && len(tools) == 0 {
		n.refuse("", "tool_choice: tool_choice may only be specified while providing tools")
	}
	kind := n.get("type").text()
	if name := n.get("name").text(); kind == "tool" && !slices.Contains(tools, name) {
		n.refuse("", "Tool '%s' not found in provided tools", name)
	}
	return kind == "any" || kind == "tool"
}

// anthropicThinking reports whether thinking with a number of tokens is enabled.
func anthropicThinking(n node, limit float64, forced bool) bool {
	t := n.get("thinking")
	kind := t.get("type").text()
	if kind != "adaptive" && kind != "enabled" {
		return false
	}
	const consult = "Please consult our documentation on extended thinking."
	if temperature := n.get("temperature"); temperature.number(1) != 1 {
		temperature.refuse("", "`temperature` may only be set to 1 when thinking is enabled. "+consult)
	}
	if n.get("top_k").found {
		n.refuse("", "`top_k` must be unset when thinking is enabled. "+consult)
	}
	if topP := n.get("top_p"); topP.number(1) < 0.95 {
		topP.refuse("", "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled. "+consult)
	}
	switch {
	case kind == "adaptive":
		return false
	case t.get("budget_tokens").number(0) >= limit:
		t.refuse("", "`max_tokens` must be greater than `thinking.budget_tokens`. "+consult)
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
	if len(all) == 0 {
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
			d.block(b)
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

// anthropicJoin joins messages of one role.
func anthropicJoin(n node) []anthropicMessage {
	var all []anthropicMessage
	for _, m := range n.list() {
		role, content := m.get("role").text(), m.get("content")
		k := len(all)
		if role == "system" && k > 0 && all[k-1].role == "assistant" { // models from Claude Opus 4.8 on take it
			m.refuse("", "%s: a message of the role \"system\" must follow one of the role \"user\"", m.path)
		}
		blocks := content.list()
		if text := content.text(); text != "" {
			content.value = object{"type": "text", "text": text}
			blocks = []node{content}
		}
		if k > 0 && all[k-1].role == role {
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

// block checks a block of content against what was sent.
func (d *anthropicDialect) block(b node) {
	switch text := b.get("text").text(); b.get("type").value {
	case "text":
		if strings.TrimSpace(text) == "" { // of a message that is a text
			b.refuse("", "messages: text content blocks must contain non-whitespace text")
		}
	case "thinking":
		d.thought(b, b.get("thinking").text(), b.get("signature").text())
	case "redacted_thinking":
		if d.issued(b.get("data").text()) == nil {
			b.refuse("", "%s: Invalid `data` in `redacted_thinking` block", b.path)
		}
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
