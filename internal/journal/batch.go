package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
)

// Batch is what one Append stores. It is stored completely or not at all.
type Batch struct {
	Facts []loop.Fact
	Rows  []Row

	// Opening is checked with the first batch of a run and ignored later. Nil = no
	// conditions.
	Opening *Opening

	// Settled is applied before Holds, so that the amount which it frees can be held
	// again. When the run ends, its remaining holds are settled at their full amount.
	Settled      []Settled
	Reservations []Reservation

	Audit []audit.Entry // for the org's audit log; all get the id of the lease's run

	Notices []Notice // for the webhooks of the org

	HookMessages []HookMessage // with the Org and the RunID of the lease; they wait

	// Delivered is added to the inbox of the session of the run. Nil = nothing is. It is refused with a
	// *[Submitted] if the session has an input with its key, and with org.ErrNotFound if the run is no turn of
	// the session.
	Delivered *Delivered

	// SessionSpent is what the run of a turn of a session has used, in the batch with its end. It is added to the
	// sums of the session, if that exists.
	SessionSpent SessionSpent

	// Sync means that this batch and every earlier batch of the run are on disk when
	// Append returns. Otherwise the batch is written a little later, in order, and a
	// failure is returned by the run's next Append. Lack of space is no failure: the batch
	// waits for the store to recover, or for the run's next batch.
	Sync bool

	// Retain is called with the bytes of a batch without Sync that waits for space, and
	// with the negative number when it no longer does. It must not block. Nil = not called.
	Retain func(bytes int)
}

// SessionSpent is what the turns of a session have used: active time, and what is known of their costs.
type SessionSpent struct{ ActiveMS, NanoUSD int64 }

// Check returns an error unless b can follow the fact with number after in the journal of
// the lease's run: the numbers have no gaps, and the first fact of the journal, and no
// other, is an Accepted of that org and run.
func (b Batch) Check(lease Lease, after int64) error {
	if after == 0 && len(b.Facts) == 0 {
		return errors.New("the first batch of a journal has no fact")
	}
	for i, f := range b.Facts {
		if want := after + 1 + int64(i); f.Seq != want {
			return fmt.Errorf("a fact has the number %d, want %d", f.Seq, want)
		}
		a, opens := f.Body.(loop.Accepted)
		_, asks := f.Body.(loop.CallWaiting)
		_, pauses := f.Body.(loop.Paused)
		switch {
		case (asks || pauses) && !b.Sync:
			return fmt.Errorf("fact %d asks for something of a person, which may be refused: its batch must be on disk", f.Seq)
		case f.Body == nil:
			return fmt.Errorf("fact %d has no body", f.Seq)
		case opens != (f.Seq == 1):
			return fmt.Errorf("fact %d is %s: a journal has one accepted, and it is the first fact", f.Seq, f.Body.Kind())
		case opens && (a.Org != lease.Org || a.RunID != lease.RunID):
			return fmt.Errorf("accepted belongs to run %s of org %s", a.RunID, a.Org)
		}
	}
	return nil
}

// Audited returns the batch's audit entries with the id of the lease's run. A request id
// is that id too, or that id, a dot and a suffix.
func (b Batch) Audited(lease Lease) []audit.Entry {
	out := slices.Clone(b.Audit)
	for i := range out {
		out[i].RunID = lease.RunID
		if !strings.HasPrefix(out[i].RequestID, lease.RunID+".") {
			out[i].RequestID = lease.RunID
		}
	}
	return out
}

// CallOf returns the call that a fact is about, and the attempt. The key is empty for a
// fact that is not about one call. A journal holds at most one fact of the same kind,
// call and attempt.
func CallOf(body loop.Body) (key loop.CallKey, attempt int) {
	switch b := body.(type) {
	case loop.CallPrepared:
		return b.Key, b.Revision
	case loop.CallStarted:
		return b.Key, b.Attempt
	case loop.CallDone:
		return b.Key, b.Attempt
	case loop.CallWaiting:
		return b.Key, b.Revision
	case loop.Accepted, loop.Blocked, loop.CallResolved, loop.CancelRequested, loop.Catalogued, loop.Expired,
		loop.Compacted, loop.Finished, loop.HookRan, loop.InputAdded, loop.LimitsRaised, loop.Parked, loop.Paused, loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Routed,
		loop.Turn, loop.TurnFailed, loop.TurnStarted: // they belong to no call, or occur once
	}
	return "", 0
}

// Row is a body that facts refer to.
type Row struct {
	Ref   string // unique in its run
	Value any    // marshals to JSON; must not be changed afterwards
}

// Prompt is the value of a row with what a run begins with; its JSON is that of all items as an [item.List]. A store may store
// once what the Rest of several runs of an org begins with.
type Prompt struct {
	Front item.List // in front of the conversation
	Rest  item.List
}

// Parts is the value of a row with the ids of the parts of a conversation. A store may store once what several begin with.
type Parts []string

// JSON returns the row's value as it is stored, without HTML escapes.
func (r Row) JSON() (json.RawMessage, error) {
	if p, ok := r.Value.(Prompt); ok {
		return slices.Concat(p.Front, p.Rest).MarshalJSON()
	}
	if items, ok := r.Value.(item.List); ok { // an Encoder would copy what it returns
		return items.MarshalJSON()
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(r.Value); err != nil {
		return nil, fmt.Errorf("row %s: %w", r.Ref, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Reservation reserves the maximum cost of a model call in a budget of the org before the call
// is sent. It ends when it is settled: by a batch of the run, or at its full amount when
// the run ends or gets a new owner first.
type Reservation struct {
	ID     string // of the model call in its run: round.attempt
	Budget budget.Window
	Amount budget.Amount
}

// Settled is the actual cost of a model call, which may be more than was reserved. It settles
// the reservations with this ID in every budget.
type Settled struct {
	ID     string
	Amount budget.Amount
}

// OverBudget reports that a reservation does not fit into its budget. Nothing was stored.
type OverBudget struct {
	Budget budget.Window
	Used   Used          // before, without Told: what the refused batch noted is not stored
	Amount budget.Amount // that does not fit
}

func (o *OverBudget) Error() string {
	return fmt.Sprintf("budget %s has no room: of %v, %v is spent and %v reserved, and the model call may cost %v",
		o.Budget.Scope, o.Budget.Limit, o.Used.Spent, o.Used.Reserved, o.Amount)
}

func overBudget(b budget.Window, u Used, amount budget.Amount) *OverBudget {
	u.Told = 0
	return &OverBudget{Budget: b, Used: u, Amount: amount}
}

// Used is what a budget of an org has been charged with in one of its windows.
type Used struct {
	Spent    budget.Amount // settled
	Reserved budget.Amount // of reservations that are not settled, and of slices
	Overrun  budget.Amount // the part of Spent that exceeded its reservations
	Budget   budget.Window // as it was when something was last reserved
	Told     int           // the highest of the percentages 80 and 100 of which the audit log says that it was reached; 0 = none
}

// Reserve returns what is used after the reservation, or an *[OverBudget].
func (u Used) Reserve(h Reservation) (Used, error) {
	if !h.Budget.Fits(u.Spent.Add(u.Reserved), h.Amount) {
		return u, overBudget(h.Budget, u, h.Amount)
	}
	u.Reserved, u.Budget = u.Reserved.Add(h.Amount), h.Budget
	return u, nil
}

// Settle returns what is used after a reservation of the amount reserved was settled at the amount
// cost.
func (u Used) Settle(reserved, cost budget.Amount) Used {
	u.Spent, u.Reserved = u.Spent.Add(cost), u.Reserved.Sub(reserved)
	u.Overrun = u.Overrun.Add(cost.Max(reserved).Sub(reserved))
	return u
}

// Tell returns the percentage of the limit of which the audit log must say that it was reached,
// and what is used with this noted; 0 = none. refused says that a model call was refused because
// of the budget, which is as if all of it were spent.
func (u Used) Tell(refused bool) (percent int, told Used) {
	percent = u.Budget.Reached(u.Spent)
	if refused {
		percent = 100
	}
	if percent <= u.Told {
		return 0, u
	}
	u.Told = percent
	return percent, u
}

// TellEntry returns the entry of the audit log that says that percent of a budget are spent.
func (u Used) TellEntry(percent int, at int64) audit.Entry {
	kind := audit.KindBudgetThreshold
	if percent >= 100 {
		kind = audit.KindBudgetExceeded
	}
	return audit.Entry{Kind: kind, At: at, Body: audit.Budget{
		Budget: u.Budget.Scope, Percent: percent, EndsAt: u.Budget.EndsAt,
		LimitTokens: u.Budget.Limit.Tokens, LimitNanoUSD: u.Budget.Limit.NanoUSD,
		SpentTokens: u.Spent.Tokens, SpentNanoUSD: u.Spent.NanoUSD,
		ReservedTokens: u.Reserved.Tokens, ReservedNanoUSD: u.Reserved.NanoUSD,
		OverrunTokens: u.Overrun.Tokens, OverrunNanoUSD: u.Overrun.NanoUSD,
	}}
}

// Slice is the part of a budget that a process has drawn, so that relays and light runs
// need no write for each model call. It counts as reserved.
type Slice struct {
	Drawn budget.Amount // and not spent yet
	Spent budget.Amount // since the slice was made
}

// SliceUse says what a process has done with its slice of a budget, and what it needs. All of it
// is absolute, so that a use whose outcome the process does not know can be repeated.
type SliceUse struct {
	Budget budget.Window
	Spent  budget.Amount // since the slice was made
	Need   budget.Amount // of Drawn afterwards
	Want   budget.Amount // to draw at once, see budget.Window.Draw
	Ahead  bool          // without a missing Need, too, as much is drawn as makes Want beyond Need; nothing if there is no room
	Return bool          // what is drawn beyond Need is returned
	Close  bool          // the slice is over, with Return and without Need: a next one counts Spent from 0. Without effect if there is no slice
}

// Exchange returns what is used of the budget, and the slice, after the use; or an *[OverBudget].
func (u Used) Exchange(s Slice, use SliceUse) (Used, Slice, error) {
	spent := use.Spent.Sub(s.Spent)
	covered := spent.Min(s.Drawn)
	u.Spent, u.Reserved, u.Overrun = u.Spent.Add(spent), u.Reserved.Sub(covered), u.Overrun.Add(use.Budget.Limited(spent.Sub(covered)))
	s = Slice{Drawn: s.Drawn.Sub(covered), Spent: use.Spent}
	need := use.Budget.Limited(use.Need)
	if use.Return { // which draws nothing: a call may hold more than its budget has left
		need = need.Min(s.Drawn)
	}
	if missing := need.Sub(s.Drawn).Max(budget.Amount{}); missing != (budget.Amount{}) {
		drawn, ok := use.Budget.Draw(u.Spent.Add(u.Reserved), missing, use.Want)
		if !ok {
			return u, s, overBudget(use.Budget, u, missing)
		}
		u.Reserved, s.Drawn = u.Reserved.Add(drawn), s.Drawn.Add(drawn)
		u.Budget = use.Budget
	} else if use.Ahead {
		wanted, _ := use.Budget.Draw(u.Spent.Add(u.Reserved), budget.Amount{}, use.Want)
		drawn := wanted.Sub(s.Drawn.Sub(need)).Max(budget.Amount{})
		u.Reserved, s.Drawn = u.Reserved.Add(drawn), s.Drawn.Add(drawn)
		u.Budget = use.Budget
	}
	if use.Return {
		rest := s.Drawn.Sub(need).Max(budget.Amount{})
		u.Reserved, s.Drawn = u.Reserved.Sub(rest), s.Drawn.Sub(rest)
	}
	return u, s, nil
}
