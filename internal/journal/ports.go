package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// The ports of a Runner. Journal, Archive, Leases, LaterDeleter, Recorder and Conversations are
// implemented by store/memory and store/database, which use the rules of [Head],
// [Opening.Admit], [Used] and [Conversation]; store/storetest tests them.

// Journal stores the facts of runs.
type Journal interface {
	// Append stores the batch after the fact with number after. A batch that
	// [Batch.Check], [Head.Admit] or [Opening.Admit] refuses is not stored, and the
	// error wraps theirs; a *[Behind] has the missing facts. A second fact of the same
	// kind, call and attempt ([CallOf]), a row with a ref that the run has, and a second
	// hold with the same ID in a budget are refused with an error that wraps
	// org.ErrExists; a hold that does not fit, with an *[OverBudget]. If this build cannot
	// decode a fact that the writer misses, the error wraps an *[Unreadable]. A nil error means
	// that the batch is stored as safely as Batch.Sync says. The head of the run is
	// afterwards as [Head.After] says.
	Append(ctx context.Context, lease Lease, after int64, b Batch) error
}

// Behind reports that another writer has written to the journal. The batch is not stored.
//
// If the number of the first fact is not higher than that of the last fact that the writer knows, then batches that it has
// appended without Sync follow facts of other writers: its facts from that number on have other numbers, and are in Facts
// with these, in their order.
type Behind struct {
	Facts []loop.Fact // all facts after those that the writer knows
}

func (b *Behind) Error() string { return fmt.Sprintf("behind by %d facts", len(b.Facts)) }

// Archive reads what a Journal has stored.
type Archive interface {
	// Runs returns the runs of the org that the query selects, the latest first
	// (within one millisecond, by descending id). If the org has no run Query.Before,
	// the error wraps org.ErrNotFound.
	Runs(ctx context.Context, org string, q Query) ([]Summary, error)

	// Head returns the head of a run. The error wraps org.ErrNotFound if the org has
	// no such run.
	Head(ctx context.Context, org, runID string) (Head, error)

	// Load returns the whole journal of a run. The error wraps org.ErrNotFound if the
	// org has no such run, and an *[Unreadable] if this build cannot decode a fact.
	Load(ctx context.Context, org, runID string) (*Story, error)

	// Facts returns facts with a number above after, in order, as many as have limit
	// bytes together when they are stored. It also stops before a fact that this build
	// cannot decode. None means that the journal has no more at the moment. If the first
	// one cannot be returned, the error is a *[TooLarge] or an *[Unreadable] without a
	// Story; it wraps org.ErrNotFound if the org has no such run.
	Facts(ctx context.Context, org, runID string, after int64, limit int) ([]loop.Fact, error)

	// Rows returns the rows with these refs, in this order, as many as have limit bytes
	// together. It also stops before a ref that the run does not have. If the first row
	// has more than limit bytes, the error is a *[TooLarge]; it wraps org.ErrNotFound if
	// the org has no such run.
	Rows(ctx context.Context, org, runID string, refs []string, limit int) ([]json.RawMessage, error)

	// Reasons returns why runs of the org have ended, by their ids. It is one query. Runs that have not
	// ended, or that the org does not have, are left out.
	Reasons(ctx context.Context, org string, runIDs []string) (map[string]event.Reason, error)

	// AuditRows returns the audit rows of the org that the query selects, in the order
	// of their numbers.
	AuditRows(ctx context.Context, org string, q audit.Query) ([]audit.Row, error)

	// Approval returns an approval of the org. The error wraps org.ErrNotFound if it has none
	// with this id; a pause is none.
	Approval(ctx context.Context, org, id string) (Approval, error)

	// Approvals returns the approvals of the org that the query selects, the latest first
	// (within one millisecond, by descending id). If the org has no approval Query.Before, the
	// error wraps org.ErrNotFound.
	Approvals(ctx context.Context, org string, q ApprovalQuery) ([]Approval, error)

	// DueApprovals returns up to limit approvals and pauses of all orgs that wait and whose ExpiresAt is
	// not after now, those first that expired first.
	DueApprovals(ctx context.Context, now int64, limit int) ([]Approval, error)

	// WaitingRuns returns the runs of all orgs of which approvals wait, or that wait for a raise of their
	// limits, ordered by org and id.
	WaitingRuns(ctx context.Context) ([]WaitingRun, error)

	// InterruptedRuns returns up to limit runs that are to end because interrupts wait in the inboxes of their
	// sessions, the oldest interrupt first. Principal is who has sent it.
	InterruptedRuns(ctx context.Context, limit int) ([]WaitingRun, error)

	// OrphanedRuns returns up to limit runs that have not ended although their session was deleted, ordered by org
	// and id, until it is recorded that they are to end.
	OrphanedRuns(ctx context.Context, limit int) ([]WaitingRun, error)

	// QueuedRuns returns how many runs are queued, by org and principal, ordered by both.
	QueuedRuns(ctx context.Context) ([]QueuedRuns, error)

	// Used returns what a window of a budget of the org has been charged with; the zero value
	// if nothing was spent from it.
	Used(ctx context.Context, org, scope string) (Used, error)

	// UsedAll returns what the windows of the org's budgets have been charged with, by scope:
	// up to limit of those whose scope begins with prefix and is after the scope after.
	UsedAll(ctx context.Context, org, prefix, after string, limit int) ([]Used, error)
}

// WaitingRun is a run of which approvals wait, or that is paused. Principal is whose run it is, and CallerAt is that of
// [Approval].
type WaitingRun struct{ Org, RunID, Principal, CallerAt string }

// QueuedRuns says how many runs of a principal are queued: at least one.
type QueuedRuns struct {
	Org, Principal string
	Runs           int
}

// TooLarge reports that a fact or row was not read because it is larger than the limit.
type TooLarge struct {
	Bytes int // its stored size
}

func (t *TooLarge) Error() string { return fmt.Sprintf("larger than the limit: %d bytes", t.Bytes) }

// Query selects runs. The zero value selects none, because its limit is 0.
type Query struct {
	Before    string   // only runs older than the one with this id, whether or not that one is selected; "" = all
	Since     int64    // only runs accepted at this time or later, in Unix milliseconds; 0 = all
	States    []string // only runs in one of these states, see [Summary.State]; none = all
	Principal string   // only runs of the key with this id; "" = all
	Limit     int      // maximum number of selected runs; 0 or less = none
}

// Chooses reports whether the query selects s, apart from Before and Limit.
func (q Query) Chooses(s Summary) bool {
	return s.CreatedAt >= q.Since &&
		(len(q.States) == 0 || slices.Contains(q.States, s.State())) &&
		(q.Principal == "" || s.Principal == q.Principal)
}

// Story is a run's journal together with the bodies that its facts refer to.
type Story struct {
	Summary Summary
	Facts   []loop.Fact
	Rows    map[string]json.RawMessage // by ref
}

// Size returns the size of the rows in bytes.
func (s *Story) Size() int {
	n := 0
	for _, row := range s.Rows {
		n += len(row)
	}
	return n
}

// Last returns the number of the journal's last fact.
func (s *Story) Last() int64 {
	if s == nil || len(s.Facts) == 0 {
		return 0
	}
	return s.Facts[len(s.Facts)-1].Seq
}

// Slices keeps which part of its budgets a process has drawn.
type Slices interface {
	// Exchange changes the owner's slices of the org's budgets as [Used.Exchange] says, all
	// or none: if one does not fit, the error wraps an *[OverBudget]. It returns the slices
	// afterwards, which are on disk, and removes those that a use closes. When the owner is gone, what it had drawn counts as spent.
	Exchange(ctx context.Context, org, owner string, uses []SliceUse) ([]Slice, error)
}

// Leases gives runs whose owner is gone to a new owner. Times are read from the store's
// clock of leases, which never jumps: setting the wall clock neither ends nor extends a
// lease.
type Leases interface {
	// Claim gives owner up to limit runs that are [Head.Claimable], as [Head.Claim]
	// says: in a round robin over orgs, the oldest run of each first. An org gets no more
	// leases than [Summary.Slots] of the run allows, those included that have not expired: a
	// run that has waited takes a slot as a new one does. A queued turn of a session cannot be claimed while
	// an earlier turn has not ended. When Claim returns, this is on disk.
	Claim(ctx context.Context, owner string, limit int) ([]Lease, error)

	// Renew extends every lease that is [Head.Renewable] by owner, and returns these
	// leases.
	Renew(ctx context.Context, owner string) ([]Lease, error)

	// Release ends the lease, so that the run can be claimed at once. It does nothing
	// if the run does not have this lease any more.
	Release(ctx context.Context, lease Lease) error

	// SetAside ends the lease, and the run cannot be claimed until a fact wakes it or
	// Restore restores it. It does nothing and returns false if the run does not have this
	// lease any more, or if its journal does not end with the fact with number last: the
	// other facts may say what is to be done with the run.
	SetAside(ctx context.Context, lease Lease, last int64, why Aside) (bool, error)

	// Restore makes the runs claimable that were set aside for a reason for which
	// again returns true. It returns their number.
	Restore(ctx context.Context, again func(Aside) bool) (int, error)

	// Alive reports whether owner has called Claim or Renew within the last LeaseTTL: an owner
	// that has not is gone, and the requests that it held open are gone with it.
	Alive(ctx context.Context, owner string) (bool, error)

	// Probe writes something that is never read. It returns an error if the store
	// cannot be written at the moment.
	Probe(ctx context.Context) error
}

// Picker is a Leases that can give a single run to a new owner.
type Picker interface {
	// ClaimRun gives the run to owner if it is [Head.Claimable], as Claim does, and returns
	// whether it is. The error wraps org.ErrNotFound if the org has no such run.
	ClaimRun(ctx context.Context, owner string, key RunKey) (Lease, bool, error)
}

// Conversations store what callers do not send again: the part of a run that the caller
// of client tools does not see, and the transcripts of responses and sessions. A
// conversation belongs to a principal of an org; for every other principal its keys are
// unknown. Beyond the org's cap, those that were saved first are deleted early.
type Conversations interface {
	// Save stores c under each of the keys, for ttl. It is on disk when Save returns.
	// With Version 0 the conversation is new: if one of the keys is in use, nothing is
	// stored, and the error wraps org.ErrExists. With another Version it replaces what
	// is stored under the key, which must have this version: otherwise, or if nothing is
	// stored, the error wraps ErrChanged. What [Conversation.Check] refuses is not
	// stored. A database refuses a new session with an *[org.CapError] if the org has stored
	// as much as its caps allow.
	Save(ctx context.Context, org, principal string, c Conversation, ttl time.Duration, keys ...ConversationKey) error

	// Find returns what is stored under the key, or nil. The error wraps an *[Unreadable] if
	// this build cannot decode it.
	Find(ctx context.Context, org, principal string, key ConversationKey) (*Conversation, error)

	// FindAll calls each for what is stored under the keys, in their order, with the index of
	// the key. It is one query. A key under which nothing is stored is left out.
	//
	// The conversations are without Input, RequestJSON, Parts and Waiting. The first one that
	// this build cannot decode ends FindAll: the error wraps an *[Unreadable]. An error of each
	// ends it, too, and is returned. each must not call the store.
	FindAll(ctx context.Context, org, principal string, keys []ConversationKey, each func(i int, c *Conversation) error) error

	// FindChain calls each for the segment with the id, then for its Previous, and so on until
	// a segment has no Previous or its Previous is not stored. It is one query for a complete
	// chain. The rest is as in FindAll, but the segments have their Parts.
	FindChain(ctx context.Context, org, principal, id string, each func(c *Conversation) error) error

	// Delete deletes what is stored under the key, with its other keys. It returns false if
	// nothing is. It is on disk when Delete returns.
	Delete(ctx context.Context, org, principal string, key ConversationKey) (bool, error)
}

// LibraryPrefix begins the principals of what a [Chains] stores for programs. The schema of a store may have it.
const LibraryPrefix = "library:"

// Chains stores conversations that are chains of segments. The Previous of a head, which has a key of the kind [SessionID], is
// the last segment of its chain; several heads can have one. A store of Conversations implements it.
//
// When a head of a principal with [LibraryPrefix] is deleted, expires, or gets another Previous, the segments that
// no other head reaches any more are deleted with it.
type Chains interface {
	Conversations

	// SaveAll saves all or none of them, in their order, as Save does.
	SaveAll(ctx context.Context, org, principal string, all ...Saved) error

	// Heads returns heads of a principal with LibraryPrefix, the latest first: at most limit, after the one with the id
	// before; "" = from the first.
	Heads(ctx context.Context, org, principal, before string, limit int) ([]*Conversation, error)
}

// Saved is a conversation to be stored under its keys.
type Saved struct {
	Conversation
	TTL  time.Duration
	Keys []ConversationKey
	At   int64 // when it counts as saved, in Unix milliseconds; 0 = now
}

// Branches rewinds and forks conversations with Parts: those under keys of the kind [SessionID], without a principal. A
// store of Conversations implements it.
//
// A part that a fork has too is shared, and so is one that AddPart has stored. It is deleted with the last conversation
// that has it, and not before.
type Branches interface {
	// AddingRun returns a run that adds to the conversation with the id ([Opening.Adds]) and has not ended; "" = none does.
	AddingRun(ctx context.Context, org, id string) (string, error)

	// DropParts replaces the conversation as Save does. dropped are the parts that c has no longer: of those that were shared or
	// have a key of the kind [SessionID], those are deleted that no other conversation has. With idle, and if a run that
	// adds to the conversation has not ended, nothing is stored, and the error wraps a *[SessionBusy].
	DropParts(ctx context.Context, org, id string, c Conversation, ttl time.Duration, dropped []ConversationKey, idle bool) error

	// AddPart stores a part of the conversation, in place of one with its key, and then does what DropParts does without idle. A
	// conversation without a version is new, and refused at the caps as in Save.
	AddPart(ctx context.Context, org, id string, part Saved, c Conversation, ttl time.Duration, dropped []ConversationKey) error

	// DeleteWith deletes the conversation and, as DropParts does, its parts. It returns false if there is none. The error wraps
	// ErrChanged if it has another version; 0 = any.
	DeleteWith(ctx context.Context, org, id string, version int64, parts []ConversationKey) (bool, error)

	// Fork stores the conversation of f, which must be new, as Save does. If a run that adds to f.From has not ended, the
	// error wraps a *[SessionBusy]. It wraps ErrChanged if f.From has another Version.
	Fork(ctx context.Context, org string, f Fork, ttl time.Duration) error

	// Shared reports whether a conversation other than the one with the id has a part that was shared.
	Shared(ctx context.Context, org string, part ConversationKey, id string) (bool, error)
}

// Fork is a conversation that begins with the parts of another one.
type Fork struct {
	ID string
	Conversation

	From    string // the id of the other one
	Version int64  // of that
	Shared  []ConversationKey
}

// SessionPrefix begins the ids of the conversations with Parts that are the chat sessions of a principal. The id of the
// session follows, which contains no slash.
func SessionPrefix(principal string) string { return "chat_" + principal + "/" }

// SessionLister lists the chat sessions of a principal. A store of Conversations implements it.
type SessionLister interface {
	// StoredSessions returns the sessions that are stored under keys of the kind [SessionID] with the [SessionPrefix] of a
	// principal of an org, that first which was saved first.
	StoredSessions(ctx context.Context, org, principal string) ([]StoredSession, error)
}

// StoredSession is a chat session.
type StoredSession struct {
	ID      string // without the prefix
	SavedAt int64  // Unix milliseconds
}

// Effects finds what is stored under keys of the kind [EffectKey]. A store of Conversations implements it.
type Effects interface {
	// UnknownEffects returns the effects of an org without items, in the order of their ids, after one of
	// them: at most limit.
	UnknownEffects(ctx context.Context, org, after string, limit int) ([]UnknownEffect, error)
}

// UnknownEffect is an effect of which nobody has stored whether it was had.
type UnknownEffect struct {
	ID          string
	Version     int64
	RunID       string
	RequestJSON json.RawMessage
	SavedAt     int64 // Unix milliseconds
}

// LaterDeleter deletes single runs. Runs whose policy says NoStore need no call of it.
type LaterDeleter interface {
	// DeleteLater deletes a run when it has ended: DeleteAfter later, or when its Idempotency-Key
	// expires, if it has one. It does nothing if the org has no such run. Audit rows stay.
	DeleteLater(ctx context.Context, org, runID string) error
}

// DeleteAfter is how long a run that is to be forgotten is stored after its end, so that
// callers that are slow can read the rest of its events.
const DeleteAfter = 10 * time.Minute

// Recorder stores audit entries that belong to no journal.
type Recorder interface {
	// Record stores the entry a little later, in the order of the calls. It waits
	// while too many entries are queued, for at most 30 seconds; none is dropped. An
	// error may be that of an earlier entry, which could not be stored.
	Record(ctx context.Context, org string, e audit.Entry) error
}
