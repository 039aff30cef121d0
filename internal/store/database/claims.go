package database

import (
	"context"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// claimable lists runs that the owner ?1 may claim (journal.Head.Claimable) at the time ?2, the oldest of each org first,
// and no more of an org than its slots allow, beginning with the org after ?3.
const claimable = `WITH RECURSIVE waiting (org) AS ( -- the orgs with queued runs
		(SELECT org FROM runs WHERE status = 'queued' ORDER BY org LIMIT 1)
		UNION ALL
		SELECT (SELECT n.org FROM runs AS n WHERE n.status = 'queued' AND n.org > waiting.org ORDER BY n.org LIMIT 1)
			FROM waiting WHERE waiting.org IS NOT NULL),
	free AS (
		SELECT org, run_id, slots, created_at FROM runs WHERE status = 'running' AND lease_until <= ?2 AND owner <> ?1
		UNION ALL
		SELECT oldest.* FROM waiting CROSS JOIN LATERAL ( -- no more of an org than can be claimed
			SELECT q.org, q.run_id, q.slots, q.created_at FROM runs AS q WHERE q.status = 'queued' AND q.org = waiting.org AND NOT ` + notItsTurn + `
			ORDER BY q.created_at, q.run_id LIMIT ?4) AS oldest),
	placed AS (SELECT *, row_number() OVER (PARTITION BY org ORDER BY created_at, run_id) AS place FROM free)
	SELECT org, run_id FROM placed
	WHERE slots = 0 OR place + (SELECT count(*) FROM runs AS r
		WHERE r.status = 'running' AND r.org = placed.org AND r.lease_until > ?2) <= slots
	ORDER BY place, org <= ?3, org LIMIT ?4`

// claimOnServer claims runs of several orgs, each in the lane of its org: what is claimable is decided there again.
func (s *Store) claimOnServer(ctx context.Context, owner string, limit int) ([]journal.Lease, error) {
	now := s.leaseNow()
	s.lastOrgMu.Lock()
	after := s.lastOrg
	s.lastOrgMu.Unlock()
	found, err := list(ctx, s.db, func(row scanner) (key runKey, err error) {
		err = row.Scan(&key.org, &key.run)
		return key, err
	}, claimable, owner, now.UnixMilli(), after, max(limit, 0))
	if err != nil {
		return nil, err
	}
	leases, err := inLanes(ctx, s.writer, found, runKey.orgOf, func(t *tx, runs []runKey) ([]journal.Lease, error) {
		return t.claimSome(owner, runs, now, s.now())
	})
	if err != nil {
		return nil, err
	}
	got := make(map[runKey]journal.Lease, len(leases))
	for _, lease := range leases {
		got[runKey{lease.Org, lease.RunID}] = lease
	}
	var claimed []journal.Lease
	for _, key := range found {
		if lease, ok := got[key]; ok {
			claimed = append(claimed, lease)
		}
	}
	if n := len(claimed); n > 0 {
		s.lastOrgMu.Lock()
		s.lastOrg = claimed[n-1].Org
		s.lastOrgMu.Unlock()
	}
	return claimed, nil
}

// claimSome gives those of an org's runs to owner that are claimable, and have a slot.
func (t *tx) claimSome(owner string, runs []runKey, now, wall time.Time) (leases []journal.Lease, err error) {
	for _, key := range runs {
		lease, claimed, err := t.claimOne(owner, key, now, wall, true)
		if err != nil {
			return nil, err
		}
		if claimed {
			leases = append(leases, lease)
		}
	}
	return leases, nil
}

// claimOne gives the run to owner if it is claimable, and if it needs a slot and bounded is set, has one.
func (t *tx) claimOne(owner string, key runKey, now, wall time.Time, bounded bool) (lease journal.Lease, claimed bool, err error) {
	h, err := t.head(key)
	if err != nil || !h.Claimable(owner, now) {
		return lease, false, err
	}
	if h.Summary.Status == journal.Queued {
		var waits bool
		err := t.queryRow(`SELECT `+notItsTurn+` FROM runs AS q WHERE q.org = ? AND q.run_id = ?`, []any{key.org, key.run}, &waits)
		if err != nil || waits {
			return lease, false, err
		}
	}
	if bounded && h.Summary.Slots > 0 {
		state := orgState{t: t, org: key.org, c: &headChange{leaseNow: now}}
		if n, err := state.LeasedRuns(); err != nil || n >= h.Summary.Slots {
			return lease, false, err
		}
	}
	h, lease = h.Claim(owner, now)
	if err := t.writeLease(h); err != nil {
		return lease, false, err
	}
	return lease, true, t.settleAll(key, wall.UnixMilli())
}

// renewal begins the names of the lanes in which leases are renewed. No org has such an id.
const renewal = "\x00"

// renewOnServer renews the leases of an owner at once, apart from those of runs that are being written, for which it would
// wait with the others locked: these are renewed in the lanes of their orgs.
func (s *Store) renewOnServer(ctx context.Context, owner string, until int64) ([]journal.Lease, error) {
	const renewable = `status = 'running' AND owner = ?1 AND owner <> ''`
	renewed, err := performed(ctx, s.writer, renewal+owner, func(t *tx) ([]journal.Lease, error) {
		return queryAll(t, scanLease, `UPDATE runs SET lease_until = ?2
			WHERE (org, run_id) IN (SELECT org, run_id FROM runs WHERE `+renewable+` FOR NO KEY UPDATE SKIP LOCKED)
			RETURNING org, run_id, epoch, owner`, owner, until)
	})
	if err != nil {
		return nil, err
	}
	all, err := list(ctx, s.db, scanLease, `SELECT org, run_id, epoch, owner FROM runs WHERE `+renewable, owner)
	if err != nil {
		return nil, err
	}
	done := make(map[runKey]bool, len(renewed))
	for _, l := range renewed {
		done[runKey{l.Org, l.RunID}] = true
	}
	var left []runKey
	for _, l := range all {
		if key := (runKey{l.Org, l.RunID}); !done[key] {
			left = append(left, key)
		}
	}
	others, err := inLanes(ctx, s.writer, left, runKey.orgOf, func(t *tx, runs []runKey) (got []journal.Lease, err error) {
		for _, key := range runs {
			if err != nil {
				break
			}
			var some []journal.Lease
			some, err = queryAll(t, scanLease, `UPDATE runs SET lease_until = ?2 WHERE org = ?3 AND run_id = ?4 AND `+renewable+`
				RETURNING org, run_id, epoch, owner`, owner, until, key.org, key.run)
			got = append(got, some...)
		}
		return got, err
	})
	return append(renewed, others...), err
}

// forfeitDead counts the slices of owners that are gone as spent: what they spent since they last wrote is not known.
func (s *Store) forfeitDead(ctx context.Context) error {
	now := s.leaseNow().UnixMilli()
	type slicesOf struct{ org, owner string }
	dead, err := list(ctx, s.db, func(row scanner) (of slicesOf, err error) {
		err = row.Scan(&of.org, &of.owner)
		return of, err
	}, `SELECT DISTINCT org, owner FROM slices
		WHERE NOT EXISTS (SELECT 1 FROM owners AS o WHERE o.owner = slices.owner AND o.until > ?) ORDER BY org, owner`, now)
	if err != nil {
		return err
	}
	orgOf := func(of slicesOf) string { return of.org }
	if _, err := inLanes(ctx, s.writer, dead, orgOf, func(t *tx, all []slicesOf) ([]struct{}, error) {
		for _, of := range all {
			if err := t.forfeit(of.org, ` AND owner = ?`, of.owner); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}); err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, `DELETE FROM owners WHERE until < ?`, now-24*time.Hour.Milliseconds())
	return err
}
