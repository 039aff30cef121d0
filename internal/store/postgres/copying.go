package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Copying is the row of the table installation that is there while a command copies the schema, and after it was interrupted.
// Its state says of what.
const Copying = "copying"

// ErrCopying reports that a copy to or from the schema has not ended.
var ErrCopying = errors.New("a copy of the installation has not ended")

// CheckCopying returns an error that wraps [ErrCopying] while the schema of db is copied, or after that was interrupted: a gateway
// must not serve then. It is called after the first beat of the replica is stored, which is deleted again if there is an error:
// a copy writes its row first, and then looks for beats.
func CheckCopying(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) error {
	var state string
	err := db.QueryRowContext(ctx, `SELECT state FROM installation WHERE name = $1`, Copying).Scan(&state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w (%s): wait for turnpike store copy, or repeat it as it was begun", ErrCopying, state)
}

// LockCopying takes the lock of those that copy the schema, until the connection ends. It waits as long as Options.LockTimeout says: the
// server may have to find out first that a process that had it is gone.
func LockCopying(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock(hashtextextended('turnpike copy ' || current_schema(), 0))`)
	if isCode(err, "55P03") {
		return errors.New("another process copies it: wait for its end")
	}
	return err
}

// aliveFor is how long a replica counts as alive after its last beat.
const aliveFor = 15_000 // milliseconds

// CheckStopped returns an error if a replica may be alive: it or an owner of runs has given a sign of life within 15 seconds, by
// the clock of the server.
func CheckStopped(ctx context.Context, db *sql.Conn) error {
	var name string
	var ago int64
	err := db.QueryRowContext(ctx, `WITH t AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
		SELECT name, ago FROM (SELECT r.id AS name, t.now - r.seen_at AS ago FROM replicas r, t WHERE r.seen_at > t.now - $1::bigint
			UNION ALL SELECT o.owner, t.now - o.until + $1::bigint FROM owners o, t WHERE o.until > t.now) AS alive
		ORDER BY ago LIMIT 1`, aliveFor).Scan(&name, &ago)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("the replica %s was seen %.1f s ago: stop all replicas. One that was killed counts as gone after 15 s", name,
		float64(max(ago, 0))/1000)
}

// DirectConnector returns what opens connections of the schema that no pooler shares and that have no limit of time, for commands.
// A pooler without Options.ListenURL is an error.
func (o Options) DirectConnector() (driver.Connector, error) {
	c, alone, err := o.direct()
	if err != nil {
		return nil, err
	}
	if !alone {
		return nil, errors.New("this needs connections around the pooler: set postgres.listen_url")
	}
	c.RuntimeParams["statement_timeout"] = "0"
	if o.Schema != "" {
		c.RuntimeParams["search_path"] = quoteName(o.Schema)
	}
	return stdlib.GetConnector(*c), nil
}

// Append adds rows to a table with COPY, in the transaction that the connection has, and returns how many.
func Append(ctx context.Context, conn *sql.Conn, table string, columns []string, rows [][]any) (n int64, err error) {
	err = conn.Raw(func(raw any) error {
		c, ok := raw.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("a connection of %T cannot COPY", raw)
		}
		n, err = c.Conn().CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromRows(rows))
		return err
	})
	return n, err
}
