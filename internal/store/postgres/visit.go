package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/turnpike-gateway/turnpike/internal/installation"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// Visit is a look at a database by a command, beside the gateways that use it, and around their pooler if that is possible.
// Close it.
type Visit struct {
	options Options
	db      *sql.DB
	pooled  bool
}

// NewVisit returns a Visit. It opens no connection yet. The error does not have the password.
func NewVisit(o Options) (*Visit, error) {
	c, alone, err := o.direct()
	if err != nil {
		return nil, err
	}
	if alone && o.Schema != "" {
		c.RuntimeParams["search_path"] = quoteName(o.Schema)
	}
	return &Visit{o, stdlib.OpenDB(*c), !alone}, nil
}

// Examine checks the database, see [Examine]. Of e, Pooled and Known need not be set.
func (v *Visit) Examine(ctx context.Context, e Examination) []Line {
	_, e.Known = versions()
	e.Pooled = v.pooled
	found := Examine(ctx, v.db, e)
	if len(found) > 1 { // it can be reached
		found = append(found, v.notifications(ctx))
	}
	return found
}

// notifications sends a notification as the gateway does, and listens for it.
func (v *Visit) notifications(ctx context.Context) Line {
	const name, remedy = "notifications", "set postgres.listen_url to the URL of the server; without notifications, readers look every 2 s"
	if v.pooled {
		return Line{name, Wrong, "there is no connection around the pooler to listen on", remedy}
	}
	ctx, cancel := context.WithTimeout(ctx, heardAfter)
	defer cancel()
	if err := v.hear(ctx, "turnpike_doctor_"+rand.Text()); err != nil {
		return Line{name, Wrong, "what is sent over database is not heard: " + plainError(err), remedy}
	}
	return Line{name, Well, "what is sent over database is heard", ""}
}

// hear listens on a channel and returns when it has heard itself.
func (v *Visit) hear(ctx context.Context, channel string) error {
	listening, err := v.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer listening.Close()
	if _, err := listening.ExecContext(ctx, `LISTEN `+quoteName(channel)); err != nil {
		return err
	}
	connector, err := v.options.Connector()
	if err != nil {
		return err
	}
	sending := sql.OpenDB(connector)
	defer sending.Close()
	if _, err := sending.ExecContext(ctx, `SELECT pg_notify($1, '')`, channel); err != nil {
		return err
	}
	return listening.Raw(func(conn any) error {
		_, err := conn.(*stdlib.Conn).Conn().WaitForNotification(ctx)
		return err
	})
}

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

// OpenReader opens the store for reading, beside the gateways that use it. It changes nothing. The error wraps fs.ErrNotExist
// if no gateway has stored anything yet, and a [*SchemaError] if this build cannot use the schema. Close the reader.
func OpenReader(ctx context.Context, o Options) (*database.Reader, error) {
	o.Migrate = MigrateNever
	v, err := Migrate(ctx, o)
	if err != nil {
		if v.Schema != "" && v.Found == 0 {
			return nil, fmt.Errorf("the schema %s has no tables: %w", v.Schema, fs.ErrNotExist)
		}
		return nil, err
	}
	connector, err := o.Connector()
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(database.Translated(connector))
	db.SetMaxOpenConns(2) // more than one: a reader may ask for the details of what it lists
	return database.NewReader(db), nil
}
