package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// Head is the end of a run's journal and the run's lease: the part of a run that a
// store changes. The methods of Head are the rules for these changes. They are pure:
// a store reads a head, calls a method, and writes the result in one transaction. A
// store may instead express a rule as a condition of its own, such as the WHERE clause
// of an UPDATE, if the outcome is the same. The zero value is the head of a run that
// has no journal.
type Head struct {
	Summary Summary
	Seq     int64 // of the last fact
	At      int64 // of the latest fact, in Unix milliseconds

	Epoch      int64  // of the latest lease
	Owner      string // of the lease; "" = none: it was released, or the run does not run
	LeaseUntil int64  // when the lease expires, by the clock of leases, in Unix milliseconds

	// Bytes is the stored size of all facts and rows: what Archive.Load reads. The
	// rules do not use it.
	Bytes int64
}

// ErrAhead is wrapped by the error for a batch that starts after the end of the
// journal. Either facts were lost or the writer has a bug.
var ErrAhead = errors.New("the journal is shorter than the writer expects")

// Admit reports whether a batch of the lease's writer may follow the fact with number
// after. The error wraps [ErrFenced] if the run has a later epoch, it is a *[Behind]
// whose Facts the store must fill in if the journal has further facts, and it wraps
// [ErrAhead] if the journal ends earlier. The epoch is compared first: a writer that
// was fenced learns nothing about the journal.
//
// A writer without a lease (epoch 0) is never fenced. It may write at any time, if it
// has read the whole journal.
func (h Head) Admit(lease Lease, after int64) error {
	switch {
	case lease.Epoch != 0 && lease.Epoch < h.Epoch:
		return ErrFenced
	case h.Seq > after:
		return &Behind{}
	case h.Seq < after:
		return fmt.Errorf("%w: it ends at %d, not at %d", ErrAhead, h.Seq, after)
	}
	return nil
}

// Allow returns nil if a writer that has not read the journal may append the body. It
// agrees with [loop.Allowed] for every body that is [loop.AllowedAnytime]. It refuses any
// other body: its writer must fold the journal. It also serves runs whose journal cannot
// be decoded.
func (h Head) Allow(body loop.Body) error {
	switch {
	case !loop.AllowedAnytime(body):
		return fmt.Errorf("fact %s depends on the state of the run: its writer must fold the journal", body.Kind())
	case h.Seq == 0:
		return fmt.Errorf("fact %s is not allowed: the run is not accepted", body.Kind())
	case h.Summary.Status == Done:
		return fmt.Errorf("fact %s is not allowed: the run has finished (%s)", body.Kind(), h.Summary.Reason)
	}
	return nil
}

// After returns the head after a batch of the lease's writer. The batch must have been
// admitted. now is a reading of the clock of leases.
//
// A batch after which the run does not run ends the lease. A batch of the owner extends
// it by [LeaseTTL]. A batch of a writer without a lease does not change it: see
// [Head.KeepsLease].
func (h Head) After(lease Lease, b Batch, now time.Time) Head {
	next := h
	for _, f := range b.Facts {
		next.Summary, next.Seq, next.At = next.Summary.After(f), next.Seq+1, max(next.At, f.At)
	}
	next.Epoch = max(h.Epoch, lease.Epoch)
	switch {
	case h.KeepsLease(lease, next):
	case next.Summary.Status == Running && lease.Epoch > 0:
		next.Owner, next.LeaseUntil = lease.Owner, LeaseEnd(now)
	default:
		next.Owner, next.LeaseUntil = "", 0
	}
	return next
}

// KeepsLease reports whether a batch that changes h to next leaves owner and expiry of
// the lease unchanged: the writer has no lease, and the run was running and still is. If
// such a writer wakes a run, it has no owner and can be claimed.
func (h Head) KeepsLease(lease Lease, next Head) bool {
	return lease.Epoch == 0 && h.Summary.Status == Running && next.Summary.Status == Running
}

// Leased reports whether the run has a lease that has not expired. Such a run occupies
// one of its org's slots.
func (h Head) Leased(now time.Time) bool {
	return h.Summary.Status == Running && h.LeaseUntil > now.UnixMilli()
}

// Claimable reports whether owner may claim the run: it is queued, or its lease has expired. A run
// whose lease was owner's is not, even if the lease has expired: owner may still be working on it.
func (h Head) Claimable(owner string, now time.Time) bool {
	return h.Summary.Status == Queued || h.Summary.Status == Running && !h.Leased(now) && h.Owner != owner
}

// Claim returns the head with a new lease for owner, and that lease. Every hold of the
// run must be settled at its full amount in the same transaction.
func (h Head) Claim(owner string, now time.Time) (Head, Lease) {
	released := h.Owner == ""
	h.Epoch, h.Owner, h.LeaseUntil, h.Summary.Status = h.Epoch+1, owner, LeaseEnd(now), Running
	lease := h.Lease()
	lease.Handed = released
	return h, lease
}

// Lease returns the run's latest lease.
func (h Head) Lease() Lease {
	return Lease{Org: h.Summary.Org, RunID: h.Summary.RunID, Epoch: h.Epoch, Owner: h.Owner}
}

// Renewable reports whether owner may extend the run's lease: it has the latest one, and
// the run is running. The lease may have expired.
func (h Head) Renewable(owner string) bool {
	return owner != "" && h.Owner == owner && h.Summary.Status == Running
}

// Renew returns the head with its lease extended.
func (h Head) Renew(now time.Time) Head {
	h.LeaseUntil = LeaseEnd(now)
	return h
}

// holds reports whether the run is running under exactly this lease.
func (h Head) holds(lease Lease) bool {
	return h.Summary.Status == Running && h.Epoch == lease.Epoch && h.Owner == lease.Owner
}

// Release returns the head without its lease, and false if the run does not have this
// lease any more.
func (h Head) Release(lease Lease) (Head, bool) {
	if !h.holds(lease) {
		return h, false
	}
	h.Owner, h.LeaseUntil = "", 0
	return h, true
}

// SetAside returns the head of a run that is set aside, without its lease, and false if
// the run does not have this lease any more, or if its journal does not end with the fact
// with number last.
func (h Head) SetAside(lease Lease, last int64, why Aside) (Head, bool) {
	if h.Seq != last {
		return h, false
	}
	h, ok := h.Release(lease)
	if ok {
		h.Summary.Status, h.Summary.Aside = IsAside, why
	}
	return h, ok
}

// Restore returns the head of a run that is not set aside any more, and false if it was
// not set aside.
func (h Head) Restore() (Head, bool) {
	if h.Summary.Status != IsAside {
		return h, false
	}
	h.Summary.Status, h.Summary.Aside = Running, Aside{}
	return h, true
}

// LeaseEnd returns when a lease expires that is granted or extended now.
func LeaseEnd(now time.Time) int64 { return now.Add(LeaseTTL).UnixMilli() }

// Status is the state of a run that has not ended, or Done.
type Status string

// The statuses.
const (
	Queued  Status = "queued" // accepted, and waits for a slot
	Running Status = "running"
	Waiting Status = "waiting"   // for a human
	Paused  Status = "paused"    // for a raise of its limits
	IsAside Status = "set_aside" // no process performs it, see Summary.Aside
	Done    Status = "done"
)

// Waits reports whether a run with the status waits for somebody, and has no owner.
func (s Status) Waits() bool { return s == Waiting || s == Paused }

// Summary is the result of all facts of a run. A store keeps it for lists of runs.
type Summary struct {
	Org        string
	RunID      string
	Principal  string
	Surface    string
	Grade      loop.Grade
	Model      string
	Status     Status
	Reason     event.Reason // why it ended; empty before
	CreatedAt  int64        // Unix milliseconds
	FinishedAt int64        // Unix milliseconds; 0 before
	Aside      Aside        // why it is set aside
	Waits      int          // approvals, and raises of limits, that are not decided
	Slots      int          // runs of the org that may have a lease at a time, when it was accepted; 0 = no limit, or the run is to end

	loop.Counts
}

// State is the status of a run that has not ended, and the reason of one that has.
func (s Summary) State() string {
	if s.Reason != "" {
		return string(s.Reason)
	}
	return string(s.Status)
}

// States returns every state that a run can have.
func States() []string {
	states := []string{string(Queued), string(Running), string(Waiting), string(Paused), string(IsAside)}
	for _, r := range event.Reasons() {
		states = append(states, string(r))
	}
	return states
}

// After returns the summary after the fact f. The zero Summary is the one before the
// first fact.
func (s Summary) After(f loop.Fact) Summary {
	if s.Status == Done {
		return s // nothing follows an end
	}
	s.Counts = s.Counts.After(f.Body)
	switch b := f.Body.(type) {
	case loop.Accepted:
		status := Running
		if b.Queued {
			status = Queued
		}
		return Summary{
			Org: b.Org, RunID: b.RunID, Principal: b.Principal, Surface: b.Surface, Grade: b.Grade, Model: b.Model,
			Status: status, CreatedAt: f.At, Slots: b.Slots,
		}
	case loop.CallWaiting:
		s.Waits++
	case loop.Paused:
		if b.Refused == "" {
			s.Status, s.Aside, s.Waits = Paused, Aside{}, s.Waits+1
		}
	case loop.LimitsRaised:
		if b.WaitID != "" {
			return s.decided()
		}
	case loop.Parked:
		s.Status, s.Aside = Waiting, Aside{}
		s.Grade = loop.Durable
	case loop.CallResolved:
		if b.WaitID != "" || !b.Early { // else it is for a call that nobody has asked for yet
			return s.decided()
		}
	case loop.Expired:
		if b.WaitID != "" {
			return s.decided()
		}
		s.Status, s.Aside = Running, Aside{}
	case loop.Resumed: // an owner acts on it
		s.Status, s.Aside = Running, Aside{}
	case loop.CancelRequested: // an owner has to act on it; to end the run needs no slot
		s.Status, s.Aside, s.Slots = Running, Aside{}, 0
	case loop.Finished:
		s.Status, s.Reason, s.FinishedAt, s.Aside, s.Waits = Done, b.Reason, f.At, Aside{}, 0
	case loop.Blocked, loop.CallDone, loop.CallPrepared, loop.CallStarted, loop.Catalogued, loop.Compacted,
		loop.HookRan, loop.InputAdded,
		loop.ReserveRefused, loop.Reserved, loop.Routed, loop.Turn, loop.TurnFailed, loop.TurnStarted: // the summary stays
	}
	return s
}

// decided returns the summary after one of the approvals was decided, or the pause of the run ended. An owner has to act when
// all of them are.
func (s Summary) decided() Summary {
	s.Waits = max(0, s.Waits-1)
	if s.Waits == 0 {
		s.Status, s.Aside = Running, Aside{}
	}
	return s
}
