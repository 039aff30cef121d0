package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Secrets implements org.Store.
func (o *Orgs) Secrets(_ context.Context, orgID string) ([]org.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.orgs[orgID]
	if !ok {
		return nil, nil
	}
	return r.unsealed(), nil
}

// unsealed returns the secrets without Sealed.
func (r *orgRecord) unsealed() []org.Secret {
	out := slices.Clone(r.secrets)
	for i := range out {
		out[i].Sealed = nil
	}
	return out
}

// Secret implements org.Store.
func (o *Orgs) Secret(_ context.Context, orgID, name string) (org.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r, ok := o.orgs[orgID]; ok {
		if i, found := r.secret(name); found {
			s := r.secrets[i]
			s.Sealed = bytes.Clone(s.Sealed)
			return s, nil
		}
	}
	return org.Secret{}, fmt.Errorf("secret %s: %w", name, org.ErrNotFound)
}

// PutSecret implements org.Store.
func (o *Orgs) PutSecret(_ context.Context, s org.Secret, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(s.Org)
	if err != nil {
		return fmt.Errorf("secret %s: %w", s.Name, err)
	}
	s.Sealed = bytes.Clone(s.Sealed)
	i, found := r.secret(s.Name)
	if !found && o.Caps.Secrets > 0 && len(r.secrets) >= o.Caps.Secrets {
		return fmt.Errorf("secret %s: %w", s.Name, o.Caps.SecretsError())
	}
	if !found {
		r.secrets = slices.Insert(r.secrets, i, s)
		return o.record(s.Org, by, by.SecretChanged(nil, &s))
	}
	before := r.secrets[i]
	s.CreatedAt = before.CreatedAt
	r.secrets[i] = s
	return o.record(s.Org, by, by.SecretChanged(&before, &s))
}

// DeleteSecret implements org.Store.
func (o *Orgs) DeleteSecret(_ context.Context, orgID, name string, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r, ok := o.orgs[orgID]; ok {
		if i, found := r.secret(name); found {
			before := r.secrets[i]
			r.secrets = slices.Delete(r.secrets, i, i+1)
			return o.record(orgID, by, by.SecretChanged(&before, nil))
		}
	}
	return fmt.Errorf("secret %s: %w", name, org.ErrNotFound)
}

// secret returns the index of the secret, or where to insert it and false.
func (r *orgRecord) secret(name string) (int, bool) {
	return slices.BinarySearchFunc(r.secrets, name, func(s org.Secret, name string) int { return strings.Compare(s.Name, name) })
}
