package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
)

func TestStore(t *testing.T) {
	k := newMaker(t)
	k.watch = &watcher{}
	storetest.Run(t, storetest.Maker{Shared: true, Open: k.open, Capped: k.capped, Reopen: k.reopen, Crash: k.crash})
	t.Run("plans", func(t *testing.T) { k.checkPlans(t) })
}

// maker opens stores for storetest in one schema, one after the other.
type maker struct {
	options postgres.Options
	empty   string // statements that delete all rows
	clocks  map[*database.Store]storetest.Clocks
	watch   *watcher // sees the statements of the stores; may be nil
}

func newMaker(t *testing.T) maker {
	t.Helper()
	k := maker{options: postgrestest.New(t), clocks: map[*database.Store]storetest.Clocks{}}
	if _, err := postgres.Migrate(t.Context(), k.options); err != nil {
		t.Fatal(err)
	}
	db := k.db(t)
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `SELECT tablename FROM pg_tables WHERE schemaname = current_schema()
		AND tablename NOT IN ('goose_db_version', 'settings_epoch', 'schema_oldest')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	k.empty = `SET session_replication_role = replica`
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		k.empty += `; DELETE FROM ` + name
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k maker) db(t *testing.T) *sql.DB {
	t.Helper()
	c, err := k.options.Connector()
	if err != nil {
		t.Fatal(err)
	}
	if k.watch != nil {
		c = watchedConnector{c, k.watch}
	}
	return sql.OpenDB(database.Translated(c))
}

func (k maker) open(t *testing.T, c storetest.Clocks) storetest.Store {
	return k.capped(t, c, org.Caps{})
}

func (k maker) capped(t *testing.T, c storetest.Clocks, caps org.Caps) storetest.Store {
	t.Helper()
	db := k.db(t)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), k.empty); err != nil { // faster than TRUNCATE, which syncs a file for each table and index
		t.Fatal(err)
	}
	return k.again(t, c, caps)
}

func (k maker) again(t *testing.T, c storetest.Clocks, caps org.Caps) storetest.Store {
	t.Helper()
	s := database.OpenServer(k.db(t), database.ServerOptions{
		Writers: k.db(t), Name: k.options.Schema, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Now: c.Wall, LeaseNow: c.Leases, Caps: caps,
	})
	k.clocks[s] = c
	t.Cleanup(func() { _ = s.Close() })
	sweep := func(t *testing.T) {
		t.Helper()
		if _, err := s.DeleteForgotten(t.Context()); err != nil {
			t.Error(err)
		}
	}
	return storetest.Store{
		Orgs: s, Agents: s, Sessions: s, Journal: s, Archive: s, Slices: s, Leases: s, Conversations: s, Results: s, Audit: s,
		LaterDeleter: s, Sweep: sweep, Webhooks: s, Outbox: s, HookMessages: s, Files: s,
	}
}

// crash opens the schema again as another process would, while the store that had it before does nothing.
func (k maker) crash(t *testing.T, old storetest.Store) storetest.Store {
	return k.again(t, k.clocks[old.Orgs.(*database.Store)], org.Caps{})
}

func (k maker) reopen(t *testing.T, old storetest.Store) storetest.Store {
	s := old.Orgs.(*database.Store)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return k.again(t, k.clocks[s], org.Caps{})
}

func TestAStartWaitsForAServerThatRefusesConnections(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := stopOn{message: "the database cannot be reached", stop: cancel}
	o := postgres.Options{URL: fmt.Sprintf("postgres://turnpike@127.0.0.1:%d/turnpike", upstreamtest.FreePort(t)), Log: slog.New(&said)}
	_, err := postgres.Open(ctx, o, database.ServerOptions{})
	if err == nil || ctx.Err() == nil {
		t.Errorf("it did not wait: %v", err)
	}
}

// stopOn is a log that calls stop when a message begins with the text.
type stopOn struct {
	message string
	stop    func()
}

func (s *stopOn) Enabled(context.Context, slog.Level) bool { return true }
func (s *stopOn) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *stopOn) WithGroup(string) slog.Handler            { return s }

func (s *stopOn) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, s.message) {
		s.stop()
	}
	return nil
}

// A transaction holds the lock of its org. A process that is paused within one must lose it, or the org waits for as long.
func TestATransactionOfAPausedProcessEnds(t *testing.T) {
	o := postgrestest.New(t)
	s, err := postgres.Open(t.Context(), o, database.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	postgrestest.Exec(t, o, `CREATE TABLE seen (idle text);
		CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO seen VALUES (current_setting('idle_in_transaction_session_timeout')); RETURN NULL;
		END $$;
		CREATE TRIGGER see AFTER INSERT ON run_facts EXECUTE FUNCTION see()`)
	if err := wholeRun(t.Context(), s.Store, journal.Lease{Org: "a", RunID: "r", Epoch: 1}, loop.Durable); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, open(t, o), `SELECT DISTINCT idle FROM seen`); !slices.Equal(got, []string{"2s"}) {
		t.Errorf("transactions may be idle for %q", got)
	}
}
