package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// matcherOf is a matcher of a hook of an org.
type matcherOf struct{ name, matcher string }

// checkAgents looks for what agents name: their models, their custom tools, and a tool for the matcher of each hook. For the org's hooks
// it looks among the tools of the org and of all its agents.
func (d *doctor) checkAgents(ctx context.Context) {
	pool := mcppool.New(mcppool.Options{
		Out: d.way, Secrets: d.resolver, Vaults: storedVaults(d.keyring, d.openStored), Refused: directory.RefusedServer,
		Log: slog.New(slog.DiscardHandler),
	})
	defer pool.Close()
	tools := catalog.New(catalog.Options{})
	defer tools.Close()
	hasCustom, done := d.customTools(ctx)
	defer done()
	d.orgs(func(id string, servers []org.MCPServer, runtime org.Runtime) {
		agents := d.agentsOf(id)
		of := hooksOfOrg(runtime)
		if len(of) == 0 && len(agents) == 0 {
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
		shared := toolsFound{}
		if len(of) > 0 || slices.ContainsFunc(agents, hasMatcher) {
			shared = ask(servers)
		}
		for _, o := range d.config.Orgs {
			for _, t := range o.HTTPTools {
				if o.ID == id {
					shared.names = append(shared.names, t.Name)
				}
			}
		}
		all := []toolsFound{shared, {names: builtin.Names()}}
		if d.config.ToolDispatch.URL != "" {
			all[1].missing = []string{"tool_dispatch"}
		}
		for _, t := range runtime.BuiltinTools {
			shared.names = append(shared.names, t.Name)
		}
		for _, a := range agents {
			own := toolsFound{}
			if len(a.Servers) > 0 && (len(of) > 0 || hasMatcher(a)) {
				own = ask(agent.Snapshot{Servers: a.Servers, Declared: a.Declared}.MCPServers(id))
			}
			d.judgeAgent(a, hasCustom, shared, own)
			for _, t := range a.Tools {
				own.names = append(own.names, t.Name)
			}
			all = append(all, own)
		}
		d.judgeMatchers(id, of, all...)
	})
}

// hasMatcher reports whether the tools that an agent has are of interest.
func hasMatcher(a agent.Agent) bool {
	return slices.ContainsFunc(a.Hooks, func(h agent.Hook) bool { return h.Matcher != "" && h.Enabled })
}

// judgeAgent says what the agent names that does not exist. shared and own are the tools of its org and those of its own MCP servers.
func (d *doctor) judgeAgent(a agent.Agent, hasCustom func(orgID, name string) bool, shared, own toolsFound) {
	known := agent.Known{
		Serves: d.config.Serves(), Unlisted: slices.Concat(own.missing, shared.missing),
		Selects: func(selects func(name, own string) bool) bool { return own.selects(selects) || shared.selects(selects) },
	}
	if hasCustom != nil {
		known.Custom = func(name string) bool { return hasCustom(a.Org, name) }
	}
	warned, exists := map[int]agent.Warning{}, true
	for _, w := range a.Warnings(known) {
		if warned[w.Hook] = w; w.Hook < 0 {
			exists = false
			d.wrong("agent", a.Org, a.Name, w.Field+": "+w.Problem, w.Remedy)
		}
	}
	switch {
	case exists && hasCustom == nil:
		d.untried("agent", a.Org, a.Name, "its model is served; the store cannot be read, so its custom tools are not known")
	case exists:
		d.well("agent", a.Org, a.Name, "its model is served, and its tools exist")
	}
	for i, h := range a.Hooks {
		if h.Matcher == "" || !h.Enabled {
			continue
		}
		name := fmt.Sprintf("%s.hooks[%d]", a.Name, i)
		switch w, found := warned[i]; {
		case !found:
			d.well("hook", a.Org, name, fmt.Sprintf("matcher %q matches a tool", h.Matcher))
		case w.Unsure:
			d.untried("hook", a.Org, name, w.Problem)
		default:
			d.wrong("hook", a.Org, name, w.Problem, w.Remedy)
		}
	}
}

// customTools returns a function that reports whether an org has a custom tool; nil if the store cannot be read.
func (d *doctor) customTools(ctx context.Context) (has func(orgID, name string) bool, done func()) {
	store, err := d.openStored(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist): // nothing is stored
		return func(string, string) bool { return false }, func() {}
	case err != nil:
		return nil, func() {}
	}
	return func(orgID, name string) bool {
		_, err := store.ToolNamed(ctx, orgID, name)
		return !errors.Is(err, org.ErrNotFound)
	}, func() { _ = store.Close() }
}

// toolsFound are tools that a hook can select.
type toolsFound struct {
	set     *catalog.Set // nil = none
	missing []string     // servers whose tools are not known
	names   []string     // of tools that are not in set
}

// selects reports whether selects holds for one of the tools.
func (t toolsFound) selects(selects func(name, own string) bool) bool {
	return t.set != nil && t.set.Selects(selects) || slices.ContainsFunc(t.names, func(name string) bool { return selects(name, "") })
}

// judgeMatchers says of each hook of an org whether it matches a tool.
func (d *doctor) judgeMatchers(id string, hooks []matcherOf, among ...toolsFound) {
	for _, h := range hooks {
		selects := loop.Hook{Matcher: h.matcher}.Selects
		found, missing := len(builtin.AlsoSelected(h.matcher)) > 0, []string(nil)
		for _, t := range among {
			found = found || t.selects(selects)
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
