package storecopy

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	chunks "github.com/turnpike-gateway/turnpike/internal/blob/database"
	"github.com/turnpike-gateway/turnpike/internal/blob/disk"
)

// chunksOfPage are in one transaction.
const chunksOfPage = maxBytes / chunks.ChunkSize

// errNoFiles reports a server that cannot keep files of buckets.
var errNoFiles = errors.New("the schema has no table bucket_files, and the source has files of buckets: use a build that keeps them there")

// serverSide returns the side that is a server, and whether it can keep files of buckets.
func (c *copying) serverSide(ctx context.Context) (*side, bool, error) {
	s := c.source
	if c.target.server {
		s = c.target
	}
	has, err := s.hasTable(ctx, "bucket_files")
	return s, has, err
}

// filesDirectory is where the files of the side that is no server are.
func (c *copying) filesDirectory() string {
	if c.target.server {
		return filepath.Join(c.o.From.Path, c.o.From.Files)
	}
	return filepath.Join(c.target.staging, c.o.To.Files)
}

// copyFiles copies the files of buckets that the target lacks.
func (c *copying) copyFiles(ctx context.Context) error {
	st, err := c.target.state(ctx, allFiles)
	if err != nil || st.done {
		c.result.Files = st.rows
		return err
	}
	_, can, err := c.serverSide(ctx)
	if err != nil {
		return err
	}
	c.o.Progress.begin("copying files of buckets", 0)
	c.o.Progress.add(int(st.rows))
	switch {
	case c.target.server:
		err = c.filesToServer(ctx, &st, can)
	case can:
		err = c.filesToDirectory(ctx, &st)
	}
	if err != nil {
		return err
	}
	st.name, st.done = allFiles, true
	c.result.Files = st.rows
	if !c.target.server {
		if err := disk.SyncNames(c.filesDirectory()); err != nil {
			return err
		}
	}
	return c.target.within(ctx, func(tx *sql.Tx) error { return c.target.setState(ctx, tx, st) })
}

func (c *copying) filesToServer(ctx context.Context, st *state, can bool) error {
	var n int64
	return disk.Walk(ctx, c.filesDirectory(), func(e disk.Entry, content io.Reader) error {
		if n++; n <= st.rows {
			return nil
		}
		if !can {
			return errNoFiles
		}
		if err := c.fileToServer(ctx, e, content, st); err != nil {
			return err
		}
		c.o.Progress.add(1)
		return nil
	})
}

// fileToServer stores the chunks of a file, some at a time, and with the last of them what is known of it. Chunks of a try that
// was interrupted are replaced.
func (c *copying) fileToServer(ctx context.Context, e disk.Entry, content io.Reader, st *state) error {
	sum := sha256.Sum256([]byte(e.Name()))
	id := "copied_" + hex.EncodeToString(sum[:16]) // the same in each try
	buffer := make([]byte, chunks.ChunkSize)
	for n, end := int64(0), false; !end; {
		err := c.target.within(ctx, func(tx *sql.Tx) error {
			if n == 0 {
				if _, err := tx.ExecContext(ctx, `DELETE FROM file_chunks WHERE org = $1 AND id = $2`, e.Space.Org, id); err != nil {
					return err
				}
			}
			for range chunksOfPage {
				size, err := io.ReadFull(content, buffer)
				if end = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); err != nil && !end {
					return err
				}
				if size > 0 {
					if _, err := tx.ExecContext(ctx, `INSERT INTO file_chunks (org, id, n, body) VALUES ($1, $2, $3, $4)`, e.Space.Org, id, n,
						buffer[:size]); err != nil {
						return err
					}
					n++
				}
				if end {
					st.name, st.cursor, st.rows = allFiles, []byte(e.Name()), st.rows+1
					return errors.Join(addFile(ctx, tx, e, id), c.target.setState(ctx, tx, *st))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := c.committed(allFiles); err != nil {
			return err
		}
	}
	return nil
}

func addFile(ctx context.Context, tx *sql.Tx, e disk.Entry, id string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO bucket_files (org, space, id, bucket, path, bytes, sha256, state, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 'stored', $8)`,
		e.Space.Org, blob.Millis(e.Space.CreatedAt), id, e.Bucket, e.Path, e.Size, e.SHA256, e.Modified.UnixMilli())
	return err
}

// storedFile is one of a server.
type storedFile struct {
	disk.Entry
	id string
}

// key is where the next page of files begins.
func (f storedFile) key() []any { return []any{f.Space.Org, blob.Millis(f.Space.CreatedAt), f.id} }

// eachFile calls do for each file of a server after the one with the key.
func (c *copying) eachFile(ctx context.Context, s *side, after []any, do func(f storedFile, content io.Reader) error) error {
	for {
		var page []storedFile
		err := s.each(ctx, `SELECT org, space, id, bucket, path, bytes, sha256, at FROM bucket_files
			WHERE state = 'stored' AND (org, space, id) > ($1, $2, $3) ORDER BY org, space, id LIMIT 100`, func(rows *sql.Rows) error {
			var f storedFile
			var space, at int64
			err := rows.Scan(&f.Space.Org, &space, &f.id, &f.Bucket, &f.Path, &f.Size, &f.SHA256, &at)
			if space != 0 {
				f.Space.CreatedAt = time.UnixMilli(space)
			}
			f.Modified = time.UnixMilli(at)
			page = append(page, f)
			return err
		}, after...)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, f := range page {
			if err := do(f, &storedContent{ctx: ctx, side: s, file: f}); err != nil {
				return fmt.Errorf("%s: %w", f.Name(), err)
			}
			after = f.key()
		}
	}
}

// firstFile is the key before all others.
func firstFile() []any { return []any{"", int64(-1), ""} }

// filesToDirectory writes each file whole, and then how far the copy is. A file that is written twice is replaced.
func (c *copying) filesToDirectory(ctx context.Context, st *state) error {
	after := firstFile()
	if len(st.cursor) > 0 {
		var err error
		if after, err = decode(st.cursor, []kind{text, number, text}); err != nil {
			return err
		}
	}
	return c.eachFile(ctx, c.source, after, func(f storedFile, content io.Reader) error {
		if err := disk.Write(ctx, c.filesDirectory(), f.Entry, content); err != nil {
			return err
		}
		st.name, st.cursor, st.rows = allFiles, encode(nil, f.key()), st.rows+1
		if err := c.target.within(ctx, func(tx *sql.Tx) error { return c.target.setState(ctx, tx, *st) }); err != nil {
			return err
		}
		c.o.Progress.add(1)
		return c.committed(allFiles)
	})
}

// storedContent reads the chunks of a file.
type storedContent struct {
	ctx  context.Context // of the copy
	side *side
	file storedFile
	n    int64
	rest []byte
}

// Read implements io.Reader.
func (r *storedContent) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		err := r.side.conn.QueryRowContext(r.ctx, `SELECT body FROM file_chunks WHERE org = $1 AND id = $2 AND n = $3`,
			r.file.Space.Org, r.file.id, r.n).Scan(&r.rest)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		r.n++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// sums are what files add up to, in any order.
type sums struct {
	files int64
	all   [sha256.Size]byte
}

func (s *sums) add(e disk.Entry) {
	text := encode(nil, []any{e.Name(), e.Size, e.SHA256, e.Modified.UnixMilli()})
	for i, b := range sha256.Sum256(text) {
		s.all[i] ^= b
	}
	s.files++
}

// verifyFiles reads all files of both sides and compares them.
func (c *copying) verifyFiles(ctx context.Context) error {
	server, can, err := c.serverSide(ctx)
	if err != nil {
		return err
	}
	c.o.Progress.begin("verifying files of buckets", 2*c.result.Files)
	var inDirectory, onServer sums
	err = disk.Walk(ctx, c.filesDirectory(), func(e disk.Entry, content io.Reader) error {
		inDirectory.add(e)
		c.o.Progress.add(1)
		_, err := io.Copy(io.Discard, content)
		return err
	})
	if err == nil && can {
		err = c.eachFile(ctx, server, firstFile(), func(f storedFile, content io.Reader) error {
			onServer.add(f.Entry)
			c.o.Progress.add(1)
			sum := sha256.New()
			if n, err := io.Copy(sum, content); err != nil || n == f.Size && hex.EncodeToString(sum.Sum(nil)) == f.SHA256 {
				return err
			}
			return blob.ErrDamaged
		})
	}
	if err == nil && inDirectory != onServer {
		err = fmt.Errorf("they are not equal: %d in the directory, %d on the server. Has something written to one of them meanwhile?",
			inDirectory.files, onServer.files)
	}
	if err != nil {
		return fmt.Errorf("verify the files of buckets: %w", err)
	}
	return nil
}
