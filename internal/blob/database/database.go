// Package database keeps the files of buckets in the gateway's database, where all replicas read them.
//
//	Bucket ─► Table ─► what is known of a file: its path, size and digest
//	             └───► its content, in chunks of 256 KiB
//
// A file is noted before its first chunk is written, which counts it against the limits, and gets its name after the last
// one. A reader sees the old content or the new one. What was replaced or deleted loses its name at once, and its chunks
// when [Store.Sweep] finds it older than Kept, so that readers can finish.
//
// No more than one chunk of a file is in memory.
package database

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// ChunkSize is the size of a chunk in bytes. The last one of a file may be smaller; an empty file has none.
const ChunkSize = 256 << 10

// How old a file is, by the clock of the table, before Sweep deletes its chunks.
const (
	Unfinished = time.Hour        // since the beginning of a write that has not ended
	Kept       = 10 * time.Minute // since it was replaced or deleted
)

// Space is the name space of an org. An org that is created again has another one.
type Space struct {
	Org     string
	Created int64 // when the org was created, in Unix milliseconds; 0 = not known
}

// SpaceOf returns the name space of an org.
func SpaceOf(orgID string, createdAt time.Time) Space { return Space{orgID, blob.Millis(createdAt)} }

// File is what a table knows of a file.
type File struct {
	Space  Space
	ID     string // of its content, unique
	Bucket string
	Path   string
	Bytes  int64
	SHA256 string // of the content, in hexadecimal

	Modified time.Time // when it got its name, by the clock of the table
}

// Table keeps files and chunks. It is safe for use by several processes. Times are those of its own clock.
type Table interface {
	// Begin notes a file that is about to be written. fits is called with what its bucket and its org have, files that
	// are being written included; if it returns an error, nothing is noted, and Begin returns that error. No other file
	// of the org is noted at the same time.
	Begin(ctx context.Context, f File, fits func(bucket, all blob.Usage) error) error

	// WriteChunk stores a chunk of a file that was noted. The error wraps blob.ErrDeleted if it is not there any more.
	WriteChunk(ctx context.Context, f File, n int64, body []byte) error

	// Finish gives a file that was noted its name and its digest, and returns when. The file that had the name loses it.
	// The error wraps blob.ErrDeleted if the file is not there any more.
	Finish(ctx context.Context, f File) (time.Time, error)

	// Find returns the file with a name. The error wraps blob.ErrNotFound if there is none.
	Find(ctx context.Context, s Space, bucket, path string) (File, error)

	// ReadChunk returns a chunk. The error wraps blob.ErrNotFound if there is none.
	ReadChunk(ctx context.Context, f File, n int64) ([]byte, error)

	// List returns files with a name, in the order of the bytes of their paths, one more than q.Limit if there are more.
	List(ctx context.Context, s Space, bucket string, q blob.Query) ([]File, error)

	// Delete takes the name of a file. The error wraps blob.ErrNotFound if there is none.
	Delete(ctx context.Context, s Space, bucket, path string) error

	// Usage returns what a bucket has, files that are being written included.
	Usage(ctx context.Context, s Space, bucket string) (blob.Usage, error)

	// Left returns files without a name: those that have been written for a time, and those that lost it a time ago. The
	// oldest come first.
	Left(ctx context.Context, written, lost time.Duration, limit int) ([]File, error)

	// Discard deletes a file without a name: its chunks, some at a time, then what is known of it. A file that has a
	// name stays.
	Discard(ctx context.Context, f File) error

	// Spaces returns all name spaces with files.
	Spaces(ctx context.Context) ([]Space, error)

	// Abandon takes the names of the files of a name space, and ends those that are being written. They count as left
	// for as long as Left may ask for.
	Abandon(ctx context.Context, s Space) error
}

// Options configure a Store. All are required.
type Options struct {
	// Limits returns what the files of one org may have together, in all its buckets.
	Limits func() blob.Limits
	Log    *slog.Logger
}

// Store keeps the files of all orgs. It is safe for concurrent use.
type Store struct {
	table Table
	o     Options
}

// New returns a Store.
func New(table Table, o Options) *Store { return &Store{table, o} }

// Bucket returns a bucket of an org.
func (s *Store) Bucket(of Space, b org.Bucket) *Bucket { return &Bucket{s, of, b} }

// Bucket is a bucket of an org. It implements [blob.Bucket].
type Bucket struct {
	store    *Store
	space    Space
	settings org.Bucket
}

var _ blob.Bucket = (*Bucket)(nil)

// Stat implements [blob.Bucket].
func (b *Bucket) Stat(ctx context.Context, path string) (blob.Info, error) {
	f, err := b.find(ctx, path)
	return f.info(), err
}

func (b *Bucket) find(ctx context.Context, path string) (File, error) {
	if err := blob.CheckPath(path); err != nil {
		return File{}, err
	}
	return b.store.table.Find(ctx, b.space, b.settings.Name, path)
}

func (f File) info() blob.Info {
	return blob.Info{Path: f.Path, Size: f.Bytes, Modified: f.Modified, SHA256: f.SHA256}
}

// List implements [blob.Bucket].
func (b *Bucket) List(ctx context.Context, q blob.Query) (blob.Page, error) {
	if err := q.Check(); err != nil {
		return blob.Page{}, err
	}
	found, err := b.store.table.List(ctx, b.space, b.settings.Name, q)
	if err != nil {
		return blob.Page{}, err
	}
	page := blob.Page{More: len(found) > q.Limit}
	for _, f := range found[:min(len(found), q.Limit)] {
		page.Files = append(page.Files, blob.Info{Path: f.Path, Size: f.Bytes, Modified: f.Modified})
	}
	return page, nil
}

// Delete implements [blob.Bucket].
func (b *Bucket) Delete(ctx context.Context, path string) error {
	if err := blob.CheckPath(path); err != nil {
		return err
	}
	return b.store.table.Delete(ctx, b.space, b.settings.Name, path)
}

// Usage implements [blob.Bucket].
func (b *Bucket) Usage(ctx context.Context) (blob.Usage, error) {
	return b.store.table.Usage(ctx, b.space, b.settings.Name)
}

// lastTry is how long the chunks of a write that has failed may take to be deleted. Otherwise Sweep deletes them.
const lastTry = 10 * time.Second

// Put implements [blob.Bucket].
func (b *Bucket) Put(ctx context.Context, path string, body io.ReadSeeker) (blob.Info, error) {
	if err := blob.CheckPath(path); err != nil {
		return blob.Info{}, err
	}
	size, err := blob.Size(body)
	if err != nil {
		return blob.Info{}, err
	}
	if err := blob.CheckSize(size, b.settings.LargestFile()); err != nil {
		return blob.Info{}, err
	}
	f := File{Space: b.space, ID: id.NewOrdered(""), Bucket: b.settings.Name, Path: path, Bytes: size}
	if err := b.store.table.Begin(ctx, f, func(bucket, all blob.Usage) error { return b.fits(size, bucket, all) }); err != nil {
		return blob.Info{}, err
	}
	if err := b.write(ctx, &f, body); err != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTry)
		defer cancel()
		if left := b.store.table.Discard(last, f); left != nil {
			b.store.o.Log.Warn("a file that was not written whole is deleted later", "org", f.Space.Org, "bytes", f.Bytes, "error", left)
		}
		return blob.Info{}, err
	}
	return f.info(), nil
}

// fits returns a *blob.LimitError if a file of a size does not fit into its bucket and its org.
func (b *Bucket) fits(size int64, bucket, all blob.Usage) error {
	most := b.store.o.Limits()
	switch {
	case b.settings.Quota > 0 && size > 0 && bucket.Bytes+size > b.settings.Quota:
		return blob.QuotaError(b.settings.Quota)
	case most.Files > 0 && all.Files+1 > most.Files:
		return &blob.LimitError{What: fmt.Sprintf("the org may have %d files in the gateway's database; delete some, or ask the operator to "+
			"raise the limit", most.Files), Setting: "org_caps.files"}
	case most.Bytes > 0 && size > 0 && all.Bytes+size > most.Bytes:
		return &blob.LimitError{What: fmt.Sprintf("the files of the org may have %d MiB together in the gateway's database; delete some, or "+
			"ask the operator to raise the limit", most.Bytes>>20), Setting: "org_caps.files_mib"}
	}
	return nil
}

// write writes the chunks of a file and gives it its name, digest and time.
func (b *Bucket) write(ctx context.Context, f *File, body io.Reader) error {
	sum, chunk := sha256.New(), make([]byte, min(ChunkSize, f.Bytes))
	for n := int64(0); n*ChunkSize < f.Bytes; n++ {
		part := chunk[:min(ChunkSize, f.Bytes-n*ChunkSize)]
		if _, err := io.ReadFull(body, part); err != nil {
			return fmt.Errorf("the body ends before its %d bytes: %w", f.Bytes, err)
		}
		sum.Write(part)
		if err := b.store.table.WriteChunk(ctx, *f, n, part); err != nil {
			return err
		}
	}
	if n, err := io.ReadFull(body, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return errors.Join(fmt.Errorf("the body has more than its %d bytes", f.Bytes), err)
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	var err error
	f.Modified, err = b.store.table.Finish(ctx, *f)
	return err
}

// Open implements [blob.Bucket].
func (b *Bucket) Open(ctx context.Context, path string) (io.ReadCloser, blob.Info, error) {
	f, err := b.find(ctx, path)
	if err != nil {
		return nil, blob.Info{}, err
	}
	return &content{ctx: ctx, table: b.store.table, file: f, sum: sha256.New()}, f.info(), nil
}

// content reads the content of a file, a chunk at a time, and compares its digest at the end.
type content struct {
	ctx   context.Context // of the Open: as long as the content is read
	table Table
	file  File
	sum   hash.Hash
	next  int64 // the chunk to read
	rest  []byte
	err   error // of the end
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	if len(c.rest) == 0 && c.err == nil {
		c.err = c.load()
	}
	if c.err != nil {
		return 0, c.err
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// load reads the next chunk.
func (c *content) load() error {
	left := c.file.Bytes - c.next*ChunkSize
	if left <= 0 {
		if hex.EncodeToString(c.sum.Sum(nil)) != c.file.SHA256 {
			return blob.ErrDamaged
		}
		return io.EOF
	}
	body, err := c.table.ReadChunk(c.ctx, c.file, c.next)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return fmt.Errorf("a part of the file is missing; it was replaced or deleted while it was read: %w", err)
	case err != nil:
		return err
	case int64(len(body)) != min(left, ChunkSize):
		return blob.ErrDamaged
	}
	c.sum.Write(body)
	c.next++
	c.rest = body
	return nil
}

// Close implements io.Closer.
func (c *content) Close() error {
	c.rest, c.err = nil, io.ErrClosedPipe
	return nil
}

// sweepBatch is how many files Sweep reads at once.
const sweepBatch = 100

// Sweep deletes the chunks of files that have lost their name or never got one, and the files of orgs that do not exist.
// Live is asked right before each.
func (s *Store) Sweep(ctx context.Context, live func(Space) bool) error {
	all, err := s.table.Spaces(ctx)
	for _, of := range all {
		if ctx.Err() != nil || live(of) {
			continue
		}
		if gone := s.table.Abandon(ctx, of); gone != nil {
			err = errors.Join(err, gone)
			continue
		}
		s.o.Log.Info("the files of a deleted org are deleted", "org", of.Org)
	}
	return errors.Join(err, ctx.Err(), s.discard(ctx, Unfinished, Kept))
}

// discard deletes the files without a name that are old enough.
func (s *Store) discard(ctx context.Context, written, lost time.Duration) error {
	for {
		found, err := s.table.Left(ctx, written, lost, sweepBatch)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, f := range found {
			if err := s.table.Discard(ctx, f); err != nil {
				return err
			}
		}
		s.o.Log.Info("the content of files without a name was deleted", "files", len(found))
	}
}

// Strangers returns how many orgs have files and do not exist.
func (s *Store) Strangers(ctx context.Context, live func(Space) bool) (n int, err error) {
	all, err := s.table.Spaces(ctx)
	for _, of := range all {
		if !live(of) {
			n++
		}
	}
	return n, err
}
