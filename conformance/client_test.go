package conformance

import (
	"testing"
	"time"
)

// client is one official client of the chat-completions API.
type client interface {
	name() string
	// start sends ask and returns at once.
	start(t *testing.T, ask ask) *exchange
}

// ask is a request as a test words it.
type ask struct {
	BaseURL string            `json:"base_url"` // ends in /v1
	Key     string            `json:"key"`
	Other   string            `json:"other_key,omitempty"` // of another org; clients/responses.mjs
	Header  map[string]string `json:"header,omitempty"`
	Request object            `json:"request,omitempty"` // the request's members, without stream
	Stream  bool              `json:"stream,omitempty"`
	Path    string            `json:"path,omitempty"` // when set, Raw is posted there as it is, by the client's own generic method
	Raw     string            `json:"raw,omitempty"`
	Models  bool              `json:"models,omitempty"` // list the models, retrieve each, and then one that is not listed
	Helper  string            `json:"helper,omitempty"` // which helper of the SDK is used; clients/helpers.mjs and clients/responses.mjs
	Turns   []string          `json:"turns,omitempty"`  // what the user says; clients/responses.mjs
	Times   int               `json:"times,omitempty"`  // how many requests are made at once; clients/responses.mjs

	API           string         `json:"api,omitempty"`   // which API the conversations use; clients/conversation.mjs
	Model         string         `json:"model,omitempty"` // of all conversations
	Conversations []conversation `json:"conversations,omitempty"`

	Pause     bool `json:"pause,omitempty"`      // the client's function waits until it is told to go on; clients/runtools.mjs
	NoRetries bool `json:"no_retries,omitempty"` // else the client retries as it does by default
	Hash      bool `json:"hash,omitempty"`       // fill in outcome.BodySHA256
}

// exchange is a request under way.
type exchange struct {
	firstText chan string   // gets the first text delta of a stream; buffered
	done      chan outcome  // gets the one outcome; buffered
	paused    chan struct{} // gets one for each call of the client's function that waits; buffered
	abort     func()        // ends the request from the client's side
	goOn      func()        // lets the client's function go on; nil where there is none
}

func newExchange() *exchange {
	return &exchange{firstText: make(chan string, 1), done: make(chan outcome, 1), paused: make(chan struct{}, 1)}
}

// outcome is what the client's code saw of the answer.
type outcome struct {
	Text          string         `json:"text"`
	FinishReasons []string       `json:"finish_reasons"` // every one that came, in order
	ToolCalls     []seenCall     `json:"tool_calls"`
	Usage         *usage         `json:"usage"`
	BodySHA256    string         `json:"body_sha256"` // of the request's body as it left
	Parsed        *parsedAnswer  `json:"parsed"`
	Events        map[string]int `json:"events"`    // how often each event of the stream helper came
	Models        []seenModel    `json:"models"`    // as listed
	Retrieved     []seenModel    `json:"retrieved"` // the same, one by one
	Turns         []seenTurn     `json:"turns"`     // of a conversation
	Items         [][]string     `json:"items"`     // of each response, as lines
	Each          []outcome      `json:"each"`      // one for each conversation
	Error         *clientError   `json:"error"`
}

// unlistedModel is the model that is retrieved although it is not listed.
const unlistedModel = "gpt-unlisted"

// seenModel is a model of the gateway's list.
type seenModel struct {
	ID      string `json:"id"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// parsedAnswer is the structured output that clients/helpers.mjs asks for.
type parsedAnswer struct {
	Sum   int    `json:"sum"`
	Words string `json:"words"`
}

// clientError is the error that the client raised.
type clientError struct {
	Class      string `json:"class"`
	IsAPIError bool   `json:"is_api_error"`
	Status     int    `json:"status"` // 0 when the error came in mid-stream
	Code       string `json:"code"`
	Param      string `json:"param"` // of the Node client
	Message    string `json:"message"`
	RetryAfter string `json:"retry_after"`
}

// run sends ask and waits for its outcome.
func run(t *testing.T, c client, ask ask) outcome {
	t.Helper()
	return c.start(t, ask).wait(t)
}

// wait returns the outcome, which a test may have to wait for while the gateway
// retries a failing upstream.
func (e *exchange) wait(t *testing.T) outcome {
	t.Helper()
	select {
	case o := <-e.done:
		return o
	case <-time.After(time.Minute):
		t.Fatal("the client had no outcome within a minute")
	}
	return outcome{}
}

// answer is run for requests that must succeed.
func answer(t *testing.T, c client, ask ask) outcome {
	t.Helper()
	o := run(t, c, ask)
	if o.Error != nil {
		t.Fatalf("%s raised %+v", c.name(), *o.Error)
	}
	return o
}

// eachWay runs test once per client, for the JSON answer and for the stream.
func eachWay(t *testing.T, clients []client, test func(t *testing.T, c client, stream bool)) {
	for _, c := range clients {
		t.Run(c.name()+" gets JSON", func(t *testing.T) { test(t, c, false) })
		t.Run(c.name()+" streams", func(t *testing.T) { test(t, c, true) })
	}
}
