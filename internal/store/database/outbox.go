package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const deliveryColumns = `org, id, webhook, event, object, subject, at, outcome, attempts, next_at, give_up_at, ended_at, status, error`

// oldestOf is when the event of the oldest waiting message of the webhook w happened; 0 = none waits.
const oldestOf = `coalesce((SELECT min(o.at) FROM outbox o INDEXED BY outbox_oldest WHERE o.org = w.org AND o.webhook = w.name AND o.ended_at = 0), 0)`

// isDue is the condition on a message o that is to be delivered at the time ?1, and before which no
// other of its subject waits.
const isDue = `o.ended_at = 0 AND o.next_at <= ?1 AND o.claimed_until <= ?1 AND NOT EXISTS (SELECT 1 FROM outbox e INDEXED BY outbox_subject
	WHERE e.org = o.org AND e.webhook = o.webhook AND e.subject = o.subject AND e.ended_at = 0 AND e.rowid < o.rowid)`

func scanDelivery(row scanner) (d journal.Delivery, err error) {
	err = row.Scan(deliveryFields(&d)...)
	return d, err
}

// deliveryFields returns where the values of deliveryColumns go.
func deliveryFields(d *journal.Delivery) []any {
	return []any{
		&d.Org, &d.ID, &d.Webhook, &d.Event, &d.Object, &d.Subject, &d.At, &d.Outcome, &d.Attempts, &d.NextAt, &d.GiveUpAt, &d.EndedAt, &d.Status, &d.Error,
	}
}

// openOutbox ends the claims of the process that had the file before, and reads which webhooks there
// are. It is called on opening.
func (s *Store) openOutbox(ctx context.Context) error {
	return s.writer.perform(ctx, noOrg, func(t *tx) error {
		if _, err := t.receiversOf(""); err != nil {
			return err
		}
		if _, err := t.exec(unclaimedOutbox); err != nil {
			return err
		}
		_, err := t.exec(unclaimedHookMessages)
		return err
	})
}

const (
	unclaimedOutbox       = `UPDATE outbox SET claimed_until = 0 WHERE claimed_until > 0`
	unclaimedHookMessages = `UPDATE hook_messages SET claimed_until = 0 WHERE ended_at = 0 AND claimed_until > 0`
)

// notify puts notices into the outbox of the org: of those webhooks that want them.
func (t *tx) notify(orgID string, notices []journal.Notice) error {
	if len(notices) == 0 {
		return nil
	}
	webhooks, err := t.receiversOf(orgID)
	if err != nil {
		return err
	}
	for _, n := range notices {
		for _, w := range webhooks {
			if !w.Wants(n.Event) {
				continue
			}
			if err := t.addDelivery(journal.NewDelivery(id.New(journal.MessagePrefix), w, n)); err != nil {
				return fmt.Errorf("outbox: %w", err)
			}
		}
	}
	return nil
}

// addDelivery stores a message that waits. It is not due before those of its subject.
func (t *tx) addDelivery(d journal.Delivery) error {
	if err := t.makeRoom(d); err != nil {
		return err
	}
	_, err := t.exec(`INSERT INTO outbox (`+deliveryColumns+`)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, max(?10, coalesce(max(next_at), 0)), ?11, ?12, ?13, ?14
		FROM outbox INDEXED BY outbox_subject WHERE org = ?1 AND webhook = ?3 AND subject = ?6 AND ended_at = 0`,
		d.Org, d.ID, d.Webhook, d.Event, d.Object, d.Subject, d.At, string(d.Outcome), d.Attempts, d.NextAt, d.GiveUpAt, d.EndedAt, d.Status, d.Error)
	return err
}

// makeRoom gives up the oldest message of the webhook with the most, if the org has as many as its
// caps allow.
func (t *tx) makeRoom(d journal.Delivery) error {
	full, err := t.outboxFull(d.Org)
	if err != nil || !full {
		return err
	}
	gone, err := queryOne(t, scanDelivery, `SELECT `+deliveryColumns+` FROM outbox INDEXED BY outbox_oldest
		WHERE org = ?1 AND webhook = (SELECT name FROM webhooks WHERE org = ?1 ORDER BY waiting DESC, name LIMIT 1) AND ended_at = 0 AND claimed_until = 0
		ORDER BY at, rowid LIMIT 1`, d.Org)
	if errors.Is(err, org.ErrNotFound) { // all of them are being delivered
		return nil
	}
	if err != nil {
		return err
	}
	t.log.Warn("the outbox of an org is full: the oldest message was given up (org_caps.webhook_deliveries)",
		"org", gone.Org, "webhook", gone.Webhook, "message", gone.ID, "event", gone.Event)
	_, err = t.settleDelivery(gone.End(journal.MessageGivenUp, journal.OutboxFull, d.At))
	return err
}

// outboxFull reports whether the org has as many waiting messages as its caps allow.
func (t *tx) outboxFull(orgID string) (bool, error) {
	if t.caps.Deliveries == 0 {
		return false, nil
	}
	var n int
	err := t.queryRow(`SELECT CAST(coalesce(sum(waiting), 0) AS BIGINT) FROM webhooks WHERE org = ?`, []any{orgID}, &n)
	return n >= t.caps.Deliveries, err
}

// giveUpAll gives up the messages that wait for a webhook which is stopped.
func (t *tx) giveUpAll(orgID, webhook string, now int64) error {
	if _, err := t.exec(`UPDATE outbox SET ended_at = ?, outcome = ?, error = ?, claimed_until = 0 WHERE org = ? AND webhook = ? AND ended_at = 0`,
		now, string(journal.MessageGivenUp), journal.WebhookStopped, orgID, webhook); err != nil {
		return err
	}
	return t.trimEnded(orgID, webhook)
}

// trimEnded deletes the oldest messages of a webhook that have ended, beyond journal.MaxEnded.
func (t *tx) trimEnded(orgID, webhook string) error {
	_, err := t.exec(`DELETE FROM outbox WHERE _rowid_ IN (SELECT _rowid_ FROM outbox INDEXED BY outbox_due
		WHERE org = ? AND webhook = ? AND ended_at > 0 ORDER BY ended_at DESC LIMIT 9223372036854775807 OFFSET ?)`,
		orgID, webhook, journal.MaxEnded)
	return err
}

// DueWebhooks implements journal.Outbox.
func (r *Reader) DueWebhooks(ctx context.Context, now time.Time) ([]journal.WebhookKey, error) {
	due, err := list(ctx, r.db, func(row scanner) (k journal.WebhookKey, err error) {
		err = row.Scan(&k.Org, &k.Name)
		return k, err
	}, `SELECT w.org, w.name FROM webhooks w INDEXED BY webhooks_waiting WHERE w.waiting > 0 AND w.stopped = ''
		AND EXISTS (SELECT 1 FROM outbox o INDEXED BY outbox_due WHERE o.org = w.org AND o.webhook = w.name AND `+isDue+`) ORDER BY w.org, w.name`, now.UnixMilli())
	return due, r.wrap("find messages that are due", err)
}

// ClaimDeliveries implements journal.Outbox.
func (s *Store) ClaimDeliveries(ctx context.Context, now, until time.Time, asks []journal.ClaimAsk) ([]journal.ClaimedDelivery, error) {
	orgOf := func(ask journal.ClaimAsk) string { return ask.Org }
	claimed, err := inLanes(ctx, s.writer, asks, orgOf, func(t *tx, asks []journal.ClaimAsk) (claimed []journal.ClaimedDelivery, err error) {
		for _, ask := range asks {
			some, err := t.claimOf(ask, now.UnixMilli(), until.UnixMilli())
			if err != nil {
				return nil, err
			}
			claimed = append(claimed, some...)
		}
		return claimed, nil
	})
	return claimed, s.wrap("claim messages", err)
}

func (t *tx) claimOf(ask journal.ClaimAsk, now, until int64) ([]journal.ClaimedDelivery, error) {
	to, err := t.webhook(ask.Org, ask.Name)
	if errors.Is(err, org.ErrNotFound) || err == nil && to.Stopped != "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := queryAll(t, scanDelivery, `SELECT `+deliveryColumns+` FROM outbox o INDEXED BY outbox_due
		WHERE o.org = ?2 AND o.webhook = ?3 AND `+isDue+` ORDER BY o.next_at, o.rowid LIMIT ?4`, now, ask.Org, ask.Name, ask.Max)
	if err != nil {
		return nil, err
	}
	out := make([]journal.ClaimedDelivery, len(found))
	for i, d := range found {
		if _, err := t.exec(`UPDATE outbox SET claimed_until = ? WHERE org = ? AND id = ?`, until, d.Org, d.ID); err != nil {
			return nil, err
		}
		out[i] = journal.ClaimedDelivery{Delivery: d, To: to}
	}
	return out, nil
}

// SettleDelivery implements journal.Outbox.
func (s *Store) SettleDelivery(ctx context.Context, d journal.Delivery) (settled bool, err error) {
	settled, err = performed(ctx, s.writer, d.Org, func(t *tx) (bool, error) { return t.settleDelivery(d) })
	return settled, s.wrap("store the outcome of a delivery", err)
}

func (t *tx) settleDelivery(d journal.Delivery) (bool, error) {
	n, err := t.exec(`UPDATE outbox SET outcome = ?, attempts = ?, next_at = ?, ended_at = ?, status = ?, error = ?, claimed_until = 0
		WHERE org = ? AND id = ? AND ended_at = 0`, string(d.Outcome), d.Attempts, d.NextAt, d.EndedAt, d.Status, d.Error, d.Org, d.ID)
	if err != nil || n == 0 {
		return false, err
	}
	if d.EndedAt > 0 {
		return true, t.trimEnded(d.Org, d.Webhook)
	}
	_, err = t.exec(`UPDATE outbox SET next_at = ?1 WHERE org = ?2 AND webhook = ?3 AND subject = ?4 AND ended_at = 0 AND next_at < ?1`,
		d.NextAt, d.Org, d.Webhook, d.Subject)
	return true, err
}

// Deliveries implements journal.Outbox.
func (r *Reader) Deliveries(ctx context.Context, orgID, webhook string, q journal.DeliveryQuery) ([]journal.Delivery, error) {
	if _, err := r.Webhook(ctx, orgID, webhook); err != nil {
		return nil, err
	}
	before := int64(1<<63 - 1)
	if q.Before != "" {
		found, err := list(ctx, r.db, scanInt,
			`SELECT rowid FROM outbox WHERE org = ? AND id = ? AND webhook = ?`, orgID, q.Before, webhook)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("message %s: %w", q.Before, org.ErrNotFound)
		}
		if err != nil {
			return nil, r.wrap("list messages", err)
		}
		before = found[0]
	}
	found, err := list(ctx, r.db, scanDelivery, `SELECT `+deliveryColumns+` FROM outbox
		WHERE org = ?1 AND webhook = ?2 AND rowid < ?3 AND (?4 = '' OR outcome = ?4) ORDER BY rowid DESC LIMIT ?5`,
		orgID, webhook, before, string(q.Outcome), max(q.Limit, 0))
	return found, r.wrap("list messages", err)
}

// Redeliver implements journal.Webhooks.
func (s *Store) Redeliver(ctx context.Context, orgID, webhook, messageID string, at time.Time, by org.Author) (d journal.Delivery, err error) {
	err = s.write(ctx, orgID, "redeliver a message", "message "+messageID, func(t *tx) error {
		w, err := t.webhook(orgID, webhook)
		if err != nil {
			return err
		}
		var claimed bool
		err = t.queryRow(`SELECT `+deliveryColumns+`, claimed_until > ? FROM outbox WHERE org = ? AND webhook = ? AND id = ?`,
			[]any{at.UnixMilli(), orgID, webhook, messageID}, append(deliveryFields(&d), &claimed)...)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return org.ErrNotFound
		case err != nil:
			return err
		}
		if claimed || w.Stopped != "" {
			return journal.ErrNotDeliverable
		}
		if d.Outcome != journal.MessageWaiting {
			switch full, err := t.outboxFull(orgID); {
			case err != nil:
				return err
			case full:
				return t.caps.DeliveriesError()
			}
		}
		d = d.Again(at.UnixMilli())
		if _, err := t.exec(`UPDATE outbox SET outcome = ?, attempts = 0, ended_at = 0, next_at = ?, give_up_at = ?, claimed_until = 0 WHERE org = ? AND id = ?`,
			string(d.Outcome), d.NextAt, d.GiveUpAt, orgID, messageID); err != nil {
			return err
		}
		return t.record(orgID, by, by.Redelivered(orgID, messageID))
	})
	return d, err
}

// DeleteEnded implements journal.Outbox.
func (s *Store) DeleteEnded(ctx context.Context, before time.Time) error {
	_, err := s.deleteDue(ctx, due{
		table: "outbox", index: "outbox_ended", keys: []string{"id"}, condition: `ended_at > 0 AND ended_at < ?`, args: []any{before.UnixMilli()},
	})
	return s.wrap("delete messages that have ended", err)
}

// OutboxState implements journal.Outbox.
func (r *Reader) OutboxState(ctx context.Context) (s journal.OutboxState, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT CAST(coalesce(sum(waiting), 0) AS BIGINT), CAST(coalesce(sum(given_up), 0) AS BIGINT), (SELECT coalesce(min(`+oldestOf+`), 0)
		FROM webhooks w INDEXED BY webhooks_waiting WHERE waiting > 0) FROM webhooks`).Scan(&s.Waiting, &s.GivenUp, &s.Oldest)
	return s, r.wrap("sum up the outbox", err)
}

func scanInt(row scanner) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}
