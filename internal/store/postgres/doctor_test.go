package postgres_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

const doctorTables = `
CREATE TABLE goose_db_version (id serial PRIMARY KEY, version_id bigint NOT NULL, is_applied boolean NOT NULL);
INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, true), (100, true);
CREATE TABLE replicas (id text PRIMARY KEY, seen_at bigint NOT NULL, started_at bigint NOT NULL DEFAULT 0,
	applied bigint NOT NULL DEFAULT 0,
	version text NOT NULL DEFAULT '', draining bigint NOT NULL DEFAULT 0);
CREATE TABLE file_chunks (org text, id text, n bigint, body bytea);
CREATE TABLE runs (owner text, status text);
`

const aBeat = `INSERT INTO replicas (id, version, seen_at) VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $3)`

// exec executes a statement.
func exec(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// patient returns a schema that is well, for a role that may use it and nothing else. Connections are one session.
func patient(t *testing.T) (db *sql.DB, e postgres.Examination) {
	t.Helper()
	db, schema := inSchema(t, doctorTables)
	db.SetMaxOpenConns(1)
	exec(t, db, `CREATE ROLE `+schema+` NOSUPERUSER`)
	t.Cleanup(func() {
		exec(t, db, `RESET ROLE`)
		exec(t, db, `DROP OWNED BY `+schema)
		exec(t, db, `DROP ROLE `+schema)
	})
	exec(t, db, `GRANT USAGE, CREATE ON SCHEMA `+schema+` TO `+schema)
	exec(t, db, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA `+schema+` TO `+schema)
	exec(t, db, `GRANT USAGE ON ALL SEQUENCES IN SCHEMA `+schema+` TO `+schema)
	exec(t, db, aBeat, "a", "1.0", 100)
	exec(t, db, `SET ROLE `+schema)
	return db, postgres.Examination{Schema: schema, Pool: 4, Migrates: true, Known: 100, Version: "1.0"}
}

// examined returns the lines by their names.
func examined(t *testing.T, db *sql.DB, e postgres.Examination) map[string]postgres.Line {
	t.Helper()
	out := map[string]postgres.Line{}
	for _, l := range postgres.Examine(t.Context(), db, e) {
		if (l.Status == postgres.Wrong) != (l.Remedy != "") || l.Detail == "" || strings.Contains(l.Detail, "\n") {
			t.Errorf("%+v", l)
		}
		out[l.Name] = l
	}
	return out
}

func TestADatabaseThatIsWell(t *testing.T) {
	db, e := patient(t)
	found := examined(t, db, e)
	for name, l := range found {
		// Other programs may use the server of the test, and it may be a slow machine.
		if l.Status != postgres.Well && name != "snapshots" && name != "round trip" {
			t.Errorf("%+v", l)
		}
	}
	if len(found) != 13 {
		t.Errorf("%d checks", len(found))
	}
}

func TestWhatIsWrongWithADatabase(t *testing.T) {
	for name, c := range map[string]struct {
		line   string
		change func(t *testing.T, db *sql.DB, e *postgres.Examination)
		want   string
	}{
		"commits that are not durable": {"durability", func(t *testing.T, db *sql.DB, _ *postgres.Examination) {
			exec(t, db, `SET synchronous_commit = off`)
		}, "off: synchronous_commit; what was answered can be lost"},
		"another schema": {"schema", func(_ *testing.T, _ *sql.DB, e *postgres.Examination) { e.Schema = "other" }, "postgres.schema is other"},
		"no schema": {"schema", func(t *testing.T, db *sql.DB, e *postgres.Examination) {
			exec(t, db, `SET search_path = ''`)
			e.Schema = ""
		}, "names no schema that exists"},
		"an old schema": {"schema", func(_ *testing.T, _ *sql.DB, e *postgres.Examination) { e.Known, e.Migrates = 101, false },
			"has version 100, and this program needs 101"},
		"a superuser": {"rights", func(t *testing.T, db *sql.DB, _ *postgres.Examination) { exec(t, db, `RESET ROLE`) }, "may do more than " +
			"the gateway needs"},
		"a table that cannot be written": {"rights", func(t *testing.T, db *sql.DB, e *postgres.Examination) {
			exec(t, db, `RESET ROLE`)
			exec(t, db, `REVOKE UPDATE ON replicas FROM `+e.Schema)
			exec(t, db, `SET ROLE `+e.Schema)
		}, "may not use replicas"},
		"a schema that cannot be changed": {"rights", func(t *testing.T, db *sql.DB, e *postgres.Examination) {
			exec(t, db, `RESET ROLE`)
			exec(t, db, `REVOKE CREATE ON SCHEMA `+e.Schema+` FROM `+e.Schema)
			exec(t, db, `SET ROLE `+e.Schema)
		}, "may not change the schema"},
		"too many connections": {"connections", func(t *testing.T, db *sql.DB, e *postgres.Examination) {
			exec(t, db, aBeat, "b", "1.0", 0)
			e.Pool = 100_000
		}, "2 replicas need 200004 connections, and max_connections of the server leaves"},
		"too many for the role": {"connections", func(t *testing.T, db *sql.DB, e *postgres.Examination) {
			exec(t, db, `RESET ROLE`)
			exec(t, db, `ALTER ROLE `+e.Schema+` CONNECTION LIMIT 5`)
			exec(t, db, `SET ROLE `+e.Schema)
		}, "1 replicas need 6 connections, and the connection limit of the role leaves 5"},
		"another clock": {"clock", func(_ *testing.T, _ *sql.DB, e *postgres.Examination) {
			e.Now = func() time.Time { return time.Now().Add(-time.Minute) }
		}, "differs by 1m0"},
		"a long way": {"round trip", func(_ *testing.T, _ *sql.DB, e *postgres.Examination) {
			now := time.Now()
			e.Now = func() time.Time { now = now.Add(6 * time.Millisecond); return now }
		}, "takes 6ms on the way"},
		"a dead replica with runs": {"replicas", func(t *testing.T, db *sql.DB, _ *postgres.Examination) {
			exec(t, db, aBeat, "b", "1.0", 60_000)
			exec(t, db, `INSERT INTO runs VALUES ('b', 'running'), ('b', 'done'), ('a', 'running')`)
		}, "without a beat for more than 15s: b (1.0, beat 1m"},
		"another version": {"replicas", func(t *testing.T, db *sql.DB, _ *postgres.Examination) { exec(t, db, aBeat, "b", "0.9", 0) },
			"another version than this program (1.0): b (0.9"},
	} {
		t.Run(name, func(t *testing.T) {
			db, e := patient(t)
			c.change(t, db, &e)
			if l := examined(t, db, e)[c.line]; l.Status != postgres.Wrong || !strings.Contains(l.Detail, c.want) {
				t.Errorf("%+v, want %q", l, c.want)
			}
		})
	}
}

// The others have taken its runs over.
func TestADeadReplicaWithoutRunsIsNamed(t *testing.T) {
	db, e := patient(t)
	exec(t, db, aBeat, "b", "0.9", 60_000)
	l := examined(t, db, e)["replicas"]
	if _, gone, _ := strings.Cut(l.Detail, "Without a beat, and"); l.Status != postgres.Well || !strings.Contains(gone, "b (0.9, beat 1m") ||
		strings.Contains(gone, "a (1.0") {
		t.Errorf("%+v", l)
	}
}

// Before the first start, nothing is wrong.
func TestAnEmptyDatabaseIsExamined(t *testing.T) {
	db, _ := inSchema(t, `SELECT 1`)
	for name, l := range examined(t, db, postgres.Examination{Pool: 4, Known: 100}) {
		if want := name == "schema" || name == "files" || name == "replicas"; want != (l.Status == postgres.NotTried) {
			t.Errorf("%+v", l)
		}
	}
}

func TestADatabaseThatCannotBeReached(t *testing.T) {
	db, err := sql.Open("pgx", "postgres://u:CANARY@127.0.0.1:1/d?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	found := postgres.Examine(t.Context(), db, postgres.Examination{})
	if len(found) != 1 || found[0].Status != postgres.Wrong || strings.Contains(found[0].Detail, "CANARY") || found[0].Remedy == "" {
		t.Errorf("%+v", found)
	}
}
