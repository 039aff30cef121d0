package loop

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Version is the version of the facts that this package writes.
const Version = 1

// Fact is one entry of a run's journal.
type Fact struct {
	Seq     int64 // 1, 2, 3 … without gaps
	Epoch   int64 // of the lease under which it was written; 0 for a writer without one
	At      int64 // Unix milliseconds
	Version int
	Body    Body
}

// Body is what happened: one of the types below.
type Body interface{ Kind() Kind }

// Kind names a fact in the journal.
type Kind string

// CallKey is our identity of a tool call: round.index. Provider ids repeat and
// collide.
type CallKey string

// Parallelism says how several calls of one turn are executed.
type Parallelism string

// The modes of parallelism.
const (
	Parallel Parallelism = "parallel" // all at the same time
	Safe     Parallelism = "safe"     // reading calls at the same time, the others in order after them
	Serial   Parallelism = "serial"   // in order
	First    Parallelism = "first"    // only the first; the rest is answered
)

// Grade says how much of a run is stored.
type Grade string

// The grades of run, see the design's section 4.
const (
	Relay   Grade = "relay"
	Light   Grade = "light"
	Durable Grade = "durable"
)

// Accepted opens every journal: what was asked for, by whom, within which
// limits. Nothing in it changes afterwards.
type Accepted struct {
	RunID       string        `json:"run_id"`
	Org         string        `json:"org"`
	Principal   string        `json:"principal"`
	Surface     string        `json:"surface"`
	Grade       Grade         `json:"grade"`
	Raw         bool          `json:"raw,omitempty"`
	Model       string        `json:"model"` // as the caller named it
	Targets     []Target      `json:"targets"`
	Limits      budget.Limits `json:"limits"`
	Parallelism Parallelism   `json:"parallelism,omitempty"`
	AbortOnTool bool          `json:"abort_on_tool,omitempty"` // tool_error_mode: abort
	NoTools     bool          `json:"no_tools,omitempty"`      // tool_choice: none, as the caller asked
	Guard       policy.Guard  `json:"guard,omitzero"`
	Rules       Rules         `json:"rules,omitzero"`
	MaxTokens   int64         `json:"max_tokens,omitempty"` // of one model call's output, as the caller asked; 0 = not said
	RequestRef  string        `json:"request_ref,omitempty"`

	// Budgets are those of the org that the run spends from. They bind beside
	// Limits, and are shared with other runs.
	Budgets []budget.Shared `json:"budgets,omitempty"`
}

// Target is one provider's model that may serve the run.
type Target struct {
	Provider string `json:"provider"`
	Model    string `json:"model"` // the provider's name for it
}

// Catalogued says which tools the run sees. It is sealed here: a list that
// changes later concerns later runs.
type Catalogued struct {
	CatalogRef string    `json:"catalog_ref,omitempty"`
	Servers    []Server  `json:"servers,omitempty"`
	Conflict   *Conflict `json:"conflict,omitempty"`
	Missing    string    `json:"missing,omitempty"` // what tool_choice demands and nobody has
	Bytes      int64     `json:"bytes,omitempty"`   // of the definitions that the model is shown

	// Collisions are those in the run's catalogue that no earlier run has recorded.
	Collisions []Collision `json:"collisions,omitempty"`
}

// Collision is a tool that was left out because another has its name.
type Collision struct {
	Tool     string `json:"tool"`      // the name, as the model sees it
	Server   string `json:"server_id"` // whose tool was left out
	KeptFrom string `json:"kept_from"` // the server whose tool has the name
}

// Conflict is a name that a tool of the caller and one of the gateway share.
type Conflict struct {
	Tool   string `json:"tool"`
	Server string `json:"server"`
}

// Server is one tool source as it was found.
type Server struct {
	Label    string `json:"label"`
	Tools    int    `json:"tools"`
	Required bool   `json:"required,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Blocked says that the outbound policy refused an address.
type Blocked struct {
	Reason  string `json:"reason"`
	Address string `json:"address"`
	Server  string `json:"server,omitempty"`

	// URL is the server's, without its query. Setting is the key of the
	// configuration that can allow the address. "" = it is not known, or none can.
	URL     string `json:"url,omitempty"`
	Setting string `json:"setting,omitempty"`
}

// InputAdded appends items to the transcript.
type InputAdded struct {
	ItemsRef string `json:"items_ref"`
	By       string `json:"by"`            // client, splice
	Cut      bool   `json:"cut,omitempty"` // they hold results that were cut, and that can be read
	Bytes    int64  `json:"bytes,omitempty"`
}

// Reserved says that the most that a model call may cost was set aside in every
// budget that the run spends from. It comes with the call's TurnStarted.
type Reserved struct {
	Round   int           `json:"round"`
	Attempt int           `json:"attempt"`
	Scopes  []string      `json:"scopes"`
	Amount  budget.Amount `json:"amount"`
}

// ReserveRefused says that a shared budget had no room for the next model call.
type ReserveRefused struct {
	Round   int           `json:"round"`
	Attempt int           `json:"attempt"`
	Scope   string        `json:"scope"`
	Amount  budget.Amount `json:"amount"`
	Reason  event.Reason  `json:"reason"` // Tokens or Money
}

// TurnStarted says that a model call is about to be sent.
type TurnStarted struct {
	Round        int     `json:"round"`
	Attempt      int     `json:"attempt"`
	Target       int     `json:"target"`
	Purpose      Purpose `json:"purpose"`
	PromptDigest string  `json:"prompt_digest,omitempty"`
}

// TurnFailed says how a model call failed.
type TurnFailed struct {
	Attempt    int         `json:"attempt"`
	Class      model.Class `json:"class"`
	Status     int         `json:"status,omitempty"`
	ErrorRef   string      `json:"error_ref,omitempty"`
	RetryAt    int64       `json:"retry_at,omitempty"`  // Unix milliseconds: when a retry would be due
	Forwarded  bool        `json:"forwarded,omitempty"` // some of it has reached the caller
	Usage      model.Usage `json:"usage,omitzero"`
	PartialRef string      `json:"partial_ref,omitempty"`
}

// Turn is what the model returned in one call.
type Turn struct {
	Round    int         `json:"round"`
	Purpose  Purpose     `json:"purpose"`
	ItemsRef string      `json:"items_ref,omitempty"`
	Calls    []TurnCall  `json:"calls,omitempty"`
	Stop     model.Stop  `json:"stop"`
	Usage    model.Usage `json:"usage,omitzero"`
	Bytes    int64       `json:"bytes,omitempty"` // of what the next call is shown of it
}

// TurnCall is one tool call of a turn. Its key is round.index with the index
// in Turn.Calls.
type TurnCall struct {
	ProviderID string `json:"provider_id"`
	Name       string `json:"name"`
	Arguments  string `json:"arguments"`
	Complete   bool   `json:"complete"`
}

// Verdict says what is to become of a prepared call. The zero value is none.
type Verdict string

// The verdicts.
const (
	Run  Verdict = "run"
	Ask  Verdict = "ask"    // a human decides
	Tell Verdict = "answer" // not executed: the model is told Answer
)

// CallPrepared says whose call it is and what is to become of it.
type CallPrepared struct {
	Key        CallKey    `json:"call_key"`
	Owner      tool.Owner `json:"owner"`
	Tool       string     `json:"tool,omitempty"`   // the source's own name for it
	Server     string     `json:"server,omitempty"` // the source
	ToolDigest string     `json:"tool_digest,omitempty"`
	Class      tool.Class `json:"class,omitempty"`
	ArgsRef    string     `json:"args_ref,omitempty"`
	ArgsDigest string     `json:"args_digest"`
	Coerced    []Coerced  `json:"coerced,omitempty"` // how the arguments differ from the model's own
	Polling    bool       `json:"polling,omitempty"`
	Verdict    Verdict    `json:"verdict,omitempty"` // none for a client's call
	Answer     string     `json:"answer,omitempty"`  // for Tell
}

// Coerced is a value of the arguments whose type was changed to what the tool's
// schema wants.
type Coerced struct {
	Path string `json:"path"` // JSON pointer to the value as it is now
	From string `json:"from"` // the JSON type that it had
	To   string `json:"to"`   // the type that the schema wants
}

// CallStarted is the intent: it is stored before the request leaves.
type CallStarted struct {
	Key     CallKey `json:"call_key"`
	Attempt int     `json:"attempt"`
	IdemKey string  `json:"idem_key,omitempty"`
}

// Outcome says how a call ended.
type Outcome string

// The outcomes.
const (
	OK           Outcome = "ok"
	Error        Outcome = "error"
	Unknown      Outcome = "unknown" // it may or may not have happened
	Cached       Outcome = "cached"  // not executed: an earlier result of the same call is still good
	Denied       Outcome = "denied"
	SkippedLimit Outcome = "skipped_limit"
	NotRun       Outcome = "not_run" // it provably never left
)

// Unanswered returns the outcome of a call of class c that may have reached its
// tool and got no answer.
func Unanswered(c tool.Class) Outcome {
	if c == tool.Read {
		return Error // it changed nothing
	}
	return Unknown
}

// CallDone says how a call ended, executed or not.
type CallDone struct {
	Key          CallKey `json:"call_key"`
	Attempt      int     `json:"attempt,omitempty"` // 0 = never executed
	Outcome      Outcome `json:"outcome"`
	ResultRef    string  `json:"result_ref"`
	ResultDigest string  `json:"result_digest"`
	FullRef      string  `json:"full_ref,omitempty"` // all of a result that was cut
	Bytes        int64   `json:"bytes,omitempty"`    // of what the model is told
	Micros       int64   `json:"us,omitempty"`       // how long it took, in microseconds; 0 = it was not executed, or nobody knows
	MS           int64   `json:"ms,omitempty"`       // the same in milliseconds, written by releases before 0.2; see Took
}

// Took returns how long the call took, in microseconds.
func (b CallDone) Took() int64 {
	if b.Micros != 0 {
		return b.Micros
	}
	return b.MS * 1000
}

// CallWaiting says that a human is asked.
type CallWaiting struct {
	Key       CallKey `json:"call_key"`
	WaitID    string  `json:"wait_id"`
	ExpiresAt int64   `json:"expires_at,omitempty"`
}

// CallResolved is the human's decision.
type CallResolved struct {
	WaitID   string `json:"wait_id"`
	Approved bool   `json:"approved"`
	By       string `json:"by"`
	Message  string `json:"message,omitempty"`
}

// CancelRequested ends the run at the next decision.
type CancelRequested struct {
	By    string       `json:"by"`
	Cause event.Reason `json:"cause"` // Cancelled, CallerGone, or Lost
}

// Expired says that time ran out: the run's own when WaitID is empty, else that
// of one wait.
type Expired struct {
	WaitID string `json:"wait_id,omitempty"`
}

// Parked says that the run holds nothing and waits.
type Parked struct {
	ActiveMS int64 `json:"active_ms"` // spent since it was accepted or resumed
}

// Resumed says that a new owner goes on with the run: one that was parked, or
// one whose owner is gone.
type Resumed struct {
	By string `json:"by"` // the new owner

	// Handed says that the last owner gave the run back. False where it died, or
	// lost its lease, and where an older release wrote the fact.
	Handed bool `json:"handed,omitempty"`
}

// Finished closes every journal.
type Finished struct {
	Reason event.Reason `json:"reason"`
	Code   string       `json:"code,omitempty"`
	Detail string       `json:"detail,omitempty"` // why a run was given up, for its operator

	// Handed are the calls that the caller is to execute, with the ids that it
	// was given.
	Handed []Handed `json:"handed,omitempty"`
}

// Handed is a call that was left to the caller.
type Handed struct {
	Key CallKey `json:"call_key"`
	ID  string  `json:"id"`
}

// The kinds of fact.
const (
	KindAccepted        Kind = "accepted"
	KindCatalogued      Kind = "catalogued"
	KindBlocked         Kind = "blocked"
	KindInputAdded      Kind = "input_added"
	KindReserved        Kind = "reserved"
	KindReserveRefused  Kind = "reserve_refused"
	KindTurnStarted     Kind = "turn_started"
	KindTurnFailed      Kind = "turn_failed"
	KindTurn            Kind = "turn"
	KindCallPrepared    Kind = "call_prepared"
	KindCallStarted     Kind = "call_started"
	KindCallDone        Kind = "call_done"
	KindCallWaiting     Kind = "call_waiting"
	KindCallResolved    Kind = "call_resolved"
	KindCancelRequested Kind = "cancel_requested"
	KindExpired         Kind = "expired"
	KindParked          Kind = "parked"
	KindResumed         Kind = "resumed"
	KindFinished        Kind = "finished"
)

// Kind implements Body.
func (Accepted) Kind() Kind        { return KindAccepted }
func (Catalogued) Kind() Kind      { return KindCatalogued }
func (Blocked) Kind() Kind         { return KindBlocked }
func (InputAdded) Kind() Kind      { return KindInputAdded }
func (Reserved) Kind() Kind        { return KindReserved }
func (ReserveRefused) Kind() Kind  { return KindReserveRefused }
func (TurnStarted) Kind() Kind     { return KindTurnStarted }
func (TurnFailed) Kind() Kind      { return KindTurnFailed }
func (Turn) Kind() Kind            { return KindTurn }
func (CallPrepared) Kind() Kind    { return KindCallPrepared }
func (CallStarted) Kind() Kind     { return KindCallStarted }
func (CallDone) Kind() Kind        { return KindCallDone }
func (CallWaiting) Kind() Kind     { return KindCallWaiting }
func (CallResolved) Kind() Kind    { return KindCallResolved }
func (CancelRequested) Kind() Kind { return KindCancelRequested }
func (Expired) Kind() Kind         { return KindExpired }
func (Parked) Kind() Kind          { return KindParked }
func (Resumed) Kind() Kind         { return KindResumed }
func (Finished) Kind() Kind        { return KindFinished }
