package database

import (
	"encoding/json"
	"math/bits"
	"path/filepath"
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

func TestPartsOfAnInsert(t *testing.T) {
	for n := range 3*insertBatch + 2 {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		var joined []int
		for part := range insertParts(all, insertBatch) {
			if size := len(part); size > insertBatch || bits.OnesCount(uint(size)) != 1 {
				t.Fatalf("of %d elements, a part has %d", n, size)
			}
			joined = append(joined, part...)
		}
		if !slices.Equal(joined, all) {
			t.Fatalf("the parts of %v are %v", all, joined)
		}
	}
}

// Rows of rare kinds are found by an index, and the index has no others. Its condition is part of its
// migration and of the statement, so that a new kind is rare until both change.
func TestRareKindsAreFoundByAnIndex(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Connector: storetest.RecordStatements})
	for _, kind := range audit.Kinds() {
		for range 2 {
			if err := s.Record(t.Context(), "a", audit.Entry{Kind: kind, At: 1, Body: json.RawMessage(`{}`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.SyncAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range audit.Kinds() {
		var sent storetest.Statements
		rows, err := s.AuditRows(sent.Mark(t.Context()), "a", audit.Query{Kind: kind, From: 1})
		if err != nil || len(rows) != 2 {
			t.Fatalf("%s: %d rows, %v", kind, len(rows), err)
		}
		plan, err := list(t.Context(), s.db, func(row scanner) (text string, err error) {
			var n int
			err = row.Scan(&n, &n, &n, &text)
			return text, err
		}, `EXPLAIN QUERY PLAN `+sent.Take()[0], "a", 0, string(kind), 1, 10)
		if err != nil {
			t.Fatal(err)
		}
		want := "SEARCH audit_log USING PRIMARY KEY (org=? AND n>?)"
		if kind.Rare() {
			want = "SEARCH audit_log USING INDEX audit_log_rare (org=? AND kind=? AND n>?)"
		}
		if len(plan) != 1 || plan[0] != want {
			t.Errorf("%s: the plan is %q, want %s", kind, plan, want)
		}
	}
	var indexed, rare int
	for _, kind := range audit.Kinds() {
		if kind.Rare() {
			rare += 2
		}
	}
	if err := s.db.QueryRowContext(t.Context(), `SELECT count(*) FROM audit_log INDEXED BY audit_log_rare WHERE `+rareKinds).Scan(&indexed); err != nil || indexed != rare {
		t.Errorf("the index has %d rows, %v; want %d", indexed, err, rare)
	}
}
