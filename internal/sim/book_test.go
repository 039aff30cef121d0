package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// book is what an observer of everything knows: what the journals hold, what
// the tools did and what the models billed. It checks the promises as things
// happen.
type book struct {
	w       *world
	budgets []budget.Shared
	billing map[string]int64 // tokens that were really used, by org

	mu    sync.Mutex // guards what follows: clients ask
	runs  map[runKey]*history
	order []runKey
	keyed map[string]runKey // by org and key

	inboxes map[string]*inbox // by org and session
	sums    map[string]seen   // what summaries of talks stand for, by mark
	ctx     context.Context

	decisions map[string]journal.Decision // that people were told of, by org and approval
}

// history is what the observer knows of a run.
type history struct {
	state     loop.State
	head      journal.Head     // as the store has to have it
	begin     time.Time        // as its first process saw it
	shift     shift            // of the present owner
	extended  time.Time        // when the lease was last extended; zero = it was released
	epoch     int64            // the highest that was given to an owner
	owners    map[int64]string // by epoch
	started   map[loop.CallKey]int
	raised    bool                  // after a pause
	approved  map[loop.CallKey]bool // of started calls, also when the state has forgotten them
	effects   map[loop.CallKey]*effects
	done      map[loop.CallKey]loop.CallDone
	billed    int64
	said      string // the text of the latest answer, with the parts of one that was cut off
	cancelled bool
	poisoned  bool  // nobody got it further
	turn      *turn // of a session; nil = it is none
}

// shift is the time for which one owner has worked on a run.
type shift struct {
	epoch int64
	at    int64     // of its first fact
	since time.Time // when that was made, or stored
}

// effects are what a tool server knows of a call.
type effects struct {
	class tool.Class
	sent  int
	took  int // how often it took effect
	keys  []string
}

func newBook(w *world) *book {
	return &book{w: w, budgets: w.budgets(), billing: map[string]int64{}, runs: map[runKey]*history{}, keyed: map[string]runKey{}, inboxes: map[string]*inbox{}, sums: map[string]seen{}, ctx: context.Background(), decisions: map[string]journal.Decision{}}
}

// of returns the history of a run.
func (b *book) of(key runKey) *history {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.runs[key]
	if h == nil {
		h = &history{
			owners: map[int64]string{}, started: map[loop.CallKey]int{}, approved: map[loop.CallKey]bool{},
			effects: map[loop.CallKey]*effects{}, done: map[loop.CallKey]loop.CallDone{},
		}
		b.runs[key] = h
		b.order = append(b.order, key)
	}
	return h
}

// wrote enters a batch that was stored, and reports whether the run is over.
func (b *book) wrote(p *process, wr writing) bool {
	key := runKey{wr.lease.Org, wr.lease.RunID}
	h := b.of(key)
	if o := wr.batch.Opening; o != nil && o.Key != nil {
		b.opened(key, *o.Key)
	}
	b.entersInbox(key, h, wr.batch)
	b.checkOwner(key, h, wr.lease)
	if wr.lease.Epoch > 0 {
		b.extended(wr.lease)
	}
	defer func() {
		if h.state.ActiveSince == 0 { // a run that waits has no lease
			h.extended = time.Time{}
		}
	}()
	for _, f := range wr.batch.Facts {
		if f.Seq != h.state.Seq+1 {
			b.w.violate("I1: fact %d of run %s follows fact %d", f.Seq, key.run, h.state.Seq)
		}
		if f.Epoch != 0 && f.Epoch < h.epoch {
			b.w.violate("I1: %s writes %s to run %s with epoch %d, and epoch %d was given away", p.name, f.Body.Kind(), key.run, f.Epoch, h.epoch)
		}
		if err := loop.Allowed(h.state, f); err != nil {
			b.w.violate("I2: run %s, fact %d: %v", key.run, f.Seq, err)
		}
		b.checkDate(p, key, h, f)
		h.hears(f, wr.batch.Rows)
		b.hearsTurn(key, h, f, wr.batch.Rows)
		h.state = loop.Apply(h.state, f)
		h.head = h.head.After(wr.lease, journal.Batch{Facts: []loop.Fact{f}}, time.Time{})
		b.checkHead(key, h)
		_, deadly := h.state.FatalCall()
		rules := h.state.Accepted.Rules
		stuck := h.state.DeadOwners >= rules.DeadOwners && h.state.At-h.state.ProgressAt >= rules.StuckMS
		h.poisoned = h.poisoned || deadly || stuck
		b.enter(p, key, h, f)
	}
	return h.state.Finished != nil
}

// slowest is how long a fact may be on its way to the store.
const slowest = 50 * time.Second

// checkDate keeps the dates of a journal in order, and those of one owner as far
// apart as they are.
func (b *book) checkDate(p *process, key runKey, h *history, f loop.Fact) {
	if f.At < h.state.At {
		b.w.violate("I1: run %s, %s is dated %d ms before the fact before it", key.run, f.Body.Kind(), h.state.At-f.At)
	}
	switch {
	case f.Epoch == 0: // somebody else's, by another clock
		h.shift = shift{}
	case f.Epoch != h.shift.epoch:
		h.shift = shift{f.Epoch, f.At, time.Now()}
		if f.Seq == 1 {
			h.shift.since = p.begin(key.run)
		}
	default:
		said, passed := time.Duration(f.At-h.shift.at)*time.Millisecond, time.Since(h.shift.since)
		if said > passed+slowest {
			b.w.violate("I7: run %s was at work for %v with epoch %d, and its journal says %v", key.run, passed, f.Epoch, said)
		}
	}
}

// extended enters that the owner of a run has got its lease, or has extended it.
func (b *book) extended(l journal.Lease) { b.of(runKey{l.Org, l.RunID}).extended = time.Now() }

// released enters that the owner of a run has given its lease back.
func (b *book) released(l journal.Lease) {
	if h := b.of(runKey{l.Org, l.RunID}); h.epoch == l.Epoch && h.owners[l.Epoch] == l.Owner {
		h.extended = time.Time{}
	}
}

// checkOwner keeps an epoch to one owner.
func (b *book) checkOwner(key runKey, h *history, l journal.Lease) {
	if l.Epoch == 0 {
		return
	}
	h.epoch = max(h.epoch, l.Epoch)
	if owner, taken := h.owners[l.Epoch]; taken && owner != l.Owner {
		b.w.violate("I1: epoch %d of run %s belongs to %s and to %s", l.Epoch, key.run, owner, l.Owner)
	}
	h.owners[l.Epoch] = l.Owner
}

// claimed enters a lease that was given away.
func (b *book) claimed(l journal.Lease) {
	key := runKey{l.Org, l.RunID}
	h := b.of(key)
	if l.Epoch <= h.epoch {
		b.w.violate("I1: %s claims run %s with epoch %d, and epoch %d was given away", l.Owner, key.run, l.Epoch, h.epoch)
	}
	if held := time.Since(h.extended); held < journal.LeaseTTL-2*time.Millisecond { // leases are kept in whole ms
		b.w.violate("I7: %s takes run %s from %s, whose lease was extended %v ago", l.Owner, key.run, h.owners[h.epoch], held)
	}
	b.checkOwner(key, h, l)
	b.extended(l)
}

// opened enters the run of a key.
func (b *book) opened(key runKey, k journal.SubmitKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := key.org + "/" + k.Principal + "/" + k.Key
	if first, taken := b.keyed[name]; taken {
		b.w.violate("I9: key %s stands for %s and for %s", name, first.run, key.run)
	}
	b.keyed[name] = key
}

// enter enters what a fact says of calls.
func (b *book) enter(p *process, key runKey, h *history, f loop.Fact) {
	switch body := f.Body.(type) {
	case loop.Accepted:
		h.begin = p.begin(key.run)
	case loop.Compacted:
		switch {
		case body.Failed:
			b.w.saw("a summary failed")
		case len(body.Refs) > 0:
			b.w.saw("a prompt was made shorter")
		}
	case loop.CallWaiting:
		b.w.saw("a call waited for a person")
	case loop.CallResolved:
		b.w.saw(fmt.Sprintf("a person decided: approved=%t", body.Approved))
	case loop.Resumed:
		if compacted(&h.state) {
			b.w.saw("a compacted run was taken over")
		}
		if h.state.Parks > 0 {
			b.w.saw("a run that had waited went on")
		}
	case loop.Paused:
		b.w.saw("a run was paused at a limit")
	case loop.LimitsRaised:
		h.raised = true
		b.w.saw("a paused run was raised")
	case loop.Expired:
		if body.WaitID != "" && h.state.PauseOver != "" {
			b.w.saw("nobody raised a paused run")
			break
		}
		if body.WaitID != "" {
			b.w.saw("nobody decided in time")
			break
		}
		if most := time.Duration(h.state.Accepted.Limits.ActiveMS) * time.Millisecond; time.Since(h.begin) < most-time.Second {
			b.w.violate("I7: run %s is out of time after %v of %v", key.run, time.Since(h.begin), most)
		}
	case loop.CallStarted:
		h.started[body.Key] = body.Attempt
		c, _ := h.state.Call(body.Key)
		h.approved[body.Key] = c.Resolved && c.Approved
		if body.Attempt > 1 {
			b.w.saw("a call was repeated")
		}
	case loop.CallDone:
		h.done[body.Key] = body
		c, _ := h.state.Call(body.Key)
		if body.Outcome == loop.Unknown && h.state.Ended == "" && c.Prepared.Class == tool.Once {
			b.w.saw("a once call became outcome_unknown")
		}
		if e := h.effects[body.Key]; body.Outcome == loop.OK && (e == nil || e.took == 0) {
			b.w.violate("I3: call %s of run %s is said to have worked, and nobody has seen it", body.Key, key.run)
		}
	case loop.Finished:
		b.w.saw("a run ended: " + string(body.Reason))
		if h.raised && body.Reason == event.Complete {
			b.w.saw("a raised run was completed")
		}
		if body.Reason == event.Lost && h.state.Grade == loop.Durable && !h.poisoned {
			b.w.violate("I7: durable run %s was given up: %s %s", key.run, body.Code, body.Detail)
		}
	}
}

// affected is asked by a tool server that a call has reached; it returns how
// often the call has taken effect.
func (b *book) affected(p *process, key runKey, class tool.Class, c tool.Call) int {
	h := b.of(key)
	call := loop.CallKey(c.Key)
	if a := h.state.Accepted; a == nil || a.Org != key.org {
		b.w.violate("I11: a tool of org %s is called for run %s", key.org, key.run)
		return 0
	}
	if unsaid := h.state.Grade == loop.Light && class == tool.Read; h.started[call] < c.Attempt && !unsaid {
		b.w.violate("I10: %s calls %s of run %s, attempt %d, and the journal knows of %d", p.name, call, key.run, c.Attempt, h.started[call])
	}
	b.checkApproved(key, h, call, string(class))
	e := h.effects[call]
	if e == nil {
		e = &effects{class: class}
		h.effects[call] = e
	}
	e.sent++
	honoured := class == tool.Keyed && slices.Contains(e.keys, c.IdempotencyKey)
	if !honoured {
		e.took++
		e.keys = append(e.keys, c.IdempotencyKey)
	}
	switch {
	case class == tool.Once && e.took > 1:
		b.w.violate("I3: once call %s of run %s took effect %d times", call, key.run, e.took)
	case class == tool.Keyed && e.took > 1:
		b.w.violate("I3: keyed call %s of run %s has the keys %v", call, key.run, e.keys)
	case honoured:
		b.w.saw("a keyed call was sent twice and took effect once")
	}
	return e.took
}

// billed enters what a model call has cost.
func (b *book) billed(c *client, req *model.Request, tokens int64) {
	if len(c.like.Policy.Budgets) > 0 {
		b.billing[c.org] += tokens
	}
	key := b.runFor(c, req)
	if key.run == "" {
		return // a light run has no key to find it by
	}
	h := b.of(key)
	h.billed += tokens
	if most := h.state.Accepted.Limits.Tokens; most > 0 && h.billed > most {
		b.w.violate("I4: run %s has used %d tokens of %d", key.run, h.billed, most)
	}
}

// checkStep checks what must hold at every moment.
func (b *book) checkStep() {
	for _, org := range orgs() {
		for _, s := range b.budgets {
			u := b.w.store.used(budgetKey{org, journal.WindowAt(s, 0).Scope})
			accounted := u.Spent.Tokens + u.Reserved.Tokens
			if used := b.billing[org]; used > accounted || accounted > s.Limit.Tokens {
				b.w.violate("I4: budget %s of org %s: %d tokens were used, %d are accounted for, %d is the limit", s.Scope, org, used, accounted, s.Limit.Tokens)
			}
		}
	}
}

// checkTranscript checks what a model is shown: that every call has one result,
// in its place, and that nothing is another org's.
func (b *book) checkTranscript(c *client, req *model.Request) {
	for i := 0; i < len(req.Items); i++ {
		it := req.Items[i]
		for _, other := range orgs() {
			if other != c.org && strings.Contains(it.Text(), "org="+other) {
				b.w.violate("I11: the model of org %s reads %q", c.org, it.Text())
			}
		}
		switch it.Kind {
		case item.ToolResult:
			b.w.violate("I12: a result of %s follows no call", it.CallID)
		case item.ToolCall:
			end := item.TurnEnd(req.Items, i)
			for n, call := range req.Items[i:end] {
				at := end + n
				if at >= len(req.Items) || req.Items[at].Kind != item.ToolResult || req.Items[at].CallID != call.CallID {
					b.w.violate("I12: call %s of item %d has no result in its place", call.CallID, i+n)
					return
				}
			}
			i = end + (end - i) - 1
		}
	}
}

// compacted reports whether the model sees something else than the items of the run.
func compacted(s *loop.State) bool {
	return slices.ContainsFunc(s.Transcript, func(seg loop.Segment) bool { return seg.Kind == loop.Replacement })
}

// checkPrompt checks that the owner of a run sends what its journal says that the model sees.
func (b *book) checkPrompt(p *process, c *client, req *model.Request) {
	key := b.runFor(c, req)
	if key.run == "" || isOrder(req) {
		return
	}
	h := b.of(key)
	if h.owners[h.epoch] != p.name || !h.state.Attempt.Open {
		return
	}
	if asks := asksForRest(req); asks != h.state.Continues() {
		b.w.violate("I15: the prompt of run %s asks for the rest of an answer: %t, and its journal has one that was cut off: %t", key.run, asks, !asks)
	}
	if asksForRest(req) {
		b.checkRest(key, h, req)
	}
	summary := slices.ContainsFunc(req.Items, func(it item.Item) bool { return strings.HasPrefix(it.Text(), "[Summary of the earlier conversation") })
	placeholders := h.state.Compacted != nil && !h.state.Compacted.Summarized // with an earlier summary, or without one
	inherited := summary && c.remark != nil                                   // of a turn before it
	if summary != compacted(&h.state) && !placeholders && !inherited {
		b.w.violate("I15: the prompt of run %s has a summary: %t, and its journal has a compaction: %t", key.run, summary, !summary)
	}
}

// checkRest checks that the model sees what it has said so far, in one message, before it is asked for the rest.
func (b *book) checkRest(key runKey, h *history, req *model.Request) {
	n := len(req.Items)
	for n > 1 && req.Items[n-1].Role != item.Assistant {
		n--
	}
	if got := req.Items[n-1].Text(); got != h.said {
		b.w.violate("I15: run %s asks for the rest of %q, and the model has said %q", key.run, got, h.said)
	}
}

// hears enters what the model has said in a turn.
func (h *history) hears(f loop.Fact, rows []journal.Row) {
	t, ok := f.Body.(loop.Turn)
	if !ok {
		return
	}
	if !h.state.Continues() {
		h.said = ""
	}
	for _, row := range rows {
		if items, ok := row.Value.(item.List); ok && row.Ref == t.ItemsRef {
			h.said += items[0].Text()
		}
	}
}

// knows reports whether the key of a client stands for a run.
func (b *book) knows(c *client) bool { return b.runOf(c) != "" }

// runOf returns the run of a client's key; empty if there is none.
func (b *book) runOf(c *client) string {
	if c.key == nil {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keyed[c.org+"/"+c.key.Principal+"/"+c.key.Key].run
}

// orgOf returns the org of a run, whoever asks.
func (b *book) orgOf(key runKey) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range b.order {
		if other.run == key.run {
			return other.org
		}
	}
	return key.org
}

// cancelled enters that somebody was told that the run is cancelled.
func (b *book) cancelled(key runKey) {
	h := b.of(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	h.cancelled = true
}

func (b *book) allOver() bool { return b.unfinished() == "" }

// unfinished names the runs that are not over, and the clients that wait.
func (b *book) unfinished() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := b.w.waiting()
	for _, key := range b.order {
		if h := b.runs[key]; h.state.Accepted != nil && h.state.Finished == nil {
			names = append(names, fmt.Sprintf("run %s (epoch %d, fact %d)", key.run, h.epoch, h.state.Seq))
		}
	}
	return strings.Join(names, ", ")
}

// checkEnd checks what must hold when all is over.
func (b *book) checkEnd() {
	if b.w.broken() {
		return
	}
	for _, key := range b.order {
		if h := b.runs[key]; h.state.Accepted != nil {
			b.checkRun(key, h)
		}
	}
	for _, org := range orgs() {
		for _, s := range b.budgets {
			if u := b.w.store.used(budgetKey{org, journal.WindowAt(s, 0).Scope}); u.Reserved != (budget.Amount{}) {
				b.w.violate("I5: %d tokens of budget %s of org %s are still set aside", u.Reserved.Tokens, s.Scope, org)
			}
		}
	}
	if leases, _ := b.w.store.journal.Claim(context.Background(), "nobody", 100); len(leases) > 0 {
		b.w.violate("I5: run %s can still be claimed", leases[0].RunID)
	}
	for _, c := range b.w.everybody() {
		b.checkConns(c)
	}
	b.checkSessions()
	b.checkSlots()
}

// checkSlots opens as many runs as there are slots: all of them are free.
func (b *book) checkSlots() {
	for _, c := range b.w.clients {
		if c.id != c.org+"-c0" {
			continue
		}
		for n := range c.like.Policy.Slots {
			l := journal.Lease{Org: c.org, RunID: fmt.Sprintf("probe_%d", n), Epoch: 1, Owner: "probe"}
			body := loop.Accepted{RunID: l.RunID, Org: c.org, Policy: loop.Policy{Grade: loop.Durable}}
			batch := journal.Batch{Facts: []loop.Fact{{Seq: 1, Epoch: 1, Version: loop.Version, Body: body}}, Opening: &journal.Opening{Slots: c.like.Policy.Slots}}
			wr := writing{l, 0, batch}
			err := b.w.store.count(nil, wr)
			if err == nil {
				err = b.w.store.journal.Append(context.Background(), l, 0, b.w.store.mutate(wr).batch)
			}
			if err != nil {
				b.w.violate("I5: of %d slots of org %s only %d are free: %v", c.like.Policy.Slots, c.org, n, err)
			}
		}
	}
}

// checkRun checks a run that is over.
func (b *book) checkRun(key runKey, h *history) {
	story, err := b.w.store.journal.Load(context.Background(), key.org, key.run)
	if errors.Is(err, org.ErrNotFound) && h.state.Finished != nil && h.state.Accepted.Policy.NoStore {
		b.w.saw("a run that was to be forgotten was")
		return
	}
	if err != nil || int64(len(story.Facts)) != h.state.Seq || story.Summary.Status != journal.Done {
		b.w.violate("I1: the journal of run %s is not what was written: %v", key.run, err)
		return
	}
	b.checkDecisions(key, story.Facts)
	if reason := h.state.Finished.Reason; h.cancelled && reason == event.Complete {
		b.w.violate("I7: run %s was cancelled, and ended as %s", key.run, reason)
	}
	said := tell(story)
	for call, e := range h.effects {
		if strings.Contains(said.results[string(call)], "not sent") {
			b.w.violate("I3: call %s of run %s took effect %d times, and its result says: %s", call, key.run, e.took, said.results[string(call)])
		}
		if h.state.Accepted.Grade == loop.Light && e.class == tool.Read {
			continue // of these a light run keeps no intent
		}
		if d, ok := h.done[call]; !ok || d.Outcome == loop.NotRun || d.Outcome == loop.SkippedLimit {
			b.w.violate("I3: call %s of run %s took effect %d times, and its journal says %q", call, key.run, e.took, d.Outcome)
		}
	}
}

// checkHead checks that a writer who reads only the head of a run gets the same answer
// as one who folds its journal.
func (b *book) checkHead(key runKey, h *history) {
	if h.head.Summary.Counts != h.state.Counts {
		b.w.violate("I2: run %s after fact %d: its head counts %+v, its state %+v", key.run, h.state.Seq, h.head.Summary.Counts, h.state.Counts)
	}
	for _, body := range []loop.Body{loop.CancelRequested{Cause: event.Cancelled}, loop.Resumed{}, loop.Expired{}, loop.InputAdded{}, loop.Blocked{}} {
		byHead := h.head.Allow(body)
		byState := loop.Allowed(h.state, loop.Fact{Seq: h.state.Seq + 1, Body: body})
		if (byHead == nil) != (byState == nil) {
			b.w.violate("I2: run %s after fact %d: %s by its head: %v; by its state: %v", key.run, h.state.Seq, body.Kind(), byHead, byState)
		}
	}
}
