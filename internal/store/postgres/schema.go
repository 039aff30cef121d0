package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS // read-only

// How long migrations wait.
const (
	migrationLock  = 3 * time.Second // for a lock on a table, while all statements of the other replicas wait behind them
	migrationTries = 3
	starterWait    = 60 // seconds, for another process that migrates
)

// Version is what Migrate has found and done.
type Version struct {
	Schema  string // its name, also if Options.Schema is empty
	Found   int64  // the version that it had; 0 = nothing was created in it
	Now     int64  // the version that it has. It may be higher than that of this build
	Applied int    // how many migrations this call has applied
}

// Migrate creates or migrates the schema, or with MigrateNever only checks it, and returns its version. It works on a
// connection of its own, which no pooler may share. Of several processes that start at once, one migrates, and the others
// wait for it, up to a minute. A migration that does not get a lock within 3 seconds is tried three times; one that makes indexes
// waits for the transactions of others, a minute for each.
//
// The error is a [*SchemaError] if this build may not use the schema: another program has made it, or a later build that
// this one cannot share it with. A schema of a later build that has only added to it can be used; it stays as it is.
func Migrate(ctx context.Context, o Options) (v Version, err error) {
	config, alone, err := o.direct()
	if err != nil {
		return v, err
	}
	if alone {
		config.RuntimeParams["statement_timeout"] = "0"
		config.RuntimeParams["lock_timeout"] = fmt.Sprint(migrationLock.Milliseconds())
		if o.Schema != "" {
			config.RuntimeParams["search_path"] = quoteName(o.Schema)
		}
	}
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	if o.Migrate != MigrateNever && alone {
		if err := createSchema(ctx, db, o.Schema); err != nil {
			return v, err
		}
	}
	if v, err = inspect(ctx, db, o.Schema); err != nil {
		return v, err
	}
	_, known := versions()
	switch {
	case v.Now >= known:
	case o.Migrate == MigrateNever:
		return v, &SchemaError{Schema: v.Schema, Found: v.Found, Known: known}
	case !alone:
		return v, fmt.Errorf("the schema %q has version %d, %d expected, and migrations need a connection around the pooler: set "+
			"postgres.listen_url", v.Schema, v.Found, known)
	default:
		if err := v.apply(ctx, db, o); err != nil {
			return v, err
		}
	}
	return v, o.checkPooled(ctx, v.Schema)
}

// createSchema creates the schema if it is missing and its name is set.
func createSchema(ctx context.Context, db *sql.DB, name string) error {
	if name == "" {
		return nil
	}
	var there bool
	err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)`, name).Scan(&there)
	if err != nil || there {
		return err
	}
	_, err = db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+quoteName(name))
	switch {
	case Classify(err) == Unique: // another process has created it at the same moment
		return nil
	case isCode(err, "42501"):
		return fmt.Errorf("the schema %q is not there, and the role may not create it: let an owner of the database do CREATE SCHEMA %s "+
			"AUTHORIZATION the role: %w", name, quoteName(name), err)
	}
	return err
}

// inspect returns the version of a schema, and checks whether this build may use it. It changes nothing.
func inspect(ctx context.Context, db *sql.DB, name string) (v Version, err error) {
	// All is read as of one moment: another process may migrate.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return v, err
	}
	defer tx.Rollback() //nolint:errcheck // it has changed nothing
	var current sql.NullString
	var all int
	var versioned, ours bool
	// Tables of extensions are nobody's.
	err = tx.QueryRowContext(ctx, `SELECT current_schema(),
			count(*), coalesce(bool_or(c.relname = $1), false), coalesce(bool_or(c.relname = $2), false)
		FROM pg_class c WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND c.relkind IN ('r', 'p', 'f')
		AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')`,
		goose.DefaultTablename, "schema_oldest").Scan(&current, &all, &versioned, &ours)
	if err != nil {
		return v, err
	}
	if !current.Valid {
		return v, &SchemaError{Schema: name, Missing: true}
	}
	v.Schema = current.String
	if name != "" && v.Schema != name {
		return v, otherSchema(v.Schema, name)
	}
	if versioned {
		if v.Found, err = readInt(ctx, tx, `SELECT coalesce(max(version_id), 0) FROM `+goose.DefaultTablename+` WHERE is_applied`); err != nil {
			return v, err
		}
	}
	_, known := versions()
	if !ours {
		if v.Found > 0 || all > 1 || all == 1 && !versioned {
			return v, &SchemaError{Schema: v.Schema, Known: known, Foreign: true}
		}
		return v, nil
	}
	oldest, err := readInt(ctx, tx, `SELECT coalesce(max(oldest), 0) FROM schema_oldest`)
	if err == nil && oldest > known {
		err = &SchemaError{Schema: v.Schema, Found: v.Found, Known: known, Oldest: oldest}
	}
	v.Now = v.Found
	return v, err
}

func readInt(ctx context.Context, tx *sql.Tx, query string) (n int64, err error) {
	err = tx.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// otherSchema is the error of connections that work in another schema than the configured one.
func otherSchema(found, want string) error {
	return fmt.Errorf("connections work in the schema %q, and postgres.schema is %q: a pooler sends no search_path, so do ALTER ROLE … SET "+
		"search_path = %s", found, want, quoteName(want))
}

// checkPooled checks that connections through the pooler work in the same schema as this one.
func (o Options) checkPooled(ctx context.Context, want string) (err error) {
	if !o.pooled() {
		return nil
	}
	c, err := o.Connector()
	if err != nil {
		return err
	}
	db := sql.OpenDB(c)
	defer func() { err = errors.Join(err, db.Close()) }()
	var found string
	err = db.QueryRowContext(ctx, `SELECT coalesce(current_schema(), '')`).Scan(&found)
	if err == nil && found != want {
		err = otherSchema(found, want)
	}
	return err
}

// apply applies the migrations that the schema lacks.
func (v *Version) apply(ctx context.Context, db *sql.DB, o Options) error {
	started := time.Now()
	err := errors.New("never tried")
	for try := 0; try < migrationTries && err != nil; try++ {
		var done int
		done, err = up(ctx, db, v.Schema)
		v.Applied += done
		if !isCode(err, "55P03") {
			break
		}
	}
	if isCode(err, "55P03") {
		return fmt.Errorf("migrate the schema %q: %w: another transaction in this database was open for too long; find it in pg_stat_activity "+
			"(backend_xmin, xact_start), end it, and start again", v.Schema, err)
	}
	if err != nil {
		return fmt.Errorf("migrate the schema %q: %w", v.Schema, err)
	}
	now, err := inspect(ctx, db, v.Schema)
	if err != nil {
		return err
	}
	v.Now = now.Now
	if v.Applied > 0 {
		message := "store migrated"
		if v.Found == 0 {
			message = "store created"
		}
		o.log().InfoContext(ctx, message, "schema", v.Schema, "from", v.Found, "version", v.Now, "took", time.Since(started))
	}
	return nil
}

// up applies migrations while no other process does, and returns how many.
func up(ctx context.Context, db *sql.DB, schema string) (int, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID(schema)), lock.WithLockTimeout(1, starterWait))
	if err != nil {
		return 0, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker),
		goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return 0, err
	}
	done, err := p.Up(ctx)
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		done = partial.Applied
	}
	return len(done), err
}

// lockID is the advisory lock of those that migrate the schema. The id that goose has by default is the same in all
// programs.
func lockID(schema string) int64 {
	sum := sha256.Sum256([]byte("turnpike " + schema))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // any 64 bits will do
}

// isCode reports whether the server has answered with the code.
func isCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}

// versions returns the numbers of the baseline and of the last migration.
func versions() (first, last int64) {
	names, _ := fs.Glob(migrations, "migrations/*.sql") // the pattern is valid
	number := func(name string) int64 {
		n, _ := goose.NumericComponent(path.Base(name)) // a test checks the names
		return n
	}
	return number(names[0]), number(names[len(names)-1])
}
