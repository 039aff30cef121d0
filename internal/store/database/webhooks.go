package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const webhookColumns = `org, name, url, events, sealed, previous, previous_until, stopped, created_at, updated_at`

func scanWebhook(row scanner) (org.Webhook, error) {
	var w org.Webhook
	err := row.Scan(webhookFields(&w)...)
	return withoutEmpty(w), err
}

// webhookFields returns where the values of webhookColumns go.
func webhookFields(w *org.Webhook) []any {
	return []any{
		&w.Org, &w.Name, &w.URL, asJSON{&w.Events}, &w.Sealed, &w.Previous.Sealed, asTime{&w.Previous.Until}, &w.Stopped,
		asTime{&w.CreatedAt}, asTime{&w.UpdatedAt},
	}
}

// withoutEmpty returns w with nil for secrets that it does not have.
func withoutEmpty(w org.Webhook) org.Webhook {
	if len(w.Sealed) == 0 {
		w.Sealed = nil
	}
	if len(w.Previous.Sealed) == 0 {
		w.Previous.Sealed = nil
	}
	return w
}

// Webhooks implements journal.Webhooks.
func (r *Reader) Webhooks(ctx context.Context, orgID string) ([]journal.ListedWebhook, error) {
	found, err := list(ctx, r.db, func(row scanner) (l journal.ListedWebhook, err error) {
		err = row.Scan(append(webhookFields(&l.Webhook), &l.Waiting, &l.Oldest, &l.GivenUp)...)
		l.Webhook = withoutEmpty(l.Webhook)
		return l, err
	}, `SELECT org, name, url, events, x'', x'', previous_until, stopped, created_at, updated_at, waiting, `+oldestOf+`, given_up
		FROM webhooks w WHERE org = ? ORDER BY name`, orgID)
	return found, r.wrap("list webhooks", err)
}

// AllWebhooks implements journal.Webhooks.
func (r *Reader) AllWebhooks(ctx context.Context) ([]org.Webhook, error) {
	found, err := list(ctx, r.db, scanWebhook, `SELECT `+webhookColumns+` FROM webhooks ORDER BY org, name`)
	return found, r.wrap("list the webhooks of all orgs", err)
}

// Webhook implements journal.Webhooks.
func (r *Reader) Webhook(ctx context.Context, orgID, name string) (org.Webhook, error) {
	w, err := scanWebhook(r.db.QueryRowContext(ctx, `SELECT `+webhookColumns+` FROM webhooks WHERE org = ? AND name = ?`, orgID, name))
	if errors.Is(err, sql.ErrNoRows) {
		err = org.ErrNotFound
	}
	if err != nil {
		return org.Webhook{}, fmt.Errorf("webhook %s: %w", name, r.wrap("read a webhook", err))
	}
	return w, nil
}

// CreateWebhook implements journal.Webhooks.
func (s *Store) CreateWebhook(ctx context.Context, w org.Webhook, by org.Author) error {
	events, err := encode(w.Events)
	if err != nil {
		return fmt.Errorf("webhook %s: %w", w.Name, err)
	}
	return s.write(ctx, w.Org, "create a webhook", "webhook "+w.Name, func(t *tx) error {
		if err := t.mustExist(w.Org); err != nil {
			return err
		}
		if _, err := t.webhook(w.Org, w.Name); !errors.Is(err, org.ErrNotFound) {
			if err == nil {
				err = org.ErrExists
			}
			return err
		}
		if !w.Declared() {
			if err := t.checkCap(t.caps.Webhooks, t.caps.WebhooksError, `SELECT count(*) FROM webhooks WHERE org = ? AND length(sealed) > 0`, w.Org); err != nil {
				return err
			}
		}
		if _, err := t.exec(`INSERT INTO webhooks (`+webhookColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			w.Org, w.Name, w.URL, events, blob(w.Sealed), blob(w.Previous.Sealed), millis(w.Previous.Until), w.Stopped,
			millis(w.CreatedAt), millis(w.UpdatedAt)); err != nil {
			return err
		}
		t.receivers.changed(w.Org)
		return t.record(w.Org, by, by.WebhookChanged(nil, &w))
	})
}

// UpdateWebhook implements journal.Webhooks.
func (s *Store) UpdateWebhook(ctx context.Context, was, w org.Webhook, by org.Author) error {
	events, err := encode(w.Events)
	if err != nil {
		return fmt.Errorf("webhook %s: %w", w.Name, err)
	}
	return s.write(ctx, w.Org, "update a webhook", "webhook "+w.Name, func(t *tx) error {
		before, err := t.webhook(w.Org, w.Name)
		switch {
		case err != nil:
			return err
		case !before.Same(was):
			return org.ErrChanged
		}
		if err := requireFound(t.exec(`UPDATE webhooks SET url = ?, events = ?, sealed = ?, previous = ?, previous_until = ?, stopped = ?, updated_at = ?
			WHERE org = ? AND name = ?`, w.URL, events, blob(w.Sealed), blob(w.Previous.Sealed), millis(w.Previous.Until), w.Stopped, millis(w.UpdatedAt),
			w.Org, w.Name)); err != nil {
			return err
		}
		t.receivers.changed(w.Org)
		if w.Stopped != "" && before.Stopped == "" {
			if err := t.giveUpAll(w.Org, w.Name, s.now().UnixMilli()); err != nil {
				return err
			}
		}
		return t.record(w.Org, by, by.WebhookChanged(&before, &w))
	})
}

// DeleteWebhook implements journal.Webhooks.
func (s *Store) DeleteWebhook(ctx context.Context, orgID, name string, by org.Author) error {
	return s.write(ctx, orgID, "delete a webhook", "webhook "+name, func(t *tx) error {
		before, err := t.webhook(orgID, name)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`DELETE FROM webhooks WHERE org = ? AND name = ?`, orgID, name)); err != nil {
			return err
		}
		t.receivers.changed(orgID)
		return t.record(orgID, by, by.WebhookChanged(&before, nil))
	})
}

// webhook returns the webhook in the transaction.
func (t *tx) webhook(orgID, name string) (org.Webhook, error) {
	return queryOne(t, scanWebhook, `SELECT `+webhookColumns+` FROM webhooks WHERE org = ? AND name = ?`, orgID, name)
}

// blob returns b, or an empty blob for nil, which would be NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// receivers are the webhooks that get events, by org. They are in memory, so that an append of an org
// without webhooks asks the file nothing. The writer's goroutine owns them.
type receivers struct {
	loaded  bool
	byOrg   map[string][]org.Webhook // only with Org, Name, Events and Stopped
	stale   map[string]bool          // orgs whose webhooks are to be read again
	touched map[string]bool          // orgs whose webhooks this transaction has changed
}

// changed says that the transaction has changed the webhooks of the org.
func (r *receivers) changed(orgID string) {
	if r.stale == nil {
		r.stale, r.touched = map[string]bool{}, map[string]bool{}
	}
	r.stale[orgID], r.touched[orgID] = true, true
}

// rolledBack makes what was read in the transaction be read again.
func (r *receivers) rolledBack() {
	for orgID := range r.touched {
		r.stale[orgID] = true
	}
}

func (r *receivers) committed() { clear(r.touched) }

// receiversOf returns the webhooks of the org.
func (t *tx) receiversOf(orgID string) ([]org.Webhook, error) {
	r := &t.receivers
	if t.remote != nil { // other processes change them
		return queryAll(t, scanReceiver, `SELECT org, name, events, stopped FROM webhooks WHERE org = ? ORDER BY name`, orgID)
	}
	if !r.loaded {
		all, err := queryAll(t, scanReceiver, `SELECT org, name, events, stopped FROM webhooks ORDER BY org, name`)
		if err != nil {
			return nil, err
		}
		r.byOrg, r.loaded = map[string][]org.Webhook{}, true
		for _, w := range all {
			r.byOrg[w.Org] = append(r.byOrg[w.Org], w)
		}
		clear(r.stale)
	}
	if r.stale[orgID] {
		now, err := queryAll(t, scanReceiver, `SELECT org, name, events, stopped FROM webhooks WHERE org = ? ORDER BY name`, orgID)
		if err != nil {
			return nil, err
		}
		if delete(r.byOrg, orgID); len(now) > 0 {
			r.byOrg[orgID] = now
		}
		delete(r.stale, orgID)
	}
	return r.byOrg[orgID], nil
}

func scanReceiver(row scanner) (w org.Webhook, err error) {
	err = row.Scan(&w.Org, &w.Name, asJSON{&w.Events}, &w.Stopped)
	return w, err
}
