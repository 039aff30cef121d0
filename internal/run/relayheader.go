package run

import (
	"sync"
)

// The limits of droppedHeaders: what clients invent must not fill the memory or the log.
const (
	maxDropped      = 4096 // names in all
	maxDroppedOfKey = 64   // names of one key
	longestDropped  = 128  // bytes of a name
)

// droppedHeaders remembers which fields the log has named. The zero value is empty.
type droppedHeaders struct {
	mu    sync.Mutex
	named map[string]map[string]bool // by key and name
	count int
}

// note reports whether the field is to be named: it is the first of its name and key. last
// means that the key has reached a limit just now, and that no more of its fields are named.
func (d *droppedHeaders) note(key, name string) (first, last bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.named[key]
	if of[name] || len(of) > maxDroppedOfKey || d.count > maxDropped {
		return false, false
	}
	if d.named == nil {
		d.named = map[string]map[string]bool{}
	}
	if of == nil {
		of = map[string]bool{}
		d.named[key] = of
	}
	of[name] = true
	d.count++
	return true, len(of) > maxDroppedOfKey || d.count > maxDropped
}
