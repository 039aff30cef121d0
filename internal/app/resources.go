package app

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
)

// resources finds what a run needs that was begun by another process. It is a
// run.Resources.
type resources struct {
	directory *directory.Directory
	router    *route.Router
	live      *live
}

// For implements run.Resources.
func (r resources) For(_ context.Context, a *loop.Accepted) ([]route.Target, []catalog.Server, error) {
	servers, ok := r.directory.ServersOf(a.Org, a.Principal)
	if len(a.Switched) > 0 {
		servers, ok = r.directory.Engaged(a.Org, a.Principal, a.Switched)
	}
	if !ok {
		return nil, nil, fmt.Errorf("org %s no longer exists or has no keys", a.Org)
	}
	targets := make([]route.Target, len(a.Targets))
	for i, t := range a.Targets {
		found, ok := r.router.Target(t.Provider, t.Model)
		if !ok {
			return nil, nil, fmt.Errorf("provider %s with the model %s is no longer configured", t.Provider, t.Model)
		}
		found.Target = t
		targets[i] = found
	}
	return targets, servers, nil
}
