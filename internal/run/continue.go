package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
)

// A run whose surface does not hold its request open is told in parts: one ends each time the
// run waits for approvals, and the last one with the run. The caller continues the run with a
// request that answers the approvals, and gets the next part.

// Answer is a decision with which the caller of a run continues it.
type Answer struct {
	ID string // of the approval
	journal.Decision
	Place string // in the request, for errors
}

// partRef is the ref of the row with what a request that continues a run brings.
func partRef(part int) string { return "part:" + strconv.Itoa(part) }

// storedPart is that row.
type storedPart struct {
	Store          *StoreOptions         `json:"keep,omitempty"`
	RequestServers []storedRequestServer `json:"declared_servers,omitempty"` // with the credentials of the request
}

// continuation is a request that continues a run.
type continuation struct {
	*Options
	runner *Runner
	req    *Request
}

// maxDecideTries is how often a request tries to decide while others write to the run.
const maxDecideTries = 10

// answered finds the approvals that the request answers. They must be of one run of its
// principal and surface, which the request continues. Answers that are all settled, in a request with new
// input, are history.
func (c *continuation) answered(ctx context.Context) ([]journal.Approval, error) {
	var out []journal.Approval
	var late, void error // why an approval cannot be decided any more
	waits := false
	for _, answer := range c.req.Answers {
		a, err := c.Archive.Approval(ctx, c.req.Org, answer.ID)
		switch {
		case errors.Is(err, org.ErrNotFound), err == nil && (a.Principal != c.req.Principal || a.Surface != c.req.Surface):
			return nil, approvalNotFound(answer)
		case err != nil:
			return nil, err
		case len(out) > 0 && a.RunID != out[0].RunID:
			return nil, fault.New(fault.Invalid, "invalid_value", "%s: the approval requests are of several responses; answer those of one response at a time", answer.Place).In(answer.Place)
		case a.Status == journal.ApprovalExpired, a.Status == journal.ApprovalWaiting && a.Overdue(c.Now()):
			late = fault.New(fault.Invalid, "approval_expired", "%s: the approval request has expired; the call counts as denied", answer.Place).In(answer.Place)
		case a.Status == journal.ApprovalVoid:
			void = fault.New(fault.Invalid, "approval_void", "%s: the approval request is void: %s", answer.Place, a.WhyVoid()).In(answer.Place)
		case a.Status == journal.ApprovalWaiting:
			waits = true
			err := c.req.Decider.mayDecide(a)
			if errors.Is(err, org.ErrNotFound) {
				err = approvalNotFound(answer)
			}
			if err != nil {
				return nil, err
			}
		}
		out = append(out, a)
	}
	switch {
	case !waits && len(c.req.Late) > 0:
		return out, nil
	case late != nil:
		return nil, late
	case void != nil && !waits: // with an answer that counts, it is history: its call was asked for again
		return nil, void
	}
	return out, c.checkContinues(ctx, out[0])
}

func approvalNotFound(answer Answer) error {
	return fault.New(fault.Invalid, "approval_not_found", "%s: no approval request with this id waits for an answer of this API key", answer.Place).In(answer.Place)
}

// checkContinues returns an error unless the request continues the run of the approval: the
// conversation that it names is that of the run, and its settings are those of the run.
func (c *continuation) checkContinues(ctx context.Context, a journal.Approval) error {
	stored, err := c.storedRequestOf(ctx, a)
	if err != nil {
		return err
	}
	place := c.req.Answers[0].Place
	if from := c.req.Continues; from.ID != "" && !from.Named {
		before, err := conversation.FindSegment(ctx, c.Conversations, c.req.Org, from.ID)
		switch {
		case err != nil:
			return err
		case before == nil:
			_, err := c.notEnded(ctx, c.req)
			return err
		case before.RunID != a.RunID:
			return fault.New(fault.Invalid, "approval_not_found", "%s: the approval request is not of the response %.100q", place, from.ID).In(place)
		}
	}
	if from := c.req.Continues; from.Named && from.ID != stored.Session {
		return fault.New(fault.Invalid, "approval_not_found", "%s: the approval request is not of the conversation %.100q", place, from.ID).In(place)
	}
	for name, value := range c.req.Settings {
		if stored.Settings[name] != value {
			return fault.New(fault.Invalid, "setting_changed", "%s differs from that of the response which waits for approval; the response goes on with the settings with which it began: send the same, or leave it out", name).In(name)
		}
	}
	return nil
}

// storedRequestOf reads what is stored of the request of the approval's run.
func (c *continuation) storedRequestOf(ctx context.Context, a journal.Approval) (q storedRequest, err error) {
	memory := c.req.Account.Share()
	defer memory.Close()
	var rows []json.RawMessage
	err = journal.ReadBatch(memory, func(limit int) (err error) {
		rows, err = c.Archive.Rows(ctx, a.Org, a.RunID, []string{requestRef}, limit)
		return err
	})
	if err != nil || len(rows) == 0 {
		return q, err
	}
	if err := json.Unmarshal(rows[0], &q); err != nil {
		return q, journal.Damaged(requestRef, err)
	}
	return q, nil
}

// nextPart is what a request that continues a run gets.
type nextPart struct {
	state loop.State
	run   string
	part  int                // from 0
	step  int64              // the fact of the decision, if others are still to be made
	open  []loop.CallWaiting // these
}

// locate reads the run of the approvals, and finds the part that follows them.
func (c *continuation) locate(ctx context.Context, approvals []journal.Approval) (nextPart, error) {
	next := nextPart{run: approvals[0].RunID}
	var err error
	next.state, err = journal.Fold(ctx, c.Archive, c.req.Account, c.req.Org, next.run, loop.State{}, func(before loop.State, f loop.Fact) {
		if w, ok := f.Body.(loop.CallWaiting); ok && slices.ContainsFunc(approvals, func(a journal.Approval) bool { return a.ID == w.WaitID }) {
			next.part = before.Parks + 1 // of the latest of them
		}
	})
	return next, err
}

// tookInput reports whether the run has taken the new input of the request already: the request
// is sent again, because its answer was lost.
func (c *continuation) tookInput(ctx context.Context, approvals []journal.Approval) (bool, error) {
	next, err := c.locate(ctx, approvals)
	if err != nil {
		return false, err
	}
	want, err := journal.Row{Value: item.List(c.req.Late)}.JSON()
	if err != nil {
		return false, err
	}
	rows, err := c.Archive.Rows(ctx, c.req.Org, next.run, []string{inputRef(next.part)}, len(want))
	if errors.As(err, new(*journal.TooLarge)) {
		return false, nil
	}
	return len(rows) == 1 && bytes.Equal(rows[0], want), err
}

// inputRef is the ref of the row with the items that a request adds to a run.
func inputRef(part int) string { return fmt.Sprintf("input:%d", part) }

// decideAll appends the decisions about the approvals that wait, with the new input and what the request
// brings for the next part. The error wraps errDecideAgain if that is not possible any more.
func (c *continuation) decideAll(ctx context.Context, approvals []journal.Approval) (nextPart, error) {
	next, err := c.locate(ctx, approvals)
	if err != nil {
		return next, err
	}
	if !slices.ContainsFunc(approvals, isWaiting) { // the answers are known: the client gets the same again
		if s := next.state; next.part == s.Parks && s.ActiveSince == 0 && s.Finished == nil {
			next.setOpen()
		}
		return next, nil
	}
	part := storedPart{Store: c.req.Store.named(conversation.Segment{Run: next.run, Part: next.part})}
	if part.RequestServers, err = c.sealRequestServers(next.run); err != nil {
		return next, err
	}
	err = c.runner.appendForeign(ctx, c.req.Account, c.req.Org, next.run, foreign{state: &next.state, of: func(s *loop.State) (foreign, error) {
		return brings(s, c.req, approvals, next.part, part, c.Now().UnixMilli())
	}})
	var refused *fault.Error
	switch {
	case errors.As(err, &refused) && refused.Code == fault.Conflict: // decided meanwhile, or the run has ended
		return next, fmt.Errorf("%w: %w", errDecideAgain, err)
	case err != nil:
		return next, journal.ReadError(next.run, err)
	}
	crash.At(crash.AfterDecision)
	c.runner.followers.Ring(approvalsOf(c.req.Org))
	c.runner.leases.claimSoon()
	next.setOpen()
	return next, nil
}

func isWaiting(a journal.Approval) bool { return a.Status == journal.ApprovalWaiting }

// setOpen notes what is still asked for.
func (n *nextPart) setOpen() {
	if n.open = undecided(n.state); len(n.open) > 0 {
		n.step = n.state.Seq
	}
}

// undecided returns what is still asked for.
func undecided(s loop.State) (out []loop.CallWaiting) {
	for _, c := range s.Calls {
		if c.Wait != nil && !c.Resolved && !c.Done {
			out = append(out, *c.Wait)
		}
	}
	return out
}

// brings returns what a request that continues a run in state s appends to it: its decisions about the
// approvals that wait. The request that makes the last decision also appends its new input, and what the
// next part is stored with. An earlier one must bring no input.
func brings(s *loop.State, req *Request, approvals []journal.Approval, part int, keep storedPart, now int64) (foreign, error) {
	var f foreign
	decided := map[string]bool{} // by the id of the approval
	for i, a := range approvals {
		if !isWaiting(a) {
			continue
		}
		d, status := req.Answers[i].Decision, journal.ApprovalDenied
		if d.Approved {
			status = journal.ApprovalApproved
		}
		decided[a.ID] = true
		f.bodies = append(f.bodies, loop.CallResolved{WaitID: a.ID, Approved: d.Approved, By: req.Principal, Message: d.Message})
		f.audit = append(f.audit, a.Entry(max(now, s.At), req.Principal, status, d.Message))
	}
	late := req.Late
	if slices.ContainsFunc(undecided(*s), func(w loop.CallWaiting) bool { return !decided[w.WaitID] }) {
		if len(late) > 0 {
			return f, fault.New(fault.Invalid, "approvals_undecided", "input has further items, and not every approval request of the response is answered; "+
				"answer all of them, or send the items with the last answer").In("input")
		}
		return f, nil
	}
	if len(late) > 0 {
		ref := inputRef(part)
		f.bodies = append(f.bodies, loop.InputAdded{ItemsRef: ref, By: loop.ByClient, Bytes: window.Bytes(late)})
		f.rows = append(f.rows, journal.Row{Ref: ref, Value: item.List(late)})
	}
	f.rows = append(f.rows, journal.Row{Ref: partRef(part), Value: keep})
	return f, nil
}

// sealRequestServers returns the servers of the request as they are stored with the run.
func (c *continuation) sealRequestServers(runID string) (out []storedRequestServer, err error) {
	for _, d := range c.req.RequestServers {
		if d.URL.IsZero() || c.Keys == nil {
			continue
		}
		stored := storedRequestServer{Label: d.Label}
		if stored.Address, err = d.seal(c.Keys, c.req.Org, runID); err != nil {
			return nil, fmt.Errorf("server %q: %w", d.Label, err)
		}
		out = append(out, stored)
	}
	return out, nil
}

// tellNext reports the next part of the run, or that further approvals have to be decided.
func (c *continuation) tellNext(ctx context.Context, next nextPart, sink eventlog.Sink) error {
	if len(next.open) == 0 {
		f := eventlog.Follow{Org: c.req.Org, RunID: next.run, Account: c.req.Account, ToWaiting: true, PausedFor: c.req.PausedFor, Final: true, Part: next.part + 1}
		return c.runner.Follow(ctx, f, sink)
	}
	waiting, err := c.keepStep(ctx, next)
	if err != nil {
		return err
	}
	return eventlog.ShowStep(sink, started(next.state, next.run, eventlog.PartSuffix(next.part, next.step), waiting.At), waiting)
}

func started(s loop.State, runID, part string, at time.Time) event.Started {
	return event.Started{RunID: runID, Model: s.Accepted.Model, At: at, Part: part}
}

// maxStepArguments is how many bytes of the arguments of one call are read for a response. The
// arguments that a model may send have at most 1 MiB.
const maxStepArguments = 2 << 20

// keepStep stores a segment that only says which approvals are still to be decided: also if the
// caller has left, because its decisions count. The account of the request is charged with the
// arguments of the calls.
func (c *continuation) keepStep(ctx context.Context, next nextPart) (event.Waiting, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout)
	defer cancel()
	waiting := event.Waiting{At: time.UnixMilli(next.state.At).UTC()}
	for _, w := range next.open {
		a, err := c.Archive.Approval(ctx, c.req.Org, w.WaitID)
		if err != nil {
			return waiting, err
		}
		arguments, err := journal.ArgumentsOf(ctx, c.Archive, a, maxStepArguments)
		if err != nil {
			return waiting, err
		}
		if err := c.req.Account.Acquire(len(arguments)); err != nil {
			return waiting, err
		}
		waiting.Approvals = append(waiting.Approvals, eventlog.ApprovalEvent(w, arguments))
	}
	if c.req.Store == nil {
		return waiting, nil
	}
	asked, err := conversation.FindSegment(ctx, c.Conversations, c.req.Org, conversation.Segment{Run: next.run, Part: next.part - 1}.ID())
	if err != nil || asked == nil {
		return waiting, err
	}
	kept, keep := *asked, c.req.Store.named(conversation.Segment{Run: next.run, Part: next.part, Step: next.step})
	kept.Version, kept.Input, kept.RequestJSON, kept.FinalOnly, kept.Part, kept.Step, kept.Waiting = 0, keep.Input, keep.RequestJSON, keep.FinalOnly, next.part+1, next.step, &waiting
	err = conversation.SaveSegment(ctx, c.Conversations, c.req.Org, conversation.Segment{Run: next.run, Part: next.part, Step: next.step}.ID(), kept, c.req.Store.For)
	if errors.Is(err, org.ErrExists) {
		err = nil
	}
	return waiting, err
}
