package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Keys implements org.Store.
func (o *Orgs) Keys(_ context.Context, orgID string) ([]org.Key, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.orgs[orgID]
	if !ok {
		return nil, nil
	}
	return slices.Clone(r.keys), nil
}

// KeysAfter implements org.Store.
func (o *Orgs) KeysAfter(ctx context.Context, orgID string, after org.KeyPlace, limit int) ([]org.Key, error) {
	keys, err := o.Keys(ctx, orgID)
	keys = slices.DeleteFunc(keys, func(k org.Key) bool { return k.Place().Compare(after) <= 0 })
	return keys[:min(limit, len(keys))], err
}

// Key implements org.Store.
func (o *Orgs) Key(_ context.Context, orgID, id string) (org.Key, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r, ok := o.orgs[orgID]; ok {
		if i := slices.IndexFunc(r.keys, func(k org.Key) bool { return k.ID == id }); i >= 0 {
			return r.keys[i], nil
		}
	}
	return org.Key{}, fmt.Errorf("key %s: %w", id, org.ErrNotFound)
}

// CreateKey implements org.Store.
func (o *Orgs) CreateKey(_ context.Context, k org.Key, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(k.Org)
	if err != nil {
		return fmt.Errorf("key %s: %w", k.ID, err)
	}
	if working, _ := r.countKeys(); o.Caps.Keys > 0 && working >= o.Caps.Keys {
		return fmt.Errorf("key %s: %w", k.ID, o.Caps.KeysError())
	}
	if o.hashTaken(k) || slices.ContainsFunc(r.keys, func(other org.Key) bool { return other.ID == k.ID }) {
		return fmt.Errorf("key %s: %w", k.ID, org.ErrExists)
	}
	if r.nameTaken(k) {
		return fmt.Errorf("key %s: %w", k.ID, org.ErrNameTaken)
	}
	r.keys = append(r.keys, k)
	slices.SortFunc(r.keys, func(a, b org.Key) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return o.record(k.Org, by, by.KeyChanged(nil, &k))
}

// UpdateKey implements org.Store.
func (o *Orgs) UpdateKey(_ context.Context, was, k org.Key, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i := o.findKey(k.Org, k.ID)
	if i < 0 {
		return fmt.Errorf("key %s: %w", k.ID, org.ErrNotFound)
	}
	before := r.keys[i]
	if !before.SameSettings(was) {
		return fmt.Errorf("key %s: %w", k.ID, org.ErrChanged)
	}
	if k.Name != before.Name && r.nameTaken(k) {
		return fmt.Errorf("key %s: %w", k.ID, org.ErrNameTaken)
	}
	after := before
	after.Name, after.Role, after.Rate, after.Access, after.ExpiresAt = k.Name, k.Role, k.Rate, k.Access, k.ExpiresAt
	r.keys[i] = after
	return o.record(k.Org, by, by.KeyChanged(&before, &after))
}

// RotateKey implements org.Store.
func (o *Orgs) RotateKey(_ context.Context, was, k org.Key, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i := o.findKey(k.Org, k.ID)
	if i < 0 {
		return fmt.Errorf("key %s: %w", k.ID, org.ErrNotFound)
	}
	before := r.keys[i]
	if before.Hash != was.Hash || !before.SameSettings(was) {
		return fmt.Errorf("key %s: %w", k.ID, org.ErrChanged)
	}
	if before.Hash != k.Hash && o.hashTaken(k) {
		return fmt.Errorf("key %s: %w", k.ID, org.ErrExists)
	}
	after := before
	after.Hash, after.Hint, after.Previous = k.Hash, k.Hint, k.Previous
	r.keys[i] = after
	return o.record(k.Org, by, by.KeyChanged(&before, &after))
}

// hashTaken reports whether a key of any org has the hash of k.
func (o *Orgs) hashTaken(k org.Key) bool {
	for _, other := range o.orgs {
		if slices.ContainsFunc(other.keys, func(other org.Key) bool { return other.Hash == k.Hash }) {
			return true
		}
	}
	return false
}

// nameTaken reports whether another active key has the name of k.
func (r *orgRecord) nameTaken(k org.Key) bool {
	return k.Name != "" && slices.ContainsFunc(r.keys, func(other org.Key) bool {
		return other.Name == k.Name && other.ID != k.ID && other.RevokedAt.IsZero()
	})
}

// findKey returns the index of a key, or -1. It is called with mu held.
func (o *Orgs) findKey(orgID, id string) (*orgRecord, int) {
	r, ok := o.orgs[orgID]
	if !ok {
		return nil, -1
	}
	return r, slices.IndexFunc(r.keys, func(k org.Key) bool { return k.ID == id })
}

// RevokeKey implements org.Store.
func (o *Orgs) RevokeKey(_ context.Context, orgID, id string, at int64, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i := o.findKey(orgID, id)
	if i < 0 {
		return fmt.Errorf("key %s: %w", id, org.ErrNotFound)
	}
	before := r.keys[i]
	if !before.RevokedAt.IsZero() {
		return nil
	}
	after := before
	after.RevokedAt = time.UnixMilli(at).UTC()
	r.keys[i] = after
	if _, revoked := r.countKeys(); o.Caps.Keys > 0 && revoked > o.Caps.Keys {
		r.dropOldestRevoked()
	}
	if o.Conversations != nil {
		o.Conversations.dropSessions(orgID, id)
	}
	return o.record(orgID, by, by.KeyChanged(&before, &after))
}

// countKeys returns the number of the org's active and of its revoked keys.
func (r *orgRecord) countKeys() (working, revoked int) {
	for _, k := range r.keys {
		if k.RevokedAt.IsZero() {
			working++
		}
	}
	return working, len(r.keys) - working
}

// dropOldestRevoked drops the key that was revoked first.
func (r *orgRecord) dropOldestRevoked() {
	first := -1
	for i, k := range r.keys {
		if !k.RevokedAt.IsZero() && (first < 0 || k.RevokedAt.Before(r.keys[first].RevokedAt)) {
			first = i
		}
	}
	r.keys = slices.Delete(r.keys, first, first+1)
}
