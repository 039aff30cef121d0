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
var scans = map[string]string{}

// ofAll are statements that name no org, by a part of their text, with the reason.
var ofAll = map[string]string{}

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
