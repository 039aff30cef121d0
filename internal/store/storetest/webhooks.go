package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func webhookCases() []rule { // L10
	return []rule{
		{"a webhook is stored as it was put", "every byte of its secrets; lists are without them", webhookStored},
		{"a webhook that another request has changed is not replaced", "ErrChanged: a rotation must not undo another one", webhookChanged},
		{"webhooks are capped", "removing one makes room, an existing one can be updated, and those of the configuration file do not count", webhooksCapped},
		{"a change of a webhook is recorded", "in the audit log of the org, without secrets", webhookRecorded},
		{"a missing webhook is not found", "also one of another org", webhookMissing},
	}
}

func outboxCases() []rule { // L10
	return []rule{
		{"an event becomes a message for each webhook that wants it", "in the transaction of the batch; other orgs and other events get none", eventsBecomeMessages},
		{"a batch that is refused leaves no message", "what has not happened is not told", refusedBatchTellsNothing},
		{"a budget tells of 80 and 100 percent once per window", "as the audit log does", budgetsTell},
		{"messages of a subject are delivered in order", "one that has to wait holds back those after it, and no other subject", subjectsInOrder},
		{"a claimed message belongs to its owner", "until the claim is settled, or its time is over", claimsAreExclusive},
		{"a claim takes as much as was asked for", "of each webhook", claimsAreBounded},
		{"a full outbox gives up its oldest message", "of the webhook with the most, so that it cannot grow without end", fullOutbox},
		{"messages that have ended are bounded", "the oldest are deleted, at the latest after their time", endedMessages},
		{"a message can be delivered again", "with the same id, also after it was delivered or given up", redelivered},
		{"a stopped webhook gets nothing", "what waited is given up, and new events are not queued", stoppedWebhook},
		{"messages end with their webhook and their org", "a new one with the same name must not find them", messagesEnd},
	}
}

func outboxPersistenceCases() []rule {
	return []rule{
		{"messages survive a crash", "they are on disk with the batch, and what was claimed can be claimed again", messagesPersist},
	}
}

func (b *testBench) webhook(orgID, name string, events ...string) org.Webhook {
	b.Helper()
	w := org.Webhook{Org: orgID, Name: name, URL: "https://example.com/" + name, Events: events, Sealed: []byte("sealed"), CreatedAt: b.now(), UpdatedAt: b.now()}
	b.ok(b.Webhooks.CreateWebhook(b.Context(), w, org.Author{}))
	return w
}

// withOrgs adds orgs with these ids.
func (b *testBench) withOrgs(ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: id}, org.Author{}))
	}
}

// tell ends a run with notices of these events, whose subject is the run.
func (b *testBench) tell(orgID, runID string, events ...string) {
	b.Helper()
	a := b.begin(orgID, runID)
	var notices []journal.Notice
	for _, e := range events {
		notices = append(notices, journal.Notice{Event: e, Object: "object of " + runID, Subject: runID, At: b.clock.Load()})
	}
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Notices: notices}, loop.Finished{Reason: event.Complete}))
}

// messages returns the messages of a webhook, the latest first.
func (b *testBench) messages(orgID, webhook string) []journal.Delivery {
	b.Helper()
	found, err := b.Outbox.Deliveries(b.Context(), orgID, webhook, journal.DeliveryQuery{Limit: 10_000})
	b.ok(err)
	return found
}

// told fails the case unless the webhook has messages of these events and subjects, the first first.
func (b *testBench) told(orgID, webhook string, want ...string) {
	b.Helper()
	got := []string{}
	for _, d := range b.messages(orgID, webhook) {
		got = append([]string{fmt.Sprintf("%s %s %s", d.Event, d.Subject, d.Outcome)}, got...)
	}
	b.equal(got, append([]string{}, want...))
}

// claimMessages claims up to n messages of the webhook for a minute.
func (b *testBench) claimMessages(orgID, webhook string, n int) []journal.ClaimedDelivery {
	b.Helper()
	claimed, err := b.Outbox.ClaimDeliveries(b.Context(), b.now(), b.now().Add(time.Minute), []journal.ClaimAsk{{WebhookKey: journal.WebhookKey{Org: orgID, Name: webhook}, Max: n}})
	b.ok(err)
	return claimed
}

// checkClaimed claims messages, and fails the case unless they are those of these subjects.
func (b *testBench) checkClaimed(orgID, webhook string, n int, want ...string) []journal.ClaimedDelivery {
	b.Helper()
	claimed := b.claimMessages(orgID, webhook, n)
	got := []string{}
	for _, c := range claimed {
		got = append(got, c.Subject)
	}
	b.equal(got, append([]string{}, want...))
	return claimed
}

func (b *testBench) settleMessage(d journal.Delivery) bool {
	b.Helper()
	ok, err := b.Outbox.SettleDelivery(b.Context(), d)
	b.ok(err)
	return ok
}

// delivered settles a claimed message as delivered.
func (b *testBench) delivered(c journal.ClaimedDelivery) {
	b.Helper()
	d := c.Delivery
	d.Attempts, d.Status = d.Attempts+1, 200
	if !b.settleMessage(d.End(journal.MessageDelivered, "", b.clock.Load())) {
		b.Errorf("message %s was not settled", d.ID)
	}
}

func webhookStored(b *testBench) {
	b.withOrgs("a", "b")
	var full org.Webhook
	fill(&full)
	full.Org = "a"
	b.ok(b.Webhooks.CreateWebhook(b.Context(), full, org.Author{}))
	b.webhook("b", "other", "*")
	got, err := b.Webhooks.Webhook(b.Context(), "a", full.Name)
	b.ok(err)
	b.equal(got, full)
	if got.Sealed[0]++; !got.Same(full) {
		again, err := b.Webhooks.Webhook(b.Context(), "a", full.Name)
		b.ok(err)
		b.equal(again, full)
	}
	shown := full
	shown.Sealed, shown.Previous.Sealed = nil, nil
	listed, err := b.Webhooks.Webhooks(b.Context(), "a")
	b.ok(err)
	b.equal(listed, []journal.ListedWebhook{{Webhook: shown}})
	all, err := b.Webhooks.AllWebhooks(b.Context())
	b.ok(err)
	if len(all) != 2 || !all[0].Same(full) || all[1].Org != "b" || string(all[1].Sealed) != "sealed" {
		b.Errorf("all webhooks: %+v", all)
	}
	next := full
	next.URL, next.Events, next.Sealed, next.Previous, next.Stopped = "https://example.com/next", []string{"*"}, []byte("next"), org.PreviousSealed{}, ""
	next.UpdatedAt = b.now().Add(time.Hour)
	b.ok(b.Webhooks.UpdateWebhook(b.Context(), full, next, org.Author{}))
	got, err = b.Webhooks.Webhook(b.Context(), "a", full.Name)
	b.ok(err)
	b.equal(got, next)
	b.checkError(b.Webhooks.CreateWebhook(b.Context(), full, org.Author{}), org.ErrExists)
	b.ok(b.Webhooks.DeleteWebhook(b.Context(), "a", full.Name, org.Author{}))
	listed, err = b.Webhooks.Webhooks(b.Context(), "a")
	checkEmpty(b, listed, err)
}

func webhookChanged(b *testBench) {
	b.withOrgs("a")
	was := b.webhook("a", "w", "*")
	one, two := was, was
	one.Sealed, two.Sealed = []byte("one"), []byte("two")
	b.ok(b.Webhooks.UpdateWebhook(b.Context(), was, one, org.Author{}))
	b.checkError(b.Webhooks.UpdateWebhook(b.Context(), was, two, org.Author{}), org.ErrChanged)
	got, err := b.Webhooks.Webhook(b.Context(), "a", "w")
	b.ok(err)
	b.equal(got, one)
}

func webhooksCapped(b *testBench) {
	b.capped(org.Caps{Webhooks: 2})
	add := func(name string) error {
		return b.Webhooks.CreateWebhook(b.Context(), org.Webhook{Org: "a", Name: name, Events: []string{"*"}, Sealed: []byte("x")}, org.Author{})
	}
	b.ok(add("one"))
	b.ok(add("two"))
	b.checkCapError(add("three"), "org_caps.webhooks", 2)
	b.checkError(add("two"), org.ErrExists)
	b.webhook("b", "three", "*")
	w, err := b.Webhooks.Webhook(b.Context(), "a", "one")
	b.ok(err)
	b.ok(b.Webhooks.UpdateWebhook(b.Context(), w, w, org.Author{}))
	b.ok(b.Webhooks.DeleteWebhook(b.Context(), "a", "one", org.Author{}))
	declared := org.Webhook{Org: "a", Name: "declared", Events: []string{"*"}}
	b.ok(b.Webhooks.CreateWebhook(b.Context(), declared, org.Author{}))
	b.ok(add("three"))
	b.ok(b.Webhooks.DeleteWebhook(b.Context(), "a", "declared", org.Author{}))
	b.ok(b.Webhooks.CreateWebhook(b.Context(), declared, org.Author{})) // also where there is no room for another one
	w, err = b.Webhooks.Webhook(b.Context(), "a", "declared")
	b.ok(err)
	b.equal(w.Declared(), true)
	b.checkCapError(add("four"), "org_caps.webhooks", 2)
}

func webhookRecorded(b *testBench) {
	b.withOrgs("a")
	by := org.Author{Principal: "key_1", RequestID: "req_1", At: b.clock.Load()}
	w := org.Webhook{Org: "a", Name: "w", URL: "https://example.com/?token=CANARY", Events: []string{"*"}, Sealed: []byte("CANARY")}
	b.ok(b.Webhooks.CreateWebhook(b.Context(), w, by))
	next := w
	next.Sealed = []byte("CANARY-2")
	b.ok(b.Webhooks.UpdateWebhook(b.Context(), w, next, by))
	b.tell("a", "r", org.RunWaiting)
	id := b.messages("a", "w")[0].ID
	_, err := b.Webhooks.Redeliver(b.Context(), "a", "w", id, b.now(), by)
	b.ok(err)
	b.ok(b.Webhooks.DeleteWebhook(b.Context(), "a", "w", by))
	rows := b.rows("a", audit.Query{Limit: 10, Kind: audit.KindManagement}, 4)
	for i, want := range []string{`"action":"create"`, `"action":"rotate"`, `"action":"redeliver"`, `"action":"delete"`} {
		text := string(rows[i].Body)
		if !strings.Contains(text, want) || strings.Contains(text, "CANARY") || rows[i].Principal != "key_1" {
			b.Errorf("row %d of %s is %s, want %s and no secret", i, rows[i].Principal, text, want)
		}
	}
}

func webhookMissing(b *testBench) {
	b.withOrgs("a", "b")
	w := b.webhook("a", "w", "*")
	b.tell("a", "r", org.RunWaiting)
	id := b.messages("a", "w")[0].ID
	w.Org = "nobody"
	b.checkError(b.Webhooks.CreateWebhook(b.Context(), w, org.Author{}), org.ErrNotFound)
	for _, orgID := range []string{"b", "nobody"} {
		w.Org = orgID
		_, err := b.Webhooks.Webhook(b.Context(), orgID, "w")
		b.checkNotFound(err, "webhook w")
		b.checkError(b.Webhooks.UpdateWebhook(b.Context(), w, w, org.Author{}), org.ErrNotFound)
		b.checkNotFound(b.Webhooks.DeleteWebhook(b.Context(), orgID, "w", org.Author{}), "webhook w")
		_, err = b.Outbox.Deliveries(b.Context(), orgID, "w", journal.DeliveryQuery{Limit: 1})
		b.checkError(err, org.ErrNotFound)
		_, err = b.Webhooks.Redeliver(b.Context(), orgID, "w", id, b.now(), org.Author{})
		b.checkError(err, org.ErrNotFound)
		if b.settleMessage(journal.Delivery{ID: id, Org: orgID, Webhook: "w", Outcome: journal.MessageDelivered, EndedAt: 1}) {
			b.Errorf("org %s has settled a message of another one", orgID)
		}
		if claimed := b.claimMessages(orgID, "w", 1); len(claimed) > 0 {
			b.Errorf("org %s has claimed %+v", orgID, claimed)
		}
	}
	_, err := b.Webhooks.Redeliver(b.Context(), "a", "w", "evt_none", b.now(), org.Author{})
	b.checkError(err, org.ErrNotFound)
	_, err = b.Outbox.Deliveries(b.Context(), "a", "w", journal.DeliveryQuery{Before: "evt_none", Limit: 1})
	b.checkError(err, org.ErrNotFound)
	b.told("a", "w", "run.waiting r waiting")
}

func eventsBecomeMessages(b *testBench) {
	b.withOrgs("a", "b")
	b.tell("a", "early", org.ResponseCompleted)
	b.webhook("a", "all", "*")
	b.webhook("a", "responses", "response.*")
	b.webhook("a", "waits", org.RunWaiting, org.BudgetExceeded)
	b.webhook("b", "other", "*")
	b.tell("a", "r1", org.RunWaiting, org.ResponseFailed)
	b.advance(time.Second)
	b.tell("a", "r2", org.ResponseCompleted)
	b.told("a", "all", "run.waiting r1 waiting", "response.failed r1 waiting", "response.completed r2 waiting")
	b.told("a", "responses", "response.failed r1 waiting", "response.completed r2 waiting")
	b.told("a", "waits", "run.waiting r1 waiting")
	b.told("b", "other")
	d := b.messages("a", "waits")[0]
	at := b.clock.Load() - 1000
	want := journal.Delivery{
		ID: d.ID, Org: "a", Webhook: "waits", Notice: journal.Notice{Event: org.RunWaiting, Object: "object of r1", Subject: "r1", At: at},
		Outcome: journal.MessageWaiting, NextAt: at, GiveUpAt: at + journal.GiveUpAfter.Milliseconds(),
	}
	b.equal(d, want)
	if all := b.messages("a", "all"); all[2].ID == d.ID || all[2].Event != d.Event {
		b.Errorf("messages of two webhooks: %+v, %+v", all[2], d)
	}
	listed, err := b.Webhooks.Webhooks(b.Context(), "a")
	b.ok(err)
	if listed[0].Waiting != 3 || listed[0].Oldest != at || listed[1].Waiting != 2 {
		b.Errorf("listed: %+v", listed)
	}
	state, err := b.Outbox.OutboxState(b.Context())
	b.ok(err)
	b.equal(state, journal.OutboxState{Waiting: 6, Oldest: at})
	page, err := b.Outbox.Deliveries(b.Context(), "a", "all", journal.DeliveryQuery{Before: b.messages("a", "all")[0].ID, Outcome: journal.MessageWaiting, Limit: 1})
	b.ok(err)
	b.equal(page, b.messages("a", "all")[1:2])
}

func refusedBatchTellsNothing(b *testBench) {
	b.withOrgs("a")
	b.webhook("a", "w", "*")
	a := b.begin("a", "r")
	b.ok(a.append(b.Context(), journal.Batch{Sync: true}, started("0.0", 1)))
	notices := []journal.Notice{{Event: org.RunWaiting, Object: "r", Subject: "r", At: 1}}
	b.checkError(a.append(b.Context(), journal.Batch{Sync: true, Notices: notices}, started("0.0", 1)), org.ErrExists)
	b.told("a", "w")
	old := *a
	old.lease.Epoch = 1
	a.lease.Epoch = 2
	a.write(input("x"))
	b.checkError(old.append(b.Context(), journal.Batch{Sync: true, Notices: notices}, input("y")), journal.ErrFenced)
	b.told("a", "w")
}

func budgetsTell(b *testBench) {
	b.withOrgs("a", "b")
	b.webhook("a", "w", "budget.*")
	b.webhook("b", "w", "budget.*")
	a := b.begin("a", "r")
	spend := func(id, scope string, amount int64) {
		b.Helper()
		b.ok(a.hold(hold(id, scope, tokens(100), tokens(amount))))
		a.settle(id, tokens(amount))
	}
	spend("1", "org/day/1", 79)
	b.told("a", "w")
	spend("2", "org/day/1", 1)
	spend("3", "org/day/1", 1)
	b.told("a", "w", "budget.threshold org/day/1 waiting")
	spend("4", "org/day/1", 19)
	b.told("a", "w", "budget.threshold org/day/1 waiting", "budget.exceeded org/day/1 waiting")
	b.checkOverBudget(a.hold(hold("5", "org/day/1", tokens(100), tokens(1))), "org/day/1")
	b.told("a", "w", "budget.threshold org/day/1 waiting", "budget.exceeded org/day/1 waiting")
	b.checkOverBudget(a.hold(hold("6", "org/day/2", tokens(100), tokens(101))), "org/day/2") // a refusal alone
	b.told("a", "w", "budget.threshold org/day/1 waiting", "budget.exceeded org/day/1 waiting", "budget.exceeded org/day/2 waiting")
	_, err := b.Slices.Exchange(b.Context(), "a", "owner", []journal.SliceUse{{Budget: hold("", "org/day/3", tokens(100), tokens(0)).Budget, Need: tokens(90)}})
	b.ok(err)
	_, err = b.Slices.Exchange(b.Context(), "a", "owner", []journal.SliceUse{{Budget: hold("", "org/day/3", tokens(100), tokens(0)).Budget, Spent: tokens(85)}})
	b.ok(err)
	if d := b.messages("a", "w")[0]; d.Event != org.BudgetThreshold || d.Object != "org/day/3" || d.At != b.clock.Load() {
		b.Errorf("of a slice: %+v", d)
	}
	b.told("b", "w")
}

func subjectsInOrder(b *testBench) {
	b.withOrgs("a")
	b.webhook("a", "w", "*")
	b.tell("a", "r1", org.RunWaiting, org.ResponseCompleted)
	b.advance(time.Second)
	b.tell("a", "r2", org.ResponseCompleted)
	first := b.checkClaimed("a", "w", 10, "r1", "r2")
	if first[0].Event != org.RunWaiting || first[0].To.URL != "https://example.com/w" || string(first[0].To.Sealed) != "sealed" {
		b.Errorf("claimed %+v", first[0])
	}
	late := first[0].Delivery
	late.Attempts, late.Status, late.Error, late.NextAt = 1, 500, "the receiver has answered 500", b.clock.Load()+5000
	b.settleMessage(late)
	b.delivered(first[1])
	b.advance(4999 * time.Millisecond)
	b.tell("a", "r1b", org.ResponseFailed) // another run
	b.checkClaimed("a", "w", 10, "r1b")
	b.advance(time.Millisecond)
	second := b.checkClaimed("a", "w", 10, "r1")
	if second[0].ID != late.ID || second[0].Attempts != 1 || second[0].Status != 500 || second[0].Error == "" {
		b.Errorf("the second attempt is at %+v", second[0])
	}
	b.checkClaimed("a", "w", 10)
	b.delivered(second[0])
	third := b.checkClaimed("a", "w", 10, "r1")
	if third[0].Event != org.ResponseCompleted || third[0].Attempts != 0 {
		b.Errorf("the next one is %+v", third[0])
	}
	// A message that is added behind one which waits waits as long.
	next := third[0].Delivery
	next.Attempts, next.NextAt = 1, b.clock.Load()+5000
	b.settleMessage(next)
	a := b.begin("a", "r5")
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Notices: []journal.Notice{{Event: org.ResponseFailed, Subject: "r1", At: b.clock.Load()}}}, input("x")))
	due, err := b.Outbox.DueWebhooks(b.Context(), b.now())
	checkEmpty(b, due, err)
	due, err = b.Outbox.DueWebhooks(b.Context(), b.now().Add(5*time.Second))
	b.ok(err)
	b.equal(due, []journal.WebhookKey{{Org: "a", Name: "w"}})
}

func claimsAreExclusive(b *testBench) {
	b.withOrgs("a")
	b.webhook("a", "w", "*")
	b.tell("a", "r", org.RunWaiting)
	claimed := b.checkClaimed("a", "w", 1, "r")
	b.checkClaimed("a", "w", 1)
	due, err := b.Outbox.DueWebhooks(b.Context(), b.now())
	checkEmpty(b, due, err)
	_, err = b.Webhooks.Redeliver(b.Context(), "a", "w", claimed[0].ID, b.now(), org.Author{})
	b.checkError(err, journal.ErrNotDeliverable)
	b.advance(time.Minute)
	b.checkClaimed("a", "w", 1, "r")
	b.delivered(claimed[0]) // the first owner was only slow
	if b.settleMessage(claimed[0].End(journal.MessageGivenUp, "x", 1)) {
		b.Error("a message has ended twice")
	}
	b.advance(time.Hour)
	b.checkClaimed("a", "w", 1)
	b.told("a", "w", "run.waiting r delivered")
}

func claimsAreBounded(b *testBench) {
	b.withOrgs("a", "b")
	b.webhook("a", "w", "*")
	b.webhook("b", "w", "*")
	for i := range 5 {
		b.tell("a", fmt.Sprint("r", i), org.RunWaiting)
		b.tell("b", fmt.Sprint("r", i), org.RunWaiting)
	}
	due, err := b.Outbox.DueWebhooks(b.Context(), b.now())
	b.ok(err)
	b.equal(due, []journal.WebhookKey{{Org: "a", Name: "w"}, {Org: "b", Name: "w"}})
	claimed, err := b.Outbox.ClaimDeliveries(b.Context(), b.now(), b.now().Add(time.Minute), []journal.ClaimAsk{
		{WebhookKey: due[0], Max: 2}, {WebhookKey: due[1], Max: 1}, {WebhookKey: journal.WebhookKey{Org: "c", Name: "w"}, Max: 1},
	})
	b.ok(err)
	if len(claimed) != 3 || claimed[0].Org != "a" || claimed[2].Org != "b" {
		b.Errorf("claimed %+v", claimed)
	}
	b.checkClaimed("a", "w", 0)
	b.checkClaimed("a", "w", 10, "r2", "r3", "r4")
}

func fullOutbox(b *testBench) {
	b.capped(org.Caps{Deliveries: 3})
	b.webhook("a", "busy", "*")
	b.webhook("a", "idle", org.RunWaiting)
	b.webhook("b", "w", "*")
	b.tell("a", "r1", org.RunWaiting) // 1 and 1
	b.advance(time.Second)
	b.tell("a", "r2", org.ResponseFailed)
	b.told("a", "busy", "run.waiting r1 waiting", "response.failed r2 waiting")
	b.checkClaimed("a", "busy", 1, "r1") // it is being delivered: the one after it is given up
	b.tell("b", "r2", org.ResponseFailed)
	b.tell("a", "r3", org.ResponseFailed)
	b.told("a", "busy", "run.waiting r1 waiting", "response.failed r2 given_up", "response.failed r3 waiting")
	b.told("a", "idle", "run.waiting r1 waiting")
	given := b.messages("a", "busy")[1]
	if given.Error != journal.OutboxFull || given.EndedAt != b.clock.Load() {
		b.Errorf("given up: %+v", given)
	}
	listed, err := b.Webhooks.Webhooks(b.Context(), "a")
	b.ok(err)
	if listed[0].Waiting != 2 || listed[0].GivenUp != 1 || listed[1].GivenUp != 0 {
		b.Errorf("listed: %+v", listed)
	}
	state, err := b.Outbox.OutboxState(b.Context())
	b.ok(err)
	if state.Waiting != 4 || state.GivenUp != 1 {
		b.Errorf("state: %+v", state)
	}
	_, err = b.Webhooks.Redeliver(b.Context(), "a", "busy", given.ID, b.now(), org.Author{})
	b.checkCapError(err, "org_caps.webhook_deliveries", 3)
}

func endedMessages(b *testBench) {
	b.withOrgs("a")
	b.webhook("a", "w", "*")
	a := b.begin("a", "r")
	var notices []journal.Notice
	for i := range journal.MaxEnded + 5 {
		notices = append(notices, journal.Notice{Event: org.RunWaiting, Subject: fmt.Sprint("r", i), At: b.clock.Load()})
	}
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Notices: notices}, input("x")))
	for _, c := range b.claimMessages("a", "w", 6) {
		b.clock.Add(1)
		b.delivered(c)
	}
	w, err := b.Webhooks.Webhook(b.Context(), "a", "w")
	b.ok(err)
	stopped := w
	stopped.Stopped = org.StoppedByOrg
	b.clock.Add(1)
	b.ok(b.Webhooks.UpdateWebhook(b.Context(), w, stopped, org.Author{}))
	left := b.messages("a", "w")
	if len(left) != journal.MaxEnded || left[len(left)-1].Subject != "r5" || left[len(left)-1].Outcome != journal.MessageDelivered {
		b.Errorf("%d messages are left, the oldest is %+v", len(left), left[len(left)-1])
	}
	b.ok(b.Outbox.DeleteEnded(b.Context(), b.now()))
	if n := len(b.messages("a", "w")); n != journal.MaxEnded-1 {
		b.Errorf("%d messages are left, want those that have ended now", n)
	}
	b.ok(b.Outbox.DeleteEnded(b.Context(), b.now().Add(time.Millisecond)))
	b.told("a", "w")
}

func redelivered(b *testBench) {
	b.withOrgs("a")
	b.webhook("a", "w", "*")
	b.tell("a", "r1", org.ResponseCompleted)
	b.tell("a", "r2", org.ResponseCompleted)
	claimed := b.checkClaimed("a", "w", 2, "r1", "r2")
	b.delivered(claimed[0])
	lost := claimed[1].Delivery
	lost.Attempts = 3
	b.settleMessage(lost.End(journal.MessageGivenUp, "tried for 72h", b.clock.Load()))
	b.told("a", "w", "response.completed r1 delivered", "response.completed r2 given_up")
	b.advance(time.Hour)
	for _, c := range claimed {
		d, err := b.Webhooks.Redeliver(b.Context(), "a", "w", c.ID, b.now(), org.Author{})
		b.ok(err)
		if d.Outcome != journal.MessageWaiting || d.ID != c.ID || d.NextAt != b.clock.Load() || d.GiveUpAt != b.clock.Load()+journal.GiveUpAfter.Milliseconds() {
			b.Errorf("redelivered: %+v", d)
		}
		b.equal(d, b.messages("a", "w")[map[string]int{"r1": 1, "r2": 0}[c.Subject]])
	}
	again := b.checkClaimed("a", "w", 2, "r1", "r2")
	if again[0].ID != claimed[0].ID || again[1].ID != claimed[1].ID {
		b.Errorf("the messages have other ids: %+v", again)
	}
	// One that waits for its next attempt is tried at once.
	late := again[0].Delivery
	late.NextAt = b.clock.Load() + time.Hour.Milliseconds()
	b.settleMessage(late)
	b.checkClaimed("a", "w", 1)
	_, err := b.Webhooks.Redeliver(b.Context(), "a", "w", late.ID, b.now(), org.Author{})
	b.ok(err)
	b.checkClaimed("a", "w", 1, "r1")
}

func stoppedWebhook(b *testBench) {
	b.withOrgs("a")
	w := b.webhook("a", "w", "*")
	b.tell("a", "r1", org.RunWaiting)
	b.tell("a", "r2", org.RunWaiting)
	claimed := b.checkClaimed("a", "w", 1, "r1")
	stopped := w
	stopped.Stopped = org.StoppedGone
	b.ok(b.Webhooks.UpdateWebhook(b.Context(), w, stopped, org.Author{}))
	b.tell("a", "r3", org.RunWaiting)
	b.told("a", "w", "run.waiting r1 given_up", "run.waiting r2 given_up")
	if d := b.messages("a", "w")[0]; d.Error != journal.WebhookStopped || d.EndedAt == 0 {
		b.Errorf("given up: %+v", d)
	}
	if b.settleMessage(claimed[0].End(journal.MessageDelivered, "", 1)) {
		b.Error("a message that was given up is delivered")
	}
	_, err := b.Webhooks.Redeliver(b.Context(), "a", "w", claimed[0].ID, b.now(), org.Author{})
	b.checkError(err, journal.ErrNotDeliverable)
	due, err := b.Outbox.DueWebhooks(b.Context(), b.now())
	checkEmpty(b, due, err)
	b.ok(b.Webhooks.UpdateWebhook(b.Context(), stopped, w, org.Author{}))
	b.tell("a", "r4", org.RunWaiting)
	b.checkClaimed("a", "w", 9, "r4")
}

func messagesEnd(b *testBench) {
	b.withOrgs("a", "b")
	b.webhook("a", "w", "*")
	b.webhook("a", "kept", "*")
	b.webhook("b", "w", "*")
	b.tell("a", "r1", org.RunWaiting)
	b.tell("b", "r1", org.RunWaiting)
	claimed := b.checkClaimed("a", "w", 1, "r1")
	b.ok(b.Webhooks.DeleteWebhook(b.Context(), "a", "w", org.Author{}))
	b.webhook("a", "w", "*")
	b.told("a", "w")
	b.told("a", "kept", "run.waiting r1 waiting")
	if b.settleMessage(claimed[0].End(journal.MessageDelivered, "", 1)) {
		b.Error("the message of a webhook that was deleted is settled")
	}
	b.ok(b.Orgs.DeleteOrg(b.Context(), "b", org.Author{}))
	all, err := b.Webhooks.AllWebhooks(b.Context())
	b.ok(err)
	if len(all) != 2 {
		b.Errorf("webhooks after the end of an org: %+v", all)
	}
	c := b.begin("b", "late") // a run of an org that was deleted
	b.ok(c.append(b.Context(), journal.Batch{Sync: true, Notices: []journal.Notice{{Event: org.RunWaiting, Subject: "late", At: 1}}}, input("x")))
	state, err := b.Outbox.OutboxState(b.Context())
	b.ok(err)
	if state.Waiting != 1 {
		b.Errorf("state: %+v", state)
	}
}

func messagesPersist(b *testBench) {
	b.withOrgs("a")
	w := b.webhook("a", "w", "*")
	b.tell("a", "r1", org.RunWaiting)
	claimed := b.checkClaimed("a", "w", 1, "r1")
	b.Store = b.maker.Crash(b.T, b.Store)
	b.ownersGone()
	b.tell("a", "r2", org.RunWaiting)
	again := b.checkClaimed("a", "w", 2, "r1", "r2")
	if again[0].ID != claimed[0].ID || !again[0].To.Same(w) {
		b.Errorf("claimed %+v before the crash, and %+v after it", claimed[0], again[0])
	}
}
