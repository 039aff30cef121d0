package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
)

// longest is how long a request stays open while its run waits for a person.
const longest = 5 * time.Minute

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
	for {
		var at *process
		var asked []journal.Approval
		goesOn := p.w.wait(context.Background(), p.name+" looks at what waits", between(r, time.Second, 40*time.Second), func(chance *rand.Rand) {
			at = p.w.replicas[chance.IntN(replicas)].serving()
			asked, _ = p.w.store.journal.Approvals(context.Background(), p.org, journal.ApprovalQuery{Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}, Limit: 100})
		})
		if !goesOn {
			return
		}
		if at == nil || len(asked) == 0 {
			continue
		}
		p.decide(at, asked[r.IntN(len(asked))].ID, journal.Decision{Approved: r.IntN(3) > 0, Message: "org=" + p.org})
	}
}

// decide makes a decision, and tries to make it for another org.
func (p person) decide(at *process, id string, d journal.Decision) {
	by := org.Author{Principal: p.name, At: at.now().UnixMilli()}
	for _, other := range orgs() {
		if _, err := at.runner.Decide(context.Background(), other, id, d, by); other != p.org && !at.isDead() && err == nil {
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
