package chat

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// asked is what the client wants of the answer's form.
type asked struct {
	stream       bool
	includeUsage bool
	dropped      []string // members that a run cannot carry
}

// uncarried are the members whose effect would be lost between the provider's
// answer and ours: they are left out and named, not passed on for nothing.
var uncarried = map[string]bool{
	"logprobs": true, "top_logprobs": true, "audio": true, "modalities": true,
	"functions": true, "function_call": true, // the old form of tools: a loop speaks the new one
}

// decode fills the request from a body's members; of a repeated member the last
// counts. What the loop does not interpret goes on to the provider as it is.
func decode(req *run.Request, members []member) (asked, error) {
	var a asked
	var messages json.RawMessage
	last := lastOfEach(members)
	for i, m := range members {
		if last[m.name] != i {
			continue
		}
		var err error
		switch m.name {
		case "model":
		case "messages":
			messages = m.value
		case "tools":
			req.ClientTools, err = decodeTools(m.value)
		case "tool_choice":
			req.ToolChoice = decodeToolChoice(m.value)
		case "stream":
			err = decodeInto(m, &a.stream)
		case "n":
			err = checkN(m)
		case "stream_options":
			var options struct {
				IncludeUsage bool `json:"include_usage"`
			}
			err = decodeInto(m, &options)
			a.includeUsage = options.IncludeUsage
			req.Params = append(req.Params, model.Param{Name: m.name, Value: m.value, Typed: true})
		default:
			if uncarried[m.name] && asksForSomething(m.value) {
				a.dropped = append(a.dropped, m.name)
				continue
			}
			req.Params = append(req.Params, model.Param{Name: m.name, Value: m.value, Typed: readOption(req, m)})
		}
		if err != nil {
			return a, err
		}
	}
	req.MaxTokens = outputLimit(req.Params)
	var err error
	req.Items, err = decodeMessages(messages)
	return a, err
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
func asksForSomething(value json.RawMessage) bool {
	switch string(value) {
	case "null", "false", "[]", `["text"]`:
		return false
	}
	return true
}

// lastOfEach returns where each name stands for the last time.
func lastOfEach(members []member) map[string]int {
	last := make(map[string]int, len(members))
	for i, m := range members {
		last[m.name] = i
	}
	return last
}

func decodeInto(m member, into any) error {
	if err := json.Unmarshal(m.value, into); err != nil {
		return fault.New(fault.Invalid, "invalid_type", "%s: %v", m.name, plain(err)).In(m.name)
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
		return fmt.Sprintf("%sa %s does not fit here", where, t.Value)
	}
	return err.Error()
}

// checkN refuses several answers: a loop has one.
func checkN(m member) error {
	var n *int
	if err := decodeInto(m, &n); err != nil {
		return err
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
}

type wireCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func decodeMessages(raw json.RawMessage) ([]item.Item, error) {
	var messages []json.RawMessage
	if err := json.Unmarshal(raw, &messages); raw == nil || err != nil || len(messages) == 0 {
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "messages must be an array with at least one message").In("messages")
	}
	items := make([]item.Item, 0, len(messages))
	turn := 0
	for i, m := range messages {
		at := fmt.Sprintf("messages[%d]", i)
		var w wireMessage
		if err := json.Unmarshal(m, &w); err != nil {
			return nil, fault.New(fault.Invalid, "invalid_type", "%s: %s", at, plain(err)).In(at)
		}
		if w.Role == "" {
			return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no role", at).In(at + ".role")
		}
		parts, err := decodeContent(w.Content)
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid_type", "%s.content: %s", at, plain(err)).In(at + ".content")
		}
		first := len(items)
		switch w.Role {
		case roleTool:
			items = append(items, item.Item{Kind: item.ToolResult, CallID: w.ToolCallID, Name: w.Name, Parts: parts})
		case item.Assistant:
			turn++
			items = w.appendAnswer(items, parts, turn)
		default:
			items = append(items, item.Item{Kind: item.Message, Role: w.Role, Name: w.Name, Parts: parts})
		}
		items[first].Native = item.Native{Dialect: Dialect, JSON: m}
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
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	} `json:"image_url"`
	InputAudio struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	} `json:"input_audio"`
	File struct {
		FileData string `json:"file_data"`
		FileID   string `json:"file_id"`
		Filename string `json:"filename"`
	} `json:"file"`
}

// decodeContent reads a string, null or an array of parts. Kinds that this
// version does not know stay in the item's native form.
func decodeContent(raw json.RawMessage) ([]item.Part, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '"' {
		var text string
		err := json.Unmarshal(raw, &text)
		return []item.Part{{Kind: item.Text, Text: text}}, err
	}
	var wire []wirePart
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, err
	}
	var parts []item.Part
	for _, p := range wire {
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
		}
	}
	return parts, nil
}

// wireTool is a tool of the client: a function, or a custom tool with a name.
type wireTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
	Custom struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"custom"`
}

func decodeTools(raw json.RawMessage) ([]model.Tool, error) {
	var natives []json.RawMessage
	if err := json.Unmarshal(raw, &natives); err != nil {
		return nil, fault.New(fault.Invalid, "invalid_type", "tools: %s", plain(err)).In("tools")
	}
	tools := make([]model.Tool, len(natives))
	for i, native := range natives {
		at := fmt.Sprintf("tools[%d]", i)
		var w wireTool
		if err := json.Unmarshal(native, &w); err != nil {
			return nil, fault.New(fault.Invalid, "invalid_type", "%s: %s", at, plain(err)).In(at)
		}
		def := tool.Definition{Name: w.Function.Name, Description: w.Function.Description, InputSchema: w.Function.Parameters}
		if w.Type == "custom" {
			def = tool.Definition{Name: w.Custom.Name, Description: w.Custom.Description}
		}
		tools[i] = model.Tool{Definition: def, Native: native}
	}
	return tools, nil
}

func decodeToolChoice(raw json.RawMessage) model.ToolChoice {
	choice := model.ToolChoice{Native: raw}
	if json.Unmarshal(raw, &choice.Mode) == nil {
		if string(raw) == "null" {
			return model.ToolChoice{}
		}
		return choice
	}
	var w wireChoice
	if json.Unmarshal(raw, &w) != nil {
		return choice // the provider's to refuse
	}
	if w.Type == "allowed_tools" {
		choice.Mode, choice.Only = w.Allowed.Mode, []string{}
		for _, t := range w.Allowed.Tools {
			choice.Only = append(choice.Only, t.Function.Name)
		}
		return choice
	}
	choice.Mode, choice.Name = "named", w.Function.Name+w.Custom.Name
	return choice
}

// wireChoice is a tool_choice that is an object: one tool, or some of them.
type wireChoice struct {
	wireTool
	Allowed struct {
		Mode  string     `json:"mode"`
		Tools []wireTool `json:"tools"`
	} `json:"allowed_tools"`
}
