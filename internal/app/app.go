// Package app is the composition root: it builds every part of the gateway in
// dependency order, by constructor arguments, and holds the commands.
//
//	config ─► egress ─► providers ─► orgs (MCP clients) ─► catalog ─► runner ─► chat ─► httpd
package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/httpd"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/provider/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/store/sqlite"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
	"github.com/turnpike-gateway/turnpike/internal/toolcache"
)

// Options are what the environment gives. Env and Log are required.
type Options struct {
	Env config.Environment
	Log *slog.Logger

	// Watch may put itself before the journal of runs, to see what is written;
	// nil = nobody watches.
	Watch func(run.Journal) run.Journal

	// AcceptDataLoss starts with a database that is older than its checkpoints
	// in the second place.
	AcceptDataLoss bool

	// Limits are those of the server; 0 = its defaults. Connections and
	// Requests are the configuration's.
	Limits httpd.Limits
}

func (o Options) limits(c *config.Config) httpd.Limits {
	o.Limits.Connections, o.Limits.Requests = c.MaxConnections, c.MaxRequests
	return o.Limits
}

// App is a whole gateway. Close it.
type App struct {
	config  *config.Config
	log     *slog.Logger
	out     *egress.Egress
	secrets *secret.Resolver
	keys    *config.Secrets

	listener   net.Listener
	shown      shown
	store      *sqlite.Store
	local      locals
	pool       *pool
	catalog    *catalog.Catalog
	models     *route.Listing
	directory  *Directory
	runner     *run.Runner
	keeper     *audit.Keeper
	retention  retention
	disk       *disk
	heartbeats *sse.Heartbeats
	api        *httpd.API
	fatal      chan error // what the process must end for
	acceptLoss bool
	diskFull   atomic.Bool // the start waits for space
}

// New builds a gateway from a checked configuration and takes its addresses. Until
// it returns, health checks are answered and other requests are refused; then
// connections wait for Serve.
func New(ctx context.Context, c *config.Config, o Options) (*App, error) {
	a := &App{config: c, log: o.Log, secrets: secret.NewResolver(o.Env), fatal: make(chan error, 1), acceptLoss: o.AcceptDataLoss}
	if err := a.build(ctx, o); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func (a *App) build(ctx context.Context, o Options) error {
	var err error
	if a.keys, err = a.config.Resolve(ctx, a.secrets); err != nil {
		return err
	}
	if err := checkMoved(a.config); err != nil {
		return err
	}
	if err := a.listen(); err != nil {
		return err
	}
	front := httpd.Starting(a.listener, a.waitsFor, a.log)
	defer front.Stop()
	path := filepath.Join(a.config.Data, databaseFile)
	if a.store, err = a.openStore(ctx, sqlite.Options{Path: path, Log: a.log, Caps: caps(a.config.OrgCaps), Fatal: func(err error) { a.fatal <- err }}); err != nil {
		return err
	}
	if err := a.showTelemetry(ctx, o.Env); err != nil {
		return err
	}
	providers, err := a.providers()
	if err != nil {
		return err
	}
	a.catalog = catalog.New(catalog.Options{Log: a.log})
	if err := renewSecrets(ctx, a.keys.Vault, a.store, a.log); err != nil {
		return err
	}
	a.pool = newPool(a.out, a.secrets, vaults{a.keys.Vault, a.store.Secret}, a.log, a.catalog.Forget)
	a.directory = &Directory{
		store: a.store, declared: declared(a.config, a.keys), operator: sha256.Sum256([]byte(a.keys.Operator.Reveal())),
		hasOp: !a.keys.Operator.IsZero(), pool: a.pool, catalog: a.catalog, log: a.log,
	}
	if err := newDirectory(ctx, a.directory); err != nil {
		return err
	}
	a.heartbeats = sse.NewHeartbeats(0)
	a.heartbeats.Start()
	journal := run.Journal(a.store)
	if o.Watch != nil {
		journal = o.Watch(journal)
	}
	if a.keeper, err = a.newKeeper(ctx); err != nil {
		return err
	}
	router := route.New(providers)
	inUse := newMemory("/sys/fs/cgroup")
	retained := newLedger(a.config, inUse)
	a.models = route.NewListing(router, route.ListingOptions{Ledger: retained, Log: a.log})
	a.runner = run.New(run.Options{
		Catalog: a.catalog, Journal: journal, Handovers: a.store, Leases: a.store, Archive: a.store,
		Resources: resources{a.directory, router}, Ledger: retained, MaxFollowers: a.config.MaxFollowersPerRun, Build: version(), Log: a.log, Recorder: a.store, Observer: a.shown.observer(),
		Cache: toolcache.New(a.store, toolcache.Options{Pepper: a.keys.Pepper.Reveal(), Log: a.log}),
	})
	a.disk = newDisk(a.config.Data, a.config.MinFreeDiskMiB, a.log)
	a.api, err = httpd.New(httpd.Options{
		Directory: a.directory, Health: a.health, Refuse: a.disk.refusal,
		Loopback: addrPort(a.listener).Addr().IsLoopback(), Hosts: a.config.PublicHosts, Origins: a.config.AllowedOrigins,
		Limits: o.limits(a.config), Overload: overload{a.store.Lag, inUse}.why, Ledger: retained, Log: a.log, Trace: a.shown.extract(), OnRefused: a.shown.refused(),
		Admin: admin.New(admin.Options{
			Store: a.store, Runs: a.runner, Audit: a.store, Directory: a.directory, Reader: reader{a.config.MaxRoundsCap, a.keys.Vault != nil}, Vault: a.keys.Vault, Log: a.log,
			Judge:  judgeServer(a.out),
			NewKey: func() string { return id.New("tp_") }, Now: clock.Wall,
		}),
		Chat: chat.New(chat.Options{
			Runner: httpd.Logged(a.runner), Router: router, Models: a.models, Catalog: a.catalog, Heartbeats: a.heartbeats, Log: a.log,
			MaxRoundsCap: a.config.MaxRoundsCap,
		}),
	})
	return err
}

// listen takes the gateway's addresses, before anything is created or changed: a
// second gateway of the same configuration ends here.
func (a *App) listen() (err error) {
	if a.listener, err = listenAt("listen", a.config.Listen); err != nil {
		return err
	}
	if at := a.config.Telemetry.MetricsListen; at != "" {
		a.shown.listener, err = listenAt("telemetry.metrics_listen", at)
	}
	return err
}

func listenAt(key, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch cause := syscall.Errno(0); {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s: address already in use. Stop the process that uses it, or set %s to another address", key, address, key)
	case errors.As(err, &cause): // without the words of the system call
		err = cause
	}
	return nil, fmt.Errorf("%s: cannot listen on %s: %w", key, address, err)
}

// waitsFor says what the start waits for; "" = nothing in particular.
func (a *App) waitsFor() string {
	if a.diskFull.Load() {
		return "its disk is full"
	}
	return ""
}

// URL returns where the gateway can be reached from this machine.
func (a *App) URL() string {
	addr := addrPort(a.listener)
	if addr.Addr().IsUnspecified() {
		addr = netip.AddrPortFrom(loopback(), addr.Port())
	}
	return "http://" + addr.String()
}

// softStop is how long durable runs may go on while the gateway stops, before
// they are left to its next process.
const softStop = 20 * time.Second

// Serve takes over the runs that an earlier process has left, and answers
// requests until ctx is done. It returns at once, and without tidying up, when
// what was written to the disk may not be there.
func (a *App) Serve(ctx context.Context) error {
	if err := a.runner.Start(ctx); err != nil {
		if ctx.Err() != nil { // it was asked to stop while it started
			return nil
		}
		return err
	}
	a.keeper.Start()
	a.retention.start(ctx, a.store, a.config.Runs.RetentionDays, a.log)
	served := make(chan error, 1)
	go func() {
		served <- a.api.Serve(ctx, a.listener, a.log, func(hard context.Context) { a.runner.Stop(hard, softStop) })
	}()
	select {
	case err := <-served:
		return err
	case err := <-a.fatal:
		return fmt.Errorf("the database may be inconsistent, so the gateway stops; restart it: %w", err)
	}
}

// health says what keeps the gateway from taking work.
func (a *App) health() error {
	if err := a.store.Damage(); err != nil {
		return fault.New(fault.Unavailable, "store_unavailable", "%v; see the gateway's log", err)
	}
	if err := a.runner.Health(); err != nil {
		return err
	}
	return a.disk.refusal()
}

// Close gives back everything that New took. It may be called after a failed
// New and more than once.
func (a *App) Close() {
	if a.listener != nil {
		if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			a.log.Warn("closing the listener", "error", err)
		}
	}
	if a.runner != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		a.runner.Stop(now, 0)
	}
	a.retention.stop()
	if a.keeper != nil {
		if err := a.stopKeeper(); err != nil {
			a.log.Warn("the last audit rows have no checkpoint", "error", err)
		}
	}
	if a.heartbeats != nil {
		a.heartbeats.Stop()
	}
	a.shown.stop(a.log)
	if a.directory != nil {
		a.directory.close()
	}
	if a.catalog != nil {
		a.catalog.Close()
	}
	if a.models != nil {
		a.models.Close()
	}
	if a.pool != nil {
		a.pool.close()
	}
	a.local.stop()
	if a.store != nil {
		if err := a.store.Close(); err != nil {
			a.log.Error("closing the store", "error", err)
		}
		a.store = nil
	}
	if a.out != nil {
		a.out.CloseIdleConnections()
	}
}

func addrPort(l net.Listener) netip.AddrPort {
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func outboundPolicy(s config.SSRF) egress.Policy {
	return egress.Policy{
		BlockLoopback: s.BlockLoopback, BlockPrivate: s.BlockPrivate, BlockLinkLocal: s.BlockLinkLocal,
		BlockMulticast: s.BlockMulticast, BlockCGNAT: s.BlockCGNAT, BlockULAv6: s.BlockULAV6,
		ExtraBlocked: s.ExtraBlockedCIDRs, Allowlist: s.AllowlistCIDRs,
	}
}
