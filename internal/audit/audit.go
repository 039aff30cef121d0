// Package audit says what an auditor is to find of the gateway's work, and how
// they can tell that nobody changed it since.
//
//	fact ─► Entry ─► Row n = Entry + hash(row n-1, Entry)     in the fact's transaction
//	                 Checkpoint(n) = sign(hash n)             every minute, kept in two places
//
// Every org has a chain of its own, numbered 1, 2, 3 … without gaps. The chain
// shows a row that was changed, left out, put in or moved; the checkpoints, which
// nobody can make without the key, show an end that was cut off and a chain that
// was made anew.
package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/id"
)

// Kind says what an entry is about.
type Kind string

// The kinds of entry.
const (
	KindRequest   Kind = "audit_log.request"                   // Body is a Request
	KindToolCall  Kind = "audit_log.agent.tool_call"           // Body is a ToolCall
	KindExhausted Kind = "audit_log.agent.budget_exhausted"    // Body is an Exhausted
	KindCollision Kind = "audit_log.agent.tool_name_collision" // Body is a Collision
	KindDataLoss  Kind = "audit_log.data_loss"                 // Body is a DataLoss
	KindRestore   Kind = "audit_log.restore"                   // Body is a Restore

	KindManagement Kind = "audit_log.management" // Body is a Management
)

// Kinds returns all kinds of entry.
func Kinds() []Kind {
	return []Kind{KindRequest, KindToolCall, KindExhausted, KindCollision, KindManagement, KindDataLoss, KindRestore}
}

// ParseKind returns the kind that the text names, or an error that names all of
// them. The empty text is the empty kind.
func ParseKind(text string) (Kind, error) {
	if text == "" || slices.Contains(Kinds(), Kind(text)) {
		return Kind(text), nil
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

// Entry is one thing to remember.
type Entry struct {
	Kind      Kind
	At        int64  // Unix milliseconds
	Principal string // whose key it was
	RunID     string // empty for a relay
	RequestID string // that of a run's first round is the run's
	Body      any    // as the kind says; marshals to a JSON object
}

// Row is an entry in the chain of its org.
type Row struct {
	Org       string
	Number    int64 // from 1
	Kind      Kind
	At        int64
	Principal string
	RunID     string
	RequestID string
	Body      json.RawMessage
	Hash      Hash // of all this and the row before
}

// Surfaces of a Request.
const (
	SurfaceAgent = "agent" // a round of the loop, on whatever surface it was asked for
	SurfaceRelay = "relay" // passed on as it was
)

// Request is one round of a run, or one request that was passed on.
type Request struct {
	Surface    string `json:"surface"`
	Via        string `json:"via,omitempty"`   // the surface that the client spoke
	Round      *int   `json:"round_index"`     // from 0; nil for a relay
	Call       *int   `json:"tool_call_index"` // always nil: this is the round itself
	Provider   string `json:"provider"`
	Model      string `json:"model"`    // as the client named it
	Target     string `json:"target"`   // as the provider names it
	Attempts   int    `json:"attempts"` // model calls that it took
	Status     string `json:"status"`   // ok, failed or unknown
	HTTPStatus int    `json:"http_status,omitempty"`
	Class      string `json:"error_class,omitempty"`
	Stop       string `json:"stop,omitempty"`

	InputTokens     int64 `json:"input_tokens"`
	OutputTokens    int64 `json:"output_tokens"`
	CachedTokens    int64 `json:"cached_tokens,omitempty"`
	ReasoningTokens int64 `json:"reasoning_tokens,omitempty"`
	ToolCalls       int   `json:"tool_calls"`
	Bytes           int64 `json:"bytes,omitempty"` // of the answer of a relay

	LatencyMS float64  `json:"latency_ms"` // of the last attempt, see [Milliseconds]; 0 = no request left
	TTFTMS    *float64 `json:"ttft_ms"`    // until the first token; nil = there was none
}

// The statuses of a Request.
const (
	OK      = "ok"
	Failed  = "failed"
	Unknown = "unknown" // nobody knows: the process that asked is gone
)

// ToolCall is how one tool call ended, executed or not.
type ToolCall struct {
	RunID     string  `json:"agent_run_id"`
	Round     int     `json:"round_index"`
	Index     int     `json:"tool_call_index"`
	Server    string  `json:"server_id"`
	Tool      string  `json:"tool"`
	Status    string  `json:"status"`     // ok, error, unknown, cached, denied, skipped_limit, not_run
	LatencyMS float64 `json:"latency_ms"` // see [Milliseconds]; 0 = not executed, or nobody knows
	Attempts  int     `json:"attempts"`   // 0 = never executed
	Class     string  `json:"class,omitempty"`
	Digest    string  `json:"result_digest,omitempty"`
}

// Milliseconds converts microseconds, so that what took less than a millisecond
// is not zero.
func Milliseconds(micros int64) float64 { return float64(micros) / 1000 }

// Collision is a tool that no run is offered because another has its name. It is
// recorded once for each list of tools, with the run that the list was made for.
type Collision struct {
	RunID    string `json:"agent_run_id"`
	Tool     string `json:"tool"`      // the name, as the model sees it
	Server   string `json:"server_id"` // whose tool was left out
	KeptFrom string `json:"kept_from"` // the server whose tool has the name
}

// Management is one change of what is managed, and of a run the request to end
// it. Before and After hold the settings that differ: all of them for what was
// created or deleted. They hold no secrets.
type Management struct {
	Org      string `json:"org"`      // that the change is about
	Resource string `json:"resource"` // org, key, mcp_server, secret or run
	ID       string `json:"id"`       // of the resource: of a server or secret its name
	Action   string `json:"action"`   // create, update, replace, revoke, delete or cancel
	Before   any    `json:"before,omitempty"`
	After    any    `json:"after,omitempty"`

	// RequestID is the request that asked to cancel a run: the row itself is found
	// with the requests of that run.
	RequestID string `json:"cancel_request_id,omitempty"`
}

// DataLoss says that the operator started the gateway although the database had
// lost rows.
type DataLoss struct {
	First        int64 `json:"first_lost"` // number of the first row that was lost
	Last         int64 `json:"last_lost"`  // at least: the last one that a checkpoint speaks of
	CheckpointAt int64 `json:"checkpoint_at"`
}

// Restore says that the store was restored from a backup. Rows that were recorded
// after the backup are not in this chain.
type Restore struct {
	BackupAt int64 `json:"backup_at"` // Unix milliseconds
	LastRow  int64 `json:"last_row"`  // the org's last row in the backup; 0 = it has none
	RunsLost int   `json:"runs_lost"` // unfinished runs of the org, which were ended as lost
}

// Exhausted says that one of a run's budgets has ended it.
type Exhausted struct {
	Budget string `json:"budget"`
	Via    string `json:"via"`
	Model  string `json:"model"`
	Limits any    `json:"limits"`
	Rounds int    `json:"rounds"`
	Calls  int    `json:"calls"`
	Tokens int64  `json:"tokens"`
}

// Query chooses rows of an org. Empty fields choose all.
type Query struct {
	RunID      string   // as it is stored, see [FindRun]
	RequestIDs []string // any of these, as they are stored, see [FindRequest]
	Principal  string
	Kind       Kind
	From, To   int64 // Unix milliseconds; To is not included; 0 = open
	After      int64 // numbers above this
	Limit      int   // 0 = MaxRows
}

// FindRun returns the stored id of the run that is named by it or by its UUID.
func FindRun(text string) string { return id.Shown(text, "run_")[0] }

// FindRequest returns the stored ids of the request that is named by one of them
// or by its UUID, nil for an empty text. At most one of them exists.
func FindRequest(text string) []string {
	if text == "" {
		return nil
	}
	return id.Shown(text, "run_", "req_")
}

// MaxRows is the most rows that one query returns.
const MaxRows = 1000

// AtMost returns the query with a limit that is in the bounds.
func (q Query) AtMost() Query {
	if q.Limit <= 0 || q.Limit > MaxRows {
		q.Limit = MaxRows
	}
	return q
}

// Matches reports whether the query chooses the row. It does not look at the
// limit.
func (q Query) Matches(r Row) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(q.RunID, r.RunID) && (q.RequestIDs == nil || slices.Contains(q.RequestIDs, r.RequestID)) && is(q.Principal, r.Principal) && is(string(q.Kind), string(r.Kind)) &&
		r.At >= q.From && (q.To == 0 || r.At < q.To) && r.Number > q.After
}
