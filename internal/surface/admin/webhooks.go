package admin

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// webhooks answers requests for the webhooks of an org.
type webhooks struct {
	base
	store     journal.Webhooks
	outbox    Outbox
	test      func(context.Context, org.Webhook) journal.Delivery
	directory orgDirectory
	judge     func(url string) error
	vault     *secret.Keyring // nil = no webhooks can be added
}

// Outbox reads the messages of webhooks. It is a part of [journal.Outbox].
type Outbox interface {
	Deliveries(ctx context.Context, org, webhook string, q journal.DeliveryQuery) ([]journal.Delivery, error)
}

// webhookObject is a webhook on the wire. Secret is there only in the answer to its creation and
// to a rotation.
type webhookObject struct {
	Name          string   `json:"name"`
	Declared      bool     `json:"declared"`
	URL           string   `json:"url"`
	Events        []string `json:"events"`
	Enabled       bool     `json:"enabled"`
	Stopped       string   `json:"stopped,omitempty"` // disabled or gone
	Secret        string   `json:"secret,omitempty"`
	PreviousUntil *string  `json:"previous_until,omitempty"` // of the secret before the latest rotation, while it signs

	Waiting       int     `json:"waiting"` // messages
	OldestWaiting *string `json:"oldest_waiting"`
	GivenUp       int64   `json:"given_up"` // messages since it was created

	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`
}

func (h *webhooks) wire(l journal.ListedWebhook) webhookObject {
	out := webhookObject{
		Name: l.Name, Declared: h.declared(l.Org, l.Name), URL: l.URL, Events: l.Events, Enabled: l.Stopped == "", Stopped: l.Stopped, Waiting: l.Waiting, OldestWaiting: surface.Seconds.Unix(l.Oldest),
		GivenUp: l.GivenUp, CreatedAt: l.CreatedAt.Unix(), UpdatedAt: l.UpdatedAt.Unix(),
	}
	if l.Previous.Until.After(h.now()) {
		out.PreviousUntil = surface.Seconds.Time(l.Previous.Until)
	}
	return out
}

func (h *webhooks) declared(orgID, name string) bool {
	return h.directory.FromFile(orgID).Webhook(name) != nil
}

// delivery is a message on the wire.
type delivery struct {
	ID            string  `json:"id"`
	Event         string  `json:"event"`
	Object        string  `json:"object_id"`
	At            *string `json:"at"` // of the event
	Outcome       string  `json:"outcome"`
	Attempts      int     `json:"attempts"`
	NextAttemptAt *string `json:"next_attempt_at"` // nil unless it waits
	EndedAt       *string `json:"ended_at"`        // nil while it waits
	Status        *int    `json:"status"`          // of the latest attempt; nil = there was no answer
	Error         string  `json:"error,omitempty"`
}

func wireDelivery(d journal.Delivery) delivery {
	out := delivery{
		ID: d.ID, Event: d.Event, Object: d.Object, At: surface.Seconds.Unix(d.At), Outcome: string(d.Outcome), Attempts: d.Attempts, EndedAt: surface.Seconds.Unix(d.EndedAt), Error: d.Error,
	}
	if d.EndedAt == 0 {
		out.NextAttemptAt = surface.Seconds.Unix(d.NextAt)
	}
	if d.Status != 0 {
		out.Status = &d.Status
	}
	return out
}

// List answers GET /api/webhooks.
func (h *webhooks) List() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		stored, err := h.store.Webhooks(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		out := surface.Each(stored, h.wire)
		return http.StatusOK, list[webhookObject]{out}, nil
	})
}

// read reads settings and applies them to w.
func (h *webhooks) read(r *http.Request, caller caller.Caller, w *org.Webhook) error {
	f, err := surface.ReadFields(r, caller.Account)
	if err != nil {
		return err
	}
	for name, value := range f.Rest() {
		if surface.IsNull(value) {
			f.Fail(name, "cannot be null; leave it out")
		}
	}
	name, url, enabled := w.Name, w.URL, w.Stopped == ""
	var events []string
	f.Text("name", &name)
	f.Text("url", &url)
	surface.Field(f, "events", "a list of strings", &events)
	f.Bool("enabled", true, &enabled)
	if err := f.Done(); err != nil {
		return err
	}
	if name != w.Name {
		switch _, err := secret.ParseRef(string(secret.Vault) + ":" + name); {
		case w.Name != "":
			return fault.New(fault.Invalid, "immutable", "the name of a webhook cannot be changed; add another webhook").In("name")
		case err != nil:
			return surface.InvalidValue("name",
				"the name of a webhook must have 1 to 64 letters, digits, dots, underscores or hyphens, and begin with a letter or a digit")
		}
		w.Name = name
	}
	if url != w.URL {
		if err := org.CheckWebhookURL(url); err != nil {
			return fault.New(fault.Unprocessable, "invalid_value", "url: %v", err).In("url")
		}
		if err := h.judge(url); err != nil {
			return err
		}
		w.URL = url
	}
	if events != nil {
		if err := org.CheckWebhookEvents(events); err != nil {
			return fault.New(fault.Unprocessable, "invalid_value", "events: %v", err).In("events")
		}
		w.Events = events
	}
	switch {
	case enabled:
		w.Stopped = ""
	case w.Stopped == "":
		w.Stopped = org.StoppedByOrg
	}
	for name, missing := range map[string]bool{"name": w.Name == "", "url": w.URL == "", "events": len(w.Events) == 0} {
		if missing {
			return fault.New(fault.Invalid, "invalid_value", "a webhook needs a name, a url and events; %s is missing", name).In(name)
		}
	}
	return nil
}

// newSecret gives the webhook a new secret and returns it.
func (h *webhooks) newSecret(w *org.Webhook) (string, error) {
	if h.vault == nil {
		return "", surface.NoVault("the secrets of webhooks")
	}
	v := webhook.NewSecret()
	sealed, err := h.vault.Seal(w.Org, w.SecretName(), v)
	w.Sealed = sealed
	return v.Reveal(), err
}

// Create answers POST /api/webhooks.
func (h *webhooks) Create() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		w := org.Webhook{Org: caller.Org.ID, CreatedAt: h.now(), UpdatedAt: h.now()}
		if err := h.read(r, caller, &w); err != nil {
			return 0, nil, err
		}
		if h.declared(w.Org, w.Name) {
			return 0, nil, fault.New(fault.Conflict, "exists", "the configuration file already declares the webhook %q; choose another name", w.Name).In("name")
		}
		shown, err := h.newSecret(&w)
		if err != nil {
			return 0, nil, err
		}
		if err := h.store.CreateWebhook(r.Context(), w, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "webhook", Name: w.Name})
		}
		out := h.wire(journal.ListedWebhook{Webhook: w})
		out.Secret = shown
		return http.StatusCreated, out, nil
	})
}

// Patch answers PATCH /api/webhooks/{name}.
func (h *webhooks) Patch() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		return h.change(r, caller, func(w *org.Webhook) (string, error) { return "", h.read(r, caller, w) })
	})
}

// change stores what change makes of the webhook in the path, and returns the answer. change
// returns a new secret, or "".
func (h *webhooks) change(r *http.Request, caller caller.Caller, change func(*org.Webhook) (string, error)) (int, any, error) {
	name := r.PathValue("name")
	was, err := h.store.Webhook(r.Context(), caller.Org.ID, name)
	if err != nil {
		return 0, nil, surface.Refused(err, surface.Thing{Kind: "webhook", Name: name})
	}
	if was.Declared() || h.declared(caller.Org.ID, name) {
		return 0, nil, surface.Declared("webhook", name)
	}
	w := was.Clone()
	shown, err := change(&w)
	if err != nil {
		return 0, nil, err
	}
	w.UpdatedAt = h.now()
	if err := h.store.UpdateWebhook(r.Context(), was, w, caller.Author(h.now())); err != nil {
		return 0, nil, surface.Refused(err, surface.Thing{Kind: "webhook", Name: name})
	}
	stored, err := h.store.Webhooks(r.Context(), caller.Org.ID)
	if err != nil {
		return 0, nil, err
	}
	out := h.wire(journal.ListedWebhook{Webhook: w})
	for _, l := range stored {
		if l.Name == name {
			out.Waiting, out.OldestWaiting, out.GivenUp = l.Waiting, surface.Seconds.Unix(l.Oldest), l.GivenUp
		}
	}
	out.Secret = shown
	return http.StatusOK, out, nil
}

// Rotate answers POST /api/webhooks/{name}/rotate: the webhook gets a new secret, and the one
// before signs as well for the time overlap.
func (h *webhooks) Rotate() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		overlap, err := readOverlap(r, caller)
		if err != nil {
			return 0, nil, err
		}
		return h.change(r, caller, func(w *org.Webhook) (string, error) {
			now, before := h.now(), w.Sealed
			if overlap > 0 && w.Previous.Until.After(now) {
				return "", fault.New(fault.Conflict, "rotation_overlaps", "the secret before the last rotation of the webhook %q signs until %s, and a webhook has at most two secrets; "+
					"wait until then, or end both old secrets now with an overlap of 0s", w.Name, surface.Seconds.Text(w.Previous.Until))
			}
			shown, err := h.newSecret(w)
			if w.Previous = (org.PreviousSealed{}); overlap > 0 {
				w.Previous = org.PreviousSealed{Sealed: before, Until: now.Add(overlap)}
			}
			return shown, err
		})
	})
}

// Delete answers DELETE /api/webhooks/{name}. What waits is not delivered any more.
func (h *webhooks) Delete() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		name := r.PathValue("name")
		if h.declared(caller.Org.ID, name) {
			return 0, nil, surface.Declared("webhook", name)
		}
		if err := h.store.DeleteWebhook(r.Context(), caller.Org.ID, name, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "webhook", Name: name})
		}
		return http.StatusOK, surface.Deleted(name, ""), nil
	})
}

// The most messages that an answer has, and how many it has unless told.
const (
	maxDeliveries     = 200
	defaultDeliveries = 50
)

// Deliveries answers GET /api/webhooks/{name}/deliveries: the latest first.
func (h *webhooks) Deliveries() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		q, err := deliveryQueryOf(r.URL.Query())
		if err != nil {
			return 0, nil, err
		}
		name, limit := r.PathValue("name"), q.Limit
		q.Limit++
		found, err := h.outbox.Deliveries(r.Context(), caller.Org.ID, name, q)
		if errors.Is(err, org.ErrNotFound) && q.Before != "" {
			if _, missing := h.store.Webhook(r.Context(), caller.Org.ID, name); missing == nil {
				return 0, nil, surface.Refused(err, surface.Thing{Kind: "message", Name: q.Before})
			}
		}
		if err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "webhook", Name: name})
		}
		page := surface.NextPage[delivery, string]{Data: []delivery{}}
		if len(found) > limit {
			found = found[:limit]
			page.Next = &found[limit-1].ID
		}
		for _, d := range found {
			page.Data = append(page.Data, wireDelivery(d))
		}
		return http.StatusOK, page, nil
	})
}

func deliveryQueryOf(values url.Values) (q journal.DeliveryQuery, err error) {
	if err := surface.CheckQuery(values, "outcome", "after", "limit"); err != nil {
		return q, err
	}
	q.Outcome, q.Before = journal.Outcome(values.Get("outcome")), values.Get("after")
	switch q.Outcome {
	case journal.MessageWaiting, journal.MessageDelivered, journal.MessageGivenUp:
	default:
		if !values.Has("outcome") {
			break
		}
		return q, surface.InvalidValue("outcome", "outcome must be waiting, delivered or given_up")
	}
	q.Limit, err = surface.QueryNumber(values, "limit", defaultDeliveries, 1, maxDeliveries)
	return q, err
}

// Redeliver answers POST /api/webhooks/{name}/deliveries/{id}/redeliver.
func (h *webhooks) Redeliver() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		name, messageID := r.PathValue("name"), r.PathValue("id")
		d, err := h.store.Redeliver(r.Context(), caller.Org.ID, name, messageID, h.now(), caller.Author(h.now()))
		if errors.Is(err, journal.ErrNotDeliverable) {
			return 0, nil, fault.New(fault.Conflict, "not_deliverable",
				"the message %q is being delivered at the moment, or its webhook is stopped; wait, or enable the webhook, and try again", messageID)
		}
		if err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "message", Name: messageID})
		}
		return http.StatusOK, wireDelivery(d), nil
	})
}

// testResult is what a test message came to.
type testResult struct {
	ID        string `json:"id"` // of the message
	Event     string `json:"event"`
	Delivered bool   `json:"delivered"`
	Status    *int   `json:"status"` // nil = there was no answer
	Error     string `json:"error,omitempty"`
}

// Test answers POST /api/webhooks/{name}/test: it sends a signed message now, also to a webhook that is stopped.
func (h *webhooks) Test() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		name := r.PathValue("name")
		w, err := h.store.Webhook(r.Context(), caller.Org.ID, name)
		if err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "webhook", Name: name})
		}
		d := h.test(r.Context(), w)
		sent := wireDelivery(d)
		return http.StatusOK, testResult{d.ID, d.Event, d.Outcome == journal.MessageDelivered, sent.Status, d.Error}, nil
	})
}
