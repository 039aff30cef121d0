package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// storeWebhooks makes the webhooks of the store that the configuration file declares those of
// declared: each has a row, which counts its messages, and no sealed secret. One that is not
// declared any more is deleted with its messages. One whose receiver has answered 410 Gone is
// enabled again.
func storeWebhooks(ctx context.Context, declared []org.FileWebhook, store journal.Webhooks, log *slog.Logger) error {
	stored, err := store.AllWebhooks(ctx)
	if err != nil {
		return err
	}
	before := map[journal.WebhookKey]org.Webhook{}
	for _, w := range stored {
		before[journal.WebhookKey{Org: w.Org, Name: w.Name}] = w
	}
	for _, f := range declared {
		key := journal.WebhookKey{Org: f.Org, Name: f.Name}
		was, known := before[key]
		delete(before, key)
		if err := storeWebhook(ctx, was, known, f.Webhook, store, log); err != nil {
			return fmt.Errorf("org %s: %w", f.Org, err)
		}
	}
	for key, w := range before {
		if !w.Declared() {
			continue
		}
		if err := store.DeleteWebhook(ctx, key.Org, key.Name, org.Author{}); err != nil {
			return fmt.Errorf("org %s: %w", key.Org, err)
		}
	}
	return nil
}

// storeWebhook stores a declared webhook, unless it is stored.
func storeWebhook(ctx context.Context, was org.Webhook, known bool, w org.Webhook, store journal.Webhooks, log *slog.Logger) error {
	w.UpdatedAt = clock.Wall()
	switch {
	case !known:
		w.CreatedAt = w.UpdatedAt
		return store.CreateWebhook(ctx, w, org.Author{})
	case was.Same(w):
		return nil
	case !was.Declared():
		log.Warn("a webhook of the configuration file replaces one of the same name that was added over the API; the secret of that one is deleted", "org", w.Org, "webhook", w.Name)
	}
	return store.UpdateWebhook(ctx, was, w, org.Author{})
}
