package sqlite

import (
	"path/filepath"
	"testing"
	"time"
)

// R11: while something waits to be stored, the store says for how long; the
// gateway takes no more work when that is too long.
func TestTheStoreSaysHowFarItIsBehind(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "store.db")})
	if lag := s.Lag(); lag != 0 {
		t.Errorf("a store without work is behind by %v", lag)
	}
	release := hold(t, s)
	second := &write{do: func(*tx) error { return nil }, waits: true}
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
	for end := time.Now().Add(10 * time.Second); s.Lag() != 0; {
		if time.Now().After(end) {
			t.Fatal("it never says that all is stored")
		}
		time.Sleep(time.Millisecond)
	}
}
