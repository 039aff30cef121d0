package sqlite

import (
	"database/sql"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
)

// goose takes 4 MiB of memory for each line that it searches for the end of a
// statement, which made the first start slow. It does not search a block that is
// marked as one statement, and SQLite runs all statements of such a block.
func TestEachMigrationIsOneBlockForGoose(t *testing.T) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("migrations %q, error %v", names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, direction := range []string{"Up", "Down"} {
			_, block, _ := strings.Cut(string(text), "-- +goose "+direction+"\n")
			block, _, _ = strings.Cut(block, "-- +goose Down\n")
			block = strings.TrimSpace(block)
			if !strings.HasPrefix(block, "-- +goose StatementBegin\n") || !strings.HasSuffix(block, "\n-- +goose StatementEnd") || strings.Count(block, "+goose") != 2 {
				t.Errorf("%s: put everything after \"-- +goose %s\" between one StatementBegin and one StatementEnd", name, direction)
			}
		}
	}
}

func TestMigrationsGoDownAndUpAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	beginRun(t, s, "a", "r")
	want := schema(t, s.db)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, p := openMigrations(t, path)
	for _, version := range []int64{1, 0} {
		if _, err := p.DownTo(t.Context(), version); err != nil {
			t.Fatalf("down to %d: %v", version, err)
		}
		if _, err := p.Up(t.Context()); err != nil {
			t.Fatalf("up from %d: %v", version, err)
		}
		if got := schema(t, db); !slices.Equal(got, want) {
			t.Errorf("from %d, the schema is\n%q\nwant\n%q", version, got, want)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// openMigrations opens the file for a test that migrates it to a version. The caller closes
// it.
func openMigrations(t *testing.T, path string) (*sql.DB, *goose.Provider) {
	t.Helper()
	db, err := connect(path, writeSettings())
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	return db, p
}

func execute(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// Handovers of every earlier schema, in the form in which they were stored, are found
// until their 24 hours are over.
func TestHandoversSurviveAnUpgrade(t *testing.T) { // J04
	old := map[string]string{ // by principal: both forms in which items were stored
		"p": `{"run_id":"r","items":[{"role":"assistant","parts":[{"kind":"text","text":"Hm."}],"calls":[{"id":"theirs 1","name":"t","arguments":"{ \"a\" : \"<&>\" }"}]}],` +
			`"full":{"result":"the full text"},"call_ids":{"call_tp_1":"theirs 1","call_tp_2":"theirs 2"}}`,
		"q": `{"run_id":"r","items":{"v":2,"items":[{"kind":"message","turn":1,"role":"assistant","parts":[{"kind":"text","text":"Hm."}]},` +
			`{"kind":"tool_call","turn":1,"name":"t","call_id":"theirs 1","arguments":"{ \"a\" : \"<&>\" }"}]},` +
			`"full":{"result":"the full text"},"call_ids":{"call_tp_1":"theirs 1","call_tp_2":"theirs 2"}}`,
	}
	now := time.UnixMilli(1_700_000_000_000)
	expires := now.Add(time.Hour).UnixMilli()
	for version := int64(1); version <= 10; version++ {
		path := filepath.Join(t.TempDir(), "turnpike.db")
		if err := createFile(path); err != nil {
			t.Fatal(err)
		}
		db, p := openMigrations(t, path)
		if _, err := p.UpTo(t.Context(), version); err != nil {
			t.Fatal(err)
		}
		for _, principal := range []string{"p", "q"} {
			execute(t, db, `INSERT INTO handovers (org, principal, id, run_id, body, expires_at) VALUES ('a', ?, 'call_tp_1', 'r', ?, ?)`, principal, old[principal], expires)
			for _, id := range []string{"call_tp_1", "call_tp_2"} {
				execute(t, db, `INSERT INTO handover_calls (org, principal, call_id, handover) VALUES ('a', ?, ?, 'call_tp_1')`, principal, id)
			}
		}
		if version >= 9 {
			execute(t, db, `INSERT INTO org_usage (org, bytes, handovers) VALUES ('a', ?, 2)`, len(old["p"])+len(old["q"])+2*(250+2*300))
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}

		clock := now
		s := openStore(t, Options{Path: path, Now: func() time.Time { return clock }, Caps: org.Caps{Handovers: 2}})
		checkUsage(t, s, "a")
		call := item.NewCall("theirs 1", "t", `{ "a" : "<&>" }`)
		call.Turn = 1
		text := item.NewText(item.Assistant, "Hm.")
		text.Turn = 1
		want := &run.Conversation{
			Version: 1, RunID: "r", Items: item.List{text, call}, Full: map[string]string{"result": "the full text"},
			CallIDs: map[string]string{"call_tp_1": "theirs 1", "call_tp_2": "theirs 2"},
		}
		checkFound := func(principal, id string, want *run.Conversation) {
			t.Helper()
			got, err := s.Find(t.Context(), "a", principal, run.ConversationKey{Kind: run.CallID, ID: id})
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("schema %d: handover of call %s: %v (-want +got):\n%s", version, id, err, diff)
			}
		}
		for _, principal := range []string{"p", "q"} {
			checkFound(principal, "call_tp_1", want)
			checkFound(principal, "call_tp_2", want)
		}
		save := func(id string) error {
			return s.Save(t.Context(), "a", "p", run.Conversation{}, run.HandoverTTL, run.ConversationKey{Kind: run.CallID, ID: id})
		}
		if err := save("call_tp_2"); !errors.Is(err, org.ErrExists) {
			t.Errorf("schema %d: the id of a handover is used again: %v", version, err)
		}
		if err := save("new"); err != nil {
			t.Fatal(err)
		}
		checkFound("p", "call_tp_1", nil) // the oldest, beyond the cap
		checkFound("q", "call_tp_1", want)
		clock = clock.Add(time.Hour)
		checkFound("q", "call_tp_1", nil)
		if err := save("newer"); err != nil {
			t.Fatal(err)
		}
		checkUsage(t, s, "a")
	}
}

// The earlier release reads what is stored under the ids of calls.
func TestHandoversSurviveADowngrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	calls := []run.ConversationKey{{Kind: run.CallID, ID: "2"}, {Kind: run.CallID, ID: "1"}}
	for _, keys := range [][]run.ConversationKey{calls, {{Kind: run.SessionID, ID: "s"}}, {{Kind: run.ResponseID, ID: "r"}}} {
		if err := s.Save(t.Context(), "a", "p", run.Conversation{RunID: "r", CallIDs: map[string]string{"1": "x"}}, run.HandoverTTL, keys...); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, p := openMigrations(t, path)
	if _, err := p.DownTo(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	var id, runID, body, ids string
	var usage, want int64
	err := db.QueryRowContext(t.Context(), `SELECT id, run_id, body, (SELECT group_concat(call_id || handover ORDER BY call_id) FROM handover_calls),
		(SELECT bytes FROM org_usage), 250 + octet_length(body) + 600 FROM handovers`).Scan(&id, &runID, &body, &ids, &usage, &want)
	if err != nil || id != "1" || runID != "r" || ids != "11,21" || !strings.Contains(body, `"call_ids":{"1":"x"}`) || usage != want {
		t.Errorf("got %q, %q, %q, %q, %d bytes, want %d; %v", id, runID, body, ids, usage, want, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAConversationOfALaterBuildIsAnError(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	key := run.ConversationKey{Kind: run.CallID, ID: "x"}
	if err := s.Save(t.Context(), "a", "p", run.Conversation{}, run.HandoverTTL, key); err != nil {
		t.Fatal(err)
	}
	err := s.writer.perform(t.Context(), func(t *tx) error {
		_, err := t.exec(`UPDATE conversations SET body = '{"v":2}'`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Find(t.Context(), "a", "p", key)
	var bad *run.Unreadable
	if !errors.As(err, &bad) || bad.Key != key || !strings.Contains(err.Error(), "stored in version 2, and this build reads versions up to 1") {
		t.Errorf("got %+v, %v", c, err)
	}
	if errors.Is(err, org.ErrUnavailable) || fault.From(err).Reason != "conversation_unreadable" {
		t.Errorf("%v is told as a failure of the file", err)
	}
}

func schema(t *testing.T, db *sql.DB) []string {
	t.Helper()
	got, err := list(t.Context(), db, func(row scanner) (string, error) {
		var s string
		err := row.Scan(&s)
		return s, err
	}, `SELECT coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Stored servers with the old default get the new one. Other numbers stay. // D11
func TestServersWithTheOldDefaultGetTheNewOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"default": 256, "few": 3, "many": 2000, "old default": 10} {
		if err := s.CreateMCPServer(t.Context(), org.MCPServer{Org: "a", Name: name, MaxConcurrentCalls: n}, org.Author{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, p := openMigrations(t, path)
	if _, err := p.DownTo(t.Context(), 11); err != nil {
		t.Fatal(err)
	}
	if got := concurrency(t, db); !maps.Equal(got, map[string]int{"default": 10, "few": 3, "many": 1000, "old default": 10}) {
		t.Errorf("schema 11 has %v", got)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, Options{Path: path})
	servers, err := s.MCPServers(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, m := range servers {
		got[m.Name] = m.MaxConcurrentCalls
	}
	if !maps.Equal(got, map[string]int{"default": 256, "few": 3, "many": 1000, "old default": 256}) {
		t.Errorf("after the upgrade: %v", got)
	}
}

func concurrency(t *testing.T, db *sql.DB) map[string]int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT name, concurrency FROM mcp_outbound_servers`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		out[name] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Servers of every earlier schema keep their settings. // C19
func TestServersSurviveAnUpgrade(t *testing.T) {
	want := []org.MCPServer{
		{
			Org: "a", Name: "full", URL: "http://s/?a=1&b=<2>", Enabled: true, Tools: []string{"x", "y"}, Headers: map[string]string{"X-Key": "Bearer secret:k"},
			Timeout: 1500 * time.Millisecond, MaxRetries: 3, Required: true, Trust: true, Naming: "prefixed", Prefix: "p", Polling: []string{"y"}, MaxConcurrentCalls: 256,
			CreatedAt: time.UnixMilli(1_700_000_000_123).UTC(), UpdatedAt: time.UnixMilli(1_700_000_000_456).UTC(),
		},
		{Org: "a", Name: "none", Tools: []string{}, Timeout: 30 * time.Second, MaxConcurrentCalls: 256, Position: 1},
		{Org: "a", Name: "zero", Timeout: 30 * time.Second, MaxConcurrentCalls: 256, Position: 2},
	}
	for version := int64(1); version <= 12; version++ {
		path := filepath.Join(t.TempDir(), "turnpike.db")
		if err := createFile(path); err != nil {
			t.Fatal(err)
		}
		db, p := openMigrations(t, path)
		if _, err := p.UpTo(t.Context(), version); err != nil {
			t.Fatal(err)
		}
		execute(t, db, `INSERT INTO orgs (id, features, runtime, created_at, updated_at) VALUES ('a', '[]', '{}', 0, 0)`)
		execute(t, db, `INSERT INTO mcp_outbound_servers
				(org, name, url, enabled, tools, headers, timeout_ms, max_retries, required, trust, naming, prefix, polling, position, created_at, updated_at)
			VALUES ('a', 'full', 'http://s/?a=1&b=<2>', 1, '["x","y"]', '{"X-Key":"Bearer secret:k"}', 1500, 3, 1, 1, 'prefixed', 'p', '["y"]', 0, 1700000000123, 1700000000456),
			       ('a', 'none', '', 0, '[]', 'null', 30000, 0, 0, 0, '', '', 'null', 1, 0, 0),
			       ('a', 'zero', '', 0, 'null', 'null', 30000, 0, 0, 0, '', '', 'null', 2, 0, 0)`)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, Options{Path: path})
		got, err := s.MCPServers(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from schema %d: %s", version, diff)
		}
	}
}

// A setting that another version stored is named, unless it is empty. // C19
func TestUnknownSettingsOfAServerAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateMCPServer(t.Context(), org.MCPServer{Org: "a", Name: "s", URL: "http://s"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, _ := openMigrations(t, path)
	execute(t, db, `UPDATE mcp_outbound_servers SET settings = json_set(settings, '$.sandbox', 'strict', '$.quarantine', 'always', '$.later', json('[]'))`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := openStore(t, Options{Path: path}).MCPServers(t.Context(), "a")
	if err != nil || len(got) != 1 || !slices.Equal(got[0].UnknownSettings, []string{"quarantine", "sandbox"}) {
		t.Errorf("%+v, %v", got, err)
	}
}
