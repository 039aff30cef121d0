// Package event defines what a run reports while it is in progress. A surface, that
// is an API of the gateway, translates the events into its wire format.
//
// A run with tools reports its events in this order:
//
//	Started
//	  ToolsListed                                 if the request declared MCP servers
//	  RoundStarted 0   TextDelta*  CallDelta*   RoundDone   ToolStarted*  ToolDone*
//	  RoundStarted 1   …
//	  ModelFallback    RoundStarted 1   …         if another target is tried after a failure
//	Finished                                      exactly once, always last
//
// A run whose prompt is too long for its model has Compacted before a RoundStarted.
//
// A run that waits at a limit has Paused, and goes on with LimitsRaised when somebody has raised it.
//
// A run that waits for a human has Waiting after a round, ApprovalDecided for each decision,
// and goes on with more events when it is resumed.
//
// A relayed request has the events Started, RelayHead, RelayBody*, Finished. One that is
// translated for a provider of another dialect has those of one round without tools.
package event

import (
	"encoding/json"
	"time"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Event is one of the types of this package. The JSON of all but RelayHead and RelayBody
// is stored and sent to clients, by [Encode]: a field name must not change, and a new
// field must be optional. The set is closed: the linter reports every switch that does not
// name all of them.
//
//sumtype:decl
type Event interface {
	// Type returns the name of the event's type, such as "text_delta".
	Type() string
	event()
}

// Started is the first event of a run. A surface takes the id and the time of its
// answer from it, so that the same events always give the same bytes.
type Started struct {
	RunID string    `json:"run_id"`
	Model string    `json:"model"` // the name that the caller asked for
	At    time.Time `json:"at"`    // UTC

	// Queued says that the run was accepted and waits for a slot. The next event comes when it has begun.
	Queued bool `json:"queued,omitempty"`

	// Part is not "" if only a part of the run is told: the ids of what it has end with it.
	// It has no JSON: the events of the run do not have it.
	Part string `json:"-"`
}

// ToolsListed says which tools the shown servers have: the MCP servers that the request
// declared. It has only servers that earlier requests of the conversation have not
// listed. A run without such servers has no ToolsListed.
type ToolsListed struct {
	Servers []ListedServer `json:"servers"`
}

// ListedServer is a shown server with the tools that the model is offered. They have the
// names that the server gives them. Their annotations are what the server says.
type ListedServer struct {
	Server string            `json:"server"`
	Tools  []tool.Definition `json:"tools"`
	Error  string            `json:"error,omitempty"` // why the server could not list its tools; "" = it could
}

// RoundStarted says that a model call begins. When a call is tried again, a second
// RoundStarted with the same Round follows: discard the deltas of the first. This
// happens only while none of them has reached the caller. One that Continues an answer is different.
type RoundStarted struct {
	Round   int `json:"round"`   // from 0
	Attempt int `json:"attempt"` // from 1

	// Missing are the names of the org's servers that could not list their tools when the run
	// began: the model call does not have them.
	Missing []string `json:"missing_servers,omitempty"`

	// Target is what is called; zero for an event that was stored without it.
	Target Target `json:"target,omitzero"`

	// Continues is not 0 if the model goes on with an answer that the length of the output has cut off: how often
	// it was asked for the rest. The RoundDone of the part before it has the stop reason length, and its deltas
	// stay. A second RoundStarted with the same number is another attempt at this part.
	Continues int `json:"continues,omitempty"`

	// NoTools says that no server gives the run a tool.
	NoTools bool `json:"no_tools,omitempty"`

	At time.Time `json:"at,omitzero"` // UTC, in milliseconds; the zero time = not known
}

// Target is a model of a provider.
type Target struct {
	Provider string `json:"provider"`
	Model    string `json:"model"` // the provider's name for it
}

// String returns the target as "provider/model", or "" for the zero value.
func (t Target) String() string {
	if t == (Target{}) {
		return ""
	}
	return t.Provider + "/" + t.Model
}

// ModelFallback says that another target than From is tried in a round: From has failed for good in it, or the round
// begins at another target than From, the first of a fallback list. RoundStarted with the same round follows. It is reported only while
// none of the deltas of the round has reached the caller.
type ModelFallback struct {
	Round int              `json:"round"`
	From  Target           `json:"from"`
	To    Target           `json:"to"`
	Class model.ErrorClass `json:"class"` // how From failed; "" = it was not called: Skipped has the reason, or the conversation stays with To

	// Skipped are targets that are not tried, with the reason, such as breaker_open.
	Skipped []SkippedTarget `json:"skipped,omitempty"`

	At time.Time `json:"at,omitzero"` // UTC, in milliseconds; the zero time = not known
}

// SkippedTarget is a target that is not tried in a round.
type SkippedTarget struct {
	Target Target `json:"target"`
	Reason string `json:"reason"`
}

// TextDelta is visible text of the model, as it arrives. Item and Part are those
// of [model.Delta], here and in the other deltas. Phase is that of the item, in its first delta.
type TextDelta struct {
	Round int    `json:"round"`
	Item  int    `json:"item"`
	Part  int    `json:"part"`
	Text  string `json:"text"`
	Phase string `json:"phase,omitempty"`
}

// ReasoningDelta is readable reasoning of the model, as it arrives.
type ReasoningDelta struct {
	Round int    `json:"round"`
	Item  int    `json:"item"`
	Part  int    `json:"part"`
	Text  string `json:"text"`
}

// RefusalDelta is a piece of the model's refusal, as it arrives.
type RefusalDelta struct {
	Round int    `json:"round"`
	Item  int    `json:"item"`
	Part  int    `json:"part"`
	Text  string `json:"text"`
	Phase string `json:"phase,omitempty"` // as that of a TextDelta
}

// CallDelta is a piece of a tool call's arguments, as it arrives. The first one
// of a call has its CallID and Name and may have no Arguments. CallID is the
// provider's id: a client must answer with the id of [ClientCall], which may be
// another one.
type CallDelta struct {
	Round     int    `json:"round"`
	Item      int    `json:"item"`
	CallID    string `json:"call_id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// NativeItem is an item of the model's answer that only a client of the provider's dialect
// understands, whole: what a tool of the provider's own did, or reasoning with content that
// only the provider can read. It is reported only if the request asked for such items.
type NativeItem struct {
	Round int             `json:"round"`
	Item  int             `json:"item"`
	JSON  json.RawMessage `json:"json"`
}

// Citation is a source of a text of the model. It follows a TextDelta of its item and
// part.
type Citation struct {
	Round    int           `json:"round"`
	Item     int           `json:"item"`
	Citation item.Citation `json:"citation"` // its Part is that of the text
}

// NativeProgress is a step of a tool of the provider's own, as an event of the provider's
// dialect without the members that say where in the answer it is. It is reported only if the
// request asked for native items. The first one of an item is its begin, and the last step
// comes before the NativeItem.
type NativeProgress struct {
	Round int             `json:"round"`
	Item  int             `json:"item"`
	JSON  json.RawMessage `json:"json"`
}

// ItemDone says that an item of the model's answer has come to its end: no delta of it
// follows. It is reported only if the provider marks the ends of items. Other items end with
// RoundDone.
type ItemDone struct {
	Round int `json:"round"`
	Item  int `json:"item"`
}

// RoundDone says that the model's turn is complete. The tool calls that it asked
// for are executed next.
type RoundDone struct {
	Round int         `json:"round"`
	Stop  model.Stop  `json:"stop"`
	Usage model.Usage `json:"usage"`
	At    time.Time   `json:"at,omitzero"` // UTC, in milliseconds; the zero time = not known
}

// ToolStarted says that the gateway is about to execute a tool call.
type ToolStarted struct {
	Round     int             `json:"round"`
	Key       string          `json:"call_key"` // identifies the call in the run: round.index
	Name      string          `json:"name"`     // as the model sees it
	Server    string          `json:"server,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`

	// Shown is true for a server that the request declared. Then Tool is the name that
	// the server gives the tool. The calls of other servers are not for the caller.
	Shown bool   `json:"shown,omitempty"`
	Tool  string `json:"tool,omitempty"`

	// Hosted is the type of the hosted tool that the call answers, such as web_search: the
	// caller sees the call as one of that tool. Tool is set as for a shown server. "" = none.
	Hosted string `json:"hosted,omitempty"`

	// Approval is the id of the approval with which the call is executed; "" = it needs none.
	Approval string `json:"approval,omitempty"`

	At time.Time `json:"at,omitzero"` // UTC, in milliseconds; the zero time = not known
}

// ToolDone says how a call of a gateway's tool ended. A call that was not executed,
// because of a limit or a denial, has a ToolDone and no ToolStarted.
type ToolDone struct {
	Round    int           `json:"round"`
	Key      string        `json:"call_key"`
	Name     string        `json:"name"`
	Server   string        `json:"server,omitempty"`
	Outcome  Outcome       `json:"outcome"`
	Text     string        `json:"text"`            // the result that the model gets
	Label    string        `json:"label,omitempty"` // where the content comes from, such as untrusted; "" = the tool has not said
	Duration time.Duration `json:"duration_ns"`     // 0 = not executed, or unknown; in whole microseconds
	At       time.Time     `json:"at,omitzero"`     // UTC, in milliseconds; the zero time = not known

	Shown     bool   `json:"shown,omitempty"`     // as in [ToolStarted]
	Tool      string `json:"tool,omitempty"`      // as in [ToolStarted]
	Hosted    string `json:"hosted,omitempty"`    // as in [ToolStarted]
	Arguments string `json:"arguments,omitempty"` // of a call that has no ToolStarted, as the model wrote them
	Approval  string `json:"approval,omitempty"`  // of a call that was asked for, whatever the decision
	Image     string `json:"image,omitempty"`     // base64 of the first image of the result, if Hosted is image_generation
	Files     []File `json:"files,omitempty"`     // that the call has made, if it is one of the built-in tool code_execute

	// Value is the result as a typed value, as in tool.Result: of a built-in tool that has one its own type, of other tools a
	// [json.RawMessage]; nil = none. It is not part of the JSON of the event.
	Value any `json:"-"`
}

// File is a file that a tool has made, and that the gateway has stored for the key of the run.
type File struct {
	ID        string    `json:"id"` // under which /v1/files has it
	Name      string    `json:"filename"`
	Path      string    `json:"path,omitempty"`      // in the working directory of the code
	MediaType string    `json:"mime_type,omitempty"` // "" = not known
	Bytes     int64     `json:"bytes"`
	SHA256    string    `json:"sha256"` // of the content, in hexadecimal
	CreatedAt time.Time `json:"created_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at"` // at the earliest

	// Preview is the begin of a file that is text; "" = it is not text, or empty. It is the whole text if it has as many
	// bytes as the file.
	Preview string `json:"preview,omitempty"`
}

// Outcome is how a tool call ended.
type Outcome string

// The outcomes.
const (
	CallOK      Outcome = "ok"
	CallError   Outcome = "error"
	CallUnknown Outcome = "unknown" // it may or may not have taken effect
	CallCached  Outcome = "cached"  // not executed: the result of an earlier identical call, or of one with the same effect key, was reused
	CallDenied  Outcome = "denied"
	CallSkipped Outcome = "skipped_limit"
	CallNotRun  Outcome = "not_run" // its request provably never left
)

// RelayHead is the status and header of a relayed answer. Names in Header are in
// the canonical form of net/http, whose Header can be assigned to and from it.
type RelayHead struct {
	Target Target // what answers; zero = it is not known yet
	Status int
	Header map[string][]string
	Length int64 // of the body; -1 when unknown
}

// RelayBody is a piece of a relayed answer's body. Data is valid until Emit
// returns.
type RelayBody struct{ Data []byte }

// ClientCall is a tool call that the caller must execute. The caller answers with
// ID: the provider's own id, or an id of the gateway when the run has items that
// the caller does not see.
type ClientCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Waiting says that the run waits until a human decides about tool calls. When all of them
// are decided, the run is resumed: more events follow.
type Waiting struct {
	Usage       model.Usage `json:"usage"` // summed over all rounds so far
	Rounds      int         `json:"rounds"`
	ToolCalls   int         `json:"tool_calls"`             // as in [Finished]
	SideEffects bool        `json:"side_effects,omitempty"` // as in [Finished]
	At          time.Time   `json:"at,omitzero"`            // UTC; the zero time = not known

	Cost tool.Money `json:"-"` // as in [Finished]

	// Approvals are what has to be decided, in the order of the calls.
	Approvals []Approval `json:"approvals,omitempty"`
}

// Approval is a tool call that waits for the approval of a human.
type Approval struct {
	ID        string          `json:"id"`
	Key       string          `json:"call_key"` // as in [ToolStarted]
	Name      string          `json:"name"`     // of the tool, as the model sees it
	Server    string          `json:"server"`
	Tool      string          `json:"tool"` // the name that the server gives the tool
	Arguments json.RawMessage `json:"arguments"`
	ExpiresAt time.Time       `json:"expires_at,omitzero"` // UTC; then the call counts as denied. The zero time = never
}

// ApprovalDecided says that a call that waits is decided, or that nobody has decided it in
// time.
type ApprovalDecided struct {
	ID       string    `json:"id"`
	Key      string    `json:"call_key"`
	Decision string    `json:"decision"`         // approved, denied or expired
	By       string    `json:"by,omitempty"`     // id of the key that decided; "" = nobody
	Reason   string    `json:"reason,omitempty"` // of who decided
	At       time.Time `json:"at"`               // UTC
}

// Compacted says that the prompt of the next model call was made shorter, or that this was tried. Nothing of the run is lost:
// it is about what the model sees.
type Compacted struct {
	Round  int   `json:"round"`  // of the model call
	Before int64 `json:"before"` // size of the prompt, in tokens
	After  int64 `json:"after"`  // the same after it, estimated; Before if nothing was done

	// Summarized says that the model sees the older part as a summary. Otherwise it sees old results of tools as placeholders.
	Summarized bool `json:"summarized,omitempty"`

	// NetNanoUSD is by how much the run has become more expensive until the end of the model call, in nano-USD: the summary, and
	// what the call costs more or less. A negative amount is saved. Nil = no price is known.
	NetNanoUSD *int64 `json:"net_nano_usd,omitempty"`

	Failed bool      `json:"failed,omitempty"` // the model call for the summary has failed
	At     time.Time `json:"at"`               // UTC
}

// Paused says that the run has reached a limit, and waits until the limit is raised. Then it goes
// on: LimitsRaised follows. If nobody raises it in time, Finished follows with the same reason.
type Paused struct {
	ID     string `json:"id"`
	Reason Reason `json:"reason"` // which limit: MaxRounds, MaxCalls, Deadline, Tokens or Money

	// Budget is the shared budget that has no room, and BudgetEndsAt is when its period ends (the
	// zero time = never). "" = it is a limit of the run itself.
	Budget       string    `json:"budget,omitempty"`
	BudgetEndsAt time.Time `json:"budget_ends_at,omitzero"`

	Message string `json:"message"` // what is used up, and what to do

	Usage     model.Usage `json:"usage"` // summed over all rounds so far
	Rounds    int         `json:"rounds"`
	ToolCalls int         `json:"tool_calls"` // as in [Finished]

	Active      time.Duration `json:"-"`                      // of the time limit, in whole milliseconds
	SideEffects bool          `json:"side_effects,omitempty"` // as in [Finished]
	Cost        tool.Money    `json:"-"`                      // as in [Finished]
	At          time.Time     `json:"at"`                     // UTC
	ExpiresAt   time.Time     `json:"expires_at,omitzero"`    // UTC; the zero time = never
}

// LimitsRaised says that limits of a run that was paused are raised, by how much, and by whom. If all
// are 0, the run tries again whether a shared budget has room.
type LimitsRaised struct {
	ID     string        `json:"id"` // of the Paused
	By     string        `json:"by"` // id of the key
	Rounds int           `json:"rounds,omitempty"`
	Calls  int           `json:"calls,omitempty"`
	Tokens int64         `json:"tokens,omitempty"`
	USD    tool.Money    `json:"-"`  // no amount = not raised
	Active time.Duration `json:"-"`  // in whole milliseconds
	At     time.Time     `json:"at"` // UTC
}

// HookRan says that a hook of the run has decided. There is one for each time a hook ran.
type HookRan struct {
	ID       string        `json:"hook_id"`
	Position int           `json:"position"`
	Event    string        `json:"hook_event"`    // its point, as settings name it: OnRunStart, PreToolUse, PostToolUse or PreResponse
	Key      string        `json:"key,omitempty"` // of the call that it is about; "" = it is about the run
	Status   HookStatus    `json:"status"`
	Modified bool          `json:"modified"`          // it has changed arguments, a result or the answer
	Blocked  bool          `json:"blocked"`           // it has denied the run, the call or the answer
	Asked    bool          `json:"asked,omitempty"`   // the call waits for a person because of it
	Duration time.Duration `json:"duration_ns"`       // 0 = not known
	Message  string        `json:"message,omitempty"` // why it denies or asks, or that it has failed
	At       time.Time     `json:"at"`                // UTC
}

// HookStatus says whether a hook has answered.
type HookStatus string

// The statuses of hooks. After a failure, the settings of the hook say what takes effect.
const (
	HookSucceeded HookStatus = "succeeded"
	HookFailed    HookStatus = "failed"
	HookTimedOut  HookStatus = "timed_out"
)

// Finished is the last event of a run. Every run that has ended has exactly one.
type Finished struct {
	Reason Reason       `json:"reason"`
	Calls  []ClientCall `json:"calls,omitempty"` // for ClientCalls, and for a relay whatever the reason
	Limit  Reason       `json:"limit,omitempty"` // MaxRounds if Calls are those of the last round that the limits allow
	Usage  model.Usage  `json:"usage"`           // summed over all rounds
	Rounds int          `json:"rounds"`
	At     time.Time    `json:"at,omitzero"` // UTC, in milliseconds; the zero time = not known

	// ToolCalls is the number of tool calls that the gateway started. Further attempts
	// at a call do not count, nor do calls that were answered without being executed.
	ToolCalls int `json:"tool_calls"`

	// Cost is what the model calls and the tool calls of the run cost. No amount = neither the models nor the tools
	// have a price.
	Cost tool.Money `json:"-"`

	// SideEffects is true when a tool that may write has been called. A client must
	// not repeat the request automatically.
	SideEffects bool `json:"side_effects,omitempty"`

	// Repeated is what the model has repeated, for NoProgress, such as "3 identical tool calls in a row".
	Repeated string `json:"repeated,omitempty"`

	// GaveUp is true when every attempt of a model call failed.
	GaveUp bool `json:"gave_up,omitempty"`

	// Failure says what went wrong, for the reasons for which Reason.Failed is true.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is why a run failed, safe to show to the caller.
type Failure struct {
	Code    string `json:"code"` // such as outbound_ssrf_blocked
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`   // the place in the caller's request that is refused; "" = none
	Address string `json:"address,omitempty"` // that the outbound policy refused; only owners and admins may see it

	// Server is the MCP server that failed, URL its address (only owners and admins
	// may see it), and Setting the configuration key that can allow it; "" = not
	// known, or none.
	Server  string `json:"server,omitempty"`
	URL     string `json:"url,omitempty"`
	Setting string `json:"setting,omitempty"`

	// RetryAt is when the same request may succeed, for BudgetExceeded: UTC, in milliseconds. The zero time = not
	// known, or never.
	RetryAt time.Time `json:"-"`

	// Upstream is the last failed model call, for the reasons ModelError and TooLong;
	// its Status is 0 if the provider gave no HTTP answer.
	Upstream *model.Error `json:"upstream,omitempty"`
}

// Type implements Event.
func (Started) Type() string { return "started" }

// Type implements Event.
func (ToolsListed) Type() string { return "tools_listed" }

// Type implements Event.
func (RoundStarted) Type() string { return "round_started" }

// Type implements Event.
func (ModelFallback) Type() string { return "model_fallback" }

// Type implements Event.
func (TextDelta) Type() string { return "text_delta" }

// Type implements Event.
func (ReasoningDelta) Type() string { return "reasoning_delta" }

// Type implements Event.
func (RefusalDelta) Type() string { return "refusal_delta" }

// Type implements Event.
func (CallDelta) Type() string { return "call_delta" }

// Type implements Event.
func (NativeItem) Type() string { return "native_item" }

// Type implements Event.
func (Citation) Type() string { return "citation" }

// Type implements Event.
func (NativeProgress) Type() string { return "native_progress" }

// Type implements Event.
func (ItemDone) Type() string { return "item_done" }

// Type implements Event.
func (RoundDone) Type() string { return "round_done" }

// Type implements Event.
func (ToolStarted) Type() string { return "tool_started" }

// Type implements Event.
func (ToolDone) Type() string { return "tool_done" }

// Type implements Event.
func (RelayHead) Type() string { return "relay_head" }

// Type implements Event.
func (RelayBody) Type() string { return "relay_body" }

// Type implements Event.
func (ApprovalDecided) Type() string { return "approval_decided" }

// Type implements Event.
func (Waiting) Type() string { return "waiting" }

// Type implements Event.
func (Paused) Type() string { return "paused" }

// Type implements Event.
func (LimitsRaised) Type() string { return "limits_raised" }

// Type returns "hook_ran".
func (HookRan) Type() string { return "hook_ran" }

// Type returns "compacted".
func (Compacted) Type() string { return "compacted" }

// Type implements Event.
func (Finished) Type() string { return "finished" }

func (Started) event()         {}
func (ToolsListed) event()     {}
func (RoundStarted) event()    {}
func (ModelFallback) event()   {}
func (TextDelta) event()       {}
func (ReasoningDelta) event()  {}
func (RefusalDelta) event()    {}
func (CallDelta) event()       {}
func (NativeItem) event()      {}
func (Citation) event()        {}
func (NativeProgress) event()  {}
func (ItemDone) event()        {}
func (RoundDone) event()       {}
func (ToolStarted) event()     {}
func (ToolDone) event()        {}
func (RelayHead) event()       {}
func (RelayBody) event()       {}
func (ApprovalDecided) event() {}
func (Waiting) event()         {}
func (Paused) event()          {}
func (LimitsRaised) event()    {}
func (HookRan) event()         {}
func (Compacted) event()       {}
func (Finished) event()        {}
