// Package outbox delivers the messages for webhooks that the stores keep.
//
//	fact ─► Notice ─► message      in one transaction: package journal, the stores
//	                     │
//	         DueWebhooks ▼ ClaimDeliveries
//	Deliverer ─► webhook.Sender ─► receiver
//	                     │
//	                     ▼ SettleDelivery: delivered, or the next attempt, or given up
//
// A message is delivered at least once: it is sent again if the process dies before the answer of
// the receiver is stored. It keeps its id, by which receivers recognise it. Messages of one subject
// (a run, a budget) are delivered in order.
package outbox

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// Limits of a process. One receiver that does not answer keeps at most perWebhook attempts busy, for
// webhook.Timeout each. An org with ten webhooks, the default limit, has room for all of them.
const (
	perWebhook = 4   // attempts at a time
	perOrg     = 40  // attempts at a time
	perProcess = 256 // attempts at a time, and so connections
)

const (
	pollEvery   = time.Second      // how often the store is asked for messages that are due
	claimTime   = 30 * time.Second // after it, a message whose owner is gone can be claimed: more than webhook.Timeout and storeTime
	storeTime   = 10 * time.Second // for each call of the store
	deleteEvery = time.Hour        // how often old messages are deleted
	maxFailing  = 10_000           // webhooks whose failures are remembered, so that they are logged once
)

// Store is what a Deliverer needs of a store.
type Store interface {
	journal.Outbox
	UpdateWebhook(ctx context.Context, was, w org.Webhook, by org.Author) error
}

// Sender makes one attempt. Implemented by *webhook.Sender.
type Sender interface {
	Send(ctx context.Context, e webhook.Endpoint, m webhook.Message, at time.Time) webhook.Result
}

// Options are what a Deliverer needs. Store, Sender, Open and Log are required.
type Options struct {
	Store  Store
	Sender Sender

	// Open decrypts a secret that was sealed for the org and the name.
	Open func(org, name string, sealed []byte) (secret.Value, error)

	// Declared returns the secrets of a webhook of the configuration file; empty if the file does
	// not have the webhook any more. Nil = there is no file.
	Declared func(org, webhook string) []secret.Value

	Log *slog.Logger

	Now    func() time.Time // wall clock; nil = clock.Wall
	Jitter func() float64   // in [0, 1); nil = random

	// Attempted is called after each attempt whose outcome is stored. Nil = nobody is told.
	Attempted func(journal.Outcome)
}

// Deliverer delivers messages between Start and Stop.
type Deliverer struct {
	o       Options
	pump    *pump[journal.ClaimedDelivery]
	deleted time.Time // when old messages were last deleted; owned by due

	mu      sync.Mutex                  // guards the field below
	failing map[journal.WebhookKey]bool // whose latest attempt has failed
}

// New returns a Deliverer.
func New(o Options) *Deliverer {
	if o.Now == nil {
		o.Now = clock.Wall
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.Declared == nil {
		o.Declared = func(string, string) []secret.Value { return nil }
	}
	if o.Attempted == nil {
		o.Attempted = func(journal.Outcome) {}
	}
	d := &Deliverer{o: o, failing: map[journal.WebhookKey]bool{}}
	d.pump = newPump(d, newSlots(perWebhook, perOrg, perProcess), o.Now, 0, o.Log, "webhooks: the outbox cannot be used; the gateway retries")
	return d
}

// Start starts to deliver, until Stop.
func (d *Deliverer) Start() { d.pump.start() }

// Stop ends the attempts in progress and waits for them. Their messages are delivered by the next
// process, with the same ids. It may be called without Start, and more than once.
func (d *Deliverer) Stop() { d.pump.end() }

// due implements queue. It also deletes messages that have ended long ago.
func (d *Deliverer) due(ctx context.Context, now time.Time) ([]receiver, error) {
	if now.Sub(d.deleted).Abs() >= deleteEvery {
		if err := d.o.Store.DeleteEnded(ctx, now.Add(-journal.KeepEnded)); err != nil {
			return nil, err
		}
		d.deleted = now
	}
	due, err := d.o.Store.DueWebhooks(ctx, now)
	out := make([]receiver, len(due))
	for i, k := range due {
		out[i] = receiver{k.Org, k.Name}
	}
	return out, err
}

// claim implements queue.
func (d *Deliverer) claim(ctx context.Context, now time.Time, asks []reserved) ([]journal.ClaimedDelivery, error) {
	list := make([]journal.ClaimAsk, len(asks))
	for i, r := range asks {
		list[i] = journal.ClaimAsk{WebhookKey: journal.WebhookKey{Org: r.org, Name: r.name}, Max: r.max}
	}
	return d.o.Store.ClaimDeliveries(ctx, now, now.Add(claimTime), list)
}

// receiverOf implements queue.
func (d *Deliverer) receiverOf(c journal.ClaimedDelivery) receiver { return receiver{c.Org, c.Webhook} }

func keyOf(c journal.ClaimedDelivery) journal.WebhookKey {
	return journal.WebhookKey{Org: c.Org, Name: c.Webhook}
}

// attempt implements queue. An attempt that ends because ctx does has no outcome, unless the message was accepted.
func (d *Deliverer) attempt(ctx context.Context, c journal.ClaimedDelivery) {
	result := d.send(ctx, c)
	if ctx.Err() != nil && !result.Delivered() {
		return
	}
	crash.At(crash.AfterWebhookSend)
	next := After(c.Delivery, result, d.o.Now(), d.o.Jitter())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	settled, err := d.o.Store.SettleDelivery(ctx, next)
	if err != nil {
		d.o.Log.Error("webhooks: the outcome of an attempt is not stored; the message is sent again", "org", c.Org, "webhook", c.Webhook, "message", c.ID, "error", err)
		return
	}
	if !settled { // it was deleted, or given up, meanwhile
		return
	}
	d.o.Attempted(next.Outcome)
	d.report(c, next)
	if result.Gone() {
		d.stopWebhook(ctx, c)
	}
}

// send makes the attempt. It ends with webhook.Timeout.
func (d *Deliverer) send(ctx context.Context, c journal.ClaimedDelivery) webhook.Result {
	now := d.o.Now()
	keys, err := d.keys(c.To, now)
	if err != nil {
		return webhook.Result{Err: err}
	}
	m := webhook.Message{ID: c.ID, Type: c.Event, At: time.UnixMilli(c.At), Object: c.Object}
	return d.o.Sender.Send(ctx, webhook.Endpoint{URL: c.To.URL, Keys: keys}, m, now)
}

// Test sends a message of the type [TestEvent] to a webhook now, once, and stores nothing. It returns how that ended: the message
// is delivered, or it has an Error. It takes at most webhook.Timeout.
func (d *Deliverer) Test(ctx context.Context, w org.Webhook) journal.Delivery {
	now := d.o.Now()
	m := journal.Delivery{
		ID: id.New("evt_"), Notice: journal.Notice{Event: TestEvent, Object: w.Name, At: now.UnixMilli()}, GiveUpAt: math.MaxInt64,
	}
	return After(m, d.send(ctx, journal.ClaimedDelivery{Delivery: m, To: w}), d.o.Now(), 0)
}

// TestEvent is the type of the messages of [Deliverer.Test]. Webhooks get it whatever events they have.
const TestEvent = "webhook.test"

// keys returns the keys that sign: one or, during a rotation, two.
func (d *Deliverer) keys(w org.Webhook, now time.Time) (keys []webhook.Key, err error) {
	var secrets []secret.Value
	if w.Declared() {
		if secrets = d.o.Declared(w.Org, w.Name); len(secrets) == 0 {
			return nil, errNotDeclared
		}
	} else if secrets, err = d.open(w, now); errors.Is(err, secret.ErrNoVault) {
		return nil, errNoMasterKey
	} else if err != nil {
		return nil, errNoSecret
	}
	for _, v := range secrets {
		key, err := webhook.ParseSecret(v)
		if err != nil {
			return nil, errNoSecret
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// open decrypts the secrets that sign.
func (d *Deliverer) open(w org.Webhook, now time.Time) (secrets []secret.Value, err error) {
	sealed := [][]byte{w.Sealed}
	if p := w.Previous; len(p.Sealed) > 0 && now.Before(p.Until) {
		sealed = append(sealed, p.Sealed)
	}
	for _, s := range sealed {
		v, err := d.o.Open(w.Org, w.SecretName(), s)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, v)
	}
	return secrets, nil
}

// stopWebhook stops the webhook of a receiver that wants no more messages, unless it was changed
// meanwhile.
func (d *Deliverer) stopWebhook(ctx context.Context, c journal.ClaimedDelivery) {
	w := c.To
	w.Stopped, w.UpdatedAt = org.StoppedGone, d.o.Now()
	err := d.o.Store.UpdateWebhook(ctx, c.To, w, org.Author{Principal: org.Deliverer, RequestID: c.ID, At: w.UpdatedAt.UnixMilli()})
	switch {
	case err == nil:
		d.o.Log.Warn("webhooks: a receiver has answered 410 Gone: its webhook is stopped", "org", c.Org, "webhook", c.Webhook)
	case !errors.Is(err, org.ErrChanged) && !errors.Is(err, org.ErrNotFound):
		d.o.Log.Error("webhooks: a webhook is not stopped", "org", c.Org, "webhook", c.Webhook, "error", err)
	}
}

// report logs what the operator should know: a message that is given up, and when a receiver begins
// and ends to fail.
func (d *Deliverer) report(c journal.ClaimedDelivery, next journal.Delivery) {
	d.mu.Lock()
	key, failed := keyOf(c), next.Outcome != journal.MessageDelivered
	changed := failed != d.failing[key]
	switch {
	case !failed:
		delete(d.failing, key)
	case len(d.failing) < maxFailing:
		d.failing[key] = true
	}
	d.mu.Unlock()
	log := d.o.Log.With("org", c.Org, "webhook", c.Webhook, "message", c.ID, "attempts", next.Attempts)
	switch {
	case next.Outcome == journal.MessageGivenUp:
		log.Warn("webhooks: a message is given up", "event", c.Event, "error", next.Error)
	case changed && failed:
		log.Warn("webhooks: an attempt has failed; the gateway retries", "error", next.Error)
	case changed:
		log.Info("webhooks: the receiver accepts messages again")
	}
}
