package database_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/blob/blobtest"
	"github.com/turnpike-gateway/turnpike/internal/blob/database"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// table is a Table in memory.
type table struct {
	mu     sync.Mutex
	files  map[string]*row // by ID
	chunks map[string]map[int64][]byte
}

type row struct {
	database.File
	state string // writing, stored or deleted
}

func newTable() *table {
	return &table{files: map[string]*row{}, chunks: map[string]map[int64][]byte{}}
}

// each calls f for the files of a bucket that are not deleted; bucket "" = of all.
func (t *table) each(s database.Space, bucket string, f func(*row)) {
	for _, r := range t.files {
		if r.Space == s && (bucket == "" || r.Bucket == bucket) && r.state != "deleted" {
			f(r)
		}
	}
}

func (t *table) usage(s database.Space, bucket string) (u blob.Usage) {
	t.each(s, bucket, func(r *row) { u.Files, u.Bytes = u.Files+1, u.Bytes+r.Bytes })
	return u
}

func (t *table) named(s database.Space, bucket, path string) (found *row) {
	t.each(s, bucket, func(r *row) {
		if r.Path == path && r.state == "stored" {
			found = r
		}
	})
	return found
}

func (t *table) Begin(ctx context.Context, f database.File, fits func(bucket, all blob.Usage) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := errors.Join(ctx.Err(), fits(t.usage(f.Space, f.Bucket), t.usage(f.Space, ""))); err != nil {
		return err
	}
	t.files[f.ID], t.chunks[f.ID] = &row{f, "writing"}, map[int64][]byte{}
	return nil
}

func (t *table) WriteChunk(_ context.Context, f database.File, n int64, body []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.files[f.ID]; r == nil || r.state != "writing" {
		return blob.ErrDeleted
	}
	t.chunks[f.ID][n] = bytes.Clone(body)
	return nil
}

func (t *table) Finish(_ context.Context, f database.File) (time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.files[f.ID]
	if r == nil || r.state != "writing" {
		return time.Time{}, blob.ErrDeleted
	}
	if old := t.named(f.Space, f.Bucket, f.Path); old != nil {
		old.state = "deleted"
	}
	r.state, r.SHA256, r.Modified = "stored", f.SHA256, time.UnixMilli(1)
	return r.Modified, nil
}

func (t *table) Find(_ context.Context, s database.Space, bucket, path string) (database.File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.named(s, bucket, path); r != nil {
		return r.File, nil
	}
	return database.File{}, blob.ErrNotFound
}

func (t *table) ReadChunk(_ context.Context, f database.File, n int64) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	body, ok := t.chunks[f.ID][n]
	if !ok {
		return nil, blob.ErrNotFound
	}
	return body, nil
}

func (t *table) List(ctx context.Context, s database.Space, bucket string, q blob.Query) (all []database.File, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.each(s, bucket, func(r *row) {
		if r.state == "stored" && strings.HasPrefix(r.Path, q.Prefix) && r.Path > q.After {
			all = append(all, r.File)
		}
	})
	slices.SortFunc(all, func(a, b database.File) int { return strings.Compare(a.Path, b.Path) })
	all = all[min(q.Offset, len(all)):]
	return all[:min(q.Limit+1, len(all))], ctx.Err()
}

func (t *table) Delete(_ context.Context, s database.Space, bucket, path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.named(s, bucket, path)
	if r == nil {
		return blob.ErrNotFound
	}
	r.state = "deleted"
	return nil
}

func (t *table) Usage(_ context.Context, s database.Space, bucket string) (blob.Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.usage(s, bucket), nil
}

func (t *table) Left(context.Context, time.Duration, time.Duration, int) (all []database.File, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.files {
		if r.state == "deleted" {
			all = append(all, r.File)
		}
	}
	return all, nil
}

func (t *table) Discard(_ context.Context, f database.File) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.files[f.ID]; r != nil && r.state != "stored" {
		delete(t.files, f.ID)
		delete(t.chunks, f.ID)
	}
	return nil
}

func (t *table) Spaces(context.Context) (all []database.Space, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.files {
		if !slices.Contains(all, r.Space) {
			all = append(all, r.Space)
		}
	}
	return all, nil
}

func (t *table) Abandon(_ context.Context, s database.Space) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.each(s, "", func(r *row) { r.state = "deleted" })
	return nil
}

func store(of *table, limits blob.Limits) *database.Store {
	return database.New(of, database.Options{Limits: func() blob.Limits { return limits }, Log: slog.New(slog.DiscardHandler)})
}

func TestBuckets(t *testing.T) {
	tables := map[string]*table{}
	blobtest.Run(t, func(t *testing.T, orgID string, settings org.Bucket) blob.Bucket {
		if tables[t.Name()] == nil {
			tables[t.Name()] = newTable()
		}
		return store(tables[t.Name()], blob.Limits{}).Bucket(database.SpaceOf(orgID, time.UnixMilli(1)), settings)
	})
}

// liar says that it has another size.
type liar struct {
	*strings.Reader
	size int64
}

func (l liar) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return l.size, nil
	}
	return l.Reader.Seek(offset, whence)
}

// A write that fails leaves nothing, not even in what is counted.
func TestAFailedWriteLeavesNothing(t *testing.T) {
	of := newTable()
	b := store(of, blob.Limits{}).Bucket(database.Space{Org: "a"}, org.Bucket{Name: "b"})
	for _, size := range []int64{4, 6, database.ChunkSize + 1} {
		if _, err := b.Put(t.Context(), "x", liar{strings.NewReader("12345"), size}); err == nil {
			t.Errorf("5 bytes were stored as %d", size)
		}
	}
	if len(of.files) != 0 || len(of.chunks) != 0 {
		t.Errorf("%d files, %d with chunks", len(of.files), len(of.chunks))
	}
}

func TestTheFilesOfAnOrgHaveALimit(t *testing.T) { // A07
	s := store(newTable(), blob.Limits{Bytes: 10, Files: 3})
	put := func(bucket, path, text string) string {
		_, err := s.Bucket(database.Space{Org: "a"}, org.Bucket{Name: bucket}).Put(t.Context(), path, strings.NewReader(text))
		var limit *blob.LimitError
		if errors.As(err, &limit) {
			return limit.Setting
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}
	for _, c := range []struct{ bucket, path, text, want string }{
		{"b", "x", "12345", ""}, {"c", "x", "123456", "org_caps.files_mib"}, {"c", "x", "12345", ""}, {"c", "y", "", ""}, {"b", "z", "",
			"org_caps.files"},
	} {
		if got := put(c.bucket, c.path, c.text); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestSweepTakesTheFilesOfOrgsThatAreGone(t *testing.T) {
	of := newTable()
	s := store(of, blob.Limits{})
	for _, space := range []database.Space{{Org: "a", Created: 1}, {Org: "a", Created: 2}} {
		if _, err := s.Bucket(space, org.Bucket{Name: "b"}).Put(t.Context(), "x", strings.NewReader("1")); err != nil {
			t.Fatal(err)
		}
	}
	live := func(s database.Space) bool { return s.Created == 2 }
	if n, err := s.Strangers(t.Context(), live); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := s.Sweep(t.Context(), live); err != nil || len(of.files) != 1 || len(of.chunks) != 1 {
		t.Errorf("%d files, %v", len(of.files), err)
	}
}
