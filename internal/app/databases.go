package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
)

// databases are the connections to databases of orgs.
type databases struct {
	*sqltool.Connections
	secret func(ctx context.Context, orgID, reference string) (string, error)
	log    *slog.Logger
}

// check refuses databases of an org whose role may do too much, and those whose address the outbound policy
// refuses. One that cannot be reached is no reason: its secret may be stored later.
func (d databases) check(ctx context.Context, orgID string, all []org.Database) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second) // somebody waits for the answer
	defer cancel()
	for _, one := range all {
		_, err := d.Check(ctx, orgID, one, func(ctx context.Context, reference string) (string, error) {
			return d.secret(ctx, orgID, reference)
		})
		var blocked *egress.BlockedError
		switch {
		case sqltool.IsDangerous(err):
			return fault.New(fault.Unprocessable, "dangerous_role", "the database %q: %v", one.Name, err).In("databases")
		case errors.As(err, &blocked):
			refused := fault.New(fault.Unprocessable, "outbound_ssrf_blocked", "the outbound policy refuses the address of the database %q: %s%s", one.Name, blocked.Reason, directory.AllowedBy(blocked)).In("databases")
			refused.Setting = blocked.Setting()
			return refused
		case err != nil:
			d.log.Info("a database of an org cannot be reached yet", "org", orgID, "database", one.Name)
		}
	}
	return nil
}
