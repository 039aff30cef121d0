package run

import (
	"context"
	"fmt"
	"sync"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
)

// feed is what a durable run has reported: callers come and go, and each of
// them is told everything from the beginning. It is the run's Sink.
type feed struct {
	account *ledger.Account // of the run

	mu     sync.Mutex
	events []event.Event
	over   bool
	err    error         // why the run did not come to its end here
	rang   chan struct{} // closed when there is more
}

func newFeed(account *ledger.Account) *feed {
	return &feed{account: account, rang: make(chan struct{})}
}

// Emit implements Sink. It does not wait for anybody. The error is that of the
// run's account, which has no room for the event; the end is always told.
func (f *feed) Emit(e event.Event) error {
	if _, last := e.(event.Finished); last {
		f.account.Add(weight(e))
	} else if err := f.account.Charge(weight(e)); err != nil {
		return err
	}
	f.change(func() { f.events = append(f.events, e) })
	return nil
}

// end says that nothing follows.
func (f *feed) end(err error) {
	f.change(func() { f.over, f.err = true, err })
}

func (f *feed) change(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
	close(f.rang)
	f.rang = make(chan struct{})
}

// ended reports whether nothing follows.
func (f *feed) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// follow reports everything to the sink until the end, or until ctx or the sink
// says that nobody listens any more. Its error is that of the run.
func (f *feed) follow(ctx context.Context, sink Sink) error {
	for told := 0; ; {
		f.mu.Lock()
		events, over, err, rang := f.events[told:], f.over, f.err, f.rang
		f.mu.Unlock()
		for _, e := range events {
			if err := sink.Emit(e); err != nil {
				return fmt.Errorf("%w: %w", errNobody, err)
			}
		}
		told += len(events)
		switch {
		case len(events) > 0:
		case over:
			return err
		default:
			select {
			case <-rang:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}
