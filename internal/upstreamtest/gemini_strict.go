package upstreamtest

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// geminiOld are the models that do not check thought signatures and take a number of
// tokens of thinking.
var geminiOld = regexp.MustCompile(`gemini-[12]|gemma`)

// geminiFree are members whose own members have names that are not the API's.
var geminiFree = []string{"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema", "labels"}

// named returns a request with the names of its members in the JSON form. The API also
// takes the names of the protocol buffers.
func (d geminiDialect) named(v any) any {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i, e := range v {
			all[i] = d.named(e)
		}
		return all
	case object:
		renamed := object{}
		for name, e := range v {
			head, rest, _ := strings.Cut(name, "_")
			for word := range strings.SplitSeq(rest, "_") {
				head += strings.ToUpper(word[:min(1, len(word))]) + word[min(1, len(word)):]
			}
			if !slices.Contains(geminiFree, head) {
				e = d.named(e)
			}
			renamed[head] = e
		}
		return renamed
	}
	return v
}

// check refuses what the API refuses. The rules are those of the reference at
// https://ai.google.dev/api/generate-content, of the pages on function calling and
// thought signatures, and of the errors that it is known to send.
func (d geminiDialect) check(_ http.Header, n node) {
	var functions []string
	for _, t := range n.get("tools").list() {
		for _, f := range t.get("functionDeclarations").list() {
			name := f.get("name").text()
			if slices.Contains(functions, name) {
				f.refuse("", "Duplicate function declaration found: %s", name)
			}
			functions = append(functions, name)
		}
	}
	geminiChoice(n.get("toolConfig").get("functionCallingConfig"), functions)
	g := n.get("generationConfig")
	mime, schema := g.get("responseMimeType"), g.get("responseSchema").found || g.get("responseJsonSchema").found
	switch {
	case g.get("responseSchema").found && g.get("responseJsonSchema").found:
		g.refuse("", "response_schema and response_json_schema cannot both be set")
	case schema && !mime.is("application/json"):
		g.refuse("", "* GenerateContentRequest.generation_config.response_schema: only allowed if the response_mime_type is application/json")
	case mime.is("application/json") && len(functions) > 0 && geminiOld.MatchString(d.model):
		g.refuse("", "Function calling with a response mime type: 'application/json' is unsupported")
	}
	d.thinking(g.get("thinkingConfig"))
	d.contents(n.get("contents"))
}

func (d geminiDialect) thinking(n node) {
	budget, level := n.get("thinkingBudget"), n.get("thinkingLevel")
	old, pro := geminiOld.MatchString(d.model), strings.Contains(d.model, "-pro")
	levels := []string{"low", "medium", "high", "minimal"}
	if pro {
		levels = levels[:3]
	}
	if s := strings.ToLower(level.text()); level.found && !slices.Contains(levels, s) {
		level.refuse("", "Invalid value at 'generation_config.thinking_config.thinking_level', %q", s)
	}
	tokens := budget.number(1)
	switch {
	case budget.found && level.found:
		n.refuse("", "You can only set only one of thinking budget and thinking level.")
	case level.found && old:
		n.refuse("", "Thinking level is not supported for this model.")
	case tokens == 0 && pro:
		n.refuse("", "Budget 0 is invalid. This model only works in thinking mode.")
	case tokens > 32_768, tokens > 24_576 && old && !pro:
		n.refuse("", "The thinking budget %v is invalid. Please choose a value between 0 and 24576.", tokens)
	}
}

func geminiChoice(c node, functions []string) {
	mode := strings.ToUpper(c.get("mode").text())
	allowed := c.get("allowedFunctionNames").strings()
	switch {
	case !slices.Contains([]string{"", "MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"}, mode):
		c.refuse("", "Invalid value at 'tool_config.function_calling_config.mode', %q", mode)
	case mode != "" && mode != "NONE" && len(functions) == 0:
		c.refuse("", "Function calling config is set without function_declarations.")
	case len(allowed) > 0 && mode != "ANY" && mode != "VALIDATED":
		c.refuse("", "Allowed function names can only be set when the function calling mode is ANY or VALIDATED.")
	}
	for _, name := range allowed {
		if !slices.Contains(functions, name) {
			c.refuse("", "allowed_function_names: %s is not in function_declarations", name)
		}
	}
}

// geminiContent is an entry of contents.
type geminiContent struct {
	node
	role             string
	parts            []node
	calls, responses []node
}

func (d geminiDialect) contents(n node) {
	var all []geminiContent
	for _, c := range n.list() {
		content := geminiContent{node: c, role: c.get("role").text(), parts: c.get("parts").list()}
		for _, p := range content.parts {
			if call := p.get("functionCall"); call.found {
				content.calls = append(content.calls, call)
			}
			if response := p.get("functionResponse"); response.found {
				content.responses = append(content.responses, response)
			}
		}
		all = append(all, content)
	}
	geminiPaired(all)
	d.signatures(all)
}

// geminiPaired checks that the calls of a content are answered by the next one, in
// their order.
func geminiPaired(all []geminiContent) {
	for i, c := range all {
		var before geminiContent
		if i > 0 {
			before = all[i-1]
		}
		if len(c.calls) > 0 && (i == 0 || before.role == "model") {
			c.refuse("", "Please ensure that function call turn comes immediately after a user turn or after a function response turn.")
		}
		if len(c.responses) > 0 && len(before.calls) == 0 {
			c.refuse("", "Please ensure that function response turn comes immediately after a function call turn.")
		}
		if len(c.calls) == 0 {
			continue
		}
		var next geminiContent
		if i+1 < len(all) {
			next = all[i+1]
		}
		if len(next.responses) != len(c.calls) {
			c.refuse("", "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
			continue
		}
		for k, call := range c.calls {
			r := next.responses[k]
			if r.get("name").text() != call.get("name").text() || r.get("id").text() != call.get("id").text() {
				r.refuse("", "Please ensure that the function response parts are those of the function calls: %s is not a response of %s", encode(r.value), encode(call.value))
			}
		}
	}
}

// geminiDummies stand for signatures of calls that the model did not make:
// https://ai.google.dev/gemini-api/docs/thought-signatures.
var geminiDummies = []string{"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}

// signatures checks that parts with a signature are those that were sent, and that the
// turn that the request continues has all of them.
func (d geminiDialect) signatures(all []geminiContent) {
	start := len(all)
	for start > 0 && (all[start-1].role == "model" || len(all[start-1].responses) > 0) {
		start--
	}
	for i, c := range all {
		turns := d.turnsOf(c)
		if i < start || len(c.parts) == 0 || c.role != "model" {
			continue
		}
		if want, got := d.reasoningOf(turns), geminiReasoning(c.parts); len(turns) > 0 && !slices.Equal(want, got) {
			c.refuse("", "%s: the thoughts and signatures of the turn differ from those that were sent", c.path)
		}
		if len(c.calls) > 0 && !geminiOld.MatchString(d.model) {
			at := slices.IndexFunc(c.parts, func(p node) bool { return p.get("functionCall").found })
			if c.parts[at].get("thoughtSignature").text() == "" {
				c.refuse("", "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:%s`, position %d.",
					c.calls[0].get("name").text(), i)
			}
		}
	}
}

// turnsOf returns the turns that a content repeats, in their order. It refuses a part
// whose signature does not belong to it.
func (d geminiDialect) turnsOf(c geminiContent) []*geminiTurn {
	var turns []*geminiTurn
	for _, p := range c.parts {
		signature := p.get("thoughtSignature").text()
		if signature == "" || slices.Contains(geminiDummies, signature) {
			continue
		}
		d.mu.Lock()
		t := d.signed[signature]
		same := t != nil && slices.ContainsFunc(t.parts, func(sent object) bool {
			return sent["thoughtSignature"] == signature && geminiCanonical(sent) == geminiCanonical(p.value)
		})
		d.mu.Unlock()
		if !same {
			p.refuse("", "Corrupted thought signature.")
		} else if !slices.Contains(turns, t) {
			turns = append(turns, t)
		}
	}
	return turns
}

// reasoningOf returns the thoughts and the signed parts of turns.
func (d geminiDialect) reasoningOf(turns []*geminiTurn) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, t := range turns {
		for _, p := range geminiJoined(t.parts) {
			if p["thought"] != nil || p["thoughtSignature"] != nil {
				all = append(all, geminiCanonical(p))
			}
		}
	}
	return all
}

func geminiReasoning(parts []node) []string {
	var all []string
	var objects []object
	for _, p := range parts {
		if o, ok := p.value.(object); ok {
			objects = append(objects, o)
		}
	}
	for _, o := range geminiJoined(objects) {
		if signature, _ := o["thoughtSignature"].(string); o["thought"] != nil || signature != "" && !slices.Contains(geminiDummies, signature) {
			all = append(all, geminiCanonical(o))
		}
	}
	return all
}

// geminiCanonical returns JSON in one spelling.
func geminiCanonical(v any) string {
	same, _ := decode(encode(v))
	return string(encode(same))
}
