// Package directory knows the orgs: what the configuration file declares of them and what
// is stored, who may do what, and which settings are valid.
package directory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
	"github.com/turnpike-gateway/turnpike/internal/secret"
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
	options  Options
	fromFile atomic.Pointer[org.File] // what the file declares now
	operator [sha256.Size]byte        // hash of the operator's key; of nothing when there is none

	base  context.Context // of loads: a change outlives the request that made it
	stop  context.CancelFunc
	loads sync.WaitGroup

	// keys maps the hash of a key to the *entry of its org. How long a look-up
	// takes depends on the hash of what was sent, which tells nothing about a
	// key: unknown keys and nearly right ones take the same steps.
	keys    sync.Map
	unknown unknownKeys

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
	again   chan struct{}  // ends a pause after a failed load; of the loads that are under way
}

func newEntry(orgID string) *entry {
	p := &entry{id: orgID}
	p.now.Store(&snapshot{})
	return p
}

// snapshot is what an org has. It never changes.
type snapshot struct {
	org     *org.Org
	keys    []key              // by hash
	byID    map[string]org.Key // all keys, also revoked ones; of two with one id, the one that works
	servers []catalog.Server
	secrets map[string]time.Time // when each was last changed, by name

	switched *catalog.Server // with the tools that the switches of the org offer; nil = none

	serverNames []string // of all servers, also of those that are switched off
}

// key is a secret of a key that works.
type key struct {
	hash      [sha256.Size]byte
	principal org.Principal
	servers   []catalog.Server // that requests with it may use
}

// workingKeys returns the secrets of the keys that are not revoked, by hash. Of two with one
// hash the last counts.
func workingKeys(all []org.Key, servers []catalog.Server) []key {
	keys := make([]key, 0, len(all))
	for _, k := range all {
		if !k.RevokedAt.IsZero() {
			continue
		}
		one := key{k.Hash, org.Principal{ID: k.ID, Role: k.Role, Rate: k.Rate, Access: k.Access, ExpiresAt: k.ExpiresAt}, catalog.Within(servers, k.Access)}
		keys = append(keys, one)
		if until := k.Previous.Until; !until.IsZero() {
			one.hash = k.Previous.Hash
			if one.principal.ExpiresAt.IsZero() || until.Before(one.principal.ExpiresAt) {
				one.principal.ExpiresAt = until
			}
			keys = append(keys, one)
		}
	}
	slices.Reverse(keys)
	slices.SortStableFunc(keys, func(a, b key) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	return slices.CompactFunc(keys, func(a, b key) bool { return a.hash == b.hash })
}

// keysByID returns the keys by id.
func keysByID(all []org.Key) map[string]org.Key {
	byID := make(map[string]org.Key, len(all))
	for _, k := range all {
		if other, taken := byID[k.ID]; !taken || !other.RevokedAt.IsZero() {
			byID[k.ID] = k
		}
	}
	return byID
}

// key returns the secret with the hash; false for none of the org.
func (s *snapshot) key(hash [sha256.Size]byte) (key, bool) {
	i, ok := slices.BinarySearchFunc(s.keys, hash, func(k key, hash [sha256.Size]byte) int { return bytes.Compare(k.hash[:], hash[:]) })
	if !ok {
		return key{}, false
	}
	return s.keys[i], true
}

// Options are what a directory needs. All fields but Operator, Now, Models, Builtins, Changed and Find are required.
type Options struct {
	Store    org.Store
	FromFile org.File     // what the file says, see [FromFile]
	Operator secret.Value // the operator's key; zero = there is no operator
	Pool     *mcppool.Pool
	Catalog  *catalog.Catalog
	Log      *slog.Logger

	Now func() time.Time // nil = clock.Wall

	// Models reports whether a request can ask for a model that the glob matches. Nil = it
	// is not known.
	Models func(pattern string) bool

	// Builtins returns the server with the built-in tools of all runs of an org, and the one with those that its
	// switches offer; nil = none. Nil = no org has any.
	Builtins func(orgID string, r org.Runtime) (all, switched *catalog.Server)

	// Changed is called after a change of an org has taken effect, also after its deletion. Nil =
	// nobody is told.
	Changed func(orgID string)

	// Find returns the org of the key with the hash, or org.ErrNotFound. It is called, a few times
	// in a second, for keys that the directory does not know: another process may have added them. Nil = there is no
	// other process.
	Find func(ctx context.Context, hash [sha256.Size]byte) (orgID string, err error)
}

// New returns a directory with all orgs. Orgs that the file declares get a row in the
// store, so that more can be added to them over the API. Close it.
func New(ctx context.Context, o Options) (*Directory, error) {
	if o.Now == nil {
		o.Now = clock.Wall
	}
	d := &Directory{options: o, operator: sha256.Sum256([]byte(o.Operator.Reveal())), entries: map[string]*entry{}}
	d.unknown.find, d.unknown.reload, d.unknown.rate = o.Find, d.Reload, ratelimit.New()
	d.fromFile.Store(&o.FromFile)
	d.base, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := d.loadAll(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// loadAll asks the store twice, however many orgs there are.
func (d *Directory) loadAll(ctx context.Context) error {
	if err := d.options.Store.AddOrgs(ctx, records(d.options.FromFile.Orgs)); err != nil {
		return err
	}
	return d.options.Store.EachOrg(ctx, func(c org.Contents) error {
		p := newEntry(c.ID)
		d.entries[c.ID] = p
		d.replace(p, d.merge(ctx, c))
		return nil
	})
}

// Close ends loads that are under way and waits for them.
func (d *Directory) Close() {
	d.stop()
	d.loads.Wait()
}

// Authenticate implements httpd.Directory. It asks the store for an unknown key if there are other replicas.
func (d *Directory) Authenticate(ctx context.Context, key string) (caller.Caller, bool) {
	hash := sha256.Sum256([]byte(key))
	found, ok := d.known(hash)
	if !ok && d.options.Find != nil && !d.IsOperator(key) && d.unknown.load(ctx, hash) {
		if found, ok = d.known(hash); !ok {
			d.unknown.miss(hash)
		}
	}
	return found, ok
}

// known returns the caller of the key with the hash.
func (d *Directory) known(hash [sha256.Size]byte) (caller.Caller, bool) {
	p, ok := d.keys.Load(hash)
	if !ok {
		return caller.Caller{}, false
	}
	s := p.(*entry).now.Load()
	k, ok := s.key(hash)
	if !ok {
		return caller.Caller{}, false
	}
	return caller.Caller{Org: s.org, Principal: k.principal, Servers: k.servers, Switched: s.engaging(k.principal.Access)}, true
}

// ServersOf returns the servers that a principal of an org may use now; false for an org
// without a valid key.
func (d *Directory) ServersOf(orgID, principal string) ([]catalog.Server, bool) {
	s := d.snapshot(orgID)
	return catalog.Within(s.servers, s.access(principal)), len(s.keys) > 0
}

// Engaged returns the servers of a run of a principal that has tools of the switches of its org: see [catalog.Engage].
// It returns false for an org without a valid key.
func (d *Directory) Engaged(orgID, principal string, tools []string) ([]catalog.Server, bool) {
	s := d.snapshot(orgID)
	access := s.access(principal)
	var servers []catalog.Server
	if s.org != nil && s.org.MCPOutbound {
		servers = catalog.Within(s.servers, access)
	}
	return catalog.Engage(servers, s.engaging(access), tools), len(s.keys) > 0
}

// Runtime returns the settings that runs of an org have now; the zero value if there is no such org.
func (d *Directory) Runtime(orgID string) org.Runtime {
	if s := d.snapshot(orgID); s.org != nil {
		return s.org.Runtime
	}
	return org.Runtime{}
}

// Access returns what a principal of an org may use now: nothing if there is no such key.
func (d *Directory) Access(orgID, principal string) org.Access {
	return d.snapshot(orgID).access(principal)
}

func (s *snapshot) access(principal string) org.Access {
	if k, ok := s.byID[principal]; ok {
		return k.Access
	}
	return org.NoAccess()
}

// snapshot returns what an org has now; an empty snapshot if there is no such org.
func (d *Directory) snapshot(orgID string) *snapshot {
	d.mu.Lock()
	p := d.entries[orgID]
	d.mu.Unlock()
	if p == nil {
		return &snapshot{}
	}
	return p.now.Load()
}

// Gone implements httpd.Directory.
func (d *Directory) Gone(orgID, principal string) string {
	s := d.snapshot(orgID)
	k, known := s.byID[principal]
	switch {
	case s.org == nil:
		return loop.Deleted
	case !known || !k.RevokedAt.IsZero():
		return loop.KeyRevoked
	case k.Expired(d.options.Now()):
		return loop.KeyExpired
	}
	return ""
}

// Caller returns what a key of an org may use now; false if it is not valid any more.
func (d *Directory) Caller(orgID, principal string) (caller.Caller, bool) {
	if d.Gone(orgID, principal) != "" {
		return caller.Caller{}, false
	}
	s := d.snapshot(orgID)
	k, ok := s.byID[principal]
	if s.org == nil || !ok {
		return caller.Caller{}, false
	}
	p := org.Principal{ID: k.ID, Role: k.Role, Rate: k.Rate, Access: k.Access, ExpiresAt: k.ExpiresAt}
	return caller.Caller{Org: s.org, Principal: p, Servers: catalog.Within(s.servers, k.Access), Switched: s.engaging(k.Access)}, p.Role.MayCallTools()
}

// Org returns an org as it is now; false if there is none.
func (d *Directory) Org(orgID string) (*org.Org, bool) {
	s := d.snapshot(orgID)
	return s.org, s.org != nil
}

// KeyName returns the name of a key of the org, which may be revoked; "" if the org has no such key.
func (d *Directory) KeyName(orgID, id string) string {
	return d.snapshot(orgID).byID[id].Name
}

// IsOperator implements httpd.Directory.
func (d *Directory) IsOperator(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return !d.options.Operator.IsZero() && subtle.ConstantTimeCompare(sum[:], d.operator[:]) == 1
}

// FromFile implements admin.Directory.
func (d *Directory) FromFile(orgID string) org.FromFile { return d.fromFile.Load().Of(orgID) }

// FileWebhooks returns the webhooks that the file declares, with the orgs in order.
func (d *Directory) FileWebhooks() (all []org.FileWebhook) {
	declared := d.fromFile.Load().Orgs
	for _, id := range slices.Sorted(maps.Keys(declared)) {
		all = append(all, declared[id].Webhooks...)
	}
	return all
}

// WebhookSecrets returns the secrets of a webhook that the file declares; none for another one.
func (d *Directory) WebhookSecrets(orgID, name string) []secret.Value {
	if w := d.FromFile(orgID).Webhook(name); w != nil {
		return w.Secrets
	}
	return nil
}

// SetFromFile replaces what the configuration file declares. The next request of each org
// sees it. An org that the file does not declare any more keeps what is stored of it. After
// an error nothing was replaced. An org that cannot be loaded is not an error: that is
// logged, and it is tried again until it can.
func (d *Directory) SetFromFile(ctx context.Context, declared org.File) error {
	if err := d.options.Store.AddOrgs(ctx, records(declared.Orgs)); err != nil {
		return err
	}
	before := *d.fromFile.Swap(&declared)
	for _, id := range d.ids(before.Orgs, declared.Orgs) {
		if !reflect.DeepEqual(before.Of(id), declared.Of(id)) {
			_ = d.Reload(ctx, id)
		}
	}
	return nil
}

// ids returns the ids of the orgs in either map, and of all others.
func (d *Directory) ids(a, b map[string]org.FromFile) []string {
	ids := both(a, b)
	d.mu.Lock()
	for id := range d.entries {
		ids[id] = struct{}{}
	}
	d.mu.Unlock()
	return slices.Sorted(maps.Keys(ids))
}

// records returns the records of the orgs that the file declares.
func records(declared map[string]org.FromFile) []org.Record {
	var out []org.Record
	for _, o := range declared {
		o.Record.Runtime.Buckets = slices.DeleteFunc(slices.Clone(o.Record.Runtime.Buckets), onlyInFile)
		out = append(out, o.Record)
	}
	return out
}

// onlyInFile reports whether the bucket refers to what only the file can refer to: it is not stored.
func onlyInFile(b org.Bucket) bool {
	return !vaultRef(b.AccessKey) || !vaultRef(b.SecretKey)
}

func vaultRef(text string) bool { return text == "" || secret.Ref(text).Kind() == secret.Vault }

// both returns the keys of either map.
func both[T any](a, b map[string]T) map[string]struct{} {
	keys := map[string]struct{}{}
	for _, one := range []map[string]T{a, b} {
		for key := range one {
			keys[key] = struct{}{}
		}
	}
	return keys
}

// changeTimes returns when each secret was last changed.
func changeTimes(secrets []org.Secret) map[string]time.Time {
	at := make(map[string]time.Time, len(secrets))
	for _, s := range secrets {
		at[s.Name] = s.UpdatedAt
	}
	return at
}

// ServerStatus implements admin.Directory.
func (d *Directory) ServerStatus(orgID, name string) org.ServerStatus {
	return d.options.Pool.Status(orgID, name)
}

// SecretChanged implements admin.Directory. Connections that were opened with
// the old secret are given up: the server may have tied its session to it, and a
// program has it in its environment.
func (d *Directory) SecretChanged(ctx context.Context, orgID, name string) error {
	d.options.Pool.Drop(orgID, vaultSecret(name))
	return d.Reload(ctx, orgID)
}

func vaultSecret(name string) secret.Ref { return secret.Ref(string(secret.Vault) + ":" + name) }

// dropChanged gives up connections as SecretChanged does, for secrets that another process has changed.
func (d *Directory) dropChanged(orgID string, before, now map[string]time.Time) {
	for name := range both(before, now) {
		if !before[name].Equal(now[name]) {
			d.options.Pool.Drop(orgID, vaultSecret(name))
		}
	}
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

// ReloadAll does what Reload does for several orgs. After an error some of them are not applied yet.
func (d *Directory) ReloadAll(ctx context.Context, orgs []string) error {
	var loads errgroup.Group
	loads.SetLimit(loadsAtOnce)
	for _, id := range orgs {
		loads.Go(func() error { return d.Reload(ctx, id) })
	}
	return loads.Wait()
}

// loadsAtOnce is how many orgs ReloadAll reads at the same time: as many as leave connections to requests.
const loadsAtOnce = 4

// ask wants a load of the org that begins from now on, and tells loaded how the
// first one went. Many that ask during a load share the next one.
func (d *Directory) ask(orgID string, loaded chan<- error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.entries[orgID]
	if p == nil {
		p = newEntry(orgID)
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
	p.loading, p.again = true, make(chan struct{}, 1)
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
				d.options.Log.Info("org change applied", "org", p.id)
			}
			pause = 0
			continue
		}
		if pause == 0 && d.base.Err() == nil {
			d.options.Log.Error("an org change is stored but not applied; the gateway retries", "org", p.id, "error", err)
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
	stored, err := d.read(ctx, p.id)
	switch {
	case errors.Is(err, org.ErrNotFound):
		d.options.Pool.Keep(ctx, p.id, nil, nil)
		d.options.Pool.KeepHTTP(ctx, p.id, nil, nil)
		if d.options.Builtins != nil {
			d.options.Builtins(p.id, org.Runtime{})
		}
		d.replace(p, &snapshot{})
		d.options.Catalog.Remove(p.id)
	case err != nil:
		return err
	default:
		if before := p.now.Load(); before.org != nil {
			d.dropChanged(p.id, before.secrets, changeTimes(stored.Secrets))
		}
		d.replace(p, d.merge(ctx, stored))
	}
	if d.options.Changed != nil {
		d.options.Changed(p.id)
	}
	return nil
}

// read returns what is stored of one org.
func (d *Directory) read(ctx context.Context, orgID string) (c org.Contents, err error) {
	if c.Record, err = d.options.Store.Org(ctx, orgID); err != nil {
		return c, err
	}
	if c.Keys, err = d.options.Store.Keys(ctx, orgID); err != nil {
		return c, err
	}
	if c.Servers, err = d.options.Store.MCPServers(ctx, orgID); err != nil {
		return c, err
	}
	if c.Off, err = d.options.Store.ServersOff(ctx, orgID); err != nil {
		return c, err
	}
	c.Secrets, err = d.options.Store.Secrets(ctx, orgID)
	return c, err
}

// replace makes next the snapshot of the org.
func (d *Directory) replace(p *entry, next *snapshot) {
	before := p.now.Swap(next)
	for _, k := range next.keys {
		if _, known := before.key(k.hash); !known {
			d.keys.Store(k.hash, p)
		}
	}
	for _, k := range before.keys {
		if _, kept := next.key(k.hash); !kept {
			d.keys.CompareAndDelete(k.hash, p)
		}
	}
}

// warnClamped logs a stored limit on rounds that is out of range.
func (d *Directory) warnClamped(orgID, setting string, stored, used *int) {
	if stored != nil && *stored != *used {
		d.options.Log.Warn("a stored limit on the rounds of an org is out of range; the nearest allowed value is used", "org", orgID, "setting", setting, "stored", *stored, "used", *used)
	}
}

// merge puts together what the file declares of an org and what is stored.
func (d *Directory) merge(ctx context.Context, stored org.Contents) *snapshot {
	record, declared := stored.Record, d.FromFile(stored.ID)
	if declared.Org {
		record.Features = declared.Record.Features
	}
	refused := ""
	if declared.Runtime {
		agents := record.Runtime.Agents // the file has none
		record.Runtime = declared.Record.Runtime
		record.Runtime.Agents = agents
	} else if err := refusedRuntime(record); err != nil {
		refused = err.Error()
		d.options.Log.Error("the stored settings of an org need a feature that this version does not have; its requests are rejected", "org", record.ID, "error", err)
	} else {
		stored := record.Runtime
		record.Runtime = clampRounds(stored)
		d.warnClamped(record.ID, "max_rounds", stored.MaxRounds, record.Runtime.MaxRounds)
		d.warnClamped(record.ID, "max_tool_rounds", stored.MaxToolRounds, record.Runtime.MaxToolRounds)
	}
	keys := org.WithMakers(slices.Concat(declared.Keys, stored.Keys))
	all := slices.Concat(org.WithSwitches(declared.Servers, stored.Off), stored.Servers)
	var names []string
	http, hasHTTP := d.options.Pool.KeepHTTP(ctx, record.ID, declared.HTTPTools, stored.Secrets)
	if hasHTTP {
		names = append(names, http.Name)
		all = slices.DeleteFunc(all, func(s org.MCPServer) bool { return s.Name == http.Name })
	}
	servers := d.options.Pool.Keep(ctx, record.ID, all, stored.Secrets)
	if hasHTTP { // the first: no MCP server can take the name of such a tool
		servers = slices.Insert(servers, 0, http)
	}
	var switched *catalog.Server
	if builtins := d.options.Builtins; builtins != nil {
		var all *catalog.Server
		if all, switched = builtins(record.ID, record.Runtime); all != nil {
			servers = slices.Insert(servers, 0, *all)
		}
		if all != nil || switched != nil {
			names = append(names, org.BuiltinTools)
		}
	}
	for _, s := range all {
		names = append(names, s.Name)
	}
	return &snapshot{
		org: &org.Org{
			ID: record.ID, CreatedAt: record.CreatedAt, Runtime: record.Runtime, MCPOutbound: slices.Contains(record.Features, config.MCPOutbound), Unsupported: refused,
		},
		keys:    workingKeys(keys, servers),
		byID:    keysByID(keys),
		servers: servers, serverNames: names, switched: switched, secrets: changeTimes(stored.Secrets),
	}
}

// engaging returns the server with the tools that the switches of the org offer to a key; nil = none.
func (s *snapshot) engaging(a org.Access) *catalog.Server {
	if s.switched == nil {
		return nil
	}
	if within := catalog.Within([]catalog.Server{*s.switched}, a); len(within) > 0 {
		return &within[0]
	}
	return nil
}
