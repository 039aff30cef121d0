package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// How long the keeper waits.
const (
	beatTimeout   = time.Second            // for one beat: two fit into Grace
	reloadTimeout = 5 * time.Second        // for one Reload: a replica beats while it cannot apply a change
	retryPause    = 100 * time.Millisecond // after a beat or a Reload that failed
	startTimeout  = time.Minute            // for the first time to answer
	firstPoll     = 2 * time.Millisecond   // of Settle; doubled up to lastPoll
	lastPoll      = 50 * time.Millisecond
)

// Options are what a Keeper needs. All but Version are required.
type Options struct {
	Beats   Beats
	ID      string // of this replica, another one at each start
	Version string // of the build

	// Reload takes into use what is stored of the orgs, for every request that begins after it has
	// returned nil.
	Reload func(ctx context.Context, orgs []string) error

	Log *slog.Logger
}

// Keeper says for one replica that it lives, applies the changes of others, and knows whether the replica
// may answer. The nil Keeper is that of a process without others: it may always answer, and waits for
// nobody. It is safe for concurrent use.
type Keeper struct {
	o    Options
	stop context.CancelFunc
	done sync.WaitGroup
	rung chan struct{} // has room for one: the next beat is now

	draining atomic.Bool
	living   atomic.Int64
	settled  atomic.Int64 // the last epoch that all replicas obey, as far as this one has asked

	// Of the goroutine that beats, and of Prepare and Start before it.
	acknowledged time.Time // when the last beat that was answered was sent; zero = none yet
	failing      bool      // the last beat or Reload failed: that was logged

	mu      sync.Mutex
	applied int64
	epoch   int64         // of the store, as of the last beat
	until   time.Time     // when the replica may no longer answer; zero = it never might
	out     time.Duration // how long it did not answer, without the present time
}

// New returns a Keeper that does nothing yet.
func New(o Options) *Keeper { return &Keeper{o: o, rung: make(chan struct{}, 1)} }

// Prepare must be called before the process reads any settings. It notes the epoch that they contain.
func (k *Keeper) Prepare(ctx context.Context) error {
	if k == nil {
		return nil
	}
	epoch, err := k.o.Beats.Epoch(ctx)
	if err != nil {
		return fmt.Errorf("epoch of the settings: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applied, k.epoch = epoch, epoch
	return nil
}

// Start begins to beat, and returns when the replica may answer. It returns an error if that takes more
// than a minute, or if ctx ends. Stop the Keeper, also after an error.
func (k *Keeper) Start(ctx context.Context) error {
	if k == nil {
		return nil
	}
	first, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		pause, err := k.beat(first)
		if err == nil && k.Out() == nil {
			break
		}
		if !k.wait(first, pause) {
			return fmt.Errorf("the replica cannot tell the other replicas that it lives: %w", errors.Join(err, context.Cause(first)))
		}
	}
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	k.done.Go(func() {
		for pause := Interval; k.wait(base, pause); {
			pause, _ = k.beat(base) // it logs an error
		}
	})
	return nil
}

// wait waits until it is time for the next beat. It returns false when ctx ends.
func (k *Keeper) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-k.rung:
	case <-k.o.Beats.Bell():
	}
	return ctx.Err() == nil
}

// beat says that the replica lives, applies what has changed, and returns when to beat again.
func (k *Keeper) beat(ctx context.Context) (again time.Duration, err error) {
	before, sent := k.acknowledged, time.Now()
	applied := k.appliedEpoch()
	state, err := k.send(ctx, applied)
	if err == nil {
		k.acknowledged = sent
		k.noteLiving(state.Living)
		k.noteEpoch(state.Epoch)
		if state.Epoch != applied {
			err = k.reload(ctx, applied, state.Epoch)
		}
	}
	if err != nil {
		k.logFailure(ctx, err)
		return retryPause, err
	}
	k.grant(state.Epoch, before)
	if state.Epoch != applied || k.Out() != nil { // the others wait for it, or their requests do
		return 0, nil
	}
	return Interval, nil
}

func (k *Keeper) send(ctx context.Context, applied int64) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	return k.o.Beats.Beat(ctx, Beat{k.o.ID, applied, k.o.Version, k.draining.Load()})
}

// reload applies the changes after an epoch. An epoch that has gone back is that of another copy of the
// store: everything is read again.
func (k *Keeper) reload(ctx context.Context, applied, present int64) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if present < applied {
		applied = -1
	}
	orgs, err := k.o.Beats.Changed(ctx, applied)
	if err != nil {
		return fmt.Errorf("read which orgs have changed: %w", err)
	}
	return k.o.Reload(ctx, orgs)
}

func (k *Keeper) appliedEpoch() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.applied
}

func (k *Keeper) noteEpoch(epoch int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.epoch = epoch
}

// noteLiving notes the number of living replicas, by which limits are divided.
func (k *Keeper) noteLiving(n int) {
	if was := k.living.Swap(int64(n)); was != int64(n) {
		k.o.Log.Info("the number of living replicas has changed; limits are divided by it", "replicas", n, "before", was)
	}
}

// grant notes that the epoch is applied, and that the replica may answer for [Grace] from the beginning of
// the beat before; zero = there was none.
func (k *Keeper) grant(epoch int64, before time.Time) {
	if k.failing {
		k.failing = false
		k.o.Log.Info("the replica has confirmed its settings again")
	}
	k.mu.Lock()
	k.applied = epoch
	now, until, out := time.Now(), before.Add(Grace), time.Duration(0)
	if !before.IsZero() && until.After(now) {
		out = k.outSince(now)
		k.out += out
		k.until = until
	}
	k.mu.Unlock()
	if out > 0 {
		k.o.Log.Warn("the replica has refused requests, because it could not confirm its settings in time", "seconds", out.Seconds())
	}
}

// outSince returns how long the replica has not answered at the time now; 0 = it may, or never might. It is called with mu held.
func (k *Keeper) outSince(now time.Time) time.Duration {
	if k.until.IsZero() {
		return 0
	}
	return max(0, now.Sub(k.until))
}

func (k *Keeper) logFailure(ctx context.Context, err error) {
	if k.failing || ctx.Err() != nil {
		return
	}
	k.failing = true
	k.o.Log.Error("the replica cannot confirm its settings, and refuses requests until it can; it tries again",
		"refuses_within", Grace, "error", err)
}

// Ring makes the replica beat now.
func (k *Keeper) Ring() {
	if k == nil {
		return
	}
	select {
	case k.rung <- struct{}{}:
	default: // it does already
	}
}

// Out returns nil if the replica may answer, and otherwise the error for requests. A suspended machine
// counts: neither the wall clock nor the monotonic one, which may stand still meanwhile, may have reached
// the end of its time.
func (k *Keeper) Out() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	until := k.until
	k.mu.Unlock()
	if now := time.Now(); now.Before(until) && now.Round(0).Before(until.Round(0)) {
		return nil
	}
	out := fault.New(fault.Unavailable, "replica_out",
		"this replica of the gateway could not confirm its settings with the others, so it answers no requests now; send the request again")
	out.RetryAfter = time.Second
	return out
}

// Settle returns when no replica answers requests by older settings than those that this process has
// stored: at once if it has stored none since the last Settle, and at the latest after [Grace], because a
// replica that has not confirmed them has stopped answering by then. It also returns when ctx ends.
func (k *Keeper) Settle(ctx context.Context) {
	if k == nil {
		return
	}
	made := k.o.Beats.Made()
	if made <= k.settled.Load() {
		return
	}
	k.Ring() // this replica is one of them
	within, cancel := context.WithTimeout(ctx, Grace)
	defer cancel()
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		if all, err := k.o.Beats.Confirmed(within, made); err == nil && all {
			break
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-within.Done():
		}
		timer.Stop()
		if within.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return
	}
	for was := k.settled.Load(); was < made && !k.settled.CompareAndSwap(was, made); was = k.settled.Load() {
	}
}

// Living returns the number of living replicas, by which limits are divided; at least 1.
func (k *Keeper) Living() int {
	if k == nil {
		return 1
	}
	return max(1, int(k.living.Load()))
}

// Status is how a replica is doing.
type Status struct {
	Living int           // replicas
	Lag    int64         // changes that the replica knows of and has not applied
	Out    time.Duration // how long it has refused requests since it started
}

// Status returns how the replica is doing.
func (k *Keeper) Status() Status {
	if k == nil {
		return Status{Living: 1}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return Status{k.Living(), max(0, k.epoch-k.applied), k.out + k.outSince(time.Now())}
}

// Drain tells the other replicas that this one stops, at once: limits are divided without it. It goes on
// to beat.
func (k *Keeper) Drain() {
	if k == nil || k.draining.Swap(true) {
		return
	}
	k.Ring()
}

// Stop ends the beats, and takes the replica out of the store. It may be called more than once.
func (k *Keeper) Stop(ctx context.Context) {
	if k == nil {
		return
	}
	if k.stop != nil {
		k.stop()
		k.done.Wait()
	}
	if k.acknowledged.IsZero() {
		return
	}
	k.acknowledged = time.Time{}
	if err := k.o.Beats.Leave(ctx, k.o.ID); err != nil {
		k.o.Log.Warn("the replica was not removed from the store; the others count it for a while", "at_most", Lifetime, "error", err)
	}
}
