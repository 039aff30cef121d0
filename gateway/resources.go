package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	orgs "github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
)

// tools returns the tools of the program: its functions, and its resources, whose calls are recorded.
func (g *Gateway) tools(c Config) (tool.Source, error) {
	if len(c.Resources) == 0 {
		return c.Tools, nil
	}
	var copies []*resource.Resource
	for _, r := range c.Resources {
		if r == nil {
			return nil, errors.New("a resource of Config.Resources is nil")
		}
		copies = append(copies, r.Copy().Audit(Auditor{g: g}))
	}
	set, err := resource.NewSet(copies...)
	if err != nil {
		return nil, fmt.Errorf("Config.Resources: %w", err)
	}
	p := program{c.Tools, set}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p, nil
}

// program are the tools of a program.
type program struct {
	functions tool.Source // nil = none
	resources *resource.Set
}

// List implements tool.Source.
func (p program) List(ctx context.Context) ([]tool.Tool, error) {
	resources, err := p.resources.List(ctx)
	if err != nil || p.functions == nil {
		return resources, err
	}
	var functions []tool.Tool
	if of, ok := p.functions.(tool.Provider); ok { // the gateway applies the lists of each key to the names
		functions = of.Tools(tool.Caller{Permissions: []string{"*"}})
	} else if functions, err = p.functions.List(ctx); err != nil {
		return nil, err
	}
	return slices.Concat(functions, resources), nil
}

// check returns an error if a function that is known now has the name of a tool of a resource. One that is
// added later takes the name.
func (p program) check() error {
	var known []tool.Tool
	switch of := p.functions.(type) {
	case tool.Provider:
		known = of.Tools(tool.Caller{Permissions: []string{"*"}})
	case tool.Tools:
		known = of
	}
	names := p.resources.Permissions()
	for _, t := range known {
		if name := t.Definition().Name; slices.Contains(names, name) {
			return fmt.Errorf("Config.Tools and Config.Resources have both a tool %s; give one of them another name", name)
		}
	}
	return nil
}

// Audit returns the audit log of an org, for resources that the program uses itself, and for its agents:
//
//	products.Audit(gw.Audit("acme"))
//	agent := &turnpike.Agent{Model: model, Audit: gw.Audit("acme")}
//
// See [Auditor] for what is recorded.
func (g *Gateway) Audit(org string) Auditor { return Auditor{g, org} }

// Auditor records what a program does itself in the audit log of an org, with the caller as the program names it and the id of the
// run. As long as the org does not exist, and after Close, nothing can be recorded.
//
// Calls of resources, by agents of the program and by people, are recorded as audit_log.resource.call, like those of clients
// at /mcp. What may write is not executed if it cannot be recorded.
//
// Runs of agents (turnpike.Agent.Audit) leave the rows of runs of clients: audit_log.request for each model call, with "via": "library",
// and audit_log.agent.tool_call for each tool call. They count in the usage of the org; its budgets do not apply. Runs do not begin
// while they cannot be recorded. A row is written at most 10 ms after what it records, and not in its transaction: end the agents before
// the gateway.
type Auditor struct {
	g   *Gateway
	org string // "" = that of the caller, who is a key: at /mcp
}

// Record implements resource.Auditor.
func (a Auditor) Record(ctx context.Context, r resource.Record) error {
	org, via := a.org, audit.ViaProgram
	if org == "" {
		org, via = r.Caller.Org, audit.ViaMCP
	} else if r.Caller.ID == orgs.Operator {
		return fmt.Errorf("a caller of a resource cannot have the ID %s, which stands for the operator", orgs.Operator)
	}
	e := audit.Entry{
		Kind: audit.KindResourceCall, At: r.At.UnixMilli(), Principal: r.Caller.ID,
		RunID: r.Run, RequestID: cmp.Or(r.Request, r.Run),
		Body: audit.ResourceCall{
			Via: via, Resource: r.Resource, Tool: r.Tool, Call: r.Call, Attempt: r.Attempt,
			Class: string(r.Class), Status: string(r.Status), LatencyMS: audit.Milliseconds(r.Took.Microseconds()),
			ArgsDigest: r.ArgsDigest, Digest: r.ResultDigest,
		},
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err := a.g.app.Record(ctx, org, e, r.Status == resource.Started)
	switch {
	case err != nil && r.Status == resource.Started:
		a.g.log.Error("a call of a resource was not executed: it could not be recorded", "org", org, "tool", r.Tool, "error", err)
	case err != nil:
		a.g.log.Error("an audit row of a call of a resource may be missing", "org", org, "tool", r.Tool, "error", err)
	}
	return err
}

// recordTimeout is how long a call waits for an audit row.
const recordTimeout = 30 * time.Second
