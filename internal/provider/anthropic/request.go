package anthropic

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// request is the body of POST /messages. The members stand in the order in which
// the provider's prompt cache reads them.
type request struct {
	Model         string            `json:"model"`
	MaxTokens     int               `json:"max_tokens"`
	Tools         []toolDefinition  `json:"tools,omitempty"`
	ToolChoice    *toolChoice       `json:"tool_choice,omitempty"`
	System        []json.RawMessage `json:"system,omitempty"`
	Messages      []message         `json:"messages"`
	Temperature   *float64          `json:"temperature,omitempty"`
	TopP          *float64          `json:"top_p,omitempty"`
	TopK          *int64            `json:"top_k,omitempty"`
	StopSequences []string          `json:"stop_sequences,omitempty"`
	Thinking      *thinking         `json:"thinking,omitempty"`
	OutputConfig  *outputConfig     `json:"output_config,omitempty"`
	Metadata      *metadata         `json:"metadata,omitempty"`
	Stream        bool              `json:"stream"`
}

type toolDefinition struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitempty"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitempty"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
	Display      string `json:"display,omitempty"`
}

type outputConfig struct {
	Effort string        `json:"effort,omitempty"`
	Format *outputFormat `json:"format,omitempty"`
}

type outputFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

type metadata struct {
	UserID string `json:"user_id"`
}

// encode writes a request. Equal requests give equal bytes.
func (p *Provider) encode(req *model.Request) ([]byte, error) {
	r, _ := p.translate(req)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Dropped implements model.Translator.
func (p *Provider) Dropped(req *model.Request) []string {
	_, dropped := p.translate(req)
	return dropped
}

// translate returns the request of this dialect, and the names of the client's
// members that it leaves out, sorted.
func (p *Provider) translate(req *model.Request) (request, []string) {
	r := request{Model: req.Model, MaxTokens: req.MaxTokens, Stream: true}
	if r.MaxTokens <= 0 {
		r.MaxTokens = p.o.MaxTokens
	}
	var dropped []string
	drop := func(name string, left bool) {
		if left {
			dropped = append(dropped, name)
		}
	}
	r.Tools, r.ToolChoice = tools(req)
	r.System, r.Messages = messages(req.Items)

	forced := r.ToolChoice != nil && (r.ToolChoice.Type == "any" || r.ToolChoice.Type == "tool")
	drop("reasoning_effort", !r.think(req, forced))
	if r.Thinking == nil || r.Thinking.Type == "disabled" {
		r.sample(req, drop)
	} else { // the provider refuses these together with thinking
		drop("temperature", req.Temperature != nil && *req.Temperature != 1)
		drop("top_p", req.TopP != nil && *req.TopP != 1)
		drop("top_k", req.TopK != nil)
	}
	r.StopSequences = slices.DeleteFunc(slices.Clone(req.Stop), func(s string) bool { return strings.TrimSpace(s) == "" })
	drop("stop", len(r.StopSequences) < len(req.Stop))
	if req.Format.Type == "json_schema" && len(req.Format.Schema) > 0 {
		r.output().Format = &outputFormat{Type: "json_schema", Schema: req.Format.Schema}
	}
	drop("response_format", req.Format.Type == "json_object" || req.Format.Type == "json_schema" && len(req.Format.Schema) == 0)
	if req.User != "" {
		r.Metadata = &metadata{UserID: req.User}
	}
	drop("metadata", len(req.Metadata) > 0)
	drop("seed", req.Seed != nil)
	drop("verbosity", req.Verbosity != "")
	drop("presence_penalty", req.PresencePenalty != nil && *req.PresencePenalty != 0)
	drop("frequency_penalty", req.FrequencyPenalty != nil && *req.FrequencyPenalty != 0)
	for _, param := range req.Params {
		drop(param.Name, !param.Typed)
	}
	slices.Sort(dropped)
	return r, slices.Compact(dropped)
}

func (r *request) output() *outputConfig {
	if r.OutputConfig == nil {
		r.OutputConfig = &outputConfig{}
	}
	return r.OutputConfig
}

// sample sets the sampling of a request without thinking. Newer models refuse
// temperature and top_p together; the dialect's temperature ends at 1.
func (r *request) sample(req *model.Request, drop func(string, bool)) {
	r.TopK = req.TopK
	if req.Temperature == nil {
		r.TopP = req.TopP
		return
	}
	t := min(*req.Temperature, 1)
	r.Temperature = &t
	drop("top_p", req.TopP != nil && *req.TopP != 1)
}

// budget is the number of tokens of thinking for each effort, for models that take a
// number. The dialect's minimum is 1,024.
func budget(effort string) int {
	switch effort {
	case "minimal":
		return 1024
	case "low":
		return 2048
	case "medium":
		return 8192
	case "high":
		return 16_384
	}
	return 32_768 // xhigh, max
}

const minBudget = 1024

// think switches thinking on or off as the effort says, and reports whether it
// could. A forced tool call excludes thinking.
func (r *request) think(req *model.Request, forced bool) bool {
	switch req.Effort {
	case "":
		return true
	case "none":
		r.Thinking = &thinking{Type: "disabled"}
		return true
	case "minimal", "low", "medium", "high", "xhigh", "max":
	default:
		return false
	}
	if forced {
		return false
	}
	if adaptive(req.Model) {
		effort := req.Effort
		if effort == "minimal" {
			effort = "low"
		}
		r.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
		r.output().Effort = effort
		return true
	}
	if !thinks(req.Items) {
		return false
	}
	tokens := min(budget(req.Effort), r.MaxTokens-1)
	if req.MaxTokens <= 0 { // nobody has limited the output: the budget is on top of it
		tokens = budget(req.Effort)
		r.MaxTokens += tokens
	}
	if tokens < minBudget {
		return false
	}
	r.Thinking = &thinking{Type: "enabled", BudgetTokens: tokens}
	return true
}

// thinks reports whether the transcript allows thinking with a number of tokens:
// an answer whose tool results come last must begin with its own thinking, which
// an answer of another provider does not.
func thinks(items []item.Item) bool {
	end := len(items)
	for end > 0 && items[end-1].Kind == item.ToolResult {
		end--
	}
	if end == len(items) || end == 0 {
		return true
	}
	first := items[item.TurnStart(items, end-1)]
	return first.Kind == item.Reasoning && native(first) != nil
}

var modelVersion = regexp.MustCompile(`claude-(?:[a-z]+-)*(\d+)(?:-(\d{1,2}))?(?:[^0-9]|$)`)

// adaptive reports whether a model decides by itself how much it thinks: those
// from Claude 4.6 on. Earlier ones take a number of tokens.
func adaptive(name string) bool {
	m := modelVersion.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major > 4 || major == 4 && minor >= 6
}

// tools returns the tools that the model may call, and how.
func tools(req *model.Request) ([]toolDefinition, *toolChoice) {
	var list []toolDefinition
	for _, t := range req.Tools {
		if req.ToolChoice.Only != nil && !slices.Contains(req.ToolChoice.Only, t.Name) {
			continue // the dialect has no choice among some of the tools
		}
		list = append(list, toolDefinition{Name: t.Name, Description: t.Description, InputSchema: schema(t.InputSchema)})
	}
	if list == nil {
		return nil, nil
	}
	var c toolChoice
	switch req.ToolChoice.Mode {
	case "none":
		c.Type = "none"
	case "required":
		c.Type = "any"
	case "named":
		c.Type, c.Name = "tool", req.ToolChoice.Name
	case "auto":
		c.Type = "auto"
	}
	if req.ParallelCalls != nil && !*req.ParallelCalls && c.Type != "none" {
		c.DisableParallel = true
		if c.Type == "" {
			c.Type = "auto"
		}
	}
	if c.Type == "" {
		return list, nil
	}
	return list, &c
}

// schema returns a tool's schema as the dialect takes it: an object without the
// mark of its JSON Schema version.
func schema(s json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(s, &members) != nil || members == nil {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	_, marked := members["$schema"]
	_, typed := members["type"]
	if !marked && typed {
		return s
	}
	delete(members, "$schema")
	if !typed {
		members["type"] = json.RawMessage(`"object"`)
	}
	out, err := json.Marshal(members)
	if err != nil {
		return s // it was decoded a moment ago: cannot happen
	}
	return out
}
