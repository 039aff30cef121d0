package loop

import (
	"cmp"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Version is the version of the facts that this build writes. [Decode] refuses
// facts of a higher version.
const Version = 1

// Fact is one entry of a run's journal. Facts are appended and never changed.
type Fact struct {
	Seq     int64 // 1, 2, 3 … without gaps
	Epoch   int64 // of the writer's lease; 0 = the writer holds none
	At      int64 // when it was written, in Unix milliseconds; not before the At of the fact before it in the same epoch
	Version int
	Body    Body
}

// Body is the content of a fact: one of the types below. Their JSON is stored in
// journals. A field name must not change, and a new field must be optional.
// The linter reports every switch that does not name all of them.
//
//sumtype:decl
type Body interface {
	Kind() Kind
	body()
}

// Kind is the name of a body's type in the journal.
type Kind string

// CallKey identifies a tool call within a run: round.index, such as "0.1". Provider
// ids are not unique within a run.
type CallKey string

// Parallelism is how the calls of one turn are executed.
type Parallelism string

// The modes of parallelism.
const (
	Parallel Parallelism = "parallel" // all at the same time
	Safe     Parallelism = "safe"     // calls of class Read at the same time, then the others one by one, in order
	Serial   Parallelism = "serial"   // one by one, in order
	First    Parallelism = "first"    // only the first; the others are answered with NotRun
)

// Grade is how durably a run is stored.
type Grade string

// The grades.
const (
	Relay   Grade = "relay"   // one model call; no journal is stored
	Light   Grade = "light"   // on disk before the next effect: its start and end, calls that are not tool.Read, reservations and approvals; lost if its owner dies
	Durable Grade = "durable" // every fact is on disk before the next effect; another owner continues the run
)

// Accepted is the first fact of every journal: the request, its caller and the
// settings of the run. It occurs once.
type Accepted struct {
	RunID     string   `json:"run_id"`
	Org       string   `json:"org"`
	Principal string   `json:"principal"`
	EndUser   string   `json:"end_user,omitempty"` // whom the client names as its own user; "" = nobody
	Surface   string   `json:"surface"`
	Raw       bool     `json:"raw,omitempty"`       // a relay that passes bytes on unchanged; only with the grade Relay
	RawBytes  int64    `json:"raw_bytes,omitempty"` // size of the body of such a relay
	Model     string   `json:"model"`               // as the caller named it
	Targets   []Target `json:"targets"`
	Policy

	RequestRef string `json:"request_ref,omitempty"`

	// Summarizer writes the summaries of compactions; nil = the target that gets the prompt does.
	Summarizer *Target `json:"summarizer,omitempty"`

	// AgentSession is the session of an agent of a program that the run is part of; "" = none.
	AgentSession string `json:"agent_session,omitempty"`
	// Agent is the id of the agent whose run it is; "" = none.
	Agent string `json:"agent,omitempty"`

	// Remembered are the tools that need no approval again in the session of the run.
	Remembered []Remembered `json:"remembered,omitempty"`

	// Listed are the labels of the shown servers whose tools the conversation has listed
	// before this run.
	Listed []string `json:"listed,omitempty"`

	// CallerAt is the process that holds the caller's request open, if nobody can come back
	// for the answer: the run does not wait for approval without its caller. "" = somebody can.
	CallerAt string `json:"caller_at,omitempty"`

	// Queued says that the run waits for a slot, without an owner: its active time begins with Resumed.
	Queued bool `json:"queued,omitempty"`

	// Deferred says that the input follows when the run has begun, because it is a turn of a session: what its
	// earlier turns have said is read when they have all ended. See [AddInput].
	Deferred bool `json:"deferred,omitempty"`
}

// Target is a provider's model that may serve the run.
type Target struct {
	Provider string `json:"provider"`
	Model    string `json:"model"` // the provider's name for it

	// Price is what its calls cost in this run, whatever the rate card says later. Without a
	// known price they cost no money, and no limit on money allows them.
	Price money.Price `json:"price,omitzero"`

	// Window is what the model takes. It is known only in a run with a ContextPolicy, and the zero
	// value is one that is not known.
	Window window.Size `json:"window,omitzero"`

	// Images says that the model takes images: it sees those in results of tools.
	Images bool `json:"images,omitempty"`

	// OwnContext says that the provider shortens prompts that are too long, because the request asks
	// it to: the run does not.
	OwnContext bool `json:"own_context,omitempty"`
}

// Catalogued records the tools of the run. It occurs at most once: a server whose
// tools change later affects later runs only.
type Catalogued struct {
	CatalogRef string    `json:"catalog_ref,omitempty"`
	Servers    []Server  `json:"servers,omitempty"`
	Conflict   *Conflict `json:"conflict,omitempty"`
	Missing    string    `json:"missing,omitempty"` // the tool that tool_choice forces and that does not exist; "" = none
	Bytes      int64     `json:"bytes,omitempty"`   // size of the definitions sent to the model

	// ListedRef has the tools of the servers that are Announced; "" = there are none.
	ListedRef string `json:"listed_ref,omitempty"`

	// Collisions are the name collisions in the run's catalogue that no earlier run
	// has recorded.
	Collisions []Collision `json:"collisions,omitempty"`
}

// Collision is a tool that is not offered because another tool has its name.
type Collision struct {
	Tool     string `json:"tool"`      // the name that the model sees
	Server   string `json:"server_id"` // server of the tool that is not offered
	KeptFrom string `json:"kept_from"` // server of the tool that is offered
}

// Conflict is a name shared by a client tool and a gateway tool.
type Conflict struct {
	Tool   string `json:"tool"`
	Server string `json:"server"`
}

// Server is the result of discovery for one tool source. Error is "" if it
// answered. Label is its name in the run, see [RequestServer].
type Server struct {
	Label    string `json:"label"`
	Tools    int    `json:"tools"`
	Required bool   `json:"required,omitempty"`
	Error    string `json:"error,omitempty"`

	// Shown says that the request declared the server: the caller sees its tools and
	// calls. Announced says that this run lists its tools, see [State.Announce].
	Shown     bool `json:"shown,omitempty"`
	Announced bool `json:"announced,omitempty"`

	// FromRequest says that the server is not one of the org: the request brought it.
	FromRequest bool `json:"brought,omitempty"`
}

// Blocked records that the outbound policy refused an address. It ends the run.
type Blocked struct {
	Reason  string `json:"reason"`
	Address string `json:"address"`
	Server  string `json:"server,omitempty"`

	// URL is the server's URL without its query. Setting is the configuration key
	// that can allow the address; "" = unknown, or no key can.
	URL     string `json:"url,omitempty"`
	Setting string `json:"setting,omitempty"`
}

// InputAdded appends items to the transcript. The model sees them in its next turn: a run
// whose answer came before they were seen makes another model call.
type InputAdded struct {
	ItemsRef  string `json:"items_ref"`
	By        Adder  `json:"by"`
	Who       string `json:"who,omitempty"` // id of the hook or of the principal; "" for the client
	Truncated bool   `json:"cut,omitempty"` // the items have truncated results whose rest can be read
	Bytes     int64  `json:"bytes,omitempty"`
}

// HookRan records what a hook decided. See [HookPoint] for where it runs.
type HookRan struct {
	Point    HookPoint   `json:"point"`
	Hook     string      `json:"hook"`                // its id
	Key      CallKey     `json:"call_key,omitempty"`  // the call that it is about; "" = it is about the run
	Verdict  HookVerdict `json:"verdict"`             // what takes effect
	PatchRef string      `json:"patch_ref,omitempty"` // row with what HookModify puts in place; "" for another verdict
	Failed   bool        `json:"failed,omitempty"`    // the hook has failed; Verdict is what its settings say for that case
	Message  string      `json:"message,omitempty"`   // why it denies or asks, or has failed; it may have texts of the run
	Micros   int64       `json:"us,omitempty"`        // duration in microseconds; 0 = not known
	TimedOut bool        `json:"timed_out,omitempty"` // it has failed because it did not answer in time
}

// Compacted records that the model sees less of the transcript from now on, or that an attempt
// at that has failed. No item is deleted. It settles the reservation of its model call.
type Compacted struct {
	Until  int      `json:"until,omitempty"`      // the model sees Refs instead of the first Until segments of [State.Transcript]
	Refs   []string `json:"items_refs,omitempty"` // of rows: a summary, items with placeholders for old results, or rows of these segments that it still sees
	Before int64    `json:"before,omitempty"`     // size of the prompt, in tokens
	After  int64    `json:"after,omitempty"`      // estimated size of the prompt, in tokens
	Bytes  int64    `json:"bytes,omitempty"`      // size of the prompt with the definitions of the tools, of which no provider has counted anything; 0 = not known

	Target     int  `json:"target,omitempty"`     // that gets the prompt: index into Accepted.Targets
	Summarized bool `json:"summarized,omitempty"` // the older part is seen as a summary; otherwise results of tools are seen as placeholders

	Usage     model.Usage    `json:"usage,omitzero"`          // of the model call that wrote the summary; zero = there was none
	NetNano   int64          `json:"net_nano_usd,omitempty"`  // see [window.Compaction.NetCost]; 0 = not known
	Failed    bool           `json:"failed,omitempty"`        // the model call has failed, or answered nothing
	Refused   bool           `json:"refused,omitempty"`       // the provider has refused the model call, which costs nothing
	Uncounted bool           `json:"uncounted,omitempty"`     // see [Turn].Uncounted
	Largest   []window.Share `json:"largest_parts,omitempty"` // of a prompt that could not be made shorter: Refs is empty
}

// Paused records that the run waits until a limit is raised, and has no owner. Like a parked run it
// uses no active time. Its calls that are not started stay as they are.
type Paused struct {
	WaitID    string       `json:"wait_id"`
	Reason    event.Reason `json:"reason"`               // of the limit: what the run would end with
	Scope     string       `json:"scope,omitempty"`      // of the window of the shared budget that has no room; "" = it is a limit of the run
	EndsAt    int64        `json:"ends_at,omitempty"`    // of that window, in Unix milliseconds; 0 = never
	ExpiresAt int64        `json:"expires_at,omitempty"` // when the run ends for its limit, in Unix milliseconds; 0 = never
	ActiveMS  int64        `json:"active_ms"`            // active milliseconds since Accepted or the last Resumed
	CallerAt  string       `json:"caller_at,omitempty"`  // that of Accepted

	// Refused says why the run may not wait; "" = it may. Such a run does not wait: it ends for its
	// limit, now and later.
	Refused string `json:"refused,omitempty"`
}

// LimitsRaised records that somebody has raised limits of the run.
type LimitsRaised struct {
	By    string       `json:"by"` // principal
	Raise budget.Raise `json:"raise"`

	// WaitID is that of the Paused which it ends; "" = the run does not wait for it. Where a shared
	// budget has no room, Raise may be zero: the run tries again.
	WaitID string `json:"wait_id,omitempty"`

	// Budgets replace those of Accepted if Rebudget is true: as the org has them now.
	Budgets  []budget.Shared `json:"budgets,omitempty"`
	Rebudget bool            `json:"rebudget,omitempty"`
}

// Reserved records that the maximum cost of a model call is reserved in every budget
// in Scopes. It must be appended in the same batch as the call's TurnStarted, after
// which Turn or TurnFailed settles it.
type Reserved struct {
	Round   int           `json:"round"`
	Attempt int           `json:"attempt"`
	Scopes  []string      `json:"scopes"`
	Amount  budget.Amount `json:"amount"`

	// Compaction is the number of the compaction whose summary is reserved, from 1; 0 = it is another model call.
	// It is appended in a batch of its own, and Compacted settles it.
	Compaction int `json:"compaction,omitempty"`
}

// ReserveRefused records that a shared budget cannot cover the next model call. It
// ends the run with Reason, unless the run pauses.
type ReserveRefused struct {
	Round   int           `json:"round"`
	Attempt int           `json:"attempt"`
	Scope   string        `json:"scope"` // of the window
	Amount  budget.Amount `json:"amount"`
	Reason  event.Reason  `json:"reason"` // event.BudgetExceeded before the first answer, else event.Tokens or event.Money

	Limit  budget.Amount `json:"limit"`
	Used   budget.Amount `json:"used"`              // spent and reserved
	EndsAt int64         `json:"ends_at,omitempty"` // of the window, in Unix milliseconds; 0 = never
}

// Routed records in which order the targets of a round are tried, beginning with the next
// model call. Targets that the round has tried are not tried again.
type Routed struct {
	Round   int             `json:"round"`
	Attempt int             `json:"attempt,omitempty"` // model calls that the round had made; 0 = the round begins
	Order   []int           `json:"order,omitempty"`   // indices into Accepted.Targets; the others are not tried
	Skipped []SkippedTarget `json:"skipped,omitempty"` // targets that the router leaves out

	// First is the target that a fallback list names first, if another one is the first of Order when the round begins:
	// its circuit breaker is open, or the conversation stays with the other. nil = it is the first of Order.
	First *int `json:"first,omitempty"`
}

// SkippedTarget is a target that is not tried.
type SkippedTarget struct {
	Target int    `json:"target"` // index into Accepted.Targets
	Reason string `json:"reason"` // such as SkipOpen
}

// The reasons of [SkippedTarget].
const (
	SkipOpen      = "breaker_open" // its circuit breaker is open
	SkipNoPrice   = "no_price"     // a limit on money applies, and its model has no price
	SkipOverLimit = "over_limit"   // what is left of the run's limit on money is not enough for it
)

// TurnStarted records the intent to send a model call. It is appended before the
// request leaves.
type TurnStarted struct {
	Round        int     `json:"round"`
	Attempt      int     `json:"attempt"`
	Target       int     `json:"target"`
	Purpose      Purpose `json:"purpose"`
	PromptDigest string  `json:"prompt_digest,omitempty"`

	// Warned says that the model was told that little of the run's budget is left.
	Warned bool `json:"warned,omitempty"`

	// NoTools says that the model was offered no tools, so that it must answer, and Toolless that it takes none: it
	// was offered only what the request has.
	NoTools  bool `json:"no_tools,omitempty"`
	Toolless bool `json:"toolless,omitempty"`
}

// TurnFailed records that a model call failed.
type TurnFailed struct {
	Attempt    int              `json:"attempt"`
	Class      model.ErrorClass `json:"class"`
	Status     int              `json:"status,omitempty"`
	ErrorRef   string           `json:"error_ref,omitempty"`
	RetryAt    int64            `json:"retry_at,omitempty"`  // earliest time of a retry, in Unix milliseconds
	Forwarded  bool             `json:"forwarded,omitempty"` // part of the answer has reached the caller; it must not be retried
	Usage      model.Usage      `json:"usage,omitzero"`
	ToolRan    bool             `json:"tool_ran,omitempty"` // a tool of the provider's own began to run; the call must not be retried
	PartialRef string           `json:"partial_ref,omitempty"`
	Credential bool             `json:"credential,omitempty"` // the provider refuses the gateway's credential
	Param      string           `json:"param,omitempty"`      // the member of the request that cannot be sent to the provider; "" = none
	Unsent     bool             `json:"unsent,omitempty"`     // the request did not leave, so that it costs nothing
	Refused    bool             `json:"refused,omitempty"`    // the provider answered with an error and without output, which costs only what Usage says
	Uncounted  bool             `json:"uncounted,omitempty"`  // see [Turn].Uncounted

	// TargetOpen says that the circuit breaker of the target is open now: the next attempt is at
	// another target, if there is one.
	TargetOpen bool `json:"target_open,omitempty"`

	// Limit is the size that the provider has named when it refused the prompt as too long, in tokens; 0 = none.
	Limit int64 `json:"limit_tokens,omitempty"`
}

// Turn records what the model returned in one call.
type Turn struct {
	Round    int         `json:"round"`
	Purpose  Purpose     `json:"purpose"`
	ItemsRef string      `json:"items_ref,omitempty"`
	Calls    []TurnCall  `json:"calls,omitempty"`
	Stop     model.Stop  `json:"stop"`
	Usage    model.Usage `json:"usage,omitzero"`
	Bytes    int64       `json:"bytes,omitempty"` // size of its items in the next prompt

	// Unsendable is true if the turn has something that the provider needs back and the
	// caller does not get: signatures, encrypted reasoning, items of the provider's tools.
	Unsendable bool `json:"unsendable,omitempty"`

	// Refused says that the answer to a relay was an error of the provider, which costs
	// nothing unless Usage says so.
	Refused bool `json:"refused,omitempty"`

	// Uncounted says that the provider has not counted all of the call: the answer broke off, or ended without
	// its usage. Such a call costs what was reserved for it, or what Usage and Bytes say if that is more.
	Uncounted bool `json:"uncounted,omitempty"`

	// Continues says that the run asks for the rest of the answer, see [State.ContinuesAfter]. Such a turn is no
	// round: the turn with the rest has the same Round.
	Continues bool `json:"continues,omitempty"`

	// WholeRef is set if the turn before Continues: the row with the items of the answer so far. ItemsRef has those
	// of this turn alone.
	WholeRef string `json:"whole_ref,omitempty"`
}

// AnswerRef returns the row with all items of the answer so far.
func (t Turn) AnswerRef() string {
	if t.WholeRef != "" {
		return t.WholeRef
	}
	return t.ItemsRef
}

// TurnCall is one tool call of a turn. Its key is [Key] of Turn.Round and its index
// in Turn.Calls.
type TurnCall struct {
	ProviderID string `json:"provider_id"`
	Name       string `json:"name"`
	Tool       string `json:"tool,omitempty"` // the server's own name of the tool that the gateway offered by Name; "" = Name
	Arguments  string `json:"arguments"`
	Complete   bool   `json:"complete"` // false if the answer was cut off within the call; it is then ignored

	// UnknownBytes is the length of the name, if there is no tool of it: the model has made it up. 0 = there is one, or
	// the fact is of a version that did not tell.
	UnknownBytes int `json:"unknown_bytes,omitempty"`
}

// Verdict is how the gateway handles a prepared call. The zero value means that the
// client executes it.
type Verdict string

// The verdicts.
const (
	Run    Verdict = "run"    // execute it
	Ask    Verdict = "ask"    // ask for approval, then execute it
	Answer Verdict = "answer" // do not execute it; CallPrepared.Answer is the result
)

// CallPrepared records who executes a call, and how the gateway handles it.
type CallPrepared struct {
	Key        CallKey    `json:"call_key"`
	Owner      tool.Owner `json:"owner"`
	Tool       string     `json:"tool,omitempty"`   // its name at the source
	Server     string     `json:"server,omitempty"` // label of the source
	ToolDigest string     `json:"tool_digest,omitempty"`
	Class      tool.Class `json:"class,omitempty"`
	ArgsRef    string     `json:"args_ref,omitempty"`
	ArgsDigest string     `json:"args_digest"`
	Coerced    []Coerced  `json:"coerced,omitempty"` // changes to the model's arguments
	Polling    bool       `json:"polling,omitempty"`
	Verdict    Verdict    `json:"verdict,omitempty"`    // "" for a client call
	Answer     string     `json:"answer,omitempty"`     // the result, for the verdict Answer
	PriceNano  money.Nano `json:"price_nano,omitempty"` // what an execution costs; 0 = it is free
	Asker      Asker      `json:"asker,omitempty"`      // for the verdict Ask

	// Place and Host are those of the server, for the verdict Ask: an approval holds for no other place.
	Place string `json:"place,omitempty"` // "" = the gateway itself
	Host  string `json:"host,omitempty"`  // for the person who decides; "" = none

	// Revision counts the preparations before this one. A call is prepared again if its tool or
	// its arguments are not those that were approved, or if it cannot be asked for: an approval
	// of the call as it was before is void.
	Revision int `json:"again,omitempty"`
}

// Coerced is a change of an argument to the type that the tool's schema requires.
type Coerced struct {
	Path string `json:"path"` // JSON pointer into the changed arguments
	From string `json:"from"` // JSON type before
	To   string `json:"to"`   // JSON type after
}

// CallStarted records the intent to execute a call. It is appended before the request
// leaves. Unless the run is Light and the call's class is tool.Read, it is on disk by
// then: a call without it provably never ran.
type CallStarted struct {
	Key     CallKey `json:"call_key"`
	Attempt int     `json:"attempt"`
	IdemKey string  `json:"idem_key,omitempty"`
}

// Outcome says how a call ended.
type Outcome = event.Outcome

// The outcomes.
const (
	OK           = event.CallOK
	Error        = event.CallError
	Unknown      = event.CallUnknown
	Cached       = event.CallCached
	Denied       = event.CallDenied
	SkippedLimit = event.CallSkipped
	NotRun       = event.CallNotRun
)

// LostOutcome returns the outcome of a call of class c that may have reached its tool
// and has no result: Error for tool.Read, which changes nothing, else Unknown.
func LostOutcome(c tool.Class) Outcome {
	if c == tool.Read {
		return Error
	}
	return Unknown
}

// CallDone records the result of a call, executed or not. Every gateway call has
// exactly one before its run ends.
type CallDone struct {
	Key          CallKey `json:"call_key"`
	Attempt      int     `json:"attempt,omitempty"` // that of its CallStarted; 0 = not executed
	Outcome      Outcome `json:"outcome"`
	ResultRef    string  `json:"result_ref"`
	ResultDigest string  `json:"result_digest"`
	FullRef      string  `json:"full_ref,omitempty"` // the whole result, if the result was truncated
	Bytes        int64   `json:"bytes,omitempty"`    // size of the result in the prompt
	Micros       int64   `json:"us,omitempty"`       // duration in microseconds; 0 = not executed, or unknown

	Label item.Label `json:"label,omitempty"` // where the content of the result comes from; "" = the tool has not said

	ValueRef string `json:"value_ref,omitempty"` // the typed value of the result; "" = it has none
}

// Texts are what a model wrote in a fact, or what a model is told. Their JSON is stored.
type Texts struct {
	Arguments []string `json:"arguments,omitempty"` // of the calls of a Turn
	Names     []string `json:"names,omitempty"`     // that there is no tool of: of the calls of a Turn, "" for others, or of a CallPrepared
	Answer    string   `json:"answer,omitempty"`    // of a CallPrepared
	Message   string   `json:"message,omitempty"`   // of a HookRan
}

// WithoutTexts returns the body without its texts, for a run whose texts are not stored, and the
// texts. They are nil if there are none.
func WithoutTexts(b Body) (Body, *Texts) {
	switch b := b.(type) {
	case Turn:
		if len(b.Calls) == 0 {
			return b, nil
		}
		texts := &Texts{Arguments: make([]string, len(b.Calls))}
		b.Calls = slices.Clone(b.Calls)
		for i := range b.Calls {
			texts.Arguments[i], b.Calls[i].Arguments = b.Calls[i].Arguments, ""
			if b.Calls[i].UnknownBytes > 0 {
				texts.Names = append(texts.Names, make([]string, i-len(texts.Names))...)
				texts.Names, b.Calls[i].Name = append(texts.Names, b.Calls[i].Name), ""
			}
		}
		return b, texts
	case CallPrepared:
		if b.Answer == "" {
			return b, nil
		}
		texts := &Texts{Answer: b.Answer}
		b.Answer = ""
		if b.Owner == tool.Unknown {
			texts.Names, b.Tool = []string{b.Tool}, ""
		}
		return b, texts
	case HookRan:
		if b.Message == "" {
			return b, nil
		}
		texts := &Texts{Message: b.Message}
		b.Message = ""
		return b, texts
	case Accepted, Blocked, CallDone, CallResolved, CallStarted, CallWaiting, CancelRequested, Catalogued, Compacted,
		Expired, Finished, InputAdded, LimitsRaised, Parked, Paused, ReserveRefused, Reserved, Resumed, Routed, TurnFailed, TurnStarted: // without texts
	}
	return b, nil
}

// WithTexts returns the body as it was before WithoutTexts. t may be nil.
func WithTexts(b Body, t *Texts) Body {
	if t == nil {
		return b
	}
	switch b := b.(type) {
	case Turn:
		b.Calls = slices.Clone(b.Calls)
		for i := range min(len(b.Calls), len(t.Arguments)) {
			b.Calls[i].Arguments = t.Arguments[i]
		}
		for i := range min(len(b.Calls), len(t.Names)) {
			b.Calls[i].Name = cmp.Or(t.Names[i], b.Calls[i].Name)
		}
		return b
	case CallPrepared:
		b.Answer = t.Answer
		if len(t.Names) > 0 {
			b.Tool = t.Names[0]
		}
		return b
	case HookRan:
		b.Message = t.Message
		return b
	case Accepted, Blocked, CallDone, CallResolved, CallStarted, CallWaiting, CancelRequested, Catalogued, Compacted,
		Expired, Finished, InputAdded, LimitsRaised, Parked, Paused, ReserveRefused, Reserved, Resumed, Routed, TurnFailed, TurnStarted: // without texts
	}
	return b
}

// WaitOn is what a call waits for.
type WaitOn string

// What calls wait for. This build asks for approvals only.
const (
	OnApproval WaitOn = "approval" // of the call, before it is executed
	OnQuestion WaitOn = "question" // the answer of a person, which the call needs to go on
	OnChild    WaitOn = "child"    // the end of the run that the call has started
)

// CallWaiting records that a call waits, and for what. For an approval it says what exactly is to be
// approved: the call as it was prepared last.
type CallWaiting struct {
	Key       CallKey `json:"call_key"`
	WaitID    string  `json:"wait_id"`
	On        WaitOn  `json:"on"`
	ExpiresAt int64   `json:"expires_at,omitempty"` // Unix milliseconds; 0 = never

	Revision   int    `json:"again,omitempty"` // that of its CallPrepared
	Name       string `json:"name,omitempty"`  // of the tool, as the model called it
	Server     string `json:"server,omitempty"`
	Tool       string `json:"tool,omitempty"` // its name at the server
	ToolDigest string `json:"tool_digest,omitempty"`
	ArgsRef    string `json:"args_ref,omitempty"`
	ArgsDigest string `json:"args_digest,omitempty"`
	Place      string `json:"place,omitempty"`
	Host       string `json:"host,omitempty"`
	Asker      Asker  `json:"asker,omitempty"`
	Policy     string `json:"policy,omitempty"`    // digest of the rules that asked
	CallerAt   string `json:"caller_at,omitempty"` // that of Accepted

	// Hook is the hook that asks, and Message its text for the person; "" = no hook asks.
	Hook    string `json:"hook,omitempty"`
	Message string `json:"message,omitempty"`
}

// CallResolved records the decision on an approval, or one that is made early: before its call is asked for.
type CallResolved struct {
	WaitID   string `json:"wait_id"` // "" = it is early, and kept for the next call that is asked for
	Approved bool   `json:"approved"`
	By       string `json:"by"`                // principal
	Message  string `json:"message,omitempty"` // for the model

	// Remember says that further calls of the tool need no approval in the session of the run.
	Remember bool `json:"remember,omitempty"`

	// Early says that the decision was made early. With a WaitID, it is the first of [State.Early], which has
	// taken effect.
	Early bool `json:"early,omitempty"`
}

// CancelRequested ends the run: Decide starts nothing new after it.
type CancelRequested struct {
	By    string       `json:"by"`
	Cause event.Reason `json:"cause"` // event.Cancelled, event.CallerGone, event.Lost or event.Memory

	// Code is the code of the memory limit that the run has reached, or [ClientGone],
	// [KeyRevoked], [KeyExpired], [ModelNotAllowed] or [Deleted]; "" = there is no more to say than Cause. Detail is about a
	// memory limit.
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// What ends a run for which nobody is left who may have its answer: a Code of a
// CancelRequested, and the reason of its approvals, which are void.
const (
	ClientGone = "client_gone" // the client has left, and nobody can come back for the answer
	KeyRevoked = "key_revoked" // the key that started the run is revoked
	KeyExpired = "key_expired" // it has expired
	Deleted    = "deleted"     // the org or the response of the run is deleted

	// ModelNotAllowed ends a run whose key may not use its model any more.
	ModelNotAllowed = "model_not_allowed"
)

// Expired records a timeout: the deadline of the run if WaitID is "", else that of
// one approval, which counts as a denial, or that of a Paused, after which the run ends for its
// limit.
type Expired struct {
	WaitID string `json:"wait_id,omitempty"`

	// Cut says that what was under way at the deadline was cut off: the run ends, also if it pauses
	// at limits.
	Cut bool `json:"cut,omitempty"`
}

// Parked records that the run waits for approvals and has no owner. A parked run
// uses no active time.
type Parked struct {
	ActiveMS int64 `json:"active_ms"` // active milliseconds since Accepted or the last Resumed
}

// Resumed records that a new owner continues the run, which was parked or had lost
// its owner.
type Resumed struct {
	By string `json:"by"` // the new owner

	// HandedOver is true if the previous owner released the run in good order. It is
	// false if that owner died or lost its lease.
	HandedOver bool `json:"handed,omitempty"`
}

// Finished is the last fact of every journal.
type Finished struct {
	Reason event.Reason `json:"reason"`
	Code   string       `json:"code,omitempty"`   // see Cause.Code; "" if the reason is not a failure
	Detail string       `json:"detail,omitempty"` // why a run is lost, for the operator; or which memory limit it has reached

	// HandedOver are the calls that the caller must execute.
	HandedOver []HandedOverCall `json:"handed,omitempty"`
}

// HandedOverCall is a tool call that the caller executes. ID is the call id that the
// caller received.
type HandedOverCall struct {
	Key CallKey `json:"call_key"`
	ID  string  `json:"id"`
}

// The kinds of fact.
const (
	KindAccepted        Kind = "accepted"
	KindCatalogued      Kind = "catalogued"
	KindBlocked         Kind = "blocked"
	KindInputAdded      Kind = "input_added"
	KindHookRan         Kind = "hook_ran"
	KindCompacted       Kind = "compacted"
	KindLimitsRaised    Kind = "limits_raised"
	KindReserved        Kind = "reserved"
	KindReserveRefused  Kind = "reserve_refused"
	KindRouted          Kind = "routed"
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
	KindPaused          Kind = "paused"
	KindResumed         Kind = "resumed"
	KindFinished        Kind = "finished"
)

// Kind implements Body.
func (Accepted) Kind() Kind        { return KindAccepted }
func (Catalogued) Kind() Kind      { return KindCatalogued }
func (Blocked) Kind() Kind         { return KindBlocked }
func (InputAdded) Kind() Kind      { return KindInputAdded }
func (HookRan) Kind() Kind         { return KindHookRan }
func (Compacted) Kind() Kind       { return KindCompacted }
func (LimitsRaised) Kind() Kind    { return KindLimitsRaised }
func (Reserved) Kind() Kind        { return KindReserved }
func (ReserveRefused) Kind() Kind  { return KindReserveRefused }
func (Routed) Kind() Kind          { return KindRouted }
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
func (Paused) Kind() Kind          { return KindPaused }
func (Resumed) Kind() Kind         { return KindResumed }
func (Finished) Kind() Kind        { return KindFinished }

func (Accepted) body()        {}
func (Catalogued) body()      {}
func (Blocked) body()         {}
func (InputAdded) body()      {}
func (HookRan) body()         {}
func (Compacted) body()       {}
func (LimitsRaised) body()    {}
func (Reserved) body()        {}
func (ReserveRefused) body()  {}
func (Routed) body()          {}
func (TurnStarted) body()     {}
func (TurnFailed) body()      {}
func (Turn) body()            {}
func (CallPrepared) body()    {}
func (CallStarted) body()     {}
func (CallDone) body()        {}
func (CallWaiting) body()     {}
func (CallResolved) body()    {}
func (CancelRequested) body() {}
func (Expired) body()         {}
func (Parked) body()          {}
func (Paused) body()          {}
func (Resumed) body()         {}
func (Finished) body()        {}
