package run

import (
	"context"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// Follow reports the events of a run to the sink, from the one after f.After to the end
// of the run, while they happen. The same run has the same events at the same positions,
// whenever and in whatever process it is followed; the pieces of a model call are events
// of their own in a durable run, in a light run each text is one.
//
// It returns nil after the last event, and the cause of ctx when ctx ends. The error wraps
// org.ErrNotFound if the org has no such run; it is a [fault.Error] if the run has too many
// followers, if its journal cannot be read, or if this process hands the run over. An
// error of the sink ends it too.
func (r *Runner) Follow(ctx context.Context, f eventlog.Follow, sink eventlog.Sink) error {
	key := journal.RunKey{Org: f.Org, Run: f.RunID}
	if err := r.followers.Enter(key); err != nil {
		return err
	}
	defer r.followers.Leave(key)
	if f.Account != nil {
		if err := f.Account.Acquire(eventlog.FollowerBytes); err != nil {
			return err
		}
		defer f.Account.Release(eventlog.FollowerBytes)
	}
	return r.follow(ctx, f, sink, nil)
}

// follow is Follow without a place. own is the feed of a run that this request has
// started; it is read after the run has left the process too.
func (r *Runner) follow(ctx context.Context, f eventlog.Follow, sink eventlog.Sink, own *eventlog.Feed) error {
	key := journal.RunKey{Org: f.Org, Run: f.RunID}
	next, done := r.followers.Listen(key)
	defer done()
	if f.WaitFor > 0 {
		defer r.audience.clients.enter(key)()
	}
	return eventlog.Report(ctx, f, sink, eventlog.Source{
		Archive: r.o.Archive,
		Feed: func() (*eventlog.Feed, func()) {
			if own != nil {
				return own, func() {}
			}
			return r.leases.following(key)
		},
		Next: next, Closing: r.leases.closing,
	})
}
