package database

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Claim implements journal.Leases. The round robin over orgs continues after the org
// that got the last lease, also across calls.
func (s *Store) Claim(ctx context.Context, owner string, limit int) ([]journal.Lease, error) {
	if err := s.heads.flushAll(ctx); err != nil { // a run's batches keep their place before a new lease
		return nil, s.wrap("claim runs", err)
	}
	var claimed []journal.Lease
	now := s.leaseNow()
	s.seen(owner, now)
	err := s.writer.perform(ctx, func(t *tx) (err error) {
		claimed, err = t.claim(owner, s.lastOrg, limit, now, s.now())
		if n := len(claimed); n > 0 {
			s.lastOrg = claimed[n-1].Org
		}
		return err
	})
	if err != nil {
		return nil, s.wrap("claim runs", err)
	}
	for _, lease := range claimed {
		s.heads.claimed(runKey{lease.Org, lease.RunID}, lease.Epoch)
	}
	return claimed, nil
}

// claim gives up to limit runs that owner may claim (journal.Head.Claimable) to owner,
// starting with the org after the given one.
func (t *tx) claim(owner, after string, limit int, now, wall time.Time) ([]journal.Lease, error) {
	free, err := t.heads(`WITH RECURSIVE waiting(org) AS ( -- the orgs with queued runs
			SELECT min(org) FROM runs INDEXED BY runs_queued WHERE status = 'queued'
			UNION ALL
			SELECT (SELECT min(org) FROM runs INDEXED BY runs_queued WHERE status = 'queued' AND org > waiting.org) FROM waiting WHERE org IS NOT NULL)
		SELECT `+headColumns+` FROM (
			SELECT *, row_number() OVER (PARTITION BY org ORDER BY created_at, run_id) AS place FROM (
				SELECT * FROM runs INDEXED BY runs_running WHERE status = 'running' AND lease_until <= ?2 AND owner <> ?1
				UNION ALL
				SELECT runs.* FROM waiting CROSS JOIN runs ON runs.rowid IN ( -- no more of an org than can be claimed
					SELECT q.rowid FROM runs AS q INDEXED BY runs_queued WHERE q.status = 'queued' AND q.org = waiting.org AND NOT `+notItsTurn+`
					ORDER BY q.created_at, q.run_id LIMIT ?4))) AS free
		WHERE slots = 0 OR place + (SELECT count(*) FROM runs AS r INDEXED BY runs_running
			WHERE r.status = 'running' AND r.org = free.org AND r.lease_until > ?2) <= slots
		ORDER BY place, org <= ?3, org LIMIT ?4`, owner, now.UnixMilli(), after, max(limit, 0))
	if err != nil {
		return nil, err
	}
	leases := make([]journal.Lease, len(free))
	for i, h := range free {
		h, leases[i] = h.Claim(owner, now)
		if err := t.writeLease(h); err != nil {
			return nil, err
		}
		if err := t.settleAll(runKey{h.Summary.Org, h.Summary.RunID}, wall.UnixMilli()); err != nil {
			return nil, err
		}
	}
	return leases, nil
}

// ClaimRun implements journal.Picker.
func (s *Store) ClaimRun(ctx context.Context, owner string, key journal.RunKey) (journal.Lease, bool, error) {
	of := runKey{key.Org, key.Run}
	if err := s.heads.flush(ctx, of); err != nil { // the run's batches keep their place before a new lease
		return journal.Lease{}, false, s.wrap("claim a run", err)
	}
	var lease journal.Lease
	var claimed bool
	now := s.leaseNow()
	s.seen(owner, now)
	err := s.writer.perform(ctx, func(t *tx) error {
		h, err := t.head(of)
		if claimed = err == nil && h.Claimable(owner, now); !claimed {
			return err
		}
		if h.Summary.Status == journal.Queued {
			var waits bool
			if err := t.queryRow(`SELECT `+notItsTurn+` FROM runs AS q WHERE q.org = ? AND q.run_id = ?`, []any{of.org, of.run}, &waits); err != nil || waits {
				claimed = false
				return err
			}
		}
		h, lease = h.Claim(owner, now)
		if err := t.writeLease(h); err != nil {
			return err
		}
		return t.settleAll(of, s.now().UnixMilli())
	})
	if err != nil {
		return journal.Lease{}, false, s.wrap("claim run "+key.Run, err)
	}
	if claimed {
		s.heads.claimed(of, lease.Epoch)
	}
	return lease, claimed, nil
}

// head returns the head of a run, without Bytes, or org.ErrNotFound.
func (t *tx) head(key runKey) (journal.Head, error) {
	return queryOne(t, scanHead, `SELECT `+headColumns+` FROM runs WHERE org = ? AND run_id = ?`, key.org, key.run)
}

// heads runs a query for headColumns.
func (t *tx) heads(text string, args ...any) ([]journal.Head, error) {
	return queryAll(t, scanHead, text, args...)
}

// writeLease stores the lease and the status of a head.
func (t *tx) writeLease(h journal.Head) error {
	aside, err := encode(h.Summary.Aside)
	if err != nil {
		return err
	}
	_, err = t.exec(`UPDATE runs SET epoch = ?, owner = ?, lease_until = ?, status = ?, aside = ? WHERE org = ? AND run_id = ?`,
		h.Epoch, h.Owner, h.LeaseUntil, string(h.Summary.Status), aside, h.Summary.Org, h.Summary.RunID)
	return err
}

// changeLease applies change to the head of the lease's run, if there is one, and stores
// the result if change returns true. It returns whether it did.
func (t *tx) changeLease(lease journal.Lease, change func(journal.Head) (journal.Head, bool)) (changed bool, err error) {
	h, err := t.head(runKey{lease.Org, lease.RunID})
	if errors.Is(err, org.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h, changed = change(h)
	if changed {
		err = t.writeLease(h)
	}
	return changed, err
}

// Renew implements journal.Leases.
func (s *Store) Renew(ctx context.Context, owner string) ([]journal.Lease, error) {
	if err := s.heads.flushAll(ctx); err != nil { // they carry an earlier end of their lease
		return nil, s.wrap("renew leases", err)
	}
	var renewed []journal.Lease
	now := s.leaseNow()
	s.seen(owner, now)
	err := s.writer.perform(ctx, func(t *tx) (err error) { // journal.Head.Renewable and Renew, for all runs at once
		renewed, err = queryAll(t, scanLease, `UPDATE runs INDEXED BY runs_running SET lease_until = ?2 WHERE status = 'running' AND owner = ?1 AND owner <> ''
			RETURNING org, run_id, epoch, owner`, owner, journal.LeaseEnd(now))
		return err
	})
	if err != nil {
		return nil, s.wrap("renew leases", err)
	}
	return renewed, nil
}

// seen notes that an owner is alive, and forgets those that are gone. Owners of other processes
// are gone, because this process has the lock of the file: nothing is stored.
func (s *Store) seen(owner string, now time.Time) {
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	if s.owners == nil {
		s.owners = map[string]int64{}
	}
	maps.DeleteFunc(s.owners, func(_ string, until int64) bool { return until <= now.UnixMilli() })
	s.owners[owner] = journal.LeaseEnd(now)
}

// Alive implements journal.Leases.
func (s *Store) Alive(_ context.Context, owner string) (bool, error) {
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	return s.owners[owner] > s.leaseNow().UnixMilli(), nil
}

func scanLease(row scanner) (l journal.Lease, err error) {
	err = row.Scan(&l.Org, &l.RunID, &l.Epoch, &l.Owner)
	return l, err
}

// Release implements journal.Leases.
func (s *Store) Release(ctx context.Context, lease journal.Lease) error {
	if err := s.heads.flush(ctx, runKey{lease.Org, lease.RunID}); err != nil { // it extends the lease
		return s.wrap("release a lease", err)
	}
	err := s.writer.perform(ctx, func(t *tx) error {
		_, err := t.changeLease(lease, func(h journal.Head) (journal.Head, bool) { return h.Release(lease) })
		return err
	})
	return s.wrap("release a lease", err)
}

// SetAside implements journal.Leases.
func (s *Store) SetAside(ctx context.Context, lease journal.Lease, last int64, why journal.Aside) (bool, error) {
	key := runKey{lease.Org, lease.RunID}
	h := s.heads.lock(key)
	defer h.mu.Unlock()
	if err := h.drain(ctx); err != nil {
		return false, s.wrap("set a run aside", err)
	}
	var done bool
	err := s.writer.perform(ctx, func(t *tx) (err error) {
		done, err = t.changeLease(lease, func(h journal.Head) (journal.Head, bool) { return h.SetAside(lease, last, why) })
		return err
	})
	h.loaded = false
	s.heads.remove(key, h)
	return done && err == nil, s.wrap("set a run aside", err)
}

// Restore implements journal.Leases.
func (s *Store) Restore(ctx context.Context, again func(journal.Aside) bool) (int, error) {
	var restored []runKey
	err := s.writer.perform(ctx, func(t *tx) error {
		restored = nil
		aside, err := t.heads(`SELECT ` + headColumns + ` FROM runs INDEXED BY runs_aside WHERE status = 'set_aside'`)
		for _, h := range aside {
			next, ok := h.Restore()
			if err == nil && ok && again(h.Summary.Aside) {
				restored = append(restored, runKey{h.Summary.Org, h.Summary.RunID})
				err = t.writeLease(next)
			}
		}
		return err
	})
	if err != nil {
		return 0, s.wrap("restore runs", err)
	}
	for _, key := range restored {
		err = errors.Join(err, s.heads.restored(ctx, key))
	}
	return len(restored), s.wrap("restore runs", err)
}

// probeSize is how many bytes a probe writes: about one round of a run.
const probeSize = 16 << 10

// Probe implements journal.Leases. It waits for the writes that are queued, and then writes what a full
// disk has left unstored of them: when Probe succeeds, there is no error of an earlier write to
// report.
func (s *Store) Probe(ctx context.Context) error {
	if err := s.writer.perform(ctx, func(*tx) error { return nil }); err != nil {
		return s.wrap("probe", err)
	}
	if err := s.flush(ctx); err != nil {
		return s.wrap("probe", err)
	}
	err := s.writer.perform(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT OR REPLACE INTO probes (id, body) VALUES (1, zeroblob(?))`, probeSize)
		return err
	})
	return s.wrap("probe", err)
}

// expireLeases expires all leases. It is called on opening: this process has the lock of
// the file, so no other owner is alive.
func (s *Store) expireLeases(ctx context.Context) error {
	return s.writer.perform(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE runs INDEXED BY runs_running SET lease_until = 0 WHERE status = 'running' AND lease_until > 0`)
		return err
	})
}
