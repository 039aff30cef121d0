package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// vaultStore is a store with secrets that are sealed under the master key.
type vaultStore interface {
	org.Store
	journal.Webhooks
}

// ReadMasterKey returns the master key that a gateway on SQLite made in its data directory; empty if it made none.
func ReadMasterKey(data string) (secret.Value, error) {
	path := filepath.Join(data, MasterKeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return secret.Value{}, nil
	}
	if err != nil {
		return secret.Value{}, fmt.Errorf("the master key: %w", err)
	}
	key := secret.NewValue(strings.TrimSpace(string(text)))
	if _, err := secret.ParseKey(key); err != nil {
		return secret.Value{}, fmt.Errorf("the master key %s %w; restore the file from your copy", path, err)
	}
	return key, nil
}

// ownMasterKey takes the master key of the data directory if the configuration has none, and makes it at the first
// start. It makes none for a database with encrypted secrets, which only the lost key can decrypt: then the vault is off.
func (c *credentials) ownMasterKey(ctx context.Context, store vaultStore, log *slog.Logger) error {
	if !c.Master.IsZero() {
		return nil
	}
	key, err := ReadMasterKey(c.data)
	if err != nil {
		return err
	}
	path := filepath.Join(c.data, MasterKeyFile)
	if key.IsZero() {
		count, err := sealedSecrets(ctx, store)
		if err != nil {
			return err
		}
		if count > 0 {
			log.Warn("the master key is missing: the secrets of orgs and webhooks cannot be decrypted, and no new ones can be "+
				"stored; restore the file, or set master_key to the key that the gateway had", "file", path, "secrets", count)
			return nil
		}
		random := make([]byte, 32)
		_, _ = rand.Read(random) // never fails
		key = secret.NewValue(string(encodeKey(random)))
		if err := createSynced(path, append(encodeKey(random), '\n')); err != nil {
			return fmt.Errorf("the master key: %w", err)
		}
		log.Warn("made a master key, which encrypts the secrets of orgs; keep a copy in another place: no backup contains it",
			"file", path)
	}
	c.Master = key
	c.Vault, err = secret.NewKeyring(key)
	return err
}

// sealedSecrets counts what is encrypted with a master key.
func sealedSecrets(ctx context.Context, store vaultStore) (count int, err error) {
	if err := store.EachOrg(ctx, func(c org.Contents) error { count += len(c.Secrets); return nil }); err != nil {
		return 0, err
	}
	webhooks, err := store.AllWebhooks(ctx)
	for _, w := range webhooks {
		if !w.Declared() {
			count++
		}
	}
	return count, err
}

// renewSecrets puts every secret under the present master key, so that the
// previous one can go, and says which secrets nobody can open any more.
func renewSecrets(ctx context.Context, keys *secret.Keyring, store vaultStore, log *slog.Logger) error {
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
	webhooks, err := store.AllWebhooks(ctx)
	if err != nil {
		return err
	}
	for _, w := range webhooks {
		done, err := renewWebhook(ctx, keys, store, w, log)
		if err != nil {
			return fmt.Errorf("org %s: %w", w.Org, err)
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

// renewWebhook reports whether a secret of the webhook was under the previous master key.
func renewWebhook(ctx context.Context, keys *secret.Keyring, store journal.Webhooks, w org.Webhook, log *slog.Logger) (bool, error) {
	next := w
	for _, sealed := range []*[]byte{&next.Sealed, &next.Previous.Sealed} {
		if len(*sealed) == 0 {
			continue
		}
		renewed, err := keys.Renew(w.Org, w.SecretName(), *sealed)
		if err != nil {
			log.Warn("a secret of a webhook cannot be decrypted; rotate it", "org", w.Org, "webhook", w.Name, "error", err)
			continue
		}
		*sealed = renewed
	}
	if next.Same(w) {
		return false, nil
	}
	return true, store.UpdateWebhook(ctx, w, next, org.Author{})
}

// vault opens the secrets that are sealed under the master key.
type vault struct {
	keys     *credentials
	store    *database.Store
	resolver *secret.Resolver
	fromFile func(orgID string) bool // whether the configuration file has the settings of an org
}

// open decrypts a secret of the vault.
func (v *vault) open(orgID, name string, sealed []byte) (secret.Value, error) {
	if v.keys.Vault == nil {
		return secret.Value{}, secret.ErrNoVault
	}
	return v.keys.Vault.Open(orgID, name, sealed)
}

// secret returns a secret of the org's vault.
func (v *vault) secret(ctx context.Context, orgID, name string) (secret.Value, error) {
	stored, err := v.store.Secret(ctx, orgID, name)
	if err != nil {
		return secret.Value{}, err
	}
	return v.open(orgID, name, stored.Sealed)
}

// orgSecret returns what a reference in the settings of an org stands for. Only those of the configuration file may
// refer to the environment and to files of the gateway. The error wraps [org.ErrNotFound] if the vault has no such
// secret.
func (v *vault) orgSecret(ctx context.Context, orgID, reference string) (string, error) {
	text, err := secret.Parse(reference)
	if err != nil {
		return "", err
	}
	ofVault := func(ctx context.Context, name string) (secret.Value, error) { return v.secret(ctx, orgID, name) }
	resolver := secret.VaultOnly(ofVault)
	if v.fromFile(orgID) {
		resolver = v.resolver.WithVault(ofVault)
	}
	value, err := resolver.Resolve(ctx, text)
	return value.Reveal(), err
}
