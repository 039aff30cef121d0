// Package replica makes the replicas of one installation obey a change at once.
//
// Each change of keys, servers or settings has a number, the epoch, which grows by one. A replica says
// twice a second that it lives and which epoch it has applied, and learns the present one. While it can
// do so it answers requests; otherwise it stops within [Grace], so that nobody needs to ask it:
//
//	change ─► store: epoch+1 ─► bell ─► every replica: Beat ─► Reload ─► Beat (applied)
//	   └─► Settle: until all living replicas have applied it, at most Grace ─► answer to the change
//
// Why a replica never answers by old settings: it may answer for [Grace] from the beginning of the beat
// before the last one, if it has applied the epoch that the last one returned. A change that is not in
// that epoch was stored after the last beat was sent. The row of the beat before was stored by then, with
// an older epoch, so Settle waits for it until it is older than Grace, and then the time of the replica
// is over.
package replica

import (
	"context"
	"time"
)

// Constants of beats.
const (
	// Interval is the time between two beats of a replica.
	Interval = 500 * time.Millisecond
	// Grace is how long a replica may answer after a beat, and the longest time that a change waits for
	// the replicas.
	Grace = 2 * time.Second
	// Lifetime is how long a replica without a beat counts as living.
	Lifetime = 15 * time.Second
)

// Beats is where the replicas of one installation see each other. Implemented by the store of an
// installation with several replicas. It is safe for concurrent use. "Now" is the time of the store,
// the same for all replicas.
type Beats interface {
	// Epoch returns the number of the last change that is stored.
	Epoch(ctx context.Context) (int64, error)

	// Beat stores that a replica lives now, and returns what is stored of all: State.Epoch is at least
	// that of every change that was stored before Beat was called.
	Beat(ctx context.Context, b Beat) (State, error)

	// Changed returns the orgs that have changed after the epoch, also those that were deleted. An org
	// that changed several times may be returned once. A negative epoch returns all orgs.
	Changed(ctx context.Context, after int64) (orgs []string, err error)

	// Made returns the epoch of the last change that this process has stored; 0 = none yet. A method of
	// the store that changes something returns after Made returns its epoch.
	Made() int64

	// Confirmed reports whether every replica with a beat younger than [Grace], draining or not, has applied the epoch.
	Confirmed(ctx context.Context, epoch int64) (bool, error)

	// Bell returns a channel with room for one that gets an element when another process may have made a
	// change. A lost one delays nothing but the answer to the change. Nil = there are no bells.
	Bell() <-chan struct{}

	// Leave deletes what Beat has stored of the replica. It is no error if there is nothing.
	Leave(ctx context.Context, id string) error
}

// Beat is what a replica says of itself.
type Beat struct {
	ID       string // of the replica, another one at each start
	Applied  int64  // the epoch up to which it has applied everything
	Version  string // of its build
	Draining bool   // it is stopping: it takes no new work
}

// State is what a replica learns of all.
type State struct {
	Epoch  int64 // of the last change
	Living int   // replicas with a beat younger than [Lifetime] that are not draining, with the one that asks
}

// Weight returns of how much of n places each user takes, so that a replica has its part of them: n divided by
// the number of living replicas, rounded down, and at least 1.
func Weight(n, living int) int64 { return int64(max(1, min(n, living))) }
