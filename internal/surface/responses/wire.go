package responses

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// The objects below are those of the OpenAI document, with its field names. Where the
// document of Open Responses is stricter (a number in place of null), they follow that.

// response is the response object.
type response struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	CreatedAt         int64              `json:"created_at"`   // in seconds since 1970
	CompletedAt       *int64             `json:"completed_at"` // as CreatedAt
	Status            string             `json:"status"`
	Background        bool               `json:"background"`
	Error             *responseError     `json:"error"`
	IncompleteDetails *incompleteDetails `json:"incomplete_details"`
	Model             string             `json:"model"`
	Output            []any              `json:"output"`
	Usage             *usage             `json:"usage"`
	echo
	surface.Extra // at the end
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

// echo has the members of a response that repeat its request, with the defaults of the API.
type echo struct {
	Conversation       *echoConversation `json:"conversation,omitempty"`
	Instructions       *string           `json:"instructions"`
	MaxOutputTokens    *int64            `json:"max_output_tokens"`
	MaxToolCalls       *int64            `json:"max_tool_calls"`
	Metadata           map[string]string `json:"metadata"`
	ParallelToolCalls  bool              `json:"parallel_tool_calls"`
	PreviousResponseID *string           `json:"previous_response_id"`
	PromptCacheKey     *string           `json:"prompt_cache_key"`
	Reasoning          echoReasoning     `json:"reasoning"`
	SafetyIdentifier   *string           `json:"safety_identifier"`
	ServiceTier        string            `json:"service_tier"`
	Store              bool              `json:"store"`
	Temperature        float64           `json:"temperature"`
	Text               echoText          `json:"text"`
	ToolChoice         json.RawMessage   `json:"tool_choice"`
	Tools              []json.RawMessage `json:"tools"`
	TopLogprobs        int64             `json:"top_logprobs"`
	TopP               float64           `json:"top_p"`
	PresencePenalty    float64           `json:"presence_penalty"`
	FrequencyPenalty   float64           `json:"frequency_penalty"`
	Truncation         string            `json:"truncation"`
	User               *string           `json:"user,omitempty"`

	encrypted bool // reasoning has the content that only its provider can read
	plain     bool // deltas have no obfuscation
	outputs   bool // calls that run code have their outputs

	container string // in which code runs; "" = that of the run

	background bool
}

type echoConversation struct {
	ID string `json:"id"`
}

type echoReasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type echoText struct {
	Format    any    `json:"format"` // textFormat or schemaFormat; json.RawMessage if it was stored
	Verbosity string `json:"verbosity,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. The numbers of a stored schema keep their digits.
func (e *echoText) UnmarshalJSON(data []byte) error {
	var w struct {
		Format    json.RawMessage `json:"format"`
		Verbosity string          `json:"verbosity"`
	}
	err := json.Unmarshal(data, &w)
	e.Format, e.Verbosity = w.Format, w.Verbosity
	return err
}

// textFormat is the format text or json_object.
type textFormat struct {
	Type string `json:"type"`
}

// schemaFormat is the format json_schema.
type schemaFormat struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"` // "" for none: null is not valid in OpenAI's document
	Schema      json.RawMessage `json:"schema"`
	Strict      bool            `json:"strict"`
}

// newEcho returns what a response repeats of a request that sets nothing.
func newEcho() echo {
	return echo{
		Metadata: map[string]string{}, ParallelToolCalls: true, ServiceTier: "default", Temperature: 1, TopP: 1, Truncation: "disabled",
		Text: echoText{Format: textFormat{"text"}}, ToolChoice: json.RawMessage(`"auto"`), Tools: []json.RawMessage{},
	}
}

type usage struct {
	InputTokens   int64         `json:"input_tokens"`
	InputDetails  inputDetails  `json:"input_tokens_details"`
	OutputTokens  int64         `json:"output_tokens"`
	OutputDetails outputDetails `json:"output_tokens_details"`
	TotalTokens   int64         `json:"total_tokens"`
}

type inputDetails struct {
	CachedTokens     int64 `json:"cached_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"`
}

type outputDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"`
}

func newUsage(u model.Usage) *usage {
	total := u.Total
	if total == 0 {
		total = u.Input + u.Output
	}
	return &usage{
		InputTokens: u.Input, InputDetails: inputDetails{u.CachedInput, u.CacheWrite},
		OutputTokens: u.Output, OutputDetails: outputDetails{u.Reasoning}, TotalTokens: total,
	}
}

// message is a message of the model.
type message struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Role    string `json:"role"`
	Phase   string `json:"phase,omitempty"`
	Content []any  `json:"content"` // outputText or refusal
}

type outputText struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
	Logprobs    []any  `json:"logprobs"`
}

func newOutputText(text string) outputText { return outputText{"output_text", text, []any{}, []any{}} }

type refusal struct {
	Type    string `json:"type"`
	Refusal string `json:"refusal"`
}

// reasoning is what the model shows of its reasoning.
type reasoning struct {
	ID        string        `json:"id"`
	Type      string        `json:"type"`
	Summary   []summaryText `json:"summary"`
	Encrypted *string       `json:"encrypted_content,omitempty"` // if the request includes it
}

type summaryText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// functionCall is a call of a function of the client.
type functionCall struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Arguments string `json:"arguments"`
}

// customCall is a call of a custom tool of the client, whose input is any text.
type customCall struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Input     string `json:"input"`
}

// The events of a stream. Each begins with its type and its number.

type head struct {
	Type        string `json:"type"`
	Sequence    int64  `json:"sequence_number"`
	Obfuscation string `json:"obfuscation,omitempty"` // of a delta
}

func (h *head) begin(kind string, sequence int64, obfuscation string) {
	h.Type, h.Sequence, h.Obfuscation = kind, sequence, obfuscation
}

// responseEvent is an event about the response.
type responseEvent struct {
	head
	Response *response `json:"response"`
}

// itemEvent is the begin or the end of an output item.
type itemEvent struct {
	head
	OutputIndex int `json:"output_index"`
	Item        any `json:"item"`
}

// at is where in the output an event is.
type at struct {
	ItemID      string `json:"item_id"`
	OutputIndex int    `json:"output_index"`
}

// stepEvent is an event of an item without more members.
type stepEvent struct {
	head
	at
}

type contentPartEvent struct {
	head
	at
	ContentIndex int `json:"content_index"`
	Part         any `json:"part"`
}

type summaryPartEvent struct {
	head
	at
	SummaryIndex int         `json:"summary_index"`
	Part         summaryText `json:"part"`
}

// textEvent is a delta or the end of a text of a message.
type textEvent struct {
	head
	at
	ContentIndex int     `json:"content_index"`
	Delta        *string `json:"delta,omitempty"`
	Text         *string `json:"text,omitempty"`
	Refusal      *string `json:"refusal,omitempty"`
	Logprobs     []any   `json:"logprobs,omitzero"`
}

// annotationEvent is a source of a text.
type annotationEvent struct {
	head
	at
	ContentIndex    int `json:"content_index"`
	AnnotationIndex int `json:"annotation_index"`
	Annotation      any `json:"annotation"`
}

// summaryEvent is a delta or the end of a text of reasoning.
type summaryEvent struct {
	head
	at
	SummaryIndex int     `json:"summary_index"`
	Delta        *string `json:"delta,omitempty"`
	Text         *string `json:"text,omitempty"`
}

// argumentsEvent is a delta or the end of the arguments of a call, or of its input or code.
type argumentsEvent struct {
	head
	at
	Delta     *string `json:"delta,omitempty"`
	Name      *string `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	Input     *string `json:"input,omitempty"`
	Code      *string `json:"code,omitempty"`
}
