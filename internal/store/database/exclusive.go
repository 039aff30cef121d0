package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
)

// OpenAlone creates or migrates the file with this path, as Open does, and returns one connection that writes to it. It takes no
// lock: the caller has that of [Lock]. No store may use the file. The error wraps what that of Open does.
func OpenAlone(ctx context.Context, path string, log *slog.Logger) (*sql.DB, error) {
	found, err := checkFile(ctx, path)
	if err == nil {
		err = createFile(path)
	}
	var db *sql.DB
	if err == nil {
		db, err = connect(path, writeSettings())
	}
	if err == nil {
		db.SetMaxOpenConns(1)
		if err = migrate(ctx, db, log, found); err != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, describeDamage(ctx, path, describePermission(err)))
	}
	return db, nil
}

// Settle does in a database that no gateway uses what is done when a store is opened, and what other replicas do when one is
// gone: leases and the claims of messages end, and slices count as spent. db is that of a file, or has a connector of [Translated].
func Settle(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it says that the transaction has ended
	for _, statement := range []string{
		expiredLeases, unclaimedOutbox, unclaimedHookMessages, forfeited(`WHERE true`), `DELETE FROM slices`,
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}
