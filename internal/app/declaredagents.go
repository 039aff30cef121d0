package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/config"
)

// declaredAgents are the agents that the configuration file declares, by org and in its order.
type declaredAgents map[string][]agent.Agent

// declareAgents gives the agents of the configuration their versions, which the store keeps. An agent that is not in
// the file any more keeps its versions and sessions there, and cannot be run.
func declareAgents(ctx context.Context, c *config.Config, store agent.Store, log *slog.Logger) (declaredAgents, error) {
	out := declaredAgents{}
	for _, o := range c.Orgs {
		if len(o.Agents) == 0 {
			continue
		}
		var all []agent.Agent
		for _, a := range o.Agents {
			all = append(all, agent.Agent{Org: o.ID, ID: a.Name, Declared: true, Definition: a.Definition()})
		}
		all, err := store.DeclareAgents(ctx, o.ID, all, clock.Wall())
		if err != nil {
			return nil, fmt.Errorf("org %s: %w", o.ID, err)
		}
		for _, a := range all {
			same, _, err := store.Agents(ctx, o.ID, agent.Query{Name: a.Name, Archived: agent.AllAgents, Limit: 1})
			if err != nil {
				return nil, fmt.Errorf("org %s: %w", o.ID, err)
			}
			if len(same) > 0 {
				log.Warn("an agent of the configuration file has the name of one that was added over the API, which is found by its id only", "org", o.ID, "agent", a.Name, "id", same[0].ID)
			}
		}
		out[o.ID] = all
	}
	return out, nil
}

// agentsOf returns the agents that the configuration file declares of an org.
func (l *live) agentsOf(orgID string) []agent.Agent { return (*l.agents.Load())[orgID] }
