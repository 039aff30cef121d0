// Package event is what a run reports while it happens. A surface turns events
// into its own wire format and decides nothing.
//
// A run with tools speaks in this order:
//
//	Started
//	  RoundStarted 0   TextDelta*   RoundDone   ToolStarted*  ToolDone*
//	  RoundStarted 1   …
//	Finished                                      exactly once, always last
//
// A relayed request speaks in Started, RelayHead, RelayBody*, Finished.
package event

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
)

// Event is one of the types of this package.
type Event interface{ event() }

// Started opens a run. The ids and times of a stream are fixed here, so that an
// encoder is a pure fold over events.
type Started struct {
	RunID string
	Model string // the name that the caller asked for
	At    time.Time
}

// RoundStarted opens a model call. A second RoundStarted with the same round
// voids what that round has said so far; it is sent only when none of it has
// reached the caller.
type RoundStarted struct {
	Round   int
	Attempt int // 1 is the first
}

// TextDelta is visible text of the model, as it arrives.
type TextDelta struct {
	Round int
	Text  string
}

// ReasoningDelta is readable reasoning of the model, as it arrives.
type ReasoningDelta struct {
	Round int
	Text  string
}

// RefusalDelta is a piece of the model's refusal.
type RefusalDelta struct {
	Round int
	Text  string
}

// RoundDone says that the model's turn of a round is complete. The calls that it
// asked for follow.
type RoundDone struct {
	Round int
	Stop  model.Stop
	Usage model.Usage
}

// ToolStarted says that a gateway-owned call is about to be sent.
type ToolStarted struct {
	Round     int
	Key       string // round.index
	Name      string // as the model sees it
	Server    string
	Arguments json.RawMessage
}

// ToolDone says how a call that the gateway answered ended, with or without
// execution.
type ToolDone struct {
	Round    int
	Key      string
	Name     string
	Server   string
	Outcome  string // ok, error, unknown, denied, skipped_limit, not_run
	Text     string // what the model is told
	Duration time.Duration
}

// RelayHead is the status line and header of a relayed answer.
type RelayHead struct {
	Status int
	Header http.Header
	Length int64 // of the body; -1 when unknown
}

// RelayBody is a piece of a relayed answer's body. Data is valid until Emit
// returns.
type RelayBody struct{ Data []byte }

// ClientCall is a tool call that the caller is to execute. ID is the id to
// answer with: the provider's own, or one of ours when the run has items that
// the caller does not see.
type ClientCall struct {
	ID        string
	Name      string
	Arguments string
}

// Finished closes a run: the one terminal event.
type Finished struct {
	Reason Reason
	Calls  []ClientCall // for ClientCalls
	Usage  model.Usage  // summed over all rounds
	Rounds int

	// SideEffects is true when a tool that may write has been called: the
	// request must not be repeated blindly.
	SideEffects bool

	// GaveUp is true when the provider failed as often as a model call is tried.
	GaveUp bool

	// Failure says what went wrong, for the reasons that are failures.
	Failure *Failure
}

// Failure is why a run failed, safe to show to the caller.
type Failure struct {
	Code    string // such as outbound_ssrf_blocked
	Message string
	Address string // the address that the outbound policy refused; not for everyone

	// Server is the MCP server that failed, URL where it is (not for everyone), and
	// Setting the key of the configuration that can allow it; "" = not known, or none.
	Server, URL, Setting string

	// Upstream is the provider's own error answer, where it gave one.
	Upstream *model.Error
}

func (Started) event()        {}
func (RoundStarted) event()   {}
func (TextDelta) event()      {}
func (ReasoningDelta) event() {}
func (RefusalDelta) event()   {}
func (RoundDone) event()      {}
func (ToolStarted) event()    {}
func (ToolDone) event()       {}
func (RelayHead) event()      {}
func (RelayBody) event()      {}
func (Finished) event()       {}
