package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Orgs implements org.Store, agent.Store, journal.Webhooks and toolcache.Store. The zero value is ready to use.
type Orgs struct {
	Caps org.Caps // apply to every org; the zero value is no limit

	// Audit receives the audit rows of changes; nil drops them. It and Conversations
	// store what keeps the id of a deleted org from use; nil stores nothing. Their locks
	// are taken while mu is held.
	Audit         *Journal
	Conversations *Conversations

	// Outbox has the webhooks of the orgs; nil = there are none.
	Outbox *Outbox

	mu   sync.Mutex
	orgs map[string]*orgRecord
}

// orgRecord is an org with its keys, servers, secrets, cached results, agents and custom tools.
type orgRecord struct {
	org.Record
	keys    []org.Key       // in the order of Keys
	servers []org.MCPServer // in the order of MCPServers
	secrets []org.Secret    // in the order of Secrets
	off     []string        // names of shared servers, sorted
	results results

	agents   []*agentRecord  // in the order of their creation
	declared []*agentRecord  // of the configuration file, also those that have left it
	settings []agent.Setting // in the order of AgentSettings
	tools    []agent.Tool    // ordered by name
	files    []storedFile    // in the order in which they were added
}

// Orgs implements org.Store.
func (o *Orgs) Orgs(context.Context) ([]org.Record, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]org.Record, 0, len(o.orgs))
	for _, r := range o.orgs {
		out = append(out, cloneOrg(r.Record))
	}
	slices.SortFunc(out, func(a, b org.Record) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// EachOrg implements org.Store.
func (o *Orgs) EachOrg(_ context.Context, each func(org.Contents) error) error {
	for _, c := range o.contents() {
		if err := each(c); err != nil {
			return err
		}
	}
	return nil
}

// contents returns all orgs with what they have, ordered by id.
func (o *Orgs) contents() []org.Contents {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []org.Contents
	for _, id := range slices.Sorted(maps.Keys(o.orgs)) {
		r := o.orgs[id]
		all = append(all, org.Contents{Record: cloneOrg(r.Record), Keys: slices.Clone(r.keys), Servers: r.cloneServers(), Off: slices.Clone(r.off), Secrets: r.unsealed()})
	}
	return all
}

// AddOrgs implements org.Store.
func (o *Orgs) AddOrgs(_ context.Context, orgs []org.Record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range orgs {
		if o.orgs[r.ID] == nil {
			if err := o.leftOf(r.ID); err != nil {
				return err
			}
		}
	}
	for _, r := range orgs {
		if o.orgs[r.ID] == nil {
			o.add(r)
		}
	}
	return nil
}

// leftOf returns an *org.LeftError if anything is stored of a deleted org with the id that a
// new one could read. It is called with mu held.
func (o *Orgs) leftOf(id string) error {
	var left []string
	if o.Audit != nil && o.Audit.hasRuns(id) {
		left = append(left, org.LeftRuns)
	}
	if o.Conversations != nil && o.Conversations.hasAny(id) {
		left = append(left, org.LeftConversations)
	}
	if o.Audit != nil && o.Audit.hasAudit(id) {
		left = append(left, org.LeftAudit)
	}
	if left == nil {
		return nil
	}
	return &org.LeftError{Org: id, Left: left}
}

// add is called with mu held.
func (o *Orgs) add(r org.Record) {
	if o.orgs == nil {
		o.orgs = map[string]*orgRecord{}
	}
	o.orgs[r.ID] = &orgRecord{Record: cloneOrg(r)}
	if o.Audit != nil {
		o.Audit.dropBudgets(r.ID)
	}
}

// Org implements org.Store.
func (o *Orgs) Org(_ context.Context, id string) (org.Record, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(id)
	if err != nil {
		return org.Record{}, err
	}
	return cloneOrg(r.Record), nil
}

// CreateOrg implements org.Store.
func (o *Orgs) CreateOrg(_ context.Context, r org.Record, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, taken := o.orgs[r.ID]; taken {
		return fmt.Errorf("org %s: %w", r.ID, org.ErrExists)
	}
	if err := o.leftOf(r.ID); err != nil {
		return err
	}
	o.add(r)
	return o.record(r.ID, by, by.OrgChanged(nil, &r))
}

// UpdateOrg implements org.Store.
func (o *Orgs) UpdateOrg(_ context.Context, was, r org.Record, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, err := o.find(r.ID)
	switch {
	case err != nil:
		return err
	case !old.Same(was):
		return fmt.Errorf("org %s: %w", r.ID, org.ErrChanged)
	}
	r.CreatedAt = old.CreatedAt
	before := old.Record
	old.Record = cloneOrg(r)
	return o.record(r.ID, by, by.OrgChanged(&before, &r))
}

// DeleteOrg implements org.Store.
func (o *Orgs) DeleteOrg(_ context.Context, id string, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(id)
	if err != nil {
		return err
	}
	delete(o.orgs, id)
	if o.Audit != nil {
		o.Audit.dropSessions(id, "", o.Conversations)
		o.Audit.dropHooksOf(id)
	}
	if o.Outbox != nil {
		o.Outbox.drop(func(k journal.WebhookKey) bool { return k.Org == id })
	}
	return o.record(id, by, by.OrgChanged(&r.Record, nil))
}

// record writes the audit rows of a change. It is called with mu held.
func (o *Orgs) record(orgID string, by org.Author, e audit.Entry) error {
	if o.Audit == nil {
		return nil
	}
	for _, chain := range by.Chains(orgID) {
		if err := o.Audit.Record(context.Background(), chain, e); err != nil {
			return err
		}
	}
	return nil
}

// find is called with mu held.
func (o *Orgs) find(id string) (*orgRecord, error) {
	if r, ok := o.orgs[id]; ok {
		return r, nil
	}
	return nil, fmt.Errorf("org %s: %w", id, org.ErrNotFound)
}

func cloneOrg(r org.Record) org.Record {
	r.Features = slices.Clone(r.Features)
	r.Runtime.MaxRounds = cloneInt(r.Runtime.MaxRounds)
	r.Runtime.MaxCalls = cloneInt(r.Runtime.MaxCalls)
	r.Runtime.ToolResultMaxBytes = cloneInt(r.Runtime.ToolResultMaxBytes)
	r.Runtime.MaxRunTokens = cloneInt(r.Runtime.MaxRunTokens)
	return r
}

func cloneInt(p *int) *int {
	if p == nil {
		return nil
	}
	return new(*p)
}
