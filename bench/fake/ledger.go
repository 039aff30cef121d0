package fake

import (
	"encoding/json"
	"net/http"
	"sync"
)

// maxEntries bounds a ledger that nobody takes.
const maxEntries = 100_000

// Ledger collects entries until somebody takes them. As a handler it answers
// with the entries as a JSON array, in the order in which they were added. The
// zero value is empty and ready.
type Ledger[E any] struct {
	mu      sync.Mutex // guards entries
	entries []E
}

// Add adds one entry; beyond 100,000 that nobody took, entries are dropped.
func (l *Ledger[E]) Add(e E) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) < maxEntries {
		l.entries = append(l.entries, e)
	}
}

// Take returns the entries and forgets them.
func (l *Ledger[E]) Take() []E {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.entries
	l.entries = nil
	return taken
}

func (l *Ledger[E]) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	entries := l.Take()
	if entries == nil {
		entries = []E{} // [] and not null
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(entries) // the caller may be gone
}
