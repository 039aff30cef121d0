package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// ErrArchived reports that an agent is archived: nothing new is started with it.
var ErrArchived = errors.New("the agent is archived")

// Query selects agents of an org.
type Query struct {
	Name     string // exactly; "" = any
	Archived Which
	Limit    int // at least 1
	Offset   int
}

// Which selects agents by whether they are archived.
type Which string

// The selections.
const (
	NotArchived  Which = ""
	OnlyArchived Which = "true"
	AllAgents    Which = "all"
)

// Has reports whether the query selects the agent, apart from Limit and Offset.
func (q Query) Has(a Agent) bool {
	return (q.Name == "" || q.Name == a.Name) && (q.Archived == AllAgents || (q.Archived == OnlyArchived) == !a.ArchivedAt.IsZero())
}

// Store stores agents, their versions and custom tools, and changes settings. Implemented by store/database;
// store/storetest tests the contract:
//
//   - An id of another org does not exist: org.ErrNotFound.
//   - A change and its audit entry are one transaction; see [org.Author].
//   - A change that has begun is waited for even if ctx ends.
//   - A method that cannot reach the store returns org.ErrUnavailable.
//   - Times have a precision of one millisecond.
//   - Deleting an org deletes its agents, their versions and its custom tools.
type Store interface {
	Tools

	// Agents returns agents of the org, the latest created first, and how many the query selects
	// without Limit and Offset.
	Agents(ctx context.Context, orgID string, q Query) (found []Agent, total int, err error)
	// Agent returns one agent, or org.ErrNotFound.
	Agent(ctx context.Context, orgID, id string) (Agent, error)
	// AgentVersions returns versions of an agent, the latest first, and how many are kept. It returns
	// org.ErrNotFound without the agent. An id without [Prefix] is that of a declared agent.
	AgentVersions(ctx context.Context, orgID, id string, limit, offset int) (found []Version, total int, err error)
	// AgentVersion returns one version, or org.ErrNotFound.
	AgentVersion(ctx context.Context, orgID, id string, number int) (Version, error)

	// DeclareAgents gives agents that the configuration file declares their versions, in one transaction. An agent
	// whose latest version says what its Definition says has that version, and another one has a new version. It
	// returns them with Version and UpdatedAt. Versions stay when an agent leaves the file, and the ones that
	// are [Outdated] are deleted. No other method but AgentVersions and AgentVersion knows these agents. It returns
	// org.ErrNotFound without the org.
	DeclareAgents(ctx context.Context, orgID string, all []Agent, at time.Time) ([]Agent, error)

	// CreateAgent adds an agent with its Version 1. It returns org.ErrNotFound without the org,
	// org.ErrExists if the id or the name is taken, ErrToolMissing if a custom tool of its Definition does
	// not exist, or an *org.CapError.
	CreateAgent(ctx context.Context, a Agent, by org.Author) error
	// UpdateAgent adds the version after the latest with a's Definition, and sets UpdatedAt. It deletes
	// the versions that are [Outdated]. It returns org.ErrNotFound, org.ErrExists if another agent has
	// the name, ErrToolMissing, or org.ErrChanged if was is not the latest version.
	UpdateAgent(ctx context.Context, was int, a Agent, by org.Author) error
	// ArchiveAgent sets ArchivedAt, or restores the agent if at is zero. UpdatedAt becomes updated. An
	// agent that is already so does not change. It returns org.ErrNotFound.
	ArchiveAgent(ctx context.Context, orgID, id string, at, updated time.Time, by org.Author) error
	// RemoveAgent deletes an agent with its versions, or returns org.ErrNotFound.
	RemoveAgent(ctx context.Context, orgID, id string, by org.Author) error

	// ChangeSettings changes Runtime.Agents of an org in one transaction, which can perform change more than once. Everything
	// else stays as it is stored, also settings that this build does not know. Settings that are the [org.Agents.Same] after it
	// are not recorded. It returns org.ErrNotFound without the org.
	ChangeSettings(ctx context.Context, orgID string, change func(*org.Agents), by org.Author) error
}

// Changed returns the audit entry for an agent that was created (before is nil), deleted (after is nil),
// updated, archived or restored. It contains neither the system prompt nor a literal header.
func Changed(by org.Author, before, after *Agent) audit.Entry {
	a := after
	if a == nil {
		a = before
	}
	e := by.Changed(a.Org, "agent", a.ID, shown(before), shown(after))
	if m, ok := e.Body.(audit.Management); ok && before != nil && after != nil && before.ArchivedAt.IsZero() != after.ArchivedAt.IsZero() {
		if m.Action = "archive"; after.ArchivedAt.IsZero() {
			m.Action = "restore"
		}
		e.Body = m
	}
	return e
}

// SettingsChanged returns the audit entry for settings that were replaced.
func SettingsChanged(by org.Author, orgID string, before, after org.Agents) audit.Entry {
	values := func(a org.Agents) map[string]json.RawMessage {
		out := map[string]json.RawMessage{}
		for _, k := range SettingKeys() {
			if value := k.In(a); value != "" {
				out[k.Key], _ = json.Marshal(value) // a string always encodes
			}
		}
		return out
	}
	return by.Changed(orgID, "agent_settings", orgID, values(before), values(after))
}

// shown returns the members of an agent for an audit entry; nil without one.
func shown(a *Agent) map[string]json.RawMessage {
	if a == nil {
		return nil
	}
	d := a.Clone()
	if d.SystemPrompt != "" {
		sum := sha256.Sum256([]byte(d.SystemPrompt))
		d.SystemPrompt = "sha256:" + hex.EncodeToString(sum[:])
	}
	for i := range d.Servers {
		d.Servers[i].Settings = d.Servers[i].Settings.WithoutCredentials()
	}
	for _, h := range d.Hooks {
		if h.HTTP != nil {
			m := org.MCPServer{URL: h.HTTP.URL, Headers: h.HTTP.Headers}.WithoutCredentials()
			h.HTTP.URL, h.HTTP.Headers = m.URL, m.Headers
		}
	}
	text, err := d.Encode()
	var out map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(err) // a Definition has plain fields only
	}
	out["version"] = json.RawMessage(fmt.Sprint(a.Version))
	out["archived"] = json.RawMessage(fmt.Sprint(!a.ArchivedAt.IsZero()))
	return out
}
