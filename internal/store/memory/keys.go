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

// CreateKey implements org.Store.
func (o *Orgs) CreateKey(_ context.Context, k org.Key) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(k.Org)
	if err != nil {
		return fmt.Errorf("key %s: %w", k.ID, err)
	}
	taken := slices.ContainsFunc(r.keys, func(other org.Key) bool { return other.ID == k.ID })
	for _, other := range o.orgs {
		taken = taken || slices.ContainsFunc(other.keys, func(other org.Key) bool { return other.Hash == k.Hash })
	}
	if taken {
		return fmt.Errorf("key %s: %w", k.ID, org.ErrExists)
	}
	r.keys = append(r.keys, k)
	slices.SortFunc(r.keys, func(a, b org.Key) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return nil
}

// RevokeKey implements org.Store.
func (o *Orgs) RevokeKey(_ context.Context, orgID, id string, at int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.orgs[orgID]
	if !ok {
		return fmt.Errorf("key %s: %w", id, org.ErrNotFound)
	}
	i := slices.IndexFunc(r.keys, func(k org.Key) bool { return k.ID == id })
	if i < 0 {
		return fmt.Errorf("key %s: %w", id, org.ErrNotFound)
	}
	if r.keys[i].RevokedAt.IsZero() {
		r.keys[i].RevokedAt = time.UnixMilli(at).UTC()
	}
	return nil
}
