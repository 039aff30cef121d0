package org

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Operator is the principal of the operator's changes and the org of the operator's
// audit chain. It cannot collide with an org or a key: their names must not contain
// '@'.
const Operator = "@operator"

// Author identifies who makes a change in a [Store]. The store records the change in
// the audit chain of the org, in the same transaction. If the author is the Operator,
// it records it in the Operator's chain as well. The zero Author records nothing. It is
// for changes by the gateway itself, such as sealing a secret under a new master key.
type Author struct {
	Principal string // the id of the key, or Operator
	RequestID string // of the request that asked for the change
	At        int64  // Unix milliseconds
}

// CommandLine is the author of what an operator changes without a key, on the machine
// of the gateway.
const CommandLine = "command line"

// IsZero reports whether the author is the gateway itself.
func (a Author) IsZero() bool { return a == Author{} }

// Chains returns the orgs of the audit chains that must record a change of orgID.
func (a Author) Chains(orgID string) []string {
	switch {
	case a.IsZero():
		return nil
	case a.Principal == Operator:
		return []string{orgID, Operator}
	}
	return []string{orgID}
}

// OrgChanged returns the audit entry for an org that was created (before is nil),
// deleted (after is nil) or updated. It contains the settings that differ, and no
// credential.
func (a Author) OrgChanged(before, after *Record) audit.Entry {
	r := newest(before, after)
	return a.entry(diff(r.ID, "org", r.ID, orgMembers(before), orgMembers(after)))
}

// KeyChanged is OrgChanged for a key. The action of a revocation is "revoke", and that of a
// new secret "rotate". The entry does not contain the key or its hash.
func (a Author) KeyChanged(before, after *Key) audit.Entry {
	k := newest(before, after)
	m := diff(k.Org, "key", k.ID, keyMembers(before), keyMembers(after))
	if before != nil && after != nil && before.RevokedAt.IsZero() && !after.RevokedAt.IsZero() {
		m.Action = "revoke"
	} else if before != nil && after != nil && before.Hash != after.Hash {
		m.Action = "rotate"
	}
	return a.entry(m)
}

// MCPServerChanged is OrgChanged for an MCP server. The entry contains the references
// in its headers, never a literal value.
func (a Author) MCPServerChanged(before, after *MCPServer) audit.Entry {
	s := newest(before, after)
	return a.entry(diff(s.Org, "mcp_server", s.Name, serverMembers(before), serverMembers(after)))
}

// ServerSwitched returns the audit entry for a shared MCP server that the org switched on or off.
func (a Author) ServerSwitched(orgID, name string, on bool) audit.Entry {
	enabled := func(on bool) members {
		return toMembers(struct {
			Enabled bool `json:"enabled"`
		}{on})
	}
	return a.entry(diff(orgID, "mcp_server", name, enabled(!on), enabled(on)))
}

// SecretChanged is OrgChanged for a secret. The action of an update is "replace". The
// entry does not contain the value.
func (a Author) SecretChanged(before, after *Secret) audit.Entry {
	s := newest(before, after)
	action := "replace"
	switch {
	case before == nil:
		action = "create"
	case after == nil:
		action = "delete"
	}
	return a.entry(audit.Management{Org: s.Org, Resource: "secret", ID: s.Name, Action: action})
}

// RunCancelled returns the audit entry for a request to cancel a run.
func (a Author) RunCancelled(orgID, runID string) audit.Entry {
	return a.entry(audit.Management{Org: orgID, Resource: "run", ID: id.UUID(runID), Action: "cancel", RequestID: id.UUID(a.RequestID)})
}

// LimitsRaised returns the audit entry for a raise of a run's limits.
func (a Author) LimitsRaised(orgID, runID string, before, after any) audit.Entry {
	m := diff(orgID, "run", id.UUID(runID), toMembers(before), toMembers(after))
	m.Action, m.RequestID = "raise_limits", id.UUID(a.RequestID)
	return a.entry(m)
}

// Changed is OrgChanged for a resource of another package. The members must contain no credential.
func (a Author) Changed(orgID, resource, name string, before, after map[string]json.RawMessage) audit.Entry {
	return a.entry(diff(orgID, resource, name, before, after))
}

// newest returns after, or before if after is nil.
func newest[T any](before, after *T) *T {
	if after != nil {
		return after
	}
	return before
}

// members are the settings of a resource for an audit entry, by name.
type members map[string]json.RawMessage

// diff returns the members that differ between before and after.
func diff(orgID, resource, name string, before, after members) audit.Management {
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
			old[name] = truncated(v)
		}
	}
	for name, v := range after {
		if !bytes.Equal(v, before[name]) {
			now[name] = truncated(v)
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

// FileChanged returns the entry for a file of a bucket that was uploaded, or deleted if sum is "". sum is its SHA-256.
func (a Author) FileChanged(orgID, bucket, path string, size int64, sum string) audit.Entry {
	m := audit.Management{Org: orgID, Resource: "file", ID: bucket + "/" + path, Action: "delete"}
	if sum != "" {
		m.Action = "upload"
		m.After = struct {
			Size   int64  `json:"size"`
			SHA256 string `json:"sha256"`
		}{size, sum}
	}
	return a.entry(m)
}

func (a Author) entry(m audit.Management) audit.Entry {
	return audit.Entry{Kind: audit.KindManagement, At: a.At, Principal: a.Principal, RequestID: a.RequestID, Body: m}
}

// maxMember is the maximum size of one setting in an audit entry, in bytes. It prevents
// an org from filling the disk with entries about large lists.
const maxMember = 2 << 10

// truncated returns the setting, or its SHA-256 digest if it is larger than maxMember.
func truncated(v json.RawMessage) json.RawMessage {
	if len(v) <= maxMember {
		return v
	}
	sum := sha256.Sum256(v)
	return quoted("sha256:" + hex.EncodeToString(sum[:]))
}

func quoted(s string) json.RawMessage {
	out, _ := json.Marshal(s) // a string always encodes
	return out
}

// toMembers returns the JSON members of a struct. It writes durations as text:
// "timeout": "30s" for "timeout_ns": 30000000000. It panics if v does not encode to an
// object.
func toMembers(v any) members {
	data, err := json.Marshal(v)
	out := members{}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		panic(err) // callers pass structs of plain fields only
	}
	for name, v := range out {
		key, isDuration := strings.CutSuffix(name, "_ns")
		if ns, err := strconv.ParseInt(string(v), 10, 64); isDuration && err == nil {
			delete(out, name)
			out[key] = quoted(time.Duration(ns).String())
		}
	}
	return out
}

func orgMembers(r *Record) members {
	if r == nil {
		return nil
	}
	out := toMembers(r.Runtime)
	maps.Copy(out, toMembers(struct {
		Features []string `json:"features"`
	}{append([]string{}, r.Features...)}))
	return out
}

func keyMembers(k *Key) members {
	if k == nil {
		return nil
	}
	return toMembers(struct {
		Name      string `json:"name"`
		Role      Role   `json:"role"`
		PerMinute int    `json:"requests_per_minute"`
		Burst     int    `json:"burst"`
		Access
		Hint          string    `json:"hint"`
		PreviousUntil time.Time `json:"previous_until,omitzero"`
		ExpiresAt     time.Time `json:"expires_at,omitzero"`
		Revoked       bool      `json:"revoked"`
	}{k.Name, k.Role, k.Rate.PerMinute, k.Rate.Burst, k.Access, k.Hint, k.Previous.Until.UTC(), k.ExpiresAt.UTC(), !k.RevokedAt.IsZero()})
}

func serverMembers(s *MCPServer) members {
	if s == nil {
		return nil
	}
	return toMembers(s.WithoutCredentials())
}

// WithoutCredentials returns the server as audit entries show it: without what may be a credential in
// its URL, and with the references in its headers, never a literal value.
func (s MCPServer) WithoutCredentials() MCPServer {
	headers := make(map[string]string, len(s.Headers))
	for name, value := range s.Headers {
		headers[name] = reference(value)
	}
	s.URL, s.Headers = withoutSecrets(s.URL), headers
	return s
}

// reference returns the reference at the end of a header's value, or "set" if there is
// none: a literal value may be a credential.
func reference(value string) string {
	if t, err := secret.Parse(value); err == nil && t.Ref() != "" {
		return string(t.Ref())
	}
	return "set"
}

// withoutSecrets returns the URL without its user, and with "set" for the value of each
// query parameter: both may be credentials.
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
