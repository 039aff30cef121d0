package org

import "time"

// StreamMode is what a streaming client receives of a loop.
type StreamMode string

// The stream modes.
const (
	Live      StreamMode = "live"       // the text of every round, as it arrives
	FinalOnly StreamMode = "final_only" // the text of the last round, in small frames
	Disabled  StreamMode = "disabled"   // a JSON answer instead of a stream
)

// Runtime has the settings of an org's runs, with the values of the configuration. A
// nil pointer or an empty string means the default of each surface. The stores keep its
// JSON.
type Runtime struct {
	MaxRounds          *int          `json:"max_rounds"`
	MaxCalls           *int          `json:"max_calls"`
	Deadline           time.Duration `json:"deadline_ns"`               // limit on active time; 0 = the default of the surface
	Concurrency        int           `json:"concurrency"`               // concurrent runs
	MaxQueued          int           `json:"max_queued_runs,omitempty"` // 0 = DefaultMaxQueued
	StreamMode         StreamMode    `json:"stream_mode"`               // "" = Live
	ToolParallelism    string        `json:"tool_parallelism"`          // auto, parallel, safe, serial, first
	CatalogTTL         time.Duration `json:"catalog_ttl_ns"`            // 0 = list tools for every run
	ToolCacheTTL       time.Duration `json:"tool_cache_ttl_ns"`         // 0 = cache no results
	ToolResultMaxBytes *int          `json:"tool_result_max_bytes"`
	ToolArgValidation  string        `json:"tool_arg_validation"`             // strict, lenient, none
	ToolErrorMode      string        `json:"tool_error_mode"`                 // recover, abort
	OnLimit            string        `json:"on_limit"`                        // stop, answer, pause
	DoomLoop           string        `json:"doom_loop"`                       // nudge, fail, off
	DoomThreshold      int           `json:"doom_threshold"`                  // 0 = the default
	DoomFailures       int           `json:"doom_failures"`                   // 0 = the default
	DroppedParams      string        `json:"dropped_params"`                  // name, refuse
	MaxRunTokens       *int          `json:"max_run_tokens"`                  // nil = no limit
	UnpricedTools      string        `json:"unpriced_tools,omitempty"`        // FreeTools (also when empty) or RefuseTools
	MaxRunCost         int64         `json:"max_run_cost_nano_usd,omitempty"` // in 10⁻⁹ US dollars; 0 = no limit
	Budgets            []Budget      `json:"budgets,omitempty"`
	Hooks              []Hook        `json:"hooks,omitempty"`
	Web                Web           `json:"web,omitzero"`
	Databases          []Database    `json:"databases,omitempty"`
	Buckets            []Bucket      `json:"buckets,omitempty"`
	BuiltinTools       []BuiltinTool `json:"builtin_tools,omitempty"`
	EnableSearch       bool          `json:"enable_search,omitempty"`         // chat requests search the web: see SearchTools
	EnableCode         bool          `json:"enable_code_execution,omitempty"` // chat requests that ask for it run code: see CodeTools
	ToolNames          string        `json:"tool_names,omitempty"`            // of the tools that switches offer: ToolNamesMistralRS, or "" or "standard"
	AgentPermission    string        `json:"agent_permission,omitempty"`      // a policy.Permission; "" = auto
	MaxToolRounds      *int          `json:"max_tool_rounds,omitempty"`       // rounds of tools of a chat request; nil = not set
	Durable            string        `json:"durable"`                         // auto, always; "" = auto
	Rate               Rate          `json:"rate"`                            // limit on requests to the model API
	SessionTTL         time.Duration `json:"session_ttl_ns"`                  // how long an unused session of a key is kept; 0 = DefaultSessionTTL, Forever = until it is deleted
	ApprovalHold       time.Duration `json:"approval_hold_ns"`                // how long an open request waits for approvals; 0 = DefaultApprovalHold
	Approvers          string        `json:"approvers"`                       // AnyApproves or OthersApprove; "" = AnyApproves
	Extensions         []string      `json:"extensions"`                      // of answers, by default
	ModelLists         string        `json:"model_lists"`                     // RefuseLists or AllowLists; "" = RefuseLists

	Context           string   `json:"context,omitempty"`                  // ContextOff, ContextPrune or ContextAuto; "" = ContextOff, and ContextAuto for runs of agents
	CompactionModel   string   `json:"compaction_model,omitempty"`         // that writes summaries; "" = that of the operator
	CompactionExclude []string `json:"compaction_exclude_tools,omitempty"` // tools whose results always stay, beside those of the operator

	Agents Agents `json:"agents,omitzero"` // no keys of the configuration: what is stored holds, also where the file has the rest
}

// Agents has the settings of an org for its agents, which /api/settings changes. The zero value of each is that it is not set.
type Agents struct {
	DefaultModel    string           `json:"default_model,omitempty"` // of agents that are created without one
	MaxSteps        int              `json:"max_steps,omitempty"`
	TimeoutSeconds  int              `json:"timeout_seconds,omitempty"`  // of active time; not set = the deadline of the org
	CompactionModel string           `json:"compaction_model,omitempty"` // not set = that of the org, or the model of the agent
	VisionModel     string           `json:"vision_model,omitempty"`     // that describes images
	SetAt           map[string]int64 `json:"set_at,omitempty"`           // in Unix milliseconds, by the key that /api/settings has
}

// Same reports whether two have the same settings, whenever these were set.
func (a Agents) Same(other Agents) bool {
	a.SetAt, other.SetAt = nil, nil
	return sameJSON(a, other)
}

// The values of [Runtime.Context] and [Access.Context]: what is done with prompts that are too long for
// the context window of their model.
const (
	ContextOff   = "off"   // nothing
	ContextPrune = "prune" // old results of tools are left out
	ContextAuto  = "auto"  // the same, and then the older part is summarised
)

// DefaultMaxQueued is how many runs of an org may be queued.
const DefaultMaxQueued = 10_000

// The values of [Runtime.ModelLists].
const (
	RefuseLists = "refuse" // a model that is a list of names is refused
	AllowLists  = "allow"  // it is a fallback list
)

// The values of [Runtime.UnpricedTools].
const (
	FreeTools   = "free"   // a call of a tool without a price costs nothing
	RefuseTools = "refuse" // where a limit on money applies, it is not executed
)

// The values of [Runtime.Approvers].
const (
	AnyApproves   = "any"    // every key with a role that may
	OthersApprove = "others" // not the key that has started the run
)

// MaxToolRounds is the most that [Runtime].MaxToolRounds can be, and what it is where a switch runs the agent loop,
// unless the operator has set a lower max_rounds_cap.
const MaxToolRounds = 256

// MaxDeadline is the longest deadline that an org may set.
const MaxDeadline = 24 * time.Hour

// Forever is a [Runtime.SessionTTL] that never ends.
const Forever time.Duration = 1<<63 - 1

// DefaultSessionTTL is how long a session is kept after its last use, unless its org says otherwise.
const DefaultSessionTTL = 30 * time.Minute

// How long approvals wait unless an org or a server says otherwise.
const (
	DefaultApprovalHold    = 300 * time.Second  // while a request is open
	DefaultApprovalTimeout = 7 * 24 * time.Hour // without one
)
