package storetest_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

func (p *randomOps) owner() string { return fmt.Sprint("o", p.rand.IntN(3)) }
func (p *randomOps) scope() string { return fmt.Sprint("s", p.fresh/400, p.rand.IntN(2)) }

// epoch returns an epoch to write a run with: mostly the current one, sometimes 0 (no
// lease) or a wrong one.
func (p *randomOps) epoch(key journal.Lease) int64 {
	now := max(p.epochs[key], 1)
	switch n := p.rand.IntN(20); {
	case n < 4:
		return 0
	case n < 6:
		return now - 1
	case n == 6:
		return now + 1
	}
	return now
}

// lease claims, renews or releases leases, sets a run aside, or restores such runs.
func (p *randomOps) lease() (string, []answer) {
	ctx := p.t.Context()
	if p.rand.IntN(3) == 0 {
		p.now = p.now.Add(journal.LeaseTTL / 2)
	}
	owner := p.owner()
	switch p.rand.IntN(6) {
	case 0:
		return "renew", p.both(func(s storetest.Store) (any, error) {
			leases, err := s.Leases.Renew(ctx, owner)
			slices.SortFunc(leases, func(a, b journal.Lease) int { return strings.Compare(a.Org+a.RunID, b.Org+b.RunID) })
			return leases, err
		})
	case 1:
		key := journal.Lease{Org: p.org(), RunID: p.run()}
		l := journal.Lease{Org: key.Org, RunID: key.RunID, Epoch: p.epoch(key), Owner: owner}
		return "release", p.only(func(s storetest.Store) error { return s.Leases.Release(ctx, l) })
	case 2:
		if p.rand.IntN(4) == 0 {
			reason := fmt.Sprint(p.rand.IntN(3))
			return "restore", p.both(func(s storetest.Store) (any, error) {
				return s.Leases.Restore(ctx, func(a journal.Aside) bool { return a.Reason != reason })
			})
		}
		key := journal.Lease{Org: p.org(), RunID: p.run()}
		l := journal.Lease{Org: key.Org, RunID: key.RunID, Epoch: p.epoch(key), Owner: owner}
		why := journal.Aside{Reason: fmt.Sprint(p.rand.IntN(3)), Build: "b", At: p.now.UnixMilli()}
		head, _ := p.stores[0].Archive.Head(ctx, l.Org, l.RunID) // the zero head if there is none
		last := head.Seq - int64(p.rand.IntN(5)/4)
		return "set aside", p.both(func(s storetest.Store) (any, error) { return s.Leases.SetAside(ctx, l, last, why) })
	}
	if p.shared {
		p.sync()
	}
	limit := p.rand.IntN(5)
	answers := p.both(func(s storetest.Store) (any, error) { return s.Leases.Claim(ctx, owner, limit) })
	for _, l := range answers[0].value.([]journal.Lease) {
		p.epochs[journal.Lease{Org: l.Org, RunID: l.RunID}] = l.Epoch
	}
	return "claim", answers
}

// addConditions adds an opening, holds, settlements and audit entries to a batch. It reports
// whether the batch may be refused because of them.
func (p *randomOps) addConditions(b *journal.Batch, opens bool) (risky bool) {
	if opens && p.coin() {
		b.Opening = &journal.Opening{Slots: p.rand.IntN(6)}
		if p.coin() {
			b.Opening.Key = &journal.SubmitKey{Principal: p.principal(), Key: fmt.Sprint("k", p.rand.IntN(2)), Hash: fmt.Sprint(p.fresh)}
		}
		risky = true
	}
	for p.rand.IntN(4) == 0 {
		risky = true
		b.Reservations = append(b.Reservations, journal.Reservation{
			ID:     fmt.Sprint("h", p.rand.IntN(6)),
			Budget: budget.Window{Scope: p.scope(), Limit: budget.Amount{Tokens: 300, NanoUSD: int64(p.rand.IntN(2) * 200)}},
			Amount: budget.Amount{Tokens: int64(p.rand.IntN(60)), NanoUSD: int64(p.rand.IntN(60))},
		})
	}
	for p.rand.IntN(4) == 0 {
		b.Settled = append(b.Settled, journal.Settled{
			ID: fmt.Sprint("h", p.rand.IntN(6)), Amount: budget.Amount{Tokens: int64(p.rand.IntN(60)), NanoUSD: int64(p.rand.IntN(60))},
		})
	}
	for p.rand.IntN(4) == 0 {
		b.Audit = append(b.Audit, audit.Entry{Kind: audit.Kind(p.name()), At: p.now.UnixMilli(), Body: map[string]any{"n": p.fresh, "text": "<é>"}})
	}
	return risky
}

// account reads a budget or audit rows.
func (p *randomOps) account() (string, []answer) {
	ctx := p.t.Context()
	orgID, scope, runID := p.org(), p.scope(), p.run()
	if p.coin() {
		return "used", p.both(func(s storetest.Store) (any, error) { return s.Archive.Used(ctx, orgID, scope) })
	}
	return "audited", p.both(func(s storetest.Store) (any, error) {
		rows, err := s.Archive.AuditRows(ctx, orgID, audit.Query{RunID: runID})
		for i := range rows { // the order of rows of different runs is not defined for batches without Sync
			rows[i].Number, rows[i].Hash = 0, audit.Hash{}
		}
		return rows, err
	})
}

// advanceHours advances the clock by 8 hours, so that keys and conversations expire.
func (p *randomOps) advanceHours() { p.now = p.now.Add(8 * time.Hour) }
