package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// during holds what a statement has changed in a transaction of another replica, starts do, commits when do waits for it or has
// ended, and returns the error of do.
func (r *replicas) during(text string, do func() error) error {
	r.Helper()
	db := r.stores[0].DB()
	tx, err := db.BeginTx(r.Context(), nil)
	r.ok(err)
	defer func() { _ = tx.Rollback() }()
	var pid int
	r.ok(tx.QueryRowContext(r.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	_, err = tx.ExecContext(r.Context(), text)
	r.ok(err)
	done := make(chan error, 1)
	go func() { done <- do() }()
	r.await(db, `SELECT count(*) FROM pg_stat_activity WHERE ? = ANY (pg_blocking_pids(pid))`, done, pid)
	r.ok(tx.Commit())
	return <-done
}

// await waits until a query has a number above 0, or something is done. It puts back what is in done.
func (r *replicas) await(db *sql.DB, query string, done chan error, args ...any) {
	r.Helper()
	for n := 0; n == 0; runtime.Gosched() {
		select {
		case err := <-done:
			done <- err
			return
		default:
			r.ok(db.QueryRowContext(r.Context(), query, args...).Scan(&n))
		}
	}
}

// What retention has found and another replica changes meanwhile is not deleted.
func TestRetentionKeepsWhatIsRenewed(t *testing.T) {
	r := newReplicas(t, 2, org.Caps{})
	r.withOrgs("a")
	key := journal.ConversationKey{Kind: journal.CallID, ID: "c"}
	clean := func() error {
		_, err := r.stores[1].DeleteFinished(t.Context(), r.now())
		return err
	}
	for _, one := range []struct {
		name, change, count string
		store               func()
	}{
		{"a conversation", `UPDATE conversations SET expires_at = %d WHERE principal = 'p'`, `SELECT count(*) FROM conversation_keys`, func() {
			r.ok(r.stores[0].Save(t.Context(), "a", "p", journal.Conversation{RunID: "x"}, time.Hour, key))
		}},
		{"a key", `UPDATE submit_keys SET expires_at = %d`, `SELECT count(*) FROM submit_keys`, func() {
			p := r.pen(r.stores[0], "a", "r")
			opening := &journal.Opening{Key: &journal.SubmitKey{Principal: "p", Key: "k", Hash: "h"}}
			r.ok(p.append(journal.Batch{Sync: true, Opening: opening}, p.accepted(loop.Light)))
		}},
		{"a list", `UPDATE shared_lists SET uses = %d`, `SELECT count(*) FROM shared_lists`, func() {
			parts := journal.Conversation{Parts: partIDs(100)}
			r.ok(r.stores[0].Save(t.Context(), "a", "", parts, journal.Kept, journal.ConversationKey{Kind: journal.SessionID, ID: "s"}))
			postgresExec(r, `UPDATE shared_lists SET uses = uses - 1`)
		}},
	} {
		one.store()
		if r.count(one.count) == 0 {
			t.Fatalf("%s was not stored", one.name)
		}
		r.advance(48 * time.Hour)
		r.ok(r.during(fmt.Sprintf(one.change, r.now().Add(time.Hour).UnixMilli()), clean))
		if r.count(one.count) == 0 {
			t.Errorf("%s was deleted that was not due any more", one.name)
		}
	}
	r.ok(r.stores[0].Save(t.Context(), "b", "p", journal.Conversation{RunID: "x"}, time.Minute, key))
	r.advance(time.Minute)
	r.ok(r.during(`UPDATE conversations SET expires_at = `+fmt.Sprint(r.now().Add(time.Hour).UnixMilli())+` WHERE org = 'b'`, func() error {
		other := journal.ConversationKey{Kind: journal.CallID, ID: "d"}
		return r.stores[1].Save(t.Context(), "a", "p", journal.Conversation{RunID: "y"}, time.Hour, other)
	}))
	if r.count(`SELECT count(*) FROM conversations WHERE org = 'b'`) == 0 {
		t.Error("a conversation of another org was deleted that was not due any more")
	}
}

// Retention over many orgs on two replicas, while all of them write: nothing waits in a circle, and sums stay right.
func TestRetentionWhileOthersWrite(t *testing.T) {
	r := newReplicas(t, 1, org.Caps{})
	w := &watcher{}
	r.stores = append(r.stores, r.watched(w, org.Caps{}), r.watched(w, org.Caps{}))
	const orgs = 6
	for i := range orgs {
		r.withOrgs(fmt.Sprint("o", i))
	}
	parts := partIDs(60)
	work := func(round int) {
		r.each(3*orgs, func(i int) error {
			orgID := fmt.Sprint("o", i%orgs)
			p := r.pen(r.of(1+i%2), orgID, fmt.Sprint("run ", round, " ", i))
			opening := &journal.Opening{Key: &journal.SubmitKey{Principal: "p", Key: p.lease.RunID, Hash: "h"}}
			rows := []journal.Row{{Ref: "parts", Value: journal.Parts(parts[:30+i])}}
			if err := p.append(journal.Batch{Sync: true, Opening: opening, Rows: rows}, p.accepted(grades()[i%2])); err != nil {
				return err
			}
			if err := p.append(journal.Batch{}, input("x")); err != nil {
				return err
			}
			if err := p.append(journal.Batch{Sync: true}, finish()); err != nil {
				return err
			}
			key := journal.ConversationKey{Kind: journal.CallID, ID: fmt.Sprint(round, i)}
			return p.store.Save(t.Context(), orgID, "", journal.Conversation{Parts: parts[:30+i]}, time.Minute, key)
		})
	}
	work(0)
	r.advance(72 * time.Hour)
	var deleted atomic.Int64
	var sweepers errgroup.Group
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 2 {
		sweepers.Go(func() error {
			for ctx.Err() == nil {
				n, err := r.stores[1+i].DeleteFinished(t.Context(), r.now().Add(-time.Hour))
				if err != nil {
					return err
				}
				deleted.Add(int64(n))
				if _, err := r.stores[1+i].DeleteForgotten(t.Context()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	work(1)
	work(2)
	cancel()
	r.ok(sweepers.Wait())
	if n := deleted.Load(); n != 3*orgs {
		t.Errorf("%d runs were deleted, want %d", n, 3*orgs)
	}
	if n := r.count(`SELECT count(*) FROM runs`); n != 6*orgs {
		t.Errorf("%d runs are left, want %d", n, 6*orgs)
	}
	if n := w.code("40P01"); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
	r.checkUsage()
}

// An org is deleted while others write for it: nothing is left that a new org with its id could read, but the runs that go on.
func TestOrgIsDeletedWhileOthersWrite(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a", "b")
	var refused atomic.Int64
	r.each(12, func(i int) error {
		if i == 6 {
			return r.of(i).DeleteOrg(t.Context(), "a", org.Author{Principal: org.Operator, At: r.wall.Load()})
		}
		p := r.pen(r.of(i), "a", fmt.Sprint("run ", i))
		if err := p.append(journal.Batch{Sync: true}, p.accepted(grades()[i%2])); err != nil {
			return err
		}
		for n := range 4 {
			name := fmt.Sprint("k", i, n)
			key := org.Key{Org: "a", ID: name, Name: name, Role: org.Owner, Hash: [32]byte{byte(i), byte(n)}, CreatedAt: r.now()}
			err := r.of(i+n).CreateKey(t.Context(), key, org.Author{})
			if errors.Is(err, org.ErrNotFound) {
				refused.Add(1)
			} else if err != nil {
				return err
			}
			if err := p.append(journal.Batch{}, input("x")); err != nil {
				return err
			}
		}
		return p.append(journal.Batch{Sync: true}, finish())
	})
	if n := r.count(`SELECT count(*) FROM api_keys WHERE org = 'a'`); n > 0 {
		t.Errorf("%d keys are left of the org that was deleted; %d were refused", n, refused.Load())
	}
	r.advance(time.Hour)
	r.each(3, func(i int) error {
		return r.of(i).DeleteOrgData(t.Context(), r.now(), func(string, int) {})
	})
	if n := r.count(`SELECT count(*) FROM runs WHERE org = 'a'`) + r.count(`SELECT count(*) FROM run_facts WHERE org = 'a'`); n > 0 {
		t.Errorf("%d rows are left of the org that was deleted", n)
	}
	r.checkUsage()
}

// partIDs returns ids that are long enough to be stored as a list.
func partIDs(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("resp_%060d", i))
	}
	return all
}
