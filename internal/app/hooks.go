package app

import (
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/hook"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// hooks returns what asks the http hooks of orgs.
func (a *App) hooks() *hook.Sender {
	return hook.New(hook.Options{
		Client: a.out.Guarded(egress.GuardedOptions{}), Secret: a.vaultSecret,
		Hook: func(orgID, key, hookID string) (org.Hook, bool) {
			found, ok := a.directory.Caller(orgID, key)
			if !ok {
				return org.Hook{}, false
			}
			return found.Org.Runtime.Hook(hookID)
		},
	})
}
