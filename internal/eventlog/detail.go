package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Detail is what the journal of a run says of it. The fields other than Summary come
// from the facts that can be read: see Unreadable.
type Detail struct {
	Summary journal.Summary
	Limits  budget.Limits // as they were raised last
	Usage   model.Usage   // summed over all model calls, failed ones too
	Cost    tool.Money    // of the run; no amount = nothing of it has a price
	Calls   []DetailCall  // the complete calls of all turns, in the order of the model

	// Paused says what the run waits for at a limit; nil = it does not.
	Paused *event.Paused

	// Why says in words why the run ended, for people; "" = it has not ended, or its
	// reason says all.
	Why string

	Failure      *event.Failure // as the Finished event has it; nil = none, or the journal is damaged
	ModelFailure *ModelFailure  // of the last model call that failed; nil = none failed

	Unreadable *journal.Unreadable // the first part of the journal that this build cannot decode; nil = none
}

// DetailCall is a tool call of a run.
type DetailCall struct {
	Key      loop.CallKey
	Round    int
	Name     string     // as the model wrote it
	Server   string     // label of the tool's source; "" = none is known
	Owner    tool.Owner // who executes it; "" = not decided yet
	Attempts int        // how often the gateway has started it
	Outcome  loop.Outcome
	Label    item.Label    // of its result
	Took     time.Duration // 0 = not executed, or unknown
}

// DetailOf returns the detail of the story. It never fails: a damaged journal gives what
// can be read of it.
func DetailOf(s *journal.Story) *Detail {
	fold := newDetailFold(s.Summary, nil, func(ref string) (json.RawMessage, error) { return s.Rows[ref], nil })
	for _, f := range s.Facts {
		_ = fold.add(f) // without an account nothing is refused
	}
	_ = fold.end() // nothing is read from a store
	return &fold.Detail
}

// Show returns the detail of a run. What it has stays charged to the account (nil =
// nothing is counted); the facts are charged while they are folded. The error wraps
// org.ErrNotFound if the org has no such run, and is a *memlimit.Refused if the account has
// no room.
func Show(ctx context.Context, a journal.Archive, orgID, runID string, account *memlimit.Account) (*Detail, error) {
	head, err := a.Head(ctx, orgID, runID)
	if err != nil {
		return nil, err
	}
	if err := account.Acquire(journal.BatchBytes); err != nil {
		return nil, err
	}
	fold := newDetailFold(head.Summary, account, func(ref string) (row json.RawMessage, err error) {
		err = journal.ReadBatch(account, func(limit int) error {
			rows, err := a.Rows(ctx, orgID, runID, []string{ref}, limit)
			if len(rows) > 0 {
				row = rows[0]
			}
			return err
		})
		return row, err
	})
	for after := int64(0); after < head.Seq; {
		if after, err = fold.readPage(ctx, a, after, head.Seq); err != nil {
			return nil, err
		}
	}
	if err := fold.end(); err != nil {
		return nil, err
	}
	return &fold.Detail, nil
}

// readPage folds some of the facts with numbers above after, but none above last, which
// was appended later. It returns the number of the last one that it has read.
func (d *detailFold) readPage(ctx context.Context, a journal.Archive, after, last int64) (int64, error) {
	memory := d.account.Share()
	defer memory.Close()
	var facts []loop.Fact
	err := journal.ReadBatch(memory, func(limit int) (err error) {
		facts, err = a.Facts(ctx, d.Summary.Org, d.Summary.RunID, after, limit)
		return err
	})
	var bad *journal.Unreadable
	switch {
	case errors.As(err, &bad) && bad.Seq > after: // what follows may be readable
		if d.Unreadable == nil {
			d.Unreadable = bad
		}
		return bad.Seq, nil
	case err != nil:
		return after, err
	case len(facts) == 0:
		return after, fmt.Errorf("run %s: no fact follows %d, and the last one is %d", d.Summary.RunID, after, last)
	}
	for _, f := range facts {
		if f.Seq > last {
			return last, nil
		}
		if err := d.add(f); err != nil {
			return after, err
		}
		after = f.Seq
	}
	return after, nil
}

// detailFold makes a Detail of facts. Facts may be missing, and facts and rows may be
// damaged: what cannot be told is left out.
type detailFold struct {
	Detail
	account *memlimit.Account // charged with the calls
	rows    storedContent

	state  loop.State
	unsafe bool // the facts do not fit together: state is not folded further

	calls    map[loop.CallKey]int // index into Calls
	targets  []loop.Target
	provider string           // of the latest model call
	failed   *loop.TurnFailed // the latest; nil = none
	refused  loop.ReserveRefused
	ended    loop.CancelRequested
	finished *loop.Finished // nil = the run has not ended
}

func newDetailFold(s journal.Summary, account *memlimit.Account, rows func(ref string) (json.RawMessage, error)) *detailFold {
	return &detailFold{Detail: Detail{Summary: s}, account: account, rows: rows, calls: map[loop.CallKey]int{}}
}

// detailCallBytes is about how much memory a call takes, apart from its texts.
const detailCallBytes = 256

// add folds a fact. The error is that of the account.
func (d *detailFold) add(f loop.Fact) error {
	if d.unsafe = d.unsafe || loop.CheckSafety(d.state, f) != nil; !d.unsafe {
		d.state = loop.Apply(d.state, f)
	}
	switch b := f.Body.(type) {
	case loop.Accepted:
		d.Limits, d.targets = b.Limits, b.Targets
	case loop.TurnStarted:
		if b.Target >= 0 && b.Target < len(d.targets) {
			d.provider = d.targets[b.Target].Provider
		}
	case loop.TurnFailed:
		d.Usage, d.failed = d.Usage.Add(b.Usage), &b
	case loop.Turn:
		d.Usage = d.Usage.Add(b.Usage)
		return d.addCalls(b)
	case loop.CallPrepared:
		d.change(b.Key, func(c *DetailCall) { c.Owner, c.Server = b.Owner, b.Server })
	case loop.CallStarted:
		d.change(b.Key, func(c *DetailCall) { c.Attempts = b.Attempt })
	case loop.CallDone:
		d.change(b.Key, func(c *DetailCall) {
			c.Outcome, c.Label, c.Took = b.Outcome, b.Label, time.Duration(b.Micros)*time.Microsecond
		})
	case loop.CancelRequested:
		d.ended = b
	case loop.ReserveRefused:
		d.refused = b
	case loop.Finished:
		d.finished = &b
	case loop.LimitsRaised:
		d.Limits = d.state.Limits
	case loop.Blocked, loop.CallResolved, loop.CallWaiting, loop.Catalogued, loop.Compacted, loop.Expired, loop.HookRan, loop.InputAdded,
		loop.Parked, loop.Paused, loop.Reserved, loop.Resumed, loop.Routed: // not shown
	}
	return nil
}

// end completes the detail after the last fact. The error is that of the store.
func (d *detailFold) end() error {
	d.Cost = paid(&d.state)
	if d.state.Paused != nil && d.state.Ended == "" && d.finished == nil {
		e := pausedEvent(&d.state, d.state.At)
		d.Paused = &e
	}
	p := fold{state: d.state, content: d.rows}
	damaged := d.unsafe
	if d.failed != nil {
		row, err := d.rows(d.failed.ErrorRef)
		if err != nil {
			return err
		}
		failure := ModelFailureOf(&journal.Story{Rows: map[string]json.RawMessage{d.failed.ErrorRef: row}}, d.provider, *d.failed)
		d.ModelFailure = &failure
		if p.failed, err = recallFailure(d.failed.ErrorRef, row); err != nil {
			damaged = true
		}
	}
	if first := d.state.Attempt.First; first != nil && first.ErrorRef != d.failed.ErrorRef {
		row, err := d.rows(first.ErrorRef)
		if err != nil {
			return err
		}
		if p.first, err = recallFailure(first.ErrorRef, row); err != nil {
			damaged = true
		}
	}
	if d.finished == nil {
		return nil
	}
	if !damaged && p.checkEnd(*d.finished) == nil {
		d.Failure = p.failure(p.state.Cause(), *d.finished)
	}
	d.Why = d.why(*d.finished)
	return nil
}

func (d *detailFold) addCalls(b loop.Turn) error {
	for i, c := range b.Calls {
		if !c.Complete {
			continue
		}
		if err := d.account.Acquire(detailCallBytes + len(c.Name)); err != nil {
			return err
		}
		key := loop.Key(b.Round, i)
		d.calls[key] = len(d.Calls)
		d.Calls = append(d.Calls, DetailCall{Key: key, Round: b.Round, Name: c.Name})
	}
	return nil
}

func (d *detailFold) change(key loop.CallKey, change func(*DetailCall)) {
	if i, ok := d.calls[key]; ok {
		change(&d.Calls[i])
	}
}

// why says why the run ended; "" where the reason says all.
func (d *detailFold) why(b loop.Finished) string {
	switch b.Reason {
	case event.MaxRounds:
		return fmt.Sprintf("The run reached its limit of %s (max_rounds).", count(int64(d.Limits.Rounds), "round"))
	case event.MaxCalls:
		return fmt.Sprintf("The run reached its limit of %s (max_calls).", count(int64(d.Limits.Calls), "tool call"))
	case event.Deadline:
		return fmt.Sprintf("The run reached its time limit of %s (deadline).", time.Duration(d.Limits.ActiveMS)*time.Millisecond)
	case event.Tokens:
		if d.refused.Scope != "" {
			return fmt.Sprintf("The budget %s has no room for another model call.", d.refused.Scope)
		}
		return fmt.Sprintf("The run reached its limit of %s (max_run_tokens).", count(d.Limits.Tokens, "token"))
	case event.NoProgress:
		return "The model repeated itself (doom_loop)."
	case event.OutputCut:
		return "The model reached its own output limit."
	case event.Refused:
		return "The provider's content filter refused the request or the answer."
	case event.CallerGone:
		if d.ended.Code == loop.ClientGone {
			return "The client left while the run waited for approval, and nobody can come back for the answer."
		}
		return "The client closed the connection before the answer was complete."
	case event.Cancelled:
		switch {
		case d.ended.Code == loop.KeyRevoked:
			return fmt.Sprintf("The API key %s, which started the run, was revoked.", d.Summary.Principal)
		case d.ended.Code == loop.KeyExpired:
			return fmt.Sprintf("The API key %s, which started the run, has expired.", d.Summary.Principal)
		case d.ended.Code == loop.ModelNotAllowed:
			return fmt.Sprintf("The API key %s, which started the run, may not use the model any more.", d.Summary.Principal)
		case d.ended.Code == loop.Deleted:
			return "The org or the response of the run was deleted."
		}
		if d.ended.By == org.CommandLine {
			return "An operator cancelled the run on the command line."
		}
		return fmt.Sprintf("The key %s cancelled the run.", d.ended.By)
	case event.Blocked:
		return "The outbound policy refused an address."
	case event.Lost:
		if b.Detail == "" {
			return "The gateway stopped or crashed while the run was in progress, and the run could not be continued."
		}
	}
	if b.Detail != "" {
		return b.Detail
	}
	if d.Failure != nil {
		return d.Failure.Message
	}
	return ""
}

// count says how many things there are.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
