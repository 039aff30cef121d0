package anthropic

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// request is the body of POST /messages. The members stand in the order in which
// the provider's prompt cache reads them.
type request struct {
	Model         string           `json:"model"`
	MaxTokens     int              `json:"max_tokens"`
	Tools         []toolDefinition `json:"tools,omitempty"`
	ToolChoice    *toolChoice      `json:"tool_choice,omitempty"`
	System        []any            `json:"system,omitempty"` // blocks
	Messages      []message        `json:"messages"`
	Temperature   *float64         `json:"temperature,omitempty"`
	TopP          *float64         `json:"top_p,omitempty"`
	TopK          *int64           `json:"top_k,omitempty"`
	StopSequences []string         `json:"stop_sequences,omitempty"`
	Thinking      *thinking        `json:"thinking,omitempty"`
	OutputConfig  *outputConfig    `json:"output_config,omitempty"`
	Metadata      *metadata        `json:"metadata,omitempty"`
	CacheControl  *cacheControl    `json:"cache_control,omitempty"`

	ContextManagement json.RawMessage `json:"context_management,omitempty"`

	Stream bool `json:"stream"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
	Display      string `json:"display,omitempty"`

	BlockBinding *blockBinding `json:"block_binding,omitempty"`
}

// blockBinding says what the provider does with thinking that it returned for
// another prompt.
type blockBinding struct {
	PrefixMismatchBehavior string `json:"prefix_mismatch_behavior"` // drop_block; the default is an error
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

// cacheControl marks the end of a part of the prompt that the provider caches.
type cacheControl struct {
	Type string `json:"type"` // ephemeral
	TTL  string `json:"ttl,omitempty"`
}

// maxMarkers is how many cache markers a request may have.
const maxMarkers = 4

// translation is a request of this dialect in the making. Its messages refer to the
// contents of the items; only wire.Body copies them.
type translation struct {
	request
	wire.Losses
	req   *model.Request
	rules claude.Rules

	unmarked int      // cache markers that are left out, the first ones
	betas    []string // values of the header anthropic-beta
}

// encode writes a request. The error is a *model.Error about a value that the dialect
// cannot take.
func (p *Provider) encode(req *model.Request) ([]byte, error) {
	t := p.translate(req)
	if t.Refused != nil {
		return nil, t.Refused
	}
	return wire.Body(t.request)
}

// Dropped implements model.Translator. It does not write the messages.
func (p *Provider) Dropped(req *model.Request) []string { return p.translate(req).Losses.Dropped() }

// beta adds a value to the header anthropic-beta.
func (t *translation) beta(name string) {
	if !slices.Contains(t.betas, name) {
		t.betas = append(t.betas, name)
	}
}

func (p *Provider) translate(req *model.Request) *translation {
	t := &translation{req: req, rules: claude.RulesOf(req.Model)}
	t.request = request{Model: req.Model, MaxTokens: req.MaxTokens, Stream: true}
	if t.MaxTokens <= 0 {
		t.MaxTokens = p.o.MaxTokens
	}
	t.unmarked = max(0, req.CacheMarkers()-maxMarkers)
	t.tools()
	t.messages()
	t.CacheControl = t.mark(req.Cache)
	t.editContext()

	t.Drop(req.NameOf(model.MemberEffort), !t.think())
	t.sample()
	t.StopSequences = slices.DeleteFunc(slices.Clone(req.Stop), func(s string) bool { return strings.TrimSpace(s) == "" })
	t.Drop("stop", len(t.StopSequences) < len(req.Stop))
	t.format()
	user := wire.EndUser(req)
	if user != "" {
		t.Metadata = &metadata{UserID: user}
	}
	t.Drop("metadata", len(req.Metadata) > 0)
	t.Drop("seed", req.Seed != nil)
	t.Drop(req.NameOf(model.MemberVerbosity), req.Verbosity != "")
	t.Drop("presence_penalty", req.PresencePenalty != nil && *req.PresencePenalty != 0)
	t.Drop("frequency_penalty", req.FrequencyPenalty != nil && *req.FrequencyPenalty != 0)
	for _, param := range req.Params {
		stored := param.Name == "store" && string(param.Value) == "false" // nothing is stored
		named := param.Name == "safety_identifier" && user != "" && req.User == ""
		t.Drop(param.Name, !param.Typed && !stored && !named)
	}
	return t
}

// editContext passes on how the provider shortens prompts that are too long.
func (t *translation) editContext() {
	if len(t.req.ContextEdits) == 0 {
		return
	}
	t.ContextManagement = t.req.ContextEdits
	for _, edit := range jsonscan.Elements(jsonscan.Member(t.req.ContextEdits, "edits")) {
		kind := jsonscan.Text(jsonscan.Member(edit, "type"))
		if date, is := strings.CutPrefix(kind, "compact_"); is && len(date) == len("20260112") {
			t.beta("compact-" + date[:4] + "-" + date[4:6] + "-" + date[6:])
		} else {
			t.beta(editingBeta)
		}
	}
}

// mark returns a cache marker, nil without one. Of too many the first are left out:
// a later one caches what is before it, too.
func (t *translation) mark(c *item.Cache) *cacheControl {
	if c == nil {
		return nil
	}
	if t.unmarked > 0 {
		t.unmarked--
		t.Drop("cache_control", true)
		return nil
	}
	return &cacheControl{Type: "ephemeral", TTL: c.TTL}
}

func (t *translation) output() *outputConfig {
	if t.OutputConfig == nil {
		t.OutputConfig = &outputConfig{}
	}
	return t.OutputConfig
}

// format sets the form of the answer. The dialect has none for just any JSON.
func (t *translation) format() {
	f := t.req.Format
	switch {
	case f.Type == "json_schema" && len(f.Schema) > 0 && !t.rules.NoSchema:
		schema, lost := claude.AnswerSchema(f.Schema)
		t.output().Format = &outputFormat{Type: "json_schema", Schema: schema}
		for _, name := range lost {
			t.Drop(t.req.NameOf(model.MemberSchema)+"."+name, true)
		}
	case f.Type == "json_schema", f.Type == "json_object":
		t.Drop(t.req.NameOf(model.MemberFormat), true)
	}
}

// sample sets the sampling. Models refuse it together with thinking, some of them
// always, and most of them temperature and top_p together. The dialect's temperature
// ends at 1.
func (t *translation) sample() {
	req := t.req
	differs := func(v *float64) bool { return v != nil && *v != 1 }
	if t.rules.NoSampling || t.Thinking != nil && t.Thinking.Type != "disabled" {
		t.Drop("temperature", differs(req.Temperature))
		t.Drop("top_p", differs(req.TopP))
		t.Drop("top_k", req.TopK != nil)
		return
	}
	t.TopK = req.TopK
	if req.Temperature == nil {
		t.TopP = req.TopP
		return
	}
	least := min(*req.Temperature, 1)
	t.Temperature = &least
	t.Drop("temperature", *req.Temperature > 1)
	t.Drop("top_p", differs(req.TopP))
}

// think switches thinking on or off as the effort says, and reports whether it
// could. A forced tool call excludes thinking.
func (t *translation) think() bool {
	effort := t.req.Effort
	switch effort {
	case "none":
		return t.thinkNot()
	case "":
		if t.rules.ThinksByDefault && !t.ToolChoice.forced() {
			t.thinkAdaptively("high") // the provider's default, with thoughts that can be read
		}
		return true
	case "minimal", "low", "medium", "high", "xhigh", "max":
	default:
		return false
	}
	switch {
	case t.ToolChoice.forced():
		return false
	case t.rules.Adaptive:
		t.thinkAdaptively(effort)
		sent := effort
		switch {
		case effort == "minimal": // the least that there is
			sent = "low"
		case effort == "xhigh" && !t.rules.Xhigh:
			sent = "high"
		}
		t.output().Effort = sent
		return sent == effort || effort == "minimal"
	case !thinks(t.req.Items):
		return false
	}
	tokens := claude.Budget(effort)
	if !t.extend(tokens) {
		tokens = min(tokens, t.MaxTokens-1)
	}
	if tokens < claude.MinBudget {
		return false
	}
	t.Thinking = &thinking{Type: "enabled", BudgetTokens: tokens}
	return true
}

// thinkNot switches thinking off, and reports whether it could.
func (t *translation) thinkNot() bool {
	if t.rules.AlwaysThinks {
		t.thinkAdaptively("low")
		t.output().Effort = "low" // the least that there is
		return false
	}
	if t.rules.Off != "" {
		t.Thinking = &thinking{Type: t.rules.Off}
	}
	return true
}

func (t *translation) thinkAdaptively(effort string) {
	t.extend(claude.Budget(effort))
	t.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
}

// extend raises the output limit by the tokens of thinking, which count as output,
// if the request sets no limit.
func (t *translation) extend(tokens int) bool {
	if t.req.MaxTokens > 0 {
		return false
	}
	t.MaxTokens += tokens
	return true
}

// thinks reports whether the transcript allows thinking with a number of tokens.
// Answers with tool results between them are one turn to the provider: the first
// of them must begin with its own thinking, which an answer of another provider
// does not. The later ones may have none.
func thinks(items []item.Item) bool {
	first := -1
	for i := len(items) - 1; i >= 0 && (items[i].Turn != 0 || items[i].Kind == item.ToolResult); i-- {
		if items[i].Turn != 0 {
			first = i
		}
	}
	return first < 0 || items[first].Kind == item.Reasoning && native(items[first]) != nil
}

// withoutOutdated returns the request with the provider asked to leave out thinking
// that is outdated. It only does so where it thinks adaptively, which it does by
// default; elsewhere the request has no thinking any more.
func (p *Provider) withoutOutdated(t *translation) *translation {
	if t.Thinking == nil {
		t.Thinking = &thinking{Type: "adaptive"}
	}
	if t.Thinking.Type != "adaptive" {
		req := *t.req
		req.Items = slices.DeleteFunc(slices.Clone(req.Items), func(it item.Item) bool { return it.Kind == item.Reasoning })
		return p.translate(&req)
	}
	t.Thinking.BlockBinding = &blockBinding{"drop_block"}
	t.beta(bindingBeta)
	return t
}
