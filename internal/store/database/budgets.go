package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const usedColumns = `scope, spent_tokens, spent_nano_usd, reserved_tokens, reserved_nano_usd,
	overrun_tokens, overrun_nano_usd, limit_tokens, limit_nano_usd, ends_at, told`

// Used implements journal.Archive.
func (r *Reader) Used(ctx context.Context, orgID, scope string) (journal.Used, error) {
	used, err := scanUsed(r.db.QueryRowContext(ctx, `SELECT `+usedColumns+` FROM budgets WHERE org = ? AND scope = ?`, orgID, scope))
	if errors.Is(err, sql.ErrNoRows) {
		return journal.Used{}, nil
	}
	return used, r.wrap("read a budget", err)
}

// UsedAll implements journal.Archive.
func (r *Reader) UsedAll(ctx context.Context, orgID, prefix, after string, limit int) ([]journal.Used, error) {
	used, err := list(ctx, r.db, scanUsed, `SELECT `+usedColumns+` FROM budgets
		WHERE org = ?1 AND scope > ?2 AND substr(scope, 1, length(?3)) = ?3 ORDER BY scope LIMIT ?4`, orgID, after, prefix, limit)
	return used, r.wrap("read budgets", err)
}

func scanUsed(row scanner) (u journal.Used, err error) {
	err = row.Scan(usedFields(&u)...)
	return u, err
}

// usedFields returns where the values of usedColumns go.
func usedFields(u *journal.Used) []any {
	return []any{
		&u.Budget.Scope, &u.Spent.Tokens, &u.Spent.NanoUSD, &u.Reserved.Tokens, &u.Reserved.NanoUSD,
		&u.Overrun.Tokens, &u.Overrun.NanoUSD, &u.Budget.Limit.Tokens, &u.Budget.Limit.NanoUSD, &u.Budget.EndsAt, &u.Told,
	}
}

// used returns what is used of a budget, in the transaction.
func (t *tx) used(orgID, scope string) (u journal.Used, err error) {
	err = t.queryRow(`SELECT `+usedColumns+` FROM budgets WHERE org = ? AND scope = ?`, []any{orgID, scope}, usedFields(&u)...)
	if errors.Is(err, sql.ErrNoRows) {
		return journal.Used{}, nil
	}
	return u, err
}

// setUsed stores what is used of a budget, and tells the audit log and the webhooks what of its limit is
// reached.
func (t *tx) setUsed(orgID, scope string, u journal.Used, refused bool, now int64) error {
	if u.Budget.Scope == "" { // one of which nothing was ever reserved
		u.Budget.Scope = scope
	}
	if percent, told := u.Tell(refused); percent > 0 {
		u = told
		if err := t.addAudit(orgID, []audit.Entry{u.TellEntry(percent, now)}); err != nil {
			return err
		}
		if err := t.notify(orgID, []journal.Notice{u.TellNotice(percent, now)}); err != nil {
			return err
		}
	}
	_, err := t.exec(`INSERT INTO budgets (org, `+usedColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (org, scope) DO UPDATE SET spent_tokens = excluded.spent_tokens, spent_nano_usd = excluded.spent_nano_usd,
			reserved_tokens = excluded.reserved_tokens, reserved_nano_usd = excluded.reserved_nano_usd,
			overrun_tokens = excluded.overrun_tokens, overrun_nano_usd = excluded.overrun_nano_usd,
			limit_tokens = excluded.limit_tokens, limit_nano_usd = excluded.limit_nano_usd,
			ends_at = excluded.ends_at, told = excluded.told`,
		orgID, scope, u.Spent.Tokens, u.Spent.NanoUSD, u.Reserved.Tokens, u.Reserved.NanoUSD,
		u.Overrun.Tokens, u.Overrun.NanoUSD, u.Budget.Limit.Tokens, u.Budget.Limit.NanoUSD, u.Budget.EndsAt, u.Told)
	return err
}

// charge settles reservations and makes new ones. If the run has ended, it settles the
// remaining reservations.
func (b batch) charge(t *tx, c headChange) error {
	for _, s := range b.settled {
		if err := t.settle(b.key, s, c.now.UnixMilli()); err != nil {
			return err
		}
	}
	for _, h := range b.reservations {
		if err := b.reserve(t, c.lease.Epoch, h, c.now.UnixMilli()); err != nil {
			return err
		}
	}
	if c.to.Summary.Status == journal.Done && c.mayReserve {
		return t.settleAll(b.key, c.now.UnixMilli())
	}
	return nil
}

func (b batch) reserve(t *tx, epoch int64, h journal.Reservation, now int64) error {
	used, err := t.used(b.key.org, h.Budget.Scope)
	if err != nil {
		return err
	}
	if used, err = used.Reserve(h); err != nil {
		return err
	}
	if err := t.setUsed(b.key.org, h.Budget.Scope, used, false, now); err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO reservations (org, run_id, id, scope, tokens, nano_usd, epoch) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		b.key.org, b.key.run, h.ID, h.Budget.Scope, h.Amount.Tokens, h.Amount.NanoUSD, epoch)
	if isUniqueViolation(err) {
		return fmt.Errorf("reservation %s in budget %s: %w", h.ID, h.Budget.Scope, org.ErrExists)
	}
	return err
}

// reserved is an open reservation.
type reserved struct {
	scope  string
	amount budget.Amount
}

func scanReserved(row scanner) (r reserved, err error) {
	err = row.Scan(&r.scope, &r.amount.Tokens, &r.amount.NanoUSD)
	return r, err
}

// settle applies journal.Used.Settle to the budgets of a reservation, and removes it.
func (t *tx) settle(key runKey, s journal.Settled, now int64) error {
	open, err := queryAll(t, scanReserved, `SELECT scope, tokens, nano_usd FROM reservations WHERE org = ? AND run_id = ? AND id = ?`, key.org, key.run, s.ID)
	if err != nil || len(open) == 0 {
		return err
	}
	for _, r := range open {
		if err := t.settleOne(key.org, r, s.Amount, now); err != nil {
			return err
		}
	}
	_, err = t.exec(`DELETE FROM reservations WHERE org = ? AND run_id = ? AND id = ?`, key.org, key.run, s.ID)
	return err
}

func (t *tx) settleOne(orgID string, r reserved, cost budget.Amount, now int64) error {
	used, err := t.used(orgID, r.scope)
	if err != nil {
		return err
	}
	return t.setUsed(orgID, r.scope, used.Settle(r.amount, cost), false, now)
}

// settleAll settles all reservations of the run at their full amount.
func (t *tx) settleAll(key runKey, now int64) error {
	open, err := queryAll(t, scanReserved, `SELECT scope, CAST(sum(tokens) AS BIGINT), CAST(sum(nano_usd) AS BIGINT) FROM reservations WHERE org = ? AND run_id = ? GROUP BY scope`, key.org, key.run)
	if err != nil || len(open) == 0 {
		return err
	}
	for _, r := range open {
		if err := t.settleOne(key.org, r, r.amount, now); err != nil {
			return err
		}
	}
	_, err = t.exec(`DELETE FROM reservations WHERE org = ? AND run_id = ?`, key.org, key.run)
	return err
}

// tellRefused tells the audit log that a budget has refused a model call, unless the log says so
// already.
func (s *Store) tellRefused(ctx context.Context, orgID string, over *journal.OverBudget) error {
	stored, err := s.Used(ctx, orgID, over.Budget.Scope)
	if err != nil {
		return err
	}
	if percent, _ := stored.Tell(true); percent == 0 { // the usual case needs no write
		return nil
	}
	return s.writer.perform(ctx, orgID, func(t *tx) error {
		used, err := t.used(orgID, over.Budget.Scope)
		if err != nil {
			return err
		}
		used.Budget = over.Budget
		return t.setUsed(orgID, over.Budget.Scope, used, true, s.now().UnixMilli())
	})
}

// Exchange implements journal.Slices.
func (s *Store) Exchange(ctx context.Context, orgID, owner string, uses []journal.SliceUse) ([]journal.Slice, error) {
	out := make([]journal.Slice, len(uses))
	if s.onServer() { // slices of owners that nobody has seen are forfeit
		if err := s.seen(ctx, owner, s.leaseNow()); err != nil {
			return nil, s.wrap("exchange slices of budgets", err)
		}
	}
	err := s.writer.perform(ctx, orgID, func(t *tx) error {
		for i, use := range uses {
			var err error
			if out[i], err = t.exchange(orgID, owner, use, s.now().UnixMilli()); err != nil {
				return err
			}
		}
		return nil
	})
	if over, ok := errors.AsType[*journal.OverBudget](err); ok {
		return nil, errors.Join(over, s.wrap("record that a budget is exceeded", s.tellRefused(ctx, orgID, over)))
	}
	if err != nil {
		return nil, s.wrap("exchange slices of budgets", err)
	}
	return out, nil
}

func (t *tx) exchange(orgID, owner string, use journal.SliceUse, now int64) (journal.Slice, error) {
	var slice journal.Slice
	err := t.queryRow(`SELECT drawn_tokens, drawn_nano_usd, spent_tokens, spent_nano_usd FROM slices WHERE org = ? AND scope = ? AND owner = ?`,
		[]any{orgID, use.Budget.Scope, owner}, &slice.Drawn.Tokens, &slice.Drawn.NanoUSD, &slice.Spent.Tokens, &slice.Spent.NanoUSD)
	switch none := errors.Is(err, sql.ErrNoRows); {
	case none && use.Close:
		return slice, nil
	case err != nil && !none:
		return slice, err
	}
	used, err := t.used(orgID, use.Budget.Scope)
	if err != nil {
		return slice, err
	}
	if used, slice, err = used.Exchange(slice, use); err != nil {
		return slice, err
	}
	if err := t.setUsed(orgID, use.Budget.Scope, used, false, now); err != nil {
		return slice, err
	}
	if use.Close {
		_, err = t.exec(`DELETE FROM slices WHERE org = ? AND scope = ? AND owner = ?`, orgID, use.Budget.Scope, owner)
		return slice, err
	}
	_, err = t.exec(`INSERT INTO slices (org, scope, owner, drawn_tokens, drawn_nano_usd, spent_tokens, spent_nano_usd) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (org, scope, owner) DO UPDATE SET drawn_tokens = excluded.drawn_tokens, drawn_nano_usd = excluded.drawn_nano_usd,
			spent_tokens = excluded.spent_tokens, spent_nano_usd = excluded.spent_nano_usd`,
		orgID, use.Budget.Scope, owner, slice.Drawn.Tokens, slice.Drawn.NanoUSD, slice.Spent.Tokens, slice.Spent.NanoUSD)
	return slice, err
}

// forfeitSlices counts all slices as spent. It is called on opening: this process has the lock of
// the file, so their owners are gone, and what they spent since they last wrote is not known.
func (s *Store) forfeitSlices(ctx context.Context) error {
	return s.writer.perform(ctx, noOrg, func(t *tx) error {
		orgs, err := queryAll(t, scanText, `SELECT DISTINCT org FROM slices`)
		for _, orgID := range orgs {
			if err == nil {
				err = t.forfeit(orgID, ``)
			}
		}
		return err
	})
}

// forfeit counts the slices of an org that the condition selects as spent, and removes them.
func (t *tx) forfeit(orgID, condition string, args ...any) error {
	args = append([]any{orgID}, args...)
	if _, err := t.exec(forfeited(`WHERE org = ?`+condition), args...); err != nil {
		return err
	}
	_, err := t.exec(`DELETE FROM slices WHERE org = ?`+condition, args...)
	return err
}

// forfeited is the statement that counts the slices of a WHERE clause as spent.
func forfeited(where string) string {
	return `UPDATE budgets SET spent_tokens = spent_tokens + s.tokens, spent_nano_usd = spent_nano_usd + s.nano_usd,
			reserved_tokens = reserved_tokens - s.tokens, reserved_nano_usd = reserved_nano_usd - s.nano_usd
		FROM (SELECT org, scope, CAST(sum(drawn_tokens) AS BIGINT) AS tokens, CAST(sum(drawn_nano_usd) AS BIGINT) AS nano_usd
			FROM slices ` + where + ` GROUP BY org, scope) s
		WHERE budgets.org = s.org AND budgets.scope = s.scope`
}
