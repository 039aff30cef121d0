package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/toolcache"
)

// results are the cached tool results of an org.
type results struct {
	byName map[toolcache.Name]toolcache.Entry
	order  []toolcache.Name // oldest first
	bytes  int64            // of all values
}

// CachedResult implements toolcache.Store.
func (o *Orgs) CachedResult(_ context.Context, orgID string, name toolcache.Name) (*toolcache.Entry, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.orgs[orgID]
	if !ok {
		return nil, nil
	}
	e, ok := r.results.byName[name]
	if !ok {
		return nil, nil
	}
	e.MAC = bytes.Clone(e.MAC)
	return &e, nil
}

// KeepResult implements toolcache.Store. It calls done before it returns.
func (o *Orgs) KeepResult(orgID string, e toolcache.Entry, b toolcache.Bounds, done func(error)) {
	done(o.keep(orgID, e, b))
}

func (o *Orgs) keep(orgID string, e toolcache.Entry, b toolcache.Bounds) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(orgID)
	if err != nil {
		return fmt.Errorf("result of a tool: %w", err)
	}
	e.MAC = bytes.Clone(e.MAC)
	r.results.keep(e, b)
	return nil
}

// DropResult implements toolcache.Store.
func (o *Orgs) DropResult(orgID string, e toolcache.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.orgs[orgID]
	if ok && bytes.Equal(r.results.byName[e.Name].MAC, e.MAC) {
		r.results.drop(func(name toolcache.Name) bool { return name == e.Name })
	}
}

// keep stores e and then drops the oldest entries until the bounds hold. Expired
// entries are dropped first.
func (r *results) keep(e toolcache.Entry, b toolcache.Bounds) {
	if r.byName == nil {
		r.byName = map[toolcache.Name]toolcache.Entry{}
	}
	r.drop(func(name toolcache.Name) bool { return name == e.Name || r.byName[name].ExpiresAt <= e.KeptAt })
	r.byName[e.Name] = e
	r.order = append(r.order, e.Name)
	r.bytes += int64(len(e.Value))
	r.drop(func(toolcache.Name) bool { return len(r.byName) > b.Entries || r.bytes > b.Bytes })
}

// drop removes the entries for which gone returns true. It asks from the oldest to
// the newest.
func (r *results) drop(gone func(toolcache.Name) bool) {
	r.order = slices.DeleteFunc(r.order, func(name toolcache.Name) bool {
		if !gone(name) {
			return false
		}
		r.bytes -= int64(len(r.byName[name].Value))
		delete(r.byName, name)
		return true
	})
}
