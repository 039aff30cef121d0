package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

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

func (h *Handler) wireWebhook(l journal.ListedWebhook) webhookObject {
	out := webhookObject{
		Name: l.Name, Declared: h.declaredWebhook(l.Org, l.Name), URL: l.URL, Events: l.Events, Enabled: l.Stopped == "", Stopped: l.Stopped, Waiting: l.Waiting, OldestWaiting: wireMillis(l.Oldest),
		GivenUp: l.GivenUp, CreatedAt: l.CreatedAt.Unix(), UpdatedAt: l.UpdatedAt.Unix(),
	}
	if l.Previous.Until.After(h.o.Now()) {
		out.PreviousUntil = wireTime(l.Previous.Until)
	}
	return out
}

func (h *Handler) declaredWebhook(orgID, name string) bool {
	return h.o.Directory.FromFile(orgID).Webhook(name) != nil
}

// wireMillis returns a time in Unix milliseconds; nil for 0.
func wireMillis(ms int64) *string {
	if ms == 0 {
		return nil
	}
	return wireTime(time.UnixMilli(ms))
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
		ID: d.ID, Event: d.Event, Object: d.Object, At: wireMillis(d.At), Outcome: string(d.Outcome), Attempts: d.Attempts, EndedAt: wireMillis(d.EndedAt), Error: d.Error,
	}
	if d.EndedAt == 0 {
		out.NextAttemptAt = wireMillis(d.NextAt)
	}
	if d.Status != 0 {
		out.Status = &d.Status
	}
	return out
}

// ListWebhooks answers GET /api/webhooks.
func (h *Handler) ListWebhooks() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		stored, err := h.o.Webhooks.Webhooks(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		out := []webhookObject{}
		for _, l := range stored {
			out = append(out, h.wireWebhook(l))
		}
		return http.StatusOK, list[webhookObject]{out}, nil
	})
}

// webhookSettings are the members of a webhook that a request can set.
type webhookSettings struct {
	Name    *string   `json:"name"`
	URL     *string   `json:"url"`
	Events  *[]string `json:"events"`
	Enabled *bool     `json:"enabled"`
}

// readWebhook reads settings and applies them to w.
func (h *Handler) readWebhook(r *http.Request, w *org.Webhook) error {
	body, err := surface.ReadJSON(r)
	if err != nil {
		return err
	}
	var asked webhookSettings
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&asked); err != nil || hasNull(body) {
		return fault.New(fault.Invalid, "invalid_value",
			`the body must be an object such as {"name": "ops", "url": "https://example.com/hooks", "events": ["run.waiting"], "enabled": true}, with no other members`)
	}
	if asked.Name != nil {
		switch _, err := secret.ParseRef(string(secret.Vault) + ":" + *asked.Name); {
		case w.Name != "" && *asked.Name != w.Name:
			return fault.New(fault.Invalid, "immutable", "the name of a webhook cannot be changed; add another webhook").In("name")
		case err != nil:
			return fault.New(fault.Invalid, "invalid_value", "the name of a webhook must have 1 to 64 letters, digits, dots, underscores or hyphens, and begin with a letter or a digit").In("name")
		}
		w.Name = *asked.Name
	}
	if asked.URL != nil && *asked.URL != w.URL {
		if err := org.CheckWebhookURL(*asked.URL); err != nil {
			return fault.New(fault.Unprocessable, "invalid_value", "url: %v", err).In("url")
		}
		if err := h.o.Judge(*asked.URL); err != nil {
			return err
		}
		w.URL = *asked.URL
	}
	if asked.Events != nil {
		if err := org.CheckWebhookEvents(*asked.Events); err != nil {
			return fault.New(fault.Unprocessable, "invalid_value", "events: %v", err).In("events")
		}
		w.Events = *asked.Events
	}
	if asked.Enabled != nil {
		switch {
		case *asked.Enabled:
			w.Stopped = ""
		case w.Stopped == "":
			w.Stopped = org.StoppedByOrg
		}
	}
	for name, missing := range map[string]bool{"name": w.Name == "", "url": w.URL == "", "events": len(w.Events) == 0} {
		if missing {
			return fault.New(fault.Invalid, "invalid_value", "a webhook needs a name, a url and events; %s is missing", name).In(name)
		}
	}
	return nil
}

// hasNull reports whether a member of the object is null, which no setting of a webhook can be.
func hasNull(object []byte) bool {
	all, err := members(object)
	return err != nil || slices.ContainsFunc(all, func(m member) bool { return string(m.value) == "null" })
}

// newSecret gives the webhook a new secret and returns it.
func (h *Handler) newSecret(w *org.Webhook) (string, error) {
	if h.o.Vault == nil {
		return "", surface.NoVault("webhooks, whose secrets it keeps,")
	}
	v := webhook.NewSecret()
	sealed, err := h.o.Vault.Seal(w.Org, w.SecretName(), v)
	w.Sealed = sealed
	return v.Reveal(), err
}

// CreateWebhook answers POST /api/webhooks.
func (h *Handler) CreateWebhook() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		w := org.Webhook{Org: caller.Org.ID, CreatedAt: h.o.Now(), UpdatedAt: h.o.Now()}
		if err := h.readWebhook(r, &w); err != nil {
			return 0, nil, err
		}
		if h.declaredWebhook(w.Org, w.Name) {
			return 0, nil, fault.New(fault.Conflict, "exists", "the configuration file already declares the webhook %q; choose another name", w.Name).In("name")
		}
		shown, err := h.newSecret(&w)
		if err != nil {
			return 0, nil, err
		}
		if err := h.o.Webhooks.CreateWebhook(r.Context(), w, h.author(caller)); err != nil {
			return 0, nil, named(err, "webhook", w.Name)
		}
		out := h.wireWebhook(journal.ListedWebhook{Webhook: w})
		out.Secret = shown
		return http.StatusCreated, out, nil
	})
}

// PatchWebhook answers PATCH /api/webhooks/{name}.
func (h *Handler) PatchWebhook() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		return h.changeWebhook(r, caller, func(w *org.Webhook) (string, error) { return "", h.readWebhook(r, w) })
	})
}

// changeWebhook stores what change makes of the webhook in the path, and returns the answer. change
// returns a new secret, or "".
func (h *Handler) changeWebhook(r *http.Request, caller caller.Caller, change func(*org.Webhook) (string, error)) (int, any, error) {
	name := r.PathValue("name")
	was, err := h.o.Webhooks.Webhook(r.Context(), caller.Org.ID, name)
	if err != nil {
		return 0, nil, named(err, "webhook", name)
	}
	if was.Declared() || h.declaredWebhook(caller.Org.ID, name) {
		return 0, nil, isDeclared("webhook", name)
	}
	w := was.Clone()
	shown, err := change(&w)
	if err != nil {
		return 0, nil, err
	}
	w.UpdatedAt = h.o.Now()
	if err := h.o.Webhooks.UpdateWebhook(r.Context(), was, w, h.author(caller)); err != nil {
		return 0, nil, named(err, "webhook", name)
	}
	stored, err := h.o.Webhooks.Webhooks(r.Context(), caller.Org.ID)
	if err != nil {
		return 0, nil, err
	}
	out := h.wireWebhook(journal.ListedWebhook{Webhook: w})
	for _, l := range stored {
		if l.Name == name {
			out.Waiting, out.OldestWaiting, out.GivenUp = l.Waiting, wireMillis(l.Oldest), l.GivenUp
		}
	}
	out.Secret = shown
	return http.StatusOK, out, nil
}

// RotateWebhook answers POST /api/webhooks/{name}/rotate: the webhook gets a new secret, and the one
// before signs as well for the time overlap.
func (h *Handler) RotateWebhook() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		overlap, err := readOverlap(r)
		if err != nil {
			return 0, nil, err
		}
		return h.changeWebhook(r, caller, func(w *org.Webhook) (string, error) {
			now, before := h.o.Now(), w.Sealed
			if overlap > 0 && w.Previous.Until.After(now) {
				return "", fault.New(fault.Conflict, "rotation_overlaps", "the secret before the last rotation of the webhook %q signs until %s, and a webhook has at most two secrets; "+
					"wait until then, or end both old secrets now with an overlap of 0s", w.Name, w.Previous.Until.UTC().Format(time.RFC3339))
			}
			shown, err := h.newSecret(w)
			if w.Previous = (org.PreviousSealed{}); overlap > 0 {
				w.Previous = org.PreviousSealed{Sealed: before, Until: now.Add(overlap)}
			}
			return shown, err
		})
	})
}

// DeleteWebhook answers DELETE /api/webhooks/{name}. What waits is not delivered any more.
func (h *Handler) DeleteWebhook() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		name := r.PathValue("name")
		if h.declaredWebhook(caller.Org.ID, name) {
			return 0, nil, isDeclared("webhook", name)
		}
		if err := h.o.Webhooks.DeleteWebhook(r.Context(), caller.Org.ID, name, h.author(caller)); err != nil {
			return 0, nil, named(err, "webhook", name)
		}
		return http.StatusOK, deleted{name, true}, nil
	})
}

// The most messages that an answer has, and how many it has unless told.
const (
	maxDeliveries     = 200
	defaultDeliveries = 50
)

type deliveryPage struct {
	Data []delivery `json:"data"`
	Next *string    `json:"next"` // nil at the end
}

// ListDeliveries answers GET /api/webhooks/{name}/deliveries: the latest first.
func (h *Handler) ListDeliveries() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		q, err := deliveryQueryOf(r.URL.Query())
		if err != nil {
			return 0, nil, err
		}
		name, limit := r.PathValue("name"), q.Limit
		q.Limit++
		found, err := h.o.Outbox.Deliveries(r.Context(), caller.Org.ID, name, q)
		if errors.Is(err, org.ErrNotFound) && q.Before != "" {
			if _, missing := h.o.Webhooks.Webhook(r.Context(), caller.Org.ID, name); missing == nil {
				return 0, nil, named(err, "message", q.Before)
			}
		}
		if err != nil {
			return 0, nil, named(err, "webhook", name)
		}
		page := deliveryPage{Data: []delivery{}}
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
	q.Limit = defaultDeliveries
	for name, given := range values {
		if len(given) > 1 {
			return q, fault.New(fault.Invalid, "invalid_value", "the parameter %s is given %d times; give it once", name, len(given)).In(name)
		}
		switch value := given[0]; name {
		case "outcome":
			switch q.Outcome = journal.Outcome(value); q.Outcome {
			case journal.MessageWaiting, journal.MessageDelivered, journal.MessageGivenUp:
			default:
				return q, fault.New(fault.Invalid, "invalid_value", "outcome must be waiting, delivered or given_up").In(name)
			}
		case "after":
			q.Before = value
		case "limit":
			if q.Limit, err = strconv.Atoi(value); err != nil || q.Limit < 1 || q.Limit > maxDeliveries {
				return q, fault.New(fault.Invalid, "invalid_value", "limit must be a whole number from 1 to %d", maxDeliveries).In(name)
			}
		default:
			return q, fault.New(fault.Invalid, "unknown_parameter", "unknown parameter %q; known parameters are outcome, after, limit", name).In(name)
		}
	}
	return q, nil
}

// Redeliver answers POST /api/webhooks/{name}/deliveries/{id}/redeliver.
func (h *Handler) Redeliver() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		name, messageID := r.PathValue("name"), r.PathValue("id")
		d, err := h.o.Webhooks.Redeliver(r.Context(), caller.Org.ID, name, messageID, h.o.Now(), h.author(caller))
		if errors.Is(err, journal.ErrNotDeliverable) {
			return 0, nil, fault.New(fault.Conflict, "not_deliverable",
				"the message %q is being delivered at the moment, or its webhook is stopped; wait, or enable the webhook, and try again", messageID)
		}
		if err != nil {
			return 0, nil, named(err, "message", messageID)
		}
		return http.StatusOK, wireDelivery(d), nil
	})
}
