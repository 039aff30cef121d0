package org

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Operator is the principal of the operator's changes, and the org name of the
// operator's audit chain. No org and no key has this name: '@' is not allowed in
// theirs.
const Operator = "@operator"

// Author is who makes a change of a [Store]. The store records the change in its
// own transaction, in the org's audit chain, and, if the author is the Operator,
// also in the Operator's chain. The zero Author leaves no row: it is for what the
// gateway itself stores, such as a secret that is sealed under a new master key.
type Author struct {
	Principal string // the id of the key, or Operator
	RequestID string // of the request that asked for the change
	At        int64  // Unix milliseconds
}

// IsZero reports whether the author is the gateway itself.
func (a Author) IsZero() bool { return a == Author{} }

// Chains returns the audit chains that a change of the org is recorded in.
func (a Author) Chains(orgID string) []string {
	switch {
	case a.IsZero():
		return nil
	case a.Principal == Operator:
		return []string{orgID, Operator}
	}
	return []string{orgID}
}

// OrgChanged returns the entry for an org that was created (before is nil),
// deleted (after is nil) or updated. The settings that differ are shown, each as
// far as it is no secret.
func (a Author) OrgChanged(before, after *Record) audit.Entry {
	r := either(before, after)
	return a.entry(changed(r.ID, "org", r.ID, shownOrg(before), shownOrg(after)))
}

// KeyChanged is OrgChanged for a key. A key that is revoked has the action
// "revoke". The key and its hash are not shown.
func (a Author) KeyChanged(before, after *Key) audit.Entry {
	k := either(before, after)
	m := changed(k.Org, "key", k.ID, shownKey(before), shownKey(after))
	if before != nil && after != nil && before.RevokedAt.IsZero() && !after.RevokedAt.IsZero() {
		m.Action = "revoke"
	}
	return a.entry(m)
}

// MCPServerChanged is OrgChanged for an MCP server. Of its headers only the
// references are shown, never a literal value.
func (a Author) MCPServerChanged(before, after *MCPServer) audit.Entry {
	s := either(before, after)
	return a.entry(changed(s.Org, "mcp_server", s.Name, shownServer(before), shownServer(after)))
}

// SecretChanged is OrgChanged for a secret, whose value is not shown. A secret
// that is stored again has the action "replace".
func (a Author) SecretChanged(before, after *Secret) audit.Entry {
	s := either(before, after)
	action := "replace"
	switch {
	case before == nil:
		action = "create"
	case after == nil:
		action = "delete"
	}
	return a.entry(audit.Management{Org: s.Org, Resource: "secret", ID: s.Name, Action: action})
}

// RunCancelled returns the entry for a run that was asked to end.
func (a Author) RunCancelled(orgID, runID string) audit.Entry {
	return a.entry(audit.Management{Org: orgID, Resource: "run", ID: id.UUID(runID), Action: "cancel", RequestID: id.UUID(a.RequestID)})
}

func either[T any](before, after *T) *T {
	if after != nil {
		return after
	}
	return before
}

// members are the settings of a resource as they are shown, by their names.
type members map[string]json.RawMessage

func changed(orgID, resource, name string, before, after members) audit.Management {
	m := audit.Management{Org: orgID, Resource: resource, ID: name, Action: "update"}
	switch {
	case before == nil:
		m.Action = "create"
	case after == nil:
		m.Action = "delete"
	}
	old, now := members{}, members{}
	for name, v := range before {
		if !bytes.Equal(v, after[name]) {
			old[name] = bounded(v)
		}
	}
	for name, v := range after {
		if !bytes.Equal(v, before[name]) {
			now[name] = bounded(v)
		}
	}
	if before != nil {
		m.Before = old
	}
	if after != nil {
		m.After = now
	}
	return m
}

func (a Author) entry(m audit.Management) audit.Entry {
	return audit.Entry{Kind: audit.KindManagement, At: a.At, Principal: a.Principal, RequestID: a.RequestID, Body: m}
}

// maxShown is the most bytes of one setting that a row holds: an org must not
// fill the disk with rows of large lists.
const maxShown = 2 << 10

// bounded returns the setting, or the digest of one that is too large for a row.
func bounded(v json.RawMessage) json.RawMessage {
	if len(v) <= maxShown {
		return v
	}
	sum := sha256.Sum256(v)
	return quoted("sha256:" + hex.EncodeToString(sum[:]))
}

func quoted(s string) json.RawMessage {
	out, _ := json.Marshal(s) // text is always encoded
	return out
}

// shown returns the members of a struct.
func shown(v any) members {
	data, err := json.Marshal(v)
	out := members{}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		panic(err) // only structs of plain fields come here
	}
	return out
}

func shownOrg(r *Record) members {
	if r == nil {
		return nil
	}
	out := shown(r.Runtime)
	maps.Copy(out, shown(struct {
		Features []string `json:"features"`
	}{append([]string{}, r.Features...)}))
	return out
}

func shownKey(k *Key) members {
	if k == nil {
		return nil
	}
	return shown(struct {
		Name      string `json:"name"`
		Role      Role   `json:"role"`
		PerMinute int    `json:"requests_per_minute"`
		Burst     int    `json:"burst"`
		Revoked   bool   `json:"revoked"`
	}{k.Name, k.Role, k.Rate.PerMinute, k.Rate.Burst, !k.RevokedAt.IsZero()})
}

func shownServer(s *MCPServer) members {
	if s == nil {
		return nil
	}
	headers := make(map[string]string, len(s.Headers))
	for name, value := range s.Headers {
		headers[name] = reference(value)
	}
	return shown(struct {
		URL         string            `json:"url"`
		Enabled     bool              `json:"enabled"`
		Tools       []string          `json:"tools"` // null = all
		Headers     map[string]string `json:"headers"`
		Timeout     string            `json:"timeout"`
		MaxRetries  int               `json:"max_retries"`
		Required    bool              `json:"required"`
		Trust       bool              `json:"trust"`
		Naming      string            `json:"naming"`
		Prefix      string            `json:"prefix"`
		Polling     []string          `json:"polling"`
		Reads       []string          `json:"reads"`
		Keyed       []string          `json:"keyed"`
		Cache       Cache             `json:"cache"`
		Concurrency int               `json:"concurrency"`
	}{
		withoutSecrets(s.URL), s.Enabled, s.Tools, headers, s.Timeout.String(), s.MaxRetries, s.Required, s.Trust, s.Naming, s.Prefix,
		append([]string{}, s.Polling...), append([]string{}, s.Reads...), append([]string{}, s.Keyed...), s.Cache, s.Concurrency,
	})
}

// reference returns the reference that a header's value ends with, or "set": a
// literal value may be a credential.
func reference(value string) string {
	if t, err := secret.Parse(value); err == nil && t.Ref() != "" {
		return string(t.Ref())
	}
	return "set"
}

// withoutSecrets returns the URL with the values of its parameters as "set", and
// without a user: both may be credentials.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "set"
	}
	u.User = nil
	query := u.Query()
	for name := range query {
		query[name] = []string{"set"}
	}
	u.RawQuery = query.Encode()
	return u.String()
}
