package storetest

import (
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func forgetCases() []rule {
	return []rule{
		{"a run that is to be forgotten is deleted after its end", "not before callers that are slow had time to read it", func(b *testBench) {
			asked := b.author("a", "asked")
			body := accepted("a", "asked")
			body.NoStore = true
			asked.write(body)
			later, others := b.begin("a", "later"), b.begin("b", "later")
			b.ok(b.LaterDeleter.DeleteLater(b.Context(), "a", "later"))
			b.ok(b.LaterDeleter.DeleteLater(b.Context(), "a", "none"))
			b.advance(2 * journal.DeleteAfter)
			b.stored(true, asked, later, others) // they run
			for _, a := range []*author{asked, later, others} {
				a.write(loop.Finished{Reason: event.Complete})
			}
			b.advance(journal.DeleteAfter)
			b.stored(true, asked, later, others)
			b.advance(time.Millisecond)
			b.stored(false, asked, later)
			b.stored(true, others)
		}},
		{"a run that is to be forgotten is kept as long as its key", "a repeat of the request must not run again", func(b *testBench) {
			keyed := b.author("a", "keyed")
			b.ok(keyed.open(terms("p", "k", "h")))
			keyed.write(loop.Finished{Reason: event.Complete})
			b.ok(b.LaterDeleter.DeleteLater(b.Context(), "a", "keyed"))
			b.advance(journal.SubmitKeyTTL - time.Millisecond)
			b.stored(true, keyed)
			b.advance(time.Millisecond)
			b.stored(false, keyed)
		}},
	}
}

// stored fails the case unless the runs are stored, or not, after the store has deleted what
// is to be deleted.
func (b *testBench) stored(want bool, runs ...*author) {
	b.Helper()
	b.Sweep(b.T)
	for _, a := range runs {
		_, err := b.Archive.Load(b.Context(), a.lease.Org, a.lease.RunID)
		if want {
			b.ok(err)
		} else {
			b.checkError(err, org.ErrNotFound)
		}
	}
}
