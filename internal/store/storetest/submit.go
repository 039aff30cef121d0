package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

func submitCases() []rule { // P24
	return []rule{
		{"a key belongs to one run", "a repeated request gets the id of its run and the hash of the first request, and stores nothing", repeatedKey},
		{"the key is checked before the slots", "a repeated request must find its run even if the org has no free slot", keyBeforeSlot},
		{"a refused opening does not take its key", "the client may send the request again", keyOfRefused},
		{"a key is scoped to its principal", "the same text of another principal or org is another key", foreignKeys},
		{"a key expires after a day", "after SubmitKeyTTL and not before", keyExpires},
		{"64 concurrent requests with one key make one run", "all of them get the id of that run", keyRace},
	}
}

func terms(principal, key, hash string) journal.Opening {
	return journal.Opening{Slots: slots, Key: &journal.SubmitKey{Principal: principal, Key: key, Hash: hash}}
}

// checkSubmitted fails the case unless err is a *journal.Submitted equal to want.
func (b *testBench) checkSubmitted(err error, want journal.Submitted) {
	b.Helper()
	var got *journal.Submitted
	if !errors.As(err, &got) {
		b.Fatalf("got error %v, want a *journal.Submitted", err)
	}
	b.equal(*got, want)
}

func repeatedKey(b *testBench) {
	a := b.author("a", "first")
	b.ok(a.open(terms("p", "k", "hash 1")))
	for _, hash := range []string{"hash 1", "hash 2"} {
		b.checkSubmitted(b.author("a", "second").open(terms("p", "k", hash)), journal.Submitted{RunID: "first", Hash: "hash 1"})
		b.checkMissing("a", "second")
	}
	a.write(loop.Finished{Reason: event.Complete})
	b.checkSubmitted(b.author("a", "second").open(terms("p", "k", "hash 1")), journal.Submitted{RunID: "first", Hash: "hash 1"})
	b.ok(b.author("a", "second").open(terms("p", "other", "hash 1")))
}

func keyBeforeSlot(b *testBench) {
	b.ok(b.author("a", "first").open(terms("p", "k", "h")))
	full := terms("p", "k", "h")
	full.Slots = 1
	b.checkSubmitted(b.author("a", "second").open(full), journal.Submitted{RunID: "first", Hash: "h"})
}

func keyOfRefused(b *testBench) {
	first := b.begin("a", "first")
	full := terms("p", "k", "h")
	full.Slots = 1
	b.checkError(b.author("a", "second").open(full), journal.ErrNoSlot)
	first.write(loop.Finished{Reason: event.Complete})
	b.ok(b.author("a", "third").open(full))
}

func foreignKeys(b *testBench) {
	b.ok(b.author("a", "p's").open(terms("p", "k", "1")))
	b.ok(b.author("a", "q's").open(terms("q", "k", "2")))
	b.ok(b.author("b", "theirs").open(terms("p", "k", "3")))
	b.checkSubmitted(b.author("a", "x").open(terms("p", "k", "1")), journal.Submitted{RunID: "p's", Hash: "1"})
	b.checkSubmitted(b.author("a", "x").open(terms("q", "k", "1")), journal.Submitted{RunID: "q's", Hash: "2"})
	b.checkSubmitted(b.author("b", "x").open(terms("p", "k", "1")), journal.Submitted{RunID: "theirs", Hash: "3"})
}

func keyExpires(b *testBench) {
	b.ok(b.author("a", "first").open(terms("p", "k", "1")))
	b.advance(journal.SubmitKeyTTL / 2)
	b.ok(b.author("a", "young").open(terms("p", "young", "1")))
	b.advance(journal.SubmitKeyTTL/2 - time.Millisecond)
	b.checkSubmitted(b.author("a", "second").open(terms("p", "k", "2")), journal.Submitted{RunID: "first", Hash: "1"})
	b.advance(time.Millisecond)
	b.ok(b.author("a", "second").open(terms("p", "k", "2")))
	b.checkSubmitted(b.author("a", "third").open(terms("p", "k", "3")), journal.Submitted{RunID: "second", Hash: "2"})
	b.checkSubmitted(b.author("a", "third").open(terms("p", "young", "3")), journal.Submitted{RunID: "young", Hash: "1"})
}

func keyRace(b *testBench) {
	const callers = 64
	var group errgroup.Group
	var opened atomic.Int64
	var heard [callers]string
	for i := range callers {
		a := b.author("a", fmt.Sprint("run ", i))
		group.Go(func() error {
			var s *journal.Submitted
			switch err := a.open(terms("p", "k", "h")); {
			case err == nil:
				opened.Add(1)
				heard[i] = a.lease.RunID
			case errors.As(err, &s):
				heard[i] = s.RunID
			default:
				return err
			}
			return nil
		})
	}
	b.ok(group.Wait())
	runs, err := b.Archive.Runs(b.Context(), "a", journal.Query{Limit: 2 * callers})
	b.ok(err)
	if opened.Load() != 1 || len(runs) != 1 {
		b.Fatalf("%d callers opened a run and %d are stored, want one", opened.Load(), len(runs))
	}
	for _, runID := range heard {
		if runID != runs[0].RunID {
			b.Errorf("a caller got run %s, want %s", runID, runs[0].RunID)
		}
	}
}
