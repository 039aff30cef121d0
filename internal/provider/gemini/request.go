package gemini

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// request is the body of models.streamGenerateContent. What changes least stands first,
// for the provider's prompt cache.
type request struct {
	SystemInstruction *content          `json:"systemInstruction,omitempty"`
	Tools             []toolSet         `json:"tools,omitempty"`
	ToolConfig        *toolConfig       `json:"toolConfig,omitempty"`
	Contents          []content         `json:"contents"`
	GenerationConfig  *generationConfig `json:"generationConfig,omitempty"`
	ServiceTier       string            `json:"serviceTier,omitempty"` // flex, priority
}

// content is an entry of the conversation. Roles are user and model.
type content struct {
	Role  string `json:"role,omitempty"` // "" = the system instruction
	Parts []any  `json:"parts"`          // contentPart, and parts of the provider as JSON
}

type generationConfig struct {
	Temperature      *float64        `json:"temperature,omitempty"`
	TopP             *float64        `json:"topP,omitempty"`
	TopK             *int64          `json:"topK,omitempty"`
	MaxOutputTokens  int             `json:"maxOutputTokens,omitempty"` // including those of thoughts
	StopSequences    []string        `json:"stopSequences,omitempty"`
	Seed             *int64          `json:"seed,omitempty"`
	PresencePenalty  *float64        `json:"presencePenalty,omitempty"`
	FrequencyPenalty *float64        `json:"frequencyPenalty,omitempty"`
	ResponseMimeType string          `json:"responseMimeType,omitempty"`
	ResponseSchema   json.RawMessage `json:"responseJsonSchema,omitempty"`
	ThinkingConfig   *thinkingConfig `json:"thinkingConfig,omitempty"`
}

// maxStops is how many stop sequences the provider takes.
const maxStops = 5

// translation is a request of this dialect in the making. Its contents refer to the
// contents of the items; only wire.Body copies them.
type translation struct {
	request
	wire.Losses
	base   string // of the endpoint
	req    *model.Request
	rules  rules
	config generationConfig
}

// Dropped implements model.Translator. It does not write the contents.
func (p *Provider) Dropped(req *model.Request) []string { return p.translate(req).Losses.Dropped() }

func (p *Provider) translate(req *model.Request) *translation {
	t := &translation{base: p.base, req: req, rules: rulesOf(req.Model)}
	t.tools()
	t.contents()

	t.config.MaxOutputTokens = req.MaxTokens
	t.sample()
	t.format()
	t.Drop(wire.NameOf(req, wire.MemberEffort), !t.think())
	if !t.config.isZero() {
		t.GenerationConfig = &t.config
	}
	t.ServiceTier = wire.Tier(req)
	t.Drop("cache_control", req.CacheMarkers() > 0) // the provider caches by itself
	t.Drop("parallel_tool_calls", req.ParallelCalls != nil && !*req.ParallelCalls && len(t.Tools) > 0)
	t.DropSettings(req, "seed", "presence_penalty", "frequency_penalty", wire.TierMember)
	return t
}

// isZero reports whether the request says nothing of the generation.
func (c generationConfig) isZero() bool {
	out, err := json.Marshal(c)
	return err == nil && string(out) == "{}"
}

// sample sets the sampling.
func (t *translation) sample() {
	req, c := t.req, &t.config
	c.Temperature, c.TopP, c.TopK = req.Temperature, req.TopP, req.TopK
	c.PresencePenalty, c.FrequencyPenalty = req.PresencePenalty, req.FrequencyPenalty
	if req.Seed != nil && *req.Seed >= math.MinInt32 && *req.Seed <= math.MaxInt32 { // what the dialect has place for
		c.Seed = req.Seed
	}
	t.Drop("seed", req.Seed != nil && c.Seed == nil)
	c.StopSequences = slices.DeleteFunc(slices.Clone(req.Stop), func(s string) bool { return s == "" })
	c.StopSequences = c.StopSequences[:min(len(c.StopSequences), maxStops)]
	t.Drop("stop", len(c.StopSequences) < len(req.Stop))
}

// format sets the form of the answer. Models before Gemini 3 refuse it together with
// functions.
func (t *translation) format() {
	f := t.req.Format
	switch {
	case f.Type != "json_schema" && f.Type != "json_object":
		return
	case len(t.Tools) > 0 && !t.rules.formatWithTools:
		t.Drop(wire.NameOf(t.req, wire.MemberFormat), true)
		return
	}
	t.config.ResponseMimeType = "application/json"
	if f.Type == "json_object" || len(f.Schema) == 0 {
		t.Drop(wire.NameOf(t.req, wire.MemberFormat), f.Type == "json_schema")
		return
	}
	schema, lost := subset(f.Schema)
	t.config.ResponseSchema = schema
	t.DropSchema(t.req, lost)
}

// fileURI returns the URI of an uploaded file, whose name is such as files/abc.
func (t *translation) fileURI(name string) string { return t.base + "/" + name }
