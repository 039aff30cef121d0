//go:build unix

package crash_test

import (
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// The server crashes before it gets a COMMIT, and gives the number of the lost transaction to another one, which is committed.
// The store does
// not take it for its own: what it says is stored is stored. // P01
func TestACommitThatIsLostInACrashIsNotTakenForAnotherOne(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"the server", "one of its processes"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			lostInCrash(t, of == "the server")
		})
	}
}

func lostInCrash(t *testing.T, whole bool) {
	server := newServer(t)
	var next, lost int64
	crash := func() {
		direct := openServer(t, server)
		defer direct.Close()
		if err := direct.QueryRow(`SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)`).Scan(&lost); err != nil {
			t.Error(err)
		}
		err := server.crash(direct, whole)
		if err != nil {
			t.Error(err)
		}
		for next < lost {
			again := openServer(t, server)
			if err := again.QueryRow(`SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint)`).Scan(&next); err != nil {
				t.Error(err)
				next = lost
			}
			_ = again.Close()
		}
	}
	var armed atomic.Bool
	cutter := newCommitCutter(t, server.port, func(query string) bool {
		cut := query == "COMMIT" && armed.CompareAndSwap(true, false)
		if cut {
			crash()
		}
		return cut
	})
	store, err := postgres.Open(t.Context(), postgres.Options{URL: server.url(cutter.port()), Schema: "lost"}, database.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	recorded := store.RecordNow(t.Context(), "a", audit.Entry{Kind: "note", At: 1, Body: map[string]any{"n": 1}})
	rows, err := store.AuditRows(t.Context(), "a", audit.Query{Kind: "note"})
	if err != nil {
		t.Fatal(err)
	}
	if recorded == nil && len(rows) != 1 || len(rows) > 1 || next < lost {
		t.Errorf("the store says %v, and has %d rows", recorded, len(rows))
	}
	t.Logf("the lost transaction had a number below %d, the last one after the crash %d; the store says %v, and has %d rows", lost,
		next, recorded, len(rows))
}

// Two writes are performed together, one of which is refused, and the connection is lost when it is undone. The other one is
// stored, and is not told of
// the refusal.
func TestAWriteIsNotRefusedForAnotherOneWhenTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	var step atomic.Int64 // 1 = the next commit waits; 2 = the next undone write is cut; 3 = it was
	waits, together := make(chan struct{}), make(chan struct{})
	cutter := newCommitCutter(t, server.port, func(query string) bool {
		if query == "COMMIT" && step.CompareAndSwap(1, 2) {
			close(waits)
			<-together
		}
		return strings.HasPrefix(query, "ROLLBACK TO") && step.CompareAndSwap(2, 3)
	})
	store, err := postgres.Open(t.Context(), postgres.Options{URL: server.url(cutter.port()), Schema: "refused"}, database.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	key := org.Key{Org: "a", ID: "key_a", Name: "a", Role: org.Member, Hash: [32]byte{1}}
	if err := errors.Join(store.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}), store.CreateKey(t.Context(), key,
		org.Author{})); err != nil {
		t.Fatal(err)
	}
	note := func() error {
		return store.RecordNow(t.Context(), "a", audit.Entry{Kind: "note", At: 1, Body: map[string]any{"n": 1}})
	}
	step.Store(1)
	results := make(chan error, 3)
	go func() { results <- note() }()
	await(t, "the commit of the first write", waits)
	waiting := store.QueueLength()
	go func() { results <- note() }()
	created := make(chan error, 1)
	go func() { created <- store.CreateKey(t.Context(), key, org.Author{}) }()
	eventually(t, "the others wait together", func() bool { return store.QueueLength() == waiting+2 })
	close(together)
	for range 2 {
		if err := await(t, "a write", results); err != nil {
			t.Errorf("a write that can be stored: %v", err)
		}
	}
	if err := await(t, "the refused write", created); !errors.Is(err, org.ErrExists) {
		t.Errorf("a key that exists: %v", err)
	}
	if step.Load() != 3 {
		t.Error("no connection was cut when a write was undone: the test has tested nothing")
	}
}

// crash ends the server at once, or one of its processes, for which the server ends the others, and returns when it takes
// connections again.
func (s *server) crash(db *sql.DB, whole bool) error {
	if whole {
		if err := s.stop(syscall.SIGQUIT); err != nil {
			return err
		}
		return s.start()
	}
	var pid int
	if err := db.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	eventually(s.T, "the server has recovered", func() bool {
		return strings.Count(s.process.output.String(), "database system is ready to accept connections") == 2
	})
	return nil
}

// openServer connects to the server directly.
func openServer(t *testing.T, s *server) *sql.DB {
	t.Helper()
	connector, err := postgres.Options{URL: s.url(s.port)}.Connector()
	if err != nil {
		t.Fatal(err)
	}
	return sql.OpenDB(connector)
}
