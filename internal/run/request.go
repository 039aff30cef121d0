package run

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
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
	Grade     loop.Grade
	Model     string   // as the caller named it
	Targets   []Target // at least one, in the order in which to try them

	// Raw is the whole request of a relay; nil for a loop. Its body belongs to
	// the run. The rest of the fields concern the loop.
	Raw *model.RelayRequest

	Items       []item.Item
	ClientTools []model.Tool
	ToolChoice  model.ToolChoice
	MaxTokens   int
	Params      []model.Param // what the loop does not interpret, in Dialect
	Dialect     string

	Servers    []catalog.Server // in configuration order
	CatalogTTL time.Duration

	Concurrency    int           // runs of the org at a time; 0 = no limit
	Limits         budget.Limits // clamped
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
