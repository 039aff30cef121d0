package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// renewSecrets puts every secret under the present master key, so that the
// previous one can go, and says which secrets nobody can open any more.
func renewSecrets(ctx context.Context, keys *secret.Keyring, store org.Store, log *slog.Logger) error {
	if keys == nil {
		return nil
	}
	var all []org.Secret
	if err := store.EachOrg(ctx, func(c org.Contents) error {
		all = append(all, c.Secrets...)
		return nil
	}); err != nil {
		return err
	}
	renewed := 0
	for _, s := range all {
		done, err := renewSecret(ctx, keys, store, s, log)
		if err != nil {
			return fmt.Errorf("org %s: %w", s.Org, err)
		}
		if done {
			renewed++
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
