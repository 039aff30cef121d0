package storetest

import (
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func hookMessageCases() []rule { // H14
	return []rule{
		{"the end of a run leaves a message for each hook", "in the transaction of the end; a reader gets what is stored of the run with it", hooksGetMessages},
		{"a batch that is refused leaves no message for a hook", "what has not happened is not told", refusedBatchTellsNoHook},
		{"a claimed message for a hook belongs to its owner", "until the claim is settled, or its time is over; other orgs and hooks are not touched", hookClaimsAreExclusive},
		{"a message for a hook is settled once", "with its audit rows; what has ended is not sent again", hookMessagesSettle},
		{"messages for hooks that wait are capped", "the oldest that nobody sends is given up, so that they cannot grow without end", hookMessagesCapped},
		{"a message for a hook that is gone is deleted", "one that has ended stays with its run", hookMessagesDropped},
		{"messages for hooks end with their run and their org", "what is deleted is told nobody", hookMessagesEnd},
	}
}

func hookMessagePersistenceCases() []rule {
	return []rule{
		{"messages for hooks survive a crash", "they are on disk with the end of the run, with the same id, and what was claimed can be claimed again", hookMessagesPersist},
	}
}

// hookMessage returns a message of the run, which names the hook in its id.
func (b *testBench) hookMessage(orgID, runID, hook string) journal.HookMessage {
	return journal.HookMessage{
		ID: runID + "." + hook, Org: orgID, RunID: runID, Hook: hook, Agent: hook == "own", Position: 3, AnswerRef: "turn:0", At: b.clock.Load(), Outcome: journal.HookWaiting,
	}
}

// tellHooks ends a run with messages for these hooks.
func (b *testBench) tellHooks(orgID, runID string, hooks ...string) {
	b.Helper()
	b.ok(b.endFor(b.begin(orgID, runID), hooks...))
}

func (b *testBench) endFor(a *author, hooks ...string) error {
	batch := journal.Batch{Sync: true}
	for _, h := range hooks {
		batch.HookMessages = append(batch.HookMessages, b.hookMessage(a.lease.Org, a.lease.RunID, h))
	}
	return a.append(b.Context(), batch, loop.Finished{Reason: event.Complete})
}

// claimHooks claims up to n messages of a hook for a minute.
func (b *testBench) claimHooks(orgID, hook string, n int) []journal.HookMessage {
	b.Helper()
	claimed, err := b.HookMessages.ClaimHookMessages(b.Context(), b.now(), b.now().Add(time.Minute), []journal.HookAsk{{HookKey: journal.HookKey{Org: orgID, Hook: hook}, Max: n}})
	b.ok(err)
	return claimed
}

func (b *testBench) hooksDue(want ...journal.HookKey) {
	b.Helper()
	due, err := b.HookMessages.DueHooks(b.Context(), b.now())
	b.ok(err)
	b.equal(append([]journal.HookKey{}, due...), append([]journal.HookKey{}, want...))
}

// hooksTold fails the case unless the run has messages with these hooks and outcomes.
func (b *testBench) hooksTold(orgID, runID string, want ...string) []journal.HookMessage {
	b.Helper()
	found, err := b.HookMessages.HookMessages(b.Context(), orgID, runID)
	b.ok(err)
	got := []string{}
	for _, m := range found {
		got = append(got, fmt.Sprint(m.Hook, " ", m.Outcome))
	}
	b.equal(got, append([]string{}, want...))
	return found
}

func hooksGetMessages(b *testBench) {
	b.tellHooks("a", "r", "h", "own")
	b.tellHooks("b", "r", "h")
	b.hooksDue(journal.HookKey{Org: "a", Hook: "h"}, journal.HookKey{Org: "a", Hook: "own"}, journal.HookKey{Org: "b", Hook: "h"})
	want := []journal.HookMessage{b.hookMessage("a", "r", "h"), b.hookMessage("a", "r", "own")}
	for i := range want {
		want[i].Principal, want[i].Model, want[i].Surface = "key of a", "m", "chat"
	}
	b.equal(b.hooksTold("a", "r", "h waiting", "own waiting"), want)
	b.equal(b.claimHooks("a", "own", 5), want[1:])
	b.hooksTold("a", "none")
}

func refusedBatchTellsNoHook(b *testBench) {
	a := b.begin("a", "r")
	old := *a
	a.lease.Epoch = 2
	a.write(input("x"))
	b.checkError(b.endFor(&old, "h"), journal.ErrFenced)
	b.hooksTold("a", "r")
	b.hooksDue()
	b.ok(b.endFor(a, "h"))
	b.hooksTold("a", "r", "h waiting")
}

func hookClaimsAreExclusive(b *testBench) {
	for _, run := range []string{"r1", "r2", "r3"} {
		b.tellHooks("a", run, "h", "other")
	}
	b.tellHooks("b", "r1", "h")
	first := b.claimHooks("a", "h", 2)
	if len(first) != 2 || first[0].RunID != "r1" || first[1].RunID != "r2" {
		b.Fatalf("claimed %+v", first)
	}
	if rest := b.claimHooks("a", "h", 5); len(rest) != 1 || rest[0].RunID != "r3" {
		b.Errorf("then claimed %+v", rest)
	}
	checkEmpty(b, b.claimHooks("a", "h", 5), nil)
	b.hooksDue(journal.HookKey{Org: "a", Hook: "other"}, journal.HookKey{Org: "b", Hook: "h"})
	checkEmpty(b, b.claimHooks("a", "other", 0), nil)
	b.advance(time.Minute)
	if again := b.claimHooks("a", "h", 5); len(again) != 3 || again[0].ID != first[0].ID {
		b.Errorf("after the time of the claim: %+v", again)
	}
}

func hookMessagesSettle(b *testBench) {
	b.tellHooks("a", "r", "h", "i")
	m := b.claimHooks("a", "h", 1)[0].End(journal.HookTimedOut, b.now(), 1500*time.Microsecond)
	settle := func(m journal.HookMessage, want bool) {
		b.Helper()
		settled, err := b.HookMessages.SettleHookMessage(b.Context(), m, m.Entry())
		b.ok(err)
		b.equal(settled, want)
	}
	settle(m, true)
	b.equal(b.hooksTold("a", "r", "h timed_out", "i waiting")[0], m)
	settle(m.End(journal.HookSucceeded, b.now(), 0), false)
	b.hooksTold("a", "r", "h timed_out", "i waiting")
	rows := b.auditRows("a", "r", 1)
	if len(rows) != 1 || rows[0].Kind != audit.KindHook || rows[0].Principal != "key of a" {
		b.Errorf("the audit log has %+v", rows)
	}
	b.advance(time.Hour)
	b.hooksDue(journal.HookKey{Org: "a", Hook: "i"})
}

func hookMessagesCapped(b *testBench) {
	b.capped(org.Caps{Deliveries: 2})
	b.tellHooks("a", "r1", "h")
	b.tellHooks("a", "r2", "h")
	b.claimHooks("a", "h", 1)
	b.tellHooks("b", "r1", "h")
	b.tellHooks("a", "r3", "h") // r1 is being sent
	b.hooksTold("a", "r1", "h waiting")
	b.hooksTold("a", "r2", "h given_up")
	b.hooksTold("a", "r3", "h waiting")
	b.hooksTold("b", "r1", "h waiting")
}

func hookMessagesDropped(b *testBench) {
	b.tellHooks("a", "r", "h", "i")
	for _, one := range []string{"h", "i"} {
		m := b.claimHooks("a", one, 1)[0]
		if one == "i" {
			_, err := b.HookMessages.SettleHookMessage(b.Context(), m.End(journal.HookSucceeded, b.now(), 1))
			b.ok(err)
		}
		b.ok(b.HookMessages.DropHookMessage(b.Context(), "b", m.ID))
		b.ok(b.HookMessages.DropHookMessage(b.Context(), "a", m.ID))
	}
	b.hooksTold("a", "r", "i succeeded")
}

func hookMessagesEnd(b *testBench) {
	b.withOrgs("a", "b")
	for _, orgID := range []string{"a", "b"} {
		b.tellHooks(orgID, "r", "h")
		b.tellHooks(orgID, "kept", "h")
	}
	b.ok(b.LaterDeleter.DeleteLater(b.Context(), "b", "r"))
	b.advance(journal.DeleteAfter + time.Millisecond)
	b.Sweep(b.T)
	b.begin("c", "next")
	b.hooksTold("b", "r")
	b.hooksTold("b", "kept", "h waiting")
	b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
	b.hooksTold("a", "r")
	b.hooksTold("a", "kept")
	b.hooksDue(journal.HookKey{Org: "b", Hook: "h"})
}

func hookMessagesPersist(b *testBench) {
	b.tellHooks("a", "r1", "h")
	first := b.claimHooks("a", "h", 1)
	b.Store = b.maker.Crash(b.T, b.Store)
	b.ownersGone()
	b.tellHooks("a", "r2", "h")
	again := b.claimHooks("a", "h", 5)
	if len(again) != 2 || again[0].ID != first[0].ID || again[1].RunID != "r2" {
		b.Errorf("claimed %+v before the crash, and %+v after it", first, again)
	}
}
