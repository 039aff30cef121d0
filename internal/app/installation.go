package app

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/installation"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// credentials are the secrets of the configuration, and the keys that it does not name.
type credentials struct {
	*config.Secrets
	shared *installation.Keys // what all replicas share; nil = keys that the configuration does not name are in files
	data   string             // the data directory
}

// install compares the secrets of the configuration with those of the installation, and takes its keys. table is where
// the store has them; nil = each key that the configuration does not name is in a file of the data directory.
func (c *credentials) install(ctx context.Context, table installation.Secrets) (err error) {
	if table == nil {
		return nil
	}
	c.shared, err = installation.Open(ctx, table, configured(c.Secrets))
	if err != nil {
		return fmt.Errorf("the secrets of this replica and of the installation: %w", err)
	}
	return nil
}

// renews reports whether secrets that the previous master key has sealed are put under the present one.
func (c *credentials) renews() bool { return c.shared == nil || c.shared.Renews }

// pepper returns that of the result cache; empty = a new one for this process.
func (c *credentials) pepper() string {
	if c.shared != nil {
		return c.shared.Pepper.Reveal()
	}
	return c.Pepper.Reveal()
}

// auditKey returns what signs the ends of the audit's chains.
func (c *credentials) auditKey() (ed25519.PrivateKey, error) {
	switch {
	case c.shared != nil:
		return c.shared.Audit, nil
	case c.Audit != nil:
		return c.Audit, nil
	}
	key, err := audit.LoadOrCreateKey(filepath.Join(c.data, AuditKeyFile))
	if err != nil {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	return key, nil
}

// urlKey returns what signs URLs. Without an installation it is of this data directory, and of no backup.
func (c *credentials) urlKey() ([]byte, error) {
	if c.shared != nil {
		return c.shared.URLs, nil
	}
	path := filepath.Join(c.data, URLKeyFile)
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		err = createSynced(path, key)
	}
	if err != nil {
		return nil, fmt.Errorf("the key of signed URLs: %w", err)
	}
	if len(key) < 32 {
		return nil, fmt.Errorf("%s is not a key of 32 bytes; delete the file to have another one made: URLs that were signed are void then", path)
	}
	return key, nil
}

// runKeys returns what seals the addresses and credentials of the servers that requests declare,
// for the next owner of a durable run: the key of the installation, else the master key, or without one a key of this data
// directory, which the first start makes. A backup of the database does not have it.
func (c *credentials) runKeys() (*secret.Keyring, error) {
	if c.shared != nil {
		return c.shared.Runs, nil
	}
	path := filepath.Join(c.data, RunKeyFile)
	key, err := readRunKey(path)
	switch {
	case key == nil && err == nil && c.Vault != nil:
		return c.Vault, nil
	case key == nil && err == nil:
		key = make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		err = createSynced(path, encodeKey(key))
	}
	if err != nil {
		return nil, fmt.Errorf("the key of stored runs: %w", err)
	}
	if c.Vault != nil { // runs of the time before it had a master key
		return installation.RunKeys(key, c.Master)
	}
	return secret.NewKeyring(secret.NewValue(string(encodeKey(key))))
}

func encodeKey(key []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(key)) }

// readRunKey returns the key of runs in a file; nil = there is no file.
func readRunKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := secret.ParseKey(secret.NewValue(strings.TrimSpace(string(text))))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; delete the file to have another one made: runs that wait lose the servers of their requests", path, err)
	}
	return key[:], nil
}

// configured returns what a configuration says of the secrets of an installation.
func configured(keys *config.Secrets) installation.Configured {
	return installation.Configured{Master: keys.Master, Previous: keys.Previous, Pepper: keys.Pepper, Audit: keys.Audit}
}

// CarryKeys puts the keys that are files of a data directory into the table of an installation, which has none of them.
func CarryKeys(ctx context.Context, table installation.Secrets, keys *config.Secrets, data string) (err error) {
	var k installation.Carried
	if k.Runs, err = readRunKey(filepath.Join(data, RunKeyFile)); err != nil {
		return err
	}
	if k.URLs, err = os.ReadFile(filepath.Join(data, URLKeyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if k.Audit, err = audit.LoadKey(filepath.Join(data, AuditKeyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return installation.Carry(ctx, table, configured(keys), k)
}

// WriteKeys is the opposite of CarryKeys. The files must not exist.
func WriteKeys(ctx context.Context, table installation.Secrets, keys *config.Secrets, data string) error {
	k, err := installation.Open(ctx, table, configured(keys))
	if err != nil {
		return err
	}
	err = errors.Join(createSynced(filepath.Join(data, RunKeyFile), encodeKey(k.RunKey)), createSynced(filepath.Join(data, URLKeyFile),
		k.URLs))
	if keys.Audit == nil {
		err = errors.Join(err, createSynced(filepath.Join(data, AuditKeyFile), append(encodeKey(k.Audit.Seed()), '\n')))
	}
	return err
}

// createSynced creates a file that only its owner may read, on disk when it returns.
func createSynced(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}
