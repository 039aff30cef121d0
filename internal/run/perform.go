package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Programs that embed the loop perform their runs in goroutines of their own. Such a program does
// not call Open: nothing is claimed that nobody has asked for.

// Performer performs runs in the goroutines of its callers.
type Performer struct{ r *Runner }

// Performer returns what performs runs in the goroutine of their caller.
func (r *Runner) Performer() Performer { return Performer{r} }

// Performed is how far a run has come when it leaves the goroutine of its caller: it has ended, or
// it waits for approvals.
type Performed struct {
	State loop.State
	Items []item.Item // the whole transcript, whatever the model sees of it; the caller must not change it
	Input int         // how many of Items the run began with

	Caller tool.Caller // of its tool calls

	// Ended are the tool calls of a Transcript that have ended.
	Ended []loop.CallDone

	// Failed is the failed model call that its caller is told of, if one has ended the run; nil = none has failed. Err is that of
	// the model for a call of this process, and nil otherwise.
	Failed *model.Error
}

// Perform performs the request in the goroutine of the caller, whatever the grade of the run: a
// durable run is stored for whoever continues it, and is cancelled like a light one when ctx ends.
// The sink gets its events, the last of which is Finished or Waiting. What Run says about errors
// holds.
func (p Performer) Perform(ctx context.Context, req *Request, sink eventlog.Sink) (Performed, error) {
	if req.Account == nil {
		req.Account = p.r.o.Memory.Open(req.Org)
		defer req.Account.Close()
	}
	lease := p.r.o.newLease(req)
	d := newDriver(ctx, p.r, req, lease, req.Account, sink)
	if req.Relay != nil {
		return d.here(false, d.relay)
	}
	return d.here(false, d.perform)
}

// Continue performs the rest of a stored run as Perform does: of one that a crash has broken off, or
// that waited for approvals which are all decided. The sink gets the events from here on. The error
// wraps org.ErrNotFound if the org has no such run; it is a *[NotNow] if the run cannot be continued.
func (p Performer) Continue(ctx context.Context, key journal.RunKey, sink eventlog.Sink) (Performed, error) {
	if err := p.r.audience.expireApprovals(ctx); err != nil {
		return Performed{}, err
	}
	picker, ok := p.r.o.Leases.(journal.Picker)
	if !ok {
		return Performed{}, errors.New("the store cannot claim a single run")
	}
	lease, claimed, err := picker.ClaimRun(ctx, p.r.o.Owner, key)
	if err != nil {
		return Performed{}, err
	}
	if !claimed {
		return Performed{}, p.notClaimed(ctx, key)
	}
	account := p.r.o.Memory.Open(key.Org)
	defer account.Close()
	d := newDriver(ctx, p.r, &Request{Who: Who{Org: key.Org, Account: account}}, lease, account, sink)
	return d.here(true, d.resume)
}

// notClaimed says why a run cannot be claimed.
func (p Performer) notClaimed(ctx context.Context, key journal.RunKey) error {
	head, err := p.r.o.Archive.Head(ctx, key.Org, key.Run)
	if err != nil {
		return err
	}
	return &NotNow{key.Run, head.Summary.Status, head.Summary.Aside.Reason}
}

// NotNow is the error for a run that cannot be continued at the moment.
type NotNow struct {
	RunID  string
	Status journal.Status // Running means that somebody performs it
	Detail string         // why it is set aside
}

func (n *NotNow) Error() string {
	switch n.Status {
	case journal.Done:
		return fmt.Sprintf("run %s has already ended", n.RunID)
	case journal.Waiting:
		return fmt.Sprintf("run %s waits for approvals", n.RunID)
	case journal.Paused:
		return fmt.Sprintf("run %s waits for a raise of its limits", n.RunID)
	case journal.IsAside:
		return fmt.Sprintf("run %s cannot be read by this build: %s", n.RunID, n.Detail)
	case journal.Running:
	}
	return fmt.Sprintf("run %s is in progress; wait until it has ended, or cancel it", n.RunID)
}

// renewMeanwhile renews the leases of this process until the function that it returns is called,
// which waits for it.
func (k *leaseKeeper) renewMeanwhile() (stop func()) {
	if k.leases == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(k.base)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(renewEvery)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				_ = k.renew() // it records an error; check tries it again before the next step
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Transcript returns the transcript of a stored run, and how many of its items the run began with.
// The error wraps org.ErrNotFound if the org has no such run, and is an *[journal.Unreadable] if
// it cannot be read.
func (p Performer) Transcript(ctx context.Context, key journal.RunKey) (Performed, error) {
	story, err := p.r.o.Archive.Load(ctx, key.Org, key.Run)
	if err != nil {
		return Performed{}, err
	}
	account := p.r.o.Memory.Open(key.Org)
	defer account.Close()
	w := eventlog.NewWriter(nil, account, func(error) {})
	var ended []loop.CallDone
	note := func(b loop.Body) error {
		if done, ok := b.(loop.CallDone); ok {
			ended = append(ended, done)
		}
		return nil
	}
	if err := w.Recover(story, note); err != nil {
		return Performed{}, err
	}
	req, _, err := requestOf(w.State().Accepted, w.State().Parks, story.Rows)
	if err != nil {
		return Performed{}, err
	}
	return Performed{
		State: *w.State(), Items: w.Transcript(w.State().Refs()), Input: len(w.Items("input")),
		Caller: req.caller(), Ended: ended, Failed: w.Reported(),
	}, nil
}
