// Package model says what a model is: something that takes a transcript and a
// list of tools and streams one turn.
//
// Every model call is streamed. An adapter reports each [Delta] when it arrives
// and returns the whole [Turn] at the end. A caller that wants only the answer
// ignores the deltas.
//
// An adapter is an implementation of [Model] for one dialect. A dialect is the wire
// format of a provider's API; its name, such as [DialectChat], is the one in
// [item.Native].
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The dialects that the gateway has an adapter for. The names are stored with
// transcripts and never change.
const (
	DialectChat      = "openai-chat"      // OpenAI Chat Completions, and compatible providers
	DialectResponses = "openai-responses" // OpenAI Responses
	DialectAnthropic = "anthropic"        // Anthropic Messages
	DialectGemini    = "gemini"           // Google Gemini generateContent
	DialectBedrock   = "bedrock-converse" // Amazon Bedrock Converse

	// DialectEndpoints are the other endpoints of the OpenAI API, such as /embeddings. Their
	// requests are only relayed.
	DialectEndpoints = "openai-endpoints"
)

// Model is one model of one provider. Implementations are safe for concurrent
// use. Package provider/openai and its siblings return such models, and turnpiketest.Script
// is one.
type Model interface {
	// Stream makes one model call. It calls emit, which is not nil, for every
	// delta, in order, from the calling goroutine. An error of emit ends the call;
	// Stream returns it unchanged.
	//
	// A failure is an *[Error]. If the stream breaks after a part of the turn has
	// arrived, Stream returns that part together with the error. The calls in it
	// that the model had finished are Complete.
	Stream(ctx context.Context, req *Request, emit func(Delta) error) (*Turn, error)
}

// Named is a Model that knows which model of which provider it is. Prices are found by it, and
// items that only their provider understands are sent to no other.
type Named interface {
	Model

	// ModelName returns the name of the provider, such as openai, and the provider's name of
	// the model. They are constant for the life of the Model.
	ModelName() (provider, model string)
}

// Checked is a Model that can be wrong by itself, such as by the options that it was made with.
type Checked interface {
	Model

	// Check returns what is wrong with the model, and names the field; nil = nothing. It connects to nothing. An
	// agent calls it before its first run.
	Check() error
}

// Lister is a Model that can also say which models its provider has.
type Lister interface {
	// List calls yield for each model that the provider lists, in the provider's
	// order, until yield returns false. Until List returns, the answer that it reads
	// is charged to memory; nil = it is not counted.
	//
	// A failure is an *[Error], or an error of memory. The models that were yielded
	// before a failure are not the whole list.
	List(ctx context.Context, memory tool.Memory, yield func(Listed) bool) error
}

// Listed is a model as its provider lists it. The values are not validated.
type Listed struct {
	Name    string
	Created time.Time // UTC; the zero time = the provider does not say

	ContextWindow int64 // tokens of input; 0 = the provider does not say
	Tools         *bool // whether the model takes tools; nil = the provider does not say
}

// Request is one model call.
type Request struct {
	Model string // the provider's name for it
	Items []item.Item
	Tools []Tool

	// Hosted are tools that a provider of Dialect executes itself. An adapter of another
	// dialect leaves them out.
	Hosted []HostedTool

	// ToolChoice is how the model may use Tools.
	ToolChoice ToolChoice

	// MaxTokens caps the output, at most the client's own limit; 0 leaves it to the
	// provider. An adapter of Dialect also honours a lower limit in Params.
	MaxTokens int

	// Options are the settings that the dialects have in common.
	Options

	// Params are the members of the client's request that are not in the fields
	// above, as the client wrote them in Dialect and in its order. Options were read
	// from them. An adapter of Dialect sends Params and ignores Options. An adapter
	// of another dialect sends those Options that it can express; see [Translator]
	// for the others.
	Params  []Param
	Dialect string

	// Memory is charged with the bytes of the answer that are kept; nil = they are
	// not counted. If it refuses, the call ends with an error that wraps its error.
	Memory tool.Memory
}

// HostedTool is a tool that a provider executes within a model call, such as a search.
type HostedTool struct {
	Place string          // in the client's request, such as tools[0]
	JSON  json.RawMessage // as the client declared it
}

// CacheMarkers returns how many markers for a prompt cache the request has.
func (r *Request) CacheMarkers() int {
	n := 0
	count := func(c *item.Cache) {
		if c != nil {
			n++
		}
	}
	for _, t := range r.Tools {
		count(t.Cache)
	}
	for _, i := range r.Items {
		for _, p := range i.Parts {
			count(p.Cache)
		}
	}
	count(r.Cache)
	return n
}

// Tool is a tool as offered to a model.
type Tool struct {
	tool.Definition

	// Strict says whether the provider must hold the arguments to InputSchema; nil =
	// the client says nothing.
	Strict *bool `json:",omitempty"`

	// Cache asks the provider to cache the prompt up to and including this tool;
	// nil = the client does not ask for it.
	Cache *item.Cache

	// Native is the definition as the client wrote it in Request.Dialect. An
	// adapter of that dialect sends it unchanged. It is nil for tools of the gateway.
	Native json.RawMessage
}

// ToolChoice says how the model may use its tools. The zero value says nothing;
// providers read that as auto.
type ToolChoice struct {
	Mode ToolChoiceMode
	Name string   // the tool that must be called; for ChooseNamed
	Only []string // the tools that Mode applies to; nil = all
	// OnlyHosted are the hosted tools that Mode applies to as well, if Only is not nil: in the
	// form in which Request.Dialect names them.
	OnlyHosted []json.RawMessage
	Native     json.RawMessage // as the client wrote it in Request.Dialect, nil otherwise
}

// ToolChoiceMode is the kind of a [ToolChoice]. The zero value says nothing.
type ToolChoiceMode string

// The kinds of tool choice.
const (
	ChooseAuto     ToolChoiceMode = "auto"     // the model decides
	ChooseNone     ToolChoiceMode = "none"     // it must not call a tool
	ChooseRequired ToolChoiceMode = "required" // it must call at least one tool
	ChooseNamed    ToolChoiceMode = "named"    // it must call the tool ToolChoice.Name
)

// Options are settings of a model call. Where a field is zero, the provider's
// default applies.
type Options struct {
	Temperature      *float64 `json:"temperature,omitempty"`
	TopP             *float64 `json:"top_p,omitempty"`
	TopK             *int64   `json:"top_k,omitempty"`
	PresencePenalty  *float64 `json:"presence_penalty,omitempty"`
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"`
	Seed             *int64   `json:"seed,omitempty"`
	Stop             []string `json:"stop,omitempty"` // texts that end the answer

	Format    Format `json:"format,omitzero"`
	Effort    string `json:"effort,omitempty"`    // of reasoning: none, minimal, low, medium, high, xhigh
	Verbosity string `json:"verbosity,omitempty"` // low, medium, high

	// ParallelCalls says whether one turn may have several tool calls; nil = the
	// provider's default.
	ParallelCalls *bool `json:"parallel_calls,omitempty"`

	Metadata map[string]string `json:"metadata,omitempty"`

	// Cache asks the provider to cache the whole prompt; nil = the client does not
	// ask for it.
	Cache *item.Cache `json:"cache,omitempty"`

	// User identifies the client's end user to the provider.
	User string `json:"user,omitempty"`

	// ContextEdits asks a [ContextEditor] to shorten prompts that are too long, in the form of the
	// member context_management of DialectAnthropic: {"edits":[…]}. Other models ignore it.
	ContextEdits json.RawMessage `json:"context_edits,omitempty"`
}

// Format is the form of the answer. The zero value is text.
type Format struct {
	Type string `json:"type,omitempty"` // "", text, json_object or json_schema

	// The rest concerns json_schema.
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// Param is a member of a JSON object, value unparsed.
type Param struct {
	Name  string
	Value json.RawMessage

	// Typed says that a field of Options or Request means the same.
	Typed bool `json:",omitempty"`
}

// Translator is a Model whose dialect cannot express every request of another
// dialect.
type Translator interface {
	// Dropped returns the names of those members of the client's request that the
	// adapter leaves out, sorted; nil = none. The names are those of the request's
	// dialect, such as response_format. It makes no model call.
	Dropped(req *Request) []string
}

// ToolTaker is a Model of a provider that has models which take no tools.
type ToolTaker interface {
	// TakesTools reports whether the model with the name takes tools. It makes no model call.
	TakesTools(model string) bool
}

// ContextEditor is a Model whose provider shortens prompts that are too long, as
// Options.ContextEdits says.
type ContextEditor interface {
	// EditsContext reports whether the provider does so. It makes no model call.
	EditsContext() bool
}

// Counter is a Model whose provider counts tokens.
type Counter interface {
	// CountInput returns how many tokens the input of a request has. It makes no model call.
	// The error says why the provider cannot tell.
	CountInput(ctx context.Context, req *Request) (tokens int64, err error)
}

// DeltaKind says what a [Delta] carries.
type DeltaKind int

// The kinds of delta.
const (
	TextDelta      DeltaKind = iota // visible text of a message
	ReasoningDelta                  // readable reasoning
	RefusalDelta                    // the text of a refusal, in a message
	CallDelta                       // arguments of a tool call

	// NativeDelta is a whole item of an adapter of Request.Dialect: one that a provider's own
	// tool has made, or reasoning with content that only the provider can read. It comes
	// after all other deltas of its item. Its text is the item's Native.JSON.
	NativeDelta

	// DoneDelta says that the dialect has marked the end of an item: no delta of the item
	// follows. It has no text. At most one is reported of an item, and only of one that has
	// other deltas. An adapter whose dialect does not mark the ends of items reports none. It
	// says nothing about whether the item is complete: the output limit may have cut it off.
	DoneDelta

	// CitationDelta is a source of a text, whole. Its text is an [item.Citation] as JSON. It
	// follows a TextDelta of its item and of its own Part; the Part of the delta is the same.
	CitationDelta

	// ProgressDelta is a step of a provider's own tool, of an adapter of Request.Dialect. It
	// belongs to an item whose NativeDelta follows, if the provider sends its end. Its text is
	// the event of the dialect, a JSON object without the members that say where in the answer
	// it is. The first one of an item is its begin.
	ProgressDelta
)

// deltaKinds are the names of the kinds.
var deltaKinds = [...]string{TextDelta: "text", ReasoningDelta: "reasoning", RefusalDelta: "refusal", CallDelta: "call", NativeDelta: "native", DoneDelta: "done", CitationDelta: "citation", ProgressDelta: "progress"}

// String returns the name of the kind, such as "text".
func (k DeltaKind) String() string {
	if k < 0 || int(k) >= len(deltaKinds) {
		return fmt.Sprintf("DeltaKind(%d)", int(k))
	}
	return deltaKinds[k]
}

// MarshalText implements [encoding.TextMarshaler] with the name of the kind.
func (k DeltaKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *DeltaKind) UnmarshalText(text []byte) error {
	i := slices.Index(deltaKinds[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown kind of delta %q", text)
	}
	*k = DeltaKind(i)
	return nil
}

// Delta is a piece of a turn, reported as soon as it arrives. The texts of all
// deltas of one item and part, joined, are the text of that part of the turn, or
// the arguments of that call. Deltas of several items may alternate.
type Delta struct {
	Kind DeltaKind

	// Item is the number of the item within the turn, from 0, in the order in
	// which the items begin. Turn.Items has this order. Items that Turn.Items
	// leaves out, such as calls that were cut off, are counted too.
	Item int

	// Part is the index of the part within the item's Parts; 0 for a call.
	Part int

	// CallID and Name are those of the call, as in [Call]. Only the first delta of
	// a call has them. An adapter reports it when neither can change any more.
	CallID, Name string

	// Phase is that of a message, as in [item.Item]. Only the first delta of a message has it.
	Phase string

	Text string // "" only in the first delta of a call, and in a DoneDelta
}

// Stop is why a turn ended, in the same words for all dialects.
type Stop string

// The stop reasons. StopUnknown means that the turn was cut off before its end.
const (
	StopEnd     Stop = "stop"
	StopCalls   Stop = "tool_calls"
	StopLength  Stop = "length"
	StopFilter  Stop = "content_filter"
	StopUnknown Stop = ""
)

// Turn is what a model returned in one call.
type Turn struct {
	ID    string // the provider's id of the answer
	Model string // the provider's name of what answered

	// Items are the turn's entries for the transcript, in the order in which they
	// began: reasoning, messages, and the calls of Calls that are complete. Their Turn is one more than the highest of the request's items.
	// Native.Provider is left to the caller, who knows the provider's name.
	Items []item.Item

	// Calls are all calls of the turn in the order in which they began, also those
	// that were cut off.
	Calls []Call

	Stop    Stop
	RawStop string // in the dialect's words
	Usage   Usage
}

// Call is a tool call as the model asked for it.
type Call struct {
	ID        string // the provider's id: opaque, may repeat or be empty
	Name      string // as the model wrote it
	Arguments string // as the model wrote it; may not be valid JSON

	// Complete is true once the dialect marked the call's end. Arguments that
	// happen to parse are not enough.
	Complete bool
}

// Item returns the call as an entry of the transcript.
func (c Call) Item() item.Item { return item.NewCall(c.ID, c.Name, c.Arguments) }

// Text returns the visible text of the turn.
func (t *Turn) Text() string {
	text := ""
	for _, i := range t.Items {
		if i.Kind == item.Message {
			text += i.Text()
		}
	}
	return text
}

// Usage counts tokens as the provider reported them. A field that was not
// reported is 0. All adapters give Input and Output the same meaning, whatever
// the dialect's is.
type Usage struct {
	Input       int64 `json:"input"`  // including CachedInput and CacheWrite
	Output      int64 `json:"output"` // including Reasoning
	Total       int64 `json:"total"`
	CachedInput int64 `json:"cached_input,omitempty"` // read from the provider's cache
	CacheWrite  int64 `json:"cache_write,omitempty"`  // written to the provider's cache, including CacheWrite1h
	Reasoning   int64 `json:"reasoning,omitempty"`

	// CacheWrite1h is the part of CacheWrite that the provider keeps for an hour.
	CacheWrite1h int64 `json:"cache_write_1h,omitempty"`

	// GPUMS is the time for which the call is billed, in milliseconds, for models that
	// are billed by time; 0 for all others.
	GPUMS int64 `json:"gpu_ms,omitempty"`

	// ServiceTier is the service tier by which the provider served the call, if it is another
	// than the usual one: see [Tier]. Of a sum it is that of all summands, if they agree.
	ServiceTier string `json:"service_tier,omitempty"`

	// Estimated says that a part is an estimate, because the provider has not counted it.
	Estimated bool `json:"estimated,omitempty"`
}

// The service tiers that have prices of their own.
const (
	TierFlex     = "flex"     // slower and cheaper
	TierPriority = "priority" // faster and dearer
)

// Tier returns the service tier that a provider names in its own words, as Usage has it: one of
// those that OpenAI's document knows beside auto and default; "" = the usual one, or another.
func Tier(name string) string {
	switch name {
	case TierFlex, TierPriority, "scale", "fast", "ultrafast":
		return name
	}
	return ""
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage {
	tier := u.ServiceTier
	switch {
	case u == Usage{}:
		tier = v.ServiceTier
	case v != Usage{} && v.ServiceTier != tier:
		tier = ""
	}
	return Usage{
		Input: u.Input + v.Input, Output: u.Output + v.Output, Total: u.Total + v.Total,
		CachedInput: u.CachedInput + v.CachedInput, CacheWrite: u.CacheWrite + v.CacheWrite,
		Reasoning: u.Reasoning + v.Reasoning, CacheWrite1h: u.CacheWrite1h + v.CacheWrite1h,
		GPUMS: u.GPUMS + v.GPUMS, ServiceTier: tier, Estimated: u.Estimated || v.Estimated,
	}
}

// Sub returns u without v, which is a part of it.
func (u Usage) Sub(v Usage) Usage {
	return Usage{
		Input: u.Input - v.Input, Output: u.Output - v.Output, Total: u.Total - v.Total,
		CachedInput: u.CachedInput - v.CachedInput, CacheWrite: u.CacheWrite - v.CacheWrite,
		Reasoning: u.Reasoning - v.Reasoning, CacheWrite1h: u.CacheWrite1h - v.CacheWrite1h,
		GPUMS: u.GPUMS - v.GPUMS, ServiceTier: u.ServiceTier, Estimated: u.Estimated,
	}
}
