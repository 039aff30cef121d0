package bedrock

import (
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
	ToolChoice *claude.Choice   `json:"tool_choice,omitempty"`
	Thinking   *claude.Thinking `json:"thinking,omitempty"`
	TopK       *int64           `json:"top_k,omitempty"`

	Reasoning *reasoningConfig `json:"reasoningConfig,omitempty"`
	Inference *novaInference   `json:"inferenceConfig,omitempty"`

	Effort string `json:"reasoning_effort,omitempty"`
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

	marks *wire.Marks
}

// Dropped implements model.Translator. It does not write the messages.
func (p *Provider) Dropped(req *model.Request) []string { return translate(req).Losses.Dropped() }

// maxMarkers is how many cache points a request may have.
const maxMarkers = 4

func translate(req *model.Request) *translation {
	t := &translation{req: req, traits: traitsOf(req.Model)}
	markers := 0
	if t.traits.caches {
		markers = maxMarkers
	}
	t.marks = wire.MarksOf(req, markers, &t.Losses)
	t.tools()
	t.messages()
	if t.marks.Mark(req.Cache) { // the whole prompt
		last := &t.Messages[len(t.Messages)-1]
		last.Content = append(last.Content, block{CachePoint: t.cachePoint(req.Cache)})
	}
	t.Inference = &inferenceConfig{MaxTokens: req.MaxTokens}
	t.Drop(wire.NameOf(req, wire.MemberEffort), !t.think())
	t.sample()
	t.stop()
	t.format()
	t.metadata()
	if tier := wire.Tier(req); tier != "" {
		t.Tier = &serviceTier{Type: tier}
	}
	t.DropSettings(req, "metadata", wire.TierMember)
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

// cachePoint returns a cache point.
func (t *translation) cachePoint(c *item.Cache) *cachePoint {
	p := &cachePoint{Type: "default"}
	if t.traits.cacheTTL {
		p.TTL = c.TTL
	} else {
		t.Drop("cache_control", c.TTL != "" && c.TTL != "5m") // the only lifetime
	}
	return p
}

// sample sets the sampling. The dialect's temperature ends at 1.
func (t *translation) sample() {
	req := t.req
	if t.traits.vendor == anthropicModel {
		s := t.traits.claude.Sample(req, t.Additional != nil && t.Additional.Thinking.IsOn(), &t.Losses)
		if t.Inference.Temperature, t.Inference.TopP = s.Temperature, s.TopP; s.TopK != nil {
			t.own().TopK = s.TopK
		}
		return
	}
	switch {
	case req.TopK == nil:
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
	t.Inference.TopP = req.TopP
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
		t.Drop(wire.NameOf(t.req, wire.MemberFormat), true)
		return
	}
	if f.Type != "json_schema" {
		return
	}
	schema, lost := claude.AnswerSchema(f.Schema)
	text := &textFormat{Type: "json_schema"}
	text.Structure.JSONSchema = jsonSchema{Name: f.Name, Description: f.Description, Schema: string(schema)}
	t.output().TextFormat = text
	t.DropSchema(t.req, lost)
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
	switch {
	case t.traits.vendor == anthropicModel:
		return t.thinkClaude()
	case !slices.Contains([]string{"", "none", "minimal", "low", "medium", "high", "xhigh", "max"}, effort):
		return false
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

// thinkClaude switches the thinking of a Claude model.
func (t *translation) thinkClaude() bool {
	p := t.traits.claude.Plan(t.req, t.forced(), model.DialectBedrock)
	if p.Thinking != nil {
		t.own().Thinking = p.Thinking
		if p.Thinking.BudgetTokens > 0 && t.req.MaxTokens <= 0 {
			t.Inference.MaxTokens = beforeThinking + p.Tokens
		}
	}
	if p.Effort != "" {
		t.output().Effort = p.Effort
	}
	return p.Exact
}

// withoutReasoning returns the request without the reasoning of earlier answers.
func (t *translation) withoutReasoning() *translation {
	req := *t.req
	req.Items = slices.DeleteFunc(slices.Clone(req.Items), func(it item.Item) bool { return it.Kind == item.Reasoning })
	return translate(&req)
}

// callIDs returns the ids of calls as the dialect takes them. Mistral's models take nine
// letters and digits.
func (t traits) callIDs() wire.CallIDs {
	if t.shortIDs {
		return wire.CallIDs{Length: 9, Allowed: func(r rune) bool { return wire.IsWord(r) && r != '_' && r != '-' }}
	}
	return wire.CallIDs{MaxLength: 64, Allowed: wire.IsWord}
}
