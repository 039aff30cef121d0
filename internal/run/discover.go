package run

import (
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// discover lists the tools of the org's servers and appends what it found.
func (d *driver) discover() error {
	run := &d.run
	set, err := d.o.Catalog.For(run.ctx, run.req.Org, run.req.Servers, time.Duration(run.policy().CatalogTTLNS))
	if err != nil {
		return run.stopped(err, failedServer(err))
	}
	d.tools.catalog = set
	d.tools.choose()
	known := d.tools.known()
	body := loop.Catalogued{
		Servers: run.state().Announce(set.Servers), Collisions: set.NewCollisions(), Conflict: known.Conflict(), Missing: known.Missing(d.tools.choice),
	}
	for _, t := range set.Offered() {
		body.Bytes += int64(len(t.Name) + len(t.Description) + len(t.InputSchema))
	}
	memory := run.account.Share()
	defer memory.Close()
	rows, err := d.tools.listed(&body, memory)
	if err != nil {
		return err
	}
	if run.durable() {
		body.CatalogRef = catalogRef
		rows = append(rows, d.tools.row())
	}
	return run.append(rows, body)
}

// failedServer returns the server of a failure that the catalogue has returned; "" = unknown.
func failedServer(err error) string {
	if of, ok := errors.AsType[*catalog.ServerError](err); ok {
		return of.Server
	}
	return ""
}

// stopped appends Blocked if err says that the outbound policy refused an address of the
// server. It returns nil if the run has ended, or its context, for which noticeEnd appends a
// fact. Any other error is returned.
func (s *runState) stopped(err error, server string) error {
	var fatal tool.Fatal
	switch {
	case errors.As(err, &fatal):
		b := blockedBy(fatal)
		b.Server, b.URL = server, s.req.urlOf(server)
		s.log.Warn("the outbound policy refuses an MCP server", "server", b.Server, "url", b.URL, "reason", b.Reason, "address", b.Address, "setting", b.Setting)
		return s.append(nil, b)
	case s.ctx.Err() != nil || s.state().Ended != "":
		return nil
	}
	return err
}

// blockedBy returns the fact that the outbound policy has refused an address.
func blockedBy(fatal tool.Fatal) loop.Blocked {
	var b loop.Blocked
	b.Reason, b.Address = fatal.Blocked()
	if remedy, ok := fatal.(interface{ Setting() string }); ok {
		b.Setting = remedy.Setting()
	}
	return b
}

// urlOf returns the URL of the org's server, without user information and query, because
// these may have secrets; "" if there is no such server, or its URL cannot be parsed.
func (r *Request) urlOf(server string) string {
	i := slices.IndexFunc(r.Servers, func(s catalog.Server) bool { return s.Name == server })
	if i < 0 {
		return ""
	}
	u, err := url.Parse(r.Servers[i].URL)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
