package postgres

import (
	"context"
	"database/sql"

	"github.com/turnpike-gateway/turnpike/internal/installation"
)

// Secrets keeps what exists once per installation. It implements the port of package installation.
type Secrets struct{ db *sql.DB }

var _ installation.Secrets = Secrets{}

// NewSecrets returns Secrets.
func NewSecrets(db *sql.DB) Secrets { return Secrets{db} }

// Read implements installation.Secrets.
func (s Secrets) Read(ctx context.Context, name string) (r installation.Row, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT name, salt, digest, sealed, state FROM installation WHERE name = $1`, name).
		Scan(&r.Name, &r.Salt, &r.Digest, &r.Sealed, &r.State)
	if err != nil {
		return installation.Row{}, orError(err, installation.ErrNotFound)
	}
	if len(r.Sealed) == 0 {
		r.Sealed = nil
	}
	return r, nil
}

// PutIfAbsent implements installation.Secrets.
func (s Secrets) PutIfAbsent(ctx context.Context, r installation.Row) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO installation (name, salt, digest, sealed, state) VALUES ($1, $2, $3, $4, $5) ON CONFLICT
		(name) DO NOTHING`,
		r.Name, r.Salt, r.Digest, orEmpty(r.Sealed), r.State)
	return err
}

// Replace implements installation.Secrets.
func (s Secrets) Replace(ctx context.Context, was, is installation.Row) error {
	_, err := s.db.ExecContext(ctx, `UPDATE installation SET salt = $2, digest = $3, sealed = $4
		WHERE name = $1 AND salt = $5 AND digest = $6 AND sealed = $7`,
		is.Name, is.Salt, is.Digest, orEmpty(is.Sealed), was.Salt, was.Digest, orEmpty(was.Sealed))
	return err
}

// orEmpty returns bytes that are not NULL.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
