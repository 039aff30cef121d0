package bedrock

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// request is the body of both operations. The members stand in the order in which the
// provider's prompt cache reads them. The model is in the path.
type request struct {
	ToolConfig *toolConfig       `json:"toolConfig,omitempty"`
	System     []block           `json:"system,omitempty"`
	Messages   []message         `json:"messages"`
	Inference  *inferenceConfig  `json:"inferenceConfig,omitempty"`
	Output     *outputConfig     `json:"outputConfig,omitempty"`
	Metadata   map[string]string `json:"requestMetadata,omitempty"`
	Tier       *serviceTier      `json:"serviceTier,omitempty"`
	// Additional are members of the model's own API.
	Additional *additional `json:"additionalModelRequestFields,omitempty"`
}

type inferenceConfig struct {
	MaxTokens     int      `json:"maxTokens,omitempty"`
	Temperature   *float64 `json:"temperature,omitempty"`
	TopP          *float64 `json:"topP,omitempty"`
	StopSequences []string `json:"stopSequences,omitempty"`
}

type outputConfig struct {
	Effort     string      `json:"effort,omitempty"`
	TextFormat *textFormat `json:"textFormat,omitempty"`
}

type textFormat struct {
	Type      string `json:"type"` // json_schema
	Structure struct {
		JSONSchema jsonSchema `json:"jsonSchema"`
	} `json:"structure"`
}

type jsonSchema struct {
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	Schema      string `json:"schema"` // JSON as a text
}

// additional are the members of models' own APIs: those of Claude, then those of Nova,
// then those of gpt-oss.
type additional struct {
	ToolChoice *claudeChoice `json:"tool_choice,omitempty"`
	Thinking   *thinking     `json:"thinking,omitempty"`
	TopK       *int64        `json:"top_k,omitempty"`

	Reasoning *reasoningConfig `json:"reasoningConfig,omitempty"`
	Inference *novaInference   `json:"inferenceConfig,omitempty"`

	Effort string `json:"reasoning_effort,omitempty"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
	Display      string `json:"display,omitempty"`
}

type reasoningConfig struct {
	Type   string `json:"type"` // enabled, disabled
	Effort string `json:"maxReasoningEffort,omitempty"`
}

type novaInference struct {
	TopK int64 `json:"topK"`
}

// beforeThinking is how many tokens beside those of thinking are asked for where the
// request sets no limit: thinking with a number of tokens needs a higher one.
const beforeThinking = 8192

// translation is a request of this dialect in the making. Its messages refer to the
// contents of the items; only wire.Body copies them.
type translation struct {
	request
	wire.Losses
	req    *model.Request
	traits traits

	unmarked int // cache markers that are left out, the first ones
}

// encode writes a request. The error is a *model.Error about a value that the dialect
// cannot take.
func (p *Provider) encode(req *model.Request) ([]byte, error) {
	t := translate(req)
	if t.Refused != nil {
		return nil, t.Refused
	}
	return wire.Body(t.request)
}

// Dropped implements model.Translator. It does not write the messages.
func (p *Provider) Dropped(req *model.Request) []string { return translate(req).Losses.Dropped() }

// maxMarkers is how many cache points a request may have.
const maxMarkers = 4

func translate(req *model.Request) *translation {
	t := &translation{req: req, traits: traitsOf(req.Model)}
	t.unmarked = max(0, req.CacheMarkers()-maxMarkers)
	t.tools()
	t.messages()
	if mark := t.mark(req.Cache); mark != nil { // the whole prompt
		last := &t.Messages[len(t.Messages)-1]
		last.Content = append(last.Content, *mark)
	}
	t.Inference = &inferenceConfig{MaxTokens: req.MaxTokens}
	t.Drop(req.NameOf(model.MemberEffort), !t.think())
	t.sample()
	t.stop()
	t.format()
	t.metadata()
	if tier := wire.Tier(req); tier != "" {
		t.Tier = &serviceTier{Type: tier}
	}
	t.Drop("user", req.User != "")
	t.Drop("seed", req.Seed != nil)
	t.Drop(req.NameOf(model.MemberVerbosity), req.Verbosity != "")
	t.Drop("presence_penalty", req.PresencePenalty != nil && *req.PresencePenalty != 0)
	t.Drop("frequency_penalty", req.FrequencyPenalty != nil && *req.FrequencyPenalty != 0)
	for _, param := range req.Params {
		stored := param.Name == "store" && string(param.Value) == "false" // nothing is stored
		tier := param.Name == "service_tier" && wire.Tier(req) != ""
		t.Drop(param.Name, !param.Typed && !stored && !tier)
	}
	if t.Inference.empty() {
		t.Inference = nil
	}
	return t
}

func (c *inferenceConfig) empty() bool {
	return c.MaxTokens == 0 && c.Temperature == nil && c.TopP == nil && len(c.StopSequences) == 0
}

// own returns the members of the model's own API.
func (t *translation) own() *additional {
	if t.Additional == nil {
		t.Additional = &additional{}
	}
	return t.Additional
}

func (t *translation) output() *outputConfig {
	if t.Output == nil {
		t.Output = &outputConfig{}
	}
	return t.Output
}

// mark returns a cache point, nil without one. Of too many the first are left out: a later
// one caches what is before it, too.
func (t *translation) mark(c *item.Cache) *block {
	switch {
	case c == nil:
		return nil
	case t.unmarked > 0:
		t.unmarked--
		fallthrough
	case !t.traits.caches:
		t.Drop("cache_control", true)
		return nil
	}
	p := &cachePoint{Type: "default"}
	if t.traits.cacheTTL {
		p.TTL = c.TTL
	} else {
		t.Drop("cache_control", c.TTL != "" && c.TTL != "5m") // the only lifetime
	}
	return &block{CachePoint: p}
}

// sample sets the sampling. Claude models refuse it together with thinking, some of them
// always, and most of them temperature and top_p together. The dialect's temperature ends
// at 1.
func (t *translation) sample() {
	req := t.req
	differs := func(v *float64) bool { return v != nil && *v != 1 }
	isClaude := t.traits.vendor == anthropicModel
	if isClaude && (t.traits.claude.NoSampling || t.thinks()) {
		t.Drop("temperature", differs(req.Temperature))
		t.Drop("top_p", differs(req.TopP))
		t.Drop("top_k", req.TopK != nil)
		return
	}
	switch {
	case req.TopK == nil:
	case isClaude:
		t.own().TopK = req.TopK
	case t.traits.vendor == novaModel:
		t.own().Inference = &novaInference{TopK: *req.TopK}
	default:
		t.Drop("top_k", true)
	}
	if req.Temperature != nil {
		least := min(*req.Temperature, 1)
		t.Inference.Temperature = &least
		t.Drop("temperature", *req.Temperature > 1)
	}
	if isClaude && req.Temperature != nil {
		t.Drop("top_p", differs(req.TopP))
		return
	}
	t.Inference.TopP = req.TopP
}

// thinks reports whether the request switches the thinking of a Claude model on.
func (t *translation) thinks() bool {
	return t.Additional != nil && t.Additional.Thinking != nil && t.Additional.Thinking.Type != "disabled"
}

// stop sets the texts that end the answer. Claude models refuse white space.
func (t *translation) stop() {
	for _, s := range t.req.Stop {
		if s == "" || t.traits.vendor == anthropicModel && strings.TrimSpace(s) == "" {
			t.Drop("stop", true)
			continue
		}
		t.Inference.StopSequences = append(t.Inference.StopSequences, s)
	}
}

// format sets the form of the answer. The dialect has none for just any JSON.
func (t *translation) format() {
	f := t.req.Format
	if f.Type == "json_object" || f.Type == "json_schema" && (len(f.Schema) == 0 || !t.traits.schema) {
		t.Drop(t.req.NameOf(model.MemberFormat), true)
		return
	}
	if f.Type != "json_schema" {
		return
	}
	schema, lost := claude.AnswerSchema(f.Schema)
	text := &textFormat{Type: "json_schema"}
	text.Structure.JSONSchema = jsonSchema{Name: f.Name, Description: f.Description, Schema: string(schema)}
	t.output().TextFormat = text
	for _, name := range lost {
		t.Drop(t.req.NameOf(model.MemberSchema)+"."+name, true)
	}
}

// The limits on metadata, which Bedrock writes to its log of invocations:
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
const maxMetadata = 16

var (
	metadataKey   = regexp.MustCompile(`^[a-zA-Z0-9\s:_@$#=/+,.-]{1,256}$`)
	metadataValue = regexp.MustCompile(`^[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}$`)
)

// metadata sets the metadata if the provider takes all of it.
func (t *translation) metadata() {
	taken := len(t.req.Metadata) <= maxMetadata
	for k, v := range t.req.Metadata {
		taken = taken && metadataKey.MatchString(k) && metadataValue.MatchString(v)
	}
	if taken {
		t.Metadata = t.req.Metadata
	}
	t.Drop("metadata", !taken)
}

// think switches reasoning on or off as the effort says, and reports whether it could.
func (t *translation) think() bool {
	effort := t.req.Effort
	switch effort {
	case "", "none", "minimal", "low", "medium", "high", "xhigh", "max":
	default:
		return false
	}
	switch {
	case t.traits.vendor == anthropicModel:
		return t.thinkClaude(effort)
	case effort == "":
		return true
	case t.traits.reasoning:
		return t.thinkNova(effort)
	case t.traits.vendor == openaiModel:
		return t.thinkOpenAI(effort)
	}
	return effort == "none" && t.traits.vendor != unknownVendor
}

// thinkNova switches the reasoning of Nova. It refuses a limit and sampling together with
// its highest effort.
func (t *translation) thinkNova(effort string) bool {
	c := &reasoningConfig{Type: "enabled", Effort: effort}
	bounded := t.req.MaxTokens > 0 || t.req.Temperature != nil || t.req.TopP != nil
	exact := true
	switch effort {
	case "none":
		c = &reasoningConfig{Type: "disabled"}
	case "minimal": // the least that there is
		c.Effort = "low"
	case "high", "xhigh", "max":
		exact = effort == "high" && !bounded
		if c.Effort = "high"; bounded {
			c.Effort = "medium"
		}
	}
	t.own().Reasoning = c
	return exact
}

// thinkOpenAI sets the effort of gpt-oss, which always reasons.
func (t *translation) thinkOpenAI(effort string) bool {
	sent := effort
	switch effort {
	case "none", "minimal":
		sent = "low"
	case "xhigh", "max":
		sent = "high"
	}
	t.own().Effort = sent
	return sent == effort || effort == "minimal"
}

// thinkClaude switches the thinking of a Claude model. A forced tool call excludes
// thinking.
func (t *translation) thinkClaude(effort string) bool {
	rules := t.traits.claude
	forced := t.forced()
	switch {
	case effort == "none":
		return t.thinkNot()
	case effort == "":
		if rules.ThinksByDefault && !forced {
			t.thinkAdaptively() // as by default, with thoughts that can be read
		}
		return true
	case forced:
		return false
	case rules.Adaptive:
		t.thinkAdaptively()
		sent := effort
		switch {
		case effort == "minimal": // the least that there is
			sent = "low"
		case effort == "xhigh" && !rules.Xhigh:
			sent = "high"
		}
		t.output().Effort = sent
		return sent == effort || effort == "minimal"
	case !continuesThinking(t.req.Items):
		return false
	}
	tokens := claude.Budget(effort)
	if t.req.MaxTokens > 0 {
		tokens = min(tokens, t.req.MaxTokens-1)
	} else {
		t.Inference.MaxTokens = beforeThinking + tokens
	}
	if tokens < claude.MinBudget {
		return false
	}
	t.own().Thinking = &thinking{Type: "enabled", BudgetTokens: tokens}
	return true
}

// thinkNot switches thinking off, and reports whether it could.
func (t *translation) thinkNot() bool {
	rules := t.traits.claude
	if rules.AlwaysThinks {
		t.thinkAdaptively()
		t.output().Effort = "low" // the least that there is
		return false
	}
	if rules.Off != "" {
		t.own().Thinking = &thinking{Type: rules.Off}
	}
	return true
}

func (t *translation) thinkAdaptively() {
	t.own().Thinking = &thinking{Type: "adaptive", Display: "summarized"}
}

// continuesThinking reports whether the transcript allows thinking with a number of
// tokens. Answers with tool results between them are one turn to the model: the first of
// them must begin with its own thinking, which an answer of another provider does not.
func continuesThinking(items []item.Item) bool {
	first := -1
	for i := len(items) - 1; i >= 0 && (items[i].Turn != 0 || items[i].Kind == item.ToolResult); i-- {
		if items[i].Turn != 0 {
			first = i
		}
	}
	return first < 0 || items[first].Kind == item.Reasoning && native(&items[first]) != nil
}

// withoutReasoning returns the request without the reasoning of earlier answers.
func (t *translation) withoutReasoning() *translation {
	req := *t.req
	req.Items = slices.DeleteFunc(slices.Clone(req.Items), func(it item.Item) bool { return it.Kind == item.Reasoning })
	return translate(&req)
}

// native returns the block as this dialect wrote it; nil if it did not.
func native(it *item.Item) json.RawMessage {
	if it.Native.Dialect != model.DialectBedrock {
		return nil
	}
	return it.Native.JSON
}

// callIDs returns the ids of calls as the dialect takes them. Mistral's models take nine
// letters and digits.
func (t traits) callIDs() wire.CallIDs {
	if t.shortIDs {
		return wire.CallIDs{Length: 9, Allowed: func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }}
	}
	return wire.CallIDs{MaxLength: 64, Allowed: func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}}
}
