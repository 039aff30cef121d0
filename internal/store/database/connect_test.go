package database

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

// The gates that count statements rely on it.
func TestStatementsOfAMarkedContextAreRecorded(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Connector: storetest.RecordStatements})
	var sent storetest.Statements
	ctx := sent.Mark(t.Context())
	const direct, prepared = `SELECT count(*) FROM orgs`, `SELECT count(*) FROM orgs WHERE id = ?`
	var n int
	if err := s.db.QueryRowContext(ctx, direct).Scan(&n); err != nil {
		t.Fatal(err)
	}
	stmt, err := s.db.PrepareContext(ctx, prepared)
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	for range 2 {
		if err := stmt.QueryRowContext(ctx, "a").Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.QueryRowContext(t.Context(), direct).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if got, want := sent.Take(), []string{direct, prepared, prepared}; !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
	if again := sent.Take(); len(again) != 0 {
		t.Errorf("recorded %q, which was taken already", again)
	}
}
