package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// scans are statements that may read a whole table, by a part of their text, with the reason.
var scans = map[string]string{
	"FROM webhooks w  WHERE waiting > 0) FROM webhooks": "the metrics sum up all webhooks, of which an org has few",
	"FROM orphaned_runs AS o JOIN runs":                 "there are few, and the planner takes another way when there are many runs",
}

// ofAll are statements that name no org, by a part of their text, with the reason.
var ofAll = map[string]string{
	"FROM owners":                       "owners are processes",
	"UPDATE settings_epoch":             "one row for all orgs",
	"FROM slices\n\t\tWHERE NOT EXISTS": "those of processes that are gone",
	"FROM usage_estimates":              "there is one",

	"FROM files WHERE expires_at > 0": "retention", "FROM shared_lists  WHERE uses = 0": "retention",
	"FROM outbox  WHERE ended_at > 0": "retention", "WHERE expires_at <= $1 ORDER BY expires_at LIMIT": "retention",
	"FROM budgets  WHERE ends_at > 0": "retention", "FROM runs  WHERE status = 'done'": "retention", "FROM forgotten_runs": "retention",
	"FROM deleted_orgs": "retention",

	"FROM hook_messages  WHERE ended_at = 0 AND claimed_until <=": "what any process is to send",
	"FROM webhooks w": "what any process is to send",
	"FROM approvals  WHERE status = 'waiting' ORDER BY":      "at the start of a process, those of its callers",
	"WHERE status = 'waiting' AND expires_at > 0":            "what any process is to end",
	"FROM runs  WHERE status = 'set_aside'":                  "what any process may restore",
	"FROM runs WHERE status = 'running' AND owner = $1":      "the leases of a process",
	"FROM runs  WHERE status = 'queued' GROUP BY":            "the metrics",
	"FROM api_keys ORDER BY":                                 "what a process has in memory",
	"FROM orgs ORDER BY id":                                  "what a process has in memory",
	"FROM mcp_servers_off ORDER BY":                          "what a process has in memory",
	"FROM mcp_outbound_servers ORDER BY":                     "what a process has in memory",
	"CAST('' AS bytea), created_at, updated_at FROM secrets": "what a process has in memory",
	"updated_at FROM webhooks ORDER BY":                      "what a process has in memory",
}

// needed are the indexes that statements must use, by a part of their text.
var needed = map[string]string{
	"FROM runs WHERE status = 'running' AND owner = $1":                            "runs_owner",
	"SELECT min(expires_at) FROM conversations":                                    "conversations_org_expire",
	"SELECT ctid FROM conversations WHERE expires_at <= $1 AND org = $2":           "conversations_org_expire",
	"SELECT ctid FROM tool_cache\n\t\t\tWHERE expires_at <= $1 AND org = $2 LIMIT": "tool_cache_org_expire",
}

// small are tables that do not grow with what the orgs do.
var small = []string{"settings_epoch", "installation", "duties", "replicas", "schema_oldest", "owners", "usage_estimates"}

var (
	argument  = regexp.MustCompile(`\$(\d+)`)
	seqScan   = regexp.MustCompile(`Seq Scan on (\w+)`)
	indexScan = regexp.MustCompile(`Scan using (\w+) on (\w+)`)
	namesOrg  = regexp.MustCompile(`\borg\b[^,]*=|\(org, |\borg IN|WHERE id = `)
)

// checkPlans fails the test for each statement that has no index, or names no org, and no reason for it.
func (k maker) checkPlans(t *testing.T) {
	w := k.watch
	k.watch = nil
	db := k.db(t)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan`); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	texts := slices.Sorted(maps.Keys(w.args))
	w.mu.Unlock()
	partial := rows(t, db, `SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND indexdef LIKE '% WHERE %'`)
	checked, used := 0, map[string]bool{}
	for _, text := range texts {
		verb, _, _ := strings.Cut(strings.TrimSpace(text), " ")
		reads := strings.Contains(text, "FROM ") || verb == "UPDATE"
		if !slices.Contains([]string{"SELECT", "UPDATE", "DELETE", "INSERT", "WITH"}, verb) || !reads {
			continue
		}
		checked++
		plan, err := explain(t.Context(), conn, text)
		if err != nil {
			t.Errorf("%s\n%v", text, err)
			continue
		}
		for _, found := range seqScan.FindAllStringSubmatch(plan, -1) {
			if !slices.Contains(small, found[1]) && !excused(scans, text) {
				t.Errorf("the table %s is read as a whole by\n%s\n%s", found[1], text, plan)
				break
			}
		}
		for _, table := range wholeIndexes(plan, partial) {
			if !slices.Contains(small, table) && !excused(scans, text) && !excused(ofAll, text) {
				t.Errorf("an index of the table %s is read as a whole by\n%s\n%s", table, text, plan)
			}
		}
		for part, index := range needed {
			if strings.Contains(text, part) {
				used[part] = true
				if !strings.Contains(plan, index) {
					t.Errorf("the index %s is not used by\n%s\n%s", index, text, plan)
				}
			}
		}
		if !namesOrg.MatchString(text) && !excused(ofAll, text) {
			t.Errorf("it names no org:\n%s", text)
		}
	}
	for part := range needed {
		if !used[part] {
			t.Errorf("no statement has the text %q", part)
		}
	}
	t.Logf("%d statements", checked)
}

// wholeIndexes returns the tables of which a plan reads an index without a condition. Partial indexes have one.
func wholeIndexes(plan string, partial []string) (tables []string) {
	lines := strings.Split(plan, "\n")
	for i, line := range lines {
		found := indexScan.FindStringSubmatch(line)
		if len(found) > 2 && !slices.Contains(partial, found[1]) && !strings.Contains(lines[i+1], "Index Cond") {
			tables = append(tables, found[2])
		}
	}
	return tables
}

func excused(reasons map[string]string, text string) bool {
	for part := range maps.Keys(reasons) {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// explain returns the generic plan of a statement.
func explain(ctx context.Context, conn *sql.Conn, text string) (string, error) {
	most := 0
	for _, found := range argument.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(found[1])
		most = max(most, n)
	}
	if _, err := conn.ExecContext(ctx, `PREPARE checked AS `+text); err != nil {
		return "", err
	}
	defer func() { _, _ = conn.ExecContext(ctx, `DEALLOCATE checked`) }()
	execute := `EXPLAIN EXECUTE checked`
	if most > 0 {
		execute += `(` + strings.TrimSuffix(strings.Repeat("NULL, ", most), ", ") + `)`
	}
	rows, err := conn.QueryContext(ctx, execute)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return "", err
		}
		fmt.Fprintln(&plan, line)
	}
	return plan.String(), rows.Err()
}

// An org with thousands of queued runs costs a claim no more than one with a few.
func TestPlanOfClaims(t *testing.T) {
	r := newReplicas(t, 1, org.Caps{})
	w := &watcher{}
	s := r.watched(w, org.Caps{})
	const insert = `INSERT INTO runs (org, run_id, principal, surface, grade, model, status, finish_reason, rounds, calls, tokens, epoch,
		next_seq, created_at, updated_at, finished_at, slots)
		SELECT %s, 'run ' || i, 'p', 'chat', 'durable', 'm', '%s', '', 0, 0, 0, 0, 2, i, 0, i, 64 FROM generate_series(1, %d) i`
	postgresExec(r, fmt.Sprintf(insert, `'done ' || i % 100`, "done", 5000))
	postgresExec(r, fmt.Sprintf(insert, `'big'`, "queued", 10_000))
	postgresExec(r, fmt.Sprintf(insert, `'small ' || i / 2`, "queued", 100))
	postgresExec(r, `ANALYZE runs`)
	w.take()
	leases, err := s.Claim(t.Context(), "owner", 64)
	r.ok(err)
	served := map[string]int{}
	for _, l := range leases {
		served[l.Org]++
	}
	if len(served) < 51 || served["big"] > 2 || len(leases) != 64 {
		t.Errorf("%d leases: %v", len(leases), served)
	}
	text := w.seen[slices.IndexFunc(w.seen, func(text string) bool { return strings.HasPrefix(text, "WITH RECURSIVE waiting") })]
	conn, err := r.stores[0].DB().Conn(t.Context())
	r.ok(err)
	defer conn.Close()
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		plan := explainWith(t, conn, mode, text, fmt.Sprintf(`('other', %d, 'small 3', 64)`, r.leases.Load()))
		if strings.Contains(plan, "Seq Scan") || sharedBuffers(plan) > 3000 {
			t.Errorf("%s: %d buffers\n%s", mode, sharedBuffers(plan), plan)
		}
		t.Logf("%s: %d buffers", mode, sharedBuffers(plan))
	}
}

var buffers = regexp.MustCompile(`Buffers: shared hit=(\d+)`)

// sharedBuffers returns how many buffers a statement has read: the first number of its plan.
func sharedBuffers(plan string) int {
	n := 0
	if found := buffers.FindStringSubmatch(plan); found != nil {
		n, _ = strconv.Atoi(found[1])
	}
	return n
}

func explainWith(t *testing.T, conn *sql.Conn, mode, text, args string) string {
	t.Helper()
	if _, err := conn.ExecContext(t.Context(), `SET plan_cache_mode = `+mode+`; PREPARE explained AS `+text); err != nil {
		t.Fatal(err)
	}
	found, err := conn.QueryContext(t.Context(), `EXPLAIN (ANALYZE, BUFFERS) EXECUTE explained `+args)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	var plan strings.Builder
	for found.Next() {
		var line string
		if err := found.Scan(&line); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plan, line)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), `DEALLOCATE explained`); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
