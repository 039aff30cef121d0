// Package sqlitetest opens SQLite stores for the tests of other packages.
package sqlitetest

import (
	"path/filepath"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/ramdir"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// Open returns an empty store in RAM; o.Path is ignored. The store is closed when the test ends. It works in the bubble of
// a synctest.Test too, but checks its files four times a second: each day that a bubble sleeps takes about two seconds.
func Open(t testing.TB, o database.Options) *database.Store {
	t.Helper()
	o.Path = filepath.Join(ramdir.New(t), "turnpike.db")
	s, err := database.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return s
}
