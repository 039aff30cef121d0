package run

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
)

// Journal keeps the facts of runs. Implemented by store/memory.
type Journal interface {
	// Append stores the batch after the fact with sequence number after; the
	// facts carry the numbers that follow. It compares the lease's epoch and
	// after: a writer that is behind gets a *[Behind] and nothing is stored. A
	// nil error means that the batch is stored as well as the grade of the run
	// promises.
	Append(ctx context.Context, lease Lease, after int64, b Batch) error
}

// Lease is the right to write a run's journal.
type Lease struct {
	Org   string
	RunID string
	Epoch int64
}

// Batch is what one Append stores, all of it or nothing.
type Batch struct {
	Facts []loop.Fact
	Rows  []Row

	// Sync says that the batch, and every batch of the run before it, must be
	// on disk when Append returns. Others may follow a little later, in order;
	// a failure to store them is returned by the run's next Append.
	Sync bool
}

// Row is a body that facts refer to.
type Row struct {
	Ref   string // unique in its run
	Value any    // marshals to JSON; not changed afterwards
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
// caller comes back with the results. Implemented by store/memory.
type Handovers interface {
	// Save stores the handover under each of its ids, on disk when it returns.
	// It may be forgotten after HandoverTTL.
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
	RunID string      `json:"run_id"`
	Items []item.Item `json:"items"`

	// CallIDs maps the ids that we gave out to the provider's.
	CallIDs map[string]string `json:"call_ids"`
}

// Archive reads what a Journal holds. Implemented by store/memory and
// store/sqlite.
type Archive interface {
	// Runs returns an org's runs, the latest first: at most limit, those
	// before the run with the id before unless it is empty.
	Runs(ctx context.Context, org, before string, limit int) ([]Summary, error)

	// Load returns the whole journal of a run: an error that wraps
	// org.ErrNotFound for an id that the org has not.
	Load(ctx context.Context, org, runID string) (*Story, error)
}

// Status says where a run is.
type Status string

// The statuses.
const (
	Running Status = "running"
	Waiting Status = "waiting"
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
	Calls      int // tool calls that were executed
	Tokens     int64
	CreatedAt  int64 // Unix milliseconds
	FinishedAt int64 // 0 before
}

// Story is a run's journal together with the bodies that its facts refer to.
type Story struct {
	Summary Summary
	Facts   []loop.Fact
	Rows    map[string]json.RawMessage // by ref
}
