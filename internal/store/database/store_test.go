package database

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/ramdir"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	kit := storeMaker{paths: map[*Store]string{}, clocks: map[*Store]storetest.Clocks{}}
	storetest.Run(t, storetest.Maker{Open: kit.open, Capped: kit.capped, Reopen: kit.reopen, Crash: kit.crash})
}

// storeMaker opens stores for storetest, and remembers how to open them again.
type storeMaker struct {
	paths  map[*Store]string
	clocks map[*Store]storetest.Clocks
}

func sweep(s *Store) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		if _, err := s.DeleteForgotten(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func (k storeMaker) open(t *testing.T, c storetest.Clocks) storetest.Store {
	return k.openAt(t, filepath.Join(ramdir.New(t), "turnpike.db"), c)
}

func (k storeMaker) capped(t *testing.T, c storetest.Clocks, caps org.Caps) storetest.Store {
	t.Helper()
	s := openStore(t, Options{Path: filepath.Join(ramdir.New(t), "turnpike.db"), Now: c.Wall, LeaseNow: c.Leases, Caps: caps})
	return storetest.Store{Orgs: s, Agents: s, Sessions: s, Journal: s, Archive: s, Slices: s, Leases: s, Conversations: s, Results: s, Audit: s, LaterDeleter: s, Sweep: sweep(s), Webhooks: s, Outbox: s, HookMessages: s, Files: s}
}

func (k storeMaker) openAt(t *testing.T, path string, c storetest.Clocks) storetest.Store {
	t.Helper()
	s := openStore(t, Options{Path: path, Now: c.Wall, LeaseNow: c.Leases})
	k.paths[s], k.clocks[s] = path, c
	return storetest.Store{Orgs: s, Agents: s, Sessions: s, Journal: s, Archive: s, Slices: s, Leases: s, Conversations: s, Results: s, Audit: s, LaterDeleter: s, Sweep: sweep(s), Webhooks: s, Outbox: s, HookMessages: s, Files: s}
}

func (k storeMaker) reopen(t *testing.T, old storetest.Store) storetest.Store {
	s := old.Orgs.(*Store)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return k.openAt(t, k.paths[s], k.clocks[s])
}

// crash copies the files as they are on disk now.
func (k storeMaker) crash(t *testing.T, running storetest.Store) storetest.Store {
	s := running.Orgs.(*Store)
	path := filepath.Join(t.TempDir(), "turnpike.db")
	for _, part := range []string{"", "-wal"} {
		data, err := os.ReadFile(k.paths[s] + part)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+part, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return k.openAt(t, path, k.clocks[s])
}

// openStore opens a store that the test's cleanup closes.
func openStore(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// The caps of orgs can be changed while the store is open.
func TestCapsCanBeChanged(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Caps: org.Caps{Secrets: 1}})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	put := func(name string) error {
		return s.PutSecret(t.Context(), org.Secret{Org: "a", Name: name, Sealed: []byte("x")}, org.Author{})
	}
	var capped *org.CapError
	if err := put("one"); err != nil {
		t.Error(err)
	}
	if err := put("two"); !errors.As(err, &capped) {
		t.Errorf("got error %v, want a *org.CapError", err)
	}
	if err := s.SetCaps(t.Context(), org.Caps{Secrets: 2}); err != nil {
		t.Fatal(err)
	}
	if err := put("two"); err != nil {
		t.Error(err)
	}
	if err := s.SetCaps(t.Context(), org.Caps{Secrets: 1}); err != nil {
		t.Fatal(err)
	}
	if err := put("one"); err != nil {
		t.Errorf("replacing a stored secret: %v", err)
	}
	if err := put("three"); !errors.As(err, &capped) || capped.Max != 1 {
		t.Errorf("got error %v, want a *org.CapError", err)
	}
}
