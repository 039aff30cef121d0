package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// secretColumns are without the sealed value.
const secretColumns = `org, name, x'', created_at, updated_at`

// Secrets implements org.Store.
func (r *Reader) Secrets(ctx context.Context, orgID string) ([]org.Secret, error) {
	secrets, err := list(ctx, r.db, scanSecret, `SELECT `+secretColumns+` FROM secrets WHERE org = ? ORDER BY name`, orgID)
	return secrets, r.wrap("list secrets", err)
}

// Secret implements org.Store.
func (r *Reader) Secret(ctx context.Context, orgID, name string) (org.Secret, error) {
	s, err := scanSecret(r.db.QueryRowContext(ctx, `SELECT org, name, sealed, created_at, updated_at FROM secrets WHERE org = ? AND name = ?`, orgID, name))
	if errors.Is(err, sql.ErrNoRows) {
		err = org.ErrNotFound
	}
	if err != nil {
		return org.Secret{}, fmt.Errorf("secret %s: %w", name, r.wrap("read a secret", err))
	}
	return s, nil
}

// PutSecret implements org.Store.
func (s *Store) PutSecret(ctx context.Context, m org.Secret, by org.Author) error {
	return s.write(ctx, m.Org, "put a secret", "secret "+m.Name, func(t *tx) error {
		if err := t.mustExist(m.Org); err != nil {
			return err
		}
		var before *org.Secret
		switch old, err := t.secret(m.Org, m.Name); {
		case err == nil:
			before = &old
		case !errors.Is(err, org.ErrNotFound):
			return err
		default:
			if err := t.checkCap(t.caps.Secrets, t.caps.SecretsError, `SELECT count(*) FROM secrets WHERE org = ?`, m.Org); err != nil {
				return err
			}
		}
		_, err := t.exec(`INSERT INTO secrets (org, name, sealed, created_at, updated_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (org, name) DO UPDATE SET sealed = excluded.sealed, updated_at = excluded.updated_at`,
			m.Org, m.Name, m.Sealed, millis(m.CreatedAt), millis(m.UpdatedAt))
		if err != nil {
			return err
		}
		return t.record(m.Org, by, by.SecretChanged(before, &m))
	})
}

// DeleteSecret implements org.Store.
func (s *Store) DeleteSecret(ctx context.Context, orgID, name string, by org.Author) error {
	return s.write(ctx, orgID, "delete a secret", "secret "+name, func(t *tx) error {
		before, err := t.secret(orgID, name)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`DELETE FROM secrets WHERE org = ? AND name = ?`, orgID, name)); err != nil {
			return err
		}
		return t.record(orgID, by, by.SecretChanged(&before, nil))
	})
}

// secret returns the secret in the transaction, without its sealed value.
func (t *tx) secret(orgID, name string) (org.Secret, error) {
	return queryOne(t, scanSecret, `SELECT `+secretColumns+` FROM secrets WHERE org = ? AND name = ?`, orgID, name)
}

func scanSecret(row scanner) (org.Secret, error) {
	var s org.Secret
	err := row.Scan(&s.Org, &s.Name, &s.Sealed, asTime{&s.CreatedAt}, asTime{&s.UpdatedAt})
	if len(s.Sealed) == 0 {
		s.Sealed = nil
	}
	return s, err
}
