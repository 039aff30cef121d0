package run

import (
	"errors"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// discover lists the tools of the org's servers.
func (d *drive) discover() error {
	set, err := d.o.Catalog.For(d.ctx, d.req.Org, d.req.Servers, d.req.CatalogTTL)
	if err != nil {
		return d.stopped(err, "")
	}
	d.tools = set
	body := loop.Catalogued{Servers: set.Servers}
	for _, name := range slices.Sorted(maps.Keys(d.clientNames())) {
		if e := set.Lookup(name); e != nil {
			body.Conflict = &loop.Conflict{Tool: name, Server: e.Server}
			break
		}
	}
	body.Missing = d.missingTool()
	for _, t := range set.Offered() {
		body.Bytes += int64(len(t.Name) + len(t.Description) + len(t.InputSchema))
	}
	if d.state.Grade != loop.Durable {
		return d.append(nil, body)
	}
	body.CatalogRef = catalogRef
	return d.append([]Row{d.catalogRow()}, body)
}

// missingTool returns what the caller's tool choice demands and nobody has: the
// name of a tool, or "any tool".
func (d *drive) missingTool() string {
	choice := d.req.ToolChoice
	has := func(name string) bool { return d.clientNames()[name] || d.tools.Lookup(name) != nil }
	switch {
	case choice.Mode == "named" && choice.Name != "" && !has(choice.Name):
		return choice.Name
	case choice.Mode == "required" && choice.Only != nil && !slices.ContainsFunc(choice.Only, has):
		return "any of the allowed tools"
	case choice.Mode == "required" && len(d.req.ClientTools) == 0 && len(d.tools.Offered()) == 0:
		return "any tool"
	}
	return ""
}

func (d *drive) clientNames() map[string]bool {
	names := make(map[string]bool, len(d.req.ClientTools))
	for _, t := range d.req.ClientTools {
		names[t.Name] = true
	}
	return names
}

// stopped records why an effect ended the run: the outbound policy refused an
// address, or the context ended, which noticeEnd will record.
func (d *drive) stopped(err error, server string) error {
	var fatal tool.Fatal
	switch {
	case errors.As(err, &fatal):
		reason, address := fatal.Blocked()
		return d.append(nil, loop.Blocked{Reason: reason, Address: address, Server: server})
	case d.ctx.Err() != nil || d.state.Ended != "":
		return nil
	}
	return err
}
