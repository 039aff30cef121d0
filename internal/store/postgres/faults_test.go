package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// once returns a rule of one fault, for the next statement.
func once(statement string, what fault) func(string) fault {
	var done atomic.Bool
	return func(text string) fault {
		if text == statement && !done.Swap(true) {
			return what
		}
		return none
	}
}

// A connection that ends during a write does not lose it and does not store it twice.
func TestCutConnections(t *testing.T) {
	r := newReplicas(t, 1, org.Caps{})
	r.withOrgs("a")
	s, p := r.proxied(org.Caps{})
	writer := r.begin(s, "a", "r", loop.Durable)
	light := r.begin(s, "a", "l", loop.Light)
	for _, where := range []struct {
		statement string
		what      fault
	}{
		{"BEGIN", cutBefore}, {"BEGIN", cutAfter}, {"BEGIN", cutAnswer}, {"COMMIT", cutBefore}, {"COMMIT", cutAfter}, {"COMMIT", cutAnswer},
	} {
		for _, w := range []*pen{writer, light} {
			p.set(once(where.statement, where.what))
			if err := w.append(journal.Batch{Sync: true}, input("x")); err != nil {
				t.Errorf("%s, %d: %v", where.statement, where.what, err)
			}
			p.set(nil)
			if got := len(w.stored()); got != int(w.seq)-1 {
				t.Errorf("%s, %d: %d facts are stored, want %d", where.statement, where.what, got, w.seq-1)
			}
		}
	}
}

// A server that gives no answer is not waited for: what became of the commit is looked up.
func TestStalledCommit(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 1, org.Caps{})
	r.withOrgs("a")
	s, p := r.proxied(org.Caps{})
	writer := r.begin(s, "a", "r", loop.Durable)
	p.set(once("COMMIT", stallAnswer))
	r.ok(writer.append(journal.Batch{Sync: true}, input("x")))
	if got := len(writer.stored()); got != 1 {
		t.Errorf("%d facts are stored", got)
	}
}

// A process that was stopped in the middle of a transaction does not keep others from writing for the org.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 1, org.Caps{})
	r.withOrgs("a")
	s, p := r.proxied(org.Caps{})
	stopped := r.begin(s, "a", "r", loop.Durable)
	other := r.begin(r.stores[0], "a", "s", loop.Durable)
	p.set(once("COMMIT", stall))
	done := make(chan error, 1)
	go func() { done <- stopped.append(journal.Batch{Sync: true}, input("x")) }()
	r.await(r.stores[0].DB(), `SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%org_usage%'
		AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'run_facts'::regclass)`, done)
	other.write(input("y"))
	p.close()
	if err := <-done; err == nil || len(stopped.stored()) > 0 {
		t.Errorf("the append of the process that was stopped has the error %v, and stored %q", err, stopped.stored())
	}
}

// What is answered with success is stored once, and what is answered with an error is not stored, or it is said that nobody knows.
func TestManyCutConnections(t *testing.T) {
	r := newReplicas(t, 1, org.Caps{})
	r.withOrgs("a", "b", "c")
	for range 2 {
		s, p := r.proxied(org.Caps{})
		r.stores = append(r.stores, s)
		p.set(func(text string) fault {
			if text == "BEGIN" || text == "COMMIT" || strings.HasPrefix(text, "SAVEPOINT") {
				if n := rand.IntN(24); n < 3 {
					return fault(n + 1)
				}
			}
			return none
		})
	}
	var failed, unknown atomic.Int64
	r.each(9, func(i int) error {
		w := r.pen(r.stores[1+i%2], string(rune('a'+i%3)), fmt.Sprint("run ", i))
		if err := w.append(journal.Batch{Sync: true}, w.accepted(grades()[i%2])); err != nil {
			return fmt.Errorf("open: %w", err)
		}
		for n := range 12 {
			ref := fmt.Sprint(n)
			err := w.append(journal.Batch{Sync: n%3 != 0}, input(ref))
			if err == nil && n%3 == 0 {
				err = w.append(journal.Batch{Sync: true})
			}
			times := 0
			story, loadErr := r.stores[0].Load(t.Context(), w.lease.Org, w.lease.RunID)
			if loadErr != nil {
				return loadErr
			}
			for _, said := range said(story.Facts) {
				if said == ref {
					times++
				}
			}
			switch {
			case err == nil && times != 1:
				return fmt.Errorf("run %d: fact %d was stored %d times", i, n, times)
			case err != nil && times != 0 && !strings.Contains(err.Error(), "is not known"):
				return fmt.Errorf("run %d: fact %d was stored %d times, and its append failed: %w", i, n, times, err)
			case err != nil:
				failed.Add(1)
				if strings.Contains(err.Error(), "is not known") {
					unknown.Add(1)
				}
				w.seq = story.Last()
				if errors.Is(err, journal.ErrFenced) {
					lease, ok, err := w.store.ClaimRun(t.Context(), "owner", w.lease.Key())
					if err != nil || !ok {
						return fmt.Errorf("claim: %t, %w", ok, err)
					}
					w.lease = lease
				}
			}
		}
		return nil
	})
	t.Logf("%d appends failed, of which the result of %d is not known", failed.Load(), unknown.Load())
	r.checkUsage()
}

// An operator ends the sessions of the stores.
func TestTerminatedSessions(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a", "b", "c")
	written, ended := make(chan struct{}, 1000), make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			if _, more := <-written; !more {
				ended <- nil
				return
			}
			if n%6 != 0 {
				continue
			}
			if _, err := r.stores[0].DB().ExecContext(t.Context(), `SELECT pg_terminate_backend(a.pid) FROM pg_locks l
				JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND a.application_name = ? LIMIT 1`,
				r.maker.options.Schema); err != nil {
				ended <- err
				return
			}
		}
	}()
	o := r.maker.options
	o.URL += "&application_name=" + o.Schema
	c, err := o.Connector()
	r.ok(err)
	stores := []*pen{}
	for i := range 2 {
		s := r.openOn(c, org.Caps{})
		for n := range 3 {
			stores = append(stores, r.pen(s, string(rune('a'+n)), fmt.Sprint("run ", i, n)))
		}
	}
	var failed atomic.Int64
	r.each(len(stores), func(i int) error {
		w := stores[i]
		for n := range 20 {
			body := input(fmt.Sprint(n))
			if w.seq == 0 {
				body = w.accepted(loop.Durable)
			}
			err := w.append(journal.Batch{Sync: true}, body)
			written <- struct{}{}
			if err != nil {
				failed.Add(1)
				story, loadErr := r.stores[0].Load(t.Context(), w.lease.Org, w.lease.RunID)
				if loadErr != nil && !errors.Is(loadErr, org.ErrNotFound) {
					return loadErr
				}
				if story.Last() != w.seq {
					return fmt.Errorf("run %d has %d facts, want %d, after %w", i, story.Last(), w.seq, err)
				}
			}
		}
		return nil
	})
	close(written)
	r.ok(<-ended)
	for i, w := range stores {
		if n := len(w.stored()); n != int(w.seq)-1 {
			t.Errorf("run %d has %d facts, want %d", i, n, w.seq-1)
		}
	}
	t.Logf("%d appends failed", failed.Load())
}
