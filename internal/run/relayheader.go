package run

import (
	"slices"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/header"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// dropHeaders removes the fields of the client's header that the target does not get. The
// log names each once for each key, without its value.
func (m *modelCaller) dropHeaders(a loop.CallModel) {
	fields, allowed, key := m.run.req.Raw.Header, m.run.req.Targets[a.Target].RelayHeaders, m.run.req.Principal
	for name := range fields {
		if header.Usual(name) || slices.Contains(allowed, name) {
			continue
		}
		delete(fields, name)
		shown := name[:min(len(name), longestDropped)]
		switch first, last := m.dropped.note(key, shown); {
		case last:
			m.providerLog(a).Warn("relay_headers_unreported", "principal", key, "limit", maxDropped, "limit_per_key", maxDroppedOfKey)
		case first:
			m.providerLog(a).Warn("relay_header_dropped", "header", shown, "principal", key,
				"remedy", "if the provider needs it, add it to relay_headers of the provider")
		}
	}
}

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
