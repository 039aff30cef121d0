package run

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// Options are what a Runner needs. Catalog, Journal and Handovers are required;
// without Leases, Archive and Resources there are no durable runs.
type Options struct {
	Catalog   *catalog.Catalog
	Journal   Journal
	Handovers Handovers
	Leases    Leases
	Archive   Archive
	Resources Resources
	Cache     Cache    // nil = nothing is kept
	Recorder  Recorder // nil = relays leave no audit rows
	Observer  Observer // nil = nobody watches

	// Owner names this process, anew at every start; empty = a name is made.
	Owner string

	Log    *slog.Logger                            // nil = discard
	Now    func() time.Time                        // nil = time.Now
	NewID  func(prefix string) string              // nil = id.NewOrdered
	Jitter func(limit time.Duration) time.Duration // nil = evenly spread over 0..limit
}

// Runner runs requests. It is safe for concurrent use. Between [Runner.Start]
// and [Runner.Stop] it keeps the leases of its runs and takes over those whose
// owner is gone.
type Runner struct {
	o Options

	base     context.Context // of durable runs, which outlive their callers
	end      context.CancelCauseFunc
	tasks    sync.WaitGroup // runs that are live
	keeping  sync.WaitGroup // the loop that keeps leases
	yielding atomic.Bool    // durable runs are handed over at their next fact

	mu       sync.Mutex
	quiet    bool              // no new runs
	live     map[runKey]*drive // runs that are under way here, but for relays
	orphans  []Lease           // leases that are ours and that nobody works under
	renewed  time.Time         // when the leases were last known to be ours
	troubled error             // what is wrong with the store; nil = nothing
}

type runKey struct{ org, run string }

// New returns a Runner.
func New(o Options) *Runner {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = id.NewOrdered
	}
	if o.Jitter == nil {
		o.Jitter = func(limit time.Duration) time.Duration { return rand.N(limit + 1) }
	}
	if o.Owner == "" {
		o.Owner = o.NewID("gw_")
	}
	r := &Runner{o: o, live: map[runKey]*drive{}}
	r.base, r.end = context.WithCancelCause(context.Background())
	return r
}

// The causes for which a run's context ends.
var (
	errDeadline  = errors.New("the run's active time is used up")
	errNobody    = errors.New("nobody is left to report to")
	errStopped   = errors.New("the gateway is stopping")
	errMeddled   = errors.New("somebody else has written to the journal")
	errHandOver  = errors.New("the run was handed over")
	errDiscarded = errors.New("the run is over")
)

// Run performs the request and reports to sink until the Finished event, which
// comes exactly once. It returns when everything that it started for the caller
// has ended. An error means that the run could not be recorded, or was not
// accepted (a [fault.Error]); no Finished was emitted then.
//
// The end of ctx is the caller's leaving: it cancels the model call and every
// tool of a light run. A durable run goes on without its caller.
func (r *Runner) Run(ctx context.Context, req *Request, sink Sink) error {
	if req.Grade == loop.Durable {
		return r.submit(ctx, req, sink)
	}
	d := r.newDrive(ctx, req, sink)
	defer d.cancel(errDiscarded)
	if req.Grade == loop.Relay {
		return d.relayed()
	}
	if err := r.adopt(d, false); err != nil {
		return err
	}
	defer r.letGo(d)
	err := d.perform()
	if errors.Is(err, ErrFenced) || errors.Is(err, errHandOver) {
		return &fault.Error{Code: fault.Internal, Reason: "run_lost", Message: "the run was lost: another process has ended it", Err: err}
	}
	return err
}
