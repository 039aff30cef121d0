package app

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

// Directory is who may do what at the moment: what the file declares and what
// is stored, in memory, so that a request asks no store. A change makes a new
// table and puts it in the old one's place; a request that is under way keeps
// what it began with.
type Directory struct {
	store    org.Store
	declared map[string]admin.Declared
	operator [sha256.Size]byte // hash of the operator's key; of nothing when there is none
	hasOp    bool
	pool     *pool
	catalog  *catalog.Catalog

	changing sync.Mutex // one change at a time
	now      atomic.Pointer[table]
}

// table maps the hashes of keys to callers. How long a look-up takes depends on
// the hash of what was sent, which tells nothing about a key: unknown keys and
// nearly right ones take the same steps.
type table map[[sha256.Size]byte]run.Caller

// newDirectory builds the table of all orgs. Orgs that the file declares get a
// row in the store, so that more can be added to them over the API.
func newDirectory(ctx context.Context, d *Directory) error {
	for id, declared := range d.declared {
		if err := d.store.CreateOrg(ctx, declared.Record); err != nil && !errors.Is(err, org.ErrExists) {
			return fmt.Errorf("org %s: %w", id, err)
		}
	}
	d.now.Store(&table{})
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

// Authenticate implements httpd.Directory.
func (d *Directory) Authenticate(key string) (run.Caller, bool) {
	caller, ok := (*d.now.Load())[sha256.Sum256([]byte(key))]
	return caller, ok
}

// ofOrg returns what an org has now; false for one without a valid key.
func (d *Directory) ofOrg(orgID string) (run.Caller, bool) {
	for _, caller := range *d.now.Load() {
		if caller.Org.ID == orgID {
			return caller, true
		}
	}
	return run.Caller{}, false
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
// use. The next request sees it.
func (d *Directory) Reload(ctx context.Context, orgID string) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	caller, keys, err := d.load(ctx, orgID)
	if err != nil {
		return err
	}
	next := table{}
	for hash, c := range *d.now.Load() {
		if c.Org.ID != orgID {
			next[hash] = c
		}
	}
	for _, k := range keys {
		if k.RevokedAt.IsZero() {
			caller.Principal = org.Principal{ID: k.ID, Role: k.Role, Rate: k.Rate}
			next[k.Hash] = caller
		}
	}
	d.now.Store(&next)
	d.catalog.Forget(orgID)
	return nil
}

// load puts together what the file declares of an org and what is stored. An
// org that is gone has no keys.
func (d *Directory) load(ctx context.Context, orgID string) (run.Caller, []org.Key, error) {
	all, err := d.store.Orgs(ctx)
	if err != nil {
		return run.Caller{}, nil, err
	}
	i := slices.IndexFunc(all, func(r org.Record) bool { return r.ID == orgID })
	if i < 0 {
		d.pool.keep(ctx, orgID, nil, nil)
		return run.Caller{}, nil, nil
	}
	record, declared := all[i], d.declared[orgID]
	if declared.Org {
		record.Features = declared.Record.Features
	}
	if declared.Runtime {
		record.Runtime = declared.Record.Runtime
	}
	keys, err := d.store.Keys(ctx, orgID)
	if err != nil {
		return run.Caller{}, nil, err
	}
	servers, err := d.store.MCPServers(ctx, orgID)
	if err != nil {
		return run.Caller{}, nil, err
	}
	secrets, err := d.store.Secrets(ctx, orgID)
	if err != nil {
		return run.Caller{}, nil, err
	}
	caller := run.Caller{Org: &org.Org{
		ID: orgID, Runtime: record.Runtime, MCPOutbound: slices.Contains(record.Features, config.MCPOutbound),
	}}
	caller.Servers = d.pool.keep(ctx, orgID, append(slices.Clone(declared.Servers), servers...), secrets)
	return caller, append(slices.Clone(declared.Keys), keys...), nil
}
