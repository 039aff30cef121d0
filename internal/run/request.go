package run

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Request is what a surface asks a run for.
type Request struct {
	Org       string
	Principal string
	Surface   string

	// ID is the id under which a relay is audited; "" = the run makes one. A loop
	// run has an id of its own, because several requests can follow one run.
	ID string

	Grade loop.Grade

	// Key is the caller's Idempotency-Key: the request is for one durable run,
	// however often it is sent. Nil = none.
	Key *SubmitKey

	// Attach says that a repeat of Key may follow the run while it is under
	// way. Otherwise it is told to come back when the run is over.
	Attach bool

	// Account is charged with what the run retains; nil = one is opened for the
	// run. The request's own body is charged to it already.
	Account *ledger.Account

	Model   string   // as the caller named it
	Targets []Target // at least one, in the order in which to try them

	// Raw is the whole request of a relay; nil for a loop. Its body belongs to
	// the run, which releases its capacity from Account when it is freed. The rest
	// of the fields concern the loop.
	Raw *model.RelayRequest

	Items       []item.Item
	ClientTools []model.Tool
	ToolChoice  model.ToolChoice
	MaxTokens   int64         // of one model call's output, as Params say; 0 = they do not
	Options     model.Options // of every model call
	Params      []model.Param // the client's other members, in Dialect; Options are read from them
	Dialect     string

	Servers    []catalog.Server // in configuration order
	CatalogTTL time.Duration
	CacheTTL   time.Duration // of results of tools that may be kept; 0 = none is

	Concurrency    int           // runs of the org at a time; 0 = no limit
	Limits         budget.Limits // clamped
	Budgets        []budget.Shared
	Parallelism    loop.Parallelism
	AbortOnTool    bool
	Guard          policy.Guard
	ArgValidation  toolexec.Validation
	ResultMaxBytes int // 0 = no limit

	// Live says that deltas reach the caller as they come: a turn of which
	// something was said is not repeated.
	Live bool
}

// Target is one model that may serve a run.
type Target struct {
	Provider string
	Name     string // the provider's name for the model
	Model    model.Model
}
