package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Outbox implements journal.Outbox. Orgs adds webhooks to it, and Journal adds messages. The zero
// value is ready to use.
type Outbox struct {
	Now  func() time.Time // nil = clock.Wall
	Caps org.Caps         // apply to every org; the zero value is no limit

	mu       sync.Mutex // the last lock that is taken
	webhooks map[journal.WebhookKey]*webhookRecord
	messages []*message // in the order in which they were added
}

type webhookRecord struct {
	org.Webhook
	givenUp int64
}

type message struct {
	journal.Delivery
	claimedUntil int64
}

func (m *message) waits() bool { return m.EndedAt == 0 }

func (m *message) key() journal.WebhookKey { return journal.WebhookKey{Org: m.Org, Name: m.Webhook} }

// errNoOutbox reports that an Orgs has no Outbox.
var errNoOutbox = errors.New("this store has no outbox for webhooks")

func (o *Outbox) clock() time.Time {
	if o.Now == nil {
		return clock.Wall()
	}
	return o.Now()
}

// put adds or replaces a webhook.
func (o *Outbox) put(w org.Webhook, now int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.webhooks == nil {
		o.webhooks = map[journal.WebhookKey]*webhookRecord{}
	}
	key := journal.WebhookKey{Org: w.Org, Name: w.Name}
	r, known := o.webhooks[key]
	if !known {
		r = &webhookRecord{}
		o.webhooks[key] = r
	}
	r.Webhook = w.Clone()
	if w.Stopped == "" {
		return
	}
	for _, m := range o.messages {
		if m.key() == key && m.waits() {
			o.end(m, m.End(journal.MessageGivenUp, journal.WebhookStopped, now))
		}
	}
	o.trimEnded(key)
}

// drop deletes the webhooks that match, with their messages.
func (o *Outbox) drop(match func(journal.WebhookKey) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.webhooks, func(k journal.WebhookKey, _ *webhookRecord) bool { return match(k) })
	o.messages = slices.DeleteFunc(o.messages, func(m *message) bool { return match(m.key()) })
}

// notify puts notices into the outbox of the org.
func (o *Outbox) notify(orgID string, notices []journal.Notice) {
	if o == nil || len(notices) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range notices {
		for _, key := range o.keys() {
			if w := o.webhooks[key]; key.Org == orgID && w.Wants(n.Event) {
				o.makeRoom(orgID, n.At)
				d := journal.NewDelivery(id.New(journal.MessagePrefix), w.Webhook, n)
				for _, before := range o.messages {
					if before.waits() && sameSubject(before.Delivery, d) {
						d.NextAt = max(d.NextAt, before.NextAt)
					}
				}
				o.messages = append(o.messages, &message{Delivery: d})
			}
		}
	}
}

func sameSubject(a, b journal.Delivery) bool {
	return a.Org == b.Org && a.Webhook == b.Webhook && a.Subject == b.Subject
}

// keys returns the keys of all webhooks, ordered.
func (o *Outbox) keys() []journal.WebhookKey {
	return slices.SortedFunc(maps.Keys(o.webhooks), func(a, b journal.WebhookKey) int {
		return cmp.Or(strings.Compare(a.Org, b.Org), strings.Compare(a.Name, b.Name))
	})
}

func (o *Outbox) waiting(match func(*message) bool) (n int, oldest *message) {
	for _, m := range o.messages {
		if m.waits() && match(m) {
			if n++; oldest == nil || m.At < oldest.At {
				oldest = m
			}
		}
	}
	return n, oldest
}

func (o *Outbox) full(orgID string) bool {
	n, _ := o.waiting(func(m *message) bool { return m.Org == orgID })
	return o.Caps.Deliveries > 0 && n >= o.Caps.Deliveries
}

// makeRoom gives up the oldest message of the webhook with the most, if the org has too many.
func (o *Outbox) makeRoom(orgID string, now int64) {
	if !o.full(orgID) {
		return
	}
	var most journal.WebhookKey
	count := -1
	for _, key := range o.keys() {
		if n, _ := o.waiting(func(m *message) bool { return m.key() == key }); key.Org == orgID && n > count {
			most, count = key, n
		}
	}
	if _, oldest := o.waiting(func(m *message) bool { return m.key() == most && m.claimedUntil == 0 }); oldest != nil {
		o.end(oldest, oldest.End(journal.MessageGivenUp, journal.OutboxFull, now))
		o.trimEnded(most)
	}
}

// end stores the end of a message that waits.
func (o *Outbox) end(m *message, d journal.Delivery) {
	m.Delivery, m.claimedUntil = d, 0
	if w := o.webhooks[m.key()]; d.Outcome == journal.MessageGivenUp && w != nil {
		w.givenUp++
	}
}

// trimEnded deletes the oldest messages of a webhook that have ended, beyond journal.MaxEnded.
func (o *Outbox) trimEnded(key journal.WebhookKey) {
	var ended []*message
	for _, m := range o.messages {
		if m.key() == key && !m.waits() {
			ended = append(ended, m)
		}
	}
	slices.SortStableFunc(ended, func(a, b *message) int { return cmp.Compare(b.EndedAt, a.EndedAt) })
	if len(ended) > journal.MaxEnded {
		gone := ended[journal.MaxEnded:]
		o.messages = slices.DeleteFunc(o.messages, func(m *message) bool { return slices.Contains(gone, m) })
	}
}

// due returns the messages of the webhook that can be claimed.
func (o *Outbox) due(key journal.WebhookKey, now int64) []*message {
	var due []*message
	var before []journal.Delivery // that wait
	for _, m := range o.messages {
		if m.key() != key || !m.waits() {
			continue
		}
		first := !slices.ContainsFunc(before, func(d journal.Delivery) bool { return sameSubject(d, m.Delivery) })
		before = append(before, m.Delivery)
		if first && m.NextAt <= now && m.claimedUntil <= now {
			due = append(due, m)
		}
	}
	slices.SortStableFunc(due, func(a, b *message) int { return cmp.Compare(a.NextAt, b.NextAt) })
	return due
}

// DueWebhooks implements journal.Outbox.
func (o *Outbox) DueWebhooks(_ context.Context, now time.Time) ([]journal.WebhookKey, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(o.keys(), func(k journal.WebhookKey) bool {
		return o.webhooks[k].Stopped != "" || len(o.due(k, now.UnixMilli())) == 0
	}), nil
}

// ClaimDeliveries implements journal.Outbox.
func (o *Outbox) ClaimDeliveries(_ context.Context, now, until time.Time, asks []journal.ClaimAsk) (claimed []journal.ClaimedDelivery, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ask := range asks {
		w := o.webhooks[ask.WebhookKey]
		if w == nil || w.Stopped != "" {
			continue
		}
		due := o.due(ask.WebhookKey, now.UnixMilli())
		for _, m := range due[:min(max(ask.Max, 0), len(due))] {
			m.claimedUntil = until.UnixMilli()
			claimed = append(claimed, journal.ClaimedDelivery{Delivery: m.Delivery, To: w.Clone()})
		}
	}
	return claimed, nil
}

// SettleDelivery implements journal.Outbox.
func (o *Outbox) SettleDelivery(_ context.Context, d journal.Delivery) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.messages, func(m *message) bool { return m.Org == d.Org && m.ID == d.ID && m.waits() })
	if i < 0 {
		return false, nil
	}
	m := o.messages[i]
	next := m.Delivery
	next.Outcome, next.Attempts, next.NextAt, next.EndedAt, next.Status, next.Error = d.Outcome, d.Attempts, d.NextAt, d.EndedAt, d.Status, d.Error
	o.end(m, next)
	if !m.waits() {
		o.trimEnded(m.key())
		return true, nil
	}
	for _, other := range o.messages {
		if other.waits() && sameSubject(other.Delivery, d) {
			other.NextAt = max(other.NextAt, d.NextAt)
		}
	}
	return true, nil
}

// Deliveries implements journal.Outbox.
func (o *Outbox) Deliveries(_ context.Context, orgID, webhook string, q journal.DeliveryQuery) ([]journal.Delivery, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := journal.WebhookKey{Org: orgID, Name: webhook}
	if o.webhooks[key] == nil {
		return nil, fmt.Errorf("webhook %s: %w", webhook, org.ErrNotFound)
	}
	var all []journal.Delivery
	for _, m := range slices.Backward(o.messages) {
		if m.key() == key {
			all = append(all, m.Delivery)
		}
	}
	if q.Before != "" {
		i := slices.IndexFunc(all, func(d journal.Delivery) bool { return d.ID == q.Before })
		if i < 0 {
			return nil, fmt.Errorf("message %s: %w", q.Before, org.ErrNotFound)
		}
		all = all[i+1:]
	}
	all = slices.DeleteFunc(all, func(d journal.Delivery) bool { return q.Outcome != "" && d.Outcome != q.Outcome })
	return all[:min(max(q.Limit, 0), len(all))], nil
}

// DeleteEnded implements journal.Outbox.
func (o *Outbox) DeleteEnded(_ context.Context, before time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages = slices.DeleteFunc(o.messages, func(m *message) bool { return !m.waits() && m.EndedAt < before.UnixMilli() })
	return nil
}

// OutboxState implements journal.Outbox.
func (o *Outbox) OutboxState(context.Context) (s journal.OutboxState, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var oldest *message
	if s.Waiting, oldest = o.waiting(func(*message) bool { return true }); oldest != nil {
		s.Oldest = oldest.At
	}
	for _, w := range o.webhooks {
		s.GivenUp += w.givenUp
	}
	return s, nil
}

// list returns the webhooks that match.
func (o *Outbox) list(match func(journal.WebhookKey) bool) (out []journal.ListedWebhook) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range o.keys() {
		if !match(key) {
			continue
		}
		w := o.webhooks[key]
		l := journal.ListedWebhook{Webhook: w.Clone(), GivenUp: w.givenUp}
		var oldest *message
		if l.Waiting, oldest = o.waiting(func(m *message) bool { return m.key() == key }); oldest != nil {
			l.Oldest = oldest.At
		}
		out = append(out, l)
	}
	return out
}

// added returns how many webhooks of the org the configuration file does not declare.
func (o *Outbox) added(orgID string) int {
	return len(slices.DeleteFunc(o.list(func(k journal.WebhookKey) bool { return k.Org == orgID }), func(l journal.ListedWebhook) bool { return l.Declared() }))
}

// redeliver makes a message wait again.
func (o *Outbox) redeliver(key journal.WebhookKey, messageID string, at int64) (journal.Delivery, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.webhooks[key]
	i := slices.IndexFunc(o.messages, func(m *message) bool { return m.key() == key && m.ID == messageID })
	switch {
	case w == nil || i < 0:
		return journal.Delivery{}, org.ErrNotFound
	case w.Stopped != "" || o.messages[i].claimedUntil > at:
		return journal.Delivery{}, journal.ErrNotDeliverable
	case !o.messages[i].waits() && o.full(key.Org):
		return journal.Delivery{}, o.Caps.DeliveriesError()
	}
	o.messages[i].Delivery = o.messages[i].Again(at)
	return o.messages[i].Delivery, nil
}

// Webhooks implements journal.Webhooks.
func (o *Orgs) Webhooks(_ context.Context, orgID string) ([]journal.ListedWebhook, error) {
	if o.Outbox == nil {
		return nil, nil
	}
	out := o.Outbox.list(func(k journal.WebhookKey) bool { return k.Org == orgID })
	for i := range out {
		out[i].Sealed, out[i].Previous.Sealed = nil, nil
	}
	return out, nil
}

// AllWebhooks implements journal.Webhooks.
func (o *Orgs) AllWebhooks(context.Context) (out []org.Webhook, err error) {
	if o.Outbox == nil {
		return nil, nil
	}
	for _, l := range o.Outbox.list(func(journal.WebhookKey) bool { return true }) {
		out = append(out, l.Webhook)
	}
	return out, nil
}

// Webhook implements journal.Webhooks.
func (o *Orgs) Webhook(_ context.Context, orgID, name string) (org.Webhook, error) {
	if o.Outbox != nil {
		for _, l := range o.Outbox.list(func(k journal.WebhookKey) bool { return k == journal.WebhookKey{Org: orgID, Name: name} }) {
			return l.Webhook, nil
		}
	}
	return org.Webhook{}, fmt.Errorf("webhook %s: %w", name, org.ErrNotFound)
}

// CreateWebhook implements journal.Webhooks.
func (o *Orgs) CreateWebhook(ctx context.Context, w org.Webhook, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.find(w.Org); err != nil {
		return fmt.Errorf("webhook %s: %w", w.Name, err)
	}
	if o.Outbox == nil {
		return errNoOutbox
	}
	if _, err := o.Webhook(ctx, w.Org, w.Name); err == nil {
		return fmt.Errorf("webhook %s: %w", w.Name, org.ErrExists)
	}
	if o.Caps.Webhooks > 0 && !w.Declared() && o.Outbox.added(w.Org) >= o.Caps.Webhooks {
		return fmt.Errorf("webhook %s: %w", w.Name, o.Caps.WebhooksError())
	}
	o.Outbox.put(w, 0)
	return o.record(w.Org, by, by.WebhookChanged(nil, &w))
}

// UpdateWebhook implements journal.Webhooks.
func (o *Orgs) UpdateWebhook(ctx context.Context, was, w org.Webhook, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, err := o.Webhook(ctx, w.Org, w.Name)
	switch {
	case err != nil:
		return err
	case !before.Same(was):
		return fmt.Errorf("webhook %s: %w", w.Name, org.ErrChanged)
	}
	w.CreatedAt = before.CreatedAt
	o.Outbox.put(w, o.Outbox.clock().UnixMilli())
	return o.record(w.Org, by, by.WebhookChanged(&before, &w))
}

// DeleteWebhook implements journal.Webhooks.
func (o *Orgs) DeleteWebhook(ctx context.Context, orgID, name string, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, err := o.Webhook(ctx, orgID, name)
	if err != nil {
		return err
	}
	o.Outbox.drop(func(k journal.WebhookKey) bool { return k == journal.WebhookKey{Org: orgID, Name: name} })
	return o.record(orgID, by, by.WebhookChanged(&before, nil))
}

// Redeliver implements journal.Webhooks.
func (o *Orgs) Redeliver(_ context.Context, orgID, webhook, messageID string, at time.Time, by org.Author) (journal.Delivery, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.Outbox == nil {
		return journal.Delivery{}, errNoOutbox
	}
	d, err := o.Outbox.redeliver(journal.WebhookKey{Org: orgID, Name: webhook}, messageID, at.UnixMilli())
	if err != nil {
		return d, fmt.Errorf("message %s: %w", messageID, err)
	}
	return d, o.record(orgID, by, by.Redelivered(orgID, messageID))
}
