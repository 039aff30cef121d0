package database

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

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
	if err := s.writer.perform(t.Context(), noOrg, func(t *tx) error {
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
