package admin_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

var isUUIDv7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// Three rounds with four calls, found again by request id.
func TestTheAuditTellsOfEveryRoundAndEveryCall(t *testing.T) { // L01 L02 L05 L13 C23
	NoLeaks(t)
	data := NewData(t)
	tools := NewMCP(t, map[string]Handler{
		"echo": func(_ context.Context, text string) (string, error) { return text, nil },
		"fail": func(context.Context, string) (string, error) { return "", fmt.Errorf("not today") },
	}, "echo")
	up := NewUpstream(t, Script(
		Asks(Use("echo", `{"text":"a"}`), Use("fail", `{}`), Use("nothing", `{}`)),
		Asks(Use("echo", `{"text":"a"}`)),
		Says("done"),
	))
	s := Site{Upstream: up.URL, Runtime: "tool_cache_ttl_seconds: 60", Servers: []string{Server("s", tools.URL)}}
	g := MustRunIn(t, data, s.Yaml(), Environment())
	a := g.Post(Question)
	runID := a.Header.Get("Turnpike-Run-Id")
	d := Manage(g)
	page := d.Do("GET", "/api/audit?run_id="+runID, "owner-key", "", 200)
	var rounds, calls []map[string]any
	for _, row := range page["data"].([]any) {
		row := row.(map[string]any)
		if row["agent_run_id"] != id.UUID(runID) {
			t.Errorf("a row of another run: %v", row)
		}
		body := row["body"].(map[string]any)
		body["request_id"] = row["request_id"]
		switch row["kind"] {
		case "audit_log.request":
			rounds = append(rounds, body)
		case "audit_log.agent.tool_call":
			calls = append(calls, body)
		default:
			t.Errorf("a row of the kind %v", row["kind"])
		}
	}
	if len(rounds) != 3 || len(calls) != 4 {
		t.Fatalf("%d rounds and %d calls are in the audit, want 3 and 4: %v", len(rounds), len(calls), page)
	}
	for i, r := range rounds {
		request := id.UUID(runID)
		if i > 0 {
			request = id.UUID(fmt.Sprintf("%s.%d", runID, i))
		}
		if latency, _ := r["latency_ms"].(float64); !isUUIDv7.MatchString(request) || latency <= 0 {
			t.Errorf("round %d took %v ms", i, r["latency_ms"])
		}
		if r["surface"] != "agent" || r["via"] != "chat" || r["round_index"] != float64(i) || r["tool_call_index"] != nil || r["status"] != "ok" || r["request_id"] != request {
			t.Errorf("round %d: %v", i, r)
		}
	}
	want := []string{"0.0 echo s ok 1", "0.1 fail s error 1", "0.2 nothing  error 0", "1.0 echo s cached 0"}
	got := map[string]bool{}
	for _, c := range calls {
		if executed := c["attempts"] != float64(0); executed != (c["latency_ms"].(float64) > 0) || c["agent_run_id"] != id.UUID(runID) {
			t.Errorf("%v", c)
		}
		got[fmt.Sprintf("%v.%v %v %v %v %v", c["round_index"], c["tool_call_index"], c["tool"], c["server_id"], c["status"], c["attempts"])] = true
	}
	for _, w := range want {
		if !got[w] {
			t.Errorf("no row says %q: %v", w, got)
		}
	}
	for _, second := range []string{runID + ".1", id.UUID(runID + ".1")} {
		one := d.Do("GET", "/api/audit?request_id="+second, "admin-key", "", 200)["data"].([]any)
		if len(one) != 2 { // the round and its call
			t.Errorf("the second round's request %s has %d rows, want 2", second, len(one))
		}
	}
	if rows := d.Do("GET", "/api/audit?run_id="+id.UUID(runID), "owner-key", "", 200)["data"].([]any); len(rows) != 7 {
		t.Errorf("by its UUID the run has %d rows, want 7", len(rows))
	}
	if rows := d.Do("GET", "/api/audit?key_id=nobody", "owner-key", "", 200)["data"].([]any); len(rows) > 0 {
		t.Errorf("nobody's key has rows: %v", rows)
	}
	d.Do("GET", "/api/audit?form=x", "owner-key", "", 400)
	d.Do("GET", "/api/audit?kind=audit_log.tool_call", "owner-key", "", 400)
	d.Do("GET", "/api/audit?kind=audit_log.request&kind=audit_log.restore", "owner-key", "", 400)
	d.Do("GET", "/api/audit?from=yesterday", "owner-key", "", 400)
	d.Do("GET", "/api/audit?limit=201", "owner-key", "", 400)
	d.Do("GET", "/api/audit", "member-key", "", 403)
	first := d.Do("GET", "/api/audit?limit=3", "owner-key", "", 200)
	rest := d.Do("GET", fmt.Sprintf("/api/audit?after=%v", first["next"]), "owner-key", "", 200)
	if n := len(first["data"].([]any)) + len(rest["data"].([]any)); n != 7 || rest["next"] != nil {
		t.Errorf("page by page there are %d rows, want 7", n)
	}
	status, out := AuditNow(t, data, "list", "--org", "o", "--request", runID+".1")
	if status != 0 || strings.Count(out, "\n") != 3 || !strings.Contains(out, "cached") {
		t.Errorf("audit list: %d\n%s", status, out)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile(`org o: 7 rows, rows 1 to 7, \d+ checkpoints?, signed up to row 7: ok`) // one for each interval
	if status, out = AuditNow(t, data, "verify"); status != 0 || !whole.MatchString(out) {
		t.Errorf("audit verify: %d\n%s", status, out)
	}
}

// What is passed on leaves one row, whatever became of it.
func TestARelayLeavesOneRow(t *testing.T) { // L01 A03
	NoLeaks(t)
	data := NewData(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if got.Number > 0 {
			http.Error(w, `{"error":{"message":"slow down"}}`, http.StatusTooManyRequests)
			return
		}
		Says("hello").Write(w)
	})
	g := MustRunIn(t, data, Site{Upstream: up.URL}.Yaml(), Environment())
	ids := []string{}
	for range 2 {
		ids = append(ids, g.Post(Question).Header.Get("Turnpike-Request-Id"))
	}
	d := Manage(g)
	for i, want := range []string{"ok 200", "failed 429"} {
		if !strings.HasPrefix(ids[i], "req_") {
			t.Fatalf("the answer names no request: %q", ids)
		}
		var rows []any
		for end := time.Now().Add(Patience); len(rows) == 0 && time.Now().Before(end); { // it is written a little later
			rows = d.Do("GET", "/api/audit?request_id="+ids[i], "owner-key", "", 200)["data"].([]any)
		}
		row := rows[0].(map[string]any)
		body := row["body"].(map[string]any)
		if got := fmt.Sprint(body["status"], " ", body["http_status"]); got != want || body["surface"] != "relay" || row["agent_run_id"] != nil || body["bytes"].(float64) == 0 {
			t.Errorf("relay %d: %v, want %s", i, row, want)
		}
	}
}

// A tool that is left out because of its name is in the audit once, however
// many runs share the list. // D03
func TestANameCollisionIsInTheAudit(t *testing.T) {
	NoLeaks(t)
	echo := map[string]Handler{"echo": func(_ context.Context, text string) (string, error) { return text, nil }}
	one, two := NewMCP(t, echo), NewMCP(t, echo)
	up := NewUpstream(t, Script(Says("done"), Says("done")))
	s := Site{Upstream: up.URL, Servers: []string{Server("one", one.URL), Server("two", two.URL)}}
	data := NewData(t)
	g := MustRunIn(t, data, s.Yaml(), Environment())
	runID := g.Post(Question).Header.Get("Turnpike-Run-Id")
	g.Post(Question)
	rows := Manage(g).Do("GET", "/api/audit?kind="+string(audit.KindCollision), "owner-key", "", 200)["data"].([]any)
	want := map[string]any{"agent_run_id": id.UUID(runID), "tool": "echo", "server_id": "two", "kept_from": "one"}
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1: %v", len(rows), rows)
	}
	if row := rows[0].(map[string]any); !maps.Equal(row["body"].(map[string]any), want) || row["agent_run_id"] != id.UUID(runID) {
		t.Errorf("%v, want %v", row, want)
	}
	var out bytes.Buffer
	cli.Main(t.Context(), cli.Process{Args: []string{"runs", "show", runID, "--org", "o", "--data", data}, Env: func(string) (string, bool) { return "", false }, Stdout: &out, Stderr: &out})
	if !strings.Contains(out.String(), "echo is left out: one has a tool of that name") {
		t.Errorf("runs show does not tell:\n%s", out.String())
	}
}

// L11
func TestAnExportEndsWithItsChecksum(t *testing.T) {
	NoLeaks(t)
	data := filledAudit(t, 2500)
	status, out := AuditNow(t, data, "export", "--org", "o")
	lines := strings.SplitAfter(strings.TrimSuffix(out, "\n"), "\n")
	last := lines[len(lines)-1]
	var trailer audit.Trailer
	if err := json.Unmarshal([]byte(last), &trailer); err != nil || status != 0 {
		t.Fatalf("%d, %v: %s", status, err, last)
	}
	sum := sha256.Sum256([]byte(strings.Join(lines[:len(lines)-1], "")))
	if trailer.SHA256 != hex.EncodeToString(sum[:]) || trailer.Rows != 2500 || trailer.First != 1 || trailer.Last != 2500 || len(lines) != 2501 {
		t.Errorf("%+v, %d lines", trailer, len(lines))
	}
	var row audit.RowView
	if err := json.Unmarshal([]byte(lines[0]), &row); err != nil || row.Number != 1 || row.Kind != audit.KindToolCall || len(row.Hash) != 64 {
		t.Errorf("%v, %s", err, lines[0])
	}
	g := MustRunIn(t, data, Site{Upstream: "http://127.0.0.1:9"}.Yaml(), Environment())
	over := g.Send("GET", "/api/audit/export?from="+url.QueryEscape("2020-01-01T00:00:00Z"), nil, "Authorization", "Bearer owner-key")
	if over.Status != 200 || over.Header.Get("Content-Type") != "application/x-ndjson" || string(over.Body) != out {
		t.Errorf("over the API: %d, %d bytes, want %d", over.Status, len(over.Body), len(out))
	}
}

// filledAudit makes a data directory whose org o has so many rows, with signed
// checkpoints in both places.
func filledAudit(t *testing.T, rows int) string {
	t.Helper()
	data := NewData(t)
	store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(data, app.DatabaseFile), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.AddOrgs(t.Context(), []org.Record{{ID: "o"}}); err != nil {
		t.Fatal(err)
	}
	key, err := audit.LoadOrCreateKey(filepath.Join(data, app.AuditKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	keeper := audit.NewKeeper(audit.KeeperOptions{Log: store, Key: key, Witness: audit.Witness{Path: filepath.Join(data, app.CheckpointsFile)}.Add})
	for n := range rows {
		e := audit.Entry{Kind: audit.KindToolCall, At: 1_700_000_000_000 + int64(n), Principal: "k", RequestID: fmt.Sprint("r", n), Body: audit.ToolCall{Tool: "t", Round: n}}
		if err := store.Record(t.Context(), "o", e); err != nil {
			t.Fatal(err)
		}
	}
	barrier := audit.Checkpoint{Org: "none", Number: 0}.Sign(key)
	if err := store.AddCheckpoint(t.Context(), barrier); err != nil { // everything before it is written
		t.Fatal(err)
	}
	keeper.Start()
	if err := keeper.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return data
}

// One row of 10,000 is altered, deleted, moved or cut off, and named. // P09
func TestWhoeverChangesARowIsFound(t *testing.T) {
	if RaceDetector {
		t.Log("10,000 rows are checked without the race detector: nothing here runs at the same time")
		return
	}
	NoLeaks(t)
	const rows = 10_000
	whole := filledAudit(t, rows)
	if status, out := AuditNow(t, whole, "verify"); status != 0 || !strings.Contains(out, "org o: 10000 rows, rows 1 to 10000") || !strings.Contains(out, ": ok") {
		t.Fatalf("before: %d\n%s", status, out)
	}
	for _, tt := range []struct {
		name       string
		statements []string
		want       []string
	}{
		{"a body", []string{`UPDATE audit_log SET body = replace(body, 't', 'u') WHERE n = 4711`}, []string{"row 4711: changed"}},
		{"a time", []string{`UPDATE audit_log SET at = at + 1 WHERE n = 1`}, []string{"row 1: changed"}},
		{"a key", []string{`UPDATE audit_log SET principal = 'z' WHERE n = 9999`}, []string{"row 9999: changed"}},
		{"a request", []string{`UPDATE audit_log SET request_id = 'z' WHERE n = 10000`}, []string{"row 10000: changed"}},
		{"a kind", []string{`UPDATE audit_log SET kind = 'z' WHERE n = 17`}, []string{"row 17: changed"}},
		{"a hash", []string{`UPDATE audit_log SET hash = zeroblob(32) WHERE n = 17`}, []string{"rows 17 to 18: changed"}},
		{"a row is deleted", []string{`DELETE FROM audit_log WHERE n = 5000`}, []string{"row 5000: missing"}},
		{"the first row is deleted", []string{`DELETE FROM audit_log WHERE n = 1`}, []string{"row 1: missing"}},
		{"a stretch is deleted", []string{`DELETE FROM audit_log WHERE n BETWEEN 10 AND 20`}, []string{"rows 10 to 20: missing"}},
		{"deleted, and the rest moved up", []string{
			`DELETE FROM audit_log WHERE n = 5000`, `UPDATE audit_log SET n = -n WHERE n > 5000`, `UPDATE audit_log SET n = -n - 1 WHERE n < 0`},
			[]string{"rows 5000 to 9999: changed", "row 10000: missing: removed from the end"}},
		{"two rows are swapped", []string{
			`UPDATE audit_log SET n = 0 WHERE n = 30`, `UPDATE audit_log SET n = 30 WHERE n = 40`, `UPDATE audit_log SET n = 40 WHERE n = 0`},
			[]string{"rows 30 to 31: changed", "rows 40 to 41: changed"}},
		{"the end is cut off", []string{`DELETE FROM audit_log WHERE n = 10000`}, []string{"row 10000: missing: removed from the end"}},
		{"the end and its checkpoint", []string{`DELETE FROM audit_log WHERE n > 9000`, `DELETE FROM audit_checkpoints`}, []string{"rows 9001 to 10000: missing: removed from the end"}},
		{"everything", []string{`DELETE FROM audit_log`, `DELETE FROM audit_checkpoints`}, []string{"rows 1 to 10000: missing: removed from the end"}},
		{"a removal that nobody signed", []string{
			`DELETE FROM audit_log WHERE n <= 100`, `INSERT INTO audit_checkpoints SELECT org, 100, 1, at, zeroblob(32), zeroblob(64) FROM audit_checkpoints WHERE org = 'o'`},
			[]string{"row 100: the record of a deletion: the signature", "rows 1 to 100: missing"}},
		{"a row is put in", []string{
			`UPDATE audit_log SET n = -n WHERE n > 50`, `UPDATE audit_log SET n = -n + 1 WHERE n < 0`,
			`INSERT INTO audit_log SELECT org, 51, at, kind, principal, run_id, 'more', body, hash FROM audit_log WHERE n = 50`},
			[]string{"rows 51 to 10000: changed", "row 10000: differs from the checkpoint", "row 10001: changed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := NewData(t)
			for _, name := range []string{app.DatabaseFile, app.AuditKeyFile, app.CheckpointsFile} {
				text, err := os.ReadFile(filepath.Join(whole, name))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(data, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ChangeStore(t, data, tt.statements...)
			status, out := AuditNow(t, data, "verify")
			if status != 1 {
				t.Errorf("the status is %d, want 1", status)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, "org o, "+want) {
					t.Errorf("verify does not say %q:\n%s", want, out)
				}
			}
			if strings.Count(out, "\n") > len(tt.want)+2 {
				t.Errorf("verify says more than was done:\n%s", out)
			}
		})
	}
}

// What the flags choose is never more or less than was asked for.
func TestFlagsThatChooseNoRowsAreRejected(t *testing.T) {
	data := filledAudit(t, 3)
	for _, tt := range []struct {
		flags  []string
		status int
		want   string
	}{
		{[]string{"--kind", "agent.tool_call", "--limit", "2"}, 0, "2  "},
		{[]string{"--kind", string(audit.KindToolCall), "--limit", "1000"}, 0, "3  "},
		{[]string{"--kind", "tool_call"}, 1, "--kind: unknown kind"},
		{[]string{"--limit", "0"}, 1, "--limit: 0 is out of range (1..1000)"},
		{[]string{"--limit", "1001"}, 1, "--limit: 1001 is out of range (1..1000)"},
		{[]string{"--from", "2026-11-21"}, 1, `--from: "2026-11-21" is not a valid time`},
		{[]string{"--to", "soon"}, 1, `--to: "soon" is not a valid time`},
	} {
		if status, out := AuditNow(t, data, append([]string{"list", "--org", "o"}, tt.flags...)...); status != tt.status || !strings.Contains(out, tt.want) {
			t.Errorf("%q: status %d, want %d and %q:\n%s", tt.flags, status, tt.status, tt.want, out)
		}
	}
}

// Rows of which no checkpoint speaks fit together, and that is all that can be
// said of them. // P09
func TestRowsThatNobodySignedAreNotVerified(t *testing.T) {
	NoLeaks(t)
	data := filledAudit(t, 20)
	ChangeStore(t, data, `DELETE FROM audit_checkpoints`)
	checkpoints := filepath.Join(data, app.CheckpointsFile)
	signed, err := os.ReadFile(checkpoints)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(checkpoints); err != nil {
		t.Fatal(err)
	}
	status, out := AuditNow(t, data, "verify")
	if status != 3 || !strings.Contains(out, "org o: 20 rows, rows 1 to 20, 0 checkpoints") || !strings.Contains(out, "NOT VERIFIED") || strings.Contains(out, ": ok") {
		t.Errorf("no checkpoint: status %d\n%s", status, out)
	}
	if err := os.WriteFile(checkpoints, append([]byte(strings.Repeat("x", 100_000)+"\n"), signed...), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out = AuditNow(t, data, "verify")
	if status != 0 || !strings.Contains(out, app.CheckpointsFile+", line 1: not a checkpoint: longer than 65536 bytes\n") || !strings.Contains(out, "signed up to row 20: ok") {
		t.Errorf("a line that is too long: status %d\n%s", status, out)
	}
	ChangeStore(t, data, `UPDATE audit_log SET body = '{}' WHERE n = 20`)
	if status, out = AuditNow(t, data, "verify"); status != 1 {
		t.Errorf("a row that was changed: status %d\n%s", status, out)
	}
}
