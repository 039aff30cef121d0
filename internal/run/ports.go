package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
)

// Journal keeps the facts of runs. Implemented by store/memory and
// store/sqlite; store/storetest says what that means.
type Journal interface {
	// Append stores the batch after the fact with sequence number after; the
	// facts carry the numbers that follow. It compares the lease's epoch and
	// after: a lease of a lower epoch than the journal has seen gets an error
	// that wraps [ErrFenced], a writer that is behind gets a *[Behind], and
	// nothing is stored. A second fact of the same kind about the same attempt
	// at the same call ([CallOf]), and a row with a ref that the run has, are
	// refused with an error that wraps org.ErrExists. A nil error means that
	// the batch is stored as well as the grade of the run promises.
	//
	// The first batch of a run opens it, on the terms of Batch.Opening, and
	// gives the lease to its owner. Every later batch of the owner extends the
	// lease by [LeaseTTL]; one after which the run is not running ends it.
	Append(ctx context.Context, lease Lease, after int64, b Batch) error
}

// Batch is what one Append stores, all of it or nothing.
type Batch struct {
	Facts []loop.Fact
	Rows  []Row

	Opening *Opening      // with the first batch of a run only; nil = no terms
	Holds   []Hold        // set aside in budgets of the org, or the batch is refused with an *[OverBudget]
	Settled []Settled     // holds whose amount is known now
	Audit   []audit.Entry // what an auditor is to see of the batch; of this run, whatever they say

	// Sync says that the batch, and every batch of the run before it, must be
	// on disk when Append returns. Others may follow a little later, in order;
	// a failure to store them is returned by the run's next Append.
	Sync bool
}

// Check says whether b can follow the fact numbered after in the journal of
// the lease's run: numbers without gaps, and Accepted as the first fact, of that
// org and run, and nowhere else.
func (b Batch) Check(lease Lease, after int64) error {
	if after == 0 && len(b.Facts) == 0 {
		return errors.New("a journal does not begin without a fact")
	}
	for i, f := range b.Facts {
		if want := after + 1 + int64(i); f.Seq != want {
			return fmt.Errorf("a fact has the number %d, where %d is next", f.Seq, want)
		}
		a, opens := f.Body.(loop.Accepted)
		switch {
		case f.Body == nil:
			return fmt.Errorf("fact %d has no body", f.Seq)
		case opens != (f.Seq == 1):
			return fmt.Errorf("fact %d is %s: a journal has one accepted, and it is the first fact", f.Seq, f.Body.Kind())
		case opens && (a.Org != lease.Org || a.RunID != lease.RunID):
			return fmt.Errorf("accepted is that of run %s of org %s", a.RunID, a.Org)
		}
	}
	return nil
}

// Audited returns the batch's audit entries as those of the lease's run, whose
// requests have its id, or its id and what follows a dot.
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

// CallOf returns the call that a fact is about and the attempt at it. The key
// is empty for a fact about no call in particular.
func CallOf(body loop.Body) (key loop.CallKey, attempt int) {
	switch b := body.(type) {
	case loop.CallPrepared:
		return b.Key, 0
	case loop.CallStarted:
		return b.Key, b.Attempt
	case loop.CallDone:
		return b.Key, b.Attempt
	case loop.CallWaiting:
		return b.Key, 0
	}
	return "", 0
}

// Row is a body that facts refer to.
type Row struct {
	Ref   string // unique in its run
	Value any    // marshals to JSON; not changed afterwards
}

// JSON returns the row's value as it is stored: text as it was said, without
// escapes for HTML.
func (r Row) JSON() (json.RawMessage, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(r.Value); err != nil {
		return nil, fmt.Errorf("row %s: %w", r.Ref, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Behind says that somebody else has written to the journal: Facts follow what
// the writer knows.
type Behind struct{ Facts []loop.Fact }

func (b *Behind) Error() string { return fmt.Sprintf("behind by %d facts", len(b.Facts)) }

// Sink receives a run's events, in order, from one goroutine. An error says
// that nobody is left to report to: it ends the run as if the caller had gone.
// Implemented by the surfaces.
type Sink interface {
	Emit(event.Event) error
}

// Handovers keep what a caller of client tools does not see of a run, until the
// caller comes back with the results. Implemented by store/memory and
// store/sqlite.
type Handovers interface {
	// Save stores the handover under each of its ids, on disk when it returns.
	// It is unknown after HandoverTTL. What is stored is never overwritten: if
	// one of the ids was given out before, nothing is stored, and the error
	// wraps org.ErrExists.
	Save(ctx context.Context, org, principal string, h Handover) error

	// Find returns the handover that gave out the id, or nil. An id that was
	// given to another org or principal is an unknown id.
	Find(ctx context.Context, org, principal, callID string) (*Handover, error)
}

// HandoverTTL is how long a caller may take to come back with its results.
const HandoverTTL = 24 * time.Hour

// Handover is the hidden part of a transcript: everything from the end of the
// caller's input to the calls that are the caller's.
type Handover struct {
	RunID string    `json:"run_id"`
	Items item.List `json:"items"`

	// Full holds results that were cut, whole, by the id under which the model
	// was told to read them.
	Full map[string]string `json:"full,omitempty"`

	// CallIDs maps the ids that we gave out to the provider's.
	CallIDs map[string]string `json:"call_ids"`
}

// Archive reads what a Journal holds. Implemented by store/memory and
// store/sqlite.
type Archive interface {
	// Runs returns the runs of the org that the query chooses, the latest first
	// (of one millisecond, by descending id): at most its limit. If the org has
	// no run Query.Before, the error wraps org.ErrNotFound.
	Runs(ctx context.Context, org string, q Query) ([]Summary, error)

	// Head returns where a run is and how large its journal is, without reading
	// it: an error that wraps org.ErrNotFound for an id that the org has not.
	Head(ctx context.Context, org, runID string) (Head, error)

	// Load returns the whole journal of a run: an error that wraps
	// org.ErrNotFound for an id that the org has not, and an *[Unreadable] for a
	// journal with a fact that this build cannot decode.
	Load(ctx context.Context, org, runID string) (*Story, error)

	// AuditRows returns the audit rows of the org that the query chooses, in the
	// order of their numbers: at most its limit.
	AuditRows(ctx context.Context, org string, q audit.Query) ([]audit.Row, error)

	// Used returns what a budget of the org has been charged with: nothing for
	// one that nobody has spent from.
	Used(ctx context.Context, org, scope string) (Used, error)
}

// Query chooses runs. The zero value chooses none: its limit is 0.
type Query struct {
	Before    string   // only runs older than the one with this id, whether or not that one is chosen; "" = all
	Since     int64    // only runs accepted at this time or later, in Unix milliseconds; 0 = all
	States    []string // only runs in one of these states, see [Summary.State]; none = all
	Principal string   // only runs of the key with this id; "" = all
	Limit     int      // counts runs that are chosen; 0 or less = none
}

// Chooses reports whether the query chooses s, Before and Limit aside.
func (q Query) Chooses(s Summary) bool {
	return s.CreatedAt >= q.Since &&
		(len(q.States) == 0 || slices.Contains(q.States, s.State())) &&
		(q.Principal == "" || s.Principal == q.Principal)
}

// Status says where a run is.
type Status string

// The statuses.
const (
	Running Status = "running"
	Waiting Status = "waiting"
	IsAside Status = "set_aside" // nobody performs it, see Summary.Aside
	Done    Status = "done"
)

// Summary is a run in one line.
type Summary struct {
	Org        string
	RunID      string
	Principal  string
	Surface    string
	Grade      loop.Grade
	Model      string
	Status     Status
	Reason     event.Reason // why it ended; empty before
	Rounds     int
	Calls      int   // tool calls that were executed, each once
	Tokens     int64 // input and output of all model calls
	CreatedAt  int64 // Unix milliseconds
	FinishedAt int64 // 0 before
	Aside      Aside // why it is set aside
}

// State is the status of a run that has not ended, and the reason of one that has.
func (s Summary) State() string {
	if s.Reason != "" {
		return string(s.Reason)
	}
	return string(s.Status)
}

// States returns every state that a run can have.
func States() []string {
	states := []string{string(Running), string(Waiting), string(IsAside)}
	for _, r := range event.Reasons() {
		if r != event.Waiting { // that run has not ended
			states = append(states, string(r))
		}
	}
	return states
}

// After returns the summary of a run whose journal goes on with f. The zero
// Summary is the one before the first fact.
func (s Summary) After(f loop.Fact) Summary {
	if s.Status == Done {
		return s // nothing follows an end
	}
	switch b := f.Body.(type) {
	case loop.Accepted:
		return Summary{
			Org: b.Org, RunID: b.RunID, Principal: b.Principal, Surface: b.Surface, Grade: b.Grade, Model: b.Model,
			Status: Running, CreatedAt: f.At,
		}
	case loop.Turn:
		if b.Purpose == loop.PurposeTurn {
			s.Rounds++
		}
		s.Tokens += b.Usage.Input + b.Usage.Output
	case loop.TurnFailed:
		s.Tokens += b.Usage.Input + b.Usage.Output
	case loop.CallStarted:
		if b.Attempt == 1 {
			s.Calls++
		}
	case loop.Parked:
		s.Status, s.Aside = Waiting, Aside{}
		s.Grade = loop.Durable
	case loop.Resumed, loop.CallResolved, loop.CancelRequested, loop.Expired: // somebody is to see to it
		s.Status, s.Aside = Running, Aside{}
	case loop.Finished:
		s.Status, s.Reason, s.FinishedAt, s.Aside = Done, b.Reason, f.At, Aside{}
	}
	return s
}

// Head is the end of a run's journal.
type Head struct {
	Summary Summary
	Seq     int64 // of the last fact
	At      int64 // of the latest fact, in Unix milliseconds
	Bytes   int64 // of all facts and rows as they are stored: what Load reads
}

// Story is a run's journal together with the bodies that its facts refer to.
type Story struct {
	Summary Summary
	Facts   []loop.Fact
	Rows    map[string]json.RawMessage // by ref
}

// size returns how many bytes the rows have.
func (s *Story) size() int {
	n := 0
	for _, row := range s.Rows {
		n += len(row)
	}
	return n
}

// last returns the number of the journal's last fact.
func (s *Story) last() int64 {
	if s == nil || len(s.Facts) == 0 {
		return 0
	}
	return s.Facts[len(s.Facts)-1].Seq
}
