package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	files "github.com/turnpike-gateway/turnpike/internal/blob/database"
)

// Chunks keeps the files of buckets. It implements the Table of package blob/database, on two tables: file_chunks with
// the contents, and bucket_files with a row for each of them.
//
// A row is writing until its file has a name, then stored, and at last deleted until its chunks are. The rows of a name
// space change one transaction at a time, under an advisory lock of its org.
type Chunks struct {
	db    *sql.DB
	local string // what a transaction begins with; "" = nothing
}

var _ files.Table = (*Chunks)(nil)

// NewChunks returns a Chunks. Each transaction begins with the statements of local, as Options.SetLocal returns them.
func NewChunks(db *sql.DB, local string) *Chunks { return &Chunks{db, local} }

// nowMillis is the time of the database in Unix milliseconds.
const nowMillis = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`

// update performs a transaction. With an org it holds the lock of the files of the org.
func (c *Chunks) update(ctx context.Context, org string, do func(*sql.Tx) error) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it says that the transaction has ended
	if c.local != "" {
		if _, err := tx.ExecContext(ctx, c.local); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' files ' || $1::text, 0))`,
		org); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// changed returns missing if a statement has changed no row.
func changed(result sql.Result, err, missing error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return missing
}

// Begin implements files.Table.
func (c *Chunks) Begin(ctx context.Context, f files.File, fits func(bucket, all blob.Usage) error) error {
	return c.update(ctx, f.Space.Org, func(tx *sql.Tx) error {
		var own, all blob.Usage
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE bucket = $3), coalesce(sum(bytes) FILTER (WHERE bucket = $3), 0),
			count(*), coalesce(sum(bytes), 0)
			FROM bucket_files WHERE org = $1 AND space = $2 AND state <> 'deleted'`, f.Space.Org, f.Space.Created, f.Bucket).Scan(&own.Files,
			&own.Bytes, &all.Files, &all.Bytes); err != nil {
			return err
		}
		if err := fits(own, all); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO bucket_files (org, space, id, bucket, path, bytes, sha256, state, at) VALUES ($1, $2, $3,
			$4, $5, $6, '', 'writing', `+nowMillis+`)`,
			f.Space.Org, f.Space.Created, f.ID, f.Bucket, f.Path, f.Bytes)
		return err
	})
}

// WriteChunk implements files.Table. The lock on the row keeps Discard from missing the chunk.
func (c *Chunks) WriteChunk(ctx context.Context, f files.File, n int64, body []byte) error {
	result, err := c.db.ExecContext(ctx, `WITH f AS (SELECT org, id FROM bucket_files WHERE org = $1 AND space = $2 AND id = $3 AND state =
		'writing' FOR SHARE)
		INSERT INTO file_chunks (org, id, n, body) SELECT f.org, f.id, $4::bigint, $5::bytea FROM f`, f.Space.Org, f.Space.Created, f.ID, n, body)
	return changed(result, err, blob.ErrDeleted)
}

// Finish implements files.Table.
func (c *Chunks) Finish(ctx context.Context, f files.File) (at time.Time, err error) {
	err = c.update(ctx, f.Space.Org, func(tx *sql.Tx) error {
		if err := changedAny(takeName(ctx, tx, f.Space, f.Bucket, f.Path)); err != nil {
			return err
		}
		var ms int64
		err := tx.QueryRowContext(ctx, `UPDATE bucket_files SET state = 'stored', sha256 = $4, at = `+nowMillis+`
			WHERE org = $1 AND space = $2 AND id = $3 AND state = 'writing' RETURNING at`, f.Space.Org, f.Space.Created, f.ID, f.SHA256).Scan(&ms)
		at = time.UnixMilli(ms)
		return orError(err, blob.ErrDeleted)
	})
	return at, err
}

// takeName ends the name of a file.
func takeName(ctx context.Context, tx *sql.Tx, s files.Space, bucket, path string) (sql.Result, error) {
	return tx.ExecContext(ctx, `UPDATE bucket_files SET state = 'deleted', bytes = 0, at = `+nowMillis+`
		WHERE org = $1 AND space = $2 AND bucket = $3 AND path = $4 AND state = 'stored'`, s.Org, s.Created, bucket, path)
}

func changedAny(_ sql.Result, err error) error { return err }

// orError returns missing in place of the error for a row that does not exist.
func orError(err, missing error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return missing
	}
	return err
}

const fileColumns = `org, space, id, bucket, path, bytes, sha256, at FROM bucket_files`

func scanFile(row interface{ Scan(...any) error }) (f files.File, err error) {
	var ms int64
	err = row.Scan(&f.Space.Org, &f.Space.Created, &f.ID, &f.Bucket, &f.Path, &f.Bytes, &f.SHA256, &ms)
	f.Modified = time.UnixMilli(ms)
	return f, err
}

// Find implements files.Table.
func (c *Chunks) Find(ctx context.Context, s files.Space, bucket, path string) (files.File, error) {
	f, err := scanFile(c.db.QueryRowContext(ctx, `SELECT `+fileColumns+` WHERE org = $1 AND space = $2 AND bucket = $3 AND path = $4 AND
		state = 'stored'`,
		s.Org, s.Created, bucket, path))
	if err != nil {
		return files.File{}, orError(err, blob.ErrNotFound)
	}
	return f, nil
}

// ReadChunk implements files.Table.
func (c *Chunks) ReadChunk(ctx context.Context, f files.File, n int64) (body []byte, err error) {
	err = c.db.QueryRowContext(ctx, `SELECT body FROM file_chunks WHERE org = $1 AND id = $2 AND n = $3`, f.Space.Org, f.ID, n).Scan(&body)
	return body, orError(err, blob.ErrNotFound)
}

// List implements files.Table.
func (c *Chunks) List(ctx context.Context, s files.Space, bucket string, q blob.Query) ([]files.File, error) {
	query, args := `SELECT `+fileColumns+` WHERE org = $1 AND space = $2 AND bucket = $3 AND state = 'stored' AND path >= $4 AND path > $5`,
		[]any{s.Org, s.Created, bucket, q.Prefix, q.After, q.Limit + 1, q.Offset}
	if end := afterPrefix(q.Prefix); end != "" {
		query, args = query+` AND path < $8`, append(args, end)
	}
	return c.list(ctx, query+` ORDER BY path LIMIT $6 OFFSET $7`, args...)
}

// afterPrefix returns the first text after all that begin with a prefix, in the order of bytes; "" = there is none.
func afterPrefix(prefix string) string {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case last == utf8.MaxRune:
			continue
		case last == 0xd7ff: // surrogates follow, which no text has
			return prefix + "\ue000"
		}
		return prefix + string(last+1)
	}
	return ""
}

func (c *Chunks) list(ctx context.Context, query string, args ...any) (found []files.File, err error) {
	rows, err := c.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		f, err := scanFile(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	return found, rows.Err()
}

// Delete implements files.Table.
func (c *Chunks) Delete(ctx context.Context, s files.Space, bucket, path string) error {
	return c.update(ctx, s.Org, func(tx *sql.Tx) error {
		result, err := takeName(ctx, tx, s, bucket, path)
		return changed(result, err, blob.ErrNotFound)
	})
}

// Usage implements files.Table.
func (c *Chunks) Usage(ctx context.Context, s files.Space, bucket string) (u blob.Usage, err error) {
	err = c.db.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(bytes), 0) FROM bucket_files WHERE org = $1 AND space = $2 AND bucket =
		$3 AND state <> 'deleted'`,
		s.Org, s.Created, bucket).Scan(&u.Files, &u.Bytes)
	return u, err
}

// Left implements files.Table.
func (c *Chunks) Left(ctx context.Context, written, lost time.Duration, limit int) ([]files.File, error) {
	return c.list(ctx, `SELECT `+fileColumns+` WHERE state = 'writing' AND at <= `+nowMillis+` - $1 OR state = 'deleted' AND at <=
		`+nowMillis+` - $2 ORDER BY at, id LIMIT $3`,
		written.Milliseconds(), lost.Milliseconds(), limit)
}

// discardBatch is how many chunks one statement deletes.
const discardBatch = 64

// Discard implements files.Table.
func (c *Chunks) Discard(ctx context.Context, f files.File) error {
	key := []any{f.Space.Org, f.Space.Created, f.ID}
	result, err := c.db.ExecContext(ctx, `UPDATE bucket_files SET state = 'deleted', bytes = 0 WHERE org = $1 AND space = $2 AND id = $3 AND
		state <> 'stored'`, key...)
	if err := changed(result, err, sql.ErrNoRows); err != nil {
		return orError(err, nil) // it has a name, or is gone
	}
	for {
		result, err := c.db.ExecContext(ctx, `DELETE FROM file_chunks WHERE org = $1 AND id = $2 AND n IN (SELECT n FROM file_chunks WHERE org
			= $1 AND id = $2 ORDER BY n LIMIT $3)`,
			f.Space.Org, f.ID, discardBatch)
		if err := changed(result, err, sql.ErrNoRows); errors.Is(err, sql.ErrNoRows) {
			break
		} else if err != nil {
			return fmt.Errorf("delete chunks of a file: %w", err)
		}
	}
	_, err = c.db.ExecContext(ctx, `DELETE FROM bucket_files WHERE org = $1 AND space = $2 AND id = $3 AND state = 'deleted'`, key...)
	return err
}

// Spaces implements files.Table. The index is read once for each name space, not for each file.
func (c *Chunks) Spaces(ctx context.Context) (all []files.Space, err error) {
	rows, err := c.db.QueryContext(ctx, `WITH RECURSIVE s AS (
		(SELECT org, space FROM bucket_files ORDER BY org, space LIMIT 1)
		UNION ALL
		SELECT next.org, next.space FROM s, LATERAL (SELECT f.org, f.space FROM bucket_files f WHERE (f.org, f.space) > (s.org,
			s.space) ORDER BY f.org, f.space LIMIT 1) next
	) SELECT org, space FROM s`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s files.Space
		if err := rows.Scan(&s.Org, &s.Created); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

// Abandon implements files.Table.
func (c *Chunks) Abandon(ctx context.Context, s files.Space) error {
	return c.update(ctx, s.Org, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE bucket_files SET state = 'deleted', bytes = 0, at = 0 WHERE org = $1 AND space = $2 AND (state <>
			'deleted' OR at > 0)`, s.Org, s.Created)
		return err
	})
}
