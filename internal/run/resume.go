package run

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/model"
)

// The refs of the rows that a durable run stores for its next owner.
const (
	requestRef = "request"
	storeRef   = "response" // StoreOptions of a light run, whose request is not stored
	catalogRef = "catalog"
	partsRef   = "parts" // of the named conversation, in front of the run
	inputFull  = "full:input"
	begunRef   = "request:begun" // that of a run with deferred input, when it has begun; it replaces requestRef
	traceRef   = "trace"         // of the run's trace context, see Observer
)

// storedRequest is the part of a run's request that Accepted does not have.
type storedRequest struct {
	Input                                // with System and Items only if the input is deferred, until the run begins
	FromRequest    []string              `json:"brought_servers,omitempty"` // names, see start.brought
	RequestServers []storedRequestServer `json:"declared_servers,omitempty"`
	Previous       string                `json:"previous,omitempty"`
	Session        string                `json:"session,omitempty"`
	Store          *StoreOptions         `json:"keep,omitempty"`
	NotOwn         int                   `json:"not_own,omitempty"`
	SystemItems    int                   `json:"system_items,omitempty"`
	Place          journal.Place         `json:"place,omitzero"`
	Inherited      map[string]bool       `json:"inherited,omitempty"`
	Permissions    []string              `json:"permissions,omitempty"`
	CallerOrg      string                `json:"caller_org,omitempty"`
}

// start is what a run knows of its begin beside its request.
type start struct {
	store *StoreOptions // those of the request, with an id for each item

	// notOwn is how many of the items in front of the transcript are not the request's Items: System, and
	// what it Continues. inherited are the ids of its truncated results, parts those of the named conversation.
	notOwn    int
	system    int           // how many of these are of System
	place     journal.Place // behind what the request continues
	inherited map[string]bool
	parts     []string

	listed     []string     // labels of the servers whose tools the conversation has listed before
	lastTarget event.Target // that answered the conversation last; zero = not known

	// brought are the names of the servers that the request brought, and declared those of its RequestServers, of a run
	// that was taken over.
	brought  []string
	declared []storedRequestServer
}

// startOf returns the start of a run whose conversation is not read yet.
func startOf(r *Request) start { return start{store: r.Store, listed: r.Listed, system: len(r.System)} }

// missesBrought returns an error if a server is missing that the request of a run
// brought that was taken over: the run must not begin with other tools than it asked for.
func (s *runState) missesBrought() error {
	for _, name := range s.start.brought {
		if !slices.ContainsFunc(s.req.Servers, func(s catalog.Server) bool { return s.Name == name && (s.FromRequest || s.Shown) }) {
			return fmt.Errorf("the request brought the server %q, which is not stored", name)
		}
	}
	return nil
}

// requestOf restores the request of a run from its journal. The policy, the models and
// the servers are missing: the policy is in Accepted, for the others see restoreResources.
//
// parks is how often the run has waited: requests may have continued it since.
func requestOf(a *loop.Accepted, parks int, rows map[string]json.RawMessage) (*Request, start, error) {
	var q storedRequest
	ref := requestRef
	if rows[begunRef] != nil {
		ref = begunRef
	}
	if raw, ok := rows[ref]; ok {
		if err := json.Unmarshal(raw, &q); err != nil {
			return nil, start{}, journal.Damaged(ref, err)
		}
		q.dropNulls()
	} else if raw, ok := rows[storeRef]; ok {
		if err := json.Unmarshal(raw, &q.Store); err != nil {
			return nil, start{}, journal.Damaged(storeRef, err)
		}
	}
	var parts []string
	if raw, ok := rows[partsRef]; ok {
		if err := json.Unmarshal(raw, &parts); err != nil {
			return nil, start{}, journal.Damaged(partsRef, err)
		}
	}
	continues, err := continuesOf(&q, rows)
	if err != nil {
		return nil, start{}, err
	}
	for n := 1; n <= parks; n++ { // what the requests brought that have continued the run
		raw, ok := rows[partRef(n)]
		if !ok {
			continue
		}
		var part storedPart
		if err := json.Unmarshal(raw, &part); err != nil {
			return nil, start{}, journal.Damaged(partRef(n), err)
		}
		q.take(part)
	}
	q.Model, q.Continues = a.Model, continues
	return &Request{
			Who: Who{
				Org: a.Org, Principal: a.Principal, EndUser: a.EndUser, Surface: a.Surface, Permissions: q.Permissions, CallerOrg: q.CallerOrg,
				AgentSession: a.AgentSession, Agent: a.Agent,
			},
			Input: q.Input,
		}, start{
			store: q.Store, notOwn: q.NotOwn, system: max(q.SystemItems, len(q.System)), place: q.Place, inherited: q.Inherited, parts: parts,
			brought: q.FromRequest, declared: q.RequestServers,
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
