package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const usedColumns = `spent_tokens, spent_nano_usd, reserved_tokens, reserved_nano_usd`

// Used implements journal.Archive.
func (r *Reader) Used(ctx context.Context, orgID, scope string) (journal.Used, error) {
	used, err := scanUsed(r.db.QueryRowContext(ctx, `SELECT `+usedColumns+` FROM budgets WHERE org = ? AND scope = ?`, orgID, scope))
	if errors.Is(err, sql.ErrNoRows) {
		return journal.Used{}, nil
	}
	return used, r.wrap("read a budget", err)
}

func scanUsed(row scanner) (journal.Used, error) {
	var u journal.Used
	err := row.Scan(&u.Spent.Tokens, &u.Spent.NanoUSD, &u.Reserved.Tokens, &u.Reserved.NanoUSD)
	return u, err
}

// charge settles reservations and makes new ones. If the run has ended, it settles the
// remaining reservations.
func (b batch) charge(t *tx, c headChange) error {
	for _, s := range b.settled {
		if err := b.settle(t, s); err != nil {
			return err
		}
	}
	for _, h := range b.reservations {
		if err := b.reserve(t, c.lease.Epoch, h); err != nil {
			return err
		}
	}
	if c.to.Summary.Status == journal.Done && c.mayReserve {
		return t.settleAll(b.key)
	}
	return nil
}

func (b batch) reserve(t *tx, epoch int64, h journal.Reservation) error {
	var used journal.Used
	err := t.queryRow(`SELECT `+usedColumns+` FROM budgets WHERE org = ? AND scope = ?`, []any{b.key.org, h.Budget.Scope},
		&used.Spent.Tokens, &used.Spent.NanoUSD, &used.Reserved.Tokens, &used.Reserved.NanoUSD)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if _, err := used.Reserve(h); err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO budgets (org, scope, spent_tokens, spent_nano_usd, reserved_tokens, reserved_nano_usd) VALUES (?, ?, 0, 0, ?, ?)
		ON CONFLICT DO UPDATE SET reserved_tokens = reserved_tokens + excluded.reserved_tokens, reserved_nano_usd = reserved_nano_usd + excluded.reserved_nano_usd`,
		b.key.org, h.Budget.Scope, h.Amount.Tokens, h.Amount.NanoUSD)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO reservations (org, run_id, id, scope, tokens, nano_usd, epoch) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		b.key.org, b.key.run, h.ID, h.Budget.Scope, h.Amount.Tokens, h.Amount.NanoUSD, epoch)
	if isUniqueViolation(err) {
		return fmt.Errorf("reservation %s in budget %s: %w", h.ID, h.Budget.Scope, org.ErrExists)
	}
	return err
}

// settle applies journal.Used.Settle to the budgets of a reservation, and removes it.
func (b batch) settle(t *tx, s journal.Settled) error {
	_, err := t.exec(`UPDATE budgets SET spent_tokens = spent_tokens + ?4, spent_nano_usd = spent_nano_usd + ?5,
			reserved_tokens = reserved_tokens - h.tokens, reserved_nano_usd = reserved_nano_usd - h.nano_usd
		FROM reservations h WHERE h.org = ?1 AND h.run_id = ?2 AND h.id = ?3 AND budgets.org = h.org AND budgets.scope = h.scope`,
		b.key.org, b.key.run, s.ID, s.Amount.Tokens, s.Amount.NanoUSD)
	if err != nil {
		return err
	}
	_, err = t.exec(`DELETE FROM reservations WHERE org = ? AND run_id = ? AND id = ?`, b.key.org, b.key.run, s.ID)
	return err
}

// settleAll settles all reservations of the run at their full amount.
func (t *tx) settleAll(key runKey) error {
	n, err := t.exec(`UPDATE budgets SET spent_tokens = spent_tokens + h.tokens, spent_nano_usd = spent_nano_usd + h.nano_usd,
			reserved_tokens = reserved_tokens - h.tokens, reserved_nano_usd = reserved_nano_usd - h.nano_usd
		FROM (SELECT scope, sum(tokens) AS tokens, sum(nano_usd) AS nano_usd FROM reservations WHERE org = ?1 AND run_id = ?2 GROUP BY scope) h
		WHERE budgets.org = ?1 AND budgets.scope = h.scope`, key.org, key.run)
	if err != nil || n == 0 {
		return err
	}
	_, err = t.exec(`DELETE FROM reservations WHERE org = ? AND run_id = ?`, key.org, key.run)
	return err
}
