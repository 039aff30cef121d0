package database

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS // read-only

// applicationID marks files of this program: SQLite stores it in the header of the file. The
// baseline sets it. The oldest builds did not.
const applicationID = 0x54503031

// checkFile returns the schema version of a file; 0 = it is missing, or nothing has been created in it yet. The error is
// a *SchemaError if this program can neither read nor migrate the file: a build before the baseline made it, or a
// later version of the program. The baseline has a number above those of all migrations of the builds before
// it, 1 to 99, so that no file of theirs is taken for one of this program.
//
// It is the only check of versions, and comes before the file is opened for anything else. It opens the file
// read-only and changes neither it nor its -wal, which may hold commits of a process that was killed.
func checkFile(ctx context.Context, file string) (found int64, err error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if file, err = filepath.EvalSymlinks(file); err != nil { // its -wal is beside the target
		return 0, err
	}
	db, err := connect(file, inspectSettings(file))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var ours, all, id int64
	err = db.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id), count(*), count(*) FILTER (WHERE name = ?)
		FROM sqlite_schema`, goose.DefaultTablename).Scan(&id, &all, &ours)
	if err == nil && ours == 0 && (all > 0 || id != 0) {
		err = &SchemaError{Foreign: true}
	}
	if err != nil || ours == 0 {
		return 0, err
	}
	err = db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM `+goose.DefaultTablename+` WHERE is_applied`).Scan(&found)
	if err != nil {
		return 0, err
	}
	first, known := versions()
	switch {
	case found > 0 && (found < first || id != applicationID):
		return 0, &SchemaError{Found: found, Known: known, First: first}
	case found > known:
		return 0, &SchemaError{Found: found, Known: known}
	}
	return found, nil
}

// migrate applies the migrations that a file of version found lacks.
func migrate(ctx context.Context, db *sql.DB, log *slog.Logger, found int64) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
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

// versions returns the numbers of the baseline and of the last migration.
func versions() (first, last int64) {
	names, _ := fs.Glob(migrations, "migrations/*.sql") // the pattern is valid
	number := func(name string) int64 {
		n, _ := goose.NumericComponent(path.Base(name)) // a test checks the names
		return n
	}
	return number(names[0]), number(names[len(names)-1])
}
