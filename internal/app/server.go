package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	blobdatabase "github.com/turnpike-gateway/turnpike/internal/blob/database"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/installation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/mcpserver"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// PostgresOptions returns how the database of a configuration is reached, whose credentials are resolved.
func PostgresOptions(c *config.Config, keys *config.Secrets) postgres.Options {
	p := c.Postgres
	return postgres.Options{
		URL: keys.Database.Reveal(), Schema: p.Schema, Pool: p.Pool, Pooler: p.Pooler, ListenURL: keys.Listen.Reveal(),
		StatementTimeout: p.StatementTimeout, LockTimeout: p.LockTimeout, Migrate: p.Migrate,
	}
}

// storage is where the gateway stores what it has.
type storage struct {
	config   *config.Config
	keys     *config.Secrets
	listener net.Listener    // nil = the gateway is embedded
	server   *postgres.Store // nil = the store is a file
	full     atomic.Bool     // the start waits for space
	atClose  func(end func())
	log      *slog.Logger
}

// A start needs this many free bytes: a store that cannot be opened with less is
// waited for.
const leastFree = 1 << 20

// open opens the store. On a full disk it says so and waits until there is
// space, or until ctx is done.
func (s *storage) open(ctx context.Context, o database.Options) (*database.Store, error) {
	if s.config.UsesPostgres() {
		return s.openServer(ctx)
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for waits := false; ; waits = true {
		store, err := database.Open(ctx, o)
		if err == nil {
			s.atClose(func() { s.close(store.Close) })
			s.full.Store(false)
			if waits {
				s.log.Info("the disk has space again: the gateway starts")
			}
			return store, nil
		}
		free, unknown := freeSpace(s.config.Data)
		if unknown != nil || free >= leastFree || errors.Is(err, database.ErrLocked) || errors.Is(err, database.ErrSchema) {
			return nil, err
		}
		s.full.Store(true)
		if !waits {
			log := s.log
			if s.listener != nil {
				log = log.With("listen", s.listener.Addr().String())
			}
			log.Error("the disk is full: the gateway waits for space before it starts",
				"directory", s.config.Data, "free_kib", free>>10, "error", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("stopped while the disk was full: %w", err)
		}
	}
}

// waitsFor says what the start waits for; "" = nothing in particular.
func (s *storage) waitsFor() string {
	if s.full.Load() {
		return "its disk is full"
	}
	return ""
}

// openServer opens the store on PostgreSQL.
func (s *storage) openServer(ctx context.Context) (*database.Store, error) {
	if err := s.lockData(); err != nil {
		return nil, err
	}
	o := PostgresOptions(s.config, s.keys)
	o.Log = s.log
	store, err := postgres.Open(ctx, o, database.ServerOptions{Log: s.log, Caps: s.config.OrgCaps})
	if err != nil {
		return nil, err
	}
	s.server = store
	s.atClose(func() { s.close(store.Close) })
	return store.Store, nil
}

// lockData takes the lock of the data directory until Close. A store on a file takes it by itself: another process would have its
// sessions of code and its spool there, too.
func (s *storage) lockData() error {
	if err := os.MkdirAll(s.config.Data, 0o700); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	lock, err := database.Lock(filepath.Join(s.config.Data, DatabaseFile))
	if errors.Is(err, database.ErrLocked) {
		return fmt.Errorf("data: another process uses the directory %s: stop it, or give each replica a directory of its own (data, or "+
			"TURNPIKE_DATA)", s.config.Data)
	}
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	s.atClose(func() {
		if err := lock.Close(); err != nil {
			s.log.Warn("closing the lock of the data directory", "error", err)
		}
	})
	return nil
}

// hearRuns makes the runs of this process hear what other replicas append to them.
func (r *replicas) hearRuns(runner *run.Runner) {
	if r.server == nil {
		return
	}
	r.server.Bell.Subscribe(postgres.RingRun, func(k postgres.Key) { runner.Heard(journal.RunKey{Org: k.Org, Run: k.ID}) })
	r.server.Bell.Subscribe(postgres.RingCancel, func(k postgres.Key) { runner.HeardEnd(journal.RunKey{Org: k.Org, Run: k.ID}) })
}

// poolWaits returns what says how long reads wait for a connection to the database, or nil.
func (s *storage) poolWaits() func() (int64, time.Duration) {
	if s.server == nil {
		return nil
	}
	return s.server.Waits
}

// elsewhere returns what tells other replicas that a run is to end, or nil.
func (r *replicas) elsewhere() func(journal.RunKey) {
	if r.server == nil {
		return nil
	}
	return func(key journal.RunKey) {
		r.server.Bell.Ring(postgres.Key{Kind: postgres.RingCancel, Org: key.Org, ID: key.Run})
	}
}

// mcpElsewhere returns what tells other replicas that a client of /mcp ends something, or nil.
func (r *replicas) mcpElsewhere() func(orgID, message string) {
	if r.server == nil {
		return nil
	}
	return func(orgID, message string) {
		r.server.Bell.Ring(postgres.Key{Kind: postgres.RingMCP, Org: orgID, ID: message})
	}
}

// hearMCP makes /mcp hear what its clients end on other replicas.
func (r *replicas) hearMCP(mcp *mcpserver.Handler) {
	if r.server != nil {
		r.server.Bell.Subscribe(postgres.RingMCP, func(k postgres.Key) { mcp.Heard(k.Org, k.ID) })
	}
}

// close closes the store, with what belongs to it.
func (s *storage) close(store func() error) {
	if err := store(); err != nil {
		s.log.Error("closing the store", "error", err)
	}
}

// secrets returns where the installation has what its replicas share; nil = in files.
func (s *storage) secrets() installation.Secrets {
	if s.server == nil {
		return nil
	}
	return postgres.NewSecrets(s.server.DB())
}

// chunks returns where the store has the files of buckets; nil = nowhere.
func (s *storage) chunks() blobdatabase.Table {
	if s.server == nil {
		return nil
	}
	return postgres.NewChunks(s.server.DB(), PostgresOptions(s.config, s.keys).SetLocal())
}

// duty reports whether this process does what one replica does for all, every time that the interval has passed. If that cannot be
// said, it does: doing it twice does no harm.
func (r *replicas) duty(ctx context.Context, name string, every time.Duration) bool {
	if r.server == nil || r.owner == "" {
		return true
	}
	has, err := r.server.HasDuty(ctx, name, r.owner, 2*every)
	if err != nil {
		r.log.Warn("cannot tell which replica does what one does for all: this one does it", "duty", name, "error", err)
		return true
	}
	return has
}
