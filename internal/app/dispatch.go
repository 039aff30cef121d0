package app

import (
	"log/slog"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/httptool"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
	"github.com/turnpike-gateway/turnpike/tool"
)

// dispatcher executes the tools of requests by the tool dispatch URL. It is a run.Dispatcher.
type dispatcher struct {
	live  *live
	out   *egress.Egress
	log   *slog.Logger
	calls httptool.Dispatcher
}

// Dispatches reports whether the URL executes the tools of this name.
func (d *dispatcher) Dispatches(name string) bool {
	to := d.live.current.Load().config.ToolDispatch
	return to.URL != "" && slices.ContainsFunc(to.Tools, func(pattern string) bool { return org.Matches(pattern, name) })
}

// Dispatch implements run.Dispatcher.
func (d *dispatcher) Dispatch(orgID string, definitions []tool.Definition) (catalog.Server, bool) {
	now := d.live.current.Load()
	to := now.config.ToolDispatch
	if to.URL == "" {
		return catalog.Server{}, false
	}
	target := httptool.Dispatch{URL: to.URL, Timeout: to.Timeout}
	if !now.keys.Dispatch.IsZero() {
		key, err := webhook.ParseSecret(now.keys.Dispatch)
		if err != nil {
			d.log.Error("the tool dispatch URL is not used: its secret cannot be used", "error", err) // it was checked when it was read
			return catalog.Server{}, false
		}
		target.Keys = []webhook.Key{key}
	}
	o := httptool.Options{
		Client: d.out.Guarded(egress.GuardedOptions{}), Log: d.log.With("org", orgID, "server", loop.DispatchServer),
	}
	return catalog.Server{
		Name: loop.DispatchServer, Source: d.calls.Tools(orgID, target, definitions, o), Trust: true, FromRequest: true, Place: catalog.PlaceOf(time.Time{}, to.URL),
	}, true
}
