// Package audit defines the audit log: its entries, the hash chain that binds
// them, the signed checkpoints, and their verification.
//
//	fact ─► Entry ─► Row n = Entry + hash(row n-1, Entry)     in the fact's transaction
//	                 Checkpoint(n) = sign(hash n)             every minute, kept in two places
//
// Each org has its own chain, numbered 1, 2, 3 … without gaps. The chain reveals a
// row that was changed, deleted, inserted or moved. Checkpoints reveal a chain that
// was truncated or recomputed; they cannot be made without the signing key.
package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/id"
)

// Kind is the type of an entry. It determines the type of the Body.
type Kind string

// The kinds of entry.
const (
	KindRequest         Kind = "audit_log.request"                   // Body is a Request
	KindToolCall        Kind = "audit_log.agent.tool_call"           // Body is a ToolCall
	KindBudgetExhausted Kind = "audit_log.agent.budget_exhausted"    // Body is a BudgetExhausted
	KindBudgetThreshold Kind = "audit_log.budget.threshold"          // Body is a Budget
	KindBudgetExceeded  Kind = "audit_log.budget.exceeded"           // Body is a Budget
	KindCollision       Kind = "audit_log.agent.tool_name_collision" // Body is a Collision
	KindDataLoss        Kind = "audit_log.data_loss"                 // Body is a DataLoss
	KindRestore         Kind = "audit_log.restore"                   // Body is a Restore

	KindMCPCall  Kind = "audit_log.mcp.tool_call"  // Body is an MCPCall
	KindApproval Kind = "audit_log.agent.approval" // Body is an Approval

	KindHook Kind = "audit_log.agent.hook" // Body is a Hook

	KindResourceCall Kind = "audit_log.resource.call" // Body is a ResourceCall

	KindManagement Kind = "audit_log.management" // Body is a Management
)

// Kinds returns all kinds of entry.
func Kinds() []Kind {
	return []Kind{KindRequest, KindToolCall, KindBudgetExhausted, KindBudgetThreshold, KindBudgetExceeded, KindCollision, KindMCPCall, KindResourceCall, KindApproval, KindHook, KindManagement, KindDataLoss, KindRestore}
}

// Rare reports whether stores find the rows of the kind without reading those of others: of the other kinds
// there are rows for each model call or tool call. The index of the stores has the same list.
func (k Kind) Rare() bool {
	return k != "" && !slices.Contains([]Kind{KindRequest, KindToolCall, KindMCPCall, KindResourceCall}, k)
}

// kindPrefix begins every kind. Lists on a terminal leave it out.
const kindPrefix = "audit_log."

// Short returns the kind without the prefix that all kinds have.
func (k Kind) Short() string { return strings.TrimPrefix(string(k), kindPrefix) }

// ParseKind returns the kind that the text names, in full or in short, or an
// error that names all of them. The empty text is the empty kind.
func ParseKind(text string) (Kind, error) {
	for _, k := range append(Kinds(), "") {
		if text == string(k) || text == k.Short() {
			return k, nil
		}
	}
	return "", fmt.Errorf("unknown kind %q; the kinds are %s", text, joined(Kinds()))
}

func joined(kinds []Kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// Entry is one event to record.
type Entry struct {
	Kind      Kind
	At        int64  // Unix milliseconds
	Principal string // id of the key that acted
	RunID     string // empty for a relayed request of a client
	RequestID string // for the first round of a run, the run's id
	Body      any    // the type that Kind names; marshals to a JSON object

	typed any // the Body that Encoded has replaced; nil = it has replaced none
}

// Row is an entry at its place in the org's chain.
type Row struct {
	Org       string
	Number    int64 // 1 = the first row of the org
	Kind      Kind
	At        int64
	Principal string
	RunID     string
	RequestID string
	Body      json.RawMessage
	Hash      Hash // over all other fields and the hash of the previous row
}

// Values of [Request.Surface].
const (
	SurfaceAgent = "agent" // a round of the loop, on any surface
	SurfaceRelay = "relay" // a request that was relayed unchanged
)

// Request is one round of a run, or one relayed request.
type Request struct {
	Surface    string `json:"surface"`
	Via        string `json:"via,omitempty"`      // the surface that the client used
	EndUser    string `json:"end_user,omitempty"` // whom the client names as its own user
	Round      *int   `json:"round_index"`        // from 0; nil for a relayed request
	Call       *int   `json:"tool_call_index"`    // always nil: the row is about the round, not about a tool call
	Provider   string `json:"provider"`
	Model      string `json:"model"`    // the client's name of the model
	Target     string `json:"target"`   // the provider's name of the model
	Attempts   int    `json:"attempts"` // number of model calls
	Status     string `json:"status"`   // ok, failed or unknown
	HTTPStatus int    `json:"http_status,omitempty"`
	Class      string `json:"error_class,omitempty"`
	Stop       string `json:"stop,omitempty"`

	InputTokens     int64 `json:"input_tokens"`
	OutputTokens    int64 `json:"output_tokens"`
	CachedTokens    int64 `json:"cached_tokens,omitempty"`
	ReasoningTokens int64 `json:"reasoning_tokens,omitempty"`
	CostNanoUSD     int64 `json:"cost_nano_usd,omitempty"` // in 10⁻⁹ US dollars; 0 also if the model has no price
	GPUMS           int64 `json:"gpu_ms,omitempty"`        // time that the provider bills, in milliseconds; 0 = it does not say
	ToolCalls       int   `json:"tool_calls"`
	Bytes           int64 `json:"bytes,omitempty"` // size of a relayed response

	// The parts of the counts above that the gateway has estimated, because the provider did not count them.
	EstimatedInput   int64 `json:"estimated_input_tokens,omitempty"`
	EstimatedOutput  int64 `json:"estimated_output_tokens,omitempty"`
	EstimatedNanoUSD int64 `json:"estimated_cost_nano_usd,omitempty"`

	// For the sums of usage only. They are not stored with the row.
	Agent            string `json:"-"` // id of the agent whose run it is; "" = none
	CacheWriteTokens int64  `json:"-"` // of InputTokens

	LatencyMS float64  `json:"latency_ms"` // of the last attempt, see [Milliseconds]; 0 = no attempt was sent
	TTFTMS    *float64 `json:"ttft_ms"`    // time to the first token, in milliseconds; nil = no token arrived
}

// Values of [Request.Status].
const (
	OK      = "ok"
	Failed  = "failed"
	Unknown = "unknown" // the process died before the outcome was recorded
)

// ToolCall is the outcome of one tool call, executed or not.
type ToolCall struct {
	RunID     string  `json:"agent_run_id"`
	Round     int     `json:"round_index"`
	Index     int     `json:"tool_call_index"`
	Server    string  `json:"server_id"`
	Tool      string  `json:"tool"`
	Status    string  `json:"status"`     // ok, error, unknown, cached, denied, skipped_limit, not_run
	LatencyMS float64 `json:"latency_ms"` // see [Milliseconds]; 0 = not executed, or unknown
	Attempts  int     `json:"attempts"`   // 0 = not executed
	Class     string  `json:"class,omitempty"`
	Digest    string  `json:"result_digest,omitempty"`

	// What the execution cost, in 10⁻⁹ US dollars; 0 = nothing, and then Model and EndUser are empty.
	CostNanoUSD int64  `json:"cost_nano_usd,omitempty"`
	Model       string `json:"model,omitempty"`    // that the run asked for
	EndUser     string `json:"end_user,omitempty"` // of the run

	Agent string `json:"-"` // as of [Request]

	// FromRequest says that the request has declared the server under this label. It is for
	// metrics, where the labels of clients are no label values, and is not stored.
	FromRequest bool `json:"-"`
}

// MCPCall is a tool call of an outside MCP client, which belongs to no run. Before a call that may
// write is executed, it is recorded as started, with the same request id.
type MCPCall struct {
	Session    string  `json:"mcp_session,omitempty"` // "" = the revision of the protocol has none
	Server     string  `json:"server_id"`             // turnpike = a tool of the program that the gateway is a part of
	Tool       string  `json:"tool"`                  // the server's own name
	Class      string  `json:"class"`
	Status     string  `json:"status"`     // started, ok, error, unknown, denied or not_run
	LatencyMS  float64 `json:"latency_ms"` // see [Milliseconds]; 0 = not executed, or started
	ArgsDigest string  `json:"args_digest,omitempty"`
	Digest     string  `json:"result_digest,omitempty"`

	CostNanoUSD int64 `json:"cost_nano_usd,omitempty"` // of the execution, in 10⁻⁹ US dollars; 0 = nothing
}

// ResourceCall is a call of a resource of the program that the gateway is a part of: by a client at /mcp, by an
// agent of the program, or by the program on behalf of a person. The entry's Principal is the key at /mcp, and
// otherwise the caller as the program names it. A call that may write is recorded as started before it is executed.
type ResourceCall struct {
	Via        string  `json:"via"` // mcp or program
	Resource   string  `json:"resource"`
	Tool       string  `json:"tool"`                    // a verb and the resource, such as get_product
	Call       string  `json:"tool_call_key,omitempty"` // the key of the call in its run; "" = it belongs to no run
	Attempt    int     `json:"attempt"`
	Class      string  `json:"class"`
	Status     string  `json:"status"`     // started, ok, error, unknown, not_run or denied
	LatencyMS  float64 `json:"latency_ms"` // see [Milliseconds]; 0 = not executed, or started
	ArgsDigest string  `json:"args_digest,omitempty"`
	Digest     string  `json:"result_digest,omitempty"`
}

// Values of [ResourceCall.Via].
const (
	ViaMCP     = "mcp"
	ViaProgram = "program"
)

// Started is the status of an [MCPCall] or a [ResourceCall] that is about to be executed.
const Started = "started"

// Milliseconds converts microseconds to milliseconds and keeps the fraction.
func Milliseconds(micros int64) float64 { return float64(micros) / 1000 }

// Approval is something that has happened to the approval of a tool call. The entry's
// Principal is who has done it; "" = nobody.
type Approval struct {
	ID         string `json:"approval_id"`
	RunID      string `json:"agent_run_id"`
	Action     string `json:"action"` // asked, approved, denied, expired, void or executed
	Server     string `json:"server_id"`
	Tool       string `json:"tool"`      // the server's own name
	Principal  string `json:"principal"` // whose run it is
	Asker      string `json:"asker"`     // server, request or hook: whose rule asks
	ToolDigest string `json:"tool_digest"`
	ArgsDigest string `json:"args_digest"`
	Policy     string `json:"policy_digest,omitempty"`
	Reason     string `json:"reason,omitempty"`    // of the decision
	WaitedMS   int64  `json:"waited_ms,omitempty"` // from the question to the decision
}

// Collision is a tool that a run is not offered because another tool has the same
// name. It is recorded once per tool catalogue, under the first run that uses it.
type Collision struct {
	RunID    string `json:"agent_run_id"`
	Tool     string `json:"tool"`      // the name that the model sees
	Server   string `json:"server_id"` // the server whose tool is left out
	KeptFrom string `json:"kept_from"` // the server whose tool is offered
}

// Hook is what a hook has decided in a run, unless it has simply allowed. It has no texts.
type Hook struct {
	RunID     string  `json:"agent_run_id"`
	Hook      string  `json:"hook"`  // its id
	Event     string  `json:"event"` // such as PreToolUse
	Type      string  `json:"type"`
	Tool      string  `json:"tool,omitempty"`          // of the call that it is about
	Call      string  `json:"tool_call_key,omitempty"` // of the same call
	Action    string  `json:"action"`                  // what takes effect: allow, deny, modify or ask
	Status    string  `json:"status"`                  // succeeded, failed or timed_out
	LatencyMS float64 `json:"latency_ms"`
}

// Management is one change over the management API, including the request to
// cancel a run. Before and After hold the settings that differ; for a created or
// deleted resource, all settings. They contain no secrets.
type Management struct {
	Org      string `json:"org"`      // the org that was changed
	Resource string `json:"resource"` // org, key, mcp_server, secret, file or run
	ID       string `json:"id"`       // the resource's id; for a server or secret, its name
	Action   string `json:"action"`   // create, update, replace, revoke, delete, upload or cancel
	Before   any    `json:"before,omitempty"`
	After    any    `json:"after,omitempty"`

	// RequestID is the request that cancelled a run. It is not in the row's own
	// RequestID, which is the run's, so that the row is found with the run.
	RequestID string `json:"cancel_request_id,omitempty"`
}

// DataLoss records that the operator started the gateway with a database that had
// lost rows.
type DataLoss struct {
	First        int64 `json:"first_lost"` // number of the first lost row
	Last         int64 `json:"last_lost"`  // the highest number in a checkpoint; later rows may be lost too
	CheckpointAt int64 `json:"checkpoint_at"`
}

// Restore records that the store was restored from a backup. The chain does not
// contain the rows that were recorded after the backup.
type Restore struct {
	BackupAt int64 `json:"backup_at"` // Unix milliseconds
	LastRow  int64 `json:"last_row"`  // the org's last row in the backup; 0 = none
	RunsLost int   `json:"runs_lost"` // unfinished runs of the org that were ended as lost
}

// BudgetExhausted records that a run ended because a budget was used up.
type BudgetExhausted struct {
	Budget string `json:"budget"`
	Via    string `json:"via"`
	Model  string `json:"model"`
	Limits any    `json:"limits"`
	Rounds int    `json:"rounds"`
	Calls  int    `json:"calls"`
	Tokens int64  `json:"tokens"`
	Paused bool   `json:"paused,omitempty"` // the run waits for a raise; otherwise the limit has ended it
}

// Budget records that 80 percent of a budget are spent, or that all of it is. Of each window of a
// budget it is recorded once. A budget of which all is spent, or that has refused a model call, is
// exceeded. Money is in 10⁻⁹ US dollars.
type Budget struct {
	Budget          string `json:"budget"` // scope, period and window, such as key/key_1/day/2026-11-25
	Percent         int    `json:"percent"`
	EndsAt          int64  `json:"ends_at,omitempty"`        // of the window, in Unix milliseconds; 0 = never
	LimitTokens     int64  `json:"limit_tokens,omitempty"`   // 0 = no limit
	LimitNanoUSD    int64  `json:"limit_nano_usd,omitempty"` // 0 = no limit
	SpentTokens     int64  `json:"spent_tokens"`
	SpentNanoUSD    int64  `json:"spent_nano_usd"`
	ReservedTokens  int64  `json:"reserved_tokens"`
	ReservedNanoUSD int64  `json:"reserved_nano_usd"`
	OverrunTokens   int64  `json:"overrun_tokens,omitempty"`   // part of spent that exceeded its reservations
	OverrunNanoUSD  int64  `json:"overrun_nano_usd,omitempty"` // part of spent that exceeded its reservations
}

// Query selects rows of an org. A zero field does not restrict the selection.
type Query struct {
	RunID      string   // the stored id, see [StoredRunID]
	RequestIDs []string // any of these stored ids, see [StoredRequestIDs]
	Principal  string
	Kind       Kind
	From, To   int64 // Unix milliseconds: From <= At < To; To 0 = no end
	After      int64 // only rows with a higher number
	Before     int64 // only rows with a lower number; 0 = no end
	Latest     bool  // the latest rows, latest first; false = the earliest, earliest first
	Limit      int   // 0, or more than MaxRows = MaxRows
	Bytes      int   // the rows end with the first that brings them to this size (Row.Size); 0 = no limit
}

// StoredRunID returns the stored id of a run, given that id or its UUID.
func StoredRunID(text string) string { return id.FromUUID(text, "run_")[0] }

// StoredRequestIDs returns the possible stored ids of a request, given one of them or
// its UUID. At most one of them exists. It returns nil for an empty text.
func StoredRequestIDs(text string) []string {
	if text == "" {
		return nil
	}
	return id.FromUUID(text, "run_", "req_")
}

// MaxRows is the most rows that one query returns.
const MaxRows = 1000

// Bounded returns the query with Limit between 1 and [MaxRows].
func (q Query) Bounded() Query {
	if q.Limit <= 0 || q.Limit > MaxRows {
		q.Limit = MaxRows
	}
	return q
}

// Size returns about how many bytes of memory the row needs.
func (r Row) Size() int { return 256 + len(r.Body) }

// Full reports whether no further row follows n rows with the given number of bytes.
func (q Query) Full(n, bytes int) bool { return n >= q.Limit || q.Bytes > 0 && bytes >= q.Bytes }

// Matches reports whether the query selects the row. It ignores Limit and Bytes.
func (q Query) Matches(r Row) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(q.RunID, r.RunID) && (q.RequestIDs == nil || slices.Contains(q.RequestIDs, r.RequestID)) && is(q.Principal, r.Principal) && is(string(q.Kind), string(r.Kind)) &&
		r.At >= q.From && (q.To == 0 || r.At < q.To) && r.Number > q.After && (q.Before == 0 || r.Number < q.Before)
}
