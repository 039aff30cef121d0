package approvals

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Object is an approval as it is shown, here and on the command line.
type Object struct {
	ID     string                 `json:"id"`
	Type   string                 `json:"object"` // approval
	Status journal.ApprovalStatus `json:"status"`

	RunID   string       `json:"run_id"`
	CallKey loop.CallKey `json:"call_key"`
	Surface string       `json:"surface"`
	Server  string       `json:"server"`
	Tool    string       `json:"tool"` // the server's own name
	Name    string       `json:"name"` // as the model called it
	Host    *string      `json:"host"` // where the call goes; null = a program, or the gateway itself

	// Arguments are those that the tool will get. They are null if Omitted is true.
	Arguments json.RawMessage `json:"arguments"`
	Omitted   bool            `json:"arguments_omitted"` // they are too large for a list, or are not stored any more

	// Said is the text of the last message of the user before the call. Null = none is shown.
	Said    *string `json:"last_user_message"`
	SaidCut bool    `json:"last_user_message_truncated"`

	Principal     string      `json:"principal"`      // id of the key that started the run
	PrincipalName *string     `json:"principal_name"` // null = it has none any more
	Client        *run.Client `json:"client"`         // null = nothing waits, or it is not known
	Asker         loop.Asker  `json:"asker"`
	Message       *string     `json:"message"` // of the hook that asks; null = there is none

	ToolDigest string `json:"tool_digest"`      // of the tool's definition
	ArgsDigest string `json:"arguments_digest"` // of the arguments
	Policy     string `json:"policy_digest"`    // of the rules that asked

	CreatedAt     string  `json:"created_at"`
	ExpiresAt     *string `json:"expires_at"`      // null = never
	DecidedAt     *string `json:"decided_at"`      // null = not decided
	DecidedBy     *string `json:"decided_by"`      // id of a key, or the command line; null = nobody
	DecidedByName *string `json:"decided_by_name"` // null = nobody, or it has none any more
	Reason        *string `json:"reason"`          // null = none given
}

// Details are what an object has beside the record of the approval.
type Details struct {
	Arguments json.RawMessage  // nil = left out
	Said      *run.UserMessage // nil = none is shown
	Client    run.Client       // "" = nothing waits, or it is not known

	// KeyName returns the name of a key by its id; "" = it has none.
	KeyName func(id string) string
}

// NewObject returns the object of an approval.
func NewObject(a journal.Approval, d Details) Object {
	arguments := d.Arguments
	if !json.Valid(arguments) {
		arguments = nil
	}
	o := Object{
		ID: a.ID, Type: "approval", Status: a.Status, RunID: a.RunID, CallKey: a.Call, Surface: a.Surface, Server: a.Server, Tool: a.Tool, Name: a.Name, Host: surface.Given(a.Host),
		Arguments: arguments, Omitted: arguments == nil,
		Principal: a.Principal, Asker: a.Asker, ToolDigest: a.ToolDigest, ArgsDigest: a.ArgsDigest, Policy: a.Policy,
		CreatedAt: surface.Timestamp(a.CreatedAt), ExpiresAt: surface.Milliseconds.Unix(a.ExpiresAt),
		DecidedAt: surface.Milliseconds.Unix(a.DecidedAt), DecidedBy: surface.Given(a.DecidedBy), Reason: surface.Given(a.Reason),
		PrincipalName: surface.Given(d.KeyName(a.Principal)), Client: surface.Given(d.Client),
		DecidedByName: surface.Given(d.KeyName(a.DecidedBy)),
	}
	if d.Said != nil {
		o.Message = surface.Given(d.Said.Asks)
	}
	if d.Said != nil && d.Said.Text != "" {
		o.Said, o.SaidCut = &d.Said.Text, d.Said.Cut
	}
	return o
}
