package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// matcherOf is a matcher of a hook, and where it is.
type matcherOf struct{ name, matcher string }

// checkHooks looks for a tool for the matcher of each hook: of the org's hooks among the tools of the org and of all
// its agents, and of an agent's hooks among those of the org and of the agent.
func (d *doctor) checkHooks(ctx context.Context) {
	pool := mcppool.New(mcppool.Options{
		Out: d.way, Secrets: d.resolver, Vaults: storedVaults(d.keyring, d.openStored), Refused: directory.RefusedServer,
		Log: slog.New(slog.DiscardHandler),
	})
	defer pool.Close()
	tools := catalog.New(catalog.Options{})
	defer tools.Close()
	d.orgs(func(id string, servers []org.MCPServer, runtime org.Runtime) {
		agents := d.agentsOf(id)
		of := hooksOfOrg(runtime)
		if len(of) == 0 && !slices.ContainsFunc(agents, func(a agent.Agent) bool { return len(hooksOfAgent(a)) > 0 }) {
			return
		}
		ask := func(servers []org.MCPServer) toolsFound {
			limited, cancel := context.WithTimeout(ctx, doctorTime)
			defer cancel()
			set, err := tools.For(limited, id, pool.Keep(limited, id, servers, nil), 0)
			if err != nil {
				return toolsFound{missing: []string{err.Error()}}
			}
			return toolsFound{set, set.Unavailable(), nil}
		}
		shared := ask(servers)
		all := []toolsFound{shared, {names: builtin.Names()}}
		for _, o := range d.config.Orgs {
			for _, t := range o.HTTPTools {
				if o.ID == id {
					all[1].names = append(all[1].names, t.Name)
				}
			}
		}
		if d.config.ToolDispatch.URL != "" {
			all[1].missing = []string{"tool_dispatch"}
		}
		for _, a := range agents {
			own := toolsFound{}
			if len(a.Servers) > 0 {
				own = ask(agent.Snapshot{Servers: a.Servers, Declared: a.Declared}.MCPServers(id))
			}
			for _, t := range a.Tools {
				own.names = append(own.names, t.Name)
			}
			all = append(all, own)
			d.judgeMatchers(id, hooksOfAgent(a), shared, own)
		}
		d.judgeMatchers(id, of, all...)
	})
}

// toolsFound are tools that a hook can select.
type toolsFound struct {
	set     *catalog.Set // nil = none
	missing []string     // servers whose tools are not known
	names   []string     // of tools that are not in set
}

func (d *doctor) judgeMatchers(id string, hooks []matcherOf, among ...toolsFound) {
	for _, h := range hooks {
		selects := loop.Hook{Matcher: h.matcher}.Selects
		found, missing := len(builtin.AlsoSelected(h.matcher)) > 0, []string(nil)
		for _, t := range among {
			found = found || t.set != nil && t.set.Selects(selects) || slices.ContainsFunc(t.names, func(name string) bool { return selects(name, "") })
			missing = append(missing, t.missing...)
		}
		switch {
		case found:
			d.well("hook", id, h.name, fmt.Sprintf("matcher %q matches a tool", h.matcher))
		case len(missing) > 0:
			d.untried("hook", id, h.name, fmt.Sprintf("matcher %q matches no known tool; the tools of these are not known: %s", h.matcher, strings.Join(missing, ", ")))
		default:
			d.wrong("hook", id, h.name, fmt.Sprintf("matcher %q matches no tool, so the hook runs for no call", h.matcher), "correct the matcher: a name or glob of a tool as the model or its server calls it; remove the hook if the tool is gone")
		}
	}
}

// agentsOf returns the agents of the file and of the store that runs can use.
func (d *doctor) agentsOf(id string) (all []agent.Agent) {
	for _, o := range d.config.Orgs {
		if o.ID == id {
			for _, a := range o.Agents {
				all = append(all, agent.Agent{Org: id, ID: a.Name, Declared: true, Definition: a.Definition()})
			}
		}
	}
	return append(all, d.agents[id]...)
}

func hooksOfOrg(rt org.Runtime) (out []matcherOf) {
	for _, h := range rt.Hooks {
		if h.Matcher != "" && !h.Disabled {
			out = append(out, matcherOf{h.ID, h.Matcher})
		}
	}
	return out
}

func hooksOfAgent(a agent.Agent) (out []matcherOf) {
	for i, h := range a.Hooks {
		if h.Matcher != "" && h.Enabled {
			out = append(out, matcherOf{fmt.Sprintf("%s.hooks[%d]", a.Name, i), h.Matcher})
		}
	}
	return out
}
