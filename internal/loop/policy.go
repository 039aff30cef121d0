package loop

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
)

// Policy has the settings of one run. It is resolved before the run is accepted, and
// recorded in [Accepted]. The run reads its settings only there, also after a restart:
// later changes of the configuration affect later runs.
//
// A field that is added later must be optional, and its zero value must be what builds
// without it did.
type Policy struct {
	Grade Grade `json:"grade"`

	Limits  budget.Limits   `json:"limits"`
	Budgets []budget.Shared `json:"budgets,omitempty"` // budgets of the org that the run spends from, together with other runs; they apply in addition to Limits
	Guard   policy.Guard    `json:"guard,omitzero"`
	Rules   Rules           `json:"rules,omitzero"`

	MaxTokens int64 `json:"max_tokens,omitempty"` // the caller's limit on the output of one model call; 0 = none given
	NoTools   bool  `json:"no_tools,omitempty"`   // tool_choice: none, as the caller asked

	// NoUnpriced executes no tool whose price nobody has said: a limit on money applies.
	NoUnpriced bool `json:"no_unpriced,omitempty"`

	// EndCut ends the run after a turn that the length of the output has cut off: none of
	// its calls is executed. Otherwise those that are complete are.
	EndCut bool `json:"end_cut,omitempty"`

	// Continuations is how often the run asks for the rest of an answer that the length of the output has cut
	// off. 0 = never: such an answer ends the run.
	Continuations int `json:"continuations,omitempty"`

	Parallelism    Parallelism `json:"parallelism,omitempty"`
	AbortOnTool    bool        `json:"abort_on_tool,omitempty"` // tool_error_mode: abort
	Validation     Validation  `json:"arg_validation,omitempty"`
	ResultMaxBytes int         `json:"result_max_bytes,omitempty"` // maximum size of a tool result for the model; 0 = no limit
	HeadOnly       bool        `json:"head_only,omitempty"`        // of a longer result only the begin is kept
	ResultMaxChars int         `json:"result_max_chars,omitempty"` // the same in characters, of which only the begin is kept; 0 = no limit
	CatalogTTLNS   int64       `json:"catalog_ttl_ns,omitempty"`   // how long tool lists are reused, in nanoseconds; 0 = they are fetched
	CacheTTLNS     int64       `json:"cache_ttl_ns,omitempty"`     // how long results of tools are reused, in nanoseconds; 0 = not at all

	// NoStore says that the run is deleted when it has ended. A light run stores no bodies at
	// all: neither rows nor, in its facts, what the model or the gateway wrote. If it has to
	// wait for approval, it stores them then.
	NoStore bool `json:"forget,omitempty"`

	// Native is the dialect of a caller that also gets items which no other dialect can
	// express; "" = it does not.
	Native string `json:"native,omitempty"`

	// ItemEnds reports the ends of the items of a turn where the provider marks them.
	ItemEnds bool `json:"item_ends,omitempty"`

	// Hosted are the tools of MCP servers that answer hosted tools of the request. The caller
	// sees their calls as calls of the hosted tools.
	Hosted []HostedTool `json:"hosted,omitempty"`

	// Switched are the built-in tools that the switches of the org offer to the run.
	Switched []string `json:"switched,omitempty"`

	// MaxUses limit the calls of single tools, in addition to Limits. Further calls are answered without being
	// executed. Of several limits for one tool all hold.
	MaxUses []ToolUses `json:"max_uses,omitempty"`

	// Approvals say which calls wait for approval. A server that has none of them has no such
	// calls.
	Approvals []ServerApproval `json:"approvals,omitempty"`

	// Permission says whether calls of the gateway's tools are executed: the stricter of what the org and the request
	// say. PermissionBy is whose it is, if calls wait for it, and PermissionWaitMS how long they do, in milliseconds.
	Permission       policy.Permission `json:"permission,omitempty"`
	PermissionBy     Asker             `json:"permission_by,omitempty"`
	PermissionWaitMS int64             `json:"permission_wait_ms,omitempty"`

	// ToolWaitMS is how long calls wait for approval for which the tool itself asks, in milliseconds. 0 = without limit,
	// as in journals without it.
	ToolWaitMS int64 `json:"tool_wait_ms,omitempty"`

	// Hooks are the hooks of the run, in the order in which they run. The list has no secrets: what an
	// http hook is sent to is looked up by its id when it runs.
	Hooks []Hook `json:"hooks,omitempty"`

	// PauseMS is how long a run that pauses waits for a raise of its limits, in milliseconds; then it
	// ends for its limit. 0 = for ever.
	PauseMS int64 `json:"pause_ms,omitempty"`

	// Context says whether and how the prompts of the run are kept within the window of its model.
	Context ContextPolicy `json:"context,omitzero"`

	Slots         int    `json:"slots,omitempty"`                 // runs of the org at a time, when this one was accepted; 0 = no limit
	StreamMode    string `json:"stream_mode,omitempty"`           // live, final_only or disabled
	RefuseDropped bool   `json:"refuse_dropped_params,omitempty"` // dropped_params: refuse

	// Live lists the kinds of delta that the caller gets as they arrive. After one of them
	// a failed model call is not retried. Empty = the caller gets nothing of a turn before
	// it is complete.
	Live []model.DeltaKind `json:"live,omitempty"`
}

// ContextPolicy is how a run keeps its prompts within the window of its model. The zero value: it does
// not, and a prompt that is too long ends the run.
type ContextPolicy struct {
	Mode ContextMode `json:"mode,omitempty"`

	// Threshold is the size of a prompt, in tokens, above which it is compacted, as the caller asks;
	// 0 = what the window of the model gives. It can only lower that.
	Threshold int64 `json:"threshold,omitempty"`

	ExcludeTools []string `json:"exclude_tools,omitempty"` // tools whose results always stay, by the names that the model sees
	SummaryModel string   `json:"summary_model,omitempty"` // name of the model that writes summaries, as a request would name it; "" = the default rule
}

// ContextMode is what is done with a prompt that is too long.
type ContextMode string

// The modes.
const (
	ContextOff   ContextMode = ""      // nothing
	ContextPrune ContextMode = "prune" // old results of tools are replaced by placeholders
	ContextAuto  ContextMode = "auto"  // the same, and where it does not free enough the older part is summarised
)

// HostedTool is a tool of an MCP server that answers a hosted tool, which a provider would
// execute otherwise.
type HostedTool struct {
	Type   string `json:"type"` // of the hosted tool, such as web_search
	Server string `json:"server"`
	Tool   string `json:"tool"` // the server's own name

	// Options are what the request says of the hosted tool, which the tool gets with each call; nil = nothing.
	Options json.RawMessage `json:"options,omitempty"`

	// MaxUses is how many calls of the tool the request allows; 0 = no limit. Resolving the settings moves it to
	// [Policy].MaxUses.
	MaxUses int `json:"-"`
}

// ToolUses limits the calls of a tool in a run.
type ToolUses struct {
	Server string `json:"server"`
	Tool   string `json:"tool"` // the server's own name
	Most   int    `json:"most"`
}

// OptionsOf returns what the request says of all calls of a server's tool; nil = nothing.
func (p *Policy) OptionsOf(server, tool string) json.RawMessage {
	for _, h := range p.Hosted {
		if h.Server == server && h.Tool == tool {
			return h.Options
		}
	}
	return nil
}

// ServerApproval says which calls of a server wait for approval, and how long.
type ServerApproval struct {
	Server string `json:"server"` // label of the server

	// ByServer is the rule of the server's settings, ByRequest that of the request that
	// declared the server. A call waits if one of them asks.
	ByServer  policy.Approval `json:"by_server,omitzero"`
	ByRequest policy.Approval `json:"by_request,omitzero"`

	// Trust says that the server's annotations are believed: otherwise no tool is known to
	// only read.
	Trust bool `json:"trust,omitempty"`

	WaitMS int64 `json:"wait_ms"` // how long an approval waits, in milliseconds; then it counts as denied
}

// Asker says whose rule asks for an approval.
type Asker string

// The askers.
const (
	AskedByServer  Asker = "server"  // only a person with the right to decide may answer
	AskedByRequest Asker = "request" // the caller may answer too: the rule is the caller's own
	AskedByHook    Asker = "hook"    // as AskedByServer; see [State.AskingHook]
)

// Asks returns whose rule asks for approval of a call of the server's tool; "" = none.
// readOnly says that the tool's annotations say that it only reads, and has reports whether the
// server has a tool of a name.
func (p *Policy) Asks(server, tool string, readOnly bool, has func(name string) bool) Asker {
	a := p.approval(server)
	reads := readOnly && a.Trust
	switch {
	case a.ByServer.Asks(tool, reads, has):
		return AskedByServer
	case p.Permission == policy.Ask && p.PermissionBy == AskedByServer:
		return AskedByServer
	case a.ByRequest.Asks(tool, reads, has), p.Permission == policy.Ask:
		return AskedByRequest
	}
	return ""
}

func (p *Policy) approval(server string) ServerApproval {
	for _, a := range p.Approvals {
		if a.Server == server {
			return a
		}
	}
	return ServerApproval{}
}

// digest identifies the rules. It is empty for the zero value.
func (a ServerApproval) digest() string {
	if a.Server == "" {
		return ""
	}
	text, _ := json.Marshal(a) // strings, numbers and booleans: cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// MayWait reports whether a call of the run may have to wait for approval.
func (p *Policy) MayWait() bool {
	return len(p.Approvals) > 0 || p.Permission == policy.Ask || slices.ContainsFunc(p.Hooks, Hook.mayAsk)
}

// StoresNoTexts reports whether the run stores no texts while it is light. When it parks, it
// stores those that it has withheld, because another owner continues it.
func (p *Policy) StoresNoTexts() bool { return p.NoStore && p.Grade == Light }

// Validation is how the arguments of a tool call are validated. The zero value means
// Strict.
type Validation string

// The kinds of validation.
const (
	Strict       Validation = "strict"  // against the tool's schema
	Lenient      Validation = "lenient" // types are first converted to those that the schema requires
	NoValidation Validation = "none"    // the arguments must be a JSON object, nothing more
)

// WithDefaults returns p with each zero field of Rules and Guard set to the constant of
// this build. It must be called before Accepted is appended.
func (p Policy) WithDefaults() Policy { return p.withDefaults(currentDefaults()) }

func (p Policy) withDefaults(from defaults) Policy {
	p.Rules = Rules{
		Attempts:          orDefault(p.Rules.Attempts, from.rules.Attempts),
		DeadOwners:        orDefault(p.Rules.DeadOwners, from.rules.DeadOwners),
		StuckMS:           orDefault(p.Rules.StuckMS, from.rules.StuckMS),
		DeadOwnersPerCall: orDefault(p.Rules.DeadOwnersPerCall, from.rules.DeadOwnersPerCall),
		CallsPerServer:    orDefault(p.Rules.CallsPerServer, from.rules.CallsPerServer),
		RetryWaitMS:       orDefault(p.Rules.RetryWaitMS, from.rules.RetryWaitMS),
		Estimate:          p.Rules.Estimate.WithDefaults(from.rules.Estimate),
	}
	p.Guard = p.Guard.WithDefaults(from.guard)
	return p
}

// LimitsMoney reports whether a limit on money applies to a run when it is accepted.
func (p *Policy) LimitsMoney() bool {
	return p.Limits.NanoUSD != nil || slices.ContainsFunc(p.Budgets, func(b budget.Shared) bool { return b.Limit.NanoUSD > 0 })
}
