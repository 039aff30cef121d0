package journal

import (
	"context"
	"errors"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Notice is an event that the webhooks of an org are told of. A store puts it into the outbox of
// the org in the transaction of what has happened: one message for each webhook that
// [org.Webhook.Wants] it, and none if there is no such webhook.
type Notice struct {
	Event  string // one of org.WebhookEvents
	Object string // the id of what it is about: a response, a run or a budget

	// Subject orders messages: those of one subject for one webhook are delivered in the order in
	// which they happened. It is the id of the run or of the budget.
	Subject string

	At int64 // Unix milliseconds
}

// TellNotice returns the notice that says that percent of a budget are spent: see [Used.Tell].
func (u Used) TellNotice(percent int, at int64) Notice {
	n := Notice{Event: org.BudgetThreshold, Object: u.Budget.Scope, Subject: u.Budget.Scope, At: at}
	if percent >= 100 {
		n.Event = org.BudgetExceeded
	}
	return n
}

// MessagePrefix begins the ids of messages.
const MessagePrefix = "evt_"

// Outcome says what became of a message.
type Outcome string

// The outcomes.
const (
	MessageWaiting   Outcome = "waiting" // for its next attempt
	MessageDelivered Outcome = "delivered"
	MessageGivenUp   Outcome = "given_up" // see Delivery.Error
)

// Outcomes returns all outcomes.
func Outcomes() []string {
	return []string{string(MessageWaiting), string(MessageDelivered), string(MessageGivenUp)}
}

// Delivery is a message of an org's outbox, which is for one webhook.
type Delivery struct {
	ID      string // unique; the same in all attempts
	Org     string
	Webhook string // its name
	Notice

	Outcome  Outcome
	Attempts int   // that were made
	NextAt   int64 // of the next attempt, at the earliest; Unix milliseconds
	GiveUpAt int64 // no attempt is made after a failure at this time or later; Unix milliseconds
	EndedAt  int64 // Unix milliseconds; 0 = it waits

	Status int    // HTTP status of the latest answer; 0 = there was none
	Error  string // why the latest attempt failed, or why the message is given up; "" = it did not, or there was none
}

// GiveUpAfter is how long the gateway tries to deliver a message, from the moment of the event, or
// from the moment in which a person wants it delivered again.
const GiveUpAfter = 72 * time.Hour

// MaxEnded is how many messages of a webhook are stored that are delivered or given up. Beyond it,
// the oldest is deleted.
const MaxEnded = 1000

// KeepEnded is how long a message is stored after it was delivered or given up.
const KeepEnded = 7 * 24 * time.Hour

// NewDelivery returns the message for a webhook, with this id.
func NewDelivery(id string, w org.Webhook, n Notice) Delivery {
	return Delivery{
		ID: id, Org: w.Org, Webhook: w.Name, Notice: n, Outcome: MessageWaiting,
		NextAt: n.At, GiveUpAt: n.At + GiveUpAfter.Milliseconds(),
	}
}

// End returns the delivery after its end.
func (d Delivery) End(o Outcome, why string, at int64) Delivery {
	d.Outcome, d.Error, d.EndedAt = o, why, at
	return d
}

// Again returns the delivery after a person asked for it to be delivered again. The back-off begins
// anew.
func (d Delivery) Again(at int64) Delivery {
	d.Outcome, d.Attempts, d.EndedAt, d.NextAt, d.GiveUpAt = MessageWaiting, 0, 0, at, at+GiveUpAfter.Milliseconds()
	return d
}

// Why a message is given up that nobody tries to deliver any more.
const (
	OutboxFull     = "the outbox of the org was full, and this was the oldest message of the webhook with the most"
	WebhookStopped = "the webhook was stopped"
)

// ErrNotDeliverable reports a message that cannot be delivered again now.
var ErrNotDeliverable = errors.New("the message is being delivered at the moment, or its webhook is stopped")

// WebhookKey identifies a webhook.
type WebhookKey struct{ Org, Name string }

// ClaimAsk asks for messages of a webhook.
type ClaimAsk struct {
	WebhookKey
	Max int // messages
}

// ClaimedDelivery is a message that is to be delivered now, and where to.
type ClaimedDelivery struct {
	Delivery
	To org.Webhook
}

// DeliveryQuery selects messages of a webhook. The zero value selects none, because its limit is 0.
type DeliveryQuery struct {
	Before  string  // only messages before the one with this id, in the order of Deliveries; "" = all
	Outcome Outcome // only messages with this outcome; "" = all
	Limit   int     // maximum number of messages; 0 or less = none
}

// ListedWebhook is a webhook, without its secrets, and what its outbox contains.
type ListedWebhook struct {
	org.Webhook
	Waiting int   // messages
	Oldest  int64 // when the event of the oldest waiting message happened; Unix milliseconds, 0 = none waits
	GivenUp int64 // messages that were given up since the webhook was added
}

// OutboxState sums up the outboxes of all orgs.
type OutboxState struct {
	Waiting int   // messages
	Oldest  int64 // when the event of the oldest of them happened; Unix milliseconds, 0 = none waits
	GivenUp int64 // messages of the webhooks that there are
}

// Outbox stores the messages for webhooks. Append, and what changes a budget, add to it: see
// [Notice]. If an org has as many waiting messages as its caps allow, the oldest of the webhook with
// the most is given up for each new one. Implemented by store/database;
// store/storetest tests it.
type Outbox interface {
	// DueWebhooks returns the webhooks that are not stopped and of which Claim would return a
	// message, ordered by org and name. The time is the wall clock's.
	DueWebhooks(ctx context.Context, now time.Time) ([]WebhookKey, error)

	// ClaimDeliveries returns messages that wait, whose NextAt is not after now, which nobody has
	// claimed, and before which no message of the same subject waits; those first that are due
	// first. Nobody else gets them before until, unless Settle ends the claim, or the process has
	// ended. When it returns, that is on disk.
	ClaimDeliveries(ctx context.Context, now, until time.Time, asks []ClaimAsk) ([]ClaimedDelivery, error)

	// SettleDelivery stores the outcome of an attempt: Outcome, Attempts, NextAt, EndedAt, Status and
	// Error of a claimed message. The messages of its subject that wait are not delivered before
	// it. It returns false if the message does not wait any more: it was deleted with its
	// webhook or org, or was given up.
	SettleDelivery(ctx context.Context, d Delivery) (bool, error)

	// Deliveries returns messages of a webhook, the latest first. The error wraps
	// org.ErrNotFound without the webhook, or without the message Before.
	Deliveries(ctx context.Context, org, webhook string, q DeliveryQuery) ([]Delivery, error)

	// DeleteEnded deletes the messages that were delivered or given up before the given time.
	DeleteEnded(ctx context.Context, before time.Time) error

	// OutboxState returns how much waits.
	OutboxState(ctx context.Context) (OutboxState, error)
}

// Webhooks stores the webhooks of orgs. What [org.Store] says of changes holds for it too.
type Webhooks interface {
	// Webhooks returns the org's webhooks, ordered by name, without secrets.
	Webhooks(ctx context.Context, org string) ([]ListedWebhook, error)

	// AllWebhooks returns the webhooks of all orgs with their secrets, ordered by org and name.
	AllWebhooks(ctx context.Context) ([]org.Webhook, error)

	// Webhook returns a webhook with its secrets, or org.ErrNotFound.
	Webhook(ctx context.Context, org, name string) (org.Webhook, error)

	// CreateWebhook adds a webhook. It returns org.ErrNotFound without the org, org.ErrExists if
	// the name is taken, and an *org.CapError if the org has as many as its caps allow. Webhooks
	// that are [org.Webhook.Declared] do not count.
	CreateWebhook(ctx context.Context, w org.Webhook, by org.Author) error

	// UpdateWebhook replaces all of a webhook but CreatedAt. It returns org.ErrNotFound, or
	// org.ErrChanged if the stored webhook is not the [org.Webhook.Same] as was. When it is
	// stopped, the messages that wait for it are given up.
	UpdateWebhook(ctx context.Context, was, w org.Webhook, by org.Author) error

	// DeleteWebhook deletes a webhook with its messages, or returns org.ErrNotFound.
	DeleteWebhook(ctx context.Context, org, name string, by org.Author) error

	// Redeliver makes a message wait for delivery from at on, also one that was delivered. It returns
	// org.ErrNotFound without the webhook or message, and an *org.CapError if the org has as
	// many waiting messages as its caps allow. A message that is claimed, or whose webhook is
	// stopped, is refused with ErrNotDeliverable.
	Redeliver(ctx context.Context, org, webhook, id string, at time.Time, by org.Author) (Delivery, error)
}
