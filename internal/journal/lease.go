package journal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// LeaseTTL is how long a lease is valid unless it is extended. It is three times
// renewEvery: if one renewal fails, the next one is still in time.
const LeaseTTL = 15 * time.Second

// Lease is the right to write a run's journal. A running run has one lease. Every new
// owner gets a higher epoch, which fences the previous owner. Epoch 0 is that of a
// writer without a lease, which is never fenced.
//
// A lease that has not expired also occupies one of the org's slots. After a crash the
// leases expire, so no counter has to be corrected.
type Lease struct {
	Org   string
	RunID string
	Epoch int64
	Owner string // the process, with a new name at every start; empty with epoch 0

	// Handed is set on a claimed lease if the run had no owner: the last one had
	// released it, or there was none. It is false if the last lease had expired.
	Handed bool
}

// Key returns the key of the run.
func (l Lease) Key() RunKey { return RunKey{Org: l.Org, Run: l.RunID} }

// RunKey names a run.
type RunKey struct{ Org, Run string }

// Compare compares two keys, by org and then by run.
func (k RunKey) Compare(other RunKey) int {
	return cmp.Or(strings.Compare(k.Org, other.Org), strings.Compare(k.Run, other.Run))
}

// ErrFenced is wrapped by the error for a writer whose lease another owner has taken
// over. The writer must stop.
var ErrFenced = errors.New("the lease was taken over")

// Opening are the conditions on which a run is accepted. They are checked in the
// transaction that stores its first batch.
type Opening struct {
	// Slots is how many runs of the org may have a lease that has not expired,
	// including this one. 0 = no limit.
	Slots int

	// Queue is how many runs of the org may be queued, including this one. 0 = the run is not queued,
	// or no limit.
	Queue int

	// Key makes the run the only run of its key. Nil = no key.
	Key *SubmitKey

	// Turn makes the run the next turn of a session. Nil = it is none.
	Turn *SessionTurn

	// Adds names the conversation that the run adds to. Until the run has ended, that is neither rewound nor forked: see
	// [Branches]. Nil = the run adds to none.
	Adds *Adds
}

// Adds names a conversation with Parts.
type Adds struct {
	Conversation string // its id

	// Version is the one that the run has read. If the conversation has another one now, or is not stored any more, the
	// opening is refused with an error that wraps [ErrChanged]. 0 = the run reads it later.
	Version int64

	// Alone refuses the opening with a *[SessionBusy] if another run that adds to the conversation has not ended.
	Alone bool
}

// SessionTurn makes a run the next turn of a session. All of it is stored in the transaction that accepts the
// run, so that an input is delivered to exactly one run. The session must have no turn that has not ended,
// unless the turn is Queued.
type SessionTurn struct {
	Session string

	// Queued says that the turn may wait: its run is queued, gets its input when it has begun, and is not
	// claimed before all earlier turns have ended. Until then its Input waits in the inbox.
	Queued bool

	// Interrupt is in front of Input in the inbox, and says that the turn in progress is to end: see
	// [Archive.InterruptedRuns]. It has an effect only if the turn is Queued and the session has such a turn.
	Interrupt *SessionInput

	Principal string          // whose session it must be; "" = of anyone
	Version   int             // of the agent
	Rounds    int             // that the run may have
	Reasoning bool            // the client asks for the reasoning of the model
	Snapshot  json.RawMessage // of the agent, which replaces that of the session; nil = it stays
	Input     SessionInput    // that is added to the inbox and delivered to the run
}

// SessionInput is an input of a session. Its times are those of the transaction that stores it.
type SessionInput struct {
	ID        string
	Kind      string // such as message
	Principal string // who sent it
	Body      json.RawMessage
	Key       string // the Idempotency-Key of the request; "" = none
	Digest    string // of the request, with Key
}

// Delivered is an input of a session that goes to a run which is a turn of it and has not ended. It is stored
// in the transaction of the fact that uses it.
type Delivered struct {
	Session string
	Input   SessionInput
}

// SessionBusy reports that a session, or a conversation with Parts, has a run that has not ended. Nothing was stored.
type SessionBusy struct{ Session, RunID string }

func (b *SessionBusy) Error() string {
	return fmt.Sprintf("session %s is busy: its run %s has not ended", b.Session, b.RunID)
}

// OrgState is the part of an org's state that an opening depends on. Stores implement
// it on the transaction that stores the opening.
type OrgState interface {
	// RunOf returns the run of a key, or nil if the key is unknown or has expired.
	RunOf(key SubmitKey) (*Submitted, error)
	// StoredBytes returns the size of what the org has stored.
	StoredBytes() (int64, error)
	// LeasedRuns returns the number of the org's runs for which [Head.Leased] is true.
	LeasedRuns() (int, error)
	// QueuedRuns returns the number of the org's runs that are [Queued].
	QueuedRuns() (int, error)
}

// Admit checks the conditions of the opening. It returns a *[Submitted] if the key has a
// run, an *[org.CapError] if the org has stored as much as its caps allow, and
// [ErrNoSlot] if no slot is free, [ErrQueueFull] if too many runs are queued. The key is checked first: a repeated request gets its
// run even if the org has no space or slot left. Space is checked only here, so that
// runs in progress can finish.
func (o Opening) Admit(caps org.Caps, s OrgState) error {
	if o.Key != nil {
		known, err := s.RunOf(*o.Key)
		if err != nil {
			return err
		}
		if known != nil {
			return known
		}
	}
	if caps.Stored > 0 {
		stored, err := s.StoredBytes()
		if err != nil {
			return err
		}
		if stored >= caps.Stored {
			return caps.StoredError()
		}
	}
	if o.Slots > 0 {
		leased, err := s.LeasedRuns()
		if err != nil {
			return err
		}
		if leased >= o.Slots {
			return ErrNoSlot
		}
	}
	if o.Queue > 0 {
		queued, err := s.QueuedRuns()
		if err != nil {
			return err
		}
		if queued >= o.Queue {
			return ErrQueueFull
		}
	}
	return nil
}

// ErrQueueFull reports that the org has as many queued runs as it may have.
var ErrQueueFull = errors.New("the queue is full")

// ErrNoSlot reports that the org has as many runs as it may have.
var ErrNoSlot = errors.New("no slot is free")

// SubmitKeyTTL is how long a key refers to its run.
const SubmitKeyTTL = 24 * time.Hour

// SubmitKey is a caller's Idempotency-Key. It refers to one run of one principal for
// [SubmitKeyTTL].
type SubmitKey struct {
	Principal string
	Key       string
	Hash      string // of the request
}

// Submitted reports that a key already has a run.
type Submitted struct {
	RunID string
	Hash  string // of the request that the run is for
}

func (s *Submitted) Error() string { return fmt.Sprintf("the key belongs to run %s", s.RunID) }
