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
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
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

	// Ledger opens accounts for runs whose request brings none; nil = one with its
	// default bounds.
	Ledger *ledger.Ledger
	// MaxFollowers is how many repeats of one Idempotency-Key may follow its run
	// at a time; 0 = 16.
	MaxFollowers int

	Observer Observer // nil = nobody watches

	// Rules are the numbers by which new runs are steered; a zero field means that of
	// this build. Runs that were accepted before keep theirs.
	Rules loop.Rules

	// Owner names this process, anew at every start; empty = a name is made.
	Owner string

	// Build names this build of the program: a run that is set aside because its
	// journal seems damaged is tried again by another build.
	Build string

	Log    *slog.Logger                            // nil = discard
	Now    func() time.Time                        // the wall clock, by which runs and relays are dated; nil = clock.Wall
	NewID  func(prefix string) string              // nil = id.NewOrdered
	Jitter func(limit time.Duration) time.Duration // nil = evenly spread over 0..limit
}

// Runner runs requests. It is safe for concurrent use. Between [Runner.Start]
// and [Runner.Stop] it keeps the leases of its runs and takes over those whose
// owner is gone.
type Runner struct {
	o Options

	base      context.Context // of durable runs, which outlive their callers
	end       context.CancelCauseFunc
	tasks     sync.WaitGroup // runs that are live
	keeping   sync.WaitGroup // the loop that keeps leases
	followers *followers     // repeats of requests that follow a run, and what they share
	yielding  atomic.Bool    // durable runs are handed over at their next fact
	suspects  suspects       // runs that are worked on one at a time

	mu       sync.Mutex
	quiet    bool              // no new runs
	live     map[runKey]*drive // runs that are under way here, but for relays
	orphans  []Lease           // leases that are ours and that nobody works under
	renewed  time.Time         // when the leases were last known to be ours; monotonic
	troubled error             // what is wrong with the store; nil = nothing
}

type runKey struct{ org, run string }

// New returns a Runner.
func New(o Options) *Runner {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = clock.Wall
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
	if o.Ledger == nil {
		o.Ledger = ledger.New(ledger.Options{})
	}
	r := &Runner{o: o, live: map[runKey]*drive{}, followers: newFollowers(o.MaxFollowers)}
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
	if req.Account == nil {
		req.Account = r.o.Ledger.Open(req.Org)
		defer req.Account.Close()
	}
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
