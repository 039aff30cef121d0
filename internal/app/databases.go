package app

import (
	"context"
	"errors"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
)

// checkDatabases refuses databases of an org whose role may do too much, and those whose address the outbound policy
// refuses. One that cannot be reached is no reason: its secret may be stored later.
func (a *App) checkDatabases(ctx context.Context, orgID string, all []org.Database) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second) // somebody waits for the answer
	defer cancel()
	for _, d := range all {
		_, err := a.databases.Check(ctx, orgID, d, func(ctx context.Context, reference string) (string, error) {
			return a.orgSecret(ctx, orgID, reference)
		})
		var blocked *egress.BlockedError
		switch {
		case sqltool.IsDangerous(err):
			return fault.New(fault.Unprocessable, "dangerous_role", "the database %q: %v", d.Name, err).In("databases")
		case errors.As(err, &blocked):
			refused := fault.New(fault.Unprocessable, "outbound_ssrf_blocked", "the outbound policy refuses the address of the database %q: %s%s", d.Name, blocked.Reason, directory.AllowedBy(blocked)).In("databases")
			refused.Setting = blocked.Setting()
			return refused
		case err != nil:
			a.log.Info("a database of an org cannot be reached yet", "org", orgID, "database", d.Name)
		}
	}
	return nil
}
