// Package app builds every part of the gateway, in the order in which they need each
// other and by constructor arguments, and stops them in the reverse order.
//
//	config ─► egress ─► providers ─► orgs (MCP clients) ─► catalog ─► runner ─► chat ─► httpd
//
// App builds, starts and stops. What it builds has a type for each duty: storage (with replicas), credentials and vault, live (what
// a Reload changes), adapters, buckets, auditing, retention, shown, disk and overload.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	builtins "github.com/turnpike-gateway/turnpike/internal/builtin/make"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/httpd"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/mcpserver"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/outbox"
	"github.com/turnpike-gateway/turnpike/internal/rates"
	"github.com/turnpike-gateway/turnpike/internal/replica"
	"github.com/turnpike-gateway/turnpike/internal/resulttool"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/spend"
	"github.com/turnpike-gateway/turnpike/internal/spool"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
	"github.com/turnpike-gateway/turnpike/internal/surface/agents"
	"github.com/turnpike-gateway/turnpike/internal/surface/approvals"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
	"github.com/turnpike-gateway/turnpike/internal/surface/endpoints"
	"github.com/turnpike-gateway/turnpike/internal/surface/files"
	"github.com/turnpike-gateway/turnpike/internal/surface/responses"
	"github.com/turnpike-gateway/turnpike/internal/surface/runs"
	"github.com/turnpike-gateway/turnpike/internal/toolcache"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Options are what the environment gives. Env and Log are required.
type Options struct {
	Env config.Environment
	Log *slog.Logger

	// Watch may put itself before the journal of runs, to see what is written;
	// nil = nobody watches.
	Watch func(journal.Journal) journal.Journal

	// Tools are those of a program that the gateway is a part of, for MCP clients at /mcp. If it is a
	// [tool.Provider], its tools are filtered by what each key may use. nil = there are none.
	Tools tool.Source

	// Program starts this program as a child process that runs code, see sandbox.Options; its first word is
	// the program. nil = it cannot: only the driver remote works, web_scrape reads no PDFs, and database_query no
	// files of SQLite.
	Program []string

	// AcceptDataLoss starts with a database that is older than its checkpoints
	// in the second place.
	AcceptDataLoss bool

	// Limits are those of the server; 0 = its defaults. Connections and
	// Requests are the configuration's.
	Limits httpd.Limits

	// Embedded makes a gateway without listeners, for a program that serves Handler itself:
	// listen and telemetry.metrics_listen are not used. Begin it with Start and end it with Stop.
	Embedded bool

	// SlowStore is how long what is to be stored may wait before no more requests are
	// taken; 0 = one second.
	SlowStore time.Duration

	// RouteClock is the clock of circuit breakers and of the targets that conversations keep; nil =
	// time.Now. It must not go back.
	RouteClock func() time.Time

	// RateClock is the clock of the rate limits of tools over /mcp; nil = time.Now. It must not go back.
	RateClock func() time.Time

	// Store may change the options of the store, for tests; nil = it changes nothing.
	Store func(*database.Options)

	// Beats is where the replicas of the installation see each other, for tests; nil = the store says so.
	Beats replica.Beats
}

func (o Options) limits(c *config.Config) httpd.Limits {
	o.Limits.Connections, o.Limits.Requests = c.MaxConnections, c.MaxRequests
	if c.Replica != nil {
		o.Limits.Linger = c.Replica.Linger
		o.Limits.DrainTimeout = cmp.Or(o.Limits.DrainTimeout, c.Replica.Drain+afterSoftStop)
	}
	return o.Limits
}

// App is a whole gateway. Close it.
type App struct {
	config  *config.Config // of the start
	keys    credentials
	live    live
	log     *slog.Logger
	out     *egress.Egress
	secrets *secret.Resolver
	vault   *vault

	listener   net.Listener
	shown      shown
	store      *database.Store
	storage    *storage // which has opened the store
	adapters   adapters
	pool       *mcppool.Pool
	dispatch   *dispatcher
	router     *route.Router
	catalog    *catalog.Catalog
	models     *route.Listing
	builtins   *builtins.Builtins
	databases  databases
	directory  *directory.Directory
	buckets    *buckets
	files      *file.Library
	spend      *spend.Keeper
	deliverer  *outbox.Deliverer
	afterRuns  *outbox.Hooks
	runner     *run.Runner
	sandbox    *sandbox.Manager
	mcp        *mcpserver.Handler
	audit      *auditing
	retention  *retention
	disk       *disk
	heartbeats *sse.Heartbeats
	replicas   replicas
	sealing    *secret.Keyring // see credentials.runKeys
	api        *httpd.API
	fatal      chan error  // what the process must end for
	closing    []func()    // what Close does, from the last one to the first
	serving    atomic.Bool // Serve was called: all parts are there
}

// New builds a gateway from a checked configuration and takes its addresses. Until
// it returns, health checks are answered and other requests are refused; then
// connections wait for Serve.
func New(ctx context.Context, c *config.Config, o Options) (*App, error) {
	a := &App{config: c, log: o.Log, secrets: secret.NewResolver(o.Env), fatal: make(chan error, 1)}
	if err := a.build(ctx, o); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// build makes the parts, each from those before it: the store, what orgs have, runs, and the
// HTTP API. Requests that come meanwhile are answered by a Front.
func (a *App) build(ctx context.Context, o Options) error {
	keys, err := a.config.Resolve(ctx, a.secrets)
	if err != nil {
		return err
	}
	a.keys = credentials{Secrets: keys, data: a.config.Data}
	a.live.current.Store(&settings{a.config, keys})
	card, err := rates.Card(a.config.RateRows)
	if err != nil {
		return err
	}
	a.live.card.Store(card)
	if !o.Embedded {
		if err := a.listen(); err != nil {
			return err
		}
	}
	a.storage = &storage{config: a.config, keys: keys, listener: a.listener, atClose: a.atClose, log: a.log}
	if a.listener != nil {
		front := httpd.Starting(a.listener, surfaces{}.routes(), a.storage.waitsFor, a.log)
		defer front.Stop()
	}
	store := database.Options{
		Path: filepath.Join(a.config.Data, DatabaseFile), Log: a.log, Caps: a.config.OrgCaps, Fatal: func(err error) { a.fatal <- err },
	}
	if o.Store != nil {
		o.Store(&store)
	}
	if a.store, err = a.storage.open(ctx, store); err != nil {
		return err
	}
	if err := a.keys.install(ctx, a.storage.secrets()); err != nil {
		return err
	}
	if a.storage.server == nil {
		if err := a.keys.ownMasterKey(ctx, a.store, a.log); err != nil {
			return err
		}
	}
	a.atClose(a.replicas.leave)
	if err := a.joinReplicas(ctx, o); err != nil {
		return err
	}
	if err := a.showTelemetry(ctx, o.Env); err != nil {
		return err
	}
	a.adapters.out, a.adapters.log = a.out, a.log
	a.atClose(a.adapters.local.Stop)
	providers, err := a.adapters.build(a.live.current.Load())
	if err != nil {
		return err
	}
	if o.RouteClock == nil {
		o.RouteClock = time.Now
	}
	router := route.NewWithClock(o.RouteClock, providers, a.config.Ordered()...)
	a.router = router
	a.shown.router.Store(router)
	if err := a.buildOrgs(ctx, o, router); err != nil {
		return err
	}
	if err := a.startAudit(ctx, o); err != nil {
		return err
	}
	inUse := newMemory("/sys/fs/cgroup")
	retained := newLimiter(a.config, inUse)
	if err := a.buildRunner(ctx, o, router, retained); err != nil {
		return err
	}
	return a.buildAPI(o, router, retained, inUse)
}

// buildOrgs builds what orgs have: the clients of their MCP servers, the lists of their tools,
// and the directory of orgs and keys.
func (a *App) buildOrgs(ctx context.Context, o Options, router *route.Router) (err error) {
	a.catalog = catalog.New(catalog.Options{Log: a.log})
	a.atClose(a.catalog.Close)
	if err := checkHookKeys(ctx, directory.FromFile(a.config, a.keys.Secrets), a.store); err != nil {
		return err
	}
	if a.keys.renews() {
		if err := renewSecrets(ctx, a.keys.Vault, a.store, a.log); err != nil {
			return err
		}
	}
	a.vault = &vault{&a.keys, a.store, a.secrets, func(orgID string) bool { return a.directory.FromFile(orgID).Runtime }}
	if a.buckets, err = a.newBuckets(a.storage.chunks()); err != nil {
		return err
	}
	a.files = file.New(file.Options{Store: a.store, Content: a.buckets.ofKeys, Log: a.log, Now: clock.Wall})
	if a.buckets.links, err = a.newLinks(); err != nil {
		return err
	}
	a.pool = mcppool.New(mcppool.Options{
		Out: a.out, Secrets: a.secrets, Vaults: mcppool.Vaults{Keys: a.keys.Vault, Read: a.store.Secret}, Refused: directory.RefusedServer,
		Log: a.log, Changed: a.toolsChanged, Unreachable: a.catalog.Unreachable, Tracer: a.shown.tracer(),
		Living: a.replicas.Living,
	})
	a.atClose(a.pool.Close)
	a.shown.pool.Store(a.pool)
	if err := a.buildBuiltins(o.Program, router); err != nil {
		return err
	}
	a.directory, err = directory.New(ctx, directory.Options{
		Store: a.store, FromFile: directory.FromFile(a.config, a.keys.Secrets), Operator: a.keys.Operator,
		Pool: a.pool, Catalog: a.catalog, Log: a.log, Changed: a.orgChanged,
		Models: router.MayServe, Builtins: a.builtins.Servers, Find: a.replicas.findKey(a.store),
	})
	if err != nil {
		return err
	}
	a.atClose(a.directory.Close)
	a.shown.directory.Store(a.directory)
	a.warnOfKeys(a.config)
	declared, err := declareAgents(ctx, a.config, a.store, a.log)
	if err != nil {
		return err
	}
	a.live.agents.Store(&declared)
	a.buckets.warn(ctx)
	return storeWebhooks(ctx, a.directory.FileWebhooks(), a.store, a.log)
}

// startAudit starts what keeps the audit log, and records what the configuration file changed.
func (a *App) startAudit(ctx context.Context, o Options) error {
	key, err := a.keys.auditKey()
	if err != nil {
		return err
	}
	a.audit = &auditing{store: a.store, directory: a.directory, config: a.config, acceptLoss: o.AcceptDataLoss, log: a.log}
	if a.audit.keeper, err = a.audit.newKeeper(ctx, key); err != nil {
		return err
	}
	a.atClose(a.audit.stopKeeper)
	a.atClose(a.audit.endRecording) // before the last checkpoint, which is also of these rows
	a.retention = &retention{store: a.store, buckets: a.buckets, files: a.files, log: a.log, duty: a.replicas.duty}
	a.atClose(a.retention.stop)
	a.audit.recordConfiguration(ctx, a.config)
	a.warnOfShortKeys(a.config, a.keys.Secrets)
	return nil
}

// buildRunner builds what performs runs.
func (a *App) buildRunner(ctx context.Context, o Options, router *route.Router, retained *memlimit.Limiter) (err error) {
	if a.sandbox, err = a.newSandbox(ctx, o.Program); err != nil {
		return err
	}
	a.atClose(a.sandbox.Close)
	a.retention.sandbox = a.sandbox
	if a.sealing, err = a.keys.runKeys(); err != nil {
		return err
	}
	journal := journal.Journal(a.store)
	if o.Watch != nil {
		journal = o.Watch(journal)
	}
	a.spend = spend.New(a.store, cmp.Or(a.replicas.owner, id.New("process_")), a.log)
	a.atClose(a.stopSpend)
	a.shown.spend.Store(a.spend)
	a.deliverer = outbox.New(outbox.Options{
		Store: a.store, Sender: webhook.New(a.out.Guarded(egress.GuardedOptions{})), Open: a.vault.open, Declared: a.directory.WebhookSecrets, Log: a.log, Attempted: a.shown.attempted(),
	})
	a.atClose(a.deliverer.Stop)
	hooks := a.hooks(retained)
	a.afterRuns = outbox.NewHooks(outbox.HookOptions{Store: a.store, Teller: hooks, Log: a.log, Told: a.shown.hookTold()})
	a.atClose(a.afterRuns.Stop)
	a.dispatch = &dispatcher{live: &a.live, out: a.out, log: a.log}
	needs := resources{a.directory, router, &a.live}
	a.runner = run.New(run.Options{
		Catalog: a.catalog, Journal: journal, Conversations: a.store, Leases: a.store, Archive: a.store, LaterDeleter: a.store,
		Resources: needs, Router: router, Models: router, Dialer: a.pool, Dispatcher: a.dispatch, OwnServers: ownServers{a.store, a.pool, a.builtins}, Keys: a.sealing, Memory: retained, MaxFollowers: a.config.MaxFollowersPerRun,
		Build: Version(), Log: a.log, Gone: a.directory.Gone, Access: a.directory.Access, Allowance: needs.allowance, Recorder: a.store, Spend: a.spend, Hooks: hooks, Observer: a.shown.observer(),
		Price: a.live.price, SessionDeleted: a.sessionDeleted, Elsewhere: a.replicas.elsewhere(), Owner: a.replicas.owner,
		MayClaim: func() bool { return a.replicas.Out() == nil }, Results: resulttool.Reader{},
		Cache: toolcache.New(a.store, toolcache.Options{Pepper: a.keys.pepper(), Log: a.log}),
	})
	a.atClose(stopNow(func(ctx context.Context) { a.runner.Close(ctx, 0) }))
	a.builtins.Connect(a.sandbox, a.runner)
	a.replicas.hearRuns(a.runner)
	return nil
}

// buildAPI builds the HTTP API with its surfaces.
func (a *App) buildAPI(o Options, router *route.Router, retained *memlimit.Limiter, inUse *memory) (err error) {
	a.heartbeats = sse.NewHeartbeats(0)
	a.heartbeats.Start()
	a.atClose(a.heartbeats.Stop)
	a.models = route.NewListing(router, route.ListingOptions{Memory: retained, Log: a.log})
	a.atClose(a.models.Close)
	a.disk = newDisk(a.config.Data, a.config.MinFreeDiskMiB, a.log)
	bodies, err := spool.New(filepath.Join(a.config.Data, SpoolDirectory), int64(a.config.MaxRelayBodyMiB)<<20, int64(a.config.MaxSpoolMiB)<<20)
	if err != nil {
		return err
	}
	kit := surface.Options{
		Runner: httpd.Logged(a.runner), Router: router, Models: a.models, Catalog: a.catalog, Heartbeats: a.heartbeats, Log: a.log,
		MaxRoundsCap: a.live.maxRoundsCap, Compaction: a.live.compaction, Files: a.files, Fetch: a.adapters.fetch, KeepFor: a.live.keepFor, Price: a.live.price, Dispatches: a.dispatch.Dispatches, Relayed: endpoints.Paths(),
	}
	a.mcp = mcpserver.New(mcpserver.Options{
		Catalog: a.catalog, Orgs: a.directory, Audit: a.store, Spend: a.spend, Tools: o.Tools, MaxRoundsCap: a.live.maxRoundsCap,
		Recorded: a.shown.recorded(), Now: clock.Wall, RateClock: o.RateClock, Living: a.replicas.Living, Seals: a.replicas.seals(a.sealing),
		Log: a.log, Version: Version(), Ring: a.replicas.mcpElsewhere(),
	})
	a.replicas.hearMCP(a.mcp)
	a.atClose(stopNow(a.mcp.Close))
	a.shown.mcp.Store(a.mcp)
	all := surfaces{
		mcp:       a.mcp,
		chat:      chat.New(kit),
		sessions:  chat.NewSessions(a.runner.Sessions(), a.log),
		endpoints: endpoints.New(kit, bodies),
		responses: responses.New(responses.Options{Options: kit, Conversations: a.store, Runs: a.runner, Segments: a.runner.Segments(),
			Seals: a.keys.Vault}),
		runs: runs.New(runs.Options{
			Archive: a.store, Hooks: a.store, Runner: a.runner, Heartbeats: a.heartbeats, Log: a.log, Now: clock.Wall,
		}),
		approvals: approvals.New(approvals.Options{
			Archive: a.store, Decisions: a.runner.Decisions(), KeyName: a.directory.KeyName, Log: a.log, Now: clock.Wall,
		}),
		admin: admin.New(admin.Options{
			Store: a.store, Webhooks: a.store, Outbox: a.store, Test: a.deliverer.Test, Audit: a.store, Budgets: a.store, Routes: router, Directory: a.directory, Vault: a.keys.Vault, Log: a.log,
			Reader: directory.Reader{
				RoundsCap: a.live.maxRoundsCap, Vault: a.keys.Vault != nil, RunsCode: a.config.Sandbox.Runs(), Storage: a.config.Storage(),
				Serves: func(model string) bool { return router.Resolve(model) != nil },
			},
			Judge: directory.JudgeURL(a.out), CheckDatabases: a.databases.check,
			NewKey: func() string { return id.New("tp_") }, Now: clock.Wall,
		}),
		files: files.New(files.Options{Files: a.files, Buckets: a.buckets, Org: a.directory.Org, Links: a.buckets.links, Bodies: bodies, Record: a.store.RecordNow, Log: a.log, Now: clock.Wall}),
		agents: agents.New(agents.Options{
			Store: a.store, Settings: a.store, Vault: a.keys.Vault, Reader: directory.Reader{RoundsCap: a.live.maxRoundsCap, Vault: a.keys.Vault != nil,
				Storage: a.config.Storage()},
			Judge: directory.JudgeURL(a.out), NewID: id.New, Log: a.log, Now: clock.Wall, Servers: agentServers{a}, Orgs: agentOrgs{a.directory, a},
			Kit: agents.NewKit(kit), Sessions: a.store, Observed: a.store, Conversations: a.store, Archive: a.store, HookMessages: a.store,
			Runner: a.runner, Inbox: a.runner.Inbox(), Decisions: a.runner.Decisions(), Segments: a.runner.Segments(),
		}),
	}
	a.api, err = httpd.New(httpd.Options{
		Directory: a.directory, Routes: all.routes(), Document: admin.ServeDocument, Health: a.health, Refuse: a.disk.refusal,
		Loopback: a.listener != nil && addrPort(a.listener).Addr().IsLoopback(), Hosts: a.config.PublicHosts, Origins: a.config.AllowedOrigins,
		Limits: o.limits(a.config), Overload: overload{a.store.Lag, cmp.Or(o.SlowStore, slowStore), inUse}.why,
		Memory: retained, Log: a.log, Trace: a.shown.extract(), OnRefused: a.shown.refused(),
		Out: a.replicas.Out, Settle: a.replicas.Settle, Living: a.replicas.Living,
	})
	return err
}

// surfaces are the APIs that the gateway serves.
type surfaces struct {
	chat      *chat.Handler
	sessions  *chat.Sessions
	endpoints *endpoints.Handler
	responses *responses.Handler
	runs      *runs.Handler
	approvals *approvals.Handler
	admin     *admin.Handler
	agents    *agents.Handler
	files     *files.Handler
	mcp       *mcpserver.Handler
}

// routes returns the routes of all surfaces. Those of the zero value have everything but
// endpoints that can be called.
func (s surfaces) routes() []surface.Route {
	return slices.Concat(s.chat.Routes(), s.sessions.Routes(), s.endpoints.Routes(), s.responses.Routes(), s.runs.Routes(), s.approvals.Routes(), s.agents.Routes(), s.files.Routes(), s.admin.Routes(), s.mcp.Routes())
}

// orgChanged ends what nobody may have any more: of keys that were revoked, and of orgs that were
// deleted. Nothing is open before the gateway serves.
func (a *App) orgChanged(orgID string) {
	if a.serving.Load() {
		a.runner.Changed()
		a.api.Changed(orgID)
		a.mcp.Changed(orgID)
		if _, exists := a.directory.Org(orgID); !exists {
			a.buckets.sweep(context.Background())
			a.sandbox.RemoveOrg(orgID)
		}
	}
}

// sessionDeleted removes the variables and the working directory of a session that was deleted.
func (a *App) sessionDeleted(orgID, session string) { a.sandbox.RemoveSession(orgID, session) }

// toolsChanged is called when an MCP server of an org has announced that its tools have changed.
func (a *App) toolsChanged(orgID, server string) {
	a.catalog.Invalidate(orgID, server)
	if a.serving.Load() {
		a.mcp.Changed(orgID)
	}
}

// listen takes the gateway's addresses, before anything is created or changed: a
// second gateway of the same configuration ends here.
func (a *App) listen() (err error) {
	if a.listener, err = listenAt("listen", a.config.Listen); err != nil {
		return err
	}
	a.atClose(func() { _ = a.listener.Close() }) // Serve has closed it already
	if at := a.config.Telemetry.MetricsListen; at != "" {
		if a.shown.listener, err = listenAt("telemetry.metrics_listen", at); err == nil {
			a.atClose(func() { _ = a.shown.listener.Close() })
		}
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

// URL returns where the gateway can be reached from this machine.
func (a *App) URL() string {
	addr := addrPort(a.listener)
	if addr.Addr().IsUnspecified() {
		addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), addr.Port())
	}
	return "http://" + addr.String()
}

// StopsWithin is the longest time that Serve and Close take together after the context
// of Serve ends, without the settings replica.linger and replica.drain. The program of an MCP server that does not end when it is asked is
// killed after four seconds, and its last output is read for one.
const StopsWithin = httpd.StopsWithin + lastSpans + lastCheckpoint + lastSpending + outbox.HooksStopWithin + 5*time.Second

// lastSpending is how long a stop takes to return slices of budgets.
const lastSpending = 2 * time.Second

// softStop is how long durable runs may go on while the gateway stops, before
// they are left to its next process, or to another replica. afterSoftStop is how long other
// requests have from then on.
const (
	softStop      = 20 * time.Second
	afterSoftStop = 5 * time.Second
)

// softStop returns how long durable runs may go on while the gateway stops.
func (a *App) softStop() time.Duration {
	if r := a.config.Replica; r != nil {
		return r.Drain
	}
	return softStop
}

// Serve takes over the runs that an earlier process has left, and answers
// requests until ctx is done. It returns at once, and without tidying up, when
// what was written to the disk may not be there.
func (a *App) Serve(ctx context.Context) error {
	if err := a.begin(ctx); err != nil {
		if ctx.Err() != nil { // it was asked to stop while it started
			return nil
		}
		return err
	}
	served := make(chan error, 1)
	go func() {
		served <- a.api.Serve(ctx, a.listener, a.log, a.drain)
	}()
	select {
	case err := <-served:
		return err
	case err := <-a.fatal:
		return fmt.Errorf("the database may be inconsistent, so the gateway stops; restart it: %w", err)
	}
}

// begin takes over the runs that an earlier process has left, and starts what works beside requests,
// until ctx ends or Close.
func (a *App) begin(ctx context.Context) error {
	if err := a.replicas.Start(ctx); err != nil {
		return err
	}
	if a.storage.server != nil { // a copy that began before this process could be seen
		if err := postgres.CheckCopying(ctx, a.storage.server.DB()); err != nil {
			return err
		}
	}
	if err := a.runner.Open(ctx); err != nil {
		return err
	}
	a.serving.Store(true)
	a.audit.keeper.Start()
	a.spend.Start()
	a.deliverer.Start()
	a.afterRuns.Start()
	a.builtins.Start(ctx, a.directory.IDs())
	a.retention.start(ctx, a.config.Runs.RetentionDays)
	return nil
}

// Start takes over the runs that an earlier process has left, and makes Handler answer requests. ctx ends
// with Stop at the earliest.
func (a *App) Start(ctx context.Context) error {
	if err := a.begin(ctx); err != nil {
		return err
	}
	a.api.SetReady(true)
	return nil
}

// Handler returns the HTTP interface of an embedded gateway.
func (a *App) Handler() http.Handler { return a.api }

// Record records what has happened in an org that the gateway has. With now it returns when the entry is stored.
// After Close it returns an error.
func (a *App) Record(ctx context.Context, orgID string, e audit.Entry, now bool) error {
	return a.audit.record(ctx, orgID, e, now)
}

// Recordable returns why nothing of an org can be recorded at the moment, or no requests are taken because of the store; nil = all is well.
func (a *App) Recordable(orgID string) error {
	a.audit.recording.RLock()
	defer a.audit.recording.RUnlock()
	if err := a.audit.recordable(orgID); err != nil {
		return err
	}
	return a.health()
}

// Fatal returns a channel with the error after which the program must end: what was written to the disk may
// not be there.
func (a *App) Fatal() <-chan error { return a.fatal }

// Stop refuses new requests, waits until those in progress have ended or ctx ends, and closes the gateway.
// Durable runs that need longer are left to the next process. The error is that of ctx, if it ended before the requests.
func (a *App) Stop(ctx context.Context) (err error) {
	a.api.SetReady(false)
	idle := a.api.Refuse()
	a.drain(ctx)
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	a.Close()
	return err
}

// drain ends what is under way, at the latest when hard ends.
func (a *App) drain(hard context.Context) {
	a.replicas.Drain()
	var both sync.WaitGroup
	both.Go(func() { a.mcp.Close(hard) })
	both.Go(func() { a.runner.Close(hard, a.softStop()) })
	both.Wait()
}

// health says what keeps the gateway from taking work.
func (a *App) health() error {
	if err := a.store.Damage(); err != nil {
		return fault.New(fault.Unavailable, "store_unavailable", "%v; see the gateway's log", err)
	}
	if err := cmp.Or(a.runner.Health(), a.replicas.Out()); err != nil {
		return err
	}
	return a.disk.refusal()
}

// atClose adds what Close does before everything that was added so far. Each part is followed by it as soon as it is
// made, so that parts end in the reverse order.
func (a *App) atClose(end func()) { a.closing = append(a.closing, end) }

// Close gives back everything that New took. It may be called after a failed
// New and more than once.
func (a *App) Close() {
	for len(a.closing) > 0 {
		end := a.closing[len(a.closing)-1]
		a.closing = a.closing[:len(a.closing)-1]
		end()
	}
}

// stopSpend writes what runs have spent.
func (a *App) stopSpend() {
	ctx, cancel := context.WithTimeout(context.Background(), lastSpending)
	defer cancel()
	a.spend.Stop(ctx)
}

// stopNow ends the runs and the calls over /mcp that drain has left, or that a failed start would leave.
func stopNow(end func(ctx context.Context)) func() {
	return func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		end(ctx)
	}
}

// warnOfShortKeys logs the keys that "config check" refuses.
func (a *App) warnOfShortKeys(c *config.Config, keys *config.Secrets) {
	for _, m := range c.ShortKeys(keys) {
		a.log.Warn(m.String())
	}
}

// Orgs returns the ids of all orgs and how many MCP servers each has, from the file and from
// the management API.
func (a *App) Orgs(ctx context.Context) (map[string]int, error) {
	servers := map[string]int{}
	for _, o := range a.live.current.Load().config.Orgs {
		servers[o.ID] = 0
	}
	err := a.store.EachOrg(ctx, func(o org.Contents) error {
		servers[o.ID] = len(a.directory.FromFile(o.ID).Servers) + len(o.Servers)
		return nil
	})
	return servers, err
}

func addrPort(l net.Listener) netip.AddrPort {
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// OutboundPolicy returns the outbound policy that the configuration sets.
func OutboundPolicy(s config.SSRF) egress.Policy {
	return egress.Policy{
		BlockLoopback: s.BlockLoopback, BlockPrivate: s.BlockPrivate, BlockLinkLocal: s.BlockLinkLocal,
		BlockMulticast: s.BlockMulticast, BlockCGNAT: s.BlockCGNAT, BlockULAv6: s.BlockULAV6,
		ExtraBlocked: s.ExtraBlockedCIDRs, Allowlist: s.AllowlistCIDRs,
	}
}
