package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// each calls do n times at once.
func (r *replicas) each(n int, do func(i int) error) {
	r.Helper()
	var group errgroup.Group
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	r.ok(group.Wait())
}

// R6: reservations of runs and slices of processes share a budget.
func TestReplicasNeverExceedABudget(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a")
	w := budget.Window{Scope: "s", Limit: budget.Amount{Tokens: 1000}}
	var fit atomic.Int64
	r.each(30, func(i int) error {
		p := r.pen(r.of(i), "a", fmt.Sprint("run ", i))
		if err := p.append(journal.Batch{Sync: true}, p.accepted(grades()[i%2])); err != nil {
			return err
		}
		for n := range 5 {
			var over *journal.OverBudget
			var err error
			if i%3 == 0 {
				use := journal.SliceUse{Budget: w, Need: budget.Amount{Tokens: 11 * int64(n+1)}}
				_, err = r.of(i).Exchange(t.Context(), "a", fmt.Sprint("owner ", i), []journal.SliceUse{use})
			} else {
				reservation := journal.Reservation{ID: fmt.Sprint(n), Budget: w, Amount: budget.Amount{Tokens: 11}}
				err = p.append(journal.Batch{Sync: true, Reservations: []journal.Reservation{reservation}})
			}
			switch {
			case err == nil:
				fit.Add(11)
			case !errors.As(err, &over):
				return err
			}
		}
		return nil
	})
	used, err := r.stores[0].Used(t.Context(), "a", "s")
	r.ok(err)
	if total := used.Spent.Tokens + used.Reserved.Tokens; total > 1000 || total < 1000-11 || total < fit.Load() {
		t.Errorf("%+v is used after %d tokens fit", used, fit.Load())
	}
}

// R7 and B07: each lease takes a slot, on an opening and on a claim.
func TestReplicasNeverExceedTheSlots(t *testing.T) {
	const slots = 8
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a")
	r.each(20, func(i int) error { // queued runs
		p := r.pen(r.of(i), "a", fmt.Sprint("queued ", i))
		p.lease.Epoch, p.lease.Owner = 0, ""
		body := p.accepted(loop.Durable)
		body.Queued, body.Slots = true, slots
		return p.append(journal.Batch{Sync: true, Opening: &journal.Opening{Slots: slots, Queue: 100}}, body)
	})
	var mu sync.Mutex
	claims := map[string]int{}
	r.each(24, func(i int) error {
		if i%2 == 0 {
			p := r.pen(r.of(i/2), "a", fmt.Sprint("opened ", i))
			body := p.accepted(loop.Light)
			body.Slots = slots
			err := p.append(journal.Batch{Sync: true, Opening: &journal.Opening{Slots: slots}}, body)
			if errors.Is(err, journal.ErrNoSlot) {
				return nil
			}
			return err
		}
		leases, err := r.of(i/2).Claim(t.Context(), fmt.Sprint("owner ", i), 3)
		mu.Lock()
		defer mu.Unlock()
		for _, l := range leases {
			claims[l.RunID]++
		}
		return err
	})
	if n := r.count(`SELECT count(*) FROM runs WHERE status = 'running' AND lease_until > ?`, r.leases.Load()); n != slots {
		t.Errorf("%d runs have a slot, want %d", n, slots)
	}
	for run, n := range claims {
		if n > 1 {
			t.Errorf("run %s was claimed %d times", run, n)
		}
	}
}

// R11: an org with thousands of queued runs does not delay another one, and each run is claimed once.
func TestReplicasClaimInTurns(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	queue := func(orgID string, n int) {
		postgresExec(r, fmt.Sprintf(`INSERT INTO runs (org, run_id, principal, surface, grade, model, status, finish_reason, rounds, calls,
			tokens, epoch, next_seq, created_at, updated_at, finished_at)
			SELECT '%s', 'run ' || i, 'p', 'chat', 'durable', 'm', 'queued', '', 0, 0, 0, 0, 2, %d + i, 0, 0
			FROM generate_series(1, %d) i`, orgID, len(orgID), n))
	}
	queue("big", 3000)
	for i := range 20 {
		queue(fmt.Sprintf("small %02d", i), 2)
	}
	claim := func(owner string, s int, n int) []journal.Lease {
		leases, err := r.of(s).Claim(t.Context(), owner, n)
		r.ok(err)
		return leases
	}
	served := map[string]int{}
	for _, l := range claim("first", 0, 42) {
		served[l.Org]++
	}
	if len(served) != 21 || served["big"] != 2 {
		t.Errorf("the first claim served %v", served)
	}
	seen := map[journal.RunKey]bool{}
	var mu sync.Mutex
	r.each(9, func(i int) error {
		for range 4 {
			leases, err := r.of(i).Claim(t.Context(), fmt.Sprint("owner ", i), 20)
			if err != nil {
				return err
			}
			mu.Lock()
			for _, l := range leases {
				if seen[l.Key()] {
					t.Errorf("run %v was claimed twice", l.Key())
				}
				seen[l.Key()] = true
			}
			mu.Unlock()
		}
		return nil
	})
	if n := r.count(`SELECT count(*) FROM runs WHERE status = 'running'`); n != len(seen)+42 {
		t.Errorf("%d runs are running, and %d were claimed", n, len(seen)+42)
	}
	if left := r.count(`SELECT count(*) FROM runs WHERE status = 'queued' AND org <> 'big'`); left > 0 {
		t.Errorf("%d runs of small orgs wait", left)
	}
}

// R2: one request is one run.
func TestReplicasMakeOneRunOfAKey(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a")
	for key := range 4 {
		var mu sync.Mutex
		runs := map[string]int{}
		r.each(12, func(i int) error {
			p := r.pen(r.of(i), "a", fmt.Sprintf("run %d of %d", i, key))
			opening := &journal.Opening{Key: &journal.SubmitKey{Principal: "p", Key: fmt.Sprint(key), Hash: "h"}}
			err := p.append(journal.Batch{Sync: true, Opening: opening}, p.accepted(grades()[key%2]))
			run := p.lease.RunID
			if known, ok := errors.AsType[*journal.Submitted](err); ok {
				run, err = known.RunID, nil
			}
			mu.Lock()
			defer mu.Unlock()
			runs[run]++
			return err
		})
		if len(runs) != 1 {
			t.Errorf("the key %d has the runs %v", key, runs)
		}
		r.advance(journal.SubmitKeyTTL) // the next opening sweeps
	}
	if n := r.count(`SELECT count(*) FROM runs`); n != 4 {
		t.Errorf("%d runs are stored, want 4", n)
	}
}

func (r *replicas) session(id string) {
	r.Helper()
	of := agent.Snapshot{Agent: "agent_a", Version: 1}
	s := agent.Session{Org: "a", ID: id, Agent: "agent_a", Principal: "p", Snapshot: of, CreatedAt: r.now()}
	r.ok(r.stores[0].CreateSession(r.Context(), s, true))
}

func message(id, key string) journal.SessionInput {
	body := json.RawMessage(`{"message":"x"}`)
	return journal.SessionInput{ID: id, Kind: agent.InputMessage, Principal: "p", Body: body, Key: key, Digest: "d"}
}

// turn opens a run as a turn of a session.
func (p *pen) turn(session, key string, queued bool) error {
	body := p.accepted(loop.Durable)
	body.Surface = agent.Surface
	bodies := []loop.Body{body}
	if body.Queued, body.Deferred = queued, queued; queued {
		p.lease.Epoch, p.lease.Owner, bodies[0] = 0, "", body
	} else {
		bodies = append(bodies, input("input"))
	}
	in := message("in_"+p.lease.RunID, key)
	t := journal.SessionTurn{Session: session, Principal: "p", Version: 1, Rounds: 25, Queued: queued, Input: in}
	return p.append(journal.Batch{Sync: true, Opening: &journal.Opening{Turn: &t}}, bodies...)
}

func TestReplicasShareSessions(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a")
	t.Run("one turn at a time", func(*testing.T) {
		r.session("sess_1")
		var begun atomic.Int64
		r.each(9, func(i int) error {
			err := r.pen(r.of(i), "a", fmt.Sprint("turn ", i)).turn("sess_1", "", false)
			if errors.As(err, new(*journal.SessionBusy)) {
				return nil
			}
			begun.Add(1)
			return err
		})
		if begun.Load() != 1 {
			t.Errorf("%d turns have begun", begun.Load())
		}
	})
	t.Run("a key is one turn", func(*testing.T) {
		r.session("sess_2")
		r.each(24, func(i int) error {
			err := r.pen(r.of(i), "a", fmt.Sprint("queued ", i)).turn("sess_2", fmt.Sprint("key ", i%4), true)
			if errors.As(err, new(*journal.Submitted)) {
				return nil
			}
			return err
		})
		turns, _, err := r.stores[0].SessionTurns(t.Context(), "a", "sess_2", 100, 0)
		r.ok(err)
		for i, turn := range turns {
			if turn.Number != len(turns)-i {
				t.Errorf("turn %d has the number %d", len(turns)-i, turn.Number)
			}
		}
		if _, inputs, err := r.stores[1].SessionInputs(t.Context(), "a", "sess_2", 100, 0); err != nil || inputs != 4 || len(turns) != 4 {
			t.Errorf("%d inputs, %d turns, %v, want 4", inputs, len(turns), err)
		}
	})
	t.Run("an input is delivered once", func(*testing.T) {
		r.session("sess_3")
		owner := r.pen(r.stores[0], "a", "run of sess_3")
		r.ok(owner.turn("sess_3", "", false))
		var delivered atomic.Int64
		r.each(24, func(i int) error {
			p := owner.foreign(r.of(i))
			p.seq = 0
			for {
				story, err := p.store.Load(t.Context(), "a", p.lease.RunID)
				if err != nil {
					return err
				}
				p.seq = story.Last()
				d := &journal.Delivered{Session: "sess_3", Input: message(fmt.Sprint("in_", i), fmt.Sprint("key ", i%4))}
				err = p.append(journal.Batch{Sync: true, Delivered: d}, input(fmt.Sprint("key ", i%4)))
				switch {
				case errors.As(err, new(*journal.Submitted)):
					return nil
				case errors.As(err, new(*journal.Behind)):
					continue
				case err == nil:
					delivered.Add(1)
				}
				return err
			}
		})
		want := []string{"input", "key 0", "key 1", "key 2", "key 3"}
		if got := slices.Sorted(slices.Values(owner.stored())); !slices.Equal(got, want) || delivered.Load() != 4 {
			t.Errorf("%d inputs were delivered: %q", delivered.Load(), got)
		}
	})
}

// An input that two replicas deliver to two runs of a session at once goes to one of them, and the other run goes on.
func TestReplicasDeliverToOneRun(t *testing.T) {
	r := newReplicas(t, 2, org.Caps{})
	r.withOrgs("a")
	r.session("sess_1")
	first := r.pen(r.stores[0], "a", "first")
	r.ok(first.turn("sess_1", "", false))
	second := r.pen(r.stores[0], "a", "second")
	r.ok(second.turn("sess_1", "", true))
	for round := range 10 {
		errs := make([]error, 2)
		r.each(2, func(i int) error {
			p := []*pen{first, second}[i]
			to := p.foreign(r.of(i))
			in := message(fmt.Sprint("in_", round, i), fmt.Sprint("key ", round))
			errs[i] = to.append(journal.Batch{Sync: true, Delivered: &journal.Delivered{Session: "sess_1", Input: in}}, input(fmt.Sprint(round)))
			p.seq = to.seq
			return nil
		})
		failed := slices.ContainsFunc(errs, func(err error) bool { return err != nil && !errors.As(err, new(*journal.Submitted)) })
		if failed || errs[0] == nil == (errs[1] == nil) {
			t.Fatalf("round %d: %v", round, errs)
		}
	}
	first.write(finish())
	if n := len(first.stored()) + len(second.stored()); n != 2+10 {
		t.Errorf("%d inputs are stored", n)
	}
}

func TestReplicasShareConversations(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a")
	key := journal.ConversationKey{Kind: journal.SessionID, ID: "s"}
	const writers, turns = 9, 6
	r.each(writers, func(i int) error {
		for n := range turns {
			for {
				c, err := r.of(i).Find(t.Context(), "a", "p", key)
				if err != nil {
					return err
				}
				if c == nil {
					c = &journal.Conversation{}
				}
				c.Items = append(c.Items, item.NewText(item.User, fmt.Sprint(i, " ", n)))
				err = r.of(i+n).Save(t.Context(), "a", "p", *c, time.Hour, key)
				if err == nil {
					break
				}
				if !errors.Is(err, journal.ErrChanged) && !errors.Is(err, org.ErrExists) {
					return err
				}
			}
		}
		return nil
	})
	c, err := r.stores[0].Find(t.Context(), "a", "p", key)
	if r.ok(err); c.Version != writers*turns || len(c.Items) != writers*turns {
		t.Errorf("version %d with %d items", c.Version, len(c.Items))
	}
}

// Conversations with shared lists and parts are forked, rewound and deleted on all replicas, while retention deletes what
// nothing uses.
func TestReplicasShareParts(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a", "b")
	part := func(id string) journal.ConversationKey {
		return journal.ConversationKey{Kind: journal.ResponseID, ID: id}
	}
	head := func(id string) journal.ConversationKey {
		return journal.ConversationKey{Kind: journal.SessionID, ID: id}
	}
	parts := partIDs(40)
	var shared []journal.ConversationKey
	for i, id := range parts {
		shared = append(shared, part(id))
		for _, orgID := range []string{"a", "b"} {
			r.ok(r.of(i).Save(t.Context(), orgID, "", journal.Conversation{RunID: id}, time.Hour, part(id)))
		}
	}
	stop := make(chan struct{})
	var sweeper errgroup.Group
	for i := range r.stores {
		sweeper.Go(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if _, err := r.of(i).DeleteForgotten(t.Context()); err != nil {
					return err
				}
			}
		})
	}
	r.each(9, func(i int) error {
		orgID := []string{"a", "b"}[i%2]
		for n := range 6 {
			from, to := fmt.Sprintf("sess_%d_%d", i, n), fmt.Sprintf("sess_%d_%d_fork", i, n)
			c := journal.Conversation{Parts: parts[:20+(i+n)%20]}
			if err := r.of(i).Save(t.Context(), orgID, "", c, time.Hour, head(from)); err != nil {
				return fmt.Errorf("save: %w", err)
			}
			got, err := r.of(i+1).Find(t.Context(), orgID, "", head(from))
			if err != nil || got == nil || !slices.Equal(got.Parts, c.Parts) {
				return fmt.Errorf("saved %q, found %+v, %w", c.Parts, got, err)
			}
			f := journal.Fork{ID: to, Conversation: *got, From: from, Version: got.Version, Shared: shared[:len(c.Parts)]}
			if err := r.of(i+2).Fork(t.Context(), orgID, f, time.Hour); err != nil {
				return fmt.Errorf("fork: %w", err)
			}
			if n%2 == 0 {
				if _, err := r.of(i).Delete(t.Context(), orgID, "", head(from)); err != nil {
					return fmt.Errorf("delete: %w", err)
				}
			}
			forked, err := r.of(i+n).Find(t.Context(), orgID, "", head(to))
			if err != nil || forked == nil || !slices.Equal(forked.Parts, c.Parts) {
				return fmt.Errorf("forked %q, found %+v, %w", c.Parts, forked, err)
			}
			if n%3 == 0 {
				if _, err := r.of(i).Delete(t.Context(), orgID, "", head(to)); err != nil {
					return fmt.Errorf("delete the fork: %w", err)
				}
			}
		}
		return nil
	})
	close(stop)
	r.ok(sweeper.Wait())
	if n := r.count(`SELECT count(*) FROM shared_lists l
		WHERE uses <> (SELECT count(*) FROM conversations c WHERE c.org = l.org AND c.parts = l.digest)
		+ (SELECT count(*) FROM shared_lists o WHERE o.org = l.org AND o.before = l.digest)
		+ (SELECT count(*) FROM run_rows w WHERE w.org = l.org AND w.rest = l.digest)`); n > 0 {
		t.Errorf("%d lists do not know how often they are used", n)
	}
	r.checkUsage()
}

// checkUsage fails the test if org_usage is not what is stored.
func (r *replicas) checkUsage() {
	r.Helper()
	if n := r.count(`SELECT count(*) FROM org_usage u WHERE conversations <> (SELECT count(*) FROM conversations c WHERE c.org = u.org)
		OR bytes <> (SELECT 500 * count(*) FROM runs t WHERE t.org = u.org)
		+ (SELECT coalesce(sum(250 + octet_length(body)), 0) FROM run_facts t WHERE t.org = u.org)
		+ (SELECT coalesce(sum(160 + octet_length(body)), 0) FROM run_rows t WHERE t.org = u.org)
		+ (SELECT coalesce(sum(250 + octet_length(body)), 0) FROM conversations t WHERE t.org = u.org)
		+ (SELECT 300 * count(*) FROM conversation_keys t WHERE t.org = u.org)
		+ (SELECT coalesce(sum(250 + octet_length(body)), 0) FROM shared_lists t WHERE t.org = u.org)`); n > 0 {
		r.Errorf("of %d orgs, the sum of what is stored is wrong", n)
	}
}

// Several pumps claim messages: each is claimed once at a time, and those of a subject in their order.
func TestReplicasPumpTheOutbox(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a", "b")
	const runs = 6
	for _, id := range []string{"a", "b"} {
		w := org.Webhook{Org: id, Name: "w", URL: "https://example.com", Events: []string{"*"}, Sealed: []byte("s"), CreatedAt: r.now()}
		r.ok(r.stores[0].CreateWebhook(t.Context(), w, org.Author{}))
	}
	r.each(2*runs, func(i int) error {
		orgID := []string{"a", "b"}[i%2]
		p := r.pen(r.of(i), orgID, fmt.Sprint("run ", i))
		if err := p.append(journal.Batch{Sync: true}, p.accepted(loop.Light)); err != nil {
			return err
		}
		var notices []journal.Notice
		for n := range 3 {
			notices = append(notices, journal.Notice{Event: "run.x", Object: fmt.Sprint(n), Subject: p.lease.RunID, At: r.wall.Load()})
		}
		run := p.lease.RunID
		hook := journal.HookMessage{ID: run, Org: orgID, RunID: run, Hook: "h", At: r.wall.Load(), Outcome: journal.HookWaiting}
		return p.append(journal.Batch{Sync: true, Notices: notices, HookMessages: []journal.HookMessage{hook}}, finish())
	})
	var mu sync.Mutex
	got, hooks := map[string][]string{}, map[string]int{}
	r.each(6, func(i int) error {
		s, until := r.of(i), r.now().Add(time.Minute)
		for idle := 0; idle < 3; idle++ {
			claimed, err := s.ClaimDeliveries(t.Context(), r.now(), until, []journal.ClaimAsk{
				{WebhookKey: journal.WebhookKey{Org: "a", Name: "w"}, Max: 3}, {WebhookKey: journal.WebhookKey{Org: "b", Name: "w"}, Max: 3},
			})
			if err != nil {
				return err
			}
			for _, d := range claimed {
				mu.Lock()
				got[d.Subject] = append(got[d.Subject], d.Object)
				mu.Unlock()
				if settled, err := s.SettleDelivery(t.Context(), d.Delivery.End(journal.MessageDelivered, "", r.wall.Load())); err != nil || !settled {
					return fmt.Errorf("settled %t, %w", settled, err)
				}
				idle = -1
			}
			told, err := s.ClaimHookMessages(t.Context(), r.now(), until, []journal.HookAsk{
				{HookKey: journal.HookKey{Org: "a", Hook: "h"}, Max: 3}, {HookKey: journal.HookKey{Org: "b", Hook: "h"}, Max: 3},
			})
			if err != nil {
				return err
			}
			for _, m := range told {
				mu.Lock()
				hooks[m.ID]++
				mu.Unlock()
				if settled, err := s.SettleHookMessage(t.Context(), m.End("succeeded", r.now(), 0)); err != nil || !settled {
					return fmt.Errorf("settled %t, %w", settled, err)
				}
				idle = -1
			}
		}
		return nil
	})
	for i := range 2 * runs {
		run := fmt.Sprint("run ", i)
		if !slices.Equal(got[run], []string{"0", "1", "2"}) || hooks[run] != 1 {
			t.Errorf("of %s, %q were delivered, and its hook was told %d times", run, got[run], hooks[run])
		}
	}
}

// R13: chains have no gaps, and the sums are those of their rows.
func TestReplicasShareTheAuditLog(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a", "b")
	r.each(12, func(i int) error {
		orgID := []string{"a", "b"}[i%2]
		p := r.pen(r.of(i), orgID, fmt.Sprint("run ", i))
		entry := audit.Entry{Kind: audit.KindRequest, At: r.wall.Load(), Principal: fmt.Sprint("p", i%3), Body: audit.Request{
			Surface: audit.SurfaceRelay, Provider: "p", Model: fmt.Sprint("m", i%2), Status: audit.OK,
			InputTokens: int64(i), OutputTokens: 4, CostNanoUSD: 7,
		}}
		if err := p.append(journal.Batch{Sync: true, Audit: []audit.Entry{entry}}, p.accepted(loop.Light)); err != nil {
			return err
		}
		for n := range 10 {
			if err := r.of(i+n).Record(t.Context(), orgID, entry); err != nil {
				return err
			}
			if err := p.append(journal.Batch{Sync: n%3 == 0, Audit: []audit.Entry{entry}}, input("x")); err != nil {
				return err
			}
		}
		name := fmt.Sprint("key ", i)
		key := org.Key{Org: orgID, ID: name, Name: name, Role: org.Owner, Hash: [32]byte{byte(i)}, CreatedAt: r.now()}
		if err := r.of(i).CreateKey(t.Context(), key, org.Author{Principal: org.Operator, At: r.wall.Load()}); err != nil {
			return err
		}
		return p.append(journal.Batch{Sync: true, Audit: []audit.Entry{entry}}, finish())
	})
	for i := range r.stores {
		r.ok(r.of(i).SyncAudit(t.Context()))
	}
	for _, orgID := range []string{"a", "b", org.Operator} {
		report, err := audit.Verify(t.Context(), orgID, r.stores[0], nil, nil)
		if r.ok(err); len(report.Findings) > 0 {
			t.Errorf("the chain of %s: %v", orgID, report.Findings)
		}
		q := audit.UsageQuery{By: []string{audit.ByKey, audit.ByModel}}
		want, err := audit.SumUsage(t.Context(), orgID, r.stores[0], q)
		r.ok(err)
		if got, err := audit.AddUsage(t.Context(), orgID, r.stores[1], q); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("usage of %s is %+v, want %+v: %v", orgID, got, want, err)
		}
	}
}
