package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// batch is a run.Batch in the words of the file.
type batch struct {
	key   runKey
	facts []fact
	rows  []row
}

// fact is a row of run_facts.
type fact struct {
	loop.Fact
	callKey loop.CallKey
	attempt int
	body    []byte
}

// row is a row of run_rows.
type row struct {
	ref  string
	body []byte
}

// change is what a batch does to the head of its run.
type change struct {
	from, to run.Summary
	epoch    int64
	seq      int64 // of the last fact, before
	next     int64 // and after
	at       int64
}

// Append implements run.Journal.
func (s *Store) Append(ctx context.Context, lease run.Lease, after int64, b run.Batch) error {
	if err := b.Check(lease, after); err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	stored, err := encodeBatch(lease, b)
	if err != nil {
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	h := s.heads.lock(stored.key)
	one, err := s.enqueue(ctx, h, lease, after, b, stored)
	h.mu.Unlock()
	if err == nil && b.Sync {
		err = s.await(ctx, stored.key, h, one)
	}
	var behind *run.Behind
	switch {
	case err == nil, errors.As(err, &behind):
		return err
	case errors.Is(err, run.ErrFenced), errors.Is(err, errGap):
		return fmt.Errorf("run %s: %w", lease.RunID, err)
	}
	return fmt.Errorf("run %s: %w", lease.RunID, wrap("append", err))
}

// errGap says that a writer knows facts that are not in the journal.
var errGap = errors.New("the journal is shorter than its writer knows")

// enqueue puts the batch into the queue if it fits the end of the journal. The
// head is locked.
func (s *Store) enqueue(ctx context.Context, h *head, lease run.Lease, after int64, b run.Batch, stored batch) (*write, error) {
	if err := s.catchUp(ctx, h, stored.key, after); err != nil {
		return nil, err
	}
	switch {
	case lease.Epoch != 0 && lease.Epoch < h.epoch:
		return nil, run.ErrFenced
	case h.seq > after:
		facts, err := readFacts(ctx, s.db, stored.key, after)
		if err != nil {
			return nil, err
		}
		return nil, &run.Behind{Facts: facts}
	case h.seq < after:
		return nil, fmt.Errorf("%w: it ends at %d, not at %d", errGap, h.seq, after)
	}
	c := h.change(lease, b)
	one := &write{waits: b.Sync, do: func(t *tx) error { return stored.write(t, c) }}
	if n := len(h.pending); n > 0 {
		one.after = h.pending[n-1]
	}
	if err := s.writer.submit(ctx, one); err != nil {
		return nil, err
	}
	h.pending = append(h.pending, one)
	h.summary, h.epoch, h.seq = c.to, c.epoch, c.next
	return one, nil
}

// catchUp brings the head up to date; that of a writer who is behind, with
// everything that is in the queue.
func (s *Store) catchUp(ctx context.Context, h *head, key runKey, after int64) error {
	if err := h.ready(ctx, s.db, key); err != nil || h.seq <= after {
		return err
	}
	if err := h.drain(ctx); err != nil {
		return err
	}
	return h.ready(ctx, s.db, key)
}

// await waits until the write is on disk, and forgets a run that has ended.
func (s *Store) await(ctx context.Context, key runKey, h *head, one *write) error {
	err := one.wait(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil && one.ended():
		_ = h.reset(ctx) // what failed before it is what it failed of
	case err == nil && h.summary.Status != run.Running:
		s.heads.forget(key, h)
	}
	return err
}

func (h *head) change(lease run.Lease, b run.Batch) change {
	c := change{from: h.summary, to: h.summary, epoch: max(h.epoch, lease.Epoch), seq: h.seq, next: h.seq + int64(len(b.Facts))}
	for _, f := range b.Facts {
		c.to, c.at = c.to.After(f), f.At
	}
	return c
}

func encodeBatch(lease run.Lease, b run.Batch) (batch, error) {
	out := batch{key: runKey{lease.Org, lease.RunID}, facts: make([]fact, len(b.Facts)), rows: make([]row, len(b.Rows))}
	for i, f := range b.Facts {
		body, err := loop.Encode(f.Body)
		if err != nil {
			return out, fmt.Errorf("fact %d: %w", f.Seq, err)
		}
		key, attempt := run.CallOf(f.Body)
		out.facts[i] = fact{f, key, attempt, body}
	}
	for i, r := range b.Rows {
		body, err := r.JSON()
		if err != nil {
			return out, err
		}
		out.rows[i] = row{r.Ref, body}
	}
	return out, nil
}

// write stores the batch. The head is changed first: it is the lock and the
// fence of the rest.
func (b batch) write(t *tx, c change) error {
	if err := b.writeHead(t, c); err != nil {
		return err
	}
	for _, f := range b.facts {
		if err := b.writeFact(t, f); err != nil {
			return err
		}
	}
	for _, r := range b.rows {
		_, err := t.exec(`INSERT INTO run_rows (org, run_id, ref, body) VALUES (?, ?, ?, ?)`, b.key.org, b.key.run, r.ref, string(r.body))
		if taken(err) {
			return fmt.Errorf("row %s: %w", r.ref, org.ErrExists)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (b batch) writeFact(t *tx, f fact) error {
	var call any // NULL
	if f.callKey != "" {
		call = string(f.callKey)
	}
	_, err := t.exec(`INSERT INTO run_facts (org, run_id, seq, epoch, kind, call_key, attempt, at, v, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		b.key.org, b.key.run, f.Seq, f.Epoch, string(f.Body.Kind()), call, f.attempt, f.At, f.Version, string(f.body))
	if taken(err) {
		return fmt.Errorf("fact %s of call %s, attempt %d: %w", f.Body.Kind(), f.callKey, f.attempt, org.ErrExists)
	}
	return err
}

func (b batch) writeHead(t *tx, c change) error {
	s := c.to
	if c.seq == 0 {
		_, err := t.exec(`INSERT INTO runs (org, run_id, principal, surface, grade, model, status, finish_reason,
				rounds, calls, tokens, epoch, next_seq, created_at, updated_at, finished_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			b.key.org, b.key.run, s.Principal, s.Surface, string(s.Grade), s.Model, string(s.Status), string(s.Reason),
			s.Rounds, s.Calls, s.Tokens, c.epoch, c.next+1, s.CreatedAt, c.at, s.FinishedAt)
		return err
	}
	n, err := t.exec(`UPDATE runs SET status = ?, finish_reason = ?, rounds = ?, calls = ?, tokens = ?, epoch = ?, next_seq = ?,
			updated_at = max(updated_at, ?), finished_at = ?
		WHERE org = ? AND run_id = ? AND next_seq = ? AND epoch <= ?`,
		string(s.Status), string(s.Reason), s.Rounds, s.Calls, s.Tokens, c.epoch, c.next+1, c.at, s.FinishedAt,
		b.key.org, b.key.run, c.seq+1, c.epoch)
	if err == nil && n != 1 {
		return fmt.Errorf("%w: it does not end at %d", errGap, c.seq)
	}
	return err
}
