package run

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// LeaseTTL is how long a lease holds without being extended. It is three times
// renewEvery: one renewal may fail and the next one still comes in time.
const LeaseTTL = 15 * time.Second

// Lease is the right to write a run's journal. A run that is running has one
// lease; a new owner gets a higher epoch, which fences the old one off. Epoch 0
// is that of a writer without a lease, which is never fenced.
//
// An unexpired lease is also the run's slot among the org's: what a crash leaves
// behind expires, and no counter has to be put right.
type Lease struct {
	Org   string
	RunID string
	Epoch int64
	Owner string // names the process, anew at every start; empty with epoch 0

	// Handed says of a lease that was claimed that the last owner had given it
	// back, or that there was none. False where the last one had let it end.
	Handed bool
}

// ErrFenced is wrapped by the error that a writer gets whose lease somebody
// else has taken over: it stops, and touches nothing.
var ErrFenced = errors.New("the lease was taken over")

// Leases hands runs whose owner is gone to a new one. Times are the store's, by a
// clock that nobody can set: a step of the wall clock neither ends a lease nor
// extends it. Implemented by store/memory and store/sqlite.
type Leases interface {
	// Claim gives the owner up to limit runs that are running and whose lease
	// has ended, the orgs in turn, the oldest run of each first. A run whose
	// lease was the owner's is left out: the owner may be working on it, and
	// takes it back with Renew or gives it away with Release. Each lease has a
	// new epoch. What is still set aside for model calls of earlier epochs is
	// settled at its full amount. When Claim returns, all of it is on disk.
	Claim(ctx context.Context, owner string, limit int) ([]Lease, error)

	// Renew extends every lease of the owner whose run is running, also one
	// that has ended and that nobody has claimed, and returns them.
	Renew(ctx context.Context, owner string) ([]Lease, error)

	// Release ends the lease: the run may be claimed at once. A lease that the
	// run has no longer is left alone.
	Release(ctx context.Context, lease Lease) error

	// SetAside ends the lease and takes the run out of those that can be claimed,
	// until a fact wakes it or Restore returns it. The run holds no slot. A lease
	// that the run has no longer is left alone.
	SetAside(ctx context.Context, lease Lease, why Aside) error

	// Restore makes the runs claimable that were set aside for a reason of which
	// again says yes, and returns how many these are.
	Restore(ctx context.Context, again func(Aside) bool) (int, error)

	// Probe writes something that nobody reads: an error says that the store
	// takes no writes at the moment.
	Probe(ctx context.Context) error
}

// Opening are the terms on which a run is accepted. They are judged in the
// transaction that stores its first batch, the key first. The store adds one of
// its own: an org that has stored as much as it may is refused with an
// *[org.CapError].
type Opening struct {
	// Slots is how many runs of the org may have an unexpired lease, this one
	// included; more are refused with an error that wraps [ErrNoSlot]. 0 = any
	// number.
	Slots int

	// Key makes the run the one run of its key: while another run has it, the
	// opening is refused with a *[Submitted]. Nil = none.
	Key *SubmitKey
}

// ErrNoSlot says that the org has as many runs as it may.
var ErrNoSlot = errors.New("no slot is free")

// SubmitKeyTTL is how long a key stands for its run.
const SubmitKeyTTL = 24 * time.Hour

// SubmitKey is a caller's Idempotency-Key. It stands for one run of one
// principal for [SubmitKeyTTL].
type SubmitKey struct {
	Principal string
	Key       string
	Hash      string // of the request
}

// Submitted says that a key stands for a run already.
type Submitted struct {
	RunID string
	Hash  string // of the request that the run is for
}

func (s *Submitted) Error() string { return fmt.Sprintf("the key stands for run %s", s.RunID) }
