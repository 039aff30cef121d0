package surface

import (
	"context"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/provider/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

// toolsTimeout bounds how long a list of models waits for servers.
const toolsTimeout = 5 * time.Second

// maxHints is the most names of models that an error lists.
const maxHints = 20

// Model is a name that can be asked for: its provider, and when it was created.
type Model = route.Known

// Tools is what the gateway adds to every model of an org: tools that it executes itself.
type Tools struct {
	Offered   int // tools
	Connected int // MCP servers
}

// Models returns the names that can be asked for.
func (h *Handler) Models(ctx context.Context) []Model { return h.o.Models.Names(ctx) }

// Model returns the model with a name.
func (h *Handler) Model(ctx context.Context, name string) (Model, error) {
	m, found := h.o.Models.Find(ctx, name)
	if !found {
		return m, fault.New(fault.NotFound, "model_not_found", "no provider lists the model %q; %s; GET /v1/models lists all names", name, h.hints()).In("model")
	}
	return m, nil
}

// Tools returns what a run of the caller would see now; nothing if that cannot be found
// out soon.
func (h *Handler) Tools(ctx context.Context, caller run.Caller) Tools {
	if !caller.LoopActive() {
		return Tools{}
	}
	ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	set, err := h.o.Catalog.For(ctx, caller.Org.ID, caller.Servers, caller.Org.Runtime.CatalogTTL)
	if err != nil {
		return Tools{}
	}
	out := Tools{Offered: len(set.Offered())}
	for _, s := range set.Servers {
		if s.Error == "" {
			out.Connected++
		}
	}
	return out
}

// targets returns who serves a model, in the order in which they are tried.
func (h *Handler) targets(name string) ([]run.Target, error) {
	resolved := h.o.Router.Resolve(name)
	if resolved == nil {
		return nil, fault.New(fault.NotFound, "model_not_found", "no provider serves the model %q; %s", name, h.hints()).In("model")
	}
	targets := make([]run.Target, len(resolved))
	for i, t := range resolved {
		targets[i] = run.Target{Provider: t.Provider, Name: t.Name, Model: t.Model, RelayHeaders: t.RelayHeaders}
	}
	return targets, nil
}

// hints names some of the models that can be asked for.
func (h *Handler) hints() string {
	hints := h.o.Router.Hints()
	more := ""
	if len(hints) > maxHints {
		hints, more = hints[:maxHints], ", …"
	}
	return "known are: " + strings.Join(hints, ", ") + more
}

// Relays reports whether requests of a dialect can be passed on to the target unchanged.
func Relays(t run.Target, dialect string) bool {
	relayer, ok := t.Model.(model.Relayer)
	return ok && relayer.Relays(dialect)
}
