package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

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
	Stream        bool             `json:"stream"`
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
// contents of the items; only body copies them.
type translation struct {
	request
	req   *model.Request
	rules rules

	dropped  []string // names of what is left out
	hidden   []string // tools of the gateway that are not offered
	unmarked int      // cache markers that are left out, the first ones
	betas    []string // values of the header anthropic-beta
	refused  *model.Error
}

// encode writes a request. Equal requests give equal bytes. The error is a
// *model.Error about a value that the dialect cannot take.
func (p *Provider) encode(req *model.Request) ([]byte, error) {
	t := p.translate(req)
	if t.refused != nil {
		return nil, t.refused
	}
	return t.body()
}

func (t *translation) body() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(t.request); err != nil {
		return nil, &model.Error{Class: model.Invalid, Message: "the request cannot be written as JSON", Err: err}
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Dropped implements model.Translator. It does not write the messages.
func (p *Provider) Dropped(req *model.Request) []string {
	t := p.translate(req)
	slices.Sort(t.dropped)
	return slices.Compact(t.dropped)
}

// drop notes the name of something that is left out or changed.
func (t *translation) drop(name string, left bool) {
	if left {
		t.dropped = append(t.dropped, name)
	}
}

// beta adds a value to the header anthropic-beta.
func (t *translation) beta(name string) {
	if !slices.Contains(t.betas, name) {
		t.betas = append(t.betas, name)
	}
}

// refuse notes a value that the dialect cannot take. The first one counts.
// Another provider may take it.
func (t *translation) refuse(param, message string) {
	if t.refused == nil {
		t.refused = &model.Error{Class: model.Target, Param: param, Message: param + ": " + message}
	}
}

func (p *Provider) translate(req *model.Request) *translation {
	t := &translation{req: req, rules: rulesOf(req.Model)}
	t.request = request{Model: req.Model, MaxTokens: req.MaxTokens, Stream: true}
	if t.MaxTokens <= 0 {
		t.MaxTokens = p.o.MaxTokens
	}
	t.unmarked = max(0, req.CacheMarkers()-maxMarkers)
	t.tools()
	t.messages()
	t.CacheControl = t.mark(req.Cache)

	t.drop(req.NameOf(model.MemberEffort), !t.think())
	t.sample()
	t.StopSequences = slices.DeleteFunc(slices.Clone(req.Stop), func(s string) bool { return strings.TrimSpace(s) == "" })
	t.drop("stop", len(t.StopSequences) < len(req.Stop))
	t.format()
	if req.User != "" {
		t.Metadata = &metadata{UserID: req.User}
	}
	t.drop("metadata", len(req.Metadata) > 0)
	t.drop("seed", req.Seed != nil)
	t.drop(req.NameOf(model.MemberVerbosity), req.Verbosity != "")
	t.drop("presence_penalty", req.PresencePenalty != nil && *req.PresencePenalty != 0)
	t.drop("frequency_penalty", req.FrequencyPenalty != nil && *req.FrequencyPenalty != 0)
	for _, param := range req.Params {
		stored := param.Name == "store" && string(param.Value) == "false" // nothing is stored
		t.drop(param.Name, !param.Typed && !stored)
	}
	return t
}

// mark returns a cache marker, nil without one. Of too many the first are left out:
// a later one caches what is before it, too.
func (t *translation) mark(c *item.Cache) *cacheControl {
	if c == nil {
		return nil
	}
	if t.unmarked > 0 {
		t.unmarked--
		t.drop("cache_control", true)
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
	case f.Type == "json_schema" && len(f.Schema) > 0 && !t.rules.noSchema:
		schema, lost := answerSchema(f.Schema)
		t.output().Format = &outputFormat{Type: "json_schema", Schema: schema}
		for _, name := range lost {
			t.drop(t.req.NameOf(model.MemberSchema)+"."+name, true)
		}
	case f.Type == "json_schema", f.Type == "json_object":
		t.drop(t.req.NameOf(model.MemberFormat), true)
	}
}

// sample sets the sampling. Models refuse it together with thinking, some of them
// always, and most of them temperature and top_p together. The dialect's temperature
// ends at 1.
func (t *translation) sample() {
	req := t.req
	differs := func(v *float64) bool { return v != nil && *v != 1 }
	if t.rules.noSampling || t.Thinking != nil && t.Thinking.Type != "disabled" {
		t.drop("temperature", differs(req.Temperature))
		t.drop("top_p", differs(req.TopP))
		t.drop("top_k", req.TopK != nil)
		return
	}
	t.TopK = req.TopK
	if req.Temperature == nil {
		t.TopP = req.TopP
		return
	}
	least := min(*req.Temperature, 1)
	t.Temperature = &least
	t.drop("temperature", *req.Temperature > 1)
	t.drop("top_p", differs(req.TopP))
}

// budget is the number of tokens of thinking for each effort, for models that take a
// number. The dialect's minimum is 1,024.
func budget(effort string) int {
	switch effort {
	case "minimal":
		return minBudget
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
func (t *translation) think() bool {
	effort := t.req.Effort
	switch effort {
	case "none":
		return t.thinkNot()
	case "":
		if t.rules.thinksByDefault && !t.ToolChoice.forced() {
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
	case t.rules.adaptive:
		t.thinkAdaptively(effort)
		sent := effort
		switch {
		case effort == "minimal": // the least that there is
			sent = "low"
		case effort == "xhigh" && !t.rules.xhigh:
			sent = "high"
		}
		t.output().Effort = sent
		return sent == effort || effort == "minimal"
	case !thinks(t.req.Items):
		return false
	}
	tokens := budget(effort)
	if !t.extend(tokens) {
		tokens = min(tokens, t.MaxTokens-1)
	}
	if tokens < minBudget {
		return false
	}
	t.Thinking = &thinking{Type: "enabled", BudgetTokens: tokens}
	return true
}

// thinkNot switches thinking off, and reports whether it could.
func (t *translation) thinkNot() bool {
	if t.rules.alwaysThinks {
		t.thinkAdaptively("low")
		t.output().Effort = "low" // the least that there is
		return false
	}
	if t.rules.off != "" {
		t.Thinking = &thinking{Type: t.rules.off}
	}
	return true
}

func (t *translation) thinkAdaptively(effort string) {
	t.extend(budget(effort))
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

// outdated reports whether the provider refuses thinking of its own because
// something before it has changed: the system text, the tools or a message. Claude
// 5.5 and Claude Fable 5.1 are the first models that do:
// https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks.
func outdated(err error) bool {
	var refused *model.Error
	return errors.As(err, &refused) && refused.Status == http.StatusBadRequest &&
		strings.Contains(refused.Message, "bound to a different conversation")
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
