package runs

import (
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Object is a run as lists have it, here and on the command line.
type Object struct {
	ID         string     `json:"id"`
	Org        string     `json:"org"`
	State      string     `json:"state"`
	Key        string     `json:"key"`
	Surface    string     `json:"surface"`
	Grade      loop.Grade `json:"grade"`
	Model      string     `json:"model"`
	Rounds     int        `json:"rounds"`
	ToolCalls  int        `json:"tool_calls"`
	Tokens     int64      `json:"tokens"`
	StartedAt  string     `json:"started_at"`
	FinishedAt *string    `json:"finished_at"`
}

// NewObject returns the object of a run.
func NewObject(s journal.Summary) Object {
	return Object{
		ID: s.RunID, Org: s.Org, State: s.State(), Key: s.Principal, Surface: s.Surface, Grade: s.Grade, Model: s.Model,
		Rounds: s.Rounds, ToolCalls: s.Calls, Tokens: s.Tokens, StartedAt: surface.Timestamp(s.CreatedAt),
		FinishedAt: surface.Milliseconds.Unix(s.FinishedAt),
	}
}

// Detail is a run as it is shown alone.
type Detail struct {
	Object
	Limits        budget.Limits  `json:"limits"`
	Usage         model.Usage    `json:"usage"`
	CostNanoUSD   *int64         `json:"cost_nano_usd,omitempty"` // in 10⁻⁹ US dollars; absent = nothing of the run has a price
	Calls         []Call         `json:"calls"`
	Paused        *event.Paused  `json:"paused,omitempty"` // what the run waits for at a limit
	Why           string         `json:"why,omitempty"`
	Failure       *event.Failure `json:"failure,omitempty"`
	ProviderError *ProviderError `json:"provider_error,omitempty"` // of the last model call that failed
	Unreadable    string         `json:"unreadable,omitempty"`
	OnRunComplete []ToldHook     `json:"on_run_complete,omitempty"`
}

// ToldHook is a hook at OnRunComplete of a run.
type ToldHook struct {
	Hook       string              `json:"hook_id"`
	Position   int                 `json:"position"`
	Status     journal.HookOutcome `json:"status"`
	DurationNS time.Duration       `json:"duration_ns"` // 0 = it was not told
	EndedAt    *string             `json:"ended_at"`    // null = it waits
}

// NewToldHooks returns the hooks that have messages.
func NewToldHooks(all []journal.HookMessage) (out []ToldHook) {
	for _, m := range all {
		took := time.Duration(m.Micros) * time.Microsecond
		out = append(out, ToldHook{m.Hook, m.Position, m.Outcome, took, surface.Milliseconds.Unix(m.EndedAt)})
	}
	return out
}

// Call is a tool call of a run.
type Call struct {
	Key        loop.CallKey  `json:"call_key"`
	Round      int           `json:"round"`
	Name       string        `json:"name"`
	Server     string        `json:"server,omitempty"`
	Owner      tool.Owner    `json:"owner,omitempty"`
	Attempts   int           `json:"attempts"`
	Outcome    *loop.Outcome `json:"outcome"`         // null = there is no result
	Label      string        `json:"label,omitempty"` // of its result
	DurationNS time.Duration `json:"duration_ns"`
}

// ProviderError is a model call that failed.
type ProviderError struct {
	Message string `json:"message"`
	Cause   string `json:"cause,omitempty"`
	Answer  string `json:"answer,omitempty"`
}

// NewDetail returns the detail for a caller. Only one who may see addresses gets what
// can contain one: addresses, URLs, causes and answers of providers.
func NewDetail(d *eventlog.Detail, mayAddress bool) Detail {
	out := Detail{
		Object: NewObject(d.Summary), Limits: d.Limits, Usage: d.Usage, Calls: make([]Call, len(d.Calls)), Paused: d.Paused, Why: d.Why,
		Failure: visibleFailure(d.Failure, mayAddress),
	}
	if !d.Cost.IsZero() {
		out.CostNanoUSD = new(d.Cost.Nano())
	}
	for i, c := range d.Calls {
		out.Calls[i] = Call{Key: c.Key, Round: c.Round, Name: c.Name, Server: c.Server, Owner: c.Owner, Attempts: c.Attempts, Label: string(c.Label), DurationNS: c.Took}
		if c.Outcome != "" {
			out.Calls[i].Outcome = &d.Calls[i].Outcome
		}
	}
	if f := d.ModelFailure; f != nil {
		out.ProviderError = &ProviderError{Message: f.Message}
		if mayAddress {
			out.ProviderError.Cause, out.ProviderError.Answer = f.Cause, strings.ToValidUTF8(string(f.Body), "\uFFFD")
		}
	}
	if d.Unreadable != nil {
		out.Unreadable = d.Unreadable.Error()
	}
	return out
}

// visible returns the event for a caller: see [NewDetail].
func visible(e event.Event, mayAddress bool) event.Event {
	end, ok := e.(event.Finished)
	if !ok || mayAddress {
		return e
	}
	end.Failure = visibleFailure(end.Failure, mayAddress)
	return end
}

// visibleFailure returns the failure for a caller: see [NewDetail]. Header of the
// provider's answer has only what any caller may see, and is left out with the body.
func visibleFailure(f *event.Failure, mayAddress bool) *event.Failure {
	if f == nil || mayAddress {
		return f
	}
	out := *f
	out.Address, out.URL = "", ""
	if f.Upstream != nil {
		up := *f.Upstream
		up.Header, up.Body, up.Dialect = nil, nil, ""
		out.Upstream = &up
	}
	return &out
}

type listedRun struct {
	Type string `json:"object"` // run
	Object
}

type shownRun struct {
	Type string `json:"object"` // run
	Detail
}

// newPage returns the page of up to limit runs. A further run shows that there is more.
func newPage(found []journal.Summary, limit int) surface.IDPage[listedRun] {
	wire := func(s journal.Summary) listedRun { return listedRun{"run", NewObject(s)} }
	return surface.NewIDPage(found, limit, wire, func(r listedRun) string { return r.ID })
}

// raised is the answer to a raise: the run goes on.
type raised struct {
	ID     string        `json:"id"`
	Status string        `json:"status"` // running
	Limits budget.Limits `json:"limits"` // of the run, from now on
}

// cancelled is the answer to a cancel: the run ends soon.
type cancelled struct {
	ID     string `json:"id"`
	Status string `json:"status"` // cancelling
}
