package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/replica"
)

// forgetReplica is after how long without a beat the row of a replica is deleted.
const forgetReplica = 24 * time.Hour

// Beats returns where the replicas of the installation see each other.
func (s *Store) Beats() *Beats {
	b := &Beats{store: s, rung: make(chan struct{}, 1)}
	s.Bell.Subscribe(RingSettings, func(Key) {
		select {
		case b.rung <- struct{}{}:
		default: // it is rung already
		}
	})
	return b
}

// Beats implements replica.Beats.
type Beats struct {
	store  *Store
	rung   chan struct{}
	joined atomic.Bool // it has beaten
}

// Epoch implements replica.Beats.
func (b *Beats) Epoch(ctx context.Context) (epoch int64, err error) {
	err = b.store.beats.QueryRowContext(ctx, `SELECT epoch FROM settings_epoch`).Scan(&epoch)
	return epoch, err
}

// Beat implements replica.Beats. It also corrects the clock of leases. The bell is quiet while there is no other replica. The error
// is a *[SchemaError] if a later build has changed the schema so that this one must not use it any more.
func (b *Beats) Beat(ctx context.Context, me replica.Beat) (replica.State, error) {
	var draining int64
	if me.Draining {
		draining = 1
	}
	var state replica.State
	var others, now, found, oldest int64
	before := b.store.clock.steady.Now()
	err := b.store.beats.QueryRowContext(ctx, `WITH beat AS (
			INSERT INTO replicas AS r (id, seen_at, started_at, applied, version, draining)
			VALUES ($1, `+nowMillis+`, `+nowMillis+`, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, applied = excluded.applied,
				version = excluded.version, draining = excluded.draining)
		SELECT (SELECT epoch FROM settings_epoch), `+nowMillis+`,
			(SELECT count(*) FROM replicas WHERE id <> $1 AND seen_at > `+nowMillis+` - $5::bigint),
			(SELECT count(*) FROM replicas WHERE id <> $1 AND seen_at > `+nowMillis+` - $5::bigint AND draining = 0),
			(SELECT max(version_id) FROM goose_db_version WHERE is_applied), (SELECT oldest FROM schema_oldest)`,
		me.ID, me.Applied, me.Version, draining, replica.Lifetime.Milliseconds(),
	).Scan(&state.Epoch, &now, &others, &state.Living, &found, &oldest)
	if err != nil {
		return replica.State{}, err
	}
	if _, known := versions(); oldest > known {
		return replica.State{}, &SchemaError{Schema: b.store.Schema, Found: found, Known: known, Oldest: oldest}
	}
	if !me.Draining {
		state.Living++
	}
	b.store.clock.note(before, now)
	if !b.joined.Swap(true) {
		b.store.Bell.Ring(Key{Kind: RingSettings}) // the others begin to ring for this one
	}
	b.store.Bell.Quiet(others == 0)
	return state, nil
}

// Changed implements replica.Beats.
func (b *Beats) Changed(ctx context.Context, after int64) (orgs []string, err error) {
	text := `SELECT org FROM settings_changes WHERE epoch > $1 ORDER BY org`
	if after < 0 {
		text = `SELECT org FROM settings_changes WHERE epoch > $1 UNION SELECT id FROM orgs ORDER BY 1`
	}
	rows, err := b.store.DB().QueryContext(ctx, text, after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var org string
		if err := rows.Scan(&org); err != nil {
			return nil, err
		}
		orgs = append(orgs, org)
	}
	return orgs, rows.Err()
}

// Made implements replica.Beats.
func (b *Beats) Made() int64 { return b.store.made.Load() }

// Confirmed implements replica.Beats.
func (b *Beats) Confirmed(ctx context.Context, epoch int64) (all bool, err error) {
	err = b.store.DB().QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM replicas
		WHERE seen_at > `+nowMillis+` - $2::bigint AND applied < $1)`,
		epoch, replica.Grace.Milliseconds()).Scan(&all)
	return all, err
}

// Bell implements replica.Beats.
func (b *Beats) Bell() <-chan struct{} { return b.rung }

// Leave implements replica.Beats. As an owner of runs it is gone, too. It also deletes the rows of replicas that did not leave.
func (b *Beats) Leave(ctx context.Context, id string) error {
	_, err := b.store.beats.ExecContext(ctx, `WITH gone AS (DELETE FROM owners WHERE owner = $1)
		DELETE FROM replicas WHERE id = $1 OR seen_at < `+nowMillis+` - $2::bigint`, id, forgetReplica.Milliseconds())
	return err
}

// HasDuty gives the duty with the name to owner for that time, unless another owner has it, and reports whether owner has it. What it
// is for may be done by two replicas all the same: by one that is slow, and by the next.
func (s *Store) HasDuty(ctx context.Context, name, owner string, lasts time.Duration) (has bool, err error) {
	err = s.beats.QueryRowContext(ctx, `WITH taken AS (
			INSERT INTO duties AS d (name, owner, until) VALUES ($1, $2, `+nowMillis+` + $3::bigint)
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
				WHERE d.owner = excluded.owner OR d.until < `+nowMillis+`
			RETURNING 1)
		SELECT EXISTS (SELECT 1 FROM taken)`, name, owner, lasts.Milliseconds()).Scan(&has)
	return has, err
}
