package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// longest is how long a request stays open while its run waits for a person.
const longest = 5 * time.Minute

// raisesOfOne is how often a person tries to raise the same run before cancelling it: a budget may never
// have room for it.
const raisesOfOne = 3

// gate gives a third of the clients calls that wait for a person. A third of these store
// nothing otherwise.
func (c *client) gate() {
	r := c.w.chance("gates", c.id)
	if r.IntN(3) > 0 {
		return
	}
	var names []string
	for _, class := range classes() {
		if r.IntN(2) == 0 {
			names = append(names, string(class))
		}
	}
	rule := loop.ServerApproval{Server: "s", WaitMS: between(r, 10*time.Second, longest).Milliseconds()}
	rule.ByServer.Always = &policy.Tools{Names: names}
	c.like.Policy.Approvals, c.like.WaitFor = []loop.ServerApproval{rule}, longest
	c.like.Policy.NoStore = r.IntN(3) == 0 // its texts are stored when it waits
}

// pauses lets the run of a third of the clients wait at limits that it reaches, for a while.
func (c *client) pauses() {
	r := c.w.chance("pauses", c.id)
	if r.IntN(3) > 0 {
		return
	}
	l := &c.like.Policy.Limits
	l.OnLimit, l.Rounds, l.Calls = budget.Pause, 1+r.IntN(len(c.script)), 1+r.IntN(5)
	c.like.Policy.PauseMS, c.like.PausedFor = between(r, 10*time.Second, longest).Milliseconds(), 6*longest // clocks differ
}

// raise raises the limits of a run that is paused, and tries to raise them for another org.
func (p person) raise(at *process, runID string, r *rand.Rand) {
	account := memlimit.New(memlimit.Options{}).Open(p.org)
	defer account.Close()
	n := run.NewLimits{Rounds: new(int64(1 + r.IntN(8))), Calls: new(int64(1 + r.IntN(20)))}
	switch r.IntN(4) {
	case 0:
		n.Rounds = nil
	case 1:
		n.Calls = nil
	case 2:
		n.Rounds, n.Calls, n.ActiveMS = nil, nil, new(int64(300_000))
	}
	by := org.Author{Principal: p.name, At: at.now().UnixMilli()}
	for _, other := range orgs() {
		_, err := at.runner.Raise(context.Background(), other, runID, n, by, account)
		var f *fault.Error
		switch {
		case other != p.org && !at.isDead() && err == nil:
			p.w.violate("I11: org %s raises run %s of org %s", other, runID, p.org)
		case other != p.org, err == nil, !errors.As(err, &f), at.isDead():
		case f.Reason == "not_a_raise", f.Reason == "not_paused", f.Reason == "run_finished", f.Reason == "above_org_limit", f.Code == fault.Unavailable:
		default:
			p.w.violate("I13: %s raises %s and is answered %v", p.name, runID, err)
		}
	}
}

// person decides about the calls of an org that wait. Several of them do not ask each other.
type person struct {
	w         *world
	name, org string
}

func (w *world) persons() (all []person) {
	for _, org := range orgs() {
		for n := range 2 {
			all = append(all, person{w, fmt.Sprintf("%s-p%d", org, n), org})
		}
	}
	return all
}

// live decides about what waits, as long as something may.
func (p person) live() {
	r := p.w.chance("decides", p.name)
	tries := map[string]int{} // raises, by run
	for {
		var at *process
		var asked []journal.Approval
		var paused []journal.Summary
		goesOn := p.w.wait(context.Background(), p.name+" looks at what waits", between(r, time.Second, 40*time.Second), func(chance *rand.Rand) {
			at = p.w.replicas[chance.IntN(replicas)].serving()
			asked, _ = p.w.store.journal.Approvals(context.Background(), p.org, journal.ApprovalQuery{Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}, Limit: 100})
			paused, _ = p.w.store.journal.Runs(context.Background(), p.org, journal.Query{States: []string{string(journal.Paused)}, Limit: 100})
		})
		if !goesOn {
			return
		}
		if at != nil && len(paused) > 0 {
			id := paused[r.IntN(len(paused))].RunID
			if tries[id]++; tries[id] <= raisesOfOne {
				p.raise(at, id, r)
			} else if at.runner.Cancel(context.Background(), p.org, id, org.Author{Principal: p.name}) == nil {
				p.w.book.cancelled(runKey{p.org, id})
			}
			continue
		}
		if at == nil || len(asked) == 0 {
			continue
		}
		p.decide(at, asked[r.IntN(len(asked))].ID, journal.Decision{Approved: r.IntN(3) > 0, Message: "org=" + p.org})
	}
}

// decide makes a decision, and tries to make it for another org.
func (p person) decide(at *process, id string, d journal.Decision) {
	by := run.TrustedDecider(org.Author{Principal: p.name, At: at.now().UnixMilli()})
	for _, other := range orgs() {
		if _, err := at.runner.Decisions().Decide(context.Background(), other, id, d, by); other != p.org && !at.isDead() && err == nil {
			p.w.violate("I11: org %s decides %s of org %s", other, id, p.org)
		} else if other == p.org {
			p.understand(id, d, err)
		}
	}
}

func (p person) understand(id string, d journal.Decision, err error) {
	var f *fault.Error
	switch {
	case err == nil:
		p.w.book.told(p.org, id, d)
	case !errors.As(err, &f): // nobody knows whether it was stored
	case f.Reason == "already_decided":
		p.w.saw("two people decided differently")
	case f.Reason == "approval_expired", f.Reason == "approval_void", f.Reason == "not_waiting", f.Reason == "run_finished", f.Code == fault.Unavailable:
	default:
		p.w.violate("I13: %s decides %s and is answered %v", p.name, id, err)
	}
}

// told enters that a person was told that a decision counts.
func (b *book) told(org, id string, d journal.Decision) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decisions[org+"/"+id] = d
}

// checkDecisions checks that what people were told is what the runs went on with.
func (b *book) checkDecisions(key runKey, facts []loop.Fact) {
	for _, f := range facts {
		body, ok := f.Body.(loop.CallResolved)
		if d, told := b.decisions[key.org+"/"+body.WaitID]; ok && told && d.Approved != body.Approved {
			b.w.violate("I13: a person was told that %s is approved=%t, and run %s has %t", body.WaitID, d.Approved, key.run, body.Approved)
		}
	}
}

// checkApproved is asked when a call reaches its tool: one that needs it was approved.
func (b *book) checkApproved(key runKey, h *history, call loop.CallKey, name string) {
	policy := &h.state.Accepted.Policy
	if policy.Asks("s", name, false, func(string) bool { return true }) == "" {
		return
	}
	if !h.approved[call] {
		b.w.violate("I13: call %s of run %s is executed without an approval", call, key.run)
		return
	}
	b.w.saw("a call was approved and executed")
}
