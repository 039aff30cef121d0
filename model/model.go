// Package model says what a model is: something that takes a transcript and a
// list of tools and streams one turn.
//
// Streaming is the only path. An adapter reports deltas as they come and
// returns the assembled [Turn]; a caller that wants only the answer ignores the
// deltas.
package model

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Model is one model of one provider. Implementations are safe for concurrent
// use. Implemented by the packages below internal/provider and by
// turnpiketest.Script.
type Model interface {
	// Stream makes one model call. It calls emit for every delta, in order,
	// from the calling goroutine; an error of emit ends the call and is
	// returned as it is.
	//
	// A failure is an *[Error]. When the stream broke after something had
	// arrived, the partial turn is returned beside the error: calls whose end
	// the dialect had marked are Complete in it.
	Stream(ctx context.Context, req *Request, emit func(Delta) error) (*Turn, error)
}

// Relayer is a Model that can also pass a request on untouched, for clients
// that speak the provider's own dialect.
type Relayer interface {
	// Relay sends the body as it is and returns the answer as it is, whatever
	// its status. The error is an *[Error] without Status: no HTTP answer came.
	// The caller closes the body. The request body is not read after the
	// first byte of the answer has come.
	Relay(ctx context.Context, req *RelayRequest) (*RelayResponse, error)
}

// Lister is a Model that can also say which models its provider has.
type Lister interface {
	// List calls yield for each model that the provider lists, in the provider's
	// order, until yield returns false. What is read is charged to memory until
	// List returns; nil = nothing is counted.
	//
	// A failure is an *[Error], or an error of memory. What was yielded before it
	// is not the whole list.
	List(ctx context.Context, memory tool.Memory, yield func(Listed) bool) error
}

// Listed is a model as its provider lists it. Nothing of it is checked.
type Listed struct {
	Name    string
	Created int64 // in seconds since 1970; 0 = the provider does not say
}

// RelayRequest is a client's request in the provider's dialect. It belongs to the
// provider from then on: Header may be changed, and Body be read, for as long as
// the answer is open.
type RelayRequest struct {
	Path   string      // below the base URL, such as "/chat/completions"
	Header http.Header // the client's, already without credentials and hop-by-hop fields
	Body   []byte
}

// RelayResponse is the provider's answer.
type RelayResponse struct {
	Status int
	Header http.Header
	Body   io.ReadCloser
	Length int64 // -1 when unknown
}

// Request is one model call.
type Request struct {
	Model string // the provider's name for it
	Items []item.Item
	Tools []Tool

	// ToolChoice is how the model may use Tools.
	ToolChoice ToolChoice

	// MaxTokens caps the output; 0 leaves it to the provider. An adapter of Dialect
	// also honours a lower limit in Params.
	MaxTokens int

	// Options are what the client wants of the answer, in terms that the dialects
	// share.
	Options

	// Params are the client's other members, as it wrote them in Dialect, in its
	// order; Options are read from them. An adapter of Dialect sends Params and
	// ignores Options. Any other adapter sends what it can of Options, and names
	// the rest in [Translator].
	Params  []Param
	Dialect string

	// Memory is charged with what the answer makes the process keep; nil = nothing
	// is counted. An error of it ends the call, which returns an error that wraps
	// it.
	Memory tool.Memory
}

// Tool is a tool as offered to a model.
type Tool struct {
	tool.Definition

	// Native is the definition as the client wrote it in Request.Dialect; an
	// adapter of that dialect sends it unchanged. Nil for the gateway's own.
	Native json.RawMessage
}

// ToolChoice is how the model may use its tools. The zero value leaves it to
// the provider, which means auto.
type ToolChoice struct {
	Mode   string          // "", auto, none, required, or named
	Name   string          // for named
	Only   []string        // the tools that Mode is about; nil = all
	Native json.RawMessage // as the client wrote it in Request.Dialect, nil otherwise
}

// Options are settings of a model call. The zero value says nothing: the
// provider's defaults apply.
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

	// User identifies the client's end user to the provider.
	User string `json:"user,omitempty"`
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

// Translator is a Model of a dialect that cannot express all of a request of
// another dialect.
type Translator interface {
	// Dropped returns the names of the client's members that the adapter leaves
	// out of its request, sorted; nil = none. It makes no call.
	Dropped(req *Request) []string
}

// DeltaKind says what a [Delta] carries.
type DeltaKind int

// The kinds of delta that a model reports while it speaks. Tool calls are not
// reported in pieces: they stand in the Turn.
const (
	TextDelta DeltaKind = iota
	ReasoningDelta
	RefusalDelta
)

// Delta is a piece of a turn.
type Delta struct {
	Kind DeltaKind
	Text string
}

// Stop is why a turn ended, normalised over all dialects.
type Stop string

// The stop reasons. The zero value means that the turn has no end: it was cut.
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

	// Items are the turn's entries for the transcript, in the order in which the
	// model said them: reasoning, messages, and the calls of Calls that are
	// complete. Their Turn is one more than the highest of the request's items.
	// Native.Provider is left to the caller, who knows the provider's name.
	Items []item.Item

	// Calls are all calls of the turn in order, also those that were cut off.
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
// reported is 0.
type Usage struct {
	Input       int64 `json:"input"`  // with cached input, as in the chat dialect
	Output      int64 `json:"output"` // as reported; some providers leave reasoning out
	Total       int64 `json:"total"`
	CachedInput int64 `json:"cached_input,omitempty"`
	CacheWrite  int64 `json:"cache_write,omitempty"`
	Reasoning   int64 `json:"reasoning,omitempty"`
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, Output: u.Output + v.Output, Total: u.Total + v.Total,
		CachedInput: u.CachedInput + v.CachedInput, CacheWrite: u.CacheWrite + v.CacheWrite,
		Reasoning: u.Reasoning + v.Reasoning,
	}
}
