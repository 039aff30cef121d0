package upstreamtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// geminiStyle writes tools[0].function_declarations as tools[0].functionDeclarations:
// the names of the JSON form.
type geminiStyle struct{}

func (geminiStyle) child(parent, name string) string { return openAIStyle{}.child(parent, name) }

func (geminiStyle) element(parent string, i int) string { return openAIStyle{}.element(parent, i) }

func (geminiStyle) missing(path string) refusal {
	return refusal{message: "* GenerateContentRequest." + path + ": is required"}
}

func (geminiStyle) unknown(parent, name string) refusal {
	at := ""
	if parent != "" {
		at = " at '" + parent + "'"
	}
	return refusal{message: fmt.Sprintf("Invalid JSON payload received. Unknown name %q%s: Cannot find field.", name, at)}
}

func (geminiStyle) wrongType(path, want string, got any) refusal {
	return refusal{message: fmt.Sprintf("Invalid value at '%s' (want %s), %s", path, want, encode(got))}
}

func (geminiStyle) notOneOf(path string, values []string, got string) refusal {
	return refusal{message: fmt.Sprintf("Invalid value at '%s' (one of %s), %q", path, strings.Join(values, ", "), got)}
}

func (geminiStyle) tooSmall(path string, least int64, got json.Number) refusal {
	return refusal{message: fmt.Sprintf("* GenerateContentRequest.%s: must be at least %d, not %s", path, least, got)}
}

func (geminiStyle) outside(path string, low, high float64, got json.Number) refusal {
	return refusal{message: fmt.Sprintf("* GenerateContentRequest.%s: must be in the range [%v, %v], not %s", path, low, high, got)}
}

func (geminiStyle) badName(path, pattern string) refusal {
	return refusal{message: fmt.Sprintf("* GenerateContentRequest.%s: [FieldPath] Invalid name; it must match %s", path, pattern)}
}

func (geminiStyle) tooLong(path string, most, _ int) refusal {
	return refusal{message: fmt.Sprintf("* GenerateContentRequest.%s: longer than %d", path, most)}
}

func (geminiStyle) empty(path string) refusal {
	return refusal{message: "* GenerateContentRequest." + path + ": must not be empty"}
}

// geminiOld are the models that do not check thought signatures and take a number of
// tokens of thinking.
var geminiOld = regexp.MustCompile(`gemini-[12]|gemma`)

// geminiFunction is what a function may be called.
var geminiFunction = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)

// proto returns an object with the names of its members in the JSON form. The API also
// takes the names of the protocol buffers.
func proto(n node) node {
	o, ok := n.value.(object)
	if !ok {
		return n
	}
	renamed := object{}
	for name, v := range o {
		if head, rest, ok := strings.Cut(name, "_"); ok {
			name = head
			for word := range strings.SplitSeq(rest, "_") {
				name += strings.ToUpper(word[:min(1, len(word))]) + word[min(1, len(word)):]
			}
		}
		renamed[name] = v
	}
	n.value = renamed
	return n
}

// check refuses what the API refuses. The rules are those of the reference at
// https://ai.google.dev/api/generate-content, of the pages on function calling and
// thought signatures, and of the errors that it is known to send.
func (d geminiDialect) check(_ http.Header, n node) {
	n = proto(n)
	n.known("contents", "tools", "toolConfig", "safetySettings", "systemInstruction", "generationConfig", "cachedContent", "serviceTier", "store", "labels")
	if system := proto(n.get("systemInstruction")); system.found {
		system.object()
		system.known("parts", "role")
		for _, p := range system.need("parts").list() {
			p = proto(p)
			p.object()
			p.known("text")
			if p.need("text").text() == "" {
				p.refuse("", "* GenerateContentRequest.%s.text: must not be empty", p.path)
			}
		}
	}
	for _, s := range n.get("safetySettings").list() {
		s.object()
		s.known("category", "threshold", "method")
	}
	functions := geminiTools(n.get("tools"))
	geminiToolConfig(proto(n.get("toolConfig")), functions)
	d.generation(proto(n.get("generationConfig")), len(functions) > 0)
	d.contents(n.need("contents"))
}

func (d geminiDialect) generation(n node, functions bool) {
	n.object()
	n.known("candidateCount", "stopSequences", "responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities", "maxOutputTokens",
		"temperature", "topP", "topK", "seed", "presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs", "thinkingConfig",
		"speechConfig", "imageConfig", "mediaResolution", "enableEnhancedCivicAnswers", "responseFormat")
	n.get("temperature").between(0, 2)
	n.get("topP").between(0, 1)
	n.get("topK").integer(1)
	n.get("maxOutputTokens").integer(1)
	n.get("presencePenalty").between(-2, 2)
	n.get("frequencyPenalty").between(-2, 2)
	if seed := n.get("seed"); seed.found {
		seed.between(-1<<31, 1<<31-1)
	}
	if stops := n.get("stopSequences").strings(); len(stops) > 5 {
		n.refuse("", "* GenerateContentRequest.generation_config.stop_sequences: at most 5 stop sequences are allowed")
	} else if slices.Contains(stops, "") {
		n.refuse("", "* GenerateContentRequest.generation_config.stop_sequences: must not be empty")
	}
	mime := n.get("responseMimeType").text()
	schema, jsonSchema := n.get("responseSchema"), n.get("responseJsonSchema")
	switch {
	case schema.found && jsonSchema.found:
		n.refuse("", "response_schema and response_json_schema cannot both be set")
	case (schema.found || jsonSchema.found) && mime != "application/json":
		n.refuse("", "* GenerateContentRequest.generation_config.response_schema: only allowed if the response_mime_type is application/json")
	case mime == "application/json" && functions && geminiOld.MatchString(d.model):
		n.refuse("", "Function calling with a response mime type: 'application/json' is unsupported")
	}
	jsonSchema.object()
	geminiSchema(jsonSchema)
	d.thinking(proto(n.get("thinkingConfig")))
}

func (d geminiDialect) thinking(n node) {
	if !n.found {
		return
	}
	n.object()
	n.known("includeThoughts", "thinkingBudget", "thinkingLevel")
	n.get("includeThoughts").boolean()
	budget, level := n.get("thinkingBudget"), n.get("thinkingLevel")
	old := geminiOld.MatchString(d.model)
	pro := strings.Contains(d.model, "-pro")
	if level.found {
		if s := strings.ToLower(level.text()); !slices.Contains([]string{"minimal", "low", "medium", "high"}, s) || s == "minimal" && pro {
			level.refuse("", "Invalid value at 'generation_config.thinking_config.thinking_level', %q", s)
		}
	}
	tokens := budget.integer(-1)
	switch {
	case budget.found && level.found:
		n.refuse("", "You can only set only one of thinking budget and thinking level.")
	case level.found && old:
		n.refuse("", "Thinking level is not supported for this model.")
	case budget.found && tokens == 0 && pro:
		n.refuse("", "Budget 0 is invalid. This model only works in thinking mode.")
	case budget.found && tokens > 32_768, budget.found && tokens > 24_576 && old && !pro:
		n.refuse("", "The thinking budget %d is invalid. Please choose a value between 0 and 24576.", tokens)
	}
}

// geminiTools returns the names of the functions. Tools that the provider runs itself
// are not looked into.
func geminiTools(n node) []string {
	var names []string
	for _, t := range n.list() {
		t = proto(t)
		t.object()
		t.known("functionDeclarations", "googleSearch", "googleSearchRetrieval", "codeExecution", "urlContext", "fileSearch", "computerUse", "googleMaps", "mcpServers")
		for _, f := range t.get("functionDeclarations").list() {
			f = proto(f)
			f.object()
			f.known("name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior")
			name := f.need("name").text()
			switch {
			case !geminiFunction.MatchString(name):
				f.refuse("", "* GenerateContentRequest.%s.name: [FieldPath] Invalid function name. Must start with a letter or an underscore.", f.path)
			case slices.Contains(names, name):
				f.refuse("", "Duplicate function declaration found: %s", name)
			case f.get("parameters").found && f.get("parametersJsonSchema").found:
				f.refuse("", "parameters and parameters_json_schema are mutually exclusive")
			}
			names = append(names, name)
			f.get("description").text()
			if schema := f.get("parametersJsonSchema"); schema.found {
				schema.object()
				if schema.get("type").value != "object" {
					schema.refuse("", "* GenerateContentRequest.%s: must describe an object", schema.path)
				}
				geminiSchema(schema)
			}
			geminiParameters(f.get("parameters"))
		}
	}
	return names
}

// geminiSchema refuses keywords of JSON Schema that the API does not list.
func geminiSchema(n node) {
	o, ok := n.value.(object)
	if !ok {
		return
	}
	n.known("$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems",
		"minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering")
	if o["$ref"] != nil {
		for name := range o {
			if !strings.HasPrefix(name, "$") {
				n.refuse("", "* GenerateContentRequest.%s: $ref must not have other members beside it", n.path)
			}
		}
	}
	for _, v := range n.get("enum").list() {
		switch v.value.(type) {
		case string, json.Number:
		default:
			v.refuse("", "* GenerateContentRequest.%s: enum takes strings and numbers", v.path)
		}
	}
	for _, name := range []string{"properties", "$defs"} {
		all := n.get(name)
		all.object()
		members, _ := all.value.(object)
		for _, key := range sortedKeys(members) {
			geminiSchema(all.get(key))
		}
	}
	for _, name := range []string{"items", "additionalProperties"} {
		geminiSchema(n.get(name))
	}
	for _, name := range []string{"prefixItems", "anyOf", "oneOf"} {
		for _, e := range n.get(name).list() {
			geminiSchema(e)
		}
	}
}

// geminiParameters refuses what the OpenAPI form of a schema does not have.
func geminiParameters(n node) {
	if !n.found {
		return
	}
	n.object()
	n.known("type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems", "properties", "required", "minProperties",
		"maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf", "propertyOrdering", "default", "items", "minimum", "maximum")
	n.get("type").text()
	all := n.get("properties")
	members, _ := all.value.(object)
	for _, key := range sortedKeys(members) {
		geminiParameters(all.get(key))
	}
	geminiParameters(n.get("items"))
}

func geminiToolConfig(n node, functions []string) {
	n.object()
	n.known("functionCallingConfig", "retrievalConfig", "includeServerSideToolInvocations")
	c := proto(n.get("functionCallingConfig"))
	if !c.found {
		return
	}
	c.object()
	c.known("mode", "allowedFunctionNames")
	mode := strings.ToUpper(c.get("mode").text())
	if !slices.Contains([]string{"", "MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"}, mode) {
		c.refuse("", "Invalid value at 'tool_config.function_calling_config.mode', %q", mode)
	}
	allowed := c.get("allowedFunctionNames").strings()
	switch {
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
		c = proto(c)
		c.object()
		c.known("role", "parts")
		content := geminiContent{node: c, role: c.get("role").text()}
		if !slices.Contains([]string{"", "user", "model"}, content.role) {
			c.refuse("", "Please use a valid role: user, model.")
		}
		content.parts = c.need("parts").list()
		if len(content.parts) == 0 {
			c.refuse("", "* GenerateContentRequest.%s.parts: contents.parts must not be empty.", c.path)
		}
		for i, p := range content.parts {
			p = proto(p)
			content.parts[i] = p
			geminiPart(p, content.role)
			if call := p.get("functionCall"); call.found {
				content.calls = append(content.calls, call)
			}
			if response := p.get("functionResponse"); response.found {
				content.responses = append(content.responses, proto(response))
			}
		}
		all = append(all, content)
	}
	if n.found && len(all) == 0 {
		n.refuse("", "* GenerateContentRequest.contents: contents is not specified")
	}
	geminiPaired(all)
	d.signatures(all)
}

// geminiPart checks a part. Those that only the provider writes are not looked into.
func geminiPart(p node, role string) {
	p.object()
	data := []string{"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
	p.known(append([]string{"thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution"}, data...)...)
	set := 0
	for _, name := range data {
		if p.get(name).found {
			set++
		}
	}
	if set != 1 {
		p.refuse("", "* GenerateContentRequest.%s.data: required oneof field 'data' must have one initialized field", p.path)
	}
	p.get("thought").boolean()
	signature := p.get("thoughtSignature").text()
	if text := p.get("text"); text.found && text.text() == "" && signature == "" {
		p.refuse("", "Unable to submit request because it has an empty text parameter. Add a value to the parameter and try again.")
	}
	geminiBlob(proto(p.get("inlineData")))
	if file := proto(p.get("fileData")); file.found {
		file.object()
		file.known("mimeType", "fileUri", "displayName")
		if uri := file.need("fileUri"); uri.found && !strings.HasPrefix(uri.text(), "https://") && !strings.HasPrefix(uri.text(), "http://127.0.0.1") {
			uri.refuse("", "Invalid or unsupported file uri: %s", uri.text())
		}
	}
	if call := p.get("functionCall"); call.found {
		call.object()
		call.known("id", "name", "args")
		call.get("id").text()
		call.need("name").text()
		call.get("args").object()
		if role != "model" {
			call.refuse("", "Please ensure that function call turn has the role model.")
		}
	}
	if response := proto(p.get("functionResponse")); response.found {
		response.object()
		response.known("id", "name", "response", "parts", "willContinue", "scheduling")
		response.get("id").text()
		response.need("name").text()
		response.need("response").object()
		for _, m := range response.get("parts").list() {
			m = proto(m)
			m.object()
			m.known("inlineData", "fileData")
			geminiBlob(proto(m.get("inlineData")))
		}
		if role == "model" {
			response.refuse("", "Please ensure that function response turn has the role user.")
		}
	}
}

func geminiBlob(n node) {
	if !n.found {
		return
	}
	n.object()
	n.known("mimeType", "data", "displayName")
	if mime := n.need("mimeType"); mime.found && mime.text() == "image/gif" {
		mime.refuse("", "Unsupported MIME type: image/gif")
	}
	if data := n.need("data"); data.found && !isBase64(data.text()) {
		data.refuse("", "Invalid value at '%s' (TYPE_BYTES), Base64 decoding failed", data.path)
	}
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
