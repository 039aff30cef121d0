package storetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func approvalCases() []rule {
	return []rule{
		{"a call that waits has an approval", "a person decides about what is stored, and the facts of the run say the same", approvalAsked},
		{"an approval is decided once", "the first decision wins; one that expired or is void has none", approvalDecidedOnce},
		{"the end of a run, and the request to end it, void what waits", "nobody may approve a call that will never be made", approvalVoid},
		{"a call that changed is asked for again", "what was approved is this call and no other, also if it was approved already", approvalAgain},
		{"approvals are selected", "by status, run and server, in pages, the latest first", approvalQueries},
		{"a paused run waits like an approval", "it expires, counts and becomes void in the same way, and is no approval that somebody could decide", pausedRuns},
		{"due approvals are found", "over all orgs, those first that expired first", approvalsDue},
		{"approvals belong to an org", "another org cannot find, list, decide or use the ids of them", approvalIsolation},
		{"waiting approvals are capped", "per org; a decision makes room", approvalsCapped},
		{"waiting approvals of one key are capped", "at half of the cap: the other keys of the org keep room for theirs", approvalsOfAKeyCapped},
		{"runs that wait are found", "over all orgs, each once, with whom they wait for", runsThatWait},
		{"two writers decide", "one of them gets the facts of the other", approvalTwoWriters},
	}
}

// asked is the fact that asks for an approval.
func asked(id string, call int, server string, expires int64) loop.CallWaiting {
	return loop.CallWaiting{
		Key: loop.CallKey(fmt.Sprint("0.", call)), WaitID: id, On: loop.OnApproval, Name: "n_" + server, Server: server, Tool: "t", Asker: loop.AskedByServer,
		ToolDigest: "td", ArgsRef: fmt.Sprint("args:0.", call), ArgsDigest: "ad", Host: "pay.example.com", Policy: "p", ExpiresAt: expires, CallerAt: "gw",
	}
}

// runWith stores a run with these facts after its beginning, and returns its lease and the
// number of its last fact.
func (b *testBench) runWith(orgID, runID string, bodies ...loop.Body) (journal.Lease, int64) {
	b.Helper()
	lease := journal.Lease{Org: orgID, RunID: runID, Epoch: 1, Owner: "x"}
	all := append([]loop.Body{loop.Accepted{
		RunID: runID, Org: orgID, Principal: "ann", Surface: "chat", Policy: loop.Policy{Grade: loop.Durable}, Model: "m", Targets: []loop.Target{{Provider: "up"}},
	}}, bodies...)
	b.ok(b.write(lease, 0, all...))
	return lease, int64(len(all))
}

// write appends facts after the one with a number.
func (b *testBench) write(lease journal.Lease, after int64, bodies ...loop.Body) error {
	b.Helper()
	facts := make([]loop.Fact, len(bodies))
	for i, body := range bodies {
		facts[i] = loop.Fact{Seq: after + int64(i) + 1, Epoch: lease.Epoch, At: b.now().UnixMilli(), Version: loop.Version, Body: body}
	}
	return b.Journal.Append(b.Context(), lease, after, journal.Batch{Facts: facts, Sync: true})
}

// approval returns an approval that must exist.
func (b *testBench) approval(orgID, id string) journal.Approval {
	b.Helper()
	a, err := b.Archive.Approval(b.Context(), orgID, id)
	b.ok(err)
	return a
}

// status fails the case unless the approval has the status.
func (b *testBench) status(orgID, id string, want journal.ApprovalStatus) {
	b.Helper()
	if got := b.approval(orgID, id).Status; got != want {
		b.Errorf("%s is %s, want %s", id, got, want)
	}
}

// selected returns the ids that a query selects.
func (b *testBench) selected(orgID string, q journal.ApprovalQuery) string {
	b.Helper()
	found, err := b.Archive.Approvals(b.Context(), orgID, q)
	b.ok(err)
	return idsOf(found)
}

func idsOf(found []journal.Approval) (out string) {
	for _, a := range found {
		out += a.ID + " "
	}
	return out
}

func approvalAsked(b *testBench) {
	at := b.now().UnixMilli()
	b.runWith("a", "run_1", asked("w1", 0, "s", at+1000), loop.Parked{})
	want := journal.Approval{
		ID: "w1", Org: "a", RunID: "run_1", Call: "0.0", Principal: "ann", Surface: "chat", Name: "n_s", Server: "s", Tool: "t", Asker: loop.AskedByServer,
		ToolDigest: "td", ArgsRef: "args:0.0", ArgsDigest: "ad", Host: "pay.example.com", Policy: "p", CallerAt: "gw", Status: journal.ApprovalWaiting, CreatedAt: at, ExpiresAt: at + 1000,
	}
	b.equal(b.approval("a", "w1"), want)
	_, err := b.Archive.Approval(b.Context(), "a", "w2")
	b.checkError(err, org.ErrNotFound)
}

func approvalDecidedOnce(b *testBench) {
	lease, last := b.runWith("a", "run_1", asked("w1", 0, "s", 0), asked("w2", 1, "s", 0), asked("w3", 2, "s", 0), loop.Parked{})
	b.clock.Add(5000)
	at := b.now().UnixMilli()
	b.ok(b.write(journal.Lease{Org: "a", RunID: lease.RunID}, last, loop.CallResolved{WaitID: "w1", Approved: true, By: "bob", Message: "fine"}))
	a := b.approval("a", "w1")
	if a.Status != journal.ApprovalApproved || a.DecidedAt != at || a.DecidedBy != "bob" || a.Reason != "fine" {
		b.Errorf("%+v", a)
	}
	b.status("a", "w2", journal.ApprovalWaiting)
	b.clock.Add(5000)
	b.ok(b.write(journal.Lease{Org: "a", RunID: lease.RunID}, last+1, loop.CallResolved{WaitID: "w2", By: "bob"}))
	b.status("a", "w2", journal.ApprovalDenied)
	b.ok(b.write(journal.Lease{Org: "a", RunID: lease.RunID}, last+2, loop.Expired{WaitID: "w3"}))
	if a := b.approval("a", "w3"); a.Status != journal.ApprovalExpired || a.DecidedBy != "" {
		b.Errorf("%+v", a)
	}
	// The rules refuse a second decision; a store that gets one changes nothing.
	_ = b.write(journal.Lease{Org: "a", RunID: lease.RunID}, last+3, loop.CallResolved{WaitID: "w1", By: "eve"})
	if again := b.approval("a", "w1"); again != a {
		b.Errorf("decided twice: %+v", again)
	}
}

func approvalVoid(b *testBench) {
	lease, last := b.runWith("a", "run_1", asked("w1", 0, "s", 0), asked("w2", 1, "s", 0), loop.Parked{}, loop.CallResolved{WaitID: "w1", Approved: true})
	b.runWith("a", "run_2", asked("w3", 0, "s", 0), loop.Parked{})
	cancelled, end := b.runWith("a", "run_3", asked("w4", 0, "s", 0), loop.Parked{})
	b.ok(b.write(journal.Lease{Org: "a", RunID: cancelled.RunID}, end, loop.CancelRequested{By: "bob", Cause: event.Cancelled, Code: loop.KeyRevoked}))
	if a := b.approval("a", "w4"); a.Status != journal.ApprovalVoid || a.Reason != loop.KeyRevoked || a.DecidedAt != 0 {
		b.Errorf("%+v", a)
	}
	b.ok(b.write(journal.Lease{Org: "a", RunID: lease.RunID, Epoch: lease.Epoch, Owner: lease.Owner}, last, loop.Finished{Reason: event.Cancelled}))
	b.status("a", "w1", journal.ApprovalApproved)
	b.status("a", "w2", journal.ApprovalVoid)
	b.status("a", "w3", journal.ApprovalWaiting)
}

func runsThatWait(b *testBench) {
	b.runWith("b", "run_2", asked("w1", 0, "s", 0), asked("w2", 1, "s", 0), loop.Parked{})
	lease, last := b.runWith("b", "run_1", asked("w3", 0, "s", 0), loop.Parked{})
	nobody := asked("w4", 0, "s", 0)
	nobody.CallerAt = ""
	b.runWith("a", "run_3", nobody, loop.Parked{})
	got, err := b.Archive.WaitingRuns(b.Context())
	b.ok(err)
	b.equal(got, []journal.WaitingRun{
		{Org: "a", RunID: "run_3", Principal: "ann"},
		{Org: "b", RunID: "run_1", Principal: "ann", CallerAt: "gw"}, {Org: "b", RunID: "run_2", Principal: "ann", CallerAt: "gw"},
	})
	b.ok(b.write(journal.Lease{Org: "b", RunID: lease.RunID}, last, loop.CallResolved{WaitID: "w3"}))
	if got, err = b.Archive.WaitingRuns(b.Context()); err != nil || len(got) != 2 {
		b.Errorf("%+v, %v", got, err)
	}
}

func approvalAgain(b *testBench) {
	lease, last := b.runWith("a", "run_1", asked("w1", 0, "s", 0), asked("w2", 1, "s", 0), loop.Parked{}, loop.CallResolved{WaitID: "w1", Approved: true})
	b.ok(b.write(journal.Lease{Org: "a", RunID: lease.RunID, Epoch: lease.Epoch, Owner: lease.Owner}, last, loop.CallPrepared{Key: "0.0", Revision: 1, Verdict: loop.Ask}))
	b.status("a", "w1", journal.ApprovalVoid)
	b.status("a", "w2", journal.ApprovalWaiting)
}

func approvalQueries(b *testBench) {
	for i := range 6 {
		if i != 3 { // two have the same time
			b.clock.Add(1000)
		}
		b.runWith("a", fmt.Sprint("run_", i), asked(fmt.Sprint("w", i), 0, []string{"s", "t"}[i%2], 0), loop.Parked{})
	}
	b.ok(b.write(journal.Lease{Org: "a", RunID: "run_4"}, 3, loop.CallResolved{WaitID: "w4", Approved: true}))
	b.ok(b.write(journal.Lease{Org: "a", RunID: "run_1"}, 3, loop.CallResolved{WaitID: "w1"}))
	for want, q := range map[string]journal.ApprovalQuery{
		"w5 w4 w3 w2 w1 w0 ": {Limit: 10},
		"w5 w4 ":             {Limit: 2},
		"":                   {},
		"w2 w1 w0 ":          {Limit: 10, Before: "w3"},
		"w3 w2 ":             {Limit: 2, Before: "w4"},
		"w5 w3 w2 w0 ":       {Limit: 10, Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}},
		"w4 w1 ":             {Limit: 10, Statuses: []journal.ApprovalStatus{journal.ApprovalApproved, journal.ApprovalDenied}},
		"w2 w0 ":             {Limit: 10, Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}, Server: "s"},
		"w5 w3 w1 ":          {Limit: 10, Server: "t"},
		"w3 ":                {Limit: 10, RunID: "run_3"},
		"w0 ":                {Limit: 10, Before: "w1", Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}},
	} {
		if got := b.selected("a", q); got != want {
			b.Errorf("%+v: %q, want %q", q, got, want)
		}
	}
	_, err := b.Archive.Approvals(b.Context(), "a", journal.ApprovalQuery{Limit: 1, Before: "w9"})
	b.checkError(err, org.ErrNotFound)
}

func pausedRuns(b *testBench) { // P23
	at := b.now().UnixMilli()
	pause := func(id string) loop.Paused {
		return loop.Paused{WaitID: id, Reason: event.MaxCalls, ExpiresAt: at + 100, CallerAt: "gw"}
	}
	lease, last := b.runWith("a", "run_1", pause("p1"))
	_, err := b.Archive.Approval(b.Context(), "a", "p1")
	b.checkError(err, org.ErrNotFound)
	_, err = b.Archive.Approvals(b.Context(), "a", journal.ApprovalQuery{Limit: 1, Before: "p1"})
	b.checkError(err, org.ErrNotFound)
	b.runWith("a", "run_2", asked("w1", 0, "s", 0), loop.Parked{})
	if got := b.selected("a", journal.ApprovalQuery{Limit: 9}); got != "w1 " {
		b.Errorf("the approvals are %q", got)
	}
	if got := b.selected("a", journal.ApprovalQuery{Limit: 9, RunID: "run_1", Pauses: true}); got != "p1 " {
		b.Errorf("the pauses of the run are %q", got)
	}
	b.paused("run_1", true)
	waiting, err := b.Archive.WaitingRuns(b.Context())
	b.ok(err)
	b.equal(waiting, []journal.WaitingRun{{Org: "a", RunID: "run_1", Principal: "ann", CallerAt: "gw"}, {Org: "a", RunID: "run_2", Principal: "ann", CallerAt: "gw"}})
	due, err := b.Archive.DueApprovals(b.Context(), at+100, 9)
	b.ok(err)
	if len(due) != 1 || due[0].ID != "p1" || !due[0].IsPause() || due[0].Name != string(event.MaxCalls) || due[0].Principal != "ann" {
		b.Errorf("due are %+v", due)
	}
	b.ok(b.write(journal.Lease{Org: "a", RunID: lease.RunID}, last, loop.LimitsRaised{By: "bob", WaitID: "p1", Raise: budget.Raise{Calls: 1}}))
	b.paused("run_1", false)
	claimed, err := b.Leases.Claim(b.Context(), "y", 9)
	b.ok(err)
	if len(claimed) != 1 || claimed[0].RunID != "run_1" {
		b.Fatalf("claimed: %+v", claimed)
	}
	b.ok(b.write(claimed[0], last+1, pause("p2")))
	b.ok(b.write(journal.Lease{Org: "a", RunID: "run_1"}, last+2, loop.Expired{WaitID: "p2"}))
	b.paused("run_1", false)
	_, last = b.runWith("a", "run_3", pause("p3"))
	b.ok(b.write(journal.Lease{Org: "a", RunID: "run_3"}, last, loop.CancelRequested{By: "bob", Cause: event.Cancelled}))
	b.paused("run_3", false)
	refused := pause("p4")
	refused.Refused = "no room"
	b.runWith("a", "run_4", refused)
	b.paused("run_4", false)
	if got := b.selected("a", journal.ApprovalQuery{Limit: 9, Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}, Pauses: true}); got != "w1 " {
		b.Errorf("what waits in the end is %q", got)
	}
}

// paused fails the case unless the run is paused, or runs.
func (b *testBench) paused(runID string, want bool) {
	b.Helper()
	head, err := b.Archive.Head(b.Context(), "a", runID)
	b.ok(err)
	if status := head.Summary.Status; (status == journal.Paused) != want || !want && status != journal.Running {
		b.Errorf("%s is %s, paused: want %t", runID, status, want)
	}
}

func approvalsDue(b *testBench) {
	at := b.now().UnixMilli()
	for i, expires := range []int64{at + 300, at + 100, 0, at + 200, at + 101} {
		b.runWith([]string{"a", "b"}[i%2], fmt.Sprint("run_", i), asked(fmt.Sprint("w", i), 0, "s", expires), loop.Parked{})
	}
	b.ok(b.write(journal.Lease{Org: "a", RunID: "run_4"}, 3, loop.CallResolved{WaitID: "w4"}))
	for _, c := range []struct {
		now   int64
		limit int
		want  string
	}{{at + 99, 9, ""}, {at + 100, 9, "w1 "}, {at + 1000, 9, "w1 w3 w0 "}, {at + 1000, 2, "w1 w3 "}, {at + 1000, 0, ""}} {
		due, err := b.Archive.DueApprovals(b.Context(), c.now, c.limit)
		b.ok(err)
		if got := idsOf(due); got != c.want {
			b.Errorf("at %d: %q, want %q", c.now-at, got, c.want)
		}
	}
}

func approvalIsolation(b *testBench) {
	b.runWith("a", "run_1", asked("w1", 0, "s", 0), loop.Parked{})
	b.runWith("b", "run_1", asked("w2", 0, "s", 0), loop.Parked{})
	_, err := b.Archive.Approval(b.Context(), "b", "w1")
	b.checkError(err, org.ErrNotFound)
	_, err = b.Archive.Approvals(b.Context(), "b", journal.ApprovalQuery{Limit: 1, Before: "w1"})
	b.checkError(err, org.ErrNotFound)
	if got := b.selected("b", journal.ApprovalQuery{Limit: 9}); got != "w2 " {
		b.Errorf("b has %q", got)
	}
	if got := b.selected("c", journal.ApprovalQuery{Limit: 9}); got != "" {
		b.Errorf("c has %q", got)
	}
	_ = b.write(journal.Lease{Org: "b", RunID: "run_1"}, 3, loop.CallResolved{WaitID: "w1", Approved: true})
	b.status("a", "w1", journal.ApprovalWaiting)
	// Ids are of an org: the same id may exist in two, and twice in none.
	b.runWith("b", "run_2", asked("w1", 0, "s", 0), loop.Parked{})
	err = b.write(journal.Lease{Org: "a", RunID: "run_2", Epoch: 1, Owner: "x"}, 0, loop.Accepted{RunID: "run_2", Org: "a", Policy: loop.Policy{Grade: loop.Durable}, Targets: []loop.Target{{}}}, asked("w1", 0, "s", 0))
	b.checkError(err, org.ErrExists)
}

func approvalsCapped(b *testBench) {
	b.capped(org.Caps{Approvals: 2})
	b.checkCapError(b.ask("a", "run_0", "ann", "v1", "v2"), "org_caps.approvals", 1)
	if got := b.selected("a", journal.ApprovalQuery{Limit: 9}); got != "" {
		b.Errorf("a refused batch has stored %q", got)
	}
	b.ok(b.ask("a", "run_1", "ann", "w1"))
	b.ok(b.ask("a", "run_2", "ben", "w2"))
	b.checkCapError(b.ask("a", "run_3", "cid", "w3"), "org_caps.approvals", 2)
	b.ok(b.ask("b", "run_1", "ann", "w1"))
	b.ok(b.write(journal.Lease{Org: "a", RunID: "run_1"}, 3, loop.CallResolved{WaitID: "w1"}))
	b.ok(b.ask("a", "run_3", "cid", "w3"))
	lease := journal.Lease{Org: "a", RunID: "run_4", Epoch: 1, Owner: "x"} // a pause counts like an approval
	begin := loop.Accepted{RunID: "run_4", Org: "a", Principal: "dan", Policy: loop.Policy{Grade: loop.Durable}, Targets: []loop.Target{{}}}
	b.checkCapError(b.write(lease, 0, begin, loop.Paused{WaitID: "p1", Reason: event.Tokens}), "org_caps.approvals", 2)
}

func approvalsOfAKeyCapped(b *testBench) { // H02
	b.capped(org.Caps{Approvals: 5})
	b.checkCapError(b.ask("a", "run_0", "ann", "v1", "v2", "v3", "v4"), "org_caps.approvals", 3)
	b.ok(b.ask("a", "run_1", "ann", "w1", "w2"))
	b.ok(b.ask("a", "run_2", "ann", "w3"))
	b.checkCapError(b.ask("a", "run_3", "ann", "w4"), "org_caps.approvals", 3)
	b.ok(b.ask("a", "run_3", "ben", "w4", "w5"))
	b.checkCapError(b.ask("a", "run_4", "ben", "w6"), "org_caps.approvals", 5)
	b.ok(b.write(journal.Lease{Org: "a", RunID: "run_1"}, 4, loop.CallResolved{WaitID: "w1"}))
	b.ok(b.ask("a", "run_4", "ann", "w6"))
}

// ask stores a run of a principal that asks for these approvals.
func (b *testBench) ask(orgID, runID, principal string, ids ...string) error {
	b.Helper()
	bodies := []loop.Body{loop.Accepted{RunID: runID, Org: orgID, Principal: principal, Policy: loop.Policy{Grade: loop.Durable}, Targets: []loop.Target{{}}}}
	for i, id := range ids {
		bodies = append(bodies, asked(id, i, "s", 0))
	}
	return b.write(journal.Lease{Org: orgID, RunID: runID, Epoch: 1, Owner: "x"}, 0, append(bodies, loop.Parked{})...)
}

func approvalTwoWriters(b *testBench) {
	_, last := b.runWith("a", "run_1", asked("w1", 0, "s", 0), loop.Parked{})
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			errs[i] = b.write(journal.Lease{Org: "a", RunID: "run_1"}, last, loop.CallResolved{WaitID: "w1", Approved: i%2 == 0, By: fmt.Sprint(i)})
		})
	}
	all.Wait()
	a, won := b.approval("a", "w1"), 0
	for i, err := range errs {
		var behind *journal.Behind
		switch {
		case err == nil:
			won++
			if a.DecidedBy != fmt.Sprint(i) || (a.Status == journal.ApprovalApproved) != (i%2 == 0) {
				b.Errorf("writer %d has won, and the approval is %+v", i, a)
			}
		case !errors.As(err, &behind) || len(behind.Facts) == 0:
			b.Errorf("writer %d: %v", i, err)
		}
	}
	if won != 1 {
		b.Errorf("%d writers have won", won)
	}
}

// approvalsPersist is a rule of persistence.
func approvalsPersist(b *testBench) {
	b.runWith("a", "run_1", asked("w1", 0, "s", 7), asked("w2", 1, "s", 0), loop.Parked{}, loop.CallResolved{WaitID: "w2", By: "bob", Message: "no"})
	first, second := b.approval("a", "w1"), b.approval("a", "w2")
	check := func(b *testBench) {
		b.Helper()
		b.equal(b.approval("a", "w1"), first)
		b.equal(b.approval("a", "w2"), second)
		due, err := b.Archive.DueApprovals(b.Context(), 7, 9)
		b.ok(err)
		if idsOf(due) != "w1 " {
			b.Errorf("due: %s", idsOf(due))
		}
	}
	check(&testBench{T: b.T, Store: b.maker.Crash(b.T, b.Store), maker: b.maker})
	b.Store = b.maker.Reopen(b.T, b.Store)
	check(b)
}
