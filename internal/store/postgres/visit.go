package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/turnpike-gateway/turnpike/internal/installation"
)

// Visit is a look at a database by a command, beside the gateways that use it. Close it.
type Visit struct{ db *sql.DB }

// NewVisit returns a Visit of the database with a URL, in a schema; "" = the first of the role's search_path. It opens no
// connection yet. The error does not quote the URL.
func NewVisit(url, schema string) (*Visit, error) {
	settings, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the URL in database cannot be used; check its host, port and parameters")
	}
	if schema != "" {
		settings.RuntimeParams["search_path"] = schema
	}
	return &Visit{stdlib.OpenDB(*settings)}, nil
}

// Examine checks the database, see [Examine].
func (v *Visit) Examine(ctx context.Context, e Examination) []Line { return Examine(ctx, v.db, e) }

// Secrets returns what exists once per installation.
func (v *Visit) Secrets() installation.Secrets { return NewSecrets(v.db) }

// Schema returns the schema that the connections use; "" = none.
func (v *Visit) Schema(ctx context.Context) (string, error) {
	var name sql.NullString
	err := v.db.QueryRowContext(ctx, `SELECT current_schema()`).Scan(&name)
	return name.String, err
}

// Close closes the connections.
func (v *Visit) Close() error { return v.db.Close() }
