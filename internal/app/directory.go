package app

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

// Directory is who may do what at the moment: what the file declares and what
// is stored, in memory, so that a request asks no store and takes no lock. Each
// org has a snapshot of its own. A change of the org puts a new one in its
// place; a request that is under way keeps what it began with.
//
//	key ─► keys ─► entry of the org ─► its snapshot ─► caller
//	                      ▲
//	change in the store ─► Reload: one load at a time for each org
type Directory struct {
	store    org.Store
	declared map[string]admin.Declared
	operator [sha256.Size]byte // hash of the operator's key; of nothing when there is none
	hasOp    bool
	pool     *pool
	catalog  *catalog.Catalog
	log      *slog.Logger

	base  context.Context // of loads: a change outlives the request that made it
	stop  context.CancelFunc
	loads sync.WaitGroup

	// keys maps the hash of a key to the *entry of its org. How long a look-up
	// takes depends on the hash of what was sent, which tells nothing about a
	// key: unknown keys and nearly right ones take the same steps.
	keys sync.Map

	mu      sync.Mutex // held for a few steps only, never while the store is asked
	entries map[string]*entry
}

// entry holds the snapshot of one org.
type entry struct {
	id  string
	now atomic.Pointer[snapshot]

	// Guarded by Directory.mu.
	loading bool
	waiting []chan<- error // of the next load; each takes one value without blocking
	again   chan struct{}  // ends a pause after a failed load
}

// snapshot is what an org has. It never changes.
type snapshot struct {
	org     *org.Org
	keys    map[[sha256.Size]byte]org.Principal
	servers []catalog.Server
}

// newDirectory loads all orgs. Orgs that the file declares get a row in the
// store, so that more can be added to them over the API. Close it, also after an
// error.
func newDirectory(ctx context.Context, d *Directory) error {
	d.base, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	d.entries = map[string]*entry{}
	for id, declared := range d.declared {
		if err := d.store.CreateOrg(ctx, declared.Record, org.Author{}); err != nil && !errors.Is(err, org.ErrExists) {
			return fmt.Errorf("org %s: %w", id, err)
		}
	}
	all, err := d.store.Orgs(ctx)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := d.Reload(ctx, r.ID); err != nil {
			return fmt.Errorf("org %s: %w", r.ID, err)
		}
	}
	return nil
}

// close ends loads that are under way and waits for them.
func (d *Directory) close() {
	if d.stop != nil {
		d.stop()
		d.loads.Wait()
	}
}

// Authenticate implements httpd.Directory.
func (d *Directory) Authenticate(key string) (run.Caller, bool) {
	hash := sha256.Sum256([]byte(key))
	p, ok := d.keys.Load(hash)
	if !ok {
		return run.Caller{}, false
	}
	s := p.(*entry).now.Load()
	principal, ok := s.keys[hash]
	if !ok {
		return run.Caller{}, false
	}
	return run.Caller{Org: s.org, Principal: principal, Servers: s.servers}, true
}

// ofOrg returns what an org has now; false for one without a valid key.
func (d *Directory) ofOrg(orgID string) (run.Caller, bool) {
	d.mu.Lock()
	p := d.entries[orgID]
	d.mu.Unlock()
	if p == nil {
		return run.Caller{}, false
	}
	s := p.now.Load()
	return run.Caller{Org: s.org, Servers: s.servers}, len(s.keys) > 0
}

// IsOperator implements httpd.Directory.
func (d *Directory) IsOperator(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return d.hasOp && subtle.ConstantTimeCompare(sum[:], d.operator[:]) == 1
}

// Declared implements admin.Directory.
func (d *Directory) Declared(orgID string) admin.Declared { return d.declared[orgID] }

// ServerStatus implements admin.Directory.
func (d *Directory) ServerStatus(orgID, name string) admin.ServerStatus {
	return d.pool.status(orgID, name)
}

// SecretChanged implements admin.Directory. Connections that were opened with
// the old secret are given up: the server may have tied its session to it, and a
// program has it in its environment.
func (d *Directory) SecretChanged(ctx context.Context, orgID, name string) error {
	d.pool.drop(orgID, secret.Ref(string(secret.Vault)+":"+name))
	return d.Reload(ctx, orgID)
}

// Reload implements admin.Directory: it takes what is stored of the org into
// use. The next request sees it. What fails is tried again until it succeeds,
// also when nobody waits any more.
func (d *Directory) Reload(ctx context.Context, orgID string) error {
	loaded := make(chan error, 1)
	d.ask(orgID, loaded)
	select {
	case err := <-loaded:
		return err
	case <-ctx.Done():
		return fmt.Errorf("org %s: apply a change: %w", orgID, ctx.Err())
	}
}

// ask wants a load of the org that begins from now on, and tells loaded how the
// first one went. Many that ask during a load share the next one.
func (d *Directory) ask(orgID string, loaded chan<- error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.entries[orgID]
	if p == nil {
		p = &entry{id: orgID, again: make(chan struct{}, 1)}
		p.now.Store(&snapshot{})
		d.entries[orgID] = p
	}
	p.waiting = append(p.waiting, loaded)
	if p.loading {
		select {
		case p.again <- struct{}{}:
		default:
		}
		return
	}
	p.loading = true
	d.loads.Go(func() { d.keepLoading(p) })
}

// The pauses after a load that failed.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// keepLoading loads the org until a load has succeeded that began after the last
// one who asked.
func (d *Directory) keepLoading(p *entry) {
	pause := time.Duration(0) // > 0: the last load has failed
	for {
		waiting := d.begin(p, pause > 0)
		if waiting == nil {
			return
		}
		err := d.load(d.base, p)
		for _, loaded := range waiting {
			loaded <- err
		}
		if err == nil {
			if pause > 0 {
				d.log.Info("org change applied", "org", p.id)
			}
			pause = 0
			continue
		}
		if pause == 0 && d.base.Err() == nil {
			d.log.Error("an org change is stored but not applied; the gateway retries", "org", p.id, "error", err)
		}
		if pause = min(max(2*pause, firstPause), longPause); !d.rest(p, pause) {
			return
		}
	}
}

// begin takes those who wait for the next load; nil = there is none to be made,
// and the org's loads have ended.
func (d *Directory) begin(p *entry, owed bool) []chan<- error {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := p.waiting
	p.waiting = nil
	if len(waiting) > 0 || owed {
		return append([]chan<- error{}, waiting...)
	}
	p.loading = false
	if p.now.Load().org == nil { // it was deleted
		delete(d.entries, p.id)
	}
	return nil
}

// rest waits until it is time for another load; false when the directory is
// closed.
func (d *Directory) rest(p *entry, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.again:
	case <-d.base.Done():
		return false
	}
	return true
}

// loadTimeout is how long one load may take.
const loadTimeout = 10 * time.Second

// load puts what is stored of the org into its entry.
func (d *Directory) load(ctx context.Context, p *entry) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	next, err := d.read(ctx, p.id)
	if err != nil {
		return err
	}
	before := p.now.Swap(next)
	for hash := range next.keys {
		if _, known := before.keys[hash]; !known {
			d.keys.Store(hash, p)
		}
	}
	for hash := range before.keys {
		if _, kept := next.keys[hash]; !kept {
			d.keys.CompareAndDelete(hash, p)
		}
	}
	if next.org == nil {
		d.catalog.Remove(p.id)
	}
	return nil
}

// read puts together what the file declares of an org and what is stored. An
// org that is gone has nothing.
func (d *Directory) read(ctx context.Context, orgID string) (*snapshot, error) {
	record, err := d.store.Org(ctx, orgID)
	if errors.Is(err, org.ErrNotFound) {
		d.pool.keep(ctx, orgID, nil, nil)
		return &snapshot{}, nil
	}
	if err != nil {
		return nil, err
	}
	declared := d.declared[orgID]
	if declared.Org {
		record.Features = declared.Record.Features
	}
	refused := ""
	if declared.Runtime {
		record.Runtime = declared.Record.Runtime
	} else if err := refusedRuntime(record); err != nil {
		refused = err.Error()
		d.log.Error("the stored settings of an org need a feature that this version does not have; its requests are rejected", "org", orgID, "error", err)
	}
	keys, err := d.store.Keys(ctx, orgID)
	if err != nil {
		return nil, err
	}
	servers, err := d.store.MCPServers(ctx, orgID)
	if err != nil {
		return nil, err
	}
	secrets, err := d.store.Secrets(ctx, orgID)
	if err != nil {
		return nil, err
	}
	s := &snapshot{
		org: &org.Org{
			ID: orgID, Runtime: record.Runtime, MCPOutbound: slices.Contains(record.Features, config.MCPOutbound), Unsupported: refused,
		},
		keys: make(map[[sha256.Size]byte]org.Principal, len(declared.Keys)+len(keys)),
	}
	for _, k := range slices.Concat(declared.Keys, keys) {
		if k.RevokedAt.IsZero() {
			s.keys[k.Hash] = org.Principal{ID: k.ID, Role: k.Role, Rate: k.Rate}
		}
	}
	s.servers = d.pool.keep(ctx, orgID, slices.Concat(declared.Servers, servers), secrets)
	return s, nil
}
