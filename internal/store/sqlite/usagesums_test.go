package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

func usedRequest(at int64, key, model, user string) audit.Entry {
	return audit.Entry{Kind: audit.KindRequest, At: at, Principal: key, Body: audit.Request{
		Surface: audit.SurfaceRelay, Via: "chat", Provider: "p", Model: model, Target: "t", EndUser: user, Attempts: 1, Status: audit.OK, InputTokens: 5, CostNanoUSD: 7,
	}}
}

// usageOf returns the usage of an org by its names.
func usageOf(t *testing.T, s *Store, orgID string, by ...string) []audit.Usage {
	t.Helper()
	if err := s.SyncAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := audit.AddUsage(t.Context(), orgID, s, audit.UsageQuery{By: by})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A file of schema 13 has only audit rows. The upgrade adds them up, says so before, and has the limits of names.
func TestTheUpgradeAddsUpTheAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	const aDay = 24 * 60 * 60 * 1000
	for i := range 500 {
		e := usedRequest(int64(i)*aDay/100, fmt.Sprint("key", i%3), fmt.Sprint("m", i%4), fmt.Sprint("u", i%5))
		e.RunID = fmt.Sprint("run", i%2)
		switch i % 7 {
		case 0:
			e.Kind, e.Body = audit.KindToolCall, audit.ToolCall{CostNanoUSD: int64(i % 2), Model: "m0", EndUser: "u1"}
		case 1:
			e.Kind, e.Body = audit.KindMCPCall, audit.MCPCall{CostNanoUSD: 3}
		case 2:
			e.Body = audit.Request{Model: "refused"}
		case 3:
			e.Body = audit.Request{Surface: audit.SurfaceAgent, Attempts: 2, OutputTokens: 3, ReasoningTokens: 1, CachedTokens: 1, ToolCalls: 2, GPUMS: 4}
		}
		if err := s.Record(t.Context(), "a", e); err != nil {
			t.Fatal(err)
		}
	}
	all := usageOf(t, s, "a", slices.DeleteFunc(audit.UsageGroups(), func(by string) bool { return by == audit.ByAgent })...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	db, p := openMigrations(t, path)
	if _, err := p.DownTo(t.Context(), usageVersion-1); err != nil {
		t.Fatal(err)
	}
	execute(t, db, `INSERT INTO orgs (id, features, runtime, created_at, updated_at) VALUES ('a', '[]', '{}', 1, 1)`)
	execute(t, db, `INSERT INTO sessions (org, id, agent, principal, pinned, snapshot, created_at, updated_at) VALUES ('a', 's', 'agent_1', 'k', 0, '{}', 1, 1)`)
	execute(t, db, `INSERT INTO session_turns (org, run_id, session, number, version, rounds, reasoning, created_at) VALUES ('a', 'run1', 's', 1, 1, 1, 0, 1)`)
	execute(t, db, `WITH RECURSIVE numbers (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM numbers WHERE value < 20100)
		INSERT INTO audit_log SELECT 'many', value, 5, 'audit_log.request', 'k', '', 'req',
		json_object('attempts', 1, 'end_user', 'u' || (value % 10050), 'model', 'm' || (value % 1005), 'target', 'm' || (value % 1005)), x'' FROM numbers`)
	execute(t, db, `INSERT INTO audit_log VALUES ('many', 20101, 5, 'audit_log.request', 'k', '', 'req', 'erased', x''),
		('many', 20102, 5, 'audit_log.request', 'k', '', 'req', '{"attempts":1}', x'')`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s = openStore(t, Options{Path: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if first, _, _ := strings.Cut(log.String(), "\n"); !strings.Contains(first, "the start waits") || !strings.Contains(first, "rows=20602") {
		t.Errorf("the log begins with %q", first)
	}
	if since, err := s.EstimatedSince(t.Context()); err != nil || time.Since(time.UnixMilli(since)) > time.Hour {
		t.Errorf("estimates are known since %d, %v", since, err)
	}
	by := slices.DeleteFunc(audit.UsageGroups(), func(by string) bool { return by == audit.ByAgent })
	if again := usageOf(t, s, "a", by...); !reflect.DeepEqual(again, all) {
		t.Errorf("the upgrade adds up\n%v\nwant\n%v", again, all)
	}
	agents := usageOf(t, s, "a", audit.ByAgent)
	if len(agents) != 2 || agents[1].Agent != "agent_1" || agents[0].Requests+agents[1].Requests == 0 || agents[1].Requests == 0 {
		t.Errorf("by agent: %+v", agents)
	}
	if total := usageOf(t, s, "many"); len(total) != 1 || total[0].Requests != 20_101 {
		t.Errorf("the sum of many is %+v", total)
	}
	if models := usageOf(t, s, "many", audit.ByModel); len(models) != audit.MaxUsageModels+2 || models[0].Rest != 0 || models[1].Rest != audit.RestModels || models[1].Requests != 100 {
		t.Errorf("%d models, which begin with %+v", len(models), models[:2])
	}
	if rest := restOf(t, s, 0); rest != "many: users true, models true" {
		t.Errorf("the rest is %s", rest)
	}
	span := func() string {
		first, last, err := s.UsageSpan(t.Context(), "many", 0)
		return fmt.Sprint(first, " ", last, " ", err)
	}
	if got := span(); got != "1 20102 <nil>" {
		t.Errorf("the rows of the day are %s", got)
	}
}

func restOf(t *testing.T, s *Store, day int64) string {
	t.Helper()
	found, err := s.UsageRest(t.Context(), day)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, u := range found {
		out = append(out, fmt.Sprintf("%s: users %t, models %t", u.Org, u.Users, u.Models))
	}
	return strings.Join(out, "; ")
}

func TestEndUsersBeyondTheLimitAreOneSum(t *testing.T) {
	var log bytes.Buffer
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := s.writer.perform(t.Context(), func(t *tx) error {
		_, err := t.exec(`INSERT INTO usage_days (org, day, end_users, models) VALUES ('a', 0, ?, 0)`, audit.MaxUsageUsers-1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // in two transactions: some names are known in the second
		for _, user := range []string{"last", "late", "", "later", "last"} {
			if err := s.Record(t.Context(), "a", usedRequest(1, "k", "m", user)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SyncAudit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, u := range usageOf(t, s, "a", audit.ByEndUser) {
		got = append(got, fmt.Sprint(u.EndUser, u.Rest.Names([]string{audit.ByEndUser}), u.Requests))
	}
	if want := "[] 2, [end_user] 4, last[] 4"; strings.Join(got, ", ") != want {
		t.Errorf("the sums are %q, want %s", got, want)
	}
	if rest := restOf(t, s, 0); rest != "a: users true, models false" {
		t.Errorf("the rest is %s", rest)
	}
	if n := strings.Count(log.String(), "too many names"); n != 1 {
		t.Errorf("the log says it %d times:\n%s", n, log.String())
	}
}

// Gate: the usage of whole days reads sums only, with one statement. A part of a day reads the span of its
// rows, whether they were deleted, and a page for each kind.
func TestUsageOfWholeDaysTakesOneStatement(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Connector: storetest.RecordStatements})
	const aDay = 24 * 60 * 60 * 1000
	for i := range int64(3000) {
		if err := s.Record(t.Context(), "a", usedRequest(i*aDay/100, "k", "m", "")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SyncAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sent storetest.Statements
	for _, tt := range []struct {
		from, to         int64
		statements, rows int // rows: of parts of days, and the oldest row
		requests         int64
	}{
		{0, 0, 1, 0, 3000},
		{aDay, 20 * aDay, 1, 0, 1900},
		{aDay/2 + 1, 20 * aDay, 6, 50, 1949},
		{aDay, 20*aDay + aDay/2, 6, 51, 1950},
		{aDay + aDay/4, aDay + aDay/2, 5, 26, 25},
	} {
		rows := &countedRows{Store: s}
		all, err := audit.AddUsage(sent.Mark(t.Context()), "a", rows, audit.UsageQuery{From: tt.from, To: tt.to, By: []string{audit.ByKey}})
		if err != nil || len(all) != 1 || all[0].Requests != tt.requests {
			t.Errorf("from %d to %d: %+v, %v; want %d requests", tt.from, tt.to, all, err, tt.requests)
		}
		if n := len(sent.Take()); n != tt.statements || rows.rows != tt.rows {
			t.Errorf("from %d to %d: %d statements and %d audit rows, want %d and %d", tt.from, tt.to, n, rows.rows, tt.statements, tt.rows)
		}
	}
}

// countedRows counts the audit rows that are read.
type countedRows struct {
	*Store
	rows int
}

func (c *countedRows) AuditRows(ctx context.Context, orgID string, q audit.Query) ([]audit.Row, error) {
	rows, err := c.Store.AuditRows(ctx, orgID, q)
	c.rows += len(rows)
	return rows, err
}
