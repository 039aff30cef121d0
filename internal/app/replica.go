package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"os"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/replica"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// lastBeat is how long a stop takes to remove the replica from the store.
const lastBeat = time.Second

// joinReplicas makes this process one of the replicas of its installation, if there can be others. It is called
// before any settings are read from the store.
func (a *App) joinReplicas(ctx context.Context, o Options) error {
	beats := o.Beats
	if beats == nil && a.server != nil { // also without the key replica: at a restart the next process can overlap with this one
		beats = a.server.Beats()
	}
	if beats == nil {
		return nil
	}
	name := "replica"
	if r := a.config.Replica; r != nil {
		host, _ := os.Hostname() // without a name it is a replica
		name = cmp.Or(r.ID, host, name)
	}
	a.owner = id.New(name + "_") // a name that comes back is another replica
	a.replica = replica.New(replica.Options{
		Beats: beats, ID: a.owner, Version: Version(), Log: a.log,
		// What this process keeps of the settings in the store is in the directory, which tells the others:
		// the clients of servers, the lists of tools, runs and streams of keys, and sessions.
		Reload: func(ctx context.Context, orgs []string) error { return a.directory.ReloadAll(ctx, orgs) },
	})
	return a.replica.Prepare(ctx)
}

// leaveReplicas is called when nothing of this process is under way.
func (a *App) leaveReplicas() {
	ctx, cancel := context.WithTimeout(context.Background(), lastBeat)
	defer cancel()
	a.replica.Stop(ctx)
}

// findKey returns what looks up keys that other replicas may have added, or nil.
func (a *App) findKey() func(context.Context, [sha256.Size]byte) (string, error) {
	if a.replica == nil {
		return nil
	}
	return a.store.OrgOfKey
}

// replicas returns what the metrics say of replicas, or nil.
func (a *App) replicas() func() (int, int64, time.Duration) {
	if a.replica == nil {
		return nil
	}
	return func() (int, int64, time.Duration) {
		s := a.replica.Status()
		return s.Living, s.Lag, s.Out
	}
}

// seals returns what seals what clients bring to any replica, or nil.
func (a *App) seals() *secret.Keyring {
	if a.replica == nil {
		return nil
	}
	return a.sealing
}
