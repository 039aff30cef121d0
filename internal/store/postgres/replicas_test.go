package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

// replicas are several stores on one schema, as several processes have them. All have the same clocks, which stand still
// until they are moved.
type replicas struct {
	*testing.T
	maker  maker
	stores []*database.Store
	wall   atomic.Int64 // Unix milliseconds
	leases atomic.Int64 // Unix milliseconds
}

func newReplicas(t *testing.T, n int, caps org.Caps) *replicas {
	t.Helper()
	r := &replicas{T: t, maker: newMaker(t)}
	r.wall.Store(1_700_000_000_000)
	r.leases.Store(1_600_000_000_000)
	for range n {
		r.stores = append(r.stores, r.another(caps))
	}
	return r
}

// another opens one more store.
func (r *replicas) another(caps org.Caps) *database.Store {
	r.Helper()
	clocks := storetest.Clocks{Wall: r.now, Leases: r.leaseNow}
	return r.maker.again(r.T, clocks, caps).Orgs.(*database.Store)
}

// of returns one of the stores, for the i-th of many.
func (r *replicas) of(i int) *database.Store { return r.stores[i%len(r.stores)] }

func (r *replicas) advance(d time.Duration) {
	r.wall.Add(d.Milliseconds())
	r.leases.Add(d.Milliseconds())
}

func (r *replicas) now() time.Time { return time.UnixMilli(r.wall.Load()).UTC() }

func (r *replicas) leaseNow() time.Time { return time.UnixMilli(r.leases.Load()).UTC() }

// withOrgs adds orgs with these ids.
func (r *replicas) withOrgs(ids ...string) {
	r.Helper()
	for _, id := range ids {
		r.ok(r.stores[0].CreateOrg(r.Context(), org.Record{ID: id}, org.Author{}))
	}
}

func (r *replicas) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("unexpected error: %v", err)
	}
}

// count returns the number that a query has.
func (r *replicas) count(query string, args ...any) (n int) {
	r.Helper()
	r.ok(r.stores[0].DB().QueryRowContext(r.Context(), query, args...).Scan(&n))
	return n
}

// pen writes the journal of one run on one of the stores.
type pen struct {
	*replicas
	store *database.Store
	lease journal.Lease
	seq   int64
}

// pen returns one with the first lease of a run that has no journal yet.
func (r *replicas) pen(store *database.Store, orgID, runID string) *pen {
	return &pen{replicas: r, store: store, lease: journal.Lease{Org: orgID, RunID: runID, Epoch: 1, Owner: "owner"}}
}

// begin opens a run.
func (r *replicas) begin(store *database.Store, orgID, runID string, grade loop.Grade) *pen {
	r.Helper()
	p := r.pen(store, orgID, runID)
	r.ok(p.append(journal.Batch{Sync: true}, p.accepted(grade)))
	return p
}

func (p *pen) accepted(grade loop.Grade) loop.Accepted {
	return loop.Accepted{
		RunID: p.lease.RunID, Org: p.lease.Org, Principal: "p", Surface: "chat", Policy: loop.Policy{Grade: grade}, Model: "m",
		Targets: []loop.Target{{Provider: "p", Model: "p-m"}},
	}
}

// foreign returns one of another store, which has no lease and knows what p knows.
func (p *pen) foreign(store *database.Store) *pen {
	return &pen{replicas: p.replicas, store: store, lease: journal.Lease{Org: p.lease.Org, RunID: p.lease.RunID}, seq: p.seq}
}

// append appends the bodies. It counts them if there is no error.
func (p *pen) append(b journal.Batch, bodies ...loop.Body) error {
	for i, body := range bodies {
		f := loop.Fact{Seq: p.seq + 1 + int64(i), Epoch: p.lease.Epoch, At: p.wall.Load(), Version: loop.Version, Body: body}
		b.Facts = append(b.Facts, f)
	}
	err := p.store.Append(p.Context(), p.lease, p.seq, b)
	if err == nil {
		p.seq += int64(len(bodies))
	}
	return err
}

func (p *pen) write(bodies ...loop.Body) {
	p.Helper()
	p.ok(p.append(journal.Batch{Sync: true}, bodies...))
}

// stored returns what the facts of the run say that this test writes, and fails the test if there is a hole.
func (p *pen) stored() (said []string) {
	p.Helper()
	story, err := p.stores[len(p.stores)-1].Load(p.Context(), p.lease.Org, p.lease.RunID)
	p.ok(err)
	for i, f := range story.Facts {
		if f.Seq != int64(i+1) {
			p.Errorf("fact %d of run %s has the number %d", i+1, p.lease.RunID, f.Seq)
		}
		switch body := f.Body.(type) {
		case loop.InputAdded:
			said = append(said, body.ItemsRef)
		case loop.CancelRequested, loop.Finished:
			said = append(said, string(body.Kind()))
		}
	}
	return said
}

func input(ref string) loop.Body { return loop.InputAdded{ItemsRef: ref, By: loop.ByClient} }

func cancel() loop.Body { return loop.CancelRequested{By: "somebody", Cause: event.Cancelled} }

func finish() loop.Body { return loop.Finished{Reason: event.Complete} }

// said returns what the facts say that a writer gets that is behind.
func said(facts []loop.Fact) (all []string) {
	for _, f := range facts {
		if body, ok := f.Body.(loop.InputAdded); ok {
			all = append(all, body.ItemsRef)
			continue
		}
		all = append(all, string(f.Body.Kind()))
	}
	return all
}

func grades() []loop.Grade { return []loop.Grade{loop.Light, loop.Durable} }

// Another replica appends while the owner holds back what it has appended. Both are stored, and the owner is told of the facts that
// its own ones follow.
func TestForeignAppendBetweenAppendsOfTheOwner(t *testing.T) {
	r := newReplicas(t, 2, org.Caps{})
	r.withOrgs("a")
	n := 0
	for _, grade := range grades() {
		for held := range 4 { // facts that are held back
			for others := range 4 { // facts of the other replica
				for _, synced := range []bool{true, false} {
					n++
					p := r.begin(r.stores[0], "a", fmt.Sprint("run ", n), grade)
					p.check(held, others, synced)
				}
			}
		}
	}
}

func (p *pen) check(held, others int, synced bool) {
	p.Helper()
	other := p.foreign(p.stores[1])
	var folded []string // by the owner
	for i := range held {
		p.ok(p.append(journal.Batch{}, input(fmt.Sprint("held ", i))))
		folded = append(folded, fmt.Sprint("held ", i))
	}
	for i := range others {
		for {
			err := other.append(journal.Batch{Sync: true}, input(fmt.Sprint("other ", i)))
			behind, ok := errors.AsType[*journal.Behind](err)
			if !ok {
				p.ok(err)
				break
			}
			other.seq += int64(len(behind.Facts))
		}
	}
	failed := p.writeLast(&folded, synced)
	stored := p.stored()
	what := fmt.Sprintf("%d held back, %d of another replica, synced %t: stored %q, the owner has %q, failed %v",
		held, others, synced, stored, folded, failed)
	if failed != nil || !slices.Equal(stored, folded) || len(stored) != held+others+1 {
		p.Errorf("%s", what)
	}
	for i := range others {
		if !slices.Contains(stored, fmt.Sprint("other ", i)) {
			p.Errorf("%s: a fact is lost that was answered", what)
		}
	}
	p.goesOn(stored)
}

// writeLast appends one more fact as the driver does, which folds what others have written and what follows it, and returns the
// error with which it gives up.
func (p *pen) writeLast(folded *[]string, synced bool) error {
	rest, sync := []loop.Body{input("last")}, synced
	for range 10 {
		err := p.append(journal.Batch{Sync: sync}, rest...)
		if err == nil {
			if rest != nil {
				*folded = append(*folded, "last")
			}
			if sync {
				return nil
			}
			rest, sync = nil, true
			continue
		}
		behind, ok := errors.AsType[*journal.Behind](err)
		if !ok {
			return err
		}
		if len(behind.Facts) == 0 || behind.Facts[0].Seq > p.seq+1 || behind.Facts[0].Seq < 2 {
			p.Errorf("behind %d, and the facts are %+v", p.seq, behind.Facts)
			return err
		}
		first := behind.Facts[0].Seq
		*folded = append((*folded)[:first-2], said(behind.Facts)...)
		p.seq = first - 1 + int64(len(behind.Facts))
	}
	return errors.New("behind ten times")
}

// goesOn lets another replica claim the run and go on with it.
func (p *pen) goesOn(stored []string) {
	p.Helper()
	p.advance(journal.LeaseTTL)
	lease, claimed, err := p.stores[1].ClaimRun(p.Context(), "next", p.lease.Key())
	p.ok(err)
	if !claimed {
		p.Fatalf("run %s cannot be claimed", p.lease.RunID)
	}
	next := &pen{replicas: p.replicas, store: p.stores[1], lease: lease, seq: int64(len(stored) + 1)}
	next.write(input("next"), finish())
	if err := p.append(journal.Batch{Sync: true}, input("late")); !errors.Is(err, journal.ErrFenced) {
		p.Errorf("an append of the former owner has the error %v, want that it is fenced", err)
	}
	if got, want := p.stored(), slices.Concat(stored, []string{"next", "finished"}); !slices.Equal(got, want) {
		p.Errorf("stored %q, want %q", got, want)
	}
}

// A decision that comes by the owner's own replica, after one that came by another, follows the owner's facts, and the owner is
// told of both.
func TestForeignAppendsOfTwoReplicas(t *testing.T) {
	r := newReplicas(t, 2, org.Caps{})
	r.withOrgs("a")
	var p, there, here *pen
	for n, held := 0, false; !held; n++ { // until the owner still holds back its fact when the other replica writes
		p = r.begin(r.stores[0], "a", fmt.Sprint("run ", n), loop.Durable)
		there, here = p.foreign(r.stores[1]), p.foreign(r.stores[0])
		r.ok(p.append(journal.Batch{}, input("held")))
		err := there.append(journal.Batch{Sync: true}, input("there"))
		if held = !errors.As(err, new(*journal.Behind)); held {
			r.ok(err)
		}
	}
	err := here.append(journal.Batch{Sync: true}, cancel())
	if behind, ok := errors.AsType[*journal.Behind](err); !ok || !slices.Equal(said(behind.Facts), []string{"there", "held"}) {
		t.Fatalf("an append behind others has the error %v", err)
	}
	here.seq = there.seq + 1
	here.write(cancel())
	want := []string{"there", "held", "cancel_requested"}
	err = p.append(journal.Batch{Sync: true}, input("last"))
	if behind, ok := errors.AsType[*journal.Behind](err); !ok || behind.Facts[0].Seq != p.seq || !slices.Equal(said(behind.Facts), want) {
		t.Errorf("the owner, whose fact follows another one, has the error %v", err)
	}
	p.seq += 2
	p.write(input("last"))
	want = append(want, "last")
	if got := p.stored(); !slices.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
	p.goesOn(want)
}

// What a replica has in memory of a run is not believed when others have had the run meanwhile.
func TestStaleHeads(t *testing.T) {
	r := newReplicas(t, 2, org.Caps{})
	r.withOrgs("a")
	claim := func(p *pen, store *database.Store, owner string) *pen {
		t.Helper()
		lease, ok, err := store.ClaimRun(t.Context(), owner, p.lease.Key())
		r.ok(err)
		if !ok {
			t.Fatalf("run %s cannot be claimed", p.lease.RunID)
		}
		return &pen{replicas: r, store: store, lease: lease, seq: p.seq}
	}
	for i, grade := range grades() {
		first := r.begin(r.stores[0], "a", fmt.Sprint("back ", i), grade)
		first.write(input("first"))
		r.ok(first.store.Release(t.Context(), first.lease))
		second := claim(first, r.stores[1], "two")
		second.write(input("second"))
		r.ok(second.append(journal.Batch{}, input("held back")))
		r.ok(second.store.Release(t.Context(), second.lease))
		third := claim(second, r.stores[0], "one")
		third.write(input("third"), finish())
		if err := second.append(journal.Batch{Sync: true}, input("late")); !errors.Is(err, journal.ErrFenced) {
			t.Errorf("the owner in between has the error %v", err)
		}
		if got, want := first.stored(), []string{"first", "second", "held back", "third", "finished"}; !slices.Equal(got, want) {
			t.Errorf("stored %q, want %q", got, want)
		}

		aside := r.begin(r.stores[0], "a", fmt.Sprint("aside ", i), grade)
		foreign := aside.foreign(r.stores[0])
		r.ok(aside.store.Release(t.Context(), aside.lease))
		next := claim(aside, r.stores[1], "two")
		done, err := next.store.SetAside(t.Context(), next.lease, next.seq, journal.Aside{})
		if r.ok(err); !done {
			t.Error("the run was not set aside")
		}
		n, err := r.stores[0].Restore(t.Context(), func(journal.Aside) bool { return true })
		if r.ok(err); n != 1 {
			t.Errorf("%d runs restored", n)
		}
		foreign.write(input("foreign"))
		again := claim(foreign, r.stores[1], "two")
		again.write(finish())

		gone := r.begin(r.stores[0], "a", fmt.Sprint("gone ", i), grade)
		gone.write(input("old"))
		postgresExec(r, `DELETE FROM runs WHERE run_id = 'gone `+fmt.Sprint(i)+`'`)
		anew := r.begin(r.stores[1], "a", fmt.Sprint("gone ", i), grade)
		anew.write(input("new 1"), input("new 2"), input("new 3"))
		if err := gone.append(journal.Batch{Sync: true}, input("old")); err == nil {
			t.Error("a run that was deleted and opened again has a fact of its former owner")
		}
		if got, want := anew.stored(), []string{"new 1", "new 2", "new 3"}; !slices.Equal(got, want) {
			t.Errorf("stored %q, want %q", got, want)
		}
	}
}

func postgresExec(r *replicas, text string) {
	r.Helper()
	_, err := r.stores[0].DB().ExecContext(r.Context(), text)
	r.ok(err)
}
