package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// asked is what the client wants of the answer's form.
type asked struct {
	stream       bool
	includeUsage bool
	dropped      []string // members that a run cannot carry

	// native is the place of the first value that only a provider of this dialect
	// can get, such as a content part of an unknown kind; "" = there is none.
	native string

	maxTokens int64 // of one model call's output; 0 = no limit

	context surface.Context // what it says of prompts that are too long

	hosted []loop.HostedTool // the tools that answer its hosted tools

	required []file.Required // files that the run is to make
}

// needs notes that the value at a place cannot be translated: only a provider of this
// dialect can get it.
func (a *asked) needs(place string) {
	if a.native == "" {
		a.native = place
	}
}

// uncarried are members that change the provider's answer in a way that our answer
// cannot show. They are left out and named.
var uncarried = map[string]bool{
	"logprobs": true, "top_logprobs": true, "audio": true, "modalities": true,
	"functions": true, "function_call": true, // the old form of tools: a loop speaks the new one
}

// decode fills the request from a body's members; of a repeated member the last
// counts. What the loop does not interpret goes on to the provider as it is.
func decode(req *run.Request, members []surface.Member) (asked, error) {
	var a asked
	if err := checkIDs(members); err != nil {
		return a, err
	}
	var messages json.RawMessage
	last := lastOfEach(members)
	for i, m := range members {
		if last[m.Name] != i {
			continue
		}
		var err error
		switch m.Name {
		case "model", codeMember, roundsMember, permissionMember, sessionMember: // read by switches and continueSession
		case "messages":
			messages = m.Value
		case "tools":
			req.ClientTools, err = a.decodeTools(m.Value, surface.RunsCode(req))
		case "tool_choice":
			req.ToolChoice = a.decodeToolChoice(m.Value)
		case "stream":
			err = decodeInto(m, &a.stream)
		case "n":
			err = checkN(m, req)
		case filesMember:
			if given(m) {
				err = a.decodeRequired(req, m)
			}
		case searchMember:
			err = a.decodeSearch(req, m)
		case surface.ContextMember:
			err = a.decodeContext(req, m)
		case "stream_options":
			var options struct {
				IncludeUsage bool `json:"include_usage"`
			}
			err = decodeInto(m, &options)
			a.includeUsage = options.IncludeUsage
			req.Params = append(req.Params, model.Param{Name: m.Name, Value: m.Value, Typed: true})
		default:
			if uncarried[m.Name] && asksForSomething(m) {
				a.dropped = append(a.dropped, m.Name)
				continue
			}
			typed := readOption(req, m) || uncarried[m.Name] // with a value that means the same as none
			req.Params = append(req.Params, model.Param{Name: m.Name, Value: m.Value, Typed: typed})
		}
		if err != nil {
			return a, err
		}
	}
	a.maxTokens = outputLimit(req.Params)
	var err error
	if req.Items, err = a.decodeMessages(messages); err != nil {
		return a, err
	}
	if a.native != "" {
		err = surface.KeepRelaying(req, model.DialectChat, a.native, "chat completions")
	}
	return a, err
}

// decodeContext reads how prompts that are too long are shortened. A relay shortens none.
func (a *asked) decodeContext(req *run.Request, m surface.Member) (err error) {
	if a.context, err = surface.ReadContext(req, m.Value); err != nil || !a.context.Listed {
		return err
	}
	if req.Relay != nil {
		req.Params = append(req.Params, model.Param{Name: m.Name, Value: m.Value})
		return nil
	}
	a.dropped = append(a.dropped, a.context.Dropped...)
	return nil
}

// searchMember asks for a search of the web, and has its options.
const searchMember = "web_search_options"

// decodeSearch reads the options of the org's web_search. Without one they are the provider's.
func (a *asked) decodeSearch(req *run.Request, m surface.Member) error {
	h, ok := surface.HostedTool(req, builtin.HostedSearch)
	if !ok || !h.TakesOptions() || surface.SaysNothing(m) {
		req.Params = append(req.Params, model.Param{Name: m.Name, Value: m.Value, Typed: readOption(req, m)})
		return nil
	}
	if err := h.ReadOptions(m.Name, m.Value); err != nil {
		return err
	}
	a.hosted = append(a.hosted, h.HostedTool)
	return nil
}

// outputLimit returns how many tokens a model call may say, as the client put
// it; 0 = it did not.
func outputLimit(params []model.Param) int64 {
	limit := int64(0)
	for _, p := range params {
		var n int64
		if p.Name != "max_tokens" && p.Name != "max_completion_tokens" || json.Unmarshal(p.Value, &n) != nil || n <= 0 {
			continue
		}
		if limit == 0 || n < limit {
			limit = n
		}
	}
	return limit
}

// asksForSomething reports whether a member differs from leaving it out.
func asksForSomething(m surface.Member) bool {
	switch string(m.Value) {
	case "false", "0", `["text"]`:
		return false
	}
	return !surface.SaysNothing(m)
}

// lastOfEach returns the index of the last member of each name.
func lastOfEach(members []surface.Member) map[string]int {
	last := make(map[string]int, len(members))
	for i, m := range members {
		last[m.Name] = i
	}
	return last
}

func decodeInto(m surface.Member, into any) error {
	if err := json.Unmarshal(m.Value, into); err != nil {
		return fault.New(fault.Invalid, "invalid_type", "%s: %v", m.Name, plain(err)).In(m.Name)
	}
	return nil
}

// plain words a decoding error for somebody who does not know our types.
func plain(err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		where := ""
		if t.Field != "" {
			where = t.Field + ": "
		}
		return fmt.Sprintf("%sthe value must not be of the JSON type %s", where, t.Value)
	}
	return err.Error()
}

// checkN refuses several answers: a loop has one, and so has a translated relay.
func checkN(m surface.Member, req *run.Request) error {
	var n *int
	if err := decodeInto(m, &n); err != nil {
		return err
	}
	if n != nil && *n > 1 && !req.Targets[0].Relays(model.DialectChat) {
		return fault.New(fault.Invalid, "unsupported_value", "n = %d: the provider %s gives one answer to a request; ask for one", *n, req.Targets[0].Provider).In("n")
	}
	if n != nil && *n > 1 {
		return fault.New(fault.Invalid, "unsupported_value", "n = %d: the agent loop gives one answer; "+
			"ask for one, or switch the loop off for this request with the header turnpike-mcp-disabled: true", *n).In("n")
	}
	return nil
}

// roleTool is the role of a message that answers a tool call.
const roleTool item.Role = "tool"

// wireMessage is what the loop needs to know of a message.
type wireMessage struct {
	Role       item.Role       `json:"role"`
	Name       string          `json:"name"`
	Content    json.RawMessage `json:"content"`
	Refusal    string          `json:"refusal"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []wireCall      `json:"tool_calls"`
	Cache      *wireCache      `json:"cache_control"`

	// What only this dialect knows: spoken answers, and calls in their old form.
	Audio        json.RawMessage `json:"audio"`
	FunctionCall json.RawMessage `json:"function_call"`
}

// isNative reports whether only a provider of this dialect can get the message.
func (w wireMessage) isNative() bool {
	given := func(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }
	switch w.Role {
	case item.System, item.Developer, item.User, item.Assistant, roleTool:
		return given(w.Audio) || given(w.FunctionCall)
	}
	return true
}

type wireCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func (a *asked) decodeMessages(raw json.RawMessage) ([]item.Item, error) {
	var messages []json.RawMessage
	if err := json.Unmarshal(raw, &messages); raw == nil || err != nil || len(messages) == 0 {
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "messages must be an array with at least one message").In("messages")
	}
	items := make([]item.Item, 0, len(messages))
	turn := 0
	var answers answered
	for i, m := range messages {
		at := fmt.Sprintf("messages[%d]", i)
		var w wireMessage
		if err := json.Unmarshal(m, &w); err != nil {
			return nil, fault.New(fault.Invalid, "invalid_type", "%s: %s", at, plain(err)).In(at)
		}
		if w.Role == "" {
			return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no role", at).In(at + ".role")
		}
		for n, p := range surface.Elements(w.Content) {
			if err := surface.CheckNames(fmt.Sprintf("%s.content[%d]", at, n), p, partNames); err != nil {
				return nil, err
			}
		}
		parts, unknown, err := decodeContent(w.Content)
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid_type", "%s.content: %s", at, plain(err)).In(at + ".content")
		}
		custom := func(c wireCall) bool { return c.Type == "custom" }
		switch {
		case unknown >= 0:
			a.needs(fmt.Sprintf("%s.content[%d]", at, unknown))
		case w.isNative() || slices.ContainsFunc(w.ToolCalls, custom):
			a.needs(at)
		}
		w.Cache.cacheUpTo(parts)
		first := len(items)
		switch w.Role {
		case roleTool:
			again, err := answers.again(at, w.ToolCallID, parts)
			if err != nil {
				return nil, err
			}
			if again {
				continue
			}
			items = append(items, item.Item{Kind: item.ToolResult, CallID: w.ToolCallID, Name: w.Name, Parts: parts})
		case item.Assistant:
			turn++
			items = w.appendAnswer(items, parts, turn)
			for _, c := range w.ToolCalls {
				answers.call(c.ID)
			}
		default:
			items = append(items, item.Item{Kind: item.Message, Role: w.Role, Name: w.Name, Parts: parts})
		}
		items[first].Native = item.Native{Dialect: model.DialectChat, JSON: m}
	}
	return items, nil
}

// appendAnswer appends an assistant message: what it says, then its calls.
func (w wireMessage) appendAnswer(items []item.Item, parts []item.Part, turn int) []item.Item {
	if w.Refusal != "" {
		parts = append(parts, item.Part{Kind: item.Refusal, Text: w.Refusal})
	}
	if parts != nil || len(w.ToolCalls) == 0 {
		items = append(items, item.Item{Kind: item.Message, Turn: turn, Role: item.Assistant, Name: w.Name, Parts: parts})
	}
	for _, c := range w.ToolCalls {
		call := item.NewCall(c.ID, c.Function.Name, c.Function.Arguments)
		call.Turn = turn
		items = append(items, call)
	}
	return items
}

// wirePart is one element of a content array.
type wirePart struct {
	Type       string    `json:"type"`
	Text       string    `json:"text"`
	Refusal    string    `json:"refusal"`
	ImageURL   wireImage `json:"image_url"`
	InputAudio struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	} `json:"input_audio"`
	File struct {
		FileData string `json:"file_data"`
		FileID   string `json:"file_id"`
		Filename string `json:"filename"`
	} `json:"file"`
	Cache *wireCache `json:"cache_control"`
}

// wireImage is where an image is: {"url":"…"}, or the URL alone, as in the dialect of
// Mistral.
type wireImage struct {
	URL    string `json:"url"`
	Detail string `json:"detail"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *wireImage) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &w.URL)
	}
	type object wireImage
	return json.Unmarshal(data, (*object)(w))
}

// wireCache is a marker for a provider's prompt cache, as many clients of the
// dialect write it: on a part, on a message for its last part, on a tool, or on the
// request.
type wireCache struct {
	TTL string `json:"ttl"`
}

func (w *wireCache) marker() *item.Cache {
	if w == nil {
		return nil
	}
	return &item.Cache{TTL: w.TTL}
}

// cacheUpTo marks the last part, unless it has a marker.
func (w *wireCache) cacheUpTo(parts []item.Part) {
	if last := len(parts) - 1; w != nil && last >= 0 && parts[last].Cache == nil {
		parts[last].Cache = w.marker()
	}
}

// decodeContent reads a string, null or an array of parts. Kinds that this
// version does not know stay in the item's native form: unknown is the index of
// the first one, -1 if there is none.
func decodeContent(raw json.RawMessage) (parts []item.Part, unknown int, err error) {
	unknown = -1
	if len(raw) == 0 || string(raw) == "null" {
		return nil, unknown, nil
	}
	if raw[0] == '"' {
		var text string
		err := json.Unmarshal(raw, &text)
		return []item.Part{{Kind: item.Text, Text: text}}, unknown, err
	}
	var wire []wirePart
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, unknown, err
	}
	for i, p := range wire {
		known := len(parts)
		switch p.Type {
		case "text":
			parts = append(parts, item.Part{Kind: item.Text, Text: p.Text})
		case "refusal":
			parts = append(parts, item.Part{Kind: item.Refusal, Text: p.Refusal})
		case "image_url":
			parts = append(parts, item.Part{Kind: item.Image, URL: p.ImageURL.URL, Detail: p.ImageURL.Detail})
		case "input_audio":
			parts = append(parts, item.Part{Kind: item.Audio, Data: p.InputAudio.Data, MIMEType: "audio/" + p.InputAudio.Format})
		case "file":
			parts = append(parts, item.Part{Kind: item.File, Data: p.File.FileData, FileID: p.File.FileID, Name: p.File.Filename})
		default:
			if unknown < 0 {
				unknown = i
			}
		}
		p.Cache.cacheUpTo(parts[known:])
	}
	return parts, unknown, nil
}

// wireTool is a tool of the client: a function, or a custom tool with a name.
type wireTool struct {
	Type     string     `json:"type"`
	Cache    *wireCache `json:"cache_control"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"function"`
	Custom struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"custom"`
}

// runsCode says that the gateway has the tool that code_interpreter asks for.
func (a *asked) decodeTools(raw json.RawMessage, runsCode bool) ([]model.Tool, error) {
	var natives []json.RawMessage
	if err := json.Unmarshal(raw, &natives); err != nil {
		return nil, fault.New(fault.Invalid, "invalid_type", "tools: %s", plain(err)).In("tools")
	}
	tools := make([]model.Tool, 0, len(natives))
	for i, native := range natives {
		at := fmt.Sprintf("tools[%d]", i)
		if runsCode && isCodeTool(native) {
			if err := checkCodeTool(at, native); err != nil {
				return nil, err
			}
			continue
		}
		if err := surface.CheckNames(at, native, toolNames); err != nil {
			return nil, err
		}
		var w wireTool
		if err := json.Unmarshal(native, &w); err != nil {
			return nil, fault.New(fault.Invalid, "invalid_type", "%s: %s", at, plain(err)).In(at)
		}
		def := tool.Definition{Name: w.Function.Name, Description: w.Function.Description, InputSchema: w.Function.Parameters}
		if w.Type != "function" && w.Type != "" {
			a.needs(at)
		}
		if w.Type == "custom" {
			def = tool.Definition{Name: w.Custom.Name, Description: w.Custom.Description}
		}
		tools = append(tools, model.Tool{Definition: def, Strict: w.Function.Strict, Cache: w.Cache.marker(), Native: native})
	}
	return tools, nil
}

func (a *asked) decodeToolChoice(raw json.RawMessage) model.ToolChoice {
	choice := model.ToolChoice{Native: raw}
	if json.Unmarshal(raw, &choice.Mode) == nil {
		switch {
		case string(raw) == "null":
			return model.ToolChoice{}
		case choice.Mode != model.ChooseAuto && choice.Mode != model.ChooseNone && choice.Mode != model.ChooseRequired:
			a.needs("tool_choice")
		}
		return choice
	}
	var w wireChoice
	if json.Unmarshal(raw, &w) != nil {
		a.needs("tool_choice")
		return choice // the provider's to refuse
	}
	if w.Type == "allowed_tools" {
		choice.Mode, choice.Only = w.Allowed.Mode, []string{}
		for _, t := range w.Allowed.Tools {
			choice.Only = append(choice.Only, t.Function.Name+t.Custom.Name)
		}
		if choice.Mode != model.ChooseAuto && choice.Mode != model.ChooseRequired || slices.Contains(choice.Only, "") {
			a.needs("tool_choice")
		}
		return choice
	}
	choice.Mode, choice.Name = model.ChooseNamed, w.Function.Name+w.Custom.Name
	if choice.Name == "" || w.Type != "" && w.Type != "function" && w.Type != "custom" {
		a.needs("tool_choice")
	}
	return choice
}

// wireChoice is a tool_choice that is an object: one tool, or some of them.
type wireChoice struct {
	wireTool
	Allowed struct {
		Mode  model.ToolChoiceMode `json:"mode"`
		Tools []wireTool           `json:"tools"`
	} `json:"allowed_tools"`
}
