package sqltool

import (
	"context"
	"errors"
	"strconv"

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

// maxGranted is how many functions [Connections.Granted] returns.
const maxGranted = 5

// Granted returns functions of a PostgreSQL database that the role which reads may execute, although they do more than
// the role itself may: those that every role may execute and that work with the rights of their owner, connect to other
// servers, or are in a language that confines nothing; and those that reach files. There may be more than it returns. Of
// other databases it returns none.
func (c *Connections) Granted(ctx context.Context, orgID string, d org.Database, lookup func(context.Context, string) (string, error)) (functions []string, err error) {
	p, err := placeOf(ctx, d, d.URL, lookup)
	if err != nil || p.Kind != org.PostgreSQL {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = c.withPostgres(ctx, orgID, p, func(conn *pgconn.PgConn) error {
		found, err := query(ctx, conn, `SELECT n.nspname, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid)
			FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
			JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang
			LEFT JOIN pg_catalog.pg_depend d ON d.classid OPERATOR(pg_catalog.=) 1255::pg_catalog.oid AND d.objid OPERATOR(pg_catalog.=) p.oid AND d.deptype OPERATOR(pg_catalog.=) 'e'
			LEFT JOIN pg_catalog.pg_extension x ON x.oid OPERATOR(pg_catalog.=) d.refobjid
			WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
			AND NOT p.prorettype OPERATOR(pg_catalog.=) ANY ('{trigger,event_trigger}'::pg_catalog.regtype[])
			AND (pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE') AND (p.prosecdef AND NOT pg_catalog.pg_has_role(p.proowner, 'USAGE')
					OR x.extname OPERATOR(pg_catalog.=) ANY ('{dblink,adminpack}'::pg_catalog.name[])
					OR NOT l.lanpltrusted AND NOT l.lanname OPERATOR(pg_catalog.=) ANY ('{internal,c}'::pg_catalog.name[]))
				OR n.nspname OPERATOR(pg_catalog.=) 'pg_catalog' AND p.proname OPERATOR(pg_catalog.~) '^(pg_read_(binary_)?file|pg_ls_.*dir|pg_stat_file|lo_import|lo_export|pg_file_.*)$')
			ORDER BY 1, 2, 3 LIMIT `+strconv.Itoa(maxGranted))
		for _, f := range found {
			functions = append(functions, f[0]+"."+f[1]+"("+f[2]+")")
		}
		return err
	})
	return functions, err
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
