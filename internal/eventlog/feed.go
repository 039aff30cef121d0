package eventlog

import (
	"slices"
	"sync"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// feedBytes is how much of the latest events a feed keeps. The latest event is kept
// whatever its size.
const feedBytes = 256 << 10

// Feed has the latest events of a durable run that is performed in this process. It is
// the run's Sink. Every event is in the store before it is emitted: a follower that is
// too far behind for the feed reads it there.
type Feed struct {
	RunID   string
	account *memlimit.Account // of the run; charged with the events that are kept
	ring    func()            // wakes the followers of the run

	mu     sync.Mutex
	from   event.Position // the events after it are kept
	begun  bool           // from is known
	events []placed
	bytes  int
	over   bool
	err    error // why the run did not come to its end here
}

// placed is an event and its position.
type placed struct {
	at    event.Position
	event event.Event
}

// Emit implements Sink. It does not wait for anybody. The error is that of the run's
// account, which has no room for the event: followers then read the store. The end is
// always kept.
func (f *Feed) Emit(at event.Position, e event.Event) error {
	size := EventSize(e)
	if _, last := e.(event.Finished); last {
		f.account.Add(size)
	} else if err := f.account.Acquire(size); err != nil {
		f.account.Release(f.drop(at))
		f.ring()
		return err
	}
	f.account.Release(f.keep(placed{at, e}, size))
	f.ring()
	return nil
}

// keep keeps an event and drops older ones. It returns the size of what it has dropped.
func (f *Feed) keep(e placed, size int) (dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.begun {
		f.begun, f.from = true, e.at
		return size
	}
	n := 0
	for ; n < len(f.events) && f.bytes-dropped+size > feedBytes; n++ {
		f.from = f.events[n].at
		dropped += EventSize(f.events[n].event)
	}
	if n > 0 {
		f.events = slices.Delete(f.events, 0, n)
	}
	f.events = append(f.events, e)
	f.bytes += size - dropped
	return dropped
}

// drop drops all events up to a position, and returns their size.
func (f *Feed) drop(at event.Position) (dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dropped = f.bytes
	f.begun, f.from, f.events, f.bytes = true, at, nil, 0
	return dropped
}

// End says that nothing follows.
func (f *Feed) End(err error) {
	f.mu.Lock()
	f.over, f.err = true, err
	f.mu.Unlock()
	f.ring()
}

// after returns events that follow a position, about batchBytes of them at most. It
// returns false if the feed does not have all of them.
func (f *Feed) after(at event.Position) ([]placed, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.begun || at.Compare(f.from) < 0 {
		return nil, false
	}
	first, _ := slices.BinarySearchFunc(f.events, at, func(e placed, at event.Position) int {
		if e.at.Compare(at) <= 0 {
			return -1
		}
		return 1
	})
	end, size := first, 0
	for end < len(f.events) && (end == first || size+EventSize(f.events[end].event) <= journal.BatchBytes) {
		size += EventSize(f.events[end].event)
		end++
	}
	return slices.Clone(f.events[first:end]), true
}

// hasBegun reports whether the owner has emitted an event, or began the run.
func (f *Feed) hasBegun() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// Retain keeps the run's account open until release is called: the run may end before its followers
// have read everything.
func (f *Feed) Retain() (release func()) { return f.account.Retain().Close }

// ended reports whether nothing follows, and why the run did not come to its end here.
func (f *Feed) ended() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over, f.err
}
