package eventlog

import (
	"cmp"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

const (
	// DefaultFollowers is how many followers a run may have.
	DefaultFollowers = 16
	// maxOrgFollowers is how many followers all runs of an org may have.
	maxOrgFollowers = 1000
	// FollowerBytes is what a follower is charged with: its goroutine, its buffers,
	// and a batch of events with the facts or rows from which it is made. A larger
	// fact or row is charged in addition.
	FollowerBytes = 192 << 10
)

// AttachRetry is how long a caller is asked to wait that may not follow a run
// which is under way.
const AttachRetry = time.Second

// Followers are the callers that follow a run. Each has a place, of which a run and an
// org have so many, until its sink has all events or its client is dropped.
type Followers struct {
	mu    sync.Mutex
	most  int // of a run
	ofRun map[journal.RunKey]int
	ofOrg map[string]int
	bells map[journal.RunKey]*bell
}

// bell wakes those who wait for something new in a run.
type bell struct {
	users   int
	changed chan struct{} // closed when there is something new
}

// NewFollowers returns the followers of all runs of a process. A run may have so many; 0 = [DefaultFollowers].
func NewFollowers(most int) *Followers {
	return &Followers{most: cmp.Or(most, DefaultFollowers), ofRun: map[journal.RunKey]int{}, ofOrg: map[string]int{}, bells: map[journal.RunKey]*bell{}}
}

// Limit sets how many followers a run may have. Those that a run has already stay.
func (f *Followers) Limit(most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most = cmp.Or(most, DefaultFollowers)
}

// Enter takes a place, which Leave gives back, or says why there is none.
func (f *Followers) Enter(key journal.RunKey) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var refused *fault.Error
	switch {
	case f.ofRun[key] >= f.most:
		refused = fault.New(fault.Limited, "too_many_followers",
			"run %s has %d followers already (max_followers_per_run); read their answers, or try again when one of them has ended", key.Run, f.most)
	case f.ofOrg[key.Org] >= maxOrgFollowers:
		refused = fault.New(fault.Limited, "too_many_followers",
			"the runs of the org have %d followers already; try again when some of them have ended", maxOrgFollowers)
	default:
		f.ofRun[key]++
		f.ofOrg[key.Org]++
		return nil
	}
	refused.RetryAfter = AttachRetry
	return refused
}

// Leave gives back a place of Enter.
func (f *Followers) Leave(key journal.RunKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ofRun[key]--; f.ofRun[key] == 0 {
		delete(f.ofRun, key)
	}
	if f.ofOrg[key.Org]--; f.ofOrg[key.Org] == 0 {
		delete(f.ofOrg, key.Org)
	}
}

// Listen makes ring wake the caller, until done is called. next returns a channel that
// the next ring closes: get it before you look whether there is something new.
func (f *Followers) Listen(key journal.RunKey) (next func() <-chan struct{}, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.bells[key]
	if b == nil {
		b = &bell{changed: make(chan struct{})}
		f.bells[key] = b
	}
	b.users++
	next = func() <-chan struct{} {
		f.mu.Lock()
		defer f.mu.Unlock()
		return b.changed
	}
	done = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if b.users--; b.users == 0 {
			delete(f.bells, key)
		}
	}
	return next, done
}

// Ring wakes those who listen to the run.
func (f *Followers) Ring(key journal.RunKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.bells[key]; b != nil {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// RingAll wakes those who listen to any run.
func (f *Followers) RingAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.bells {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// NewFeed returns the feed of a run, which wakes the run's followers and is charged to the account.
// fresh says that the run begins: the feed then has its events from the first one on. The feed of a
// run that was taken over has those after the first event of its new owner.
func (f *Followers) NewFeed(key journal.RunKey, account *memlimit.Account, fresh bool) *Feed {
	return &Feed{RunID: key.Run, account: account, ring: func() { f.Ring(key) }, begun: fresh}
}

// Ringing returns a sink for a light run, which passes events on and wakes the run's followers.
func (f *Followers) Ringing(key journal.RunKey, sink Sink) Sink { return ringingSink{sink, f, key} }

// ringingSink is the sink of a light run. It wakes the run's followers, who read the store,
// when there is an event of a fact.
type ringingSink struct {
	Sink
	followers *Followers
	key       journal.RunKey
}

// Emit implements Sink.
func (s ringingSink) Emit(at event.Position, e event.Event) error {
	err := s.Sink.Emit(at, e)
	if at.Delta == 0 {
		s.followers.Ring(s.key)
	}
	return err
}
