package approvals

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Object is an approval as it is shown, here and on the command line.
type Object struct {
	ID     string             `json:"id"`
	Type   string             `json:"object"` // approval
	Status run.ApprovalStatus `json:"status"`

	RunID   string       `json:"run_id"`
	CallKey loop.CallKey `json:"call_key"`
	Surface string       `json:"surface"`
	Server  string       `json:"server"`
	Tool    string       `json:"tool"` // the server's own name
	Name    string       `json:"name"` // as the model called it

	// Arguments are those that the tool will get. They are null if Omitted is true.
	Arguments json.RawMessage `json:"arguments"`
	Omitted   bool            `json:"arguments_omitted"` // they are too large for a list, or are not stored any more

	Principal  string     `json:"principal"` // id of the key that started the run
	Asker      loop.Asker `json:"asker"`
	ToolDigest string     `json:"tool_digest"`
	ArgsDigest string     `json:"arguments_digest"`
	Policy     string     `json:"policy_digest"`

	CreatedAt string  `json:"created_at"`
	ExpiresAt *string `json:"expires_at"` // null = never
	DecidedAt *string `json:"decided_at"` // null = not decided
	DecidedBy *string `json:"decided_by"` // null = nobody
	Reason    *string `json:"reason"`     // null = none given
}

// NewObject returns the object of an approval. arguments are nil if they are left out.
func NewObject(a run.Approval, arguments json.RawMessage) Object {
	if !json.Valid(arguments) {
		arguments = nil
	}
	return Object{
		ID: a.ID, Type: "approval", Status: a.Status, RunID: a.RunID, CallKey: a.Call, Surface: a.Surface, Server: a.Server, Tool: a.Tool, Name: a.Name,
		Arguments: arguments, Omitted: arguments == nil,
		Principal: a.Principal, Asker: a.Asker, ToolDigest: a.ToolDigest, ArgsDigest: a.ArgsDigest, Policy: a.Policy,
		CreatedAt: surface.Timestamp(a.CreatedAt), ExpiresAt: at(a.ExpiresAt), DecidedAt: at(a.DecidedAt), DecidedBy: given(a.DecidedBy), Reason: given(a.Reason),
	}
}

// at returns a time in Unix milliseconds as text; nil for 0.
func at(ms int64) *string {
	if ms == 0 {
		return nil
	}
	return new(surface.Timestamp(ms))
}

// given returns the text; nil for "".
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// page is a part of the list.
type page struct {
	Object  string   `json:"object"` // list
	Data    []Object `json:"data"`
	HasMore bool     `json:"has_more"` // there are older approvals
	FirstID *string  `json:"first_id"` // null = there are none
	LastID  *string  `json:"last_id"`
}

func newPage(data []Object, more bool) page {
	out := page{Object: "list", Data: data, HasMore: more}
	if n := len(data); n > 0 {
		out.FirstID, out.LastID = &data[0].ID, &data[n-1].ID
	}
	return out
}
