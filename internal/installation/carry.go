package installation

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Carried are the keys that an installation without a table keeps in files. A nil one is not there.
type Carried struct {
	Audit []byte // the seed of the key that signs the audit
	URLs  []byte
	Runs  []byte
}

// Import puts keys into the table of an installation that no gateway has started on, sealed under the master key. It can be
// repeated. The error wraps a *[MismatchError] if the table has another key, or another master key. With Configured.Audit, the
// configuration names the key of the audit, and that of k is left out.
func Import(ctx context.Context, table Secrets, c Configured, k Carried) error {
	o := opener{table: table, c: c}
	var err error
	if o.keyring, err = keyring(c.Master, c.Previous); err != nil {
		return err
	}
	if err := o.master(ctx); err != nil {
		return err
	}
	if c.Audit != nil {
		k.Audit = nil
	}
	for _, one := range k.named() {
		if one.key == nil {
			continue
		}
		row, err := o.stored(ctx, one.name, func() (Row, error) { return o.sealedRow(one.name, one.key) })
		if err != nil {
			return err
		}
		if !row.is(one.key) {
			return &MismatchError{one.name, "the database has another one; " + forget(one.name)}
		}
	}
	return nil
}

// Export returns the keys that the table keeps.
func Export(ctx context.Context, table Secrets, c Configured) (k Carried, err error) {
	o := opener{table: table, c: c}
	if o.keyring, err = keyring(c.Master, c.Previous); err != nil {
		return k, err
	}
	to := map[string]*[]byte{AuditKey: &k.Audit, URLKey: &k.URLs, RunKey: &k.Runs}
	for _, one := range k.named() {
		row, err := table.Read(ctx, one.name)
		if errors.Is(err, ErrNotFound) || err == nil && row.Sealed == nil { // the configuration has it
			continue
		}
		if err != nil {
			return Carried{}, err
		}
		if *to[one.name], err = o.unseal(row, one.name); err != nil {
			return Carried{}, err
		}
	}
	return k, nil
}

type namedKey struct {
	name string
	key  []byte
}

func (k Carried) named() []namedKey {
	return []namedKey{{AuditKey, k.Audit}, {URLKey, k.URLs}, {RunKey, k.Runs}}
}

// ParseRunKey returns the key of the text of a file that keeps that of runs; RunKeyText is the reverse.
func ParseRunKey(text string) ([]byte, error) {
	key, err := secret.ParseKey(secret.NewValue(text))
	if err != nil {
		return nil, fmt.Errorf("the key of stored runs: %w", err)
	}
	return key[:], nil
}

// RunKeyText returns the text of a file that keeps the key of runs.
func RunKeyText(key []byte) string { return base64.StdEncoding.EncodeToString(key) }
