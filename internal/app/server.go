package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	blobdatabase "github.com/turnpike-gateway/turnpike/internal/blob/database"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/installation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
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

// openServer opens the store on PostgreSQL.
func (a *App) openServer(ctx context.Context) (*database.Store, error) {
	if err := a.lockData(); err != nil {
		return nil, err
	}
	o := PostgresOptions(a.config, a.keys)
	o.Log = a.log
	store, err := postgres.Open(ctx, o, database.ServerOptions{Log: a.log, Caps: a.config.OrgCaps})
	if err != nil {
		return nil, err
	}
	a.server = store
	return store.Store, nil
}

// lockData takes the lock of the data directory until Close. A store on a file takes it by itself: another process would have its
// sessions of code and its spool there, too.
func (a *App) lockData() error {
	if err := os.MkdirAll(a.config.Data, 0o700); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	lock, err := database.Lock(filepath.Join(a.config.Data, DatabaseFile))
	if errors.Is(err, database.ErrLocked) {
		return fmt.Errorf("data: another process uses the directory %s: stop it, or give each replica a directory of its own (data, or "+
			"TURNPIKE_DATA)", a.config.Data)
	}
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	a.atClose(func() {
		if err := lock.Close(); err != nil {
			a.log.Warn("closing the lock of the data directory", "error", err)
		}
	})
	return nil
}

// hearOthers makes the runs of this process hear what other replicas append to them.
func (a *App) hearOthers() {
	if a.server == nil {
		return
	}
	a.server.Bell.Subscribe(postgres.RingRun, func(k postgres.Key) { a.runner.Heard(journal.RunKey{Org: k.Org, Run: k.ID}) })
	a.server.Bell.Subscribe(postgres.RingCancel, func(k postgres.Key) { a.runner.HeardEnd(journal.RunKey{Org: k.Org, Run: k.ID}) })
}

// poolWaits returns what says how long reads wait for a connection to the database, or nil.
func (a *App) poolWaits() func() (int64, time.Duration) {
	if a.server == nil {
		return nil
	}
	return a.server.Waits
}

// elsewhere returns what tells other replicas that a run is to end, or nil.
func (a *App) elsewhere() func(journal.RunKey) {
	if a.server == nil {
		return nil
	}
	return func(key journal.RunKey) {
		a.server.Bell.Ring(postgres.Key{Kind: postgres.RingCancel, Org: key.Org, ID: key.Run})
	}
}

// mcpElsewhere returns what tells other replicas that a client of /mcp ends something, or nil.
func (a *App) mcpElsewhere() func(orgID, message string) {
	if a.server == nil {
		return nil
	}
	return func(orgID, message string) {
		a.server.Bell.Ring(postgres.Key{Kind: postgres.RingMCP, Org: orgID, ID: message})
	}
}

// hearMCP makes /mcp hear what its clients end on other replicas.
func (a *App) hearMCP() {
	if a.server != nil {
		a.server.Bell.Subscribe(postgres.RingMCP, func(k postgres.Key) { a.mcp.Heard(k.Org, k.ID) })
	}
}

// closeStore closes the store, with what belongs to it.
func (a *App) closeStore() {
	closes := a.store.Close
	if a.server != nil {
		closes = a.server.Close
	}
	if err := closes(); err != nil {
		a.log.Error("closing the store", "error", err)
	}
}

// serverSecrets returns where the installation has what its replicas share; nil = in files.
func (a *App) serverSecrets() installation.Secrets {
	if a.server == nil {
		return nil
	}
	return postgres.NewSecrets(a.server.DB())
}

// chunks returns where the store has the files of buckets; nil = nowhere.
func (a *App) chunks() blobdatabase.Table {
	if a.server == nil {
		return nil
	}
	return postgres.NewChunks(a.server.DB(), PostgresOptions(a.config, a.keys).SetLocal())
}

// duty reports whether this process does what one replica does for all, every time that the interval has passed. If that cannot be
// said, it does: doing it twice does no harm.
func (a *App) duty(ctx context.Context, name string, every time.Duration) bool {
	if a.server == nil || a.owner == "" {
		return true
	}
	has, err := a.server.HasDuty(ctx, name, a.owner, 2*every)
	if err != nil {
		a.log.Warn("cannot tell which replica does what one does for all: this one does it", "duty", name, "error", err)
		return true
	}
	return has
}
