package app

import (
	"context"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/hook"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// hooks returns what asks the http hooks of orgs and agents.
func (a *App) hooks(retained *memlimit.Limiter) *hook.Sender {
	return hook.New(hook.Options{
		Client: a.out.Guarded(egress.GuardedOptions{}), Secret: a.vault.secret, Secrets: a.secrets, Target: hookTargets{a.store, a.directory}.of, Rows: a.store.Rows, Memory: retained,
	})
}

// hookTargets says where hooks are sent to.
type hookTargets struct {
	sessions  agent.Sessions
	directory *directory.Directory
}

// of returns where a hook is sent to: one of an org as the org has it now, one of an agent as the
// session of the run has it.
func (t hookTargets) of(ctx context.Context, q run.HookQuestion) (hook.Target, error) {
	if q.Hook.Agent {
		session, _, err := t.sessions.TurnOf(ctx, q.Org, q.RunID)
		if err != nil {
			return hook.Target{}, err
		}
		return agentHookTarget(session.Snapshot, q.Hook.ID)
	}
	found, ok := t.directory.Org(q.Org)
	if !ok {
		return hook.Target{}, org.ErrNotFound
	}
	h, ok := found.Runtime.Hook(q.Hook.ID)
	if !ok || h.Disabled {
		return hook.Target{}, org.ErrNotFound
	}
	return hook.TargetOf(h), nil
}

// agentHookTarget returns where a hook of an agent is sent to.
func agentHookTarget(s agent.Snapshot, id string) (hook.Target, error) {
	i := slices.IndexFunc(s.Hooks, func(h agent.Hook) bool { return h.ID == id || agent.OwnHook+h.ID == id })
	if i < 0 || s.Hooks[i].HTTP == nil {
		return hook.Target{}, org.ErrNotFound
	}
	h := s.Hooks[i].HTTP
	return hook.Target{
		URL: h.URL, Headers: h.Headers, Secret: h.Secret, Timeout: time.Duration(h.TimeoutSeconds) * time.Second, Context: h.IncludeRunContext, FromFile: s.Declared,
	}, nil
}
