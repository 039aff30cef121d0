package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// Claim implements run.Leases. The round robin over orgs continues after the org
// that got the last lease, also across calls.
func (s *Store) Claim(ctx context.Context, owner string, limit int) ([]run.Lease, error) {
	var claimed []run.Lease
	now := s.leaseNow()
	err := s.writer.perform(ctx, func(t *tx) (err error) {
		claimed, err = t.claim(owner, s.lastOrg, limit, now)
		if n := len(claimed); n > 0 {
			s.lastOrg = claimed[n-1].Org
		}
		return err
	})
	if err != nil {
		return nil, s.wrap("claim runs", err)
	}
	for _, lease := range claimed {
		s.heads.raiseEpoch(runKey{lease.Org, lease.RunID}, lease.Epoch)
	}
	return claimed, nil
}

// claim gives up to limit runs without a lease to owner, starting with the org after
// the given one. It leaves out runs that owner had, even if that lease has expired,
// because owner may still be working on them.
func (t *tx) claim(owner, after string, limit int, now time.Time) ([]run.Lease, error) {
	leases, err := t.leases(`SELECT org, run_id, epoch + 1, ?1, owner = '' FROM (
			SELECT org, run_id, epoch, owner, row_number() OVER (PARTITION BY org ORDER BY created_at, run_id) AS place
			FROM runs INDEXED BY runs_running WHERE status = 'running' AND lease_until <= ?2 AND owner <> ?1)
		ORDER BY place, org <= ?3, org LIMIT ?4`, owner, now.UnixMilli(), after, max(limit, 0))
	if err != nil {
		return nil, err
	}
	for _, l := range leases {
		if _, err := t.exec(`UPDATE runs SET epoch = ?, owner = ?, lease_until = ? WHERE org = ? AND run_id = ?`,
			l.Epoch, owner, leaseEnd(now), l.Org, l.RunID); err != nil {
			return nil, err
		}
		if err := t.settleAll(runKey{l.Org, l.RunID}); err != nil {
			return nil, err
		}
	}
	return leases, nil
}

// Renew implements run.Leases.
func (s *Store) Renew(ctx context.Context, owner string) ([]run.Lease, error) {
	var renewed []run.Lease
	now := s.leaseNow()
	err := s.writer.perform(ctx, func(t *tx) (err error) {
		renewed, err = t.leases(`UPDATE runs INDEXED BY runs_running SET lease_until = ?2 WHERE status = 'running' AND owner = ?1 AND owner <> ''
			RETURNING org, run_id, epoch, owner, 0`, owner, leaseEnd(now))
		return err
	})
	if err != nil {
		return nil, s.wrap("renew leases", err)
	}
	return renewed, nil
}

// Release implements run.Leases.
func (s *Store) Release(ctx context.Context, lease run.Lease) error {
	err := s.writer.perform(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE runs SET owner = '', lease_until = 0 WHERE org = ? AND run_id = ? AND epoch = ? AND owner = ? AND status = 'running'`,
			lease.Org, lease.RunID, lease.Epoch, lease.Owner)
		return err
	})
	return s.wrap("release a lease", err)
}

// SetAside implements run.Leases.
func (s *Store) SetAside(ctx context.Context, lease run.Lease, why run.Aside) error {
	text, err := json.Marshal(why)
	if err != nil {
		return err
	}
	key := runKey{lease.Org, lease.RunID}
	h := s.heads.lock(key)
	defer h.mu.Unlock()
	if err := h.drain(ctx); err != nil {
		return s.wrap("set a run aside", err)
	}
	err = s.writer.perform(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE runs SET status = 'set_aside', aside = ?, owner = '', lease_until = 0
			WHERE org = ? AND run_id = ? AND epoch = ? AND owner = ? AND status = 'running'`,
			string(text), lease.Org, lease.RunID, lease.Epoch, lease.Owner)
		return err
	})
	h.loaded = false
	s.heads.remove(key, h)
	return s.wrap("set a run aside", err)
}

// Restore implements run.Leases.
func (s *Store) Restore(ctx context.Context, again func(run.Aside) bool) (int, error) {
	n := 0
	err := s.writer.perform(ctx, func(t *tx) error {
		n = 0
		aside, err := t.listAside()
		for _, a := range aside {
			if err == nil && again(a.Aside) {
				n++
				_, err = t.exec(`UPDATE runs SET status = 'running', aside = '{}' WHERE org = ? AND run_id = ?`, a.Org, a.RunID)
			}
		}
		return err
	})
	if err != nil {
		return 0, s.wrap("restore runs", err)
	}
	return n, nil
}

// listAside returns org, run id and reason of the runs that are set aside.
func (t *tx) listAside() ([]run.Summary, error) {
	s, err := t.statement(`SELECT org, run_id, aside FROM runs INDEXED BY runs_aside WHERE status = 'set_aside'`) //nolint:sqlclosecheck // cached, and closed with t
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(context.Background())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []run.Summary
	for rows.Next() {
		var one run.Summary
		if err := rows.Scan(&one.Org, &one.RunID, asJSON{&one.Aside}); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, rows.Err()
}

// probeSize is how many bytes a probe writes: about one round of a run.
const probeSize = 16 << 10

// Probe implements run.Leases.
func (s *Store) Probe(ctx context.Context) error {
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

// leases runs a statement that returns leases.
func (t *tx) leases(text string, args ...any) ([]run.Lease, error) {
	s, err := t.statement(text) //nolint:sqlclosecheck // cached, and closed with t
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(context.Background(), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []run.Lease
	for rows.Next() {
		var l run.Lease
		if err := rows.Scan(&l.Org, &l.RunID, &l.Epoch, &l.Owner, &l.Handed); err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, rows.Err()
}
