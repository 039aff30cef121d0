package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// How a Runner keeps its leases. An owner whose renewals fail stops one period
// before the lease ends, so that no new owner starts while it still sends requests.
const (
	renewEvery   = 5 * time.Second
	claimEvery   = time.Second
	doubtAfter   = LeaseTTL - renewEvery // after this long without a renewal, nothing more is sent
	claimAtOnce  = 64                    // runs
	storeTimeout = 10 * time.Second
)

// Start takes over the runs whose owner is gone, and keeps the leases of those
// that are under way here until Stop. It returns when every run that could be
// claimed has been: their callers can attach.
func (r *Runner) Start(ctx context.Context) error {
	if err := r.restore(ctx); err != nil {
		return fmt.Errorf("runs that were set aside: %w", err)
	}
	for {
		n, err := r.claim(ctx)
		if err != nil {
			return fmt.Errorf("take over runs: %w", err)
		}
		if n == 0 {
			break
		}
	}
	r.keeping.Go(r.keep)
	return nil
}

// Stop ends the service. Runs that are under way go on for as long as soft says;
// then durable ones are handed over at their next fact, and when ctx is done
// everything is cut off. Stop returns when nothing is left. It may be called
// more than once.
func (r *Runner) Stop(ctx context.Context, soft time.Duration) {
	r.mu.Lock()
	r.quiet = true
	r.mu.Unlock()
	r.suspects.stop()
	idle := make(chan struct{})
	go func() {
		r.tasks.Wait()
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
	r.yielding.Store(true)
	select {
	case <-idle:
	case <-ctx.Done():
	}
	r.end(errStopped)
	<-idle
	r.keeping.Wait()
}

// Health returns what is wrong with the store, or nil.
func (r *Runner) Health() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.troubled
}

// keep renews leases, claims runs, and looks after a store in trouble. One
// ticker does for both, so that their order is always the same.
func (r *Runner) keep() {
	ticks := time.NewTicker(claimEvery)
	defer ticks.Stop()
	for renewed := time.Now(); ; {
		select {
		case <-r.base.Done():
		case <-ticks.C:
		}
		if r.base.Err() != nil { // also when both had come
			return
		}
		if time.Since(renewed) > renewEvery-claimEvery/2 {
			renewed = time.Now()
			_ = r.renew() // trouble is remembered
		}
		r.tend()
	}
}

// tend claims what can be claimed. While the store is in trouble it only tries
// whether the store can be written again.
func (r *Runner) tend() {
	ctx, cancel := context.WithTimeout(r.base, storeTimeout)
	defer cancel()
	if r.Health() != nil {
		if err := r.o.Leases.Probe(ctx); err != nil {
			return
		}
		r.recovered()
		if r.renew() != nil { // first: what is under way here is not to be claimed from itself
			return
		}
	}
	r.releaseOrphans(ctx)
	if r.isQuiet() {
		return
	}
	if _, err := r.claim(ctx); err != nil && r.base.Err() == nil {
		r.trouble(err)
	}
}

func (r *Runner) isQuiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.quiet
}

// renew extends the leases of this process. A run that is not among them
// belongs to somebody else: it is stopped. A lease that no run here knows comes
// from a claim whose answer was lost: extended and never used, it would keep
// everybody from the run, so it is given back.
func (r *Runner) renew() error {
	ctx, cancel := context.WithTimeout(r.base, storeTimeout)
	defer cancel()
	others := r.leased()
	now := time.Now()
	leases, err := r.o.Leases.Renew(ctx, r.o.Owner)
	if err != nil {
		r.trouble(err)
		return err
	}
	for _, l := range leases {
		if d := others[runKey{l.Org, l.RunID}]; d != nil && d.lease.Epoch == l.Epoch {
			delete(others, runKey{l.Org, l.RunID})
		}
	}
	for _, d := range others {
		d.cancel(ErrFenced)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewed = now
	for _, l := range leases {
		if !r.working(l) && !slices.Contains(r.orphans, l) {
			r.orphans = append(r.orphans, l)
		}
	}
	return nil
}

// leased returns the runs under way here that have got their lease.
func (r *Runner) leased() map[runKey]*drive {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[runKey]*drive, len(r.live))
	for key, d := range r.live {
		if d.leased {
			out[key] = d
		}
	}
	return out
}

// claim takes over what can be claimed and returns how many runs that were.
func (r *Runner) claim(ctx context.Context) (int, error) {
	leases, err := r.o.Leases.Claim(ctx, r.o.Owner, claimAtOnce)
	if err != nil {
		return 0, err
	}
	for _, lease := range leases {
		crash.At(crash.AfterClaim)
		r.takeOver(lease)
	}
	return len(leases), nil
}

// adopt registers a run that is about to get its lease, or has it.
func (r *Runner) adopt(d *drive, leased bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet {
		stopping := fault.New(fault.Unavailable, "stopping", "the gateway is stopping; send the request again")
		stopping.RetryAfter = attachRetry
		return stopping
	}
	r.tasks.Add(1)
	if old := r.live[d.key()]; old != nil { // its lease has ended while it worked
		old.cancel(ErrFenced)
	}
	r.live[d.key()] = d
	d.leased = leased
	d.unstop = context.AfterFunc(r.base, func() { d.cancel(errStopped) })
	return nil
}

func (r *Runner) confirm(d *drive) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d.leased = true
}

// letGo forgets a run, and gives its lease back if it is not over: whoever
// claims it goes on with it.
func (r *Runner) letGo(d *drive) {
	defer r.tasks.Done()
	if d.suspect {
		d.clear()
	}
	d.unstop()
	over := d.aside || d.state.Finished != nil || d.state.Accepted != nil && d.state.ActiveSince == 0
	r.mu.Lock()
	if r.live[d.key()] == d { // or else it was taken over here
		delete(r.live, d.key())
	}
	orphan := r.o.Leases != nil && (d.leased && !over || d.unsure)
	r.mu.Unlock()
	if orphan {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), storeTimeout)
		defer cancel()
		r.release(ctx, d.lease)
	}
}

func (d *drive) key() runKey { return runKey{d.lease.Org, d.lease.RunID} }

// releaseOrphans gives back the leases that nobody works under.
func (r *Runner) releaseOrphans(ctx context.Context) {
	r.mu.Lock()
	orphans := slices.DeleteFunc(r.orphans, r.working)
	r.orphans = nil
	r.mu.Unlock()
	for _, lease := range orphans {
		r.release(ctx, lease)
	}
}

// release gives a lease back. What cannot be given back now is tried again.
func (r *Runner) release(ctx context.Context, lease Lease) {
	if r.o.Leases.Release(ctx, lease) != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.orphans = append(r.orphans, lease)
	}
}

// working reports whether somebody works under the lease. The caller has
// Runner.mu.
func (r *Runner) working(l Lease) bool {
	d := r.live[runKey{l.Org, l.RunID}]
	return d != nil && d.lease.Epoch == l.Epoch
}

// doubtful reports whether the lease may be somebody else's by now.
func (d *drive) doubtful() bool {
	if d.o.Leases == nil || d.req.Grade == loop.Relay {
		return false
	}
	d.mu.Lock()
	since := d.renewed
	d.mu.Unlock()
	if d.written.After(since) {
		since = d.written
	}
	return time.Since(since) > doubtAfter
}

// following returns what a durable run reports that is under way here, or nil. The
// caller closes the feed's account, which is held: the run may end before its
// followers have read everything. The account of a live run is open.
func (r *Runner) following(key runKey) *feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.live[key]; d != nil && d.feed != nil {
		d.feed.account.Hold()
		return d.feed
	}
	return nil
}

// meddle makes the run look at its journal.
func (r *Runner) meddle(key runKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.live[key]; d != nil {
		d.cancel(errMeddled)
	}
}

// trouble remembers that the store failed, until it can be written again.
func (r *Runner) trouble(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		return
	}
	if r.troubled == nil {
		r.o.Log.Error("the store cannot be written: new runs and relayed requests are rejected until it can; check the disk", "error", err)
	}
	r.troubled = err
}

func (r *Runner) recovered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubled = nil
	r.o.Log.Info("the store can be written again")
}
