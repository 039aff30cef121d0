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
)

// scans are statements that may read a whole table, by a part of their text, with the reason.
var scans = map[string]string{
	"FROM webhooks w  WHERE waiting > 0) FROM webhooks": "the metrics sum up all webhooks, of which an org has few",
}

// ofAll are statements that name no org, by a part of their text, with the reason.
var ofAll = map[string]string{
	"FROM owners": "owners are processes", "DELETE FROM owners": "owners are processes", "FROM slices WHERE NOT EXISTS": "those of processes that are gone",
	"FROM usage_estimates": "there is one", "SELECT min(expires_at) FROM conversations": "whether anything has expired",

	"FROM files WHERE expires_at > 0": "retention", "FROM shared_lists  WHERE uses = 0": "retention",
	"FROM outbox  WHERE ended_at > 0": "retention", "WHERE expires_at <= $1 ORDER BY expires_at LIMIT": "retention",
	"FROM budgets  WHERE ends_at > 0": "retention", "FROM runs  WHERE status = 'done'": "retention", "FROM forgotten_runs": "retention",
	"FROM deleted_orgs": "retention",

	"FROM hook_messages  WHERE ended_at = 0 AND claimed_until <=": "what any process is to send", "FROM webhooks w": "what any process is to send",
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

// small are tables that do not grow with what the orgs do.
var small = []string{"settings_epoch", "installation", "duties", "replicas", "schema_oldest", "owners", "usage_estimates"}

var (
	argument = regexp.MustCompile(`\$(\d+)`)
	seqScan  = regexp.MustCompile(`Seq Scan on (\w+)`)
	namesOrg = regexp.MustCompile(`\borg\b[^,]*=|\(org, |\borg IN|WHERE id = `)
)

// checkPlans fails the test for each statement that has no index, or names no org, and no reason for it.
func (k maker) checkPlans(t *testing.T, w *watcher) {
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
	checked := 0
	for _, text := range texts {
		verb, _, _ := strings.Cut(strings.TrimSpace(text), " ")
		if !slices.Contains([]string{"SELECT", "UPDATE", "DELETE", "INSERT", "WITH"}, verb) || !strings.Contains(text, " FROM ") && verb != "UPDATE" {
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
		lines := strings.Split(plan, "\n")
		for i, line := range lines {
			if strings.Contains(line, "Scan using") && !strings.Contains(lines[i+1], "Index Cond") {
				t.Logf("WHOLE %s\n%s", text, plan)
				break
			}
		}
		if !namesOrg.MatchString(text) && !excused(ofAll, text) {
			t.Errorf("it names no org:\n%s", text)
		}
	}
	t.Logf("%d statements", checked)
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
