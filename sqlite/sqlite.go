// Package sqlite is a store for the runs of agents in one SQLite file: runs survive a crash of the program,
// and can wait for approvals for days.
//
//	store, err := sqlite.Open("runs.db")
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	agent := &turnpike.Agent{Model: model, Store: store}
//
// [NewSessions] keeps what was said, as conversations that go on: see turnpike.Agent.Session.
//
// One process at a time can open a file. What runs have cost, said and done is in it, so that it is
// readable for its owner only.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// Store is a store in a SQLite file. Several agents may share it. It is safe for concurrent use.
type Store struct {
	inner *database.Store

	mu     sync.Mutex
	before []func() // called by Close before the file is closed
	closed bool

	chains *conversation.Chains
}

// Open opens a file, and creates it if it is missing, with its directory. It fails if another process has
// the file open, or if a later version has written it, or a build before release 0.1, whose file stays
// unchanged. Close the store.
func Open(path string) (*Store, error) {
	inner, err := database.Open(context.Background(), database.Options{Path: path})
	if errors.Is(err, database.ErrLocked) {
		return nil, fmt.Errorf("open %w, or this one has; agents of one process share a Store", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	return &Store{inner: inner, chains: conversation.NewChains(inner, local, clock.Wall)}, nil
}

// Ledger implements turnpike.Store.
func (s *Store) Ledger() ledger.Ledger { return opened{s.inner, s} }

// opened is the store as agents use it.
type opened struct {
	*database.Store
	of *Store
}

// OnClose implements ledger.Ledger.
func (o opened) OnClose(f func()) {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.of.before = append(o.of.before, f)
}

// Close ends the runs that Agent.Start has begun, so that the next process can resume them, and closes the
// file. Other runs must have ended. It may be called more than once.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, f := range s.before {
		f()
	}
	return s.inner.Close()
}
