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
	if err := s.seen(ctx, owner, s.leaseNow()); err != nil {
		return nil, s.wrap("claim runs", err)
	}
	claim := s.claimInFile
	if s.onServer() {
		claim = s.claimOnServer
	}
	claimed, err := claim(ctx, owner, limit)
	if err != nil {
		return nil, s.wrap("claim runs", err)
	}
	for _, lease := range claimed {
		s.claimed(ctx, runKey{lease.Org, lease.RunID}, lease.Epoch)
	}
	return claimed, nil
}

// claimInFile claims runs of all orgs in one transaction.
func (s *Store) claimInFile(ctx context.Context, owner string, limit int) ([]journal.Lease, error) {
	now := s.leaseNow()
	return performed(ctx, s.writer, noOrg, func(t *tx) ([]journal.Lease, error) {
		claimed, err := t.claim(owner, s.lastOrg, limit, now, s.now())
		if n := len(claimed); n > 0 {
			s.lastOrg = claimed[n-1].Org
		}
		return claimed, err
	})
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
	if err := s.seen(ctx, owner, now); err != nil {
		return journal.Lease{}, false, s.wrap("claim a run", err)
	}
	err := s.writer.perform(ctx, of.org, func(t *tx) (err error) {
		lease, claimed, err = t.claimOne(owner, of, now, s.now(), false)
		return err
	})
	if err != nil {
		return journal.Lease{}, false, s.wrap("claim run "+key.Run, err)
	}
	if claimed {
		s.claimed(ctx, of, lease.Epoch)
	}
	return lease, claimed, nil
}

// claimed tells the head in memory of a new lease. On a server, others may have appended before.
func (s *Store) claimed(ctx context.Context, key runKey, epoch int64) {
	if s.onServer() {
		s.heads.reload(ctx, key)
	}
	s.heads.claimed(key, epoch)
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
	now := s.leaseNow()
	if err := s.seen(ctx, owner, now); err != nil {
		return nil, s.wrap("renew leases", err)
	}
	renew := s.renewInFile
	if s.onServer() {
		renew = s.renewOnServer
		s.awaitQueued(ctx) // a run that one of them makes run has a lease, too
	}
	renewed, err := renew(ctx, owner, journal.LeaseEnd(now))
	if err == nil && s.onServer() {
		err = s.forfeitDead(ctx)
	}
	if err != nil {
		return nil, s.wrap("renew leases", err)
	}
	return renewed, nil
}

// queuedTime is how long a renewal waits for the writes that are queued before it.
const queuedTime = time.Second

// awaitQueued waits until the writes that are queued have a result, but not for long: an org whose writes wait must not end
// the leases of the others.
func (s *Store) awaitQueued(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, queuedTime)
	defer cancel()
	_ = s.writer.barrier(ctx) // the caller of each write gets its error
}

// renewInFile is journal.Head.Renewable and Renew, for all runs of an owner at once.
func (s *Store) renewInFile(ctx context.Context, owner string, until int64) ([]journal.Lease, error) {
	return performed(ctx, s.writer, noOrg, func(t *tx) ([]journal.Lease, error) {
		return queryAll(t, scanLease, `UPDATE runs INDEXED BY runs_running SET lease_until = ?2 WHERE status = 'running' AND owner = ?1 AND owner <> ''
			RETURNING org, run_id, epoch, owner`, owner, until)
	})
}

// seen notes that an owner is alive, and forgets those that are gone. On a file, owners of other processes
// are gone, because this process has its lock: nothing is stored.
func (s *Store) seen(ctx context.Context, owner string, now time.Time) error {
	until := journal.LeaseEnd(now)
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	if s.onServer() && s.owners[owner] < until-journal.LeaseTTL.Milliseconds()/4 {
		if _, err := s.db.ExecContext(ctx, `INSERT INTO owners (owner, until) VALUES (?, ?)
			ON CONFLICT (owner) DO UPDATE SET until = excluded.until`, owner, until); err != nil {
			return err
		}
	} else if s.onServer() {
		return nil
	}
	if s.owners == nil {
		s.owners = map[string]int64{}
	}
	maps.DeleteFunc(s.owners, func(_ string, until int64) bool { return until <= now.UnixMilli() })
	s.owners[owner] = until
	return nil
}

// Alive implements journal.Leases.
func (s *Store) Alive(ctx context.Context, owner string) (alive bool, err error) {
	now := s.leaseNow().UnixMilli()
	if s.onServer() {
		err = s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM owners WHERE owner = ? AND until > ?)`, owner, now).Scan(&alive)
		return alive, s.wrap("look for an owner of runs", err)
	}
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	return s.owners[owner] > now, nil
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
	err := s.writer.perform(ctx, lease.Org, func(t *tx) error {
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
	err := s.writer.perform(ctx, lease.Org, func(t *tx) (err error) {
		done, err = t.changeLease(lease, func(h journal.Head) (journal.Head, bool) { return h.SetAside(lease, last, why) })
		return err
	})
	h.loaded = false
	s.heads.remove(key, h)
	return done && err == nil, s.wrap("set a run aside", err)
}

// Restore implements journal.Leases.
func (s *Store) Restore(ctx context.Context, again func(journal.Aside) bool) (int, error) {
	aside, err := list(ctx, s.db, scanHead, `SELECT `+headColumns+` FROM runs INDEXED BY runs_aside WHERE status = 'set_aside'`)
	restored := 0
	for _, found := range aside {
		key := runKey{found.Summary.Org, found.Summary.RunID}
		if err != nil || !again(found.Summary.Aside) {
			continue
		}
		var was bool
		was, err = performed(ctx, s.writer, key.org, func(t *tx) (bool, error) {
			h, err := t.head(key)
			if errors.Is(err, org.ErrNotFound) {
				return false, nil
			}
			next, ok := h.Restore()
			if err != nil || !ok {
				return false, err
			}
			return true, t.writeLease(next)
		})
		if was && err == nil {
			restored++
			err = s.heads.restored(ctx, key)
		}
	}
	return restored, s.wrap("restore runs", err)
}

// probeSize is how many bytes a probe writes: about one round of a run.
const probeSize = 16 << 10

// Probe implements journal.Leases. It waits for the writes that are queued, and then writes what a full
// disk has left unstored of them: when Probe succeeds, there is no error of an earlier write to
// report.
func (s *Store) Probe(ctx context.Context) error {
	if err := s.writer.barrier(ctx); err != nil {
		return s.wrap("probe", err)
	}
	if err := s.flush(ctx); err != nil {
		return s.wrap("probe", err)
	}
	err := s.writer.perform(ctx, noOrg, func(t *tx) error {
		if s.onServer() { // the transaction has a number, which its commit writes
			return nil
		}
		_, err := t.exec(`INSERT OR REPLACE INTO probes (id, body) VALUES (1, zeroblob(?))`, probeSize)
		return err
	})
	return s.wrap("probe", err)
}

// expireLeases expires all leases. It is called on opening: this process has the lock of
// the file, so no other owner is alive.
func (s *Store) expireLeases(ctx context.Context) error {
	return s.writer.perform(ctx, noOrg, func(t *tx) error {
		_, err := t.exec(expiredLeases)
		return err
	})
}

const expiredLeases = `UPDATE runs INDEXED BY runs_running SET lease_until = 0 WHERE status = 'running' AND lease_until > 0`
