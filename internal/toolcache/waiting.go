package toolcache

import (
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// The bounds of what waits for the store. A store that is further behind is not
// burdened with more.
const (
	maxWaiting      = 64       // entries
	maxWaitingBytes = 16 << 20 // of their values
)

// waiting holds entries until they are stored, so that a result can be used from
// the moment on when it is there.
type waiting struct {
	mu      sync.Mutex
	entries map[run.CacheKey]*Entry // the last of each key
	count   int                     // of all, also those that another of their key has followed
	bytes   int
}

// add reports whether there was room.
func (w *waiting) add(k run.CacheKey, e *Entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= maxWaiting || w.bytes+len(e.Value) > maxWaitingBytes {
		return false
	}
	if w.entries == nil {
		w.entries = map[run.CacheKey]*Entry{}
	}
	w.entries[k] = e
	w.count, w.bytes = w.count+1, w.bytes+len(e.Value)
	return true
}

// remove is called once for each entry that was added.
func (w *waiting) remove(k run.CacheKey, e *Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entries[k] == e {
		delete(w.entries, k)
	}
	w.count, w.bytes = w.count-1, w.bytes-len(e.Value)
}

func (w *waiting) find(k run.CacheKey) *Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entries[k]
}
