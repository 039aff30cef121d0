package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/replica"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// lastBeat is how long a stop takes to remove the replica from the store.
const lastBeat = time.Second

// replicas are this process and the others of its installation.
type replicas struct {
	*replica.Keeper                 // nil = this process is the only one
	owner           string          // the id of this one, which leases and slices of budgets name; "" = the only process
	server          *postgres.Store // over which they hear each other; nil = the store is a file
	log             *slog.Logger
}

// joinReplicas makes this process one of the replicas of its installation, if there can be others. It is called
// before any settings are read from the store.
func (a *App) joinReplicas(ctx context.Context, o Options) error {
	a.replicas.server, a.replicas.log = a.storage.server, a.log
	beats := o.Beats
	if beats == nil && a.storage.server != nil { // also without the key replica: at a restart the next process can overlap with this one
		beats = a.storage.server.Beats()
	}
	if beats == nil {
		return nil
	}
	name := "replica"
	if r := a.config.Replica; r != nil {
		host, _ := os.Hostname() // without a name it is a replica
		name = cmp.Or(r.ID, host, name)
	}
	a.replicas.owner = id.New(name + "_") // a name that comes back is another replica
	a.replicas.Keeper = replica.New(replica.Options{
		Beats: beats, ID: a.replicas.owner, Version: Version(), Log: a.log,
		// What this process keeps of the settings in the store is in the directory, which tells the others:
		// the clients of servers, the lists of tools, runs and streams of keys, and sessions.
		Reload: func(ctx context.Context, orgs []string) error { return a.directory.ReloadAll(ctx, orgs) },
	})
	return a.replicas.Prepare(ctx)
}

// leave is called when nothing of this process is under way.
func (r *replicas) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), lastBeat)
	defer cancel()
	r.Stop(ctx)
}

// findKey returns what looks up keys that other replicas may have added, or nil.
func (r *replicas) findKey(store *database.Store) func(context.Context, [sha256.Size]byte) (string, error) {
	if r.Keeper == nil {
		return nil
	}
	return store.OrgOfKey
}

// count returns what the metrics say of replicas, or nil.
func (r *replicas) count() func() (int, int64, time.Duration) {
	if r.Keeper == nil {
		return nil
	}
	return func() (int, int64, time.Duration) {
		s := r.Status()
		return s.Living, s.Lag, s.Out
	}
}

// seals returns what seals what clients bring to any replica, or nil.
func (r *replicas) seals(of *secret.Keyring) *secret.Keyring {
	if r.Keeper == nil {
		return nil
	}
	return of
}
