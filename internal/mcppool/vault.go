package mcppool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Vaults are the vaults of all orgs: the store has what is sealed, the keyring
// opens it. Nothing is kept in the clear, so that a changed secret is seen by
// the next look.
type Vaults struct {
	Keys *secret.Keyring // nil = there are none
	Read func(ctx context.Context, orgID, name string) (org.Secret, error)
}

// of returns the vault of one org; nil for none.
func (v Vaults) of(orgID string) secret.Lookup {
	if v.Keys == nil {
		return nil
	}
	return func(ctx context.Context, name string) (secret.Value, error) {
		s, err := v.Read(ctx, orgID, name)
		if errors.Is(err, org.ErrNotFound) {
			return secret.Value{}, &vaultError{errors.New("the org's vault has no such secret")}
		}
		if err != nil {
			return secret.Value{}, err
		}
		value, err := v.Keys.Open(orgID, name, s.Sealed)
		if err != nil {
			return secret.Value{}, &vaultError{err}
		}
		return value, nil
	}
}

// vaultError is what the vault lacks. Those who manage the org may see it: they
// can put it right.
type vaultError struct{ err error }

// Error returns what is lacking.
func (e *vaultError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *vaultError) Unwrap() error { return e.err }

// origin returns a text that is the same for servers that are reached in the
// same way: with other credentials, a server may answer something else.
func (p *Pool) origin(ctx context.Context, s org.MCPServer, secrets []org.Secret) string {
	var credentials []string
	for _, texts := range []map[string]string{s.Headers, s.Env} {
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			credentials = append(credentials, p.version(ctx, s, texts[name], secrets))
		}
	}
	text, _ := json.Marshal([]any{s.URL, s.Headers, s.Command, s.Env, credentials}) // strings: cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// version returns what changes when that changes to which a text refers: the
// time of a secret of the vault, which is opened at dispatch and not before, and
// the value of any other.
func (p *Pool) version(ctx context.Context, s org.MCPServer, text string, secrets []org.Secret) string {
	reference, err := secret.Parse(text)
	if err != nil {
		return ""
	}
	if ref := reference.Ref(); ref.Kind() == secret.Vault {
		i := slices.IndexFunc(secrets, func(s org.Secret) bool { return s.Name == ref.Name() })
		if i < 0 {
			return ""
		}
		return secrets[i].UpdatedAt.UTC().String()
	}
	value, err := p.resolver(s).Resolve(ctx, reference)
	if err != nil {
		return ""
	}
	return value.Reveal()
}
