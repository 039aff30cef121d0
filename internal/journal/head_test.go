package journal_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/model"
)

// leaseTime is a reading of the clock of leases.
var leaseTime = time.UnixMilli(1_000_000).UTC()

// leaseEnd is when a lease ends that is granted at leaseTime.
var leaseEnd = leaseTime.Add(journal.LeaseTTL).UnixMilli()

// headOf returns the head of a run with five facts and a lease of epoch 3.
func headOf(status journal.Status, owner string, until int64) journal.Head {
	return journal.Head{
		Summary: journal.Summary{Org: "o", RunID: "r", Grade: loop.Light, Status: status, Counts: loop.Counts{Rounds: 1, Calls: 2, Tokens: 30}},
		Seq:     5, At: 500, Epoch: 3, Owner: owner, LeaseUntil: until, Bytes: 7,
	}
}

func leaseOf(epoch int64, owner string) journal.Lease {
	return journal.Lease{Org: "o", RunID: "r", Epoch: epoch, Owner: owner}
}

func TestWhoMayWrite(t *testing.T) {
	head := headOf(journal.Running, "me", leaseEnd)
	for _, c := range []struct {
		name  string
		head  journal.Head
		lease journal.Lease
		after int64
		want  string
	}{
		{"the owner continues the journal", head, leaseOf(3, "me"), 5, "ok"},
		{"a new owner continues the journal", head, leaseOf(4, "next"), 5, "ok"},
		{"an earlier owner is fenced", head, leaseOf(2, "old"), 5, "fenced"},
		{"an earlier owner that is behind is fenced", head, leaseOf(2, "old"), 4, "fenced"},
		{"an earlier owner that is ahead is fenced", head, leaseOf(2, "old"), 6, "fenced"},
		{"the owner is behind", head, leaseOf(3, "me"), 4, "behind"},
		{"the owner is ahead", head, leaseOf(3, "me"), 6, "ahead"},
		{"a writer without a lease is not fenced", head, leaseOf(0, ""), 5, "ok"},
		{"a writer without a lease must know the journal", head, leaseOf(0, ""), 4, "behind"},
		{"a writer without a lease is ahead", head, leaseOf(0, ""), 6, "ahead"},
		{"a writer without a lease wakes a run that waits", headOf(journal.Waiting, "", 0), leaseOf(0, ""), 5, "ok"},
		{"a journal begins", journal.Head{}, leaseOf(1, "me"), 0, "ok"},
		{"a journal begins without a lease", journal.Head{}, leaseOf(0, ""), 0, "ok"},
		{"a journal that does not exist is continued", journal.Head{}, leaseOf(1, "me"), 1, "ahead"},
		{"a journal begins again", head, leaseOf(3, "me"), 0, "behind"},
	} {
		err := c.head.Admit(c.lease, c.after)
		got := "ok"
		switch {
		case errors.Is(err, journal.ErrFenced):
			got = "fenced"
		case errors.As(err, new(*journal.Behind)):
			got = "behind"
		case errors.Is(err, journal.ErrAhead):
			got = "ahead"
		case err != nil:
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestHowABatchChangesTheHead(t *testing.T) {
	fact := func(seq, at int64, body loop.Body) loop.Fact { return loop.Fact{Seq: seq, At: at, Body: body} }
	running := headOf(journal.Running, "me", 1)
	waiting, aside := headOf(journal.Waiting, "", 0), headOf(journal.IsAside, "", 0)
	aside.Summary.Aside = journal.Aside{Reason: "damaged"}
	done := headOf(journal.Done, "", 0)
	done.Summary.Reason, done.Summary.FinishedAt = event.Complete, 500
	for _, c := range []struct {
		name  string
		from  journal.Head
		lease journal.Lease
		facts []loop.Fact
		want  func(*journal.Head)
	}{
		{
			"the first batch of an owner gives it the lease", journal.Head{}, leaseOf(1, "me"),
			[]loop.Fact{fact(1, 90, loop.Accepted{Org: "o", RunID: "r", Principal: "p", Surface: "chat", Policy: loop.Policy{Grade: loop.Durable}, Model: "m"})},
			func(h *journal.Head) {
				*h = journal.Head{
					Summary: journal.Summary{Org: "o", RunID: "r", Principal: "p", Surface: "chat", Grade: loop.Durable, Model: "m", Status: journal.Running, CreatedAt: 90},
					Seq:     1, At: 90, Epoch: 1, Owner: "me", LeaseUntil: leaseEnd,
				}
			},
		},
		{
			"a run without a lease has no owner", journal.Head{}, leaseOf(0, ""),
			[]loop.Fact{fact(1, 90, loop.Accepted{Org: "o", RunID: "r"})},
			func(h *journal.Head) {
				*h = journal.Head{Summary: journal.Summary{Org: "o", RunID: "r", Status: journal.Running, CreatedAt: 90}, Seq: 1, At: 90}
			},
		},
		{"an empty batch of the owner extends the lease", running, leaseOf(3, "me"), nil, func(h *journal.Head) { h.LeaseUntil = leaseEnd }},
		{
			"counters and usage", running, leaseOf(3, "me"),
			[]loop.Fact{
				fact(6, 600, loop.Turn{Purpose: loop.PurposeTurn, Usage: model.Usage{Input: 4, Output: 5}}),
				fact(7, 610, loop.TurnFailed{Usage: model.Usage{Input: 1}}),
				fact(8, 620, loop.CallStarted{Attempt: 1}),
				fact(9, 630, loop.CallStarted{Attempt: 2}), // the same call again
			},
			func(h *journal.Head) {
				h.Seq, h.At, h.LeaseUntil = 9, 630, leaseEnd
				h.Summary.Rounds, h.Summary.Calls, h.Summary.Tokens = 2, 3, 40
			},
		},
		{
			"a turn of another purpose is no round", running, leaseOf(3, "me"),
			[]loop.Fact{fact(6, 600, loop.Turn{Purpose: loop.PurposeRaw, Usage: model.Usage{Input: 4}})},
			func(h *journal.Head) { h.Seq, h.At, h.LeaseUntil, h.Summary.Tokens = 6, 600, leaseEnd, 34 },
		},
		{
			"the time of the latest fact is kept if the next owner's clock is behind", running, leaseOf(4, "next"),
			[]loop.Fact{fact(6, 100, loop.Resumed{})},
			func(h *journal.Head) { h.Seq, h.Epoch, h.Owner, h.LeaseUntil = 6, 4, "next", leaseEnd },
		},
		{
			"a run that waits has no lease", running, leaseOf(3, "me"),
			[]loop.Fact{fact(6, 600, loop.Parked{})},
			func(h *journal.Head) {
				h.Seq, h.At, h.Owner, h.LeaseUntil = 6, 600, "", 0
				h.Summary.Status, h.Summary.Grade = journal.Waiting, loop.Durable
			},
		},
		{
			"a run that has ended has no lease", running, leaseOf(3, "me"),
			[]loop.Fact{fact(6, 600, loop.Finished{Reason: event.Complete})},
			func(h *journal.Head) {
				h.Seq, h.At, h.Owner, h.LeaseUntil = 6, 600, "", 0
				h.Summary.Status, h.Summary.Reason, h.Summary.FinishedAt = journal.Done, event.Complete, 600
			},
		},
		{
			"nothing in the summary changes after the end", done, leaseOf(0, ""),
			[]loop.Fact{fact(6, 600, loop.CancelRequested{}), fact(7, 600, loop.Turn{Purpose: loop.PurposeTurn})},
			func(h *journal.Head) { h.Seq, h.At = 7, 600 },
		},
		{
			"a writer without a lease changes neither owner nor expiry", running, leaseOf(0, ""),
			[]loop.Fact{fact(6, 600, loop.CancelRequested{})},
			func(h *journal.Head) { h.Seq, h.At = 6, 600 },
		},
		{
			"a writer without a lease ends a lease with the run", running, leaseOf(0, ""),
			[]loop.Fact{fact(6, 600, loop.Finished{Reason: event.Cancelled})},
			func(h *journal.Head) {
				h.Seq, h.At, h.Owner, h.LeaseUntil = 6, 600, "", 0
				h.Summary.Status, h.Summary.Reason, h.Summary.FinishedAt = journal.Done, event.Cancelled, 600
			},
		},
		{
			"a writer without a lease wakes a run, which has no owner then", waiting, leaseOf(0, ""),
			[]loop.Fact{fact(6, 600, loop.CallResolved{})},
			func(h *journal.Head) { h.Seq, h.At, h.Summary.Status = 6, 600, journal.Running },
		},
		{
			"a run that is set aside is woken", aside, leaseOf(0, ""),
			[]loop.Fact{fact(6, 600, loop.CancelRequested{})},
			func(h *journal.Head) {
				h.Seq, h.At, h.Summary.Status, h.Summary.Aside = 6, 600, journal.Running, journal.Aside{}
			},
		},
		{
			"a fact that wakes nobody", waiting, leaseOf(0, ""),
			[]loop.Fact{fact(6, 600, loop.InputAdded{})},
			func(h *journal.Head) { h.Seq, h.At = 6, 600 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.from
			c.want(&want)
			before := c.from
			if diff := cmp.Diff(want, c.from.After(c.lease, journal.Batch{Facts: c.facts}, leaseTime)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.from); diff != "" {
				t.Errorf("the head before the batch was changed:\n%s", diff)
			}
		})
	}
}

// KeepsLease tells a store that does not know the lease when to leave it unchanged. It
// must agree with After.
func TestKeepsLeaseAgreesWithAfter(t *testing.T) {
	bodies := []loop.Body{
		loop.InputAdded{}, loop.CallStarted{}, loop.Parked{}, loop.Resumed{}, loop.CallResolved{}, loop.CancelRequested{},
		loop.Expired{}, loop.Finished{},
	}
	for _, status := range []journal.Status{journal.Running, journal.Waiting, journal.IsAside, journal.Done} {
		for _, lease := range []journal.Lease{leaseOf(0, ""), leaseOf(3, "me"), leaseOf(4, "next")} {
			for _, body := range bodies {
				known := headOf(status, "me", 77)
				unknown := known
				unknown.Owner, unknown.LeaseUntil = "", 0
				b := journal.Batch{Facts: []loop.Fact{{Seq: 6, At: 600, Body: body}}}
				want, got := known.After(lease, b, leaseTime), unknown.After(lease, b, leaseTime)
				if unknown.KeepsLease(lease, got) {
					got.Owner, got.LeaseUntil = known.Owner, known.LeaseUntil
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s after %s of a writer with epoch %d (-with the lease +without):\n%s", status, body.Kind(), lease.Epoch, diff)
				}
			}
		}
	}
}

func TestLeasesOfAHead(t *testing.T) {
	before, at, after := leaseTime.Add(-time.Millisecond), leaseTime, leaseTime.Add(time.Millisecond)
	head := headOf(journal.Running, "me", leaseTime.UnixMilli())
	for _, c := range []struct {
		name      string
		head      journal.Head
		now       time.Time
		leased    bool
		claimable bool // by another owner
	}{
		{"before the end", head, before, true, false},
		{"at the end", head, at, false, true},
		{"after the end", head, after, false, true},
		{"released", headOf(journal.Running, "", 0), at, false, true},
		{"waiting", headOf(journal.Waiting, "", 0), at, false, false},
		{"set aside", headOf(journal.IsAside, "", 0), at, false, false},
		{"done", headOf(journal.Done, "", 0), at, false, false},
	} {
		if got := c.head.Leased(c.now); got != c.leased {
			t.Errorf("%s: Leased is %v", c.name, got)
		}
		if got := c.head.Claimable("other", c.now); got != c.claimable {
			t.Errorf("%s: Claimable is %v", c.name, got)
		}
	}
	if head.Claimable("me", after) {
		t.Error("the last owner may claim its own run")
	}
	if !head.Renewable("me") || head.Renewable("other") || headOf(journal.Done, "me", 1).Renewable("me") || headOf(journal.Running, "", 0).Renewable("") {
		t.Error("a lease is renewable by its owner only, while the run is running")
	}
	if got := head.Renew(leaseTime).LeaseUntil; got != leaseEnd {
		t.Errorf("a renewed lease ends at %d, want %d", got, leaseEnd)
	}
}

func TestClaimReleaseSetAsideRestore(t *testing.T) {
	head := headOf(journal.Running, "me", 1)
	claimed, lease := head.Claim("next", leaseTime)
	want := head
	want.Epoch, want.Owner, want.LeaseUntil = 4, "next", leaseEnd
	if diff := cmp.Diff(want, claimed); diff != "" || lease != leaseOf(4, "next") {
		t.Errorf("claimed %+v (-want +got):\n%s", lease, diff)
	}
	for _, stale := range []journal.Lease{leaseOf(3, "me"), leaseOf(4, "me"), leaseOf(3, "next"), leaseOf(0, "")} {
		_, released := claimed.Release(stale)
		_, aside := claimed.SetAside(stale, claimed.Seq, journal.Aside{})
		if released || aside {
			t.Errorf("the lease %+v released or set aside a run of %+v", stale, lease)
		}
	}
	released, ok := claimed.Release(lease)
	if !ok || released.Owner != "" || released.LeaseUntil != 0 || released.Epoch != 4 {
		t.Errorf("released: %+v, %v", released, ok)
	}
	if _, lease := released.Claim("last", leaseTime); !lease.Handed {
		t.Error("a run that was released is claimed without Handed")
	}
	why := journal.Aside{Reason: "unknown fact"}
	aside, ok := claimed.SetAside(lease, claimed.Seq, why)
	if !ok || aside.Summary.Status != journal.IsAside || aside.Summary.Aside != why || aside.Owner != "" {
		t.Errorf("set aside: %+v, %v", aside, ok)
	}
	if _, ok := claimed.SetAside(lease, claimed.Seq-1, why); ok {
		t.Error("a run is set aside by an owner that has not read all of its journal")
	}
	if _, ok := aside.SetAside(lease, aside.Seq, why); ok {
		t.Error("a run is set aside twice")
	}
	if restored, ok := aside.Restore(); !ok || restored != released {
		t.Errorf("restored: %+v, %v, want %+v", restored, ok, released)
	}
	if _, ok := claimed.Restore(); ok {
		t.Error("a run that is not set aside is restored")
	}
	if _, ok := headOf(journal.Done, "", 0).Release(leaseOf(3, "")); ok {
		t.Error("a run that has ended is released")
	}
}

// orgState is an OrgState that remembers what was asked.
type orgState struct {
	known  *journal.Submitted
	stored int64
	leased int
	queued int
	fails  error
	asked  []string
}

func (s *orgState) RunOf(journal.SubmitKey) (*journal.Submitted, error) {
	s.asked = append(s.asked, "key")
	return s.known, s.fails
}

func (s *orgState) StoredBytes() (int64, error) {
	s.asked = append(s.asked, "stored")
	return s.stored, s.fails
}

func (s *orgState) LeasedRuns() (int, error) {
	s.asked = append(s.asked, "leased")
	return s.leased, s.fails
}

func (s *orgState) QueuedRuns() (int, error) {
	s.asked = append(s.asked, "queued")
	return s.queued, s.fails
}

func TestWhichRunsAreAccepted(t *testing.T) {
	key, broken := &journal.SubmitKey{Principal: "p", Key: "k", Hash: "h"}, errors.New("broken")
	full := &orgState{known: &journal.Submitted{RunID: "first"}, stored: 100, leased: 4}
	for _, c := range []struct {
		name    string
		opening journal.Opening
		caps    org.Caps
		state   orgState
		want    error
		asked   []string
	}{
		{"no conditions", journal.Opening{}, org.Caps{}, *full, nil, nil},
		{"a key that has a run comes before everything else", journal.Opening{Key: key, Slots: 4}, org.Caps{Stored: 100}, *full, full.known, []string{"key"}},
		{"space comes before slots", journal.Opening{Key: key, Slots: 4}, org.Caps{Stored: 100}, orgState{stored: 100, leased: 4}, org.Caps{Stored: 100}.StoredError(), []string{"key", "stored"}},
		{"the last slot is taken", journal.Opening{Key: key, Slots: 4}, org.Caps{Stored: 100}, orgState{stored: 99, leased: 4}, journal.ErrNoSlot, []string{"key", "stored", "leased"}},
		{"one slot is free", journal.Opening{Key: key, Slots: 4}, org.Caps{Stored: 100}, orgState{stored: 99, leased: 3}, nil, []string{"key", "stored", "leased"}},
		{"the queue is full", journal.Opening{Key: key, Queue: 4}, org.Caps{Stored: 100}, orgState{stored: 99, leased: 9, queued: 4}, journal.ErrQueueFull, []string{"key", "stored", "queued"}},
		{"one place in the queue is free", journal.Opening{Queue: 4}, org.Caps{}, orgState{leased: 9, queued: 3}, nil, []string{"queued"}},
		{"an error of the queue", journal.Opening{Queue: 1}, org.Caps{}, orgState{fails: broken}, broken, []string{"queued"}},
		{"an error of the key", journal.Opening{Key: key}, org.Caps{}, orgState{fails: broken}, broken, []string{"key"}},
		{"an error of the space", journal.Opening{}, org.Caps{Stored: 1}, orgState{fails: broken}, broken, []string{"stored"}},
		{"an error of the slots", journal.Opening{Slots: 1}, org.Caps{}, orgState{fails: broken}, broken, []string{"leased"}},
	} {
		err := c.opening.Admit(c.caps, &c.state)
		if (err == nil) != (c.want == nil) || err != nil && err.Error() != c.want.Error() {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
		}
		if !slices.Equal(c.state.asked, c.asked) {
			t.Errorf("%s: read %q, want %q", c.name, c.state.asked, c.asked)
		}
	}
}

func TestWhatIsUsedOfABudget(t *testing.T) {
	b := budget.Window{Scope: "org", Limit: budget.Amount{Tokens: 10}}
	used := journal.Used{Spent: budget.Amount{Tokens: 4}}
	held, err := used.Reserve(journal.Reservation{Budget: b, Amount: budget.Amount{Tokens: 6}})
	if err != nil || held != (journal.Used{Spent: budget.Amount{Tokens: 4}, Reserved: budget.Amount{Tokens: 6}, Budget: b}) {
		t.Fatalf("got %+v, %v", held, err)
	}
	var over *journal.OverBudget
	if same, err := held.Reserve(journal.Reservation{Budget: b, Amount: budget.Amount{Tokens: 1}}); !errors.As(err, &over) || over.Budget.Scope != "org" || same != held {
		t.Errorf("a hold beyond the limit: %+v, %v", same, err)
	}
	settled := held.Settle(budget.Amount{Tokens: 6}, budget.Amount{Tokens: 8})
	if settled != (journal.Used{Spent: budget.Amount{Tokens: 12}, Overrun: budget.Amount{Tokens: 2}, Budget: b}) {
		t.Errorf("settled at more than was held: %+v", settled)
	}
}

// A fact of a writer that does not own the run passes the rules that the owner's facts
// pass, although this writer reads the head only.
func TestHeadAllowsWhatTheRulesAllow(t *testing.T) {
	anytime := []loop.Body{loop.CancelRequested{Cause: event.Cancelled}, loop.Resumed{}, loop.Expired{}, loop.InputAdded{}, loop.Blocked{}}
	others := []loop.Body{
		loop.Accepted{}, loop.Catalogued{}, loop.Reserved{}, loop.ReserveRefused{}, loop.TurnStarted{}, loop.TurnFailed{}, loop.Turn{}, loop.CallPrepared{},
		loop.CallStarted{}, loop.CallDone{}, loop.CallWaiting{}, loop.CallResolved{WaitID: "w"}, loop.Expired{WaitID: "w"}, loop.Parked{}, loop.Finished{},
	}
	stored := []loop.Body{
		loop.Accepted{Org: "o", RunID: "r", Targets: []loop.Target{{Provider: "up", Model: "m"}}, Policy: loop.Policy{Grade: loop.Light, Limits: budget.Limits{}.Clamp(budget.MaxRounds)}},
		loop.CancelRequested{Cause: event.Cancelled}, loop.Finished{Reason: event.Cancelled},
	}
	var head journal.Head
	var state loop.State
	for i := 0; ; i++ {
		for _, body := range anytime {
			byHead, byState := head.Allow(body), loop.Allowed(state, loop.Fact{Seq: state.Seq + 1, Body: body})
			if (byHead == nil) != (byState == nil) {
				t.Errorf("%s after %d facts: by the head %v, by the state %v", body.Kind(), i, byHead, byState)
			}
		}
		for _, body := range others {
			if head.Allow(body) == nil {
				t.Errorf("%s is allowed after %d facts although it depends on the state", body.Kind(), i)
			}
		}
		if i == len(stored) {
			return
		}
		f := loop.Fact{Seq: int64(i + 1), Epoch: 1, At: int64(i + 1), Version: loop.Version, Body: stored[i]}
		if err := loop.Allowed(state, f); err != nil {
			t.Fatal(err)
		}
		state, head = loop.Apply(state, f), head.After(journal.Lease{Org: "o", RunID: "r", Epoch: 1, Owner: "p"}, journal.Batch{Facts: []loop.Fact{f}}, time.Time{})
	}
}

// A call that waits for an answer or for a run is no approval. // H01
func TestOnlyApprovalsAreListed(t *testing.T) {
	head := headOf(journal.Running, "me", 77)
	for on, want := range map[loop.WaitOn]int{loop.OnApproval: 1, loop.OnQuestion: 0, loop.OnChild: 0} {
		b := journal.Batch{Facts: []loop.Fact{{Seq: 6, At: 600, Body: loop.CallWaiting{Key: "0.0", WaitID: "w", On: on}}}}
		if got := head.ApprovalChanges(b); len(got) != want {
			t.Errorf("%s: %d approvals, want %d", on, len(got), want)
		}
	}
}
