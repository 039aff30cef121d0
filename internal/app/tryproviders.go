package app

import (
	"context"
	"log/slog"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/model"
)

// TryProviders asks each provider of the configuration for its list of models, as the gateway would, and calls tell in
// their order. tried is false for a provider whose API has no such list.
func TryProviders(ctx context.Context, c *config.Config, keys *config.Secrets, tell func(name string, tried bool, err error)) error {
	a := &adapters{out: egress.New(OutboundPolicy(c.Outbound.SSRF), egress.Options{}), log: slog.New(slog.DiscardHandler)}
	defer a.out.CloseIdleConnections()
	defer a.local.Stop()
	all, err := a.build(&settings{c, keys})
	if err != nil {
		return err
	}
	for _, p := range all {
		lister, ok := p.Model.(model.Lister)
		if !ok {
			tell(p.Name, false, nil)
			continue
		}
		tell(p.Name, true, lister.List(ctx, nil, func(model.Listed) bool { return false }))
	}
	return nil
}
