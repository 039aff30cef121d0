package sqlite

import (
	"path/filepath"
	"testing"
	"time"
)

// R11: Lag returns how long the oldest write waits. The gateway refuses work if that
// is too long.
func TestLagIsTheAgeOfTheOldestWrite(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "store.db")})
	waitForNoLag(t, s) // the store has work of its own when it opens
	release := blockWriter(t, s)
	second := &write{do: func(*tx) error { return nil }, awaited: true}
	if err := s.writer.submit(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	waited := time.Since(second.since) // the first one, longer
	if lag := s.Lag(); lag < waited {
		t.Errorf("it is behind by %v, want at least %v", lag, waited)
	}
	release()
	if err := second.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitForNoLag(t, s)
}

// waitForNoLag waits until everything is stored.
func waitForNoLag(t *testing.T, s *Store) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); s.Lag() != 0; {
		if time.Now().After(end) {
			t.Fatalf("the store is behind by %v without work", s.Lag())
		}
		time.Sleep(time.Millisecond)
	}
}
