//go:build unix

package crash_test

import (
	"database/sql"
	"syscall"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// The server crashes before it gets a COMMIT, and gives the number of the lost transaction to another one, which is committed. The store does
// not take it for its own: what it says is stored is stored. // P01
func TestACommitThatIsLostInACrashIsNotTakenForAnotherOne(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	cutter := newCommitCutter(t, server.port)
	store, err := postgres.Open(t.Context(), postgres.Options{URL: server.url(cutter.port()), Schema: "lost"}, database.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	var next, lost int64
	cutter.inCommit = func() {
		direct := openServer(t, server)
		defer direct.Close()
		if err := direct.QueryRow(`SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)`).Scan(&lost); err != nil {
			t.Error(err)
		}
		if err := server.stop(syscall.SIGQUIT); err != nil {
			t.Error(err)
		}
		if err := server.start(); err != nil {
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
	cutter.armed.Store(1)
	recorded := store.RecordNow(t.Context(), "a", audit.Entry{Kind: "note", At: 1, Body: map[string]any{"n": 1}})
	rows, err := store.AuditRows(t.Context(), "a", audit.Query{Kind: "note"})
	if err != nil {
		t.Fatal(err)
	}
	if recorded == nil && len(rows) != 1 || len(rows) > 1 {
		t.Errorf("the store says %v, and has %d rows", recorded, len(rows))
	}
	t.Logf("the lost transaction had a number below %d, the last one after the crash %d; the store says %v, and has %d rows", lost, next, recorded, len(rows))
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
