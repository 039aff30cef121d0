package run

import (
	"errors"
	"maps"
	"net/url"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// discover lists the tools of the org's servers.
func (d *drive) discover() error {
	set, err := d.o.Catalog.For(d.ctx, d.req.Org, d.req.Servers, d.req.CatalogTTL)
	if err != nil {
		server := ""
		var of *catalog.ServerError
		if errors.As(err, &of) {
			server = of.Server
		}
		return d.stopped(err, server)
	}
	d.tools = set
	body := loop.Catalogued{Servers: set.Servers, Collisions: set.NewCollisions()}
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
		b := loop.Blocked{Server: server, URL: d.urlOf(server)}
		b.Reason, b.Address = fatal.Blocked()
		var remedy interface{ Setting() string }
		if errors.As(err, &remedy) {
			b.Setting = remedy.Setting()
		}
		d.log.Warn("the outbound policy refuses an MCP server", "server", b.Server, "url", b.URL, "reason", b.Reason, "address", b.Address, "setting", b.Setting)
		return d.append(nil, b)
	case d.ctx.Err() != nil || d.state.Ended != "":
		return nil
	}
	return err
}

// urlOf returns the URL of the org's server without what may hold a secret: user
// information and query. "" if there is no such server, or it has no such URL.
func (d *drive) urlOf(server string) string {
	i := slices.IndexFunc(d.req.Servers, func(s catalog.Server) bool { return s.Name == server })
	if i < 0 {
		return ""
	}
	u, err := url.Parse(d.req.Servers[i].URL)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
