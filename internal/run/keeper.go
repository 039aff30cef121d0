package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// How leases are kept. An owner whose renewals fail stops one period
// before the lease ends, so that no new owner starts while it still sends requests.
const (
	renewEvery    = 5 * time.Second
	claimEvery    = time.Second
	doubtAfter    = journal.LeaseTTL - renewEvery // a run that was not renewed for this long sends nothing more
	claimAgain    = 43 * time.Millisecond         // after a claim that has found runs
	claimAtOnce   = 64                            // runs
	expireTimeout = 3300 * time.Millisecond       // of the approvals whose time is over; runs are claimed after it
	retryFailed   = 5 * time.Second               // a run that an error has stopped is claimed after it at the earliest
	lastReleases  = time.Second                   // of what has no run, when the process stops
	storeTimeout  = 9900 * time.Millisecond       // no multiple of claimEvery: what times out never coincides with a tick
)

// leaseKeeper keeps the leases of the runs that are performed in this process: it renews
// them, stops runs whose lease another owner has, claims runs whose owner is gone, and
// releases leases that have no run. It is safe for concurrent use.
type leaseKeeper struct {
	leases   journal.Leases // nil = there are no durable runs
	owner    string         // this process
	health   *storeHealth
	takeOver func(journal.Lease) error // performs a run that was claimed; an error if no run may begin

	expire func(context.Context) error // ends approvals that nobody has decided in time

	mayClaim func() bool // see Options.MayClaim

	base     context.Context // of durable runs, which outlive their callers; ends with close
	end      context.CancelCauseFunc
	tasks    sync.WaitGroup     // runs that are live
	keeping  sync.WaitGroup     // keep
	closing  chan struct{}      // closed when no new runs are taken
	woken    chan struct{}      // has an element when a waiting run was woken
	yielding atomic.Bool        // durable runs are handed over at their next fact
	suspects suspects           // runs that are resumed one at a time
	checks   singleflight.Group // see check

	mu      sync.Mutex
	quiet   bool                        // no new runs
	live    map[journal.RunKey]*liveRun // runs that are performed here, except relays
	orphans []orphan                    // leases of this process without a run
	renewed time.Time                   // when the leases were last renewed; monotonic

	claimed bool // the last claim has found runs; used by claim only, which is not called twice at a time
}

// orphan is a lease of this process that has no run here. It is released at a time, so
// that another owner, or this process, can claim the run; the zero time = at once.
type orphan struct {
	lease journal.Lease
	at    time.Time // monotonic
}

// liveRun is a run that is performed in this process, as the lease keeper knows it.
type liveRun struct {
	lease  journal.Lease
	cancel context.CancelCauseFunc
	feed   *eventlog.Feed // of a durable run; nil = it has none
	leased bool           // this process has got the lease; guarded by leaseKeeper.mu
	caller string         // the principal of the run; "" = its journal is not read yet; guarded by leaseKeeper.mu
	unstop func() bool    // stops the context.AfterFunc on leaseKeeper.base
}

func (l *liveRun) key() journal.RunKey { return l.lease.Key() }

func newLeaseKeeper(leases journal.Leases, owner string, health *storeHealth, takeOver func(journal.Lease) error, expire func(context.Context) error) *leaseKeeper {
	k := &leaseKeeper{
		leases: leases, owner: owner, health: health, takeOver: takeOver, expire: expire,
		closing: make(chan struct{}), woken: make(chan struct{}, 1), live: map[journal.RunKey]*liveRun{},
	}
	k.base, k.end = context.WithCancelCause(context.Background())
	return k
}

// open claims every run that can be claimed, and then keeps the leases until close.
func (k *leaseKeeper) open(ctx context.Context) error {
	for {
		n, err := k.claim(ctx)
		if err != nil {
			return fmt.Errorf("take over runs: %w", err)
		}
		if n == 0 {
			break
		}
	}
	k.keeping.Go(k.keep)
	return nil
}

// close ends all runs of this process as [Runner.Close] says.
func (k *leaseKeeper) close(ctx context.Context, soft time.Duration) {
	k.mu.Lock()
	if !k.quiet {
		k.quiet = true
		close(k.closing)
	}
	k.mu.Unlock()
	k.suspects.stop()
	idle := make(chan struct{})
	go func() {
		k.tasks.Wait()
		close(idle)
	}()
	patience := time.NewTimer(soft)
	defer patience.Stop()
	select {
	case <-idle:
	case <-patience.C:
	case <-ctx.Done():
	}
	crash.At(crash.BeforeHandover)
	k.yielding.Store(true)
	select {
	case <-idle:
	case <-ctx.Done():
	}
	k.end(errStopped)
	<-idle
	k.keeping.Wait()
	if k.leases != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastReleases)
		defer cancel()
		k.releaseOrphans(last)
	}
}

// keep renews leases, claims runs, and checks a store that has failed, until close. One
// ticker is used for all of it, so that the order is always the same.
func (k *leaseKeeper) keep() {
	ticks := time.NewTicker(claimEvery)
	defer ticks.Stop()
	for renewed := time.Now(); ; {
		var again <-chan time.Time
		if k.claimed { // others may wait for a slot
			again = time.After(claimAgain)
		}
		select {
		case <-k.base.Done():
		case <-ticks.C:
		case <-k.woken:
		case <-again:
		}
		if k.base.Err() != nil { // also if both channels are ready
			return
		}
		drain(ticks.C) // what follows serves all of them
		drain(k.woken)
		if time.Since(renewed) > renewEvery-claimEvery/2 {
			renewed = time.Now()
			_ = k.renew() // it records an error
		}
		k.maintain()
	}
}

// drain takes the element of a channel, if it has one.
func drain[T any](c <-chan T) {
	select {
	case <-c:
	default:
	}
}

// claimSoon claims runs without waiting for the next tick, because a run was woken.
func (k *leaseKeeper) claimSoon() {
	select {
	case k.woken <- struct{}{}:
	default: // the next claim is already requested
	}
}

// maintain claims runs. While the store fails it only checks whether the store can be
// written again.
func (k *leaseKeeper) maintain() {
	ctx, cancel := context.WithTimeout(k.base, storeTimeout)
	defer cancel()
	if k.health.err() != nil {
		if err := k.leases.Probe(ctx); err != nil {
			return
		}
		k.health.recovered()
		if k.renew() != nil { // before the claim, which could otherwise take leases of live runs
			return
		}
	}
	k.releaseOrphans(ctx)
	if k.isQuiet() || k.mayClaim != nil && !k.mayClaim() {
		return
	}
	expiring, stop := context.WithTimeout(ctx, expireTimeout)
	if err := k.expire(expiring); err != nil && k.base.Err() == nil { // the next tick goes on
		k.health.log.Warn("approvals whose time is over were not ended", "error", err)
	}
	stop()
	if _, err := k.claim(ctx); err != nil && k.base.Err() == nil {
		k.health.failed(err)
	}
}

func (k *leaseKeeper) isQuiet() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.quiet
}

// renew extends the leases of this process. A run whose lease was not extended has another
// owner and is stopped. A lease without a run comes from a claim whose answer was lost. It
// is released, because no process could claim the run otherwise.
func (k *leaseKeeper) renew() error {
	ctx, cancel := context.WithTimeout(k.base, storeTimeout)
	defer cancel()
	others := k.leased()
	now := time.Now()
	leases, err := k.leases.Renew(ctx, k.owner)
	if err != nil {
		k.health.failed(err)
		return err
	}
	for _, l := range leases {
		if run := others[l.Key()]; run != nil && run.lease.Epoch == l.Epoch {
			delete(others, l.Key())
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(others), journal.RunKey.Compare) { // so that a simulation can be repeated
		others[key].cancel(journal.ErrFenced)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewed = now
	for _, l := range leases {
		known := func(o orphan) bool {
			return o.lease.Org == l.Org && o.lease.RunID == l.RunID && o.lease.Epoch == l.Epoch
		}
		if !k.working(l) && !slices.ContainsFunc(k.orphans, known) {
			k.orphans = append(k.orphans, orphan{lease: l})
		}
	}
	return nil
}

// leased returns the live runs that have their lease.
func (k *leaseKeeper) leased() map[journal.RunKey]*liveRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make(map[journal.RunKey]*liveRun, len(k.live))
	for key, run := range k.live {
		if run.leased {
			out[key] = run
		}
	}
	return out
}

// claim takes over runs that can be claimed, and returns their number.
func (k *leaseKeeper) claim(ctx context.Context) (int, error) {
	leases, err := k.leases.Claim(ctx, k.owner, claimAtOnce)
	if err != nil {
		return 0, err
	}
	k.claimed = len(leases) > 0
	for _, lease := range leases {
		crash.At(crash.AfterClaim)
		if k.takeOver(lease) != nil { // close releases it
			k.mu.Lock()
			k.orphans = append(k.orphans, orphan{lease: lease})
			k.mu.Unlock()
		}
	}
	return len(leases), nil
}

// adopt registers a run that is about to get its lease, or has it. It returns an error if
// the process is stopping. The caller must call unregister afterwards.
func (k *leaseKeeper) adopt(run *liveRun, leased bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.quiet {
		return stopping()
	}
	k.tasks.Add(1)
	if old := k.live[run.key()]; old != nil { // its lease has expired
		old.cancel(journal.ErrFenced)
	}
	k.live[run.key()] = run
	run.leased = leased
	run.unstop = context.AfterFunc(k.base, func() { run.cancel(errStopped) })
	return nil
}

// stopping is the error for a request that comes when the process takes no new runs.
func stopping() *fault.Error {
	f := fault.New(fault.Unavailable, "stopping", "the gateway is stopping; send the request again")
	f.RetryAfter = eventlog.AttachRetry
	return f
}

// confirm notes that the run has got its lease.
func (k *leaseKeeper) confirm(run *liveRun) {
	k.mu.Lock()
	defer k.mu.Unlock()
	run.leased = true
}

// unregister removes a run from the live ones. Its lease is released if the run is to be
// continued, so that another owner can claim it, and if it is unknown whether there is a
// lease. The lease of a run that has failed is released later, so that a run that fails again
// and again is not claimed all the time.
func (k *leaseKeeper) unregister(ctx context.Context, run *liveRun, over, unsure, failed bool) {
	defer k.tasks.Done()
	run.unstop()
	k.mu.Lock()
	if k.live[run.key()] == run { // otherwise this process has claimed the run again
		delete(k.live, run.key())
	}
	left := k.leases != nil && (run.leased && !over || unsure)
	later := left && failed
	if later {
		k.orphans = append(k.orphans, orphan{run.lease, time.Now().Add(retryFailed)})
	}
	k.mu.Unlock()
	if left && !later {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		k.release(ctx, run.lease)
	}
}

// releaseOrphans releases the leases that have no run in this process, and whose time it is.
// While the process stops it is time for all.
func (k *leaseKeeper) releaseOrphans(ctx context.Context) {
	k.mu.Lock()
	var due, rest []orphan
	for _, o := range k.orphans {
		switch {
		case k.working(o.lease):
		case k.quiet || !time.Now().Before(o.at):
			due = append(due, o)
		default:
			rest = append(rest, o)
		}
	}
	k.orphans = rest
	k.mu.Unlock()
	for _, o := range due {
		k.release(ctx, o.lease)
	}
}

// release releases a lease. If that fails, releaseOrphans tries again.
func (k *leaseKeeper) release(ctx context.Context, lease journal.Lease) {
	if k.leases.Release(ctx, lease) != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.orphans = append(k.orphans, orphan{lease: lease})
	}
}

// working reports whether a run of this process has the lease. It is called with mu held.
func (k *leaseKeeper) working(l journal.Lease) bool {
	run := k.live[l.Key()]
	return run != nil && run.lease.Epoch == l.Epoch
}

// check renews the leases if that of a run may expire before the next renewal: see doubtful.
// Runs that ask at the same time, as all do after a pause of the process, share a renewal. If
// the one that is shared began too long ago, before the pause, the next one counts.
func (k *leaseKeeper) check(written time.Time) error {
	for range 2 {
		if !k.doubtful(written) {
			return nil
		}
		if _, err, _ := k.checks.Do("", func() (any, error) { return nil, k.renew() }); err != nil {
			return err
		}
	}
	return nil
}

// doubtful reports whether the lease of a run may expire before the next renewal, so that
// another owner may have it. The run's last append was sent at the time written.
func (k *leaseKeeper) doubtful(written time.Time) bool {
	if k.leases == nil {
		return false
	}
	k.mu.Lock()
	since := k.renewed
	k.mu.Unlock()
	if written.After(since) {
		since = written
	}
	return time.Since(since) > doubtAfter
}

// following returns the feed of a durable run that is performed here, or nil, and a
// function that gives it back: the run's account stays open until then, because the run
// may end before its followers have read everything.
func (k *leaseKeeper) following(key journal.RunKey) (*eventlog.Feed, func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if run := k.live[key]; run != nil && run.feed != nil {
		return run.feed, run.feed.Retain()
	}
	return nil, func() {}
}

// wake makes a run of this process read what another writer has appended to its journal.
func (k *leaseKeeper) wake(key journal.RunKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if run := k.live[key]; run != nil {
		run.cancel(errWoken)
	}
}

// belongs notes the principal of a run that was taken over.
func (k *leaseKeeper) belongs(run *liveRun, principal string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	run.caller = principal
}

// endOf ends the runs of this process whose principal is gone, for the reason that gone returns. What is under
// way is cancelled.
func (k *leaseKeeper) endOf(gone func(orgID, principal string) string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, run := range k.live {
		if run.caller == "" {
			continue
		}
		if code := gone(key.Org, run.caller); code != "" {
			run.cancel(Gone(code))
		}
	}
}

// storeHealth knows whether the store can be written. It is safe for concurrent use.
type storeHealth struct {
	log *slog.Logger

	mu    sync.Mutex
	cause error // why it cannot be written; nil = it can
}

// err returns why the store cannot be written, or nil.
func (h *storeHealth) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// failed records that the store has failed, until recovered is called.
func (h *storeHealth) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		return
	}
	if h.cause == nil {
		h.log.Error("the store cannot be written: new runs and relayed requests are rejected until it can; check the disk", "error", err)
	}
	h.cause = err
}

// recovered records that the store can be written again.
func (h *storeHealth) recovered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause = nil
	h.log.Info("the store can be written again")
}
