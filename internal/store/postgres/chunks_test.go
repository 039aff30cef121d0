package postgres_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/blob/blobtest"
	files "github.com/turnpike-gateway/turnpike/internal/blob/database"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// chunkTables are those of a store that Chunks uses.
const chunkTables = `
CREATE TABLE file_chunks (
  org  text COLLATE "C" NOT NULL,
  id   text COLLATE "C" NOT NULL,
  n    bigint NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (org, id, n)
);
ALTER TABLE file_chunks ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE bucket_files (
  org    text COLLATE "C" NOT NULL,
  space  bigint NOT NULL,
  id     text COLLATE "C" NOT NULL,
  bucket text COLLATE "C" NOT NULL,
  path   text COLLATE "C" NOT NULL,
  bytes  bigint NOT NULL,
  sha256 text COLLATE "C" NOT NULL,
  state  text COLLATE "C" NOT NULL CHECK (state IN ('writing', 'stored', 'deleted')),
  at     bigint NOT NULL,
  PRIMARY KEY (org, space, id)
);
CREATE UNIQUE INDEX bucket_files_stored ON bucket_files (org, space, bucket, path) WHERE state = 'stored';
CREATE INDEX bucket_files_writing ON bucket_files (at, id) WHERE state = 'writing';
CREATE INDEX bucket_files_deleted ON bucket_files (at, id) WHERE state = 'deleted';
`

// inSchema returns connections to a schema of its own with these tables, or skips the test.
func inSchema(t *testing.T, tables string) (db *sql.DB, schema string) {
	t.Helper()
	url := os.Getenv("TURNPIKE_TEST_POSTGRES_URL")
	if url == "" {
		t.Skip("TURNPIKE_TEST_POSTGRES_URL is not set: there is no server for this test")
	}
	schema = "tp_test_" + strings.ToLower(rand.Text())
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	db, err := sql.Open("pgx", url+separator+"search_path="+schema)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	if _, err := db.ExecContext(t.Context(), `CREATE SCHEMA `+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), `SET client_min_messages = error; DROP SCHEMA `+schema+` CASCADE`)
		if err := errors.Join(err, db.Close()); err != nil {
			t.Error(err)
		}
	})
	if _, err := db.ExecContext(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	return db, schema
}

func noLimits() blob.Limits { return blob.Limits{} }

func chunkStore(db *sql.DB, limits func() blob.Limits) *files.Store {
	return files.New(postgres.NewChunks(db, "SET LOCAL lock_timeout = 10000"), files.Options{Limits: limits,
		Log: slog.New(slog.DiscardHandler)})
}

// count returns what a query counts.
func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBucketsInPostgres(t *testing.T) { // J17
	dbs := map[string]*sql.DB{}
	blobtest.Run(t, func(t *testing.T, orgID string, settings org.Bucket) blob.Bucket {
		name, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), "TestBucketsInPostgres/"), "/")
		if dbs[name] == nil {
			dbs[name], _ = inSchema(t, chunkTables)
		}
		return chunkStore(dbs[name], noLimits).Bucket(files.Space{Org: orgID, Created: 1}, settings)
	})
}

// pattern is a body of any size that is in no memory.
type pattern struct{ size, at int64 }

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	n := min(int64(len(b)), p.size-p.at)
	for i := range b[:n] {
		at := p.at + int64(i)
		b[i] = byte(at ^ at>>8 ^ at>>16)
	}
	p.at += n
	return int(n), nil
}

func (p *pattern) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
		p.at = offset
	case io.SeekEnd:
		p.at = p.size + offset
	}
	return p.at, nil
}

// A file of many chunks is written and read without being in memory.
func TestAFileIsStreamedThroughPostgres(t *testing.T) {
	db, _ := inSchema(t, chunkTables)
	const size = 48<<20 + 1
	b := chunkStore(db, noLimits).Bucket(files.Space{Org: "a"}, org.Bucket{Name: "b"})
	var most uint64
	sample := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapInuse)
	}
	runtime.GC()
	sample()
	before := most
	if _, err := b.Put(t.Context(), "large", &pattern{size: size}); err != nil {
		t.Fatal(err)
	}
	sample()
	content, info, err := b.Open(t.Context(), "large")
	if err != nil || info.Size != size {
		t.Fatal(info, err)
	}
	defer content.Close()
	want, got, other := &pattern{size: size}, make([]byte, 100_000), make([]byte, 100_000)
	for n := 0; ; n++ {
		read, err := io.ReadFull(content, got)
		_, _ = io.ReadFull(want, other[:read])
		if !bytes.Equal(got[:read], other[:read]) {
			t.Fatalf("other bytes after %d", n*len(got))
		}
		if n%50 == 0 {
			sample()
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if more := most - before; most > before && more > size/2 {
		t.Errorf("a file of %d MiB needed %d MiB of memory", size>>20, more>>20)
	}
	if n := count(t, db, `SELECT count(*) FROM file_chunks`); n != size/files.ChunkSize+1 {
		t.Errorf("%d chunks", n)
	}
}

func TestReadersOfAReplacedFileFinish(t *testing.T) {
	db, _ := inSchema(t, chunkTables)
	store := chunkStore(db, noLimits)
	table := postgres.NewChunks(db, "")
	b := store.Bucket(files.Space{Org: "a"}, org.Bucket{Name: "b"})
	old := bytes.Repeat([]byte("old"), files.ChunkSize)
	if _, err := b.Put(t.Context(), "x", bytes.NewReader(old)); err != nil {
		t.Fatal(err)
	}
	reading, _, err := b.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(reading, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	late, _, err := b.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), "x", strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	if err := store.Sweep(t.Context(), func(files.Space) bool { return true }); err != nil { // it is not old enough
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(reading); err != nil || !bytes.Equal(rest, old[10:]) {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
	left, err := table.Left(t.Context(), 0, 0, 10)
	if err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	if err := table.Discard(t.Context(), left[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(late); !errors.Is(err, blob.ErrNotFound) || !strings.Contains(err.Error(), "replaced or deleted while it was "+
		"read") {
		t.Errorf("%v", err)
	}
	if n := count(t, db, `SELECT count(*) FROM file_chunks`); n != 1 {
		t.Errorf("%d chunks, want only that of the new content", n)
	}
}

// What a crash leaves of a write counts until it is old, and is deleted then. A writer that wakes afterwards stores nothing.
func TestUnfinishedFilesAreDeleted(t *testing.T) {
	db, _ := inSchema(t, chunkTables)
	table, store := postgres.NewChunks(db, ""), chunkStore(db, noLimits)
	f := files.File{Space: files.Space{Org: "a", Created: 7}, ID: "1", Bucket: "b", Path: "x", Bytes: 2 * files.ChunkSize}
	if err := table.Begin(t.Context(), f, func(blob.Usage, blob.Usage) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := table.WriteChunk(t.Context(), f, 0, make([]byte, files.ChunkSize)); err != nil {
		t.Fatal(err)
	}
	alive := func(files.Space) bool { return true }
	if err := store.Sweep(t.Context(), alive); err != nil {
		t.Fatal(err)
	}
	if u, err := table.Usage(t.Context(), f.Space, "b"); err != nil || u != (blob.Usage{Bytes: f.Bytes, Files: 1}) {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE bucket_files SET at = at - $1`, files.Unfinished.Milliseconds()); err != nil {
		t.Fatal(err)
	}
	if err := store.Sweep(t.Context(), alive); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, `SELECT (SELECT count(*) FROM file_chunks) + (SELECT count(*) FROM bucket_files)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if err := table.WriteChunk(t.Context(), f, 1, []byte("late")); !errors.Is(err, blob.ErrDeleted) {
		t.Errorf("a late chunk: %v", err)
	}
	if _, err := table.Finish(t.Context(), f); !errors.Is(err, blob.ErrDeleted) {
		t.Errorf("a late name: %v", err)
	}
}

func TestFilesOfDeletedOrgsAreDeleted(t *testing.T) { // J17
	db, _ := inSchema(t, chunkTables)
	store := chunkStore(db, noLimits)
	spaces := []files.Space{{Org: "a", Created: 1}, {Org: "a", Created: 2}, {Org: "b", Created: 1}}
	for _, s := range spaces {
		for _, name := range []string{"x", "y"} {
			if _, err := store.Bucket(s, org.Bucket{Name: name}).Put(t.Context(), "f", strings.NewReader("text")); err != nil {
				t.Fatal(err)
			}
		}
	}
	live := func(s files.Space) bool { return s != spaces[0] }
	if n, err := store.Strangers(t.Context(), live); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if err := store.Sweep(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if files, chunks := count(t, db, `SELECT count(*) FROM bucket_files`), count(t, db, `SELECT count(*) FROM file_chunks`); files != 4 ||
		chunks != 4 {
		t.Errorf("%d files with %d chunks are left", files, chunks)
	}
	if n := count(t, db, `SELECT count(*) FROM bucket_files WHERE org = 'a' AND space = 1`); n != 0 {
		t.Errorf("%d files of the deleted org", n)
	}
}

// Replicas that write at the same time stay below what an org may have.
func TestTheLimitOfAnOrgHoldsAcrossReplicas(t *testing.T) { // A07
	db, _ := inSchema(t, chunkTables)
	limits := func() blob.Limits { return blob.Limits{Files: 10, Bytes: 1 << 20} }
	var all sync.WaitGroup
	var mu sync.Mutex
	stored := 0
	for i := range 4 {
		store := chunkStore(db, limits)
		all.Go(func() {
			for j := range 5 {
				_, err := store.Bucket(files.Space{Org: "a"}, org.Bucket{Name: string(rune('a' + i))}).Put(t.Context(), string(rune('a'+j)),
					strings.NewReader("x"))
				var limit *blob.LimitError
				switch {
				case err == nil:
					mu.Lock()
					stored++
					mu.Unlock()
				case !errors.As(err, &limit) || limit.Setting != "org_caps.files":
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if stored != 10 {
		t.Errorf("%d files, want 10", stored)
	}
	large := chunkStore(db, func() blob.Limits { return blob.Limits{Bytes: 100} }).Bucket(files.Space{Org: "a"}, org.Bucket{Name: "a"})
	var limit *blob.LimitError
	if _, err := large.Put(t.Context(), "large", bytes.NewReader(make([]byte, 91))); !errors.As(err, &limit) ||
		limit.Setting != "org_caps.files_mib" {
		t.Errorf("%v", err)
	}
}

func TestADamagedChunkIsNoticed(t *testing.T) {
	db, _ := inSchema(t, chunkTables)
	b := chunkStore(db, noLimits).Bucket(files.Space{Org: "a"}, org.Bucket{Name: "b"})
	for _, damage := range []string{`UPDATE file_chunks SET body = 'other'`, `UPDATE file_chunks SET body = body || 'x'`} {
		if _, err := b.Put(t.Context(), "x", strings.NewReader("right")); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), damage); err != nil {
			t.Fatal(err)
		}
		content, _, err := b.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(content); !errors.Is(err, blob.ErrDamaged) {
			t.Errorf("%v", err)
		}
	}
}

// Statements of every day use an index.
func TestStatementsOfFilesUseAnIndex(t *testing.T) {
	db, _ := inSchema(t, chunkTables)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan`); err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct{ statement, args string }{
		{`SELECT count(*) FROM bucket_files WHERE org = $1 AND space = $2 AND state <> 'deleted'`, `'a', 1`},
		{`SELECT id FROM bucket_files WHERE org = $1 AND space = $2 AND bucket = $3 AND path = $4 AND state = 'stored'`, `'a', 1, 'b', 'c'`},
		{`SELECT id FROM bucket_files WHERE org = $1 AND space = $2 AND bucket = $3 AND state = 'stored' AND path >= $4 AND path > $5 AND path
			< $6 ORDER BY path LIMIT 9`, `'a', 1, 'b', 'c', 'd', 'e'`},
		{`SELECT id FROM bucket_files WHERE state = 'writing' AND at <= $1 OR state = 'deleted' AND at <= $2 ORDER BY at, id LIMIT 9`, `1, 2`},
		{`SELECT n FROM file_chunks WHERE org = $1 AND id = $2 ORDER BY n LIMIT $3`, `'a', 'b', 3`},
	} {
		if plan := planOf(t, conn, s.statement, s.args); strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s:\n%s", s.statement, plan)
		}
	}
}

// planOf returns the plan of a statement, whatever its arguments are.
func planOf(t *testing.T, conn *sql.Conn, statement, args string) string {
	t.Helper()
	if _, err := conn.ExecContext(t.Context(), `PREPARE tried AS `+statement); err != nil {
		t.Fatal(err)
	}
	defer conn.ExecContext(t.Context(), `DEALLOCATE tried`) //nolint:errcheck // the next PREPARE fails then
	rows, err := conn.QueryContext(t.Context(), `EXPLAIN EXECUTE tried(`+args+`)`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
