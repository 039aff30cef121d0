package run

import (
	"cmp"
	"sync"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

const (
	// DefaultFollowers is how many followers a run may have.
	DefaultFollowers = 16
	// maxOrgFollowers is how many followers all runs of an org may have.
	maxOrgFollowers = 1000
	// followerBytes is what a follower is charged with: its goroutine, its buffers,
	// and a batch of events with the facts or rows from which it is made. A larger
	// fact or row is charged in addition.
	followerBytes = 192 << 10
)

// followers are the callers that follow a run. Each has a place, of which a run and an
// org have so many, until its sink has all events or its client is dropped.
type followers struct {
	mu    sync.Mutex
	most  int // of a run
	ofRun map[runKey]int
	ofOrg map[string]int
	bells map[runKey]*bell
}

// bell wakes those who wait for something new in a run.
type bell struct {
	users int
	rang  chan struct{} // closed when there is something new
}

func newFollowers(most int) *followers {
	return &followers{most: cmp.Or(most, DefaultFollowers), ofRun: map[runKey]int{}, ofOrg: map[string]int{}, bells: map[runKey]*bell{}}
}

// limit sets how many followers a run may have. Those that a run has already stay.
func (f *followers) limit(most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most = cmp.Or(most, DefaultFollowers)
}

// enter takes a place, which leave gives back, or says why there is none.
func (f *followers) enter(key runKey) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var refused *fault.Error
	switch {
	case f.ofRun[key] >= f.most:
		refused = fault.New(fault.Limited, "too_many_followers",
			"run %s has %d followers already (max_followers_per_run); read their answers, or try again when one of them has ended", key.run, f.most)
	case f.ofOrg[key.org] >= maxOrgFollowers:
		refused = fault.New(fault.Limited, "too_many_followers",
			"the runs of the org have %d followers already; try again when some of them have ended", maxOrgFollowers)
	default:
		f.ofRun[key]++
		f.ofOrg[key.org]++
		return nil
	}
	refused.RetryAfter = attachRetry
	return refused
}

func (f *followers) leave(key runKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ofRun[key]--; f.ofRun[key] == 0 {
		delete(f.ofRun, key)
	}
	if f.ofOrg[key.org]--; f.ofOrg[key.org] == 0 {
		delete(f.ofOrg, key.org)
	}
}

// listen makes ring wake the caller, until done is called. next returns a channel that
// the next ring closes: get it before you look whether there is something new.
func (f *followers) listen(key runKey) (next func() <-chan struct{}, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.bells[key]
	if b == nil {
		b = &bell{rang: make(chan struct{})}
		f.bells[key] = b
	}
	b.users++
	next = func() <-chan struct{} {
		f.mu.Lock()
		defer f.mu.Unlock()
		return b.rang
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

// ring wakes those who listen to the run.
func (f *followers) ring(key runKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.bells[key]; b != nil {
		close(b.rang)
		b.rang = make(chan struct{})
	}
}

// newFeed returns the feed of a run, which wakes the run's followers and is charged to the account.
// fresh says that the run begins: the feed then has its events from the first one on. The feed of a
// run that was taken over has those after the first event of its new owner.
func (f *followers) newFeed(key runKey, account *memlimit.Account, fresh bool) *feed {
	return &feed{runID: key.run, account: account, ring: func() { f.ring(key) }, begun: fresh}
}

// ringingSink is the sink of a light run. It wakes the run's followers, who read the store,
// when there is an event of a fact.
type ringingSink struct {
	Sink
	followers *followers
	key       runKey
}

// Emit implements Sink.
func (s ringingSink) Emit(at event.Position, e event.Event) error {
	err := s.Sink.Emit(at, e)
	if at.Delta == 0 {
		s.followers.ring(s.key)
	}
	return err
}
