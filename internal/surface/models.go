package surface

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
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

// Models calls yield for the names that the caller can ask for.
func (h *Handler) Models(ctx context.Context, caller caller.Caller, yield func(Model)) {
	for _, m := range h.o.Models.Names(ctx) {
		if caller.Principal.Access.AllowsModel(m.Name) {
			yield(m)
		}
	}
}

// Model returns the model with a name.
func (h *Handler) Model(ctx context.Context, caller caller.Caller, name string) (m Model, err error) {
	found := caller.Principal.Access.AllowsModel(name)
	if found {
		m, found = h.o.Models.Find(ctx, name)
	}
	if !found {
		return m, fault.New(fault.NotFound, "model_not_found", "no provider lists the model %q; %s; GET /v1/models lists all names", name, h.hints(caller)).In("model")
	}
	return m, nil
}

// Tools returns what a run of the caller would see now; nothing if that cannot be found
// out soon.
func (h *Handler) Tools(ctx context.Context, caller caller.Caller) Tools {
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

// targets returns who serves a model, in the order in which they are tried. A model that the
// caller's key may not use does not exist.
func (h *Handler) targets(caller caller.Caller, name string) ([]route.Target, error) {
	var resolved []route.Target
	if caller.Principal.Access.AllowsModel(name) {
		resolved = h.o.Router.Resolve(name)
	}
	if names := route.Names(name); resolved == nil && names != nil {
		return h.listed(caller, names)
	}
	if resolved == nil {
		return nil, fault.New(fault.NotFound, "model_not_found", "no provider serves the model %q; %s", name, h.hints(caller)).In("model")
	}
	return resolved, nil
}

// listed returns the targets of a list of models, which is a fallback list.
func (h *Handler) listed(caller caller.Caller, names []string) ([]route.Target, error) {
	switch {
	case caller.Org.Runtime.ModelLists != org.AllowLists:
		return nil, fault.New(fault.Invalid, "model_lists_refused", "model: a list of models is a fallback list, which the org does not allow; "+
			"an owner or admin allows it with model_lists: allow in the org's runtime settings; otherwise ask for one model").In("model")
	case len(names) > route.MaxList:
		return nil, fault.New(fault.Invalid, "invalid_value", "model: the list has %d names; want at most %d", len(names), route.MaxList).In("model")
	}
	for _, name := range names {
		if !caller.Principal.Access.AllowsModel(name) {
			return h.targets(caller, name) // which names it
		}
	}
	found, unknown := h.o.Router.ResolveList(names)
	if found == nil {
		return nil, fault.New(fault.NotFound, "model_not_found", "no provider serves the model %q of the list; %s", unknown, h.hints(caller)).In("model")
	}
	return found, nil
}

// hints names some of the models that the caller can ask for.
func (h *Handler) hints(caller caller.Caller) string {
	hints := h.o.Router.Hints()
	if only := caller.Principal.Access.Models; only != nil {
		if hints = only; len(only) == 0 {
			return "this API key may use none"
		}
	}
	more := ""
	if len(hints) > maxHints {
		hints, more = hints[:maxHints], ", …"
	}
	return "known are: " + strings.Join(hints, ", ") + more
}

// KeepRelaying leaves only targets of the dialect for a request that no other can get without
// loss: one with the member native, which has a form that only this dialect has. Speaks names
// the dialect in the error that says that there is no such target.
func KeepRelaying(req *run.Request, dialect, native, speaks string) error {
	able := slices.DeleteFunc(slices.Clone(req.Targets), func(t route.Target) bool { return !t.Relays(dialect) })
	if len(able) == 0 {
		return fault.New(fault.Invalid, "unsupported_value", "%s has a form that cannot be translated for the provider %s; "+
			"use a model of a provider that speaks %s", native, req.Targets[0].Provider, speaks).In(native)
	}
	req.Targets = able
	return nil
}
