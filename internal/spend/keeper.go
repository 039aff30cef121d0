// Package spend reserves the cost of model calls in budgets without a write for each call.
//
// Relays and light runs are many and short. So a process draws a slice of a budget, which counts
// as reserved, and its calls reserve from the slice in memory. The store is asked when a slice is
// used up, and once a minute for what was spent. What was drawn is used while the store cannot be
// written; nothing is drawn then.
//
//	Reserve ──► slice with enough left ──► Reservation ──► Settle
//	               └ otherwise journal.Slices.Exchange
package spend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// Constants of slices.
const (
	idleTime     = time.Minute      // a slice that is not used for as long is returned, and the spending of others is stored as often
	tickInterval = 15 * time.Second // how often the Keeper looks for them
	exchangeTime = 10 * time.Second // how long a model call waits for the store

	// maxSlices is how many slices of one org are kept. Each end user has one for each
	// budget. Beyond it those are returned that were not used for the longest time.
	maxSlices = 10_000
	evicted   = 100 // at once
)

// Keeper holds the slices of a process. It is safe for concurrent use.
type Keeper struct {
	store journal.Slices
	owner string
	log   *slog.Logger
	stop  context.CancelFunc
	done  sync.WaitGroup

	overran chan struct{} // has room for one: more was spent of a slice than was drawn
	writes  atomic.Int64  // see Writes

	mu   sync.Mutex // guards orgs, and all slices
	orgs map[string]*ofOrg
}

// ofOrg has the slices of an org, by scope of the window.
type ofOrg struct {
	turn   chan struct{} // has room for one: who exchanges slices, or takes from them
	users  int           // who has the turn or waits for it
	slices map[string]*slice
}

// slice is what the process has drawn of one window.
type slice struct {
	budget budget.Window
	drawn  budget.Amount // and not spent, as the store knows it
	spent  budget.Amount // since the slice was made
	told   budget.Amount // the part of spent that the store knows
	held   budget.Amount // by calls that have not ended
	holds  int
	used   time.Time // when a call last reserved or ended
	asked  time.Time // when the store was last asked
	recent recent

	closing bool // it may be closed in the store: nothing is reserved from it until that is known
}

// left returns what calls can reserve of the fields that the budget limits.
func (s *slice) left() budget.Amount {
	return s.drawn.Sub(s.budget.Limited(s.spent.Sub(s.told))).Sub(s.held)
}

// overrun reports whether more was spent than was drawn, and the store does not know.
func (s *slice) overrun() bool {
	return !s.drawn.Covers(s.budget.Limited(s.spent.Sub(s.told)))
}

// recent is the spending of this minute and the one before it.
type recent struct {
	since     time.Time
	now, last budget.Amount
}

func (r *recent) add(a budget.Amount, now time.Time) {
	r.advance(now)
	r.now = r.now.Add(a)
}

// inAMinute returns the spending of a minute.
func (r *recent) inAMinute(now time.Time) budget.Amount {
	r.advance(now)
	return r.now.Max(r.last)
}

func (r *recent) advance(now time.Time) {
	switch past := now.Sub(r.since); {
	case past < time.Minute:
	case past < 2*time.Minute:
		r.since, r.now, r.last = now, budget.Amount{}, r.now
	default:
		*r = recent{since: now}
	}
}

// New returns a Keeper whose slices belong to the owner, a process. It returns idle slices only
// between Start and Stop.
func New(store journal.Slices, owner string, log *slog.Logger) *Keeper {
	return &Keeper{store: store, owner: owner, log: log, overran: make(chan struct{}, 1), orgs: map[string]*ofOrg{}}
}

// Start starts the Keeper's goroutine, which runs until Stop.
func (k *Keeper) Start() {
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	k.done.Go(func() {
		ticks := time.NewTicker(tickInterval)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-k.overran:
				k.report(ctx, func(s *slice, _ time.Time) choice { return chosen(s.overrun(), told) })
				continue
			case <-ticks.C:
			}
			k.report(ctx, due)
		}
	})
}

// Stop ends the goroutine, and returns what no call holds.
func (k *Keeper) Stop(ctx context.Context) {
	if k.stop != nil {
		k.stop()
		k.done.Wait()
	}
	k.report(ctx, func(*slice, time.Time) choice { return returned })
}

// choice is what happens to a slice when its org is reported.
type choice int

const (
	left     choice = iota // nothing
	told                   // the store is told what was spent; what is drawn stays drawn, for the next calls
	returned               // it is told, and what no call holds is returned
)

// chosen returns c if yes.
func chosen(yes bool, c choice) choice {
	if yes {
		return c
	}
	return left
}

// due chooses the slices that were not used for a while, and of others those of which the store has not
// been told for as long.
func due(s *slice, now time.Time) choice {
	untold := s.spent != s.told && now.Sub(s.asked) >= idleTime
	if now.Sub(s.used) >= idleTime {
		return chosen(untold || s.holds == 0, returned)
	}
	return chosen(untold, told)
}

// Writes returns how often the Keeper has called the store, also in vain.
func (k *Keeper) Writes() int64 { return k.writes.Load() }

// Reservation is the reservation of one model call. The zero Reservation reserves nothing.
type Reservation struct {
	keeper *Keeper
	parts  []held
}

// held is what a call has reserved of one slice.
type held struct {
	slice  *slice
	amount budget.Amount // of the fields that its budget limited then
}

// Reserve reserves amount in all windows of the org's budgets, or in none. If one has no room, the
// error wraps a *[journal.OverBudget]; any other error is one of the store. The caller must settle
// the Reservation.
func (k *Keeper) Reserve(ctx context.Context, org string, windows []budget.Window, amount budget.Amount) (*Reservation, error) {
	if len(windows) == 0 {
		return &Reservation{}, nil
	}
	o, err := k.enter(ctx, org)
	if err != nil {
		return nil, err
	}
	defer k.leave(org, o)
	if err := k.renew(ctx, org, o, windows); err != nil {
		return nil, err
	}
	if err := k.makeRoom(ctx, org, o, windows); err != nil {
		return nil, err
	}
	h := &Reservation{keeper: k}
	var uses []journal.SliceUse
	var asking []*slice
	lacking := false
	k.mu.Lock()
	now := time.Now()
	for _, w := range windows {
		s := o.slices[w.Scope]
		if s == nil {
			s = &slice{}
			o.slices[w.Scope] = s
		}
		s.budget, s.used = w, now
		need := w.Limited(amount)
		h.parts = append(h.parts, held{s, need})
		rest, want := w.Limited(s.left()), s.recent.inAMinute(now)
		covered := rest.Covers(need)
		lacking = lacking || !covered
		if !covered || !rest.Sub(need).Covers(w.Limited(want)) {
			uses = append(uses, journal.SliceUse{Budget: w, Spent: s.spent, Need: s.held.Add(need), Want: want, Ahead: true})
			asking = append(asking, s)
		}
	}
	k.mu.Unlock()
	if !lacking { // what is low is drawn with what is lacking, so that one write does for all
		uses = nil
	}
	if err := k.exchange(ctx, org, uses, asking); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range h.parts {
		p.slice.held = p.slice.held.Add(p.amount)
		p.slice.holds++
	}
	return h, nil
}

// Settle ends the reservation: the call has cost this much. Further calls do nothing. It does not
// block.
func (h *Reservation) Settle(cost budget.Amount) {
	if h == nil || h.parts == nil {
		return
	}
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	now := time.Now()
	for _, p := range h.parts {
		s := p.slice
		s.held = s.held.Sub(p.amount)
		s.holds--
		s.spent = s.spent.Add(cost)
		s.recent.add(cost, now)
		s.used = now
		if s.overrun() { // a kill must not forget it
			select {
			case h.keeper.overran <- struct{}{}:
			default: // it is reported already
			}
		}
	}
	h.parts = nil
}

// enter waits for the turn of an org. The caller must leave.
func (k *Keeper) enter(ctx context.Context, org string) (*ofOrg, error) {
	k.mu.Lock()
	o := k.orgs[org]
	if o == nil {
		o = &ofOrg{turn: make(chan struct{}, 1), slices: map[string]*slice{}}
		k.orgs[org] = o
	}
	o.users++
	k.mu.Unlock()
	select {
	case o.turn <- struct{}{}:
		return o, nil
	case <-ctx.Done():
		k.forget(org, o)
		return nil, context.Cause(ctx)
	}
}

func (k *Keeper) leave(org string, o *ofOrg) {
	<-o.turn
	k.forget(org, o)
}

// forget removes an org that has no slices and no users any more.
func (k *Keeper) forget(org string, o *ofOrg) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.users--; o.users == 0 && len(o.slices) == 0 {
		delete(k.orgs, org)
	}
}

// exchange asks the store, and sets what the slices have afterwards. It is called with the turn of
// the org.
func (k *Keeper) exchange(ctx context.Context, org string, uses []journal.SliceUse, asking []*slice) error {
	if len(uses) == 0 {
		return nil
	}
	// A client that leaves must not leave behind a write of which nobody knows the outcome.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	k.writes.Add(1)
	got, err := k.store.Exchange(ctx, org, k.owner, uses)
	switch {
	case errors.As(err, new(*journal.OverBudget)):
		return fmt.Errorf("budgets: %w", err)
	case err != nil:
		return journal.Unavailable(fmt.Errorf("budgets: %w", err))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for i, s := range asking {
		s.drawn, s.told, s.asked = got[i].Drawn, uses[i].Spent, now
	}
	return nil
}

// renew returns the slices of windows that have another limit now, so that what is drawn next is
// drawn by that one, and closes those of which it is not known whether they are closed. It is called
// with the turn of the org.
func (k *Keeper) renew(ctx context.Context, org string, o *ofOrg, windows []budget.Window) error {
	due := func(due func(*slice, budget.Window) bool) (all []*slice) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, w := range windows {
			if s := o.slices[w.Scope]; s != nil && due(s, w) {
				all = append(all, s)
			}
		}
		return all
	}
	old := due(func(s *slice, w budget.Window) bool { return s.closing || s.budget.Limit != w.Limit })
	if old == nil {
		return nil
	}
	k.give(ctx, org, o, func(s *slice, _ time.Time) choice { return chosen(slices.Contains(old, s), returned) })
	if due(func(s *slice, _ budget.Window) bool { return s.closing }) != nil {
		return journal.Unavailable(errors.New("budgets: what was spent could not be stored"))
	}
	return nil
}

// makeRoom returns slices of the org if it has no room for those of the windows that it does not have
// yet. If there is no room even then, because the store is away or calls hold the others, the error
// says so. It is called with the turn of the org.
func (k *Keeper) makeRoom(ctx context.Context, org string, o *ofOrg, windows []budget.Window) error {
	full := func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		n := len(o.slices)
		for _, w := range windows {
			if o.slices[w.Scope] == nil {
				n++
			}
		}
		return n > max(maxSlices, len(o.slices))
	}
	if !full() {
		return nil
	}
	var used []time.Time
	k.mu.Lock()
	for _, s := range o.slices {
		if s.holds == 0 {
			used = append(used, s.used)
		}
	}
	k.mu.Unlock()
	if len(used) > 0 {
		slices.SortFunc(used, time.Time.Compare)
		oldest := used[min(evicted, len(used))-1]
		k.give(ctx, org, o, func(s *slice, _ time.Time) choice { return chosen(s.holds == 0 && !s.used.After(oldest), returned) })
	}
	if full() {
		return journal.Unavailable(fmt.Errorf("budgets: %d budgets of the organization are in use, and none could be returned to the store", maxSlices))
	}
	return nil
}

// report tells the store what was spent of the chosen slices, and returns what no call holds of those
// that are to be returned. The first failure of an org is logged; it is tried again later.
func (k *Keeper) report(ctx context.Context, choose func(*slice, time.Time) choice) {
	k.mu.Lock()
	orgs := make([]string, 0, len(k.orgs))
	for org := range k.orgs {
		orgs = append(orgs, org)
	}
	k.mu.Unlock()
	slices.Sort(orgs)
	for _, org := range orgs {
		o, err := k.enter(ctx, org)
		if err != nil {
			return
		}
		k.give(ctx, org, o, choose)
		k.leave(org, o)
	}
}

// give tells the store of the chosen slices, or returns what no call holds of them. It is called with
// the turn of the org.
func (k *Keeper) give(ctx context.Context, org string, o *ofOrg, choose func(*slice, time.Time) choice) {
	var uses []journal.SliceUse
	var asking []*slice
	k.mu.Lock()
	now := time.Now()
	for _, s := range o.slices {
		switch choose(s, now) {
		case left:
			continue
		case told:
			uses = append(uses, journal.SliceUse{Budget: s.budget, Spent: s.spent})
		case returned:
			uses = append(uses, journal.SliceUse{Budget: s.budget, Spent: s.spent, Need: s.held, Return: true, Close: s.holds == 0})
		}
		asking = append(asking, s)
	}
	k.mu.Unlock()
	if len(uses) == 0 {
		return
	}
	slices.SortFunc(uses, func(a, b journal.SliceUse) int { return cmp.Compare(a.Budget.Scope, b.Budget.Scope) })
	slices.SortFunc(asking, func(a, b *slice) int { return cmp.Compare(a.budget.Scope, b.budget.Scope) })
	if err := k.exchange(ctx, org, uses, asking); err != nil {
		k.mu.Lock()
		for i, s := range asking {
			s.closing = s.closing || uses[i].Close
		}
		k.mu.Unlock()
		k.log.Warn("what was spent of budgets was not stored; it is tried again", "org", org, "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, s := range asking {
		if uses[i].Close && s.spent == s.told && s.drawn == (budget.Amount{}) {
			delete(o.slices, s.budget.Scope)
		}
	}
}
