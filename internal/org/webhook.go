package org

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// Webhook is a URL of an org to which the gateway sends events.
type Webhook struct {
	Org    string
	Name   string   // unique in its org
	URL    string   // absolute, http or https
	Events []string // what is sent, see [Webhook.Wants]

	Sealed    []byte // the secret that signs, encrypted for Org and [Webhook.SecretName]; see secret.Keyring. Empty = see Declared
	Previous  PreviousSealed
	Stopped   string // why nothing is sent: StoppedByOrg or StoppedGone; "" = events are sent
	CreatedAt time.Time
	UpdatedAt time.Time
}

// PreviousSealed is the secret of a webhook that its latest rotation replaced. It signs as well,
// until its time is over. The zero value is none.
type PreviousSealed struct {
	Sealed []byte
	Until  time.Time
}

// Why a webhook is stopped.
const (
	StoppedByOrg = "disabled"
	StoppedGone  = "gone" // the receiver has answered 410
)

// Deliverer is the principal of what the gateway changes when it delivers events: it stops a
// webhook whose receiver answers 410. It cannot collide with a key: see [Operator].
const Deliverer = "@webhooks"

// SecretName returns the name for which the secrets of the webhook are sealed. It is not the
// name of a secret of the vault, which contains no colon.
func (w Webhook) SecretName() string { return "webhook:" + w.Name }

// Declared reports whether the webhook, with its secrets as a store has them, is one of the
// configuration file, which also has its secrets.
func (w Webhook) Declared() bool { return len(w.Sealed) == 0 }

// The events that webhooks can get.
const (
	ResponseCompleted  = "response.completed"
	ResponseFailed     = "response.failed"
	ResponseIncomplete = "response.incomplete"
	ResponseCancelled  = "response.cancelled"
	RunWaiting         = "run.waiting"
	BudgetThreshold    = "budget.threshold"
	BudgetExceeded     = "budget.exceeded"
)

// WebhookEvents returns all events.
func WebhookEvents() []string {
	return []string{ResponseCompleted, ResponseFailed, ResponseIncomplete, ResponseCancelled, RunWaiting, BudgetThreshold, BudgetExceeded}
}

// Wants reports whether the webhook gets the event: one of Events is the event, or "*", or the
// part before its dot with "*", as in "budget.*".
func (w Webhook) Wants(event string) bool {
	return w.Stopped == "" && slices.ContainsFunc(w.Events, func(pattern string) bool { return matchesEvent(pattern, event) })
}

func matchesEvent(pattern, event string) bool {
	kind, all := strings.CutSuffix(pattern, "*")
	if !all {
		return pattern == event
	}
	return kind == "" || strings.HasSuffix(kind, ".") && strings.HasPrefix(event, kind)
}

// Limits of a webhook.
const (
	MaxWebhookURL    = 2048 // bytes
	MaxWebhookEvents = 20   // patterns
)

// CheckWebhookURL returns an error unless events can be sent to the URL. It does not contain the
// URL, whose path and query can be credentials.
func CheckWebhookURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case len(text) > MaxWebhookURL:
		return fmt.Errorf("the URL has more than %d bytes", MaxWebhookURL)
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("want an absolute URL such as https://example.com/hooks")
	case u.User != nil:
		return fmt.Errorf("the URL contains a user name; the receiver checks the signature of each request instead")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return fmt.Errorf("the URL contains a fragment (#), which is never sent; remove it")
	}
	return nil
}

// CheckWebhookEvents returns an error unless each of the patterns matches an event, and there is
// at least one.
func CheckWebhookEvents(patterns []string) error {
	if len(patterns) == 0 || len(patterns) > MaxWebhookEvents {
		return fmt.Errorf("want 1 to %d events; %s", MaxWebhookEvents, eventsHelp())
	}
	for i, pattern := range patterns {
		if err := CheckWebhookEvent(pattern); err != nil {
			return err
		}
		if slices.Contains(patterns[:i], pattern) {
			return fmt.Errorf("%q is there twice", pattern)
		}
	}
	return nil
}

// CheckWebhookEvent returns an error unless the pattern matches an event.
func CheckWebhookEvent(pattern string) error {
	if !slices.ContainsFunc(WebhookEvents(), func(event string) bool { return matchesEvent(pattern, event) }) {
		return fmt.Errorf("%.60q matches no event; %s", pattern, eventsHelp())
	}
	return nil
}

func eventsHelp() string {
	return "the events are " + strings.Join(WebhookEvents(), ", ") + `, and "*" stands for all, "response.*" for those of a kind`
}

// Same reports whether w and other are the same webhook with the same settings and secrets.
func (w Webhook) Same(other Webhook) bool {
	return w.Org == other.Org && w.Name == other.Name && w.URL == other.URL && slices.Equal(w.Events, other.Events) &&
		bytes.Equal(w.Sealed, other.Sealed) && bytes.Equal(w.Previous.Sealed, other.Previous.Sealed) &&
		w.Previous.Until.Equal(other.Previous.Until) && w.Stopped == other.Stopped
}

// Clone returns a copy that shares no memory with w.
func (w Webhook) Clone() Webhook {
	w.Events, w.Sealed, w.Previous.Sealed = slices.Clone(w.Events), bytes.Clone(w.Sealed), bytes.Clone(w.Previous.Sealed)
	return w
}

// WebhookChanged is OrgChanged for a webhook. The action of a new secret is "rotate". The entry
// does not contain secrets.
func (a Author) WebhookChanged(before, after *Webhook) audit.Entry {
	w := newest(before, after)
	m := diff(w.Org, "webhook", w.Name, webhookMembers(before), webhookMembers(after))
	if before != nil && after != nil && !bytes.Equal(before.Sealed, after.Sealed) {
		m.Action = "rotate"
	}
	return a.entry(m)
}

// Redelivered returns the audit entry for a request to send a message again.
func (a Author) Redelivered(orgID, messageID string) audit.Entry {
	return a.entry(audit.Management{Org: orgID, Resource: "webhook_delivery", ID: messageID, Action: "redeliver"})
}

func webhookMembers(w *Webhook) members {
	if w == nil {
		return nil
	}
	return toMembers(struct {
		URL           string    `json:"url"`
		Events        []string  `json:"events"`
		Stopped       string    `json:"stopped,omitempty"`
		PreviousUntil time.Time `json:"previous_until,omitzero"`
	}{withoutSecrets(w.URL), w.Events, w.Stopped, w.Previous.Until.UTC()})
}
