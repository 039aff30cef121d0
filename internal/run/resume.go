package run

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// The refs of the rows that a durable run stores for its next owner.
const (
	requestRef = "request"
	storeRef   = "response" // StoreOptions of a light run, whose request is not stored
	catalogRef = "catalog"
	inputFull  = "full:input"
	begunRef   = "request:begun" // that of a run with deferred input, when it has begun; it replaces requestRef
	traceRef   = "trace"         // of the run's trace context, see Observer
)

// storedRequest is the part of a run's request that Accepted does not have.
type storedRequest struct {
	ClientTools    []model.Tool          `json:"client_tools,omitempty"`
	Hosted         []model.HostedTool    `json:"hosted_tools,omitempty"`
	Dispatched     []model.Tool          `json:"dispatched_tools,omitempty"`
	ToolChoice     model.ToolChoice      `json:"tool_choice,omitzero"`
	Options        model.Options         `json:"options,omitzero"`
	Params         []model.Param         `json:"params,omitempty"`
	Dialect        string                `json:"dialect,omitempty"`
	OnlyOf         []ServerTool          `json:"only_of,omitempty"`
	FromRequest    []string              `json:"brought_servers,omitempty"` // names, see Request.brought
	RequestServers []storedRequestServer `json:"declared_servers,omitempty"`
	Previous       string                `json:"previous,omitempty"`
	Session        string                `json:"session,omitempty"`
	Settings       map[string]string     `json:"settings,omitempty"`
	Store          *StoreOptions         `json:"keep,omitempty"`
	NotOwn         int                   `json:"not_own,omitempty"`
	Parts          []string              `json:"parts,omitempty"`
	Inherited      map[string]bool       `json:"inherited,omitempty"`
	Permissions    []string              `json:"permissions,omitempty"`
	CallerOrg      string                `json:"caller_org,omitempty"`

	// System and Items are those of a request whose input is deferred, until the run begins.
	System item.List `json:"system,omitempty"`
	Items  item.List `json:"items,omitempty"`
}

// requestOf restores the request of a run from its journal. The policy, the models and
// the servers are missing: the policy is in Accepted, for the others see restoreResources.
//
// parks is how often the run has waited: requests may have continued it since.
func requestOf(a *loop.Accepted, parks int, rows map[string]json.RawMessage) (*Request, error) {
	var q storedRequest
	ref := requestRef
	if rows[begunRef] != nil {
		ref = begunRef
	}
	if raw, ok := rows[ref]; ok {
		if err := json.Unmarshal(raw, &q); err != nil {
			return nil, journal.Damaged(ref, err)
		}
		q.dropNulls()
	} else if raw, ok := rows[storeRef]; ok {
		if err := json.Unmarshal(raw, &q.Store); err != nil {
			return nil, journal.Damaged(storeRef, err)
		}
	}
	continues, err := continuesOf(&q, rows)
	if err != nil {
		return nil, err
	}
	for n := 1; n <= parks; n++ { // what the requests brought that have continued the run
		raw, ok := rows[partRef(n)]
		if !ok {
			continue
		}
		var part storedPart
		if err := json.Unmarshal(raw, &part); err != nil {
			return nil, journal.Damaged(partRef(n), err)
		}
		q.take(part)
	}
	return &Request{
		Org: a.Org, Principal: a.Principal, EndUser: a.EndUser, Surface: a.Surface, Model: a.Model,
		ClientTools: q.ClientTools, Hosted: q.Hosted, Dispatched: q.Dispatched, ToolChoice: q.ToolChoice, Options: q.Options, Params: q.Params, Dialect: q.Dialect,
		OnlyOf: q.OnlyOf, brought: q.FromRequest, stored: q.RequestServers, Continues: continues, Store: q.Store, notOwn: q.NotOwn, parts: q.Parts, inherited: q.Inherited,
		Permissions: q.Permissions, CallerOrg: q.CallerOrg, AgentSession: a.AgentSession, Agent: a.Agent, System: q.System, Items: q.Items,
	}, nil
}

// dropNulls restores the values that are nil: their stored form is null, which is read as the
// JSON null, and an adapter would send it.
func (q *storedRequest) dropNulls() {
	for _, tools := range [][]model.Tool{q.ClientTools, q.Dispatched} {
		for i := range tools {
			t := &tools[i]
			if string(t.Native) == "null" {
				t.Native = nil
			}
			if string(t.InputSchema) == "null" {
				t.InputSchema = nil
			}
		}
	}
	if string(q.ToolChoice.Native) == "null" {
		q.ToolChoice.Native = nil
	}
}

// take takes what a request brought that has continued the run: how its response is stored, and
// the credentials of its servers.
func (q *storedRequest) take(part storedPart) {
	q.Store = part.Store
	for i := range q.RequestServers {
		for _, again := range part.RequestServers {
			if again.Label == q.RequestServers[i].Label {
				q.RequestServers[i].Address = again.Address
			}
		}
	}
}
