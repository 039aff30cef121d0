package toolcache

import (
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// The limits on pending entries. Beyond them new results are not cached.
const (
	maxPending      = 64       // entries
	maxPendingBytes = 16 << 20 // bytes of their values
)

// pending holds entries until they are stored, so that Get finds them immediately.
type pending struct {
	mu      sync.Mutex
	entries map[run.CacheKey]*Entry // the latest of each key
	count   int                     // all pending entries, also replaced ones
	bytes   int                     // of their values
}

// add adds the entry and returns true, or returns false if there is no room.
func (p *pending) add(k run.CacheKey, e *Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count >= maxPending || p.bytes+len(e.Value) > maxPendingBytes {
		return false
	}
	if p.entries == nil {
		p.entries = map[run.CacheKey]*Entry{}
	}
	p.entries[k] = e
	p.count, p.bytes = p.count+1, p.bytes+len(e.Value)
	return true
}

// remove must be called exactly once for each entry that was added.
func (p *pending) remove(k run.CacheKey, e *Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries[k] == e {
		delete(p.entries, k)
	}
	p.count, p.bytes = p.count-1, p.bytes-len(e.Value)
}

// find returns the latest pending entry of the key, or nil.
func (p *pending) find(k run.CacheKey) *Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entries[k]
}
