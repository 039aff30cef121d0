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

type message = wire.Message[any]

// request is the body of POST /messages. The members stand in the order in which
// the provider's prompt cache reads them.
type request struct {
	Model         string           `json:"model"`
	MaxTokens     int              `json:"max_tokens"`
	Tools         []toolDefinition `json:"tools,omitempty"`
	ToolChoice    *claude.Choice   `json:"tool_choice,omitempty"`
	System        []any            `json:"system,omitempty"` // blocks
	Messages      []message        `json:"messages"`
	Temperature   *float64         `json:"temperature,omitempty"`
	TopP          *float64         `json:"top_p,omitempty"`
	TopK          *int64           `json:"top_k,omitempty"`
	StopSequences []string         `json:"stop_sequences,omitempty"`
	Thinking      *claude.Thinking `json:"thinking,omitempty"`
	OutputConfig  *outputConfig    `json:"output_config,omitempty"`
	Metadata      *metadata        `json:"metadata,omitempty"`
	CacheControl  *cacheControl    `json:"cache_control,omitempty"`

	ContextManagement json.RawMessage `json:"context_management,omitempty"`

	Stream bool `json:"stream"`
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

	marks *wire.Marks
	betas []string // values of the header anthropic-beta
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
	t.marks = wire.MarksOf(req, maxMarkers, &t.Losses)
	t.tools()
	t.messages()
	t.CacheControl = t.mark(req.Cache)
	t.editContext()

	t.think()
	s := t.rules.Sample(req, t.Thinking.IsOn(), &t.Losses)
	t.Temperature, t.TopP, t.TopK = s.Temperature, s.TopP, s.TopK
	t.StopSequences = slices.DeleteFunc(slices.Clone(req.Stop), func(s string) bool { return strings.TrimSpace(s) == "" })
	t.Drop("stop", len(t.StopSequences) < len(req.Stop))
	t.format()
	taken := []string{"user"}
	if user := wire.EndUser(req); user != "" {
		t.Metadata = &metadata{UserID: user}
		if req.User == "" {
			taken = append(taken, "safety_identifier")
		}
	}
	t.DropSettings(req, taken...)
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

// mark returns the next cache marker, nil without one.
func (t *translation) mark(c *item.Cache) *cacheControl {
	if !t.marks.Mark(c) {
		return nil
	}
	return cacheControlOf(c)
}

func cacheControlOf(c *item.Cache) *cacheControl { return &cacheControl{Type: "ephemeral", TTL: c.TTL} }

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
		t.DropSchema(t.req, lost)
	case f.Type == "json_schema", f.Type == "json_object":
		t.Drop(wire.NameOf(t.req, wire.MemberFormat), true)
	}
}

// think switches thinking on or off as the effort says. Its tokens count as output: they raise the limit,
// if the request sets none.
func (t *translation) think() {
	p := t.rules.Plan(t.req, t.ToolChoice.Forces(), model.DialectAnthropic)
	if t.Thinking = p.Thinking; p.Effort != "" {
		t.output().Effort = p.Effort
	}
	if t.req.MaxTokens <= 0 {
		t.MaxTokens += p.Tokens
	}
	t.Drop(wire.NameOf(t.req, wire.MemberEffort), !p.Exact)
}

// withoutOutdated returns the request with the provider asked to leave out thinking
// that is outdated. It only does so where it thinks adaptively, which it does by
// default; elsewhere the request has no thinking any more.
func (p *Provider) withoutOutdated(t *translation) *translation {
	if t.Thinking == nil {
		t.Thinking = &claude.Thinking{Type: "adaptive"}
	}
	if t.Thinking.Type != "adaptive" {
		req := *t.req
		req.Items = slices.DeleteFunc(slices.Clone(req.Items), func(it item.Item) bool { return it.Kind == item.Reasoning })
		return p.translate(&req)
	}
	t.Thinking.BlockBinding = &claude.BlockBinding{PrefixMismatchBehavior: "drop_block"}
	t.beta(bindingBeta)
	return t
}
