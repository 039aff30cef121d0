package sqltool

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Check connects to the database, to where it reads and to where it writes, and reads something. It returns the kind of
// the database, [org.PostgreSQL] or [org.SQLite]. The secrets are looked up as in [Options]. [IsDangerous] reports
// whether the error is a role that is refused.
func (c *Connections) Check(ctx context.Context, orgID string, d org.Database, lookup func(context.Context, string) (string, error)) (kind string, err error) {
	for _, text := range []string{d.URL, d.WriteURL} {
		if text == "" {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, connectTimeout)
		kind, err = c.check(limited, orgID, d, text, text == d.WriteURL, lookup)
		cancel()
		if err != nil {
			return kind, err
		}
	}
	return kind, nil
}

func (c *Connections) check(ctx context.Context, orgID string, d org.Database, text string, write bool, lookup func(context.Context, string) (string, error)) (kind string, err error) {
	p, err := placeOf(ctx, d, text, lookup)
	if err != nil {
		return "", err
	}
	p.write = write
	if p.Kind == org.SQLite {
		return p.Kind, c.checkSQLite(ctx, orgID, p)
	}
	return p.Kind, c.withPostgres(ctx, orgID, p, func(conn *pgconn.PgConn) error {
		_, err := query(ctx, conn, "SELECT 1")
		return err
	})
}

// IsDangerous reports whether the error says that the role of a database is refused.
func IsDangerous(err error) bool { return errors.As(err, new(*roleError)) }

// Explain says what is wrong according to an error of [Connections.Check], and what to do. It names no secrets.
func Explain(err error) (what, remedy string) {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	var refused *refusedError
	text, isSQLite := sqliteMessage(err)
	switch {
	case errors.As(err, &refused):
		return refused.text, "correct its URL"
	case errors.As(err, &pg) && (pg.Code == "28P01" || pg.Code == "28000"):
		return "refuses the role or its password (SQLSTATE " + pg.Code + ")", "correct the role and the password in what its URL refers to, and allow the role to log in"
	case errors.As(err, &pg) && pg.Code == "3D000":
		return "the server has no such database (SQLSTATE 3D000)", "correct the name of the database in its URL"
	case errors.As(err, &pg):
		return "the server says: " + pg.Message + " (SQLSTATE " + pg.Code + ")", "correct it on the server"
	case errors.As(err, &connect):
		return "cannot be reached: " + plainError(err), "check the host, the port and sslmode of its URL, and that this machine can reach it"
	case isSQLite:
		return "cannot be opened: " + text, "check that the file is a database of SQLite that the gateway may read"
	case errors.Is(err, context.DeadlineExceeded):
		return "does not answer", "check its URL, and that this machine can reach it"
	}
	return err.Error(), "correct its URL, or what it refers to"
}
