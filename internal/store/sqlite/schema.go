package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS // read-only

// applicationID marks files of this program: SQLite stores it in the header of the file. The
// first migration sets it. Builds before release 0.1 did not, and this program cannot read
// their files.
const applicationID = 0x54503031

// migrate applies the missing migrations. It returns a *SchemaError if a later version
// of the program made the file, or a build before release 0.1.
func migrate(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	found, known, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("schema version: %w", err)
	}
	id, err := readApplicationID(ctx, db)
	switch {
	case err != nil:
		return err
	case found > 0 && id != applicationID:
		return &SchemaError{Found: found, Known: known, Foreign: true}
	case found > known:
		return &SchemaError{Found: found, Known: known}
	}
	if err := announce(ctx, db, log, found); err != nil {
		return err
	}
	done, err := p.Up(ctx)
	if n := len(done); n > 0 {
		var took time.Duration
		for _, m := range done {
			took += m.Duration
		}
		message := "store migrated"
		if found == 0 {
			message = "store created"
		}
		log.InfoContext(ctx, message, "from", found, "schema", done[n-1].Source.Version, "took", took)
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// usageVersion is the schema whose migration reads all audit rows.
const usageVersion = 14

// announce logs that the migration of a file with schema found takes time, if it does.
func announce(ctx context.Context, db *sql.DB, log *slog.Logger, found int64) error {
	if found == 0 || found >= usageVersion {
		return nil
	}
	var rows int64
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM audit_log`).Scan(&rows); err != nil {
		return err
	}
	if rows > 0 {
		log.InfoContext(ctx, "the audit log is added up for /api/usage, once; the start waits for it", "rows", rows)
	}
	return nil
}

// checkVersion returns a *SchemaError unless the schema has the version that this
// program expects.
func checkVersion(ctx context.Context, db *sql.DB) error {
	known, err := knownVersion()
	if err != nil {
		return err
	}
	var tables int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE name = ?`, goose.DefaultTablename).Scan(&tables); err != nil {
		return err
	}
	var found int64
	if tables > 0 {
		err = db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM `+goose.DefaultTablename+` WHERE is_applied`).Scan(&found)
	}
	if err != nil {
		return err
	}
	id, err := readApplicationID(ctx, db)
	switch {
	case err != nil:
		return err
	case found > 0 && id != applicationID:
		return &SchemaError{Found: found, Known: known, Foreign: true}
	case found != known:
		return &SchemaError{Found: found, Known: known}
	}
	return nil
}

func readApplicationID(ctx context.Context, db *sql.DB) (id int64, err error) {
	err = db.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&id)
	return id, err
}

// knownVersion returns the number of the last migration.
func knownVersion() (int64, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	return goose.NumericComponent(strings.TrimPrefix(names[len(names)-1], "migrations/"))
}
