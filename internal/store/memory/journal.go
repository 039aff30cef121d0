package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Limits of a Journal. Runs that run or wait are never dropped.
const (
	MaxRuns       = 1024     // runs
	MaxRowBytes   = 64 << 20 // bytes of the rows of all runs together
	MaxSubmitKeys = 16_384   // the oldest key is dropped first
	MaxAuditRows  = 16_384   // of all orgs together; the numbering continues
)

// Journal implements journal.Journal, journal.Archive, journal.Slices, journal.Leases and journal.LaterDeleter. It
// ignores messages for webhooks and hooks. The zero value is ready to use. What was spent of a budget is never
// dropped.
type Journal struct {
	Now func() time.Time // wall clock, for the expiry of keys; nil = clock.Wall

	// LeaseNow is the clock of leases. It must never jump. Nil uses a clock.Steady
	// that starts at Now on the first use.
	LeaseNow func() time.Time

	// Caps apply to every org; the zero value is no limit.
	Caps org.Caps

	// Conversations know which runs add to them; nil = they are neither rewound nor forked.
	Conversations *Conversations

	NoAudit bool // no audit rows are kept: nobody reads them

	mu       sync.Mutex // guards the fields below
	runs     map[runKey]*runRecord
	order    []runKey // oldest first
	forget   map[runKey]bool
	bytes    int64            // of the rows of all runs
	lastOrg  string           // the org that got the last lease, for fairness
	owners   map[string]int64 // until when an owner is alive, by the clock of leases, in Unix milliseconds
	keys     submitKeys
	sessions map[sessionKey]*sessionRecord
	inputs   int64               // of all sessions, ever
	orphans  map[runKey]struct{} // runs that had not ended when their session was deleted
	budgets  map[budgetKey]journal.Used
	slices   map[sliceKey]journal.Slice
	audit    auditLog
}

type runKey struct{ org, run string }

type runRecord struct {
	head  journal.Head // Bytes are those of the rows
	facts []loop.Fact
	calls map[callFact]bool
	rows  map[string]json.RawMessage
	holds map[holdKey]budget.Amount

	approvals []journal.Approval // in the order in which they were asked for
}

// callFact identifies a fact about a call. A journal holds each at most once.
type callFact struct {
	kind    loop.Kind
	key     loop.CallKey
	attempt int
}

// Append implements journal.Journal.
func (j *Journal) Append(_ context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	if j.NoAudit {
		b.Audit = nil
	}
	if err := b.Check(lease, after); err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	add, err := encode(b)
	if err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	key := runKey{lease.Org, lease.RunID}
	r, known := j.runs[key]
	if !known {
		r = &runRecord{calls: map[callFact]bool{}, rows: map[string]json.RawMessage{}, holds: map[holdKey]budget.Amount{}}
	}
	if err := r.head.Admit(lease, after); err != nil {
		var behind *journal.Behind
		if errors.As(err, &behind) {
			behind.Facts = slices.Clone(r.facts[after:])
			for _, f := range behind.Facts {
				if err := loop.CheckKnown(f); err != nil {
					return fmt.Errorf("run %s: %w", lease.RunID, &journal.Unreadable{Seq: f.Seq, Kind: f.Body.Kind(), Version: f.Version, Err: err})
				}
			}
			return behind
		}
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	if err := j.check(key, r, lease, b, &add); err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	if r.head.Seq == 0 && b.Opening != nil && b.Opening.Adds != nil && j.Conversations != nil {
		if err := j.Conversations.begin(key, *b.Opening.Adds); err != nil {
			return fmt.Errorf("run %s: %w", lease.RunID, err)
		}
	}
	if !known {
		j.add(key, r)
	}
	j.store(key, r, lease, b, add)
	return nil
}

// checkedBatch is a batch that was checked and is ready to be stored.
type checkedBatch struct {
	rows   map[string]json.RawMessage
	audit  []audit.Row
	calls  map[callFact]bool
	charge charge
}

// check returns why the batch cannot be stored, or completes add. It modifies
// nothing else.
func (j *Journal) check(key runKey, r *runRecord, lease journal.Lease, b journal.Batch, add *checkedBatch) error {
	if r.head.Seq == 0 && b.Opening != nil {
		if err := b.Opening.Admit(j.Caps, orgState{j, key.org}); err != nil {
			return err
		}
		if turn := b.Opening.Turn; turn != nil {
			if err := j.checkTurn(key, *turn); err != nil {
				return err
			}
		}
	}
	if d := b.Delivered; d != nil {
		if err := j.checkDelivered(key, *d); err != nil {
			return err
		}
	}
	if err := j.checkApprovals(key.org, r.head.ApprovalChanges(b)); err != nil {
		return err
	}
	var err error
	if add.calls, err = r.newCalls(b); err != nil {
		return err
	}
	if add.charge, err = j.planCharge(key, r, b); err != nil {
		return err
	}
	add.audit, err = j.audit.nextRows(key.org, b.Audited(lease))
	return err
}

// store stores a batch that check has accepted. It cannot fail.
func (j *Journal) store(key runKey, r *runRecord, lease journal.Lease, b journal.Batch, add checkedBatch) {
	if r.head.Seq == 0 && b.Opening != nil {
		if b.Opening.Key != nil {
			j.keys.add(key, *b.Opening.Key, j.now())
		}
		if b.Opening.Turn != nil {
			j.beginTurn(key, *b.Opening.Turn)
		}
	}
	j.changeInbox(key, r.head.Seq > 0, b)
	grown := size(add.rows)
	r.change(r.head.ApprovalChanges(b))
	r.head = r.head.After(lease, b, j.leaseNow())
	if j.Conversations != nil && r.head.Summary.Status == journal.Done {
		j.Conversations.end(key)
	}
	r.head.Bytes += grown
	r.facts = append(r.facts, b.Facts...)
	maps.Copy(r.calls, add.calls)
	maps.Copy(r.rows, add.rows)
	j.audit.add(add.audit)
	j.applyCharge(r, add.charge)
	if r.head.Summary.Status == journal.Done {
		j.settleAll(key.org, r)
	}
	if len(b.Facts) > 0 {
		if a, opens := b.Facts[0].Body.(loop.Accepted); opens && a.NoStore {
			j.markForgotten(key)
		}
	}
	j.evict(grown)
}

// newCalls returns the call facts of the batch. It returns an error if one of them, or a
// row, is in the journal already or twice in the batch.
func (r *runRecord) newCalls(b journal.Batch) (map[callFact]bool, error) {
	calls := map[callFact]bool{}
	for _, f := range b.Facts {
		key, attempt := journal.CallOf(f.Body)
		c := callFact{f.Body.Kind(), key, attempt}
		if key == "" {
			continue
		}
		if r.calls[c] || calls[c] {
			return nil, fmt.Errorf("fact %s of call %s, attempt %d: %w", c.kind, key, attempt, org.ErrExists)
		}
		calls[c] = true
	}
	refs := map[string]bool{}
	for _, row := range b.Rows {
		if _, taken := r.rows[row.Ref]; taken || refs[row.Ref] {
			return nil, fmt.Errorf("row %s: %w", row.Ref, org.ErrExists)
		}
		refs[row.Ref] = true
	}
	return calls, nil
}

func (j *Journal) add(key runKey, r *runRecord) {
	if j.runs == nil {
		j.runs = map[runKey]*runRecord{}
	}
	j.runs[key] = r
	j.order = append(j.order, key)
	j.dropForgotten()
}

// DeleteLater implements journal.LaterDeleter.
func (j *Journal) DeleteLater(_ context.Context, orgID, runID string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.markForgotten(runKey{orgID, runID})
	return nil
}

func (j *Journal) markForgotten(key runKey) {
	if j.forget == nil {
		j.forget = map[runKey]bool{}
	}
	if j.runs[key] != nil {
		j.forget[key] = true
	}
}

// dropForgotten drops the runs that are to be forgotten and whose time is over. It is called
// when a run begins.
func (j *Journal) dropForgotten() {
	now := j.now()
	for key := range j.forget {
		r := j.runs[key]
		if r != nil && (r.head.Summary.Status != journal.Done || now.Sub(time.UnixMilli(r.head.Summary.FinishedAt)) <= journal.DeleteAfter || j.keys.has(key, now)) {
			continue
		}
		j.drop(key)
	}
}

// Drop deletes a run at once, if it has ended.
func (j *Journal) Drop(orgID, runID string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := runKey{orgID, runID}
	if r := j.runs[key]; r != nil && r.head.Summary.Status == journal.Done {
		j.drop(key)
	}
}

// drop deletes a run. It is called with mu held.
func (j *Journal) drop(key runKey) {
	delete(j.forget, key)
	delete(j.orphans, key)
	if r := j.runs[key]; r != nil {
		j.order = slices.DeleteFunc(j.order, func(one runKey) bool { return one == key })
		delete(j.runs, key)
		j.bytes -= r.head.Bytes
	}
}

// evict drops the oldest runs that are not running until the limits hold. grown
// is the number of bytes that were just added.
func (j *Journal) evict(grown int64) {
	j.bytes += grown
	if len(j.order) <= MaxRuns && j.bytes <= MaxRowBytes {
		return
	}
	j.order = slices.DeleteFunc(j.order, func(key runKey) bool {
		r := j.runs[key]
		if s := r.head.Summary.Status; s == journal.Queued || s == journal.Running || s.Waits() || len(j.runs) <= MaxRuns && j.bytes <= MaxRowBytes {
			return false
		}
		j.settleAll(key.org, r)
		delete(j.runs, key)
		j.bytes -= r.head.Bytes
		return true
	})
}

func (j *Journal) now() time.Time {
	if j.Now == nil {
		return clock.Wall()
	}
	return j.Now()
}

// leaseNow reads the clock of leases. It is called with mu held.
func (j *Journal) leaseNow() time.Time {
	if j.LeaseNow == nil {
		j.LeaseNow = clock.NewSteady(j.now()).Now
	}
	return j.LeaseNow()
}

func encode(b journal.Batch) (checkedBatch, error) {
	out := checkedBatch{rows: make(map[string]json.RawMessage, len(b.Rows))}
	for _, row := range b.Rows {
		data, err := row.JSON()
		if err != nil {
			return out, err
		}
		out.rows[row.Ref] = data
	}
	return out, nil
}

func size(rows map[string]json.RawMessage) int64 {
	n := int64(0)
	for _, data := range rows {
		n += int64(len(data))
	}
	return n
}
