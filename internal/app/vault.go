package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/sqlite"
)

// vaults are the vaults of all orgs: the store has what is sealed, the keyring
// opens it. Nothing is kept in the clear, so that a changed secret is seen by
// the next look.
type vaults struct {
	keys *secret.Keyring // nil = there are none
	read func(ctx context.Context, orgID, name string) (org.Secret, error)
}

// of returns the vault of one org; nil for none.
func (v vaults) of(orgID string) secret.Lookup {
	if v.keys == nil {
		return nil
	}
	return func(ctx context.Context, name string) (secret.Value, error) {
		s, err := v.read(ctx, orgID, name)
		if errors.Is(err, org.ErrNotFound) {
			return secret.Value{}, &vaultError{errors.New("the org's vault has no such secret")}
		}
		if err != nil {
			return secret.Value{}, err
		}
		value, err := v.keys.Open(orgID, name, s.Sealed)
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

// vaultsOnDisk are the vaults of a gateway that may be running. The file is
// opened for each look: a command has few.
func vaultsOnDisk(keys *secret.Keyring, data string) vaults {
	return vaults{keys: keys, read: func(ctx context.Context, orgID, name string) (org.Secret, error) {
		store, err := sqlite.OpenReader(ctx, filepath.Join(data, databaseFile))
		if err != nil {
			return org.Secret{}, err
		}
		defer store.Close()
		return store.Secret(ctx, orgID, name)
	}}
}

// renewSecrets puts every secret under the present master key, so that the
// previous one can go, and says which secrets nobody can open any more.
func renewSecrets(ctx context.Context, keys *secret.Keyring, store org.Store, log *slog.Logger) error {
	if keys == nil {
		return nil
	}
	orgs, err := store.Orgs(ctx)
	if err != nil {
		return err
	}
	renewed := 0
	for _, o := range orgs {
		secrets, err := store.Secrets(ctx, o.ID)
		if err != nil {
			return fmt.Errorf("org %s: %w", o.ID, err)
		}
		for _, s := range secrets {
			done, err := renewSecret(ctx, keys, store, s, log)
			if err != nil {
				return fmt.Errorf("org %s: %w", o.ID, err)
			}
			if done {
				renewed++
			}
		}
	}
	if renewed > 0 {
		log.Info("secrets are encrypted with the new master key; remove master_key_previous", "secrets", renewed)
	}
	return nil
}

// renewSecret reports whether the secret was under the previous master key. One
// that does not open is no error: its org can store it again.
func renewSecret(ctx context.Context, keys *secret.Keyring, store org.Store, listed org.Secret, log *slog.Logger) (bool, error) {
	s, err := store.Secret(ctx, listed.Org, listed.Name)
	if err != nil {
		return false, err
	}
	sealed, err := keys.Renew(s.Org, s.Name, s.Sealed)
	if err != nil {
		log.Warn("a secret cannot be decrypted", "org", s.Org, "secret", s.Name, "error", err)
		return false, nil
	}
	if string(sealed) == string(s.Sealed) {
		return false, nil
	}
	s.Sealed = sealed
	return true, store.PutSecret(ctx, s, org.Author{})
}
