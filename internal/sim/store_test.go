package sim

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
)

// store is what survives every process. But for conversations, only the scheduler's
// goroutine touches it.
type store struct {
	w             *world
	journal       memory.Journal
	conversations memory.Conversations
	sessions      memory.Sessions
	stepped       atomic.Int64 // the sum of all that clocks were set by, in ns

	written map[runKey]*queue    // what need not be on disk yet
	holds   map[runKey][]holding // that are open

	// What the mutations know beside the journal.
	refunded map[budgetKey]int64
	running  map[string]int // per org
	counted  map[runKey]*process
	forks    map[string][]string // by the id of the conversation that they were made of
}

type runKey struct{ org, run string }

type budgetKey struct{ org, scope string }

// holding is what is set aside for a model call.
type holding struct {
	id     string
	budget budgetKey
	tokens int64
}

// queue holds what one process has written and nobody has stored.
type queue struct {
	process *process
	batches []writing
}

// writing is one Append.
type writing struct {
	lease journal.Lease
	after int64
	batch journal.Batch
}

func newStore(w *world) *store {
	s := &store{
		w: w, written: map[runKey]*queue{}, holds: map[runKey][]holding{},
		refunded: map[budgetKey]int64{}, running: map[string]int{}, counted: map[runKey]*process{}, forks: map[string][]string{},
	}
	s.journal.Conversations = &s.conversations
	s.sessions = memory.Sessions{Journal: &s.journal, Conversations: &s.conversations}
	if w.mutation == setLeases {
		s.journal.LeaseNow = func() time.Time { return time.Now().Round(0).Add(time.Duration(s.stepped.Load())) }
	}
	return s
}

// append is Append as a store does it that writes behind what it may.
func (s *store) append(p *process, wr writing) error {
	key, own := runKey{wr.lease.Org, wr.lease.RunID}, wr.lease.Epoch > 0
	if !own && s.w.mutation == deafOwners {
		return nil
	}
	if own && s.behind(wr.batch) {
		if s.written[key] == nil {
			s.written[key] = &queue{process: p}
		}
		s.written[key].batches = append(s.written[key].batches, wr)
		return nil
	}
	if err := s.flush(key); err != nil && own {
		return err
	}
	return s.write(p, wr)
}

// behind reports whether the batch is written later.
func (s *store) behind(b journal.Batch) bool {
	switch s.w.mutation {
	case noIntent:
		return !slices.ContainsFunc(b.Facts, func(f loop.Fact) bool { return f.Body.Kind() != loop.KindCallStarted })
	case lateHolds:
		return len(b.Reservations) > 0
	}
	return s.w.swarm.queues && !b.Sync
}

// flush writes what was left for later.
func (s *store) flush(key runKey) error {
	q := s.written[key]
	if q == nil {
		return nil
	}
	delete(s.written, key)
	for _, wr := range q.batches {
		if err := s.write(q.process, wr); err != nil {
			return err
		}
	}
	return nil
}

// forget drops what a process took with it.
func (s *store) forget(p *process) {
	for key, q := range s.written {
		if q.process == p {
			delete(s.written, key)
			s.w.saw("what was written behind was lost")
		}
	}
}

// write stores a batch and enters it into the book.
func (s *store) write(p *process, wr writing) error {
	if wr.batch.Opening != nil {
		if err := s.count(p, wr); err != nil {
			return err
		}
	}
	made := s.mutate(wr)
	err := s.journal.Append(context.Background(), made.lease, made.after, made.batch)
	s.notice(err)
	if err != nil {
		s.uncount(p, wr)
		return err
	}
	s.hold(wr)
	if s.w.book.wrote(p, wr) {
		s.uncount(p, wr)
	}
	return nil
}

// hold keeps the list of what is set aside.
func (s *store) hold(wr writing) {
	key := runKey{wr.lease.Org, wr.lease.RunID}
	for _, settled := range wr.batch.Settled {
		s.holds[key] = slices.DeleteFunc(s.holds[key], func(h holding) bool { return h.id == settled.ID })
	}
	for _, h := range wr.batch.Reservations {
		s.holds[key] = append(s.holds[key], holding{h.ID, budgetKey{key.org, h.Budget.Scope}, h.Amount.Tokens})
	}
}

// notice counts the verdicts that are worth reaching.
func (s *store) notice(err error) {
	var behind *journal.Behind
	var over *journal.OverBudget
	var known *journal.Submitted
	switch {
	case errors.Is(err, journal.ErrFenced):
		s.w.saw("a zombie was fenced off")
	case errors.Is(err, journal.ErrNoSlot):
		s.w.saw("no slot was free")
	case errors.As(err, &behind):
		s.w.saw("somebody else wrote in between")
	case errors.As(err, &over):
		s.w.saw("a budget had no room")
	case errors.As(err, &known):
		s.w.saw("a key stood for a run")
	}
}

// claim is Claim.
func (s *store) claim(owner string, limit int) ([]journal.Lease, error) {
	leases, err := s.journal.Claim(context.Background(), owner, limit)
	for _, l := range leases {
		key := runKey{l.Org, l.RunID}
		s.w.saw("a run was taken over")
		if len(s.holds[key]) > 0 {
			s.w.saw("what was set aside was settled for its owner")
		}
		if s.w.mutation == refunds {
			for _, h := range s.holds[key] {
				s.refunded[h.budget] += h.tokens
			}
		}
		delete(s.holds, key)
		s.w.book.claimed(l)
	}
	return leases, err
}

// found is the key under which a run is read, after what its writer has left to
// be written.
func (s *store) found(key runKey) runKey {
	_ = s.flush(key) // its writer learns of a failure
	if s.w.mutation == openDoors {
		key.org = s.w.book.orgOf(key)
	}
	return key
}

// head is Head.
func (s *store) head(key runKey) (journal.Head, error) {
	key = s.found(key)
	return s.journal.Head(context.Background(), key.org, key.run)
}

// load is Load.
func (s *store) load(key runKey) (*journal.Story, error) {
	key = s.found(key)
	story, err := s.journal.Load(context.Background(), key.org, key.run)
	if err == nil {
		s.w.mutation.drop(story)
	}
	return story, err
}

// used returns what a budget was charged with.
func (s *store) used(key budgetKey) journal.Used {
	u, _ := s.journal.Used(context.Background(), key.org, key.scope)
	u.Spent = u.Spent.Sub(budget.Amount{Tokens: s.refunded[key]})
	return u
}
