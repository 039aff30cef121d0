package database

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// batch is a journal.Batch in its stored form.
type batch struct {
	key          runKey
	facts        []fact
	rows         []row
	opening      *journal.Opening
	reservations []journal.Reservation
	settled      []journal.Settled
	audit        []audit.Entry

	approvals []journal.ApprovalChange
	notices   []journal.Notice
	hooks     []journal.HookMessage
	delivered *journal.Delivered
	spent     journal.SessionSpent
	retain    func(bytes int) // journal.Batch.Retain; may be nil
}

// fact is a row of run_facts.
type fact struct {
	loop.Fact // without its Body if it is a pack
	kind      string
	callKey   loop.CallKey
	attempt   int
	body      []byte
}

// row is a row of run_rows.
type row struct {
	ref  string
	body []byte
	rest *sharedList // what follows in the list of body; nil = nothing
}

func encodeBatch(lease journal.Lease, b journal.Batch) (batch, error) {
	out := batch{
		key:   runKey{lease.Org, lease.RunID},
		facts: make([]fact, len(b.Facts)), rows: make([]row, len(b.Rows)),
		opening: b.Opening, reservations: b.Reservations, settled: b.Settled, audit: b.Audited(lease), notices: b.Notices, hooks: b.HookMessages, retain: b.Retain, delivered: b.Delivered, spent: b.SessionSpent,
	}
	for i, f := range b.Facts {
		body, err := loop.Encode(f.Body)
		if err != nil {
			return out, fmt.Errorf("fact %d: %w", f.Seq, err)
		}
		key, attempt := journal.CallOf(f.Body)
		out.facts[i] = fact{f, string(f.Body.Kind()), key, attempt, body}
	}
	for i, r := range b.Rows {
		var err error
		switch value := r.Value.(type) {
		case journal.Prompt:
			out.rows[i], err = newPromptRow(r.Ref, value)
		case journal.Parts:
			out.rows[i], err = newPartsRow(r.Ref, value)
		default:
			out.rows[i].ref = r.Ref
			out.rows[i].body, err = r.JSON()
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// headChange is the effect of a batch on the head of its run. The heads must not be changed:
// consecutive batches share them.
type headChange struct {
	lease      journal.Lease
	from, to   *journal.Head
	now        time.Time // wall clock
	leaseNow   time.Time // clock of leases
	mayReserve bool      // the run may have reservations
	assumed    bool      // the run should be new, but was not looked up
}

// after returns the batch with facts that follow the one with number last.
func (b batch) after(last int64) batch {
	b.facts = slices.Clone(b.facts)
	for i := range b.facts {
		b.facts[i].Seq = last + 1 + int64(i)
	}
	return b
}

// after returns the effect of the batch on another head.
func (c headChange) after(h journal.Head, b batch) headChange {
	facts := make([]loop.Fact, len(b.facts))
	for i, f := range b.facts {
		facts[i] = f.Fact
	}
	to := h.After(c.lease, journal.Batch{Facts: facts}, c.leaseNow)
	c.from, c.to = &h, &to
	return c
}

// write stores the batch. The opening is checked first, then the head, whose update
// fails if the journal has another end or the run a later epoch.
func (b batch) write(t *tx, c headChange) error {
	if err := b.writeFirst(t, c); err != nil {
		if c.assumed && !isSyncFailure(err) {
			return b.opened(t, err)
		}
		return err
	}
	if err := b.writeInbox(t, c); err != nil {
		return err
	}
	for _, r := range b.rows {
		if err := t.storeList(b.key.org, r.rest); err != nil {
			return err
		}
	}
	facts, rows := b.facts, b.rows
	if packs(c.to.Summary.Grade) {
		facts, rows = packed(facts, rows)
	}
	t.later.add(b.key, facts, rows)
	t.later.addUsage(b.key.org, size(facts, rows, c))
	if err := b.charge(t, c); err != nil {
		return err
	}
	if err := b.writeApprovals(t); err != nil {
		return err
	}
	if err := t.notify(b.key.org, b.notices); err != nil {
		return err
	}
	if err := t.addHookMessages(b.hooks); err != nil {
		return err
	}
	return t.laterAudit(b.key.org, b.audit)
}

// writeFirst stores what decides whether the batch is stored.
func (b batch) writeFirst(t *tx, c headChange) error {
	if c.from.Seq == 0 && b.opening != nil {
		if err := b.open(t, c); err != nil {
			return err
		}
	}
	return b.writeHead(t, c)
}

// opened returns errOpened if the run exists, and err otherwise. It is called after a
// failure only: a run that was assumed to be new almost always is.
func (b batch) opened(t *tx, err error) error {
	if _, missing := t.head(b.key); missing != nil {
		return err
	}
	return errOpened
}

// open checks the conditions of the opening and stores its key.
func (b batch) open(t *tx, c headChange) error {
	if err := b.opening.Admit(t.caps, &orgState{t: t, org: b.key.org, c: &c}); err != nil {
		return err
	}
	if a := b.opening.Adds; a != nil && a.Alone {
		if err := t.mustBeIdle(b.key.org, a.Conversation); err != nil {
			return err
		}
	}
	if a := b.opening.Adds; a != nil && a.Version != 0 {
		if err := t.mustHaveVersion(b.key.org, a.Conversation, a.Version, c.now); err != nil {
			return err
		}
	}
	if turn := b.opening.Turn; turn != nil {
		if err := t.beginTurn(b.key, *turn, c.now.UnixMilli()); err != nil {
			return err
		}
	}
	if k := b.opening.Key; k != nil {
		return t.addSubmitKey(b.key, *k, c.now)
	}
	return nil
}

// The two updates of a head. Most appends use the first one, which does not affect
// the index of running runs.
const (
	updateCounters = `UPDATE runs SET rounds = ?5, calls = ?6, tokens = ?7, waits = ?13, epoch = max(epoch, ?4), next_seq = ?8,
			updated_at = max(updated_at, ?9),
			owner = CASE WHEN ?10 = 1 THEN owner ELSE ?11 END, lease_until = CASE WHEN ?10 = 1 THEN lease_until ELSE ?12 END`
	updateStatus = updateCounters + `, status = ?14, grade = ?15, finish_reason = ?16, finished_at = ?17, slots = ?18, aside = '{}'`

	// admitted is journal.Head.Admit: the run may have been claimed while the batch was in
	// the queue.
	admitted = ` WHERE org = ?1 AND run_id = ?2 AND next_seq = ?3 AND (epoch <= ?4 OR ?4 = 0)`
)

// changesStatus reports whether the change affects more columns than the counters.
func (c headChange) changesStatus() bool {
	from, to := &c.from.Summary, &c.to.Summary
	return from.Status != to.Status || from.Grade != to.Grade || from.Reason != to.Reason || from.FinishedAt != to.FinishedAt || from.Slots != to.Slots
}

func (b batch) writeHead(t *tx, c headChange) error {
	if c.from.Seq == 0 {
		return b.insertHead(t, c)
	}
	s := &c.to.Summary
	text := updateCounters + admitted
	args := []any{
		b.key.org, b.key.run, c.from.Seq + 1, c.lease.Epoch, s.Rounds, s.Calls, s.Tokens, c.to.Seq + 1, c.to.At,
		c.from.KeepsLease(c.lease, *c.to), c.to.Owner, c.to.LeaseUntil, s.Waits,
	}
	if c.changesStatus() {
		text = updateStatus + admitted
		args = append(args, string(s.Status), string(s.Grade), string(s.Reason), s.FinishedAt, s.Slots)
	}
	n, err := t.exec(text, args...)
	if err == nil && n != 1 {
		err = b.mismatch(t, c)
	}
	return err
}

func (b batch) insertHead(t *tx, c headChange) error {
	s, conversation := &c.to.Summary, ""
	if b.opening != nil && b.opening.Adds != nil {
		conversation = b.opening.Adds.Conversation
	}
	n, err := t.exec(`INSERT INTO runs (org, run_id, principal, surface, grade, model, status, finish_reason,
			rounds, calls, tokens, epoch, next_seq, created_at, updated_at, finished_at, owner, lease_until, waits, slots, conversation)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		b.key.org, b.key.run, s.Principal, s.Surface, string(s.Grade), s.Model, string(s.Status), string(s.Reason),
		s.Rounds, s.Calls, s.Tokens, c.to.Epoch, c.to.Seq+1, s.CreatedAt, c.to.At, s.FinishedAt, c.to.Owner, c.to.LeaseUntil, s.Waits, s.Slots,
		conversation)
	if err == nil && n == 0 {
		err = b.mismatch(t, c)
	}
	if err == nil && b.forgets() {
		_, err = t.exec(insertForgotten, b.key.org, b.key.run)
	}
	return err
}

const insertForgotten = `INSERT INTO forgotten_runs (org, run_id) SELECT org, run_id FROM runs WHERE org = ? AND run_id = ?
	ON CONFLICT DO NOTHING`

// forgets reports whether the batch opens a run that is to be forgotten.
func (b batch) forgets() bool {
	for _, f := range b.facts {
		if a, opens := f.Body.(loop.Accepted); opens {
			return a.NoStore
		}
	}
	return false
}

// mismatch returns why the head does not admit the batch.
func (b batch) mismatch(t *tx, c headChange) error {
	h, err := t.head(b.key)
	if err == nil {
		err = h.Admit(c.lease, c.from.Seq)
	}
	if err == nil {
		err = errors.New("the head of the run was not updated")
	}
	return err
}

// orgState implements journal.OrgState within the transaction of an opening.
type orgState struct {
	t   *tx
	org string
	c   *headChange

	known  bool // the fields below are read
	bytes  int64
	leased int
}

// RunOf implements journal.OrgState.
func (s *orgState) RunOf(k journal.SubmitKey) (*journal.Submitted, error) {
	var found journal.Submitted
	err := s.t.queryRow(`SELECT run_id, hash FROM submit_keys WHERE org = ? AND principal = ? AND key = ? AND expires_at > ?`,
		[]any{s.org, k.Principal, k.Key, s.c.now.UnixMilli()}, &found.RunID, &found.Hash)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &found, err
}

// StoredBytes implements journal.OrgState.
func (s *orgState) StoredBytes() (int64, error) {
	err := s.read()
	return s.bytes, err
}

// LeasedRuns implements journal.OrgState.
func (s *orgState) LeasedRuns() (int, error) {
	err := s.read()
	return s.leased, err
}

// QueuedRuns implements journal.OrgState.
func (s *orgState) QueuedRuns() (n int, err error) {
	err = s.t.queryRow(`SELECT count(*) FROM runs INDEXED BY runs_queued WHERE status = 'queued' AND org = ?`, []any{s.org}, &n)
	return n, err
}

// read reads both with one query, once.
func (s *orgState) read() error {
	if s.known {
		return nil
	}
	err := s.t.queryRow(`SELECT coalesce((SELECT bytes FROM org_usage WHERE org = ?1), 0),
			(SELECT count(*) FROM runs INDEXED BY runs_running WHERE status = 'running' AND org = ?1 AND lease_until > ?2)`,
		[]any{s.org, s.c.leaseNow.UnixMilli()}, &s.bytes, &s.leased)
	s.bytes += s.t.later.bytes[s.org]
	s.known = err == nil
	return err
}

// addSubmitKey stores the key of a run. On a file it also deletes some expired keys.
func (t *tx) addSubmitKey(key runKey, k journal.SubmitKey, now time.Time) error {
	if t.remote == nil { // on a server they can be other orgs', and retention deletes them
		if _, err := t.exec(`DELETE FROM submit_keys WHERE _rowid_ IN
			(SELECT _rowid_ FROM submit_keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`,
			now.UnixMilli(), sweepBatch); err != nil {
			return err
		}
	}
	_, err := t.exec(`INSERT INTO submit_keys (org, principal, key, hash, run_id, expires_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (org, principal, key) DO UPDATE SET hash = excluded.hash, run_id = excluded.run_id, expires_at = excluded.expires_at`,
		key.org, k.Principal, k.Key, k.Hash, key.run, now.Add(journal.SubmitKeyTTL).UnixMilli())
	return err
}
